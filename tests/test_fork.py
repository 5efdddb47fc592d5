"""Child processes: forked after the parent used threads, forked again, and spawned."""

import multiprocessing
import os

import numpy as np
import pytest
from problems import LARGER

import gradops
from gradops.testing import OPS, random_normal

PROBLEMS = {"conv2d": LARGER["dense"][0], "conv2d_backprop_filter": LARGER["dense"][0]} | {
    "depthwise_conv2d_native_backprop_input": LARGER["depthwise"][0],
    "depthwise_conv2d_native_backprop_filter": LARGER["depthwise"][0],
    "fractional_avg_pool": LARGER["pool"][0],
    "fractional_avg_pool_grad": LARGER["pool"][0],
}
SECONDS = 60


def compute():
    return [
        OPS[name](problem, *random_normal(OPS[name].shapes(problem), np.float32, seed=1), num_threads=2).tobytes()
        for name, problem in PROBLEMS.items()
    ]


def send(pipe):
    pipe.send((gradops.get_num_threads(), compute()))


def send_from_grandchild(pipe):
    compute()
    received(multiprocessing.get_context("fork"), send, pipe)


def received(context, target, pipe=None):
    """Run `target` in a child, wait for it no longer than a computation can take, and return what it sent."""
    near, far = (None, pipe) if pipe else context.Pipe(duplex=False)
    child = context.Process(target=target, args=(far,))
    child.start()
    if near is not None:
        far.close()
    finished = near.poll(SECONDS) if near is not None else True
    answer = near.recv() if near is not None and finished else None
    child.join(SECONDS)
    if child.is_alive():
        child.kill()
    assert finished, "the child hangs"
    assert child.exitcode == 0
    return answer


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("target", [send, send_from_grandchild], ids=["child", "grandchild"])
def test_forked_child_of_a_process_that_used_threads_finishes_with_the_same_results(target):
    expected = compute()
    threads, results = received(multiprocessing.get_context("fork"), target)
    assert results == expected
    assert threads == 1
    assert compute() == expected


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_fresh_child_finishes_with_the_same_results(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system does not start processes by {method}")
    _, results = received(multiprocessing.get_context(method), send)
    assert results == compute()
