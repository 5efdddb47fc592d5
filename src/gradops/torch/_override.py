"""`aten::convolution_backward` on the CPU, taken over where gradops wins; what it declines runs as if it were not there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any, NamedTuple

import torch

from ._case import Case, Declined, Sizes, case_of
from ._table import LEAST, wins

OP = "convolution_backward"
KINDS = ("dense", "depthwise", "grouped", "transposed")
MOST_CASES = 4096
"""Decisions that are remembered; then they begin anew."""


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


class _Decision:
    """What becomes of calls that are alike, and how many there were."""

    __slots__ = ("calls", "case", "declined", "filter", "input", "taken")

    def __init__(self, case: Case | None, reasons: dict[str, str]) -> None:
        self.taken = tuple(name for name, reason in reasons.items() if not reason)
        self.declined = tuple(reason for reason in reasons.values() if reason)
        self.case = case if self.taken else None
        self.input, self.filter = "input" in self.taken, "filter" in self.taken
        self.calls = 0


class _Override:
    """One registration, from `enable` to `disable`."""

    def __init__(self, ops: tuple[str, ...] | str) -> None:
        self.ops = ops
        self.decisions: dict[tuple[Any, ...], _Decision] = {}
        self.tiny = [_Decision(None, {str(i): "too little work" for i in range(gradients)}) for gradients in range(3)]
        self.taken: Counter[str] = Counter()
        self.declined: Counter[str] = Counter()
        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl(OP, self.kernel(), "CPU")

    def kernel(self) -> Callable[..., tuple[torch.Tensor | None, ...]]:
        """The function that is registered. Each attribute that it need not look up saves time where it declines."""
        native = torch.library.get_kernel(f"aten::{OP}", "CPU").call_boxed
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        known, lock, tiny, auto = self.decisions.get, _counting, self.tiny, self.ops == "auto"

        def convolution_backward(
            dy: torch.Tensor,
            x: torch.Tensor,
            w: torch.Tensor,
            bias_sizes: Sizes | None,
            stride: Sizes,
            padding: Sizes,
            dilation: Sizes,
            transposed: bool,
            output_padding: Sizes,
            groups: int,
            mask: list[bool],
        ) -> tuple[torch.Tensor | None, ...]:
            if auto and groups == 1 and dy.numel() * w.numel() < LEAST:
                with lock:
                    tiny[mask[0] + mask[1]].calls += 1
                return native(
                    keys, dy, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
                )
            key = (
                x.shape, x.stride(), w.shape, w.stride(), dy.shape, x.dtype, w.dtype, dy.dtype, transposed, groups,
                *stride, *padding, *dilation, *mask,
            )  # fmt: skip
            decision = known(key) or self.decide(key, dy, x, w, stride, padding, dilation, transposed, groups, mask)
            with lock:
                decision.calls += 1
            case = decision.case
            if case is None:
                return native(
                    keys, dy, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
                )
            dx = dw = db = None
            if decision.declined:
                declined = [mask[0] and not decision.input, mask[1] and not decision.filter]
                rest = [*declined, mask[2] and declined[1]]  # with the filter's gradient comes that of the bias
                dx, dw, db = native(
                    keys, dy, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, rest
                )
            if decision.input:
                dx = case.input_gradient(dy, x, w)
            if decision.filter:
                dw = case.filter_gradient(dy, x, w)
            if mask[2] and db is None:
                db = case.bias_gradient(dy)
            return dx, dw, db

        return convolution_backward

    def decide(
        self,
        key: tuple[Any, ...],
        dy: torch.Tensor,
        x: torch.Tensor,
        w: torch.Tensor,
        stride: Sizes,
        padding: Sizes,
        dilation: Sizes,
        transposed: bool,
        groups: int,
        mask: list[bool],
    ) -> _Decision:
        """Remembers and returns what becomes of such calls."""
        wanted = [name for name, asked in zip(("input", "filter"), mask, strict=False) if asked]
        case: Case | None = None
        try:
            case = case_of(dy, x, w, stride, padding, dilation, transposed, groups)
            reasons = {name: self.reason(case, name) for name in wanted}
        except Declined as reason:
            reasons = dict.fromkeys(wanted, str(reason))
        with _counting:
            if len(self.decisions) >= MOST_CASES:
                self.count()
                self.decisions.clear()
            return self.decisions.setdefault(key, _Decision(case, reasons))

    def reason(self, case: Case, gradient: str) -> str:
        """Why a gradient that gradops could compute is not taken; empty if it is."""
        if self.ops == "auto":
            return "" if wins(case.layer, gradient) else "PyTorch is as fast"
        return "" if self.ops == "all" or case.layer.kind in self.ops else "not asked for"

    def stats(self) -> Stats:
        """What the decisions have counted so far."""
        with _counting:
            self.count()
            return Stats(dict(self.taken), dict(self.declined))

    def count(self) -> None:
        """Adds what the decisions have counted to the totals."""
        for decision in (*self.tiny, *self.decisions.values()):
            calls, decision.calls = decision.calls, 0
            if calls:
                self.taken.update(dict.fromkeys(decision.taken, calls))
                for reason in decision.declined:
                    self.declined[reason] += calls

    def remove(self) -> None:
        """Gives the op back."""
        self.library._destroy()


_switching = RLock()
_counting = Lock()
os.register_at_fork(before=_counting.acquire, after_in_parent=_counting.release, after_in_child=_counting.release)
_active: _Override | None = None


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
        _active = _Override(chosen)


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
        return Stats({}, {}) if _active is None else _active.stats()


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
