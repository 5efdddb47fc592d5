"""gradops inside TensorFlow: the numbers of gradops where it computes, those of TensorFlow where it does not, and no crash."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from peers import PROBLEMS, ROUNDS_PARTIAL_SUMS, check, names, operands
from problems import POOL_PROBLEMS

import gradops
from gradops._kernels import tensorflow_kernels
from gradops.testing import OPS, Problem, dtype_named, random_normal

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

KERNELS = Path(__file__).parent.parent / "src" / "gradops" / "_kernels"
PLAIN = [
    problem
    for problem in PROBLEMS
    if problem.layout == "NHWC"
    and problem.dilations == (1, 1)
    and problem.strides[0] == problem.strides[1]
    and isinstance(problem.padding, str)
    and problem.groups == 1
]
"""What TensorFlow's own kernels compute for every type."""
ROUNDED_ONCE = ("bfloat16", "float32", "float64")
"""In float16, TensorFlow rounds partial sums."""
POOLED = [problem for problem in POOL_PROBLEMS if problem.layout == "NHWC"]
NUMBERS = ("float32", "float64", "int32", "int64")
TAKEN = [problem for problem in PROBLEMS if isinstance(problem.padding, str) or not problem.depthwise]
"""Explicit paddings of depthwise convolutions are the door to the built-in kernels."""


def raw_names(problem):
    prefix = "DepthwiseConv2dNative" if problem.depthwise else "Conv2D"
    return prefix + "BackpropInput", prefix + "BackpropFilter"


def gradients(problem, x, w, dy, **more):
    """Both gradients from TensorFlow's raw ops."""
    to_input, to_filter = (getattr(tf.raw_ops, name) for name in raw_names(problem))
    given = problem.attributes | more
    return (
        to_input(input_sizes=problem.input_shape, filter=w, out_backprop=dy, **given),
        to_filter(input=x, filter_sizes=problem.filter_shape, out_backprop=dy, **given),
    )


def in_graph(problem, *arrays, **more):
    return tf.function(lambda *tensors: gradients(problem, *tensors, **more))(*map(tf.constant, arrays))


def unpooled(problem, dtype):
    """The gradient of fractional pooling from TensorFlow's raw op."""
    op = OPS["fractional_avg_pool_grad"]
    (dy,) = random_normal(op.shapes(problem), dtype_named(dtype), seed=2)
    given = op.arguments(problem, dy)
    del given["data_format"]
    return tf.raw_ops.FractionalAvgPoolGrad(**given)


def expected(problem, x, w, dy):
    """Both gradients from gradops on arrays."""
    _, to_input, to_filter = names(problem)
    return OPS[to_input](problem, w, dy), OPS[to_filter](problem, x, dy)


def equal(got, wanted):
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


@pytest.fixture(scope="module")
def native():
    """What TensorFlow computes by itself. Asked for by `adapter`, so that TensorFlow has used its kernels when that is enabled."""
    pooled = {(dtype, problem): unpooled(problem, dtype) for dtype in NUMBERS for problem in POOLED}
    return pooled | {
        (run, dtype, problem): run(problem, *operands(problem, dtype))
        for run in (gradients, in_graph)
        for dtype in ROUNDED_ONCE
        for problem in PLAIN
    }


@pytest.fixture(scope="module")
def adapter(native):
    """The adapter, enabled, and at the end as switched off as it can be."""
    import gradops.tensorflow as adapter

    adapter.enable()
    yield adapter
    adapter.disable()


@pytest.fixture
def counted(adapter):
    """A function that says what gradops has computed and declined since it was last asked."""
    last = adapter.stats()

    def since():
        nonlocal last
        now, before = adapter.stats(), last
        last = now
        return {
            name: count - before[kind][name]
            for kind, counts in now.items()
            for name, count in counts.items()
            if count != before[kind][name]
        }

    return since


@pytest.fixture
def disabled(adapter):
    adapter.disable()
    yield adapter
    adapter.enable()


# Numbers


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("problem", TAKEN, ids=str)
def test_eager_gradients_are_those_of_gradops(counted, problem, dtype):
    x, w, dy = operands(problem, dtype)
    equal(gradients(problem, x, w, dy), expected(problem, x, w, dy))
    assert counted() == dict.fromkeys(raw_names(problem), 1)


