"""How many threads a call uses: who decides, in which thread, and what becomes of it in a child process."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gradops
from gradops import _threads

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    """Neither a number set for the process nor one remembered from the environment."""
    monkeypatch.setattr(_threads, "_global", None)
    monkeypatch.delenv("GRADOPS_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    _threads._default.cache_clear()
    yield
    _threads._default.cache_clear()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, CPUS),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "5,2"}, 5),
        ({"OMP_NUM_THREADS": "many"}, CPUS),
        ({"GRADOPS_NUM_THREADS": "7", "OMP_NUM_THREADS": "3"}, 7),
        ({"GRADOPS_NUM_THREADS": "", "OMP_NUM_THREADS": "3"}, 3),
        ({"GRADOPS_NUM_THREADS": str(10**9)}, _threads.MOST),
    ],
)
def test_environment_decides_when_nobody_else_does(monkeypatch, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert gradops.get_num_threads() == _threads.resolve() == expected


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "2,3"])
def test_wrong_number_in_the_environment_is_named(monkeypatch, value):
    monkeypatch.setenv("GRADOPS_NUM_THREADS", value)
    with pytest.raises(ValueError, match=f"GRADOPS_NUM_THREADS must be an integer of at least 1, got '{value}'"):
        gradops.get_num_threads()


def test_argument_goes_before_context_before_process_before_environment(monkeypatch):
    monkeypatch.setenv("GRADOPS_NUM_THREADS", "2")
    assert _threads.resolve() == 2
    assert gradops.set_num_threads(3) == 2
    assert _threads.resolve() == 3
    with gradops.num_threads(4):
        assert _threads.resolve() == 4
        assert _threads.resolve(5) == 5
        with gradops.num_threads(6):
            assert gradops.get_num_threads() == 6
        assert gradops.get_num_threads() == 4
    assert gradops.get_num_threads() == 3


def test_set_num_threads_hands_back_what_was_in_force():
    before = gradops.get_num_threads()
    assert gradops.set_num_threads(5) == before
    assert gradops.set_num_threads(before) == 5
    assert gradops.get_num_threads() == before


def test_context_ends_with_an_exception():
    with pytest.raises(KeyError), gradops.num_threads(5):
        raise KeyError
    assert gradops.get_num_threads() == CPUS


@pytest.mark.parametrize(
    "set_threads", [gradops.set_num_threads, lambda n: gradops.num_threads(n).__enter__(), _threads.resolve]
)
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (True, TypeError),
        (1.0, TypeError),
        ("2", TypeError),
        (np.float32(1), TypeError),
    ],
)
def test_wrong_numbers_are_refused_and_change_nothing(set_threads, value, error):
    with pytest.raises(error, match="must be an integer of at least 1, got"):
        set_threads(value)
    assert gradops.get_num_threads() == CPUS


@pytest.mark.parametrize("value", [1, np.int64(1), np.uint8(1)])
def test_any_integer_is_a_number_of_threads(value):
    assert type(_threads.resolve(value)) is int


def test_more_threads_than_can_be_of_use_are_not_started():
    assert _threads.resolve(10**12) == _threads.MOST >= 64


def test_context_does_not_reach_other_threads():
    with gradops.num_threads(5), ThreadPoolExecutor(1) as pool:
        assert pool.submit(gradops.get_num_threads).result() == CPUS
        assert gradops.get_num_threads() == 5


def test_process_wide_number_reaches_other_threads():
    gradops.set_num_threads(5)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(gradops.get_num_threads).result() == 5


def test_context_stays_in_its_task():
    async def inside(n):
        with gradops.num_threads(n):
            await asyncio.sleep(0)
            return gradops.get_num_threads()

    async def both():
        return await asyncio.gather(inside(3), inside(4))

    assert asyncio.run(both()) == [3, 4]


IMAGE = np.random.default_rng(0).standard_normal((2, 40, 40, 24)).astype(np.float32)
FILTER = np.random.default_rng(1).standard_normal((3, 3, 24, 48)).astype(np.float32)


def convolve(num_threads=None):
    return gradops.conv2d(IMAGE, FILTER, 1, "SAME", num_threads=num_threads)


def test_python_threads_may_call_at_once():
    expected = convolve(1)
    starting = threading.Barrier(4)

    def work(_):
        starting.wait()
        return [convolve(n) for n in (1, 2, 3)]

    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(work, range(4)):
            for result in results:
                np.testing.assert_array_equal(result, expected)


def report(queue, num_threads):
    """In a child: what a call would use, and a result."""
    queue.put((_threads.resolve(num_threads), gradops.get_num_threads(), convolve(num_threads)))


def in_child(method, num_threads):
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    child = context.Process(target=report, args=(queue, num_threads))
    child.start()
    assert queue._reader.poll(60), f"the child, started by {method}, hangs"
    found = queue.get()
    child.join(60)
    assert child.exitcode == 0
    return found


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


@needs_fork
@pytest.mark.parametrize("num_threads", [None, 2])
def test_forked_child_of_a_threaded_process_runs_on_one_thread(num_threads):
    gradops.set_num_threads(2)
    expected = convolve(2)
    used, default, result = in_child("fork", num_threads)
    assert (used, default) == (1, 1)
    np.testing.assert_array_equal(result, expected)


@needs_fork
def test_forked_grandchild_runs_on_one_thread_too():
    convolve(2)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            convolve(2)
            os.write(writer, bytes([_threads.resolve(2)]))
            os._exit(0)
        os._exit(os.waitpid(grandchild, 0)[1])
    assert os.waitpid(child, 0)[1] == 0
    os.close(writer)
    assert os.read(reader, 1) == b"\x01"


FORK_FIRST = """
import os
import numpy as np
import gradops
ones = np.ones((1, 40, 40, 24), np.float32), np.ones((3, 3, 24, 48), np.float32)
gradops.conv2d(*ones, 1, "SAME", num_threads=1)
child = os.fork()
if child == 0:
    gradops.conv2d(*ones, 1, "SAME", num_threads=2)
    os._exit(gradops._threads.resolve(2))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@needs_fork
