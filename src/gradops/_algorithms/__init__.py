"""Which kernel computes a convolution: what each one accepts, and the one that is taken.

======================  ==============================================================================
`conv`                  an implicit GEMM over the taps; accepts everything that is not depthwise, and many outputs for one input
`winograd`              F(2x2, 3x3): 16 products where `conv` needs 36; up to 7x7 taps, with stride 2 up to 6x6
`gemv`                  a matrix times some vectors: outputs and gradients of inputs, few of whose pixels share their taps
`col2im`                each tap's products with all of dy, added to where they belong: gradients of inputs, few channels, taps that lie outside
`stem`                  vectors of pixels; few channels: of the result, or, channels first, on a side of the filter
`depthwise`             a stencil over packed rows; one channel a group and few multipliers, few inputs and as many outputs, or one channel in all
`planes`                the same over planes: channels first, or few last, which are turned; one filter for each, strides up to 4
`inplace`               the same over images where they lie, or small ones that are turned; whole vectors of channels, one filter for each
`mirrored_conv`, ...    `conv`, `winograd` and `stem` with x and dy exchanged: gradients of filters with few outputs
======================  ==============================================================================

`algorithms` chooses: each one has a module that says what it accepts and where it wins, with the measurements behind each rule; `exchange` and `multipliers` have those of
`depthwise`, which accepts all other stencils. ``GRADOPS_ALGORITHM`` names another one, which is then taken wherever it accepts the problem;
``GRADOPS_VERBOSE`` shows what ran.
"""

from __future__ import annotations

from . import col2im, exchange, gemv, inplace, mirror, multipliers, planes, stem, winograd
from .mirror import MIRRORED, mirrored_axis
from .patches import side_by_side
from .planes import reads_apart
from .sharing import UNKNOWN, WINOGRAD_PRODUCTS, Sharing
from .task import Arithmetic, Axis, Task

__all__ = [
    "ALGORITHMS",
    "MIRRORED",
    "STEMS",
    "UNKNOWN",
    "Arithmetic",
    "Axis",
    "Sharing",
    "Task",
    "algorithms",
    "mirrored_axis",
    "reads_apart",
    "side_by_side",
    "stem_of",
]

KERNELS = ("conv", "gemv", "col2im", "winograd", "stem", "inplace", "planes", "depthwise")
"""The first words of the kernels' names. A stem is one of these, what it does ("gather" or "reduce"), and the precision."""

ALGORITHMS = (*KERNELS, *MIRRORED)
"""All of them: a kernel as it is, or with images exchanged."""


def algorithms(task: Task) -> tuple[str, ...]:
    """The algorithms that accept a task, the one that is preferred first."""
    if task.stencil:
        return _of_stencils(task)
    found = _of_sums(task)
    if mirror.accepts(task):
        names = (f"mirrored_{kernel}" for kernel in _of_sums(mirror.mirrored(task)))
        others = tuple(name for name in names if name in MIRRORED)
        return (*others, *found) if mirror.wins(task) else (*found, *others)
    return found


def _of_sums(task: Task) -> tuple[str, ...]:
    """Those for several inputs a group."""
    found: tuple[str, ...] = ("conv",)
    if winograd.accepts(task):
        wins = winograd.reads_innermost if task.innermost else winograd.wins
        found = _with("winograd", wins(task), found)
    if task.innermost and task.result != "filter":
        return found
    if stem.accepts(task):
        found = _with("stem", stem.wins(task), found)
    if exchange.accepts(task):
        found = _with("depthwise", exchange.wins(task), found)
    if task.sharing.splits and task.sharing.inside < WINOGRAD_PRODUCTS:
        found = _with("conv", True, tuple(name for name in found if name != "conv"))
    if gemv.accepts(task):
        found = _with("gemv", gemv.wins(task, found[0]), found)
    return _and_col2im(task, found)


def _of_stencils(task: Task) -> tuple[str, ...]:
    """Those for one input a group."""
    found = multipliers.stencils(task)
    if task.outputs != 1:
        if stem.accepts(task):
            found = _with("stem", stem.wins(task) and not (task.paired and found[0] == "conv"), found)
        return _and_col2im(task, found)
    if inplace.accepts(task):
        found = _with("inplace", inplace.wins(task), found)
    if planes.accepts(task):
        found = _with("planes", planes.wins(task), found)
    return _and_col2im(task, found)


def _and_col2im(task: Task, others: tuple[str, ...]) -> tuple[str, ...]:
    """That one more."""
    return _with("col2im", col2im.wins(task, others[0]), others) if col2im.accepts(task) else others


def _with(name: str, wins: bool, others: tuple[str, ...]) -> tuple[str, ...]:
    """One more, which is preferred or not."""
    return (name, *others) if wins else (*others, name)


def stem_of(algorithm: str, work: str, storage: int) -> str:
    """The kernel of an algorithm for a storage code."""
    return _STEMS[MIRRORED.get(algorithm, algorithm), work][storage]


_STEMS = {
    (algorithm, work): tuple(
        f"{algorithm}_{work}_{real}" for real in ("f32", "bf16" if algorithm == "conv" else "f32", "f32", "f64")
    )
    for algorithm in KERNELS
    for work in ("gather", "reduce")
    if (algorithm, work) not in (("gemv", "reduce"), ("col2im", "reduce"))
}

STEMS = frozenset(stem for stems in _STEMS.values() for stem in stems)
"""The kernels of all algorithms."""
