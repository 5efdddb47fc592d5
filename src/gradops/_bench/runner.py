"""The rows of the table: what is run, checked and timed.

Whoever computes a case is called a contender. All of them compute it once and are held to float64; those that agree take turns
(A B A B), each turn after a pause, so that the spinning threads of one library do not slow the next.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gradops._arrays import empty
from gradops.testing import OPS, PoolProblem, Problem, dtype_named, forced, random_normal
from gradops.testing._problems import Layout

from .problems import AnyLayer
from .roof import Roof

TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-10, "int32": 0.0, "int64": 0.0}
"""Errors, relative to the largest value, from which on a result counts as something else; half types may sum in themselves."""

TURNS = 5
PAUSE = 0.02
WARM = 0.005
LEAST = 0.01
PATIENCE = 1.0
_FEWEST_TURNS = 2
_NAIVE_FLOPS = 2e7


@dataclass(frozen=True, kw_only=True)
class Case:
    """One op on one layer.

    Attributes
    ----------
    layer : Layer or PoolLayer
    op : str
        A public function of gradops.
    layout, dtype : str
    threads : int
    isa : str
        The level that gradops runs at.
    suite : str
        The network, or "" for a problem of its own.
    count : int
        How often the layer occurs in the network.
    """

    layer: AnyLayer
    op: str
    layout: Layout = "NHWC"
    dtype: str = "float32"
    threads: int = 1
    isa: str = "generic"
    suite: str = ""
    count: int = 1

    @property
    def problem(self) -> Problem | PoolProblem:
        """The layer as the tests know it."""
        return self.layer.problem(self.layout)

    @property
    def flops(self) -> int:
        """Operations of the op, a multiply-add being two."""
        return self.layer.flops(self.op)

    @property
    def nbytes(self) -> int:
        """Bytes that have to be read or written."""
        return self.layer.nbytes(self.op, dtype_named(self.dtype).itemsize)


class Contender(NamedTuple):
    """Somebody who computes a case: the call to be timed, and how its result becomes an array like gradops'."""

    name: str
    call: Callable[[], Any]
    result: Callable[[Any], NDArray]


class Peer(Protocol):
    """Another library.

    Attributes
    ----------
    name : str
    errors : tuple of exception types
        What it raises for a case that it cannot run after all.
    """

    name: str
    errors: tuple[type[Exception], ...]

    def version(self) -> str:
        """Return its version."""

    def can(self, case: Case) -> str:
        """Return why it cannot run a case, or ""."""

    def contender(self, case: Case, operands: Sequence[NDArray]) -> Contender:
        """Return what computes the case of these operands, ready to be called."""


class Timing(NamedTuple):
    """Milliseconds of one call: the median and the quartiles, and how many calls they come from."""

    median: float
    low: float
    high: float
    calls: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        """Return the statistics of samples in milliseconds."""
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0], 1)
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, low, high, len(samples))

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, over the median."""
        return (self.high - self.low) / (2 * self.median) if self.median else 0.0


@dataclass(frozen=True)
class Row:
    """What came out of a case.

    Attributes
    ----------
    case : Case
    roof : Roof
    error : float
        Largest difference of gradops' result from float64, over the largest value.
    times : dict of str to Timing
        By contender; "gradops" is missing where its own result is wrong.
    notes : dict of str to str
        Why a contender was not timed.
    scratch : int
        Bytes that gradops held at most during a call, beside operands and result.
    """

    case: Case
    roof: Roof
    error: float
    times: dict[str, Timing]
    notes: dict[str, str] = field(default_factory=dict)
    scratch: int = 0

    @property
    def milliseconds(self) -> float:
        """The median of gradops, NaN where it was not timed."""
        return self.times["gradops"].median if "gradops" in self.times else float("nan")

    @property
    def spread(self) -> float:
        """That of gradops' time, NaN where it was not timed."""
        return self.times["gradops"].spread if "gradops" in self.times else float("nan")

    @property
    def gflops(self) -> float:
        """1e9 operations a second."""
        return 1e-6 * self.case.flops / self.milliseconds

    @property
    def gbytes(self) -> float:
        """1e9 compulsory bytes a second."""
        return 1e-6 * self.case.nbytes / self.milliseconds

    @property
    def share(self) -> float:
        """Share of the roof."""
        return self.roof.share(self.case.flops, self.case.nbytes, self.milliseconds)

    @property
    def ratios(self) -> dict[str, float]:
        """Each peer's time over gradops': above 1, gradops is faster."""
        return {name: t.median / self.milliseconds for name, t in self.times.items() if name != "gradops"}

    @property
    def fastest(self) -> float:
        """The fastest peer's time over gradops', NaN without a peer."""
        return min(self.ratios.values(), default=float("nan"))


def gradops_contender(case: Case, operands: Sequence[NDArray]) -> Contender:
    """Return gradops itself: its public function, with all that a call of it costs."""
    op = OPS[case.op]
    call = partial(op.function, **op.arguments(case.problem, *operands), num_threads=case.threads)
    return Contender("gradops", call, _output)


def scratch_of(contender: Contender) -> int:
    """Return the bytes that a call of gradops holds at most, beside operands and result: its kernels tell tracemalloc."""
    tracemalloc.start()
    try:
        result = contender.result(contender.call())
        return max(tracemalloc.get_traced_memory()[1] - result.nbytes, 0)
    finally:
        tracemalloc.stop()


