"""`aten::convolution_backward` as a function of Python's: for a PyTorch without the functions of `_stable`, and beside other kernels for the CPU."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any

import torch

from ._answers import Decision, decide
from ._case import Call, Sizes
from ._table import LEAST
from ._tensors import outline

OP = "convolution_backward"
MOST_CASES = 4096
"""Decisions that are remembered; then they begin anew."""

Counts = tuple[dict[str, int], dict[str, int]]


class Registration:
    """The op, until `remove`."""

    def __init__(self, ops: tuple[str, ...] | str) -> None:
        self.ops = ops
        self.decisions: dict[tuple[Any, ...], Decision] = {}
        self.tiny = [Decision(None, {str(i): "too little work" for i in range(gradients)}) for gradients in range(3)]
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
    ) -> Decision:
        """Remembers and returns what becomes of such calls."""
        if all(tensor.is_cpu and tensor.layout is torch.strided for tensor in (dy, x, w)):
            call = Call(outline(dy), outline(x), outline(w), stride, padding, dilation, transposed, groups)
            decision = decide(self.ops, call, tuple(mask))
        else:
            wanted = ("input", "filter")[: mask[0] + mask[1]]
            decision = Decision(None, dict.fromkeys(wanted, "not a dense tensor on the CPU"))
        with _counting:
            if len(self.decisions) >= MOST_CASES:
                self.count()
                self.decisions.clear()
            return self.decisions.setdefault(key, decision)

    def counts(self) -> Counts:
        """The gradients that were taken, and those that were declined, by reason."""
        with _counting:
            self.count()
            return dict(self.taken), dict(self.declined)

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


_counting = Lock()
os.register_at_fork(before=_counting.acquire, after_in_parent=_counting.release, after_in_child=_counting.release)
