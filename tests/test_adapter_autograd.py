"""gradops.autograd: derivatives of both modes against numerical ones, and a network trained in NumPy."""

import doctest

import numpy as np
import pytest

pytest.importorskip("autograd", reason="HIPS autograd is not installed")

import autograd
import autograd.numpy as anp
from autograd.test_util import check_grads

import gradops
import gradops.autograd as adapter


def drawn(*shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


CASES = {
    "same": dict(strides=1, padding="SAME"),
    "strided": dict(strides=(2, 1), padding="VALID", dilations=(1, 2)),
    "explicit": dict(strides=1, padding="EXPLICIT", explicit_paddings=(0, 0, 1, 0, 2, 1, 0, 0)),
    "first": dict(strides=2, padding="SAME", data_format="NCHW"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["conv2d", "grouped", "depthwise_conv2d_native"])
def test_derivatives_of_convolutions_are_the_numerical_ones(kind, case):
    given = CASES[case]
    x = drawn(2, 4, 6, 5) if given.get("data_format") == "NCHW" else drawn(2, 6, 5, 4)
    w = drawn(3, 2, *{"conv2d": (4, 3), "grouped": (2, 6), "depthwise_conv2d_native": (4, 2)}[kind], seed=1)
    name = "conv2d" if kind == "grouped" else kind
    forward, of_input, of_filter = (
        getattr(adapter, name + suffix) for suffix in ("", "_backprop_input", "_backprop_filter")
    )
    y = getattr(gradops, name)(x, w, **given)
    np.testing.assert_array_equal(forward(x, w, **given), y)
    dy = drawn(*y.shape, seed=2)
    check_grads(lambda x, w: forward(x, w, **given), modes=["rev", "fwd"], order=2)(x, w)
    check_grads(lambda w, dy: of_input(x.shape, w, dy, **given), modes=["rev", "fwd"], order=2)(w, dy)
    check_grads(lambda x, dy: of_filter(x, w.shape, dy, **given), modes=["rev", "fwd"], order=2)(x, dy)


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_derivatives_of_fractional_pooling_are_the_numerical_ones(data_format, overlapping):
    x = drawn(2, 7, 6, 3) if data_format == "NHWC" else drawn(2, 3, 7, 6)
    ratio = (1, 1.5, 1.3, 1) if data_format == "NHWC" else (1, 1, 1.5, 1.3)
    given = dict(overlapping=overlapping, deterministic=True, seed=2, data_format=data_format)
    found, expected = adapter.fractional_avg_pool(x, ratio, **given), gradops.fractional_avg_pool(x, ratio, **given)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    check_grads(lambda x: adapter.fractional_avg_pool(x, ratio, **given).output, modes=["rev", "fwd"], order=2)(x)
    dy = drawn(*expected.output.shape, seed=3)
    cells = expected[1:]
    check_grads(
        lambda dy: adapter.fractional_avg_pool_grad(x.shape, dy, *cells, overlapping, data_format=data_format),
        modes=["rev", "fwd"],
        order=2,
    )(dy)


def test_positional_arguments_reach_the_gradient():
    x = drawn(1, 6, 6, 2)
    loss = lambda x: anp.sum(adapter.fractional_avg_pool(x, (1, 1.5, 1.5, 1), True, True, True, 7).output ** 2)
    check_grads(loss, modes=["rev"])(x)
    w = drawn(3, 3, 2, 4, seed=1)
    check_grads(lambda x: adapter.conv2d(x, w, 2, "SAME", True, "NHWC", (1, 1, 1, 1)), modes=["rev"])(x)


def test_fresh_cells_of_each_call_are_those_of_its_gradient():
    x = drawn(1, 20, 20, 1)
    for _ in range(5):
        seen = []

        def loss(x, seen=seen):
            pooled = adapter.fractional_avg_pool(x, (1, 1.7, 1.7, 1))
            seen.append(pooled[1:])
            return anp.sum(pooled.output)

        dx = autograd.grad(loss)(x)
        output_shape = tuple(len(cells) - 1 for cells in seen[0])
        np.testing.assert_array_equal(
            dx, gradops.fractional_avg_pool_grad(x.shape, np.ones((1, *output_shape, 1)), *seen[0])
        )


def test_results_must_last():
    x, w = np.ones((1, 3, 3, 1)), np.ones((2, 2, 1, 1))
    with pytest.raises(TypeError, match=r"conv2d of gradops\.autograd takes no out"):
        adapter.conv2d(x, w, 1, "VALID", out=np.empty((1, 2, 2, 1)))
    with pytest.raises(TypeError, match=r"fractional_avg_pool of gradops\.autograd takes no out"):
        adapter.fractional_avg_pool(x, (1, 1.5, 1.5, 1), out=np.empty((1, 2, 2, 1)))


def test_network_of_plain_numpy_learns():
    random = np.random.default_rng(0)
    images = random.standard_normal((64, 8, 8, 1))
    labels = (images[:, :4].sum((1, 2, 3)) > images[:, 4:].sum((1, 2, 3))).astype(int)
    values = [0.5 * random.standard_normal(shape) for shape in ((3, 3, 1, 8), (3, 3, 8, 1), (128, 2))]

    def loss(values):
        y = anp.maximum(adapter.conv2d(images, values[0], 1, "SAME"), 0)
        y = anp.tanh(adapter.depthwise_conv2d_native(y, values[1], 2, "SAME"))
        logits = anp.dot(anp.reshape(y, (64, -1)), values[2])
        return -anp.mean((logits - anp.log(anp.sum(anp.exp(logits), 1, keepdims=True)))[anp.arange(64), labels])

    step = autograd.value_and_grad(loss)
    losses = []
    for _ in range(60):
        value, gradients = step(values)
        losses.append(value)
        values = [w - 0.3 * dw for w, dw in zip(values, gradients, strict=True)]
    assert losses[-1] < 0.3 * losses[0]


def test_examples_run():
    assert doctest.testmod(adapter, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0
