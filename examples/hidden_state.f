C     The Lorenz 96 equations, as a code of its time: the state and the
C     work arrays lie in COMMON blocks, and nobody can ask for them.
      SUBROUTINE START(SHIFT)
      IMPLICIT NONE
      INTEGER N, I
      PARAMETER (N=20000)
      DOUBLE PRECISION SHIFT, U(N), W(N)
      COMMON /STATE/ U, W
      DO I = 1, N
        U(I) = 8.0D0 + SIN(0.01D0*I)
      END DO
      U(1) = U(1) + SHIFT
      END

      SUBROUTINE STEP
      IMPLICIT NONE
      INTEGER N, I, L, LL, R
      PARAMETER (N=20000)
      DOUBLE PRECISION U(N), W(N), DT
      PARAMETER (DT=1.0D-3)
      COMMON /STATE/ U, W
      DO I = 1, N
        R = MOD(I, N) + 1
        L = MOD(I + N - 2, N) + 1
        LL = MOD(I + N - 3, N) + 1
        W(I) = U(I) + DT*((U(R) - U(LL))*U(L) - U(I) + 8.0D0)
      END DO
      DO I = 1, N
        U(I) = W(I)
      END DO
      END

C     The adjoint of a step, from the state before it.
      SUBROUTINE ADJ(G)
      IMPLICIT NONE
      INTEGER N, I, L, LL, R
      PARAMETER (N=20000)
      DOUBLE PRECISION G(N), U(N), W(N), DT
      PARAMETER (DT=1.0D-3)
      COMMON /STATE/ U, W
      DO I = 1, N
        W(I) = (1.0D0 - DT)*G(I)
      END DO
      DO I = 1, N
        R = MOD(I, N) + 1
        L = MOD(I + N - 2, N) + 1
        LL = MOD(I + N - 3, N) + 1
        W(R) = W(R) + DT*U(L)*G(I)
        W(LL) = W(LL) - DT*U(L)*G(I)
        W(L) = W(L) + DT*(U(R) - U(LL))*G(I)
      END DO
      DO I = 1, N
        G(I) = W(I)
      END DO
      END

C     The energy of the state, and its derivative.
      DOUBLE PRECISION FUNCTION ENERGY(G)
      IMPLICIT NONE
      INTEGER N, I
      PARAMETER (N=20000)
      DOUBLE PRECISION G(N), U(N), W(N)
      COMMON /STATE/ U, W
      ENERGY = 0.0D0
      DO I = 1, N
        ENERGY = ENERGY + 0.5D0*U(I)**2
        G(I) = U(I)
      END DO
      END