@pytest.mark.parametrize(
    ("problem", "dtype"),
    [(problem, ("float32", "float16", "float64", "bfloat16")[at % 4]) for at, problem in enumerate(TAKEN)],
    ids=str,
)
def test_gradients_in_a_function_are_those_of_gradops(counted, problem, dtype):
    x, w, dy = operands(problem, dtype)
    equal(in_graph(problem, x, w, dy), expected(problem, x, w, dy))
    assert counted() == dict.fromkeys(raw_names(problem), 1)


@pytest.mark.parametrize("run", [gradients, in_graph], ids=["eager", "function"])
@pytest.mark.parametrize("dtype", ROUNDED_ONCE)
@pytest.mark.parametrize("problem", PLAIN, ids=str)
def test_gradients_agree_with_tensorflows_own(native, counted, problem, dtype, run):
    if dtype != "bfloat16" or not ROUNDS_PARTIAL_SUMS:
        check(problem, dtype, (None, *native[run, dtype, problem]))
    check(problem, dtype, (None, *run(problem, *operands(problem, dtype))))
    assert counted() == dict.fromkeys(raw_names(problem), 1)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("problem", POOLED, ids=str)
def test_pooling_gradients_are_equal(native, counted, problem, dtype):
    equal([unpooled(problem, dtype)], [native[dtype, problem]])
    equal([tf.function(unpooled)(problem, dtype)], [native[dtype, problem]])
    assert counted() == {"FractionalAvgPoolGrad": 2}


def test_random_pooling_trains(counted):
    x = tf.random.normal((2, 9, 11, 4))

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            tape.watch(x)
            pooled = tf.nn.fractional_avg_pool(x, [1.0, 1.4, 1.7, 1.0], overlapping=False)
        return tape.gradient(pooled.output, x)

    for _ in range(20):
        np.testing.assert_allclose(tf.reduce_sum(gradient()), 2 * 6 * 6 * 4, rtol=1e-5)
    assert counted() == {"FractionalAvgPoolGrad": 20}


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_infinities_go_where_their_products_go(adapter, value):
    problem = Problem(n=1, h=9, w=9, c=8, k=8, padding="SAME")
    x, w, dy = operands(problem, "float32")
    dy[0, 0, 0, 0] = w[1, 1, 3, 3] = x[0, 4, 4, 4] = value
    equal(gradients(problem, x, w, dy), expected(problem, x, w, dy))


def test_denormal_numbers_are_not_flushed(adapter):
    problem = Problem(n=2, h=16, w=16, c=8, m=1, padding="SAME")
    x, w, dy = operands(problem, "float32")
    dy *= np.float32(1e-40)
    dx, dw = expected(problem, x, w, dy)
    assert 0 < np.abs(dx).max() < np.finfo(np.float32).tiny
    equal(gradients(problem, x, w, dy), (dx, dw))


@pytest.mark.parametrize("given", [{"n": 0}, {"n": 2, "h": 2, "w": 2}], ids=["no image", "no output"])
def test_empty_sums_are_zeros(adapter, given):
    problem = Problem(c=4, k=6, **given)
    x, w, dy = operands(problem, "float32")
    dx, dw = gradients(problem, x, w, dy)
    assert dx.shape == problem.input_shape
    assert dw.shape == problem.filter_shape
    assert not np.any(dx) and not np.any(dw)


def test_parts_of_tensors_are_read_where_they_lie(adapter):
    problem = Problem(n=2, h=7, w=5, c=3, k=5, padding="SAME")
    x, w, dy = operands(problem, "float32")
    more = [tf.constant(np.concatenate([array[:1], array]))[1:] for array in (x, dy)]
    equal(gradients(problem, more[0], w, more[1]), expected(problem, x, w, dy))


