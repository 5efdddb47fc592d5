"""How pixels share the taps that lie inside of what they read: of small images, many taps lie in the padding."""

from __future__ import annotations

from typing import NamedTuple

MOST_READS = 2
"""How many times taps are read, at most, where pixels that differ in theirs read them by themselves."""

LEAST_INSIDE = 0.5
"""Share of all taps that lie inside, up to which `conv` leaves the others out: a filter that covers its whole input computes 49 times as much with them
if it has 7x7 taps (its gradient of the input took 16 to 24 times as long)."""

WINOGRAD_PRODUCTS = 16 / 36
"""Of `winograd` over those of `conv`, which has fewer of images of 1x1 pixels: 32 of 512 channels take 0.07 to 0.14 of the time."""


class Sharing(NamedTuple):
    """How pixels of a result share taps that lie inside of what they read."""

    pixels: int
    """That use the same taps, at most."""

    reads: float
    """How many times each tap is read on average, if pixels that differ in theirs read them by themselves."""

    inside: float
    """The share of all taps of all pixels that lie inside."""

    @property
    def splits(self) -> bool:
        """Whether to leave out taps that lie outside is worth reading some others again."""
        return self.inside <= LEAST_INSIDE and self.reads <= MOST_READS


UNKNOWN = Sharing(1 << 62, 1 << 62, 1)
"""Of large images."""
