"""Fixtures and profiles that every test shares."""

import ctypes
import gc
import inspect
import mmap
import os
import sys
from contextlib import contextmanager

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before OpenMP is loaded: workers of pytest share the CPUs
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is, for the same reason
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # before TensorFlow is: its own choice where there is AVX-512

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from gradops._dispatch import PARTIAL
from gradops.testing import LEVELS, Op, accepting, forced, runnable

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("GRADOPS_HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config):
    config.addinivalue_line("markers", "large: needs several GiB of free memory; skipped where there is less")


SLOWEST = (
    "test_values",
    "test_cellar",
    "test_example",
    "test_large",
    "test_bench_cli",
    "test_unpacked",
    "test_pointwise",
)


def pytest_collection_modifyitems(items):
    """The files that take longest come first, so that no worker is left with one in the end. Items that would only repeat others are left out."""
    items[:] = [item for item in items if not repeats(item, given(item).get("level"))]
    order = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


def pytest_collection_finish():
    """What has been collected stays until the end: the garbage collector would look through all of it again and again."""
    gc.freeze()


@pytest.fixture
def level():
    """Every instruction set level that this CPU runs, forced while the test runs: one item runs at all of them."""
    return tuple(level for level in LEVELS if runnable(level))


@pytest.fixture
def whole_level():
    """The same without those that have `conv` alone, and all other kernels from another level."""
    return tuple(level for level in LEVELS if runnable(level) and level not in PARTIAL)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Call a test that takes a level once at each. An item costs as much time as most of these tests take, and all levels share what is expected."""
    arguments = pyfuncitem.funcargs
    name = next((name for name in ("level", "whole_level") if isinstance(arguments.get(name), tuple)), None)
    if name is None:
        return None
    parameters = inspect.signature(pyfuncitem.obj).parameters
    for level in arguments[name]:
        if not repeats(pyfuncitem, level):
            with forced(level), noted(f"at level {level}"):
                pyfuncitem.obj(**{each: level if each == name else arguments[each] for each in parameters})
    return True


@contextmanager
def noted(note):
    """Add a note to what fails in the block."""
    try:
        yield
    except pytest.skip.Exception:
        raise
    except BaseException as error:
        error.add_note(note)
        raise


def given(item):
    """What a test is parametrised with, by name."""
    return item.callspec.params if hasattr(item, "callspec") else {}


def repeats(item, level):
    """Whether a test would run, at a partial level, nothing but the kernels of the whole one: for another type than bfloat16, or without `conv`."""
    op, problem = given(item).get("op"), given(item).get("problem")
    if level not in PARTIAL:
        return False
    if isinstance(op, Op) and op.kind != "dense" and problem is not None and "conv" not in accepting(op, problem):
        return True
    return any(str(value) in ("float16", "float32", "float64") for value in given(item).values())


@pytest.fixture
def at_the_edge():
    """Copies arrays to where readable memory ends with their last element, or begins with their first."""
    if sys.platform != "linux":
        pytest.skip("pages are protected through Linux's mprotect")
    libc = ctypes.CDLL(None, use_errno=True)
    kept = []

    def move(array, begins=False):
        size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        memory = mmap.mmap(-1, size + 2 * mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for page in start, start + mmap.PAGESIZE + size:
            assert libc.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, 0) == 0
        kept.append(memory)
        offset = mmap.PAGESIZE + (0 if begins else size - array.nbytes)
        moved = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
        moved[...] = array
        return moved

    yield move
    for memory in kept:
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory))), len(memory), 3)
