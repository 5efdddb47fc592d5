"""What C code is given: recipes that compute what a call computes, on the threads that the process has chosen."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gradops
from gradops._arrays import ITEM_SIZES, NUMBERS, STORAGE, empty
from gradops._call import recipe, shared_threads, steps
from gradops._dispatch import entry, kernel
from gradops._geometry import attributes, plan
from gradops.testing import dtype_named, random_normal

SHAPES = {"input": (2, 9, 8, 16), "filter": (3, 3, 16, 8), "out_backprop": (2, 9, 8, 8)}
GIVEN = attributes(1, "SAME", (), "NHWC", 1)
PLANS = {
    "conv2d": plan("conv2d", SHAPES["input"], SHAPES["filter"], None, GIVEN),
    "conv2d_backprop_input": plan("conv2d_backprop_input", *SHAPES.values(), GIVEN),
    "conv2d_backprop_filter": plan("conv2d_backprop_filter", *SHAPES.values(), GIVEN),
}


def called(name, x, y):
    if name == "conv2d":
        return gradops.conv2d(x, y, 1, "SAME")
    if name == "conv2d_backprop_input":
        return gradops.conv2d_backprop_input(SHAPES["input"], y, x, 1, "SAME")
    return gradops.conv2d_backprop_filter(x, SHAPES["filter"], y, 1, "SAME")


def followed(name, inputs, num_threads=0):
    storage = STORAGE[inputs[0].dtype.name]
    result = empty(PLANS[name].result_shape, inputs[0].dtype)
    addresses = tuple(array.ctypes.data for array in inputs)
    entry.follow_recipe(recipe(PLANS[name], storage), addresses, result.ctypes.data, num_threads)
    return result


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", PLANS)
def test_recipe_gives_the_bits_of_a_call(name, dtype, level):
    inputs = random_normal([SHAPES[argument] for argument in PLANS[name].arguments], dtype_named(dtype), seed=3)
    assert followed(name, inputs).tobytes() == called(name, *inputs).tobytes()


@pytest.mark.parametrize("name", PLANS)
def test_recipe_keeps_infinities_out_of_the_padding(name):
    inputs = random_normal([SHAPES[argument] for argument in PLANS[name].arguments], np.float32, seed=4)
    inputs[1].ravel()[0] = np.inf
    expected = called(name, *inputs)
    assert np.isinf(expected).any() and not np.isnan(expected).any()
    np.testing.assert_array_equal(followed(name, inputs), expected)


def test_recipe_of_nothing_to_sum_gives_zeros():
    empty_plan = plan("conv2d_backprop_filter", (0, 9, 8, 16), SHAPES["filter"], (0, 9, 8, 8), GIVEN)
    assert steps(empty_plan, STORAGE["float64"]) == ()
    result = np.full((*SHAPES["filter"], 2), 7.0)
    entry.follow_recipe(recipe(empty_plan, STORAGE["float64"]), (0, 0), result.ctypes.data)
    assert (result.ravel()[: result.size // 2] == 0).all()
    assert (result.ravel()[result.size // 2 :] == 7).all()


def test_recipes_of_many_threads_at_once_give_serial_results():
    jobs = [
        (name, random_normal([SHAPES[argument] for argument in PLANS[name].arguments], np.float32, seed=seed))
        for seed in range(30)
        for name in PLANS
    ]
    with ThreadPoolExecutor(4) as pool:
        for (name, inputs), result in zip(jobs, pool.map(lambda job: followed(*job), jobs), strict=True):
            assert result.tobytes() == called(name, *inputs).tobytes()


def test_item_sizes_are_those_of_the_dtypes():
    assert [dtype_named(name).itemsize for name in NUMBERS] == list(ITEM_SIZES)


def test_recipes_use_the_threads_of_the_process():
    shared_threads()
    before = gradops.set_num_threads(3)
    try:
        assert entry.get_threads() == 3
    finally:
        gradops.set_num_threads(before)
    assert entry.get_threads() == before


FORK = """
import json, os, sys
import gradops
from gradops._call import shared_threads
from gradops._dispatch import entry
shared_threads()
gradops.set_num_threads(2)
read, write = os.pipe()
if os.fork() == 0:
    gradops.set_num_threads(2)
    os.write(write, json.dumps([entry.get_threads(), gradops.get_num_threads()]).encode())
    os._exit(0)
print(json.dumps([json.loads(os.read(read, 100)), entry.get_threads()]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_child_follows_recipes_on_one_thread():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[1, 1], 2]


BUSY = """
import os, threading
import numpy as np
import gradops
from gradops._call import recipe
from gradops._dispatch import entry
from gradops._geometry import attributes, plan
gradops.set_num_threads(2)
found = recipe(plan("conv2d", (1, 32, 32, 16), (3, 3, 16, 16), None, attributes(1, "SAME", (), "NHWC", 1)), 2)
def compute():
    x, w, y = (np.ones(shape, np.float32) for shape in ((1, 32, 32, 16), (3, 3, 16, 16), (1, 32, 32, 16)))
    entry.follow_recipe(found, (x.ctypes.data, w.ctypes.data), y.ctypes.data)
    return y[0, 5, 5, 0]
def go_on():
    while running:
        compute()
running = True
thread = threading.Thread(target=go_on)
thread.start()
codes = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        os._exit(int(compute() != 144))
    codes.append(os.waitpid(child, 0)[1])
running = False
thread.join()
assert codes == [0] * 20, codes
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_child_forked_while_another_thread_computes_does_not_hang():
    subprocess.run([sys.executable, "-W", "ignore", "-c", BUSY], check=True, timeout=60)


def test_wrong_capsules_and_too_many_arrays_are_errors():
    with pytest.raises(ValueError, match="PyCapsule"):
        entry.follow_recipe(kernel("conv_gather_f32").entry, (), 0)
    with pytest.raises(ValueError, match="at most 4 arrays, got 5"):
        entry.follow_recipe(recipe(PLANS["conv2d"], STORAGE["float32"]), (0,) * 5, 0)
    with pytest.raises(ValueError, match="PyCapsule"):
        entry.run(entry.threads, b"", 0, [], np.zeros(1), 1)
