"""How many threads a call uses.

The argument of the call, else the innermost ``with num_threads(n)``, else `set_num_threads`, else
``GRADOPS_NUM_THREADS``, else ``OMP_NUM_THREADS``, else one for each CPU that this process may use.

The OpenMP runtime's threads do not survive a fork, and waiting for them hangs. So once a kernel has run on several
threads, children forked from this process run everything on one thread, whatever they ask for.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

MOST = max(64, os.cpu_count() or 1)
"""Who asks for more gets this many: more threads than CPUs gain nothing, and failing to start one ends the process."""

_scoped: ContextVar[int | None] = ContextVar("gradops.num_threads", default=None)
_global: int | None = None
_has_used_threads = False
_only_one = False
_listeners: list[Callable[[int], None]] = []
_asked: list[Callable[[], bool]] = []


def resolve(num_threads: object = None) -> int:
    """The number of threads for a call that was given `num_threads`. The caller is about to use them."""
    global _has_used_threads
    threads = get_num_threads() if num_threads is None else checked(num_threads)
    if _only_one:
        return 1
    if threads > 1:
        _has_used_threads = True
    return threads


def get_num_threads() -> int:
    """The number of threads that a call without the argument `num_threads` uses.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    ValueError
        If it comes from the environment variable ``GRADOPS_NUM_THREADS`` and that holds no integer above 0.

    Examples
    --------
    >>> import gradops
    >>> with gradops.num_threads(2):
    ...     gradops.get_num_threads()
    2
    """
    if _only_one:
        return 1
    return _scoped.get() or _global or _default()


def set_num_threads(n: int) -> int:
    """Set the number of threads for all calls of this process that do not say otherwise.

    Parameters
    ----------
    n : int
        At least 1.

    Returns
    -------
    int
        The number that was in force before, to hand back later.

    Raises
    ------
    TypeError
        If `n` is no integer.
    ValueError
        If `n` is below 1.

    Examples
    --------
    >>> import gradops
    >>> before = gradops.set_num_threads(2)
    >>> gradops.set_num_threads(before)
    2
    """
    global _global
    threads = checked(n, "n")
    before = _global or _default()
    _global = threads
    _tell()
    return before


def keep_told(listener: Callable[[int], None]) -> None:
    """Calls `listener` with the number of threads of the process, now and whenever that changes: in C, no block of a Python thread is known."""
    _listeners.append(listener)
    _tell()


def keep_asking(used: Callable[[], bool]) -> None:
    """Asks `used` before a child computes whether C code has used several threads, of which no call here tells."""
    _asked.append(used)


def is_limited() -> bool:
    """Whether this is a child of a process that had used several threads, so that everything runs on one."""
    return _only_one


def _tell() -> None:
    """Whoever listens may use so many threads at any time without another word."""
    global _has_used_threads
    if not _listeners:
        return
    threads = 1 if _only_one else _global or _default()
    _has_used_threads = _has_used_threads or threads > 1
    for listener in _listeners:
        listener(threads)


@contextmanager
def num_threads(n: int) -> Iterator[None]:
    """Use `n` threads inside the block, in this Python thread (or asynchronous task) only.

    Parameters
    ----------
    n : int
        At least 1.

    Raises
    ------
    TypeError
        If `n` is no integer.
    ValueError
        If `n` is below 1.

    Examples
    --------
    >>> import gradops
    >>> with gradops.num_threads(1):
    ...     gradops.get_num_threads()
    1
    """
    token = _scoped.set(checked(n, "n"))
    try:
        yield
    finally:
        _scoped.reset(token)


def checked(value: object, name: str = "num_threads") -> int:
    """`value` if it is a number of threads, at most `MOST`."""
    if type(value) is int and 0 < value <= MOST:
        return value
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer of at least 1, got {value!r}")
    try:
        threads = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer of at least 1, got {value!r}") from None
    if threads < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {threads}")
    return min(threads, MOST)


@cache
def _default() -> int:
    """What the environment and the machine say; read when first needed."""
    own = os.environ.get("GRADOPS_NUM_THREADS", "").strip()
    if own:
        if not own.isdecimal() or int(own) < 1:
            raise ValueError(
                f"the environment variable GRADOPS_NUM_THREADS must be an integer of at least 1, got {own!r}"
            )
        return min(int(own), MOST)
    openmp = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if openmp.isdecimal() and int(openmp) > 0:
        return min(int(openmp), MOST)
    return usable_cpus()


def usable_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _after_fork() -> None:
    global _only_one
    _only_one = _only_one or _has_used_threads or any(used() for used in _asked)
    _tell()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