def test_forked_child_of_a_process_without_threads_may_use_them():
    done = subprocess.run([sys.executable, "-c", FORK_FIRST], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "2"


def test_spawned_child_uses_threads():
    expected = convolve(2)
    used, _, result = in_child("spawn", 2)
    assert used == 2
    np.testing.assert_array_equal(result, expected)


def verbose(value):
    code = (
        "import numpy as np, gradops\n"
        "x = np.ones((2, 5, 4, 3), np.float32)\n"
        "gradops.conv2d(x, np.ones((3, 2, 3, 8), np.float32), 1, 'SAME', num_threads=2)\n"
        "gradops.conv2d_backprop_input((0, 5, 4, 3), np.ones((3, 2, 3, 8)), np.ones((0, 5, 4, 8)), 1, 'SAME')\n"
    )
    environment = {**os.environ, "GRADOPS_VERBOSE": value, "GRADOPS_ISA": "generic", "GRADOPS_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)


def test_verbose_says_one_line_a_call():
    done = verbose("1")
    first, second = (line.rpartition(" threads=") for line in done.stderr.splitlines())
    assert (
        first[0] == "gradops: conv2d input=2x5x4x3 filter=3x2x3x8 result=2x5x4x8 NHWC float32 conv_gather_f32_generic"
    )
    assert second[0] == (
        "gradops: conv2d_backprop_input out_backprop=0x5x4x8 filter=3x2x3x8 result=0x5x4x3 NHWC float64 none"
    )
    assert [line[2].split()[0] for line in (first, second)] == ["2", "1"]
    assert all(float(line[2].split()[1]) >= 0 and line[2].endswith(" ms") for line in (first, second))
    assert done.stdout == ""


@pytest.mark.parametrize("value", ["", "0"])
def test_nothing_is_said_unless_asked(value):
    assert verbose(value).stderr == ""
