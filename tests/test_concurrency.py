"""Several Python threads calling at once."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from problems import COVERING, LARGER, POOL_PROBLEMS, rows

from gradops.testing import OPS, Problem, random_normal

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


@pytest.mark.parametrize(
    "name", ["conv2d_backprop_input", "conv2d_backprop_filter", "depthwise_conv2d_native_backprop_filter"]
)
def test_kernels_run_without_the_gil(name):
    """With threads switched only when one waits, this one goes on during the call if the kernel lets go of the GIL."""
    op = OPS[name]
    channels = {"c": 64, "k": 64} if op.kind == "dense" else {"c": 512, "m": 1}
    problem = Problem(n=8, h=64, w=64, r=5, s=5, padding="SAME", **channels)
    operands = random_normal(op.shapes(problem), np.float32, seed=1)
    calling, returned = threading.Event(), threading.Event()

    def call():
        calling.set()
        op(problem, *operands, num_threads=1)
        returned.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        caller = threading.Thread(target=call)
        caller.start()
        calling.wait()
        overlapped = not returned.is_set()
        caller.join()
    finally:
        sys.setswitchinterval(before)
    assert overlapped