def test_more_shapes_than_a_kernel_remembers(adapter):
    @tf.function(input_signature=[tf.TensorSpec((None, None, None, 3), tf.float32)] * 2)
    def run(x, dy):
        return (
            tf.raw_ops.DepthwiseConv2dNativeBackpropInput(
                input_sizes=tf.shape(x), filter=w, out_backprop=dy, strides=[1] * 4, padding="SAME"
            ),
            tf.raw_ops.DepthwiseConv2dNativeBackpropFilter(
                input=x, filter_sizes=w.shape, out_backprop=dy, strides=[1] * 4, padding="SAME"
            ),
        )

    w = operands(Problem(c=3, m=1), "float32")[1]
    for at in range(150):
        problem = Problem(n=1, h=3 + at % 75, w=4, c=3, m=1, padding="SAME")
        x, _, dy = operands(problem, "float32")
        equal(run(x, dy), expected(problem, x, w, dy))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_filter_and_bias_in_one_node_of_onednn(adapter, counted, layout):
    problem = Problem(n=3, h=8, w=9, c=6, k=10, padding="SAME", layout=layout)
    x, w, dy = (tf.constant(array) for array in operands(problem, "float32"))

    @tf.function
    def run(x, dy):
        to_filter = getattr(tf.raw_ops, raw_names(problem)[1])
        dw = to_filter(input=x, filter_sizes=problem.filter_shape, out_backprop=dy, **problem.attributes)
        return dw, tf.raw_ops.BiasAddGrad(out_backprop=dy, data_format=layout)

    dw, bias = run(x, dy)
    equal([dw], expected(problem, x.numpy(), w.numpy(), dy.numpy())[1:])
    np.testing.assert_allclose(bias, dy.numpy().sum((0, 1, 2) if layout == "NHWC" else (0, 2, 3)), rtol=1e-4, atol=1e-4)
    assert counted() == {"Conv2DBackpropFilter": 1}
    adapter.disable()
    theirs, again = run(x, dy)
    adapter.enable()
    assert counted() == {"disabled": 1}
    equal([again], [bias])
    check(problem, "float32", (None, None, theirs))


def test_second_derivatives(adapter):
    x, w = (tf.constant(array) for array in operands(Problem(n=1, h=5, w=5, c=2, k=3), "float64")[:2])

    def curvature():
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(w)
                loss = tf.reduce_sum(tf.nn.conv2d(x, w, 1, "SAME") ** 3)
            slope = inner.gradient(loss, w)
        return outer.gradient(slope, x)

    mine = curvature()
    adapter.disable()
    theirs = curvature()
    adapter.enable()
    np.testing.assert_allclose(mine, theirs, rtol=1e-12)


# Ways to call


def test_python_threads_call_at_the_same_time(adapter):
    problem = Problem(n=4, h=20, w=20, c=16, k=16, padding="SAME")
    arrays = operands(problem, "float32")
    wanted = expected(problem, *arrays)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda at: (gradients if at % 2 else in_graph)(problem, *arrays), range(24)):
            equal(got, wanted)


def test_threads_that_meet_a_shape_at_the_same_time(adapter):
    def first(problem, arrays, barrier):
        barrier.wait()
        return gradients(problem, *arrays)

    with ThreadPoolExecutor(8) as pool:
        for size in range(20, 60):
            problem = Problem(n=1, h=size, w=4, c=3, m=1, padding="SAME")
            arrays = operands(problem, "float32")
            started = [pool.submit(first, problem, arrays, barrier) for barrier in [Barrier(8)] for _ in range(8)]
            wanted = expected(problem, *arrays)
            for got in started:
                equal(got.result(), wanted)
            equal(gradients(problem, *arrays), wanted)


def test_sessions_of_tensorflow_1(counted):
    problem = Problem(n=2, h=6, w=6, c=4, k=8, padding="SAME")
    arrays = operands(problem, "float32")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        got = session.run(gradients(problem, *map(tf.constant, arrays)))
    equal(got, expected(problem, *arrays))
    assert counted() == dict.fromkeys(raw_names(problem), 1)


def test_xla_compiles_its_own_code(counted):
    problem = Problem(n=2, h=6, w=6, c=4, k=8, padding="SAME")
    arrays = operands(problem, "float32")
    compiled = tf.function(lambda *tensors: gradients(problem, *tensors), jit_compile=True)
    check(problem, "float32", (None, *compiled(*arrays)))
    assert counted() == {}


