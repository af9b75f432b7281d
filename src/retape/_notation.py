"""The symbols of the literature beside ours, and the conventions behind every count.

    ours             paper     Griewank and Walther   revolve
    length n         n         l                      steps
    snapshots d      delta, d  s, c                   snaps
    sweeps t         tau, t    r, t                   (repetition number)
    stage alpha      alpha     1                      1
    split            kappa     k                      capo
    beta(d, t)       eta(d,t)  beta(s, t)             range

Conventions, the same in every module, engine and report:

- `snapshots` **includes** the slot of the start state.
- `advances` counts steps run without a tape; the n taped runs are not among them.
- A run of n steps with stage length alpha is N = ceil(n / alpha) stages. Stages start
  at multiples of alpha and the *last* one is the short one. Splits are taken in whole
  stages, so snapshots stand at multiples of alpha.
- The last stage of an interval is only taped, never advanced.
- A snapshot that would never be restored is not stored: a run of one stage has none.
"""
