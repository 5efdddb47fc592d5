"""`aten::convolution_backward` on the CPU, taken over where gradops wins; what it declines runs as if it were not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import NamedTuple

from . import _boxed, _stable

KINDS = ("dense", "depthwise", "grouped", "transposed")


class Stats(NamedTuple):
    """What the override was asked since `enable`, gradient by gradient.

    Attributes
    ----------
    taken : dict of str to int
        Gradients that gradops computed: "input" and "filter".
    declined : dict of str to int
        Gradients left to PyTorch, by reason.
    """

    taken: dict[str, int]
    declined: dict[str, int]


def _register(ops: tuple[str, ...] | str) -> _stable.Registration | _boxed.Registration:
    """Takes the op over, without Python where PyTorch permits that."""
    return _stable.Registration(ops) if _stable.available() else _boxed.Registration(ops)


_switching = RLock()
_active: _stable.Registration | _boxed.Registration | None = None


def enable(ops: str | Iterable[str] = "auto") -> None:
    """Have gradops compute gradients of convolutions on the CPU, in this process, until `disable`.

    It takes over ``aten::convolution_backward``, whatever calls it: autograd in any thread, compiled models, vmap. What it declines,
    PyTorch's own kernel computes, to the last bit as before. Forked children inherit it. Calling it again chooses anew and sets
    `stats` to zero.

    Parameters
    ----------
    ops : "auto", "all", or some of "dense", "depthwise", "grouped", "transposed"
        "auto" takes a gradient where gradops was measured to be faster (`gradops.torch._table`), "all" takes every one that gradops
        can compute, and names take those of their kind.

    Raises
    ------
    TypeError, ValueError
        If `ops` is something else.

    See Also
    --------
    enabled : the same for a block.

    Examples
    --------
    >>> import torch
    >>> import gradops.torch
    >>> gradops.torch.enable("all")
    >>> images = torch.ones(1, 1, 4, 4, requires_grad=True)
    >>> torch.nn.Conv2d(1, 1, 3)(images).sum().backward()
    >>> gradops.torch.stats()
    Stats(taken={'input': 1, 'filter': 1}, declined={})
    >>> gradops.torch.disable()
    """
    global _active
    chosen = _checked(ops)
    with _switching:
        disable()
        _active = _register(chosen)


def disable() -> None:
    """Give ``aten::convolution_backward`` back to PyTorch; without effect where it is not taken.

    Examples
    --------
    >>> import gradops.torch
    >>> gradops.torch.disable()
    """
    global _active
    with _switching:
        if _active is not None:
            _active.remove()
            _active = None


@contextmanager
def enabled(ops: str | Iterable[str] = "auto") -> Iterator[None]:
    """`enable` inside the block, in all threads; afterwards everything is as it was before.

    Parameters
    ----------
    ops : str or iterable of str
        As for `enable`.

    Raises
    ------
    TypeError, ValueError
        As for `enable`.

    Examples
    --------
    >>> import torch
    >>> import gradops.torch
    >>> layer, images = torch.nn.Conv2d(3, 8, 3), torch.ones(1, 3, 8, 8)
    >>> with gradops.torch.enabled():
    ...     layer(images).sum().backward()
    """
    before = None if _active is None else _active.ops
    enable(ops)
    try:
        yield
    finally:
        if before is None:
            disable()
        else:
            enable(before)


def stats() -> Stats:
    """Count what `enable` has led to since it was called.

    Returns
    -------
    Stats
        Gradients that gradops computed, and those that it declined, by reason; empty where nothing is enabled.

    Examples
    --------
    >>> import gradops.torch
    >>> gradops.torch.stats()
    Stats(taken={}, declined={})
    """
    with _switching:
        return Stats({}, {}) if _active is None else Stats(*_active.counts())


def _checked(ops: str | Iterable[str]) -> str | tuple[str, ...]:
    """`ops`, or an error that says what it may be."""
    expected = f"'auto', 'all' or some of {', '.join(map(repr, KINDS))}"
    if isinstance(ops, str):
        if ops not in ("auto", "all"):
            raise ValueError(f"ops must be {expected}, got {ops!r}")
        return ops
    if not isinstance(ops, Iterable):
        raise TypeError(f"ops must be {expected}, got {ops!r}")
    chosen = tuple(ops)
    if not chosen or not set(chosen) <= set(KINDS):
        raise ValueError(f"ops must be {expected}, got {chosen!r}")
    return chosen
