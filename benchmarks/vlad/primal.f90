! The example's primal in FORTRAN (Fig. 8). Reads n, l and phi; prints the value and the
! seconds of the second of two runs.
program primal
  implicit none
  integer :: n, l, k, run
  integer(8) :: a, b, rate
  real(8) :: phi, y
  real(8), allocatable :: x(:)
  read *, n, l, phi
  allocate (x(n))
  do run = 1, 2
    do k = 1, n
      x(k) = n + 1 - k
    end do
    call system_clock(a, rate)
    y = f(n, x, l, phi)
    call system_clock(b)
  end do
  print *, y, real(b - a, 8) / real(rate, 8)
contains
  real(8) function f(n, x, l, phi)
    integer, intent(in) :: n, l
    real(8), intent(inout) :: x(n)
    real(8), intent(in) :: phi
    integer :: i, j, m
    real(8) :: y, r
    do i = 1, l
      r = mod(1013.0d0 * floor(3.0d0**phi) * i, real(l, 8))
      m = 2**(ilog2(real(l, 8)) - ilog2(1.0d0 + r))
      do j = 1, m
        y = sqrt(sum(x * x))
        call rotate_pairs(1.2d0 * y, 1, n, x)
        call rotate_pairs(1.4d0 * y, 2, n, x)
      end do
    end do
    f = sum(x * x) / 2.0d0
  end function f
  integer function ilog2(v)
    real(8), intent(in) :: v
    ilog2 = floor(log(v) / log(2.0d0))
  end function ilog2
  subroutine rotate_pairs(theta, first, n, x)
    real(8), intent(in) :: theta
    integer, intent(in) :: first, n
    real(8), intent(inout) :: x(n)
    integer :: k
    real(8) :: c, s, a, b
    c = cos(theta)
    s = sin(theta)
    do k = first, n - 1, 2
      a = x(k)
      b = x(k + 1)
      x(k) = c * a - s * b
      x(k + 1) = s * a + c * b
    end do
  end subroutine rotate_pairs
end program primal
