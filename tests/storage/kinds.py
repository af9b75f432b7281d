"""Classes of users, of which states consist."""

from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np

Point = namedtuple("Point", "x y")


@dataclass(frozen=True)
class Fields:
    u: np.ndarray
    p: float = 1.0
    derived: float = field(init=False, default=0.0)

    def __post_init__(self):
        object.__setattr__(self, "derived", 7.0)
        object.__setattr__(self, "beside", [self.p])


@dataclass(slots=True)
class Slotted:
    u: np.ndarray


class Vector:
    def __init__(self, u):
        self.u = u

    def copy(self):
        return Vector(self.u.copy())

    def nbytes(self):
        return self.u.nbytes

    def to_arrays(self):
        return {"u": self.u}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(arrays["u"])

    def __add__(self, other):
        return Vector(self.u + other.u)
