"""The same numbers from TensorFlow: from its CPU kernels where they compute them, and from XLA."""

import numpy as np
import pytest
from peers import FEW, PROBLEMS, ROUNDS_PARTIAL_SUMS, check, operands
from problems import POOL_PROBLEMS

from gradops.testing import OPS, assert_close, dtype_named, random_normal

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def compiled(op, **attributes):
    """Run a raw op through XLA, whose kernels know every layout, dilation and group count."""
    return tf.function(lambda **tensors: op(**tensors, **attributes), jit_compile=True)


def run(problem, x, w, dy):
    prefix = "DepthwiseConv2dNative" if problem.depthwise else "Conv2D"
    forward, to_input, to_filter = (
        compiled(getattr(tf.raw_ops, prefix + suffix), **problem.attributes, **sizes)
        for suffix, sizes in (
            ("", {}),
            ("BackpropInput", {"input_sizes": problem.input_shape}),
            ("BackpropFilter", {"filter_sizes": problem.filter_shape}),
        )
    )
    return (
        forward(input=x, filter=w).numpy(),
        to_input(filter=w, out_backprop=dy).numpy(),
        to_filter(input=x, out_backprop=dy).numpy(),
    )


@pytest.mark.parametrize(("problem", "dtype"), FEW, ids=str)
def test_convolutions_agree_with_tensorflow(problem, dtype):
    check(problem, dtype, run(problem, *operands(problem, dtype)))


PLAIN = [
    problem
    for problem in PROBLEMS
    if problem.layout == "NHWC" and problem.dilations == (1, 1) and problem.strides[0] == problem.strides[1]
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("problem", PLAIN, ids=str)
def test_convolutions_agree_with_tensorflows_own_kernels(problem, dtype):
    if dtype == "bfloat16" and not isinstance(problem.padding, str):
        pytest.skip("TensorFlow's kernel for explicit padding rounds partial sums to bfloat16")
    if dtype == "bfloat16" and ROUNDS_PARTIAL_SUMS:
        pytest.skip("without AVX-512 all of TensorFlow's kernels round partial sums to bfloat16")
    x, w, dy = operands(problem, dtype)
    prefix = "DepthwiseConv2dNative" if problem.depthwise else "Conv2D"
    given = problem.attributes
    y = getattr(tf.raw_ops, prefix)(input=x, filter=w, **given).numpy()
    if problem.groups > 1 and (dtype == "float64" or not isinstance(problem.padding, str)):
        return check(problem, dtype, (y, None, None))
    dx = getattr(tf.raw_ops, prefix + "BackpropInput")(
        input_sizes=problem.input_shape, filter=w, out_backprop=dy, **given
    )
    dw = getattr(tf.raw_ops, prefix + "BackpropFilter")(
        input=x, filter_sizes=problem.filter_shape, out_backprop=dy, **given
    )
    check(problem, dtype, (y, dx.numpy(), dw.numpy()))
    return None


POOLED = [problem for problem in POOL_PROBLEMS if problem.layout == "NHWC"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("problem", POOLED, ids=str)
def test_pooling_agrees_with_tensorflow(problem, dtype):
    op = OPS["fractional_avg_pool"]
    (x,) = random_normal(op.shapes(problem), dtype_named(dtype), seed=1)
    theirs = tf.raw_ops.FractionalAvgPool(**_without_format(op, problem, x))
    ours = op.function(**op.arguments(problem, x))
    for mine, peer in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_array_equal(mine, peer.numpy())
    assert_close(ours.output, op.expect(problem, x)._replace(value=theirs.output.numpy().astype(np.float64)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("problem", POOLED, ids=str)
def test_pooling_gradient_agrees_with_tensorflow(problem, dtype):
    op = OPS["fractional_avg_pool_grad"]
    (dy,) = random_normal(op.shapes(problem), dtype_named(dtype), seed=2)
    theirs = tf.raw_ops.FractionalAvgPoolGrad(**_without_format(op, problem, dy)).numpy()
    np.testing.assert_array_equal(op(problem, dy), theirs)


def _without_format(op, problem, operand):
    return {name: value for name, value in op.arguments(problem, operand).items() if name != "data_format"}
