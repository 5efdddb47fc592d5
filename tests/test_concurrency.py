"""Several Python threads calling at once."""

import math
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from problems import COVERING, LARGER, POOL_PROBLEMS, rows

from gradops import _call
from gradops._call import entry
from gradops.testing import OPS, PoolProblem, Problem, random_normal

TABLE = rows(LARGER) + rows({kind: problems[:8] for kind, problems in (COVERING | {"pool": POOL_PROBLEMS}).items()})


@pytest.mark.parametrize("callers", [2, 5])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_threads_that_call_at_once_get_the_serial_results(callers, num_threads, level):
    def compute(at):
        op, problem = TABLE[at]
        operands = random_normal(op.shapes(problem), np.float32, seed=at)
        return op(problem, *operands, num_threads=num_threads).tobytes()

    serial = [compute(at) for at in range(len(TABLE))]
    jobs = [at for shift in range(callers) for at in np.roll(np.arange(len(TABLE)), 7 * shift)]
    with ThreadPoolExecutor(callers) as pool:
        for at, result in zip(jobs, pool.map(compute, jobs), strict=True):
            assert result == serial[at], TABLE[at]


@contextmanager
def switching_only_when_one_waits():
    """No thread gives the GIL away unless it waits for something or computes without it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize(
    "name", ["conv2d_backprop_input", "conv2d_backprop_filter", "depthwise_conv2d_native_backprop_filter"]
)
def test_kernels_run_without_the_gil(name):
    """This thread goes on during the call if the kernel lets go of the GIL."""
    op = OPS[name]
    channels = {"c": 64, "k": 64} if op.kind == "dense" else {"c": 512, "m": 1}
    problem = Problem(n=8, h=64, w=64, r=5, s=5, padding="SAME", **channels)
    operands = random_normal(op.shapes(problem), np.float32, seed=1)
    calling, returned = threading.Event(), threading.Event()

    def call():
        calling.set()
        op(problem, *operands, num_threads=1)
        returned.set()

    with switching_only_when_one_waits():
        caller = threading.Thread(target=call)
        caller.start()
        calling.wait()
        overlapped = not returned.is_set()
        caller.join()
    assert overlapped


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("conv2d", Problem(n=8, h=56, w=56, c=64, k=64, padding="SAME")),
        ("conv2d_backprop_filter", Problem(n=8, h=56, w=56, c=64, k=64, r=1, s=1)),
        ("depthwise_conv2d_native", Problem(n=8, h=56, w=56, c=512, m=1, padding="SAME")),
        ("fractional_avg_pool_grad", PoolProblem(n=8, h=112, w=112, c=64)),
    ],
    ids=str,
)
def test_threads_of_a_kernel_need_no_gil(name, problem, monkeypatch):
    """From the moment that the kernel is called, this thread keeps the GIL and looks on; those of the kernel write the whole result."""
    op = OPS[name]
    operands = random_normal(op.shapes(problem), np.float32, seed=1)
    out = np.full_like(op(problem, *operands), np.nan)
    places = range(0, out.size, out.size // 997)
    calling = threading.Event()

    def run(*arguments):
        calling.set()
        return entry.run(*arguments)

    monkeypatch.setattr(_call, "entry", SimpleNamespace(run=run))
    with switching_only_when_one_waits():
        caller = threading.Thread(target=lambda: op(problem, *operands, num_threads=2, out=out))
        caller.start()
        called = calling.wait(20)
        end = time.monotonic() + 20
        while (unwritten := any(math.isnan(out.item(at)) for at in places)) and time.monotonic() < end:
            pass
        caller.join()
    assert called
    assert not unwritten