def test_the_number_of_threads_changes_nothing(adapter):
    problem = Problem(n=4, h=20, w=20, c=16, k=16, padding="SAME")
    arrays = operands(problem, "float32")
    before = gradops.set_num_threads(1)
    try:
        one = gradients(problem, *arrays)
        gradops.set_num_threads(3)
        equal(gradients(problem, *arrays), one)
    finally:
        gradops.set_num_threads(before)


# Errors


@pytest.mark.parametrize("as_function", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize(
    ("sizes", "shapes", "message"),
    [
        (
            [1, 5, 5, 3],
            [(3, 3, 3, 8), (1, 4, 5, 8)],
            r"out_backprop must have shape \(1, 5, 5, 8\) \(NHWC\), got \(1, 4",
        ),
        (
            [1, 5, 5, 4],
            [(3, 3, 3, 8), (1, 5, 5, 8)],
            "input_sizes must have a positive multiple of the 3 input channels",
        ),
        ([1, 5, 5], [(3, 3, 3, 8), (1, 5, 5, 8)], "input_sizes must have 4 or 2 elements, got 3"),
        ([[1, 5, 5, 3]], [(3, 3, 3, 8), (1, 5, 5, 8)], r"input_sizes must be a vector of integers, got shape \(1, 4\)"),
        ([1, -5, 5, 3], [(3, 3, 3, 8), (1, 5, 5, 8)], "input_sizes must not be negative"),
        ([1, 5, 5, 3], [(3, 3, 8), (1, 5, 5, 8)], "filter must have 4 dimensions"),
    ],
    ids=str,
)
def test_a_bad_shape_is_an_error_of_tensorflow_with_gradops_message(adapter, sizes, shapes, message, as_function):
    def call(sizes, w, dy):
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=sizes, filter=w, out_backprop=dy, strides=[1, 1, 1, 1], padding="SAME"
        )

    unknown = [tf.TensorSpec(None, tf.int32), tf.TensorSpec(None, tf.float32), tf.TensorSpec(None, tf.float32)]
    run = tf.function(call, input_signature=unknown) if as_function else call
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"gradops: {message}"):
        run(tf.constant(sizes), *(tf.ones(shape) for shape in shapes))


def test_pooling_sequences_are_checked(adapter):
    with pytest.raises(tf.errors.InvalidArgumentError, match="gradops: out_backprop must have the batch"):
        tf.raw_ops.FractionalAvgPoolGrad(
            orig_input_tensor_shape=[1, 4, 4, 1],
            out_backprop=tf.ones((2, 2, 2, 1)),
            row_pooling_sequence=[0, 2, 4],
            col_pooling_sequence=[0, 2, 4],
        )


def test_every_symbol_is_in_tensorflow(adapter):
    from gradops.tensorflow import _registration

    addresses = _registration._addresses()
    assert len(addresses) == len(set(addresses)) == len(tensorflow_kernels.SYMBOLS)
    assert all(addresses)


@pytest.mark.skipif(not KERNELS.exists(), reason="the tests do not lie in a checkout with its sources")
def test_symbols_are_named_in_the_order_of_their_declarations(adapter):
    declared = re.findall(r"^    .*\(\*(TFE?_\w+)\)\(", (KERNELS / "_tensorflow.pxd").read_text(), re.MULTILINE)
    assert tuple(declared) == tensorflow_kernels.SYMBOLS


# Switched off


@pytest.mark.parametrize("run", [gradients, in_graph], ids=["eager", "function"])
@pytest.mark.parametrize("dtype", ROUNDED_ONCE)
@pytest.mark.parametrize("problem", [problem for problem in PLAIN if not problem.depthwise], ids=str)
def test_disabled_dense_convolutions_are_tensorflows_to_the_last_bit(native, disabled, counted, problem, dtype, run):
    equal(run(problem, *operands(problem, dtype)), native[run, dtype, problem])
    assert counted() == {"disabled": 2}


