"""What callers write as sizes, attributes and layouts: normalised to integers, or refused by name."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple, TypeAlias

Shape: TypeAlias = tuple[int, ...]
Numbers: TypeAlias = int | Shape

MOST_ELEMENTS = 2**63 - 1


class Layout(NamedTuple):
    """Where each dimension stands in a four-vector of one data_format."""

    n: int
    h: int
    w: int
    c: int

    def arranged(self, n: int, h: int, w: int, c: int) -> Shape:
        """The four values in this layout's order."""
        values = dict(zip(self, (n, h, w, c), strict=True))
        return tuple(values[i] for i in range(4))


LAYOUTS = {"NHWC": Layout(0, 1, 2, 3), "NCHW": Layout(0, 2, 3, 1)}


def layout_of(data_format: str) -> Layout:
    """The layout of a data_format."""
    if data_format not in LAYOUTS:
        raise ValueError(f"data_format must be {either(LAYOUTS)}, got {data_format!r}")
    return LAYOUTS[data_format]


def either(names: Iterable[str]) -> str:
    """Names as a choice."""
    return " or ".join(repr(name) for name in names)


def integers(name: str, value: Any, expected: str = "an integer or a sequence of integers") -> Numbers:
    """`value` as an int or a tuple of ints: hashable, and 1, True and 1.0 cannot be mistaken for each other."""
    kind = type(value)
    if kind is tuple or kind is list:
        for item in value:
            if type(item) is not int:
                break
        else:
            return tuple(value)
    elif kind is int:
        return value
    return _converted(name, value, expected)


def _converted(name: str, value: Any, expected: str) -> Numbers:
    try:
        return _integer(value)
    except TypeError:
        pass
    try:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError
        return tuple(_integer(item) for item in value)
    except TypeError:
        raise TypeError(f"{name} must be {expected}, got {reprlib.repr(value)}") from None


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def sizes(name: str, value: object) -> Shape:
    """A vector of sizes."""
    vector = integers(name, value, "a sequence of integers")
    if isinstance(vector, int):
        raise ValueError(f"{name} must be a sequence of 4 integers, got the single integer {vector}")
    return vector


def limited(name: str, shape: Shape) -> None:
    """Refuses a shape of too many elements. Empty dimensions count as 1, as they do for NumPy."""
    if prod([size or 1 for size in shape]) > MOST_ELEMENTS:
        raise ValueError(f"{name} must have at most 2**63 - 1 elements, got shape {shape}")


def short(values: object) -> str:
    """Values as they were written, cut where they are long."""
    return reprlib.repr(values)
