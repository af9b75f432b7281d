"""The published measurements of the example (2016 machine, n = 1000, phi = 3)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """Seconds and peak resident kB of the four published programs at one l."""

    l: int  # noqa: E741 - the paper's name
    tapenade: tuple[float, int]
    tapenade_binomial: tuple[float, int]
    vlad: tuple[float, int]
    vlad_checkpoint: tuple[float, int]


PUBLISHED = (
    Point(53, (0.06, 5_372), (0.06, 3_400), (15.5, 621_740), (47.7, 11_616)),
    Point(101, (0.13, 9_208), (0.13, 4_024), (39.1, 1_396_976), (112.7, 14_492)),
    Point(211, (0.30, 18_220), (0.29, 4_964), (100, 3_285_716), (313, 14_608)),
    Point(401, (0.65, 37_100), (0.66, 6_976), (255, 7_234_808), (719, 14_664)),
    Point(809, (1.43, 79_620), (1.42, 11_032), (569, 15_802_084), (1_676, 18_152)),
    Point(1601, (3.17, 172_424), (3.17, 19_016), (1_477, 35_305_024), (3_697, 18_088)),
    Point(3203, (6.94, 374_484), (6.95, 35_180), (4_249, 77_224_956), (8_491, 18_124)),
)

ORIGINAL_HERE = {
    53: (9.3, 17.0),
    101: (25.5, 40.6),
    211: (66.0, 112.0),
    401: (164.0, 238.0),
}
"""The original compiler on a machine of this year: seconds without and with
divide and conquer."""