@pytest.mark.parametrize("run", [gradients, in_graph], ids=["eager", "function"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)], ids=str)
def test_disabled_depthwise_convolutions_are_those_of_explicit_paddings(disabled, counted, dtype, run, strides):
    problem = Problem(n=3, h=14, w=13, c=16, m=2, r=3, s=4, padding="SAME", strides=strides)
    arrays = operands(problem, dtype)
    mine = run(problem, *arrays)
    assert counted() == {"disabled": 2}
    (_, _, _, _, _, top), (_, _, _, _, _, left) = problem.axes
    totals = [max(0, (out - 1) * stride + taps - n) for n, out, taps, stride, *_ in problem.axes]
    explicit = [0, 0, top, totals[0] - top, left, totals[1] - left, 0, 0]
    equal(mine, run(problem, *arrays, padding="EXPLICIT", explicit_paddings=explicit))
    assert counted() == {}


@pytest.mark.parametrize("run", [gradients, in_graph], ids=["eager", "function"])
@pytest.mark.parametrize(
    ("channels", "dtype", "slower"),
    [
        ((1024, 1500), "float32", 1),
        ((1024, 1500), "float64", 0),
        ((1024, 1200), "float32", 0),
        ((1500, 1024), "float32", 0),
    ],
)
def test_what_tensorflow_computes_in_less_time_is_passed_on(adapter, counted, run, channels, dtype, slower):
    problem = Problem(n=1, h=39, w=39, c=channels[0], k=channels[1], r=1, s=1, padding="SAME")
    arrays = operands(problem, dtype)
    got = run(problem, *arrays)
    names = raw_names(problem)
    assert counted() == ({"slower": 1, names[1]: 1} if slower else dict.fromkeys(names, 1))
    if slower:
        assert np.array_equal(got[0], run(problem, *arrays, use_cudnn_on_gpu=False)[0])
    equal(got[1:], expected(problem, *arrays)[1:])


def test_disabled_errors_are_tensorflows(disabled):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Size of out_backprop doesn't match computed"):
        tf.raw_ops.Conv2DBackpropInput(
            input_sizes=[1, 5, 5, 3], filter=tf.ones((3, 3, 3, 8), tf.float64),
            out_backprop=tf.ones((1, 4, 5, 8), tf.float64), strides=[1, 1, 1, 1], padding="SAME",
        )  # fmt: skip


def test_calls_that_are_passed_on_do_not_wait_for_their_own_queue(disabled, counted):
    problem = Problem(n=2, h=6, w=6, c=4, k=8, padding="SAME")
    arrays = operands(problem, "float32")
    wanted = gradients(problem, *arrays, use_cudnn_on_gpu=False)
    tf.config.experimental.set_synchronous_execution(False)
    try:
        equal(gradients(problem, *arrays), wanted)
        equal(in_graph(problem, *arrays), wanted)
    finally:
        tf.config.experimental.set_synchronous_execution(True)
    assert counted() == {"disabled": 4}


# Other processes


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, check=False
    )


def test_without_tensorflow_the_error_says_what_to_install():
    code = "import importlib.util as u; u.find_spec = lambda name: None; import gradops.tensorflow"
    assert "ImportError: gradops.tensorflow needs TensorFlow: pip install 'gradops[tensorflow]'" in python(code).stderr


def test_another_version_of_tensorflow_is_refused():
    code = "import tensorflow; tensorflow.__version__ = '2.9.1'; import gradops.tensorflow"
    assert "ImportError: gradops.tensorflow needs TensorFlow 2.21 or newer, got 2.9.1" in python(code).stderr


def test_a_session_that_exists_is_too_early():
    code = """
import tensorflow as tf, gradops.tensorflow
session = tf.compat.v1.Session(graph=tf.Graph())
gradops.tensorflow.enable()
"""
    assert (
        "RuntimeError: gradops.tensorflow.enable() must come before the first tf.compat.v1.Session"
        in python(code).stderr
    )


