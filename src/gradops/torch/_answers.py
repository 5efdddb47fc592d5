"""What becomes of calls of `aten::convolution_backward` that are alike: which gradients gradops computes, and why PyTorch computes the others."""

from __future__ import annotations

from math import prod

from ._case import Call, Case, Declined, case_of
from ._table import LEAST, wins


class Decision:
    """What becomes of calls that are alike, and how many there were."""

    __slots__ = ("calls", "case", "declined", "filter", "input", "taken")

    def __init__(self, case: Case | None, reasons: dict[str, str]) -> None:
        self.taken = tuple(name for name, reason in reasons.items() if not reason)
        self.declined = tuple(reason for reason in reasons.values() if reason)
        self.case = case if self.taken else None
        self.input, self.filter = "input" in self.taken, "filter" in self.taken
        self.calls = 0


def decide(ops: tuple[str, ...] | str, call: Call, mask: tuple[bool, ...]) -> Decision:
    """What becomes of such calls, of whose gradients those of the mask are wanted: of the input, the filter and the bias."""
    wanted = [name for name, asked in zip(("input", "filter"), mask, strict=False) if asked]
    if ops == "auto" and call.groups == 1 and prod(call.dy.shape) * prod(call.w.shape) < LEAST:
        return Decision(None, dict.fromkeys(wanted, "too little work"))
    try:
        case = case_of(call)
    except Declined as reason:
        return Decision(None, dict.fromkeys(wanted, str(reason)))
    return Decision(case, {name: _reason(ops, case, name) for name in wanted})


def _reason(ops: tuple[str, ...] | str, case: Case, gradient: str) -> str:
    """Why a gradient that gradops could compute is not taken; empty if it is."""
    if ops == "auto":
        return "" if wins(case.layer, gradient) else "PyTorch is as fast"
    return "" if ops == "all" or case.layer.kind in ops else "not asked for"
