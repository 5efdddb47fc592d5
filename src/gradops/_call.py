"""One call of a kernel: settle threads and result, run, say so if GRADOPS_VERBOSE asks."""

from __future__ import annotations

import os
import sys
from functools import cache
from math import prod
from time import perf_counter
from types import ModuleType
from typing import Protocol

from gradops._arrays import ITEM_SIZES, NUMBERS, Array, check_out, empty, native, ready, zeros
from gradops._dispatch import Accepted, algorithm, entry, kernel
from gradops._threads import keep_told, resolve

_VERBOSE = os.environ.get("GRADOPS_VERBOSE", "").strip() not in ("", "0")


class Plan(Accepted, Protocol):
    """What a call needs to know; shapes and attributes have been checked by whoever made it."""

    @property
    def op(self) -> str:
        """The public function's name."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arrays that the kernel reads."""

    @property
    def data_format(self) -> str: ...

    @property
    def result_shape(self) -> tuple[int, ...]: ...

    @property
    def zero(self) -> bool:
        """Nothing is summed (or nothing is asked for): the result is zeros and no kernel runs."""

    @property
    def exact(self) -> str:
        """The one that also computes unpadded problems, and mixes no neighbours."""

    def stem(self, algorithm: str, storage: int) -> str:
        """The kernel of an algorithm for a storage code."""

    def problem(self, algorithm: str, unpadded: bool = False) -> bytes:
        """What the kernel is told; unpadded for infinities and NaN, which the zeros of the padding must not meet."""


def call(plan: Plan, arrays: tuple[Array, ...], storage: int, out: object = None, num_threads: object = None) -> Array:
    """The result of `plan` for `arrays` of the dtype `storage`, in `out` if that is given."""
    threads = resolve(num_threads)
    dtype = native(arrays[0].dtype)
    if out is not None:
        result = check_out(out, plan.result_shape, dtype, tuple(zip(plan.arguments, arrays, strict=True)))
    elif plan.zero:
        result = zeros(plan.result_shape, dtype)
    else:
        result = empty(plan.result_shape, dtype, arrays[0])
    started, ran = perf_counter() if _VERBOSE else 0.0, None
    if not plan.zero:
        ran = _run(plan, [ready(array) for array in arrays], storage, result, threads)
    elif out is not None:
        result.fill(0)
    if _VERBOSE:
        _report(plan, arrays, storage, ran, threads, 1e3 * (perf_counter() - started))
    return result


def compute(plan: Plan, inputs: list[Array], storage: int, result: Array, num_threads: object = None) -> None:
    """`call` for memory that an adapter vouches for: nothing is checked but the number of threads.

    All arrays are contiguous, in native byte order and as large as the plan says, and `result` overlaps no input. Their dtypes and
    shapes are not looked at: `storage` says what they hold, so that bfloat16 may come as integers.
    """
    threads = resolve(num_threads)
    started, ran = perf_counter() if _VERBOSE else 0.0, None
    if plan.zero:
        result.fill(0)
    else:
        ran = _run(plan, inputs, storage, result, threads)
    if _VERBOSE:
        _report(plan, tuple(inputs), storage, ran, threads, 1e3 * (perf_counter() - started))


def _run(plan: Plan, inputs: list[Array], storage: int, result: Array, threads: int) -> tuple[str, ModuleType]:
    """Runs the kernel; if it says that infinities met zeros that are not theirs, runs one where they meet none. Returns the algorithm and the kernel that ran last.

    The problem is packed only now, when the arrays that bound its size are known to fit in memory.
    """
    taken = algorithm(plan, storage)
    used = kernel(plan.stem(taken, storage))
    if not entry.run(used.entry, plan.problem(taken), storage, inputs, result, threads):
        taken, used = plan.exact, kernel(plan.stem(plan.exact, storage))
        entry.run(used.entry, plan.problem(taken, unpadded=True), storage, inputs, result, threads)
    return taken, used


def steps(plan: Plan, storage: int) -> tuple[tuple[str, bytes], ...]:
    """The stems and problems that `call` would run, the first one and the one for infinities; none where it would write zeros."""
    if plan.zero:
        return ()
    taken = algorithm(plan, storage)
    exact = plan.stem(plan.exact, storage), plan.problem(plan.exact, unpadded=True)
    return (plan.stem(taken, storage), plan.problem(taken)), exact


def recipe(plan: Plan, storage: int) -> object:
    """What `call` does with a plan, as a capsule by which C code does it: see `_kernels/_entry.pxd`. Its threads are those of `shared_threads`."""
    shared_threads()
    found = [(kernel(stem).entry, problem) for stem, problem in steps(plan, storage)]
    return entry.make_recipe(found, storage, prod(plan.result_shape) * ITEM_SIZES[storage])


def follow(recipe: object, addresses: tuple[int, ...], out: int, num_threads: object = None) -> None:
    """Does what a recipe says for memory that an adapter vouches for, as it does for `compute`."""
    entry.follow_recipe(recipe, addresses, out, resolve(num_threads))


@cache
def shared_threads() -> object:
    """The capsule in which C code finds how many threads to use, kept true from now on: after `set_num_threads`, and in forked children."""
    keep_told(entry.set_threads)
    return entry.threads


def _report(
    plan: Plan,
    arrays: tuple[Array, ...],
    storage: int,
    ran: tuple[str, ModuleType] | None,
    threads: int,
    milliseconds: float,
) -> None:
    """One line on stderr. The time is the kernel's, with packing the problem and copying inputs that were not ready.

    A kernel's file is named, which begins with the algorithm, unless that is another use of it.
    """
    named = (*zip(plan.arguments, (array.shape for array in arrays), strict=True), ("result", plan.result_shape))
    shapes = " ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in named)
    algorithm, module = (ran[0], ran[1].__name__.rpartition(".")[2]) if ran else ("", "none")
    name = module if module.startswith(algorithm) else f"{algorithm}:{module}"
    line = f"gradops: {plan.op} {shapes} {plan.data_format} {NUMBERS[storage]} {name}"
    print(f"{line} threads={threads} {milliseconds:.3f} ms", file=sys.stderr)