def _output(result: Any) -> NDArray:
    return result.output if hasattr(result, "output") else result


def expected(case: Case, operands: Sequence[NDArray]) -> NDArray:
    """Return the result in float64: naively where that is soon done, else with gradops' float64 kernels that are the least alike."""
    op = OPS[case.op]
    if case.flops <= _NAIVE_FLOPS:
        return np.asarray(op.reference(case.problem, *operands))
    integral = case.dtype.startswith("int")
    with forced("generic" if case.dtype == "float64" else None, "conv"):
        return op(case.problem, *(array if integral else array.astype(np.float64) for array in operands))


def error_of(got: NDArray, want: NDArray) -> float:
    """Return the largest difference over the largest value: infinite for another shape or for NaN."""
    if got.shape != want.shape:
        return float("inf")
    if not want.size:
        return 0.0
    apart = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
    scale = float(np.abs(want.astype(np.float64)).max()) or 1.0
    return float(apart) / scale if np.isfinite(apart) else float("inf")


def take_turns(
    contenders: Sequence[Contender],
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Timing]:
    """Time contenders A B A B for about so many seconds.

    A turn begins with a pause, calls for `WARM` seconds that are not counted (at least one: the scheduler has to put woken threads on
    CPUs of their own) and goes on for its share of the time, at least `LEAST` seconds and one call. There are `TURNS` of them, fewer
    where time runs out, and never less than two; but a contender of whose calls one takes more than `PATIENCE` seconds
    and all its time has one turn, of that call.
    """
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    share = seconds / max(1, len(contenders))
    each = max(share / TURNS - PAUSE - WARM, LEAST)
    deadline, patient = clock() + seconds, list(contenders)
    for turn in range(TURNS):
        if turn >= _FEWEST_TURNS and clock() >= deadline:
            break
        for contender in tuple(patient):
            sleep(PAUSE)
            first, *rest = _turn(contender.call, each, max(share, PATIENCE), clock)
            samples[contender.name] += rest or [first]
            if not rest:
                patient.remove(contender)
    return {name: Timing.of(values) for name, values in samples.items()}


def _turn(call: Callable[[], Any], seconds: float, patience: float, clock: Callable[[], float]) -> list[float]:
    """The milliseconds of the first call and of those that count; of the first alone where it takes too long."""
    start, times = clock(), list[float]()

    def timed() -> float:
        before = clock()
        call()
        return clock() - before

    times.append(timed())
    if times[0] > patience:
        return [1e3 * times[0]]
    while clock() < start + WARM:
        call()
    end = clock() + seconds
    while len(times) == 1 or clock() < end:
        times.append(timed())
    return [1e3 * each for each in times]


def run(
    cases: Sequence[Case],
    peers: Iterable[Peer],
    roofs: Callable[[str], Roof],
    budget: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Row]:
    """Run cases one after the other, in about `budget` seconds together.

    Parameters
    ----------
    cases : sequence of Case
    peers : iterable of Peer
    roofs : callable
        Gives the roof of a dtype.
    budget : float
        Seconds; what preparing a row takes is taken from its timing, never all of it.
    clock, sleep : callable, optional

    Yields
    ------
    Row
    """
    peers, deadline = tuple(peers), clock() + budget
    for at, case in enumerate(cases):
        row_end = clock() + (deadline - clock()) / (len(cases) - at)
        contenders, notes, error, scratch = _prepared(case, peers)
        times = take_turns(contenders, max(row_end - clock(), 0.0), clock=clock, sleep=sleep)
        yield Row(case, roofs(case.dtype), error, times, notes, scratch)


def _prepared(case: Case, peers: tuple[Peer, ...]) -> tuple[list[Contender], dict[str, str], float, int]:
    """The contenders that compute the case, why the others do not, and the error and the scratch of gradops."""
    operands = [
        aligned(operand)
        for operand in random_normal(OPS[case.op].shapes(case.problem), dtype_named(case.dtype), seed=0)
    ]
    want = expected(case, operands)
    own = gradops_contender(case, operands)
    error = error_of(own.result(own.call()), want)
    scratch = scratch_of(own)
    agreeing, notes = [own], dict[str, str]()
    if not error <= TOLERANCE[case.dtype]:
        agreeing, notes["gradops"] = [], f"computes something else: error {error:.1g}"
    for peer in peers:
        reason, contender = _tried(peer, case, operands, want)
        if contender is None:
            notes[peer.name] = reason
        else:
            agreeing.append(contender)
    return agreeing, notes, error, scratch


def aligned(array: NDArray) -> NDArray:
    """A copy that starts on a 64-byte boundary, as results of gradops and tensors of the frameworks do; NumPy's own arrays need not."""
    copied = empty(array.shape, array.dtype)
    copied[...] = array
    return copied


def _tried(peer: Peer, case: Case, operands: Sequence[NDArray], want: NDArray) -> tuple[str, Contender | None]:
    if reason := peer.can(case):
        return reason, None
    try:
        contender = peer.contender(case, operands)
        got = contender.result(contender.call())
    except peer.errors as error:
        return f"cannot run it: {str(error).strip().partition(chr(10))[0][:160]}", None
    if got.shape != want.shape:
        return f"computes something else: shape {'x'.join(map(str, got.shape))}", None
    error_found = error_of(got, want)
    if not error_found <= TOLERANCE[case.dtype]:
        return f"computes something else: error {error_found:.1g}", None
    return "", contender