TRAINING = """
import json, sys
import numpy as np
import tensorflow as tf
import gradops.tensorflow
from tensorflow.keras import layers

def mobilenet(x):
    x = layers.Conv2D(8, 3, 2, "same", activation="relu")(x)
    for filters, stride in ((12, 2), (12, 1), (16, 2)):
        shortcut, channels = x, x.shape[-1]
        x = layers.Conv2D(4 * channels, 1, use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
        x = layers.DepthwiseConv2D(3, stride, "same", use_bias=False)(x)
        x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
        x = layers.BatchNormalization()(layers.Conv2D(filters, 1, use_bias=False)(x))
        x = x + shortcut if stride == 1 and filters == channels else x
    return x

def convnext(x):
    x = layers.LayerNormalization()(layers.Conv2D(16, 4, 4)(x))
    for _ in range(2):
        y = layers.LayerNormalization()(layers.DepthwiseConv2D(7, padding="same")(x))
        x = x + layers.Conv2D(16, 1)(layers.Conv2D(64, 1, activation="gelu")(y))
    return x

def resnet(x):
    x = layers.Conv2D(8, 7, 2, "same", activation="relu")(x)
    for filters, stride in ((8, 1), (16, 2)):
        y = layers.BatchNormalization()(layers.Conv2D(filters, 3, stride, "same", use_bias=False)(x))
        y = layers.BatchNormalization()(layers.Conv2D(filters, 3, 1, "same", use_bias=False)(layers.ReLU()(y)))
        x = layers.ReLU()(y + layers.Conv2D(filters, 1, stride)(x))
    return x

def losses(body):
    tf.keras.utils.set_random_seed(1)
    image = layers.Input((32, 32, 3))
    model = tf.keras.Model(image, layers.Dense(5)(layers.GlobalAveragePooling2D()(body(image))))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.05, momentum=0.9), loss, jit_compile=False)
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((8, 32, 32, 3), np.float32), rng.integers(0, 5, 8)
    return [float(model.train_on_batch(x, y)) for _ in range(5)]

def run():
    return {body.__name__: losses(body) for body in (mobilenet, convnext, resnet)}

native = run()
assert not any(gradops.tensorflow.stats()["taken"].values())
gradops.tensorflow.enable()
mine = run()
print(json.dumps({"native": native, "mine": mine, "stats": gradops.tensorflow.stats()}))
"""


@pytest.mark.parametrize("onednn", ["1", "0"], ids=["oneDNN", "portable"])
def test_models_train_as_without_gradops(onednn):
    done = python(TRAINING, TF_ENABLE_ONEDNN_OPTS=onednn, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for name, losses in found["native"].items():
        assert losses[-1] < losses[0], name
        np.testing.assert_allclose(found["mine"][name], losses, rtol=2e-3, err_msg=name)
    assert found["stats"]["taken"] == {
        "Conv2DBackpropInput": 5 * (6 + 4 + 6),
        "Conv2DBackpropFilter": 5 * (7 + 5 + 7),
        "DepthwiseConv2dNativeBackpropInput": 5 * (3 + 2),
        "DepthwiseConv2dNativeBackpropFilter": 5 * (3 + 2),
        "FractionalAvgPoolGrad": 0,
    }


def test_examples_run():
    code = """
import doctest
from gradops.tensorflow import __all__, _override
print(doctest.testmod(_override), *sorted(name for name in __all__ if ">>>" in getattr(_override, name).__doc__))
"""
    assert re.fullmatch(
        r"TestResults\(failed=0, attempted=1\d\) disable enable stats", python(code).stdout.splitlines()[-1]
    )


WITHOUT = """
import importlib.util, sys, types
if sys.argv[1] == "missing":
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name == "tensorflow" else find(name, *rest)
else:
    sys.modules["tensorflow"] = types.ModuleType("tensorflow")
    sys.modules["tensorflow"].__version__ = sys.argv[1]
    sys.modules["tensorflow"].__spec__ = importlib.util.spec_from_loader("tensorflow", None)
import gradops.tensorflow
"""


@pytest.mark.parametrize(("given", "said"), [("missing", "pip install"), ("2.9.1", "2.21 or newer, got 2.9.1")])
def test_a_missing_or_old_tensorflow_is_named(given, said):
    ran = subprocess.run([sys.executable, "-c", WITHOUT, given], capture_output=True, text=True)
    assert "ImportError: gradops.tensorflow needs TensorFlow" in ran.stderr
    assert said in ran.stderr


def test_importing_the_adapter_registers_nothing():
    code = """
import gradops.tensorflow, tensorflow as tf
from tensorflow.python.framework import kernels
print([kernel.priority for kernel in kernels.get_registered_kernels_for_op("Conv2DBackpropInput").kernel if kernel.priority])
"""
    assert python(code).stdout.splitlines()[-1] == "[]"
