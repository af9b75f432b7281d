! Burgers' equation with a force, as a code of a library would have it: the state is
! changed in place, and the work array is the module's own.
subroutine advance(u, n, nu, f, dt, dx, k0, k1)
  implicit none
  integer, intent(in) :: n, k0, k1
  double precision, intent(inout) :: u(n)
  double precision, intent(in) :: nu, f(n), dt, dx
  double precision, save :: work(65536)
  integer :: i, k, l, r
  do k = k0, k1 - 1
    do i = 1, n
      l = merge(n, i - 1, i == 1)
      r = merge(1, i + 1, i == n)
      work(i) = u(i) - dt / (4 * dx) * (u(r)**2 - u(l)**2) &
        + nu * dt / dx**2 * (u(r) - 2 * u(i) + u(l)) + dt * f(i)
    end do
    u = work(1:n)
  end do
end subroutine

! The adjoint of a step from the state u before it: g is the cotangent of the state
! after it and becomes that of u; gnu and gf grow by those of the parameters.
subroutine adjoint(u, g, gf, gnu, n, nu, dt, dx)
  implicit none
  integer, intent(in) :: n
  double precision, intent(in) :: u(n), nu, dt, dx
  double precision, intent(inout) :: g(n), gf(n), gnu(1)
  double precision, save :: work(65536)
  integer :: i, l, r
  do i = 1, n
    l = merge(n, i - 1, i == 1)
    r = merge(1, i + 1, i == n)
    work(i) = g(i) + dt / (2 * dx) * u(i) * (g(r) - g(l)) &
      + nu * dt / dx**2 * (g(r) - 2 * g(i) + g(l))
    gnu(1) = gnu(1) + g(i) * dt / dx**2 * (u(r) - 2 * u(i) + u(l))
    gf(i) = gf(i) + dt * g(i)
  end do
  g = work(1:n)
end subroutine
