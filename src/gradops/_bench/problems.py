"""Layers of networks as short strings, in the grammar of oneDNN's benchdnn, and what one call on them amounts to.

**Convolutions** are pairs of a key and a number, in any order; underscores between them are ignored::

    mb8ic64ih56oc64oh56kh3ph1n"resnet50:res2a"
    g32mb8ic32ih112oc32oh112kh3ph1                      depthwise: g is ic, and more than 1

============  ===================================================================================  =========
keys          meaning                                                                              left out
============  ===================================================================================  =========
g             groups, which divide ic and oc; with g = ic > 1 the layer is depthwise                1
mb            images of the batch                                                                  2
ic, oc        input and output channels, of all groups together                                    an error
ih, iw        rows and columns of the input                                                        an error
oh, ow        rows and columns of the output                                                       deduced
kh, kw        rows and columns of the filter                                                       an error
sh, sw        strides                                                                              1
dh, dw        dilations less one: **0 is a filter without gaps**, 1 skips every other pixel         0
ph, pw        padding above and to the left                                                        deduced
n             a name, the rest of the string: ``n"net:layer"``, or without quotes                  none
============  ===================================================================================  =========

Columns are as rows if none of their keys is there; otherwise iw and kw must be, and the rest has the defaults above.
The padding below and to the right is not written but follows from the output's size: it is what the last window needs,
at least 0. Without oh, the output is that of a padding by ph on both sides; without ph, the padding is split evenly, an
odd one with more at the end, as in TensorFlow's "SAME"; without both there is none. An output is refused whose last
window would begin beyond the image, and one that leaves out a window inside of it.

These are benchdnn's rules, so that what both accept means the same; only two spatial dimensions are known here.

**Fractional average pooling** has a grammar of its own, told apart by its ratio::

    mb8ic64ih112rh1.73o1n"fmp"

======  ====================================================  =========
keys    meaning                                               left out
======  ====================================================  =========
mb      images of the batch                                   2
ic      channels                                              an error
ih, iw  rows and columns of the input                         iw is ih
rh, rw  pooling ratios, at least 1 and at most the size       rw is rh
o       1 where cells overlap by a pixel, otherwise 0         0
n       a name, as above                                      none
======  ====================================================  =========

`parse` reads both, `str` writes them canonically.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradops.testing import OPS, PoolProblem, Problem, pooling_sequences
from gradops.testing._problems import Layout

__all__ = ["AnyLayer", "Layer", "Layout", "PoolLayer", "parse"]

_TOKEN = re.compile(r"([a-z]+)(\d+(?:\.\d+)?)")
_MOST_DIGITS = 18
_ROWS = ("ih", "oh", "kh", "sh", "dh", "ph")
_COLUMNS = ("iw", "ow", "kw", "sw", "dw", "pw")
_MAY_BE_ZERO = ("dh", "dw", "ph", "pw")


class _Axis(NamedTuple):
    """Rows or columns, in the order of `_ROWS`."""

    size: int
    out: int
    taps: int
    stride: int
    gaps: int
    before: int

    @property
    def reach(self) -> int:
        return (self.taps - 1) * (self.gaps + 1) + 1

    @property
    def outs(self) -> tuple[int, int]:
        """The least output, which has all windows inside, and the largest, whose last window begins inside."""
        inside = (self.size + self.before - self.reach) // self.stride + 1
        return max(1, inside), (self.size + self.before - 1) // self.stride + 1

    @property
    def needed(self) -> int:
        """The padding on both sides, with which the windows just fit."""
        return max(0, (self.out - 1) * self.stride + self.reach - self.size)

    @property
    def after(self) -> int:
        """The padding at the end."""
        return max(0, self.needed - self.before)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One convolution of a network, as a value; the keys of the grammar are its fields.

    Parameters
    ----------
    ic, oc : int
        Input and output channels, of all groups together.
    ih, iw, oh, ow : int
        Rows and columns of the input and of the output.
    kh, kw : int
        Rows and columns of the filter.
    sh, sw : int
        Strides of the rows and of the columns.
    dh, dw : int
        Dilations less one: 0 is a filter without gaps.
    ph, pw : int
        Padding above and to the left; that on the other sides follows from the output's size.
    g : int
        Groups. With g = ic > 1 the layer is depthwise.
    mb : int
        Images of the batch.
    name : str
        Without quotes and white space.

    Raises
    ------
    TypeError
        If a size is no integer.
    ValueError
        If sizes do not fit together; the message names the key, what came and what was expected.

    Examples
    --------
    >>> layer = parse("mb8ic64ih56oc64kh3ph1")
    >>> layer.oh, layer.kind
    (56, 'dense')
    >>> print(layer.with_batch(1))
    mb1ic64ih56oc64oh56kh3ph1
    """

    ic: int
    ih: int
    iw: int
    oc: int
    oh: int
    ow: int
    kh: int
    kw: int
    sh: int = 1
    sw: int = 1
    dh: int = 0
    dw: int = 0
    ph: int = 0
    pw: int = 0
    g: int = 1
    mb: int = 2
    name: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "name":
                _at_least(field.name, getattr(self, field.name), 0 if field.name in _MAY_BE_ZERO else 1)
        _check_name(self.name)
        for key, channels in (("ic", self.ic), ("oc", self.oc)):
            if channels % self.g:
                raise ValueError(f"{key}: got {channels}, expected a multiple of g, which is {self.g}")
        for keys, axis in zip((_ROWS, _COLUMNS), self._axes, strict=True):
            least, most = axis.outs
            if not least <= axis.out <= most:
                raise ValueError(
                    f"{keys[1]}: got {axis.out}, expected {_range(least, most)} as "
                    + ", ".join(f"{key} is {size}" for key, size in zip(keys, axis, strict=True) if key != keys[1])
                )

    def __str__(self) -> str:
        keys = [key for rows in zip(_ROWS, _COLUMNS, strict=True) for key in (rows if not self._square else rows[:1])]
        spatial = {row: "".join(f"{key}{getattr(self, key)}" for key in keys if key[0] == row[0]) for row in _ROWS}
        parts = [f"g{self.g}"] * (self.g != 1)
        parts += [f"mb{self.mb}ic{self.ic}", spatial["ih"], f"oc{self.oc}", spatial["oh"], spatial["kh"]]
        parts += [spatial["sh"]] * (self.strides != (1, 1))
        parts += [spatial["ph"]]
        parts += [spatial["dh"]] * (self.dilations != (1, 1))
        return "".join([*parts, _written(self.name)])

    @property
    def _axes(self) -> tuple[_Axis, _Axis]:
        rows, columns = ([getattr(self, key) for key in keys] for keys in (_ROWS, _COLUMNS))
        return _Axis(*rows), _Axis(*columns)

    @property
    def _square(self) -> bool:
        rows, columns = self._axes
        return rows == columns

    @property
    def kind(self) -> str:
        """What `gradops.testing.Op` calls it: "dense" or "depthwise"."""
        return "depthwise" if self.g == self.ic > 1 else "dense"

    @property
    def ops(self) -> tuple[str, ...]:
        """The functions of `gradops` that compute it and its gradients."""
        return _ops_of(self.kind)

    @property
    def strides(self) -> tuple[int, int]:
        """Strides of rows and columns."""
        return self.sh, self.sw

    @property
    def dilations(self) -> tuple[int, int]:
        """Dilations of rows and columns as gradops counts them: 1 is a filter without gaps."""
        return self.dh + 1, self.dw + 1

    @property
    def padding(self) -> tuple[int, int, int, int]:
        """Padding above, below, to the left and to the right."""
        rows, columns = self._axes
        return rows.before, rows.after, columns.before, columns.after

    @property
    def parameters(self) -> int:
        """Numbers in the filter."""
        return self.kh * self.kw * self.ic // self.g * self.oc

    def with_batch(self, images: int) -> Layer:
        """Return the same layer for another number of images."""
        return replace(self, mb=images)

    def problem(self, layout: Layout = "NHWC") -> Problem:
        """Return what `gradops.testing` makes operands, arguments and references of.

        Its `input_shape`, `filter_shape` and `output_shape` are those of the arrays, its `attributes` the keyword
        arguments of the functions, padding spelled out.
        """
        sizes = {"n": self.mb, "h": self.ih, "w": self.iw, "c": self.ic, "r": self.kh, "s": self.kw}
        outputs = {"m": self.oc // self.ic} if self.kind == "depthwise" else {"k": self.oc, "groups": self.g}
        return Problem(
            **sizes,
            **outputs,
            strides=self.strides,
            dilations=self.dilations,
            padding=self.padding if any(self.padding) else "VALID",
            layout=layout,
        )

    def flops(self, op: str) -> int:
        """Count the floating-point operations of one call of a function of `ops`.

        Two for each product of the op's definition, an output and a tap and a channel. Taps that meet the padding are
        counted like those inside, and the three ops of a layer have the same products.
        """
        _check_op(op, self.ops)
        return self.problem().flops

    def nbytes(self, op: str, itemsize: int) -> int:
        """Count the bytes that one call has to move: each operand read once, the result written once."""
        _check_op(op, self.ops)
        problem = self.problem()
        shapes = (problem.input_shape, problem.filter_shape, problem.output_shape)
        return itemsize * sum(map(math.prod, shapes))


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolLayer:
    """One fractional average pooling, as a value; the keys of its grammar are its fields.

    Parameters
    ----------
    ic : int
        Channels.
    ih, iw : int
        Rows and columns of the input.
    rh, rw : float
        Pooling ratio of the rows and of the columns.
    o : int
        1 where neighbouring cells share a row and a column, otherwise 0.
    mb : int
        Images of the batch.
    name : str
        Without quotes and white space.

    Raises
    ------
    TypeError
        If a size is no integer.
    ValueError
        If sizes do not fit together; the message names the key, what came and what was expected.

    Examples
    --------
    >>> layer = parse("mb8ic64ih112rh1.73")
    >>> layer.oh, layer.ops
    (64, ('fractional_avg_pool', 'fractional_avg_pool_grad'))
    """

    ic: int
    ih: int
    iw: int
    rh: float
    rw: float
    o: int = 0
    mb: int = 2
    name: str = ""

    def __post_init__(self) -> None:
        for key in ("mb", "ic", "ih", "iw"):
            _at_least(key, getattr(self, key), 1)
        _check_name(self.name)
        for key, ratio, size in (("rh", self.rh, self.ih), ("rw", self.rw, self.iw)):
            if not 1 <= ratio <= size:
                raise ValueError(f"{key}: got {ratio:g}, expected {_range(1, size)} as i{key[1]} is {size}")
        if self.o not in (0, 1):
            raise ValueError(f"o: got {self.o}, expected 0 or 1")

    def __str__(self) -> str:
        rows, columns = f"mb{self.mb}ic{self.ic}ih{self.ih}", f"rh{_decimal(self.rh)}"
        if (self.iw, self.rw) != (self.ih, self.rh):
            rows, columns = f"{rows}iw{self.iw}", f"{columns}rw{_decimal(self.rw)}"
        return rows + columns + "o1" * self.o + _written(self.name)

    @property
    def kind(self) -> str:
        """What `gradops.testing.Op` calls it: "pool"."""
        return "pool"

    @property
    def ops(self) -> tuple[str, ...]:
        """The functions of `gradops` that compute it and its gradient."""
        return _ops_of(self.kind)

    @property
    def oh(self) -> int:
        """Rows of the output."""
        return _cells(self.ih, self.rh)

    @property
    def ow(self) -> int:
        """Columns of the output."""
        return _cells(self.iw, self.rw)

    @property
    def parameters(self) -> int:
        """Numbers that are learned: none."""
        return 0

    def with_batch(self, images: int) -> PoolLayer:
        """Return the same layer for another number of images."""
        return replace(self, mb=images)

    def problem(self, layout: Layout = "NHWC") -> PoolProblem:
        """Return what `gradops.testing` makes operands, arguments and references of."""
        return PoolProblem(
            n=self.mb,
            h=self.ih,
            w=self.iw,
            c=self.ic,
            ratio=(self.rh, self.rw),
            overlapping=bool(self.o),
            layout=layout,
        )

    def flops(self, op: str) -> int:
        """Count the floating-point operations of one call of a function of `ops`.

        Two for each pixel of each cell: scaled by the cell's size, and added.
        """
        _check_op(op, self.ops)
        rows, columns = (
            sum(min(stop + self.o, size) - start for start, stop in pairwise(sequence))
            for sequence, size in zip(pooling_sequences(self.problem()), (self.ih, self.iw), strict=True)
        )
        return 2 * self.mb * self.ic * rows * columns

    def nbytes(self, op: str, itemsize: int) -> int:
        """Count the bytes that one call has to move: input and output once each; the sequences are not counted."""
        _check_op(op, self.ops)
        return itemsize * self.mb * self.ic * (self.ih * self.iw + self.oh * self.ow)


AnyLayer: TypeAlias = Layer | PoolLayer
"""What `parse` returns; both have `kind`, `ops`, `problem`, `flops`, `nbytes`, `parameters` and `with_batch`."""


def parse(text: str) -> AnyLayer:
    """Read a layer from a string in one of the two grammars of this module.

    Parameters
    ----------
    text : str
        For example ``mb8ic64ih56oc64oh56kh3ph1n"resnet50:res2a"``.

    Returns
    -------
    Layer or PoolLayer
        `str` of it is the canonical string, which parses to an equal layer.

    Raises
    ------
    ValueError
        If the string cannot be read or its sizes do not fit together; the message names the key, what came and what
        was expected.
    """
    try:
        tokens, name = _tokens(text.strip())
        return (_pooling if tokens.keys() & {"rh", "rw", "o"} else _convolution)(tokens, name)
    except ValueError as error:
        raise ValueError(f"problem {text!r}: {error}") from None


def _tokens(text: str) -> tuple[dict[str, str], str]:
    tokens: dict[str, str] = {}
    while (text := text.lstrip("_")) and not text.startswith("n"):
        match = _TOKEN.match(text)
        if match is None:
            raise ValueError(f"got {_shortened(text)!r}, expected a key and a number such as 'ih56'")
        key, number = match.groups()
        if key in tokens:
            raise ValueError(f"{key}: got {tokens[key]} and then {number}, expected it once")
        tokens[key] = number
        text = text[match.end() :]
    return tokens, _read_name(text)


def _read_name(text: str) -> str:
    if not text:
        return ""
    name = text[1:]
    if name[:1] == '"' and name[-1:] == '"' and len(name) > 1:
        name = name[1:-1]
    if not name:
        raise ValueError(f'n: got {text!r}, expected a name such as n"net:layer"')
    return name


def _convolution(tokens: dict[str, str], name: str) -> Layer:
    _check_keys(tokens, ("g", "mb", "ic", "oc", *_ROWS, *_COLUMNS), ("ic", "ih", "oc", "kh"))
    sizes = {key: _integer(key, number) for key, number in tokens.items()}
    for key in sizes:
        _at_least(key, sizes[key], 0 if key in _MAY_BE_ZERO else 1)
    given = sorted(sizes.keys() & set(_COLUMNS))
    if given:
        _check_keys(tokens, tuple(tokens), ("iw", "kw"), f" beside {given[0]}")
    rows = _deduced(sizes, _ROWS)
    columns = _deduced(sizes, _COLUMNS) if given else rows
    spatial = dict(zip((*_ROWS, *_COLUMNS), (*rows, *columns), strict=True))
    return Layer(**{**sizes, **spatial}, name=name)


def _deduced(sizes: dict[str, int], keys: tuple[str, ...]) -> _Axis:
    """Rows or columns, with benchdnn's defaults."""
    size, out, taps, stride, gaps, before = (sizes.get(key) for key in keys)
    assert size is not None and taps is not None
    axis = _Axis(size, out or 1, taps, stride or 1, gaps or 0, before or 0)
    if out is None:
        room = size + 2 * axis.before - axis.reach
        if room < 0:
            raise ValueError(
                f"{keys[2]}: got {taps}, expected a filter that fits into {keys[0]} {size} padded by {axis.before}; "
                f"its reach with {keys[4]} {axis.gaps} is {axis.reach}"
            )
        return axis._replace(out=room // axis.stride + 1)
    return axis if before is not None else axis._replace(before=axis.needed // 2)


def _pooling(tokens: dict[str, str], name: str) -> PoolLayer:
    _check_keys(tokens, ("mb", "ic", "ih", "iw", "rh", "rw", "o"), ("ic", "ih", "rh"))
    sizes = {key: _integer(key, number) for key, number in tokens.items() if key not in ("rh", "rw")}
    rh = float(tokens["rh"])
    sizes.setdefault("iw", sizes["ih"])
    return PoolLayer(**sizes, rh=rh, rw=float(tokens.get("rw", rh)), name=name)


def _check_keys(tokens: dict[str, str], known: tuple[str, ...], needed: tuple[str, ...], why: str = "") -> None:
    for key in tokens:
        if key not in known:
            raise ValueError(f"{key}{tokens[key]}: got the key {key!r}, expected one of {', '.join(known)} or n")
    for key in needed:
        if key not in tokens:
            raise ValueError(f"{key}: got none, expected a number{why}")


def _integer(key: str, number: str) -> int:
    if not number.isdecimal() or len(number) > _MOST_DIGITS:
        raise ValueError(f"{key}: got {_shortened(number)}, expected an integer of at most {_MOST_DIGITS} digits")
    return int(number)


def _at_least(key: str, size: Any, least: int) -> None:
    if not isinstance(size, Integral):
        raise TypeError(f"{key}: got {size!r}, expected an integer")
    if int(size) < least:
        raise ValueError(f"{key}: got {size}, expected at least {least}")


def _check_name(name: str) -> None:
    if re.search(r'["\s]', name):
        raise ValueError(f"n: got {name!r}, expected a name without quotes and white space")


def _check_op(op: str, ops: tuple[str, ...]) -> None:
    if op not in ops:
        raise ValueError(f"op: got {op!r}, expected one of {', '.join(ops)}")


def _ops_of(kind: str) -> tuple[str, ...]:
    return tuple(op.name for op in OPS.values() if op.kind == kind)


def _cells(size: int, ratio: float) -> int:
    """Cells of an axis, divided in float32 as TensorFlow does it."""
    return min(size, int(np.float32(size) / np.float32(ratio)))


def _range(least: int, most: int) -> str:
    return f"{least} to {most}" if least != most else str(least)


def _decimal(number: float) -> str:
    return np.format_float_positional(number, trim="-")


def _written(name: str) -> str:
    return f'n"{name}"' if name else ""


def _shortened(text: str) -> str:
    return text if len(text) <= 20 else text[:17] + "..."
