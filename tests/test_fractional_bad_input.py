"""What fractional average pooling and its gradient say no to: the argument, what came and what was expected."""

import re

import numpy as np
import pytest

import gradops

IMAGE = np.zeros((2, 6, 8, 3), np.float32)
RATIO = (1, 1.5, 2, 1)
GRAD = {
    "orig_input_tensor_shape": (2, 6, 8, 3),
    "out_backprop": np.ones((2, 3, 2, 3), np.float32),
    "row_pooling_sequence": [0, 2, 4, 6],
    "col_pooling_sequence": [0, 4, 8],
}

POOLINGS = [
    (
        {"pooling_ratio": (1, 1.5, 2)},
        ValueError,
        "pooling_ratio must be a sequence of 4 numbers in data_format order, got 3: (1, 1.5, 2)",
    ),
    ({"pooling_ratio": (1, 1.5, 2, 1, 1)}, ValueError, "pooling_ratio must be a sequence of 4 numbers"),
    ({"pooling_ratio": (1, 0.5, 2, 1)}, ValueError, "pooling_ratio must be at least 1, got (1, 0.5, 2, 1)"),
    ({"pooling_ratio": (1, 0, 2, 1)}, ValueError, "pooling_ratio must be at least 1"),
    ({"pooling_ratio": (1, 2, -1, 1)}, ValueError, "pooling_ratio must be at least 1"),
    ({"pooling_ratio": (1, float("nan"), 2, 1)}, ValueError, "pooling_ratio must be at least 1, got (1, nan, 2, 1)"),
    ({"pooling_ratio": (0.5, 1, 1, 1)}, ValueError, "pooling_ratio must be at least 1"),
    (
        {"pooling_ratio": (1.5, 1, 1, 1)},
        ValueError,
        "pooling_ratio must be 1 for batch and channels, got (1.5, 1, 1, 1) with data_format 'NHWC'",
    ),
    ({"pooling_ratio": (1, 1, 1, 2)}, ValueError, "pooling_ratio must be 1 for batch and channels"),
    ({"pooling_ratio": RATIO, "data_format": "NCHW"}, ValueError, "pooling_ratio must be 1 for batch and channels"),
    (
        {"pooling_ratio": (1, 6.1, 2, 1)},
        ValueError,
        "pooling_ratio must not exceed the 6 rows of value (2, 6, 8, 3) (NHWC), got 6.1",
    ),
    (
        {"pooling_ratio": (1, 1, float("inf"), 1)},
        ValueError,
        "pooling_ratio must not exceed the 8 columns of value (2, 6, 8, 3)",
    ),
    ({"pooling_ratio": (1, 1, 10**400, 1)}, ValueError, "pooling_ratio must not exceed the 8 columns"),
    ({"pooling_ratio": (1, -(10**400), 1, 1)}, ValueError, "pooling_ratio must be at least 1"),
    ({"pooling_ratio": 1.5}, TypeError, "pooling_ratio must be a sequence of 4 numbers in data_format order, got 1.5"),
    ({"pooling_ratio": None}, TypeError, "pooling_ratio must be a sequence of 4 numbers"),
    ({"pooling_ratio": "1111"}, TypeError, "pooling_ratio must be a sequence of 4 numbers"),
    ({"pooling_ratio": (1, "2", 1, 1)}, TypeError, "pooling_ratio must be a sequence of 4 numbers"),
    ({"pooling_ratio": (True, 2, 2, 1)}, TypeError, "pooling_ratio must be a sequence of 4 numbers"),
    ({"value": IMAGE[0]}, ValueError, "value must have 4 dimensions (NHWC), got shape (6, 8, 3)"),
    ({"value": IMAGE[:, :0]}, ValueError, "pooling_ratio must not exceed the 0 rows of value (2, 0, 8, 3)"),
    (
        {"value": IMAGE.astype(complex)},
        TypeError,
        "value must have dtype float16, bfloat16, float32, float64, int32 or int64, got complex128",
    ),
    ({"value": IMAGE.astype(np.int16)}, TypeError, "value must have dtype"),
    ({"value": IMAGE > 0}, TypeError, "value must have dtype"),
    ({"pseudo_random": 1}, TypeError, "pseudo_random must be True or False, got 1"),
    ({"overlapping": "no"}, TypeError, "overlapping must be True or False, got 'no'"),
    ({"deterministic": None}, TypeError, "deterministic must be True or False, got None"),
    ({"deterministic": True, "seed": 1.5}, TypeError, "seed must be an integer, got 1.5"),
    ({"deterministic": True, "seed2": [1]}, TypeError, "seed2 must be an integer, got [1]"),
    ({"deterministic": True, "seed": True}, TypeError, "seed must be an integer, got True"),
    (
        {"deterministic": True, "seed": 2**63},
        ValueError,
        "seed must fit a signed 64-bit integer, got 9223372036854775808",
    ),
    ({"deterministic": True, "seed2": -(2**63) - 1}, ValueError, "seed2 must fit a signed 64-bit integer"),
    ({"seed": 1}, ValueError, "seed and seed2 must be 0 unless deterministic is True, got seed 1 and seed2 0"),
    ({"data_format": "NWHC"}, ValueError, "data_format must be 'NHWC' or 'NCHW', got 'NWHC'"),
    ({"data_format": 3}, TypeError, "data_format must be a string, 'NHWC' or 'NCHW', got 3"),
    ({"out": np.empty((2, 4, 5, 3), np.float32)}, ValueError, "out must have the shape of the result, (2, 4, 4, 3)"),
    ({"out": np.empty((2, 4, 4, 3))}, TypeError, "out must have the dtype of the inputs, float32, got float64"),
    ({"num_threads": 0}, ValueError, "num_threads"),
]
GRADIENTS = [
    (
        {"orig_input_tensor_shape": (2, 6, 8)},
        ValueError,
        "orig_input_tensor_shape must have 4 elements, got 3: (2, 6, 8)",
    ),
    (
        {"orig_input_tensor_shape": 6},
        ValueError,
        "orig_input_tensor_shape must be a sequence of 4 integers, got the single integer 6",
    ),
    ({"orig_input_tensor_shape": (2, 6.0, 8, 3)}, TypeError, "orig_input_tensor_shape must be a sequence of integers"),
    ({"orig_input_tensor_shape": (2, True, 8, 3)}, TypeError, "orig_input_tensor_shape must be a sequence of integers"),
    (
        {"orig_input_tensor_shape": (2, -6, 8, 3)},
        ValueError,
        "orig_input_tensor_shape must not be negative, got (2, -6, 8, 3)",
    ),
    (
        {"orig_input_tensor_shape": (2, 2**62, 8, 3)},
        ValueError,
        "orig_input_tensor_shape must have at most 2**63 - 1 elements",
    ),
    ({"orig_input_tensor_shape": (-1879048192,) * 4}, ValueError, "orig_input_tensor_shape must not be negative"),
    (
        {"orig_input_tensor_shape": (1, 6, 8, 3)},
        ValueError,
        "out_backprop must have the batch of orig_input_tensor_shape, 1 in (1, 6, 8, 3) (NHWC), got 2 in (2, 3, 2, 3)",
    ),
    ({"orig_input_tensor_shape": (3, 6, 8, 3)}, ValueError, "out_backprop must have the batch"),
    (
        {"orig_input_tensor_shape": (2, 6, 8, 2)},
        ValueError,
        "out_backprop must have the channels of orig_input_tensor_shape, 2 in",
    ),
    ({"orig_input_tensor_shape": (2, 6, 8, 4)}, ValueError, "out_backprop must have the channels"),
    (
        {"orig_input_tensor_shape": (2, 0, 8, 3)},
        ValueError,
        "row_pooling_sequence must begin each cell inside the 0 rows of orig_input_tensor_shape, got 0 at index 0",
    ),
    (
        {"out_backprop": np.ones((2, 3, 2), np.float32)},
        ValueError,
        "out_backprop must have 4 dimensions (NHWC), got shape (2, 3, 2)",
    ),
    (
        {"out_backprop": np.ones((2, 3, 2, 3), np.uint8)},
        TypeError,
        "out_backprop must have dtype float16, bfloat16, float32, float64, int32 or int64, got uint8",
    ),
    (
        {"row_pooling_sequence": [0, 2, 4]},
        ValueError,
        "row_pooling_sequence must have at least 4 elements, one more than out_backprop has rows, got 3: (0, 2, 4)",
    ),
    (
        {"col_pooling_sequence": [0, 4]},
        ValueError,
        "col_pooling_sequence must have at least 3 elements, one more than out_backprop has columns, got 2",
    ),
    (
        {"col_pooling_sequence": []},
        ValueError,
        "col_pooling_sequence must have at least 3 elements, one more than out_backprop has columns, got 0",
    ),
    (
        {"row_pooling_sequence": [-10, 1, 2, 3]},
        ValueError,
        "row_pooling_sequence must not be negative, got -10 at index 0",
    ),
    ({"col_pooling_sequence": [1, 2, -3]}, ValueError, "col_pooling_sequence must not be negative, got -3 at index 2"),
    (
        {"row_pooling_sequence": [0, 0, 4, 6]},
        ValueError,
        "row_pooling_sequence must increase, got 0 and then 0 at index 1 in (0, 0, 4, 6)",
    ),
    (
        {"row_pooling_sequence": [0, 4, 4, 6]},
        ValueError,
        "row_pooling_sequence must increase, got 4 and then 4 at index 2",
    ),
    (
        {"row_pooling_sequence": [0, 4, 2, 6]},
        ValueError,
        "row_pooling_sequence must increase, got 4 and then 2 at index 2",
    ),
    (
        {"row_pooling_sequence": [0, 4, 3, 6], "overlapping": True},
        ValueError,
        "row_pooling_sequence must not decrease, got 4 and then 3 at index 2",
    ),
    (
        {"col_pooling_sequence": [0, 8, 9]},
        ValueError,
        "col_pooling_sequence must begin each cell inside the 8 columns of orig_input_tensor_shape, got 8 at index 1",
    ),
    (
        {"col_pooling_sequence": [0, 2**62, 2**63 - 1]},
        ValueError,
        "col_pooling_sequence must begin each cell inside the 8 columns",
    ),
    (
        {"col_pooling_sequence": np.array([0, 2**63, 2**64 - 1], np.uint64)},
        ValueError,
        "col_pooling_sequence must begin each cell inside",
    ),
    (
        {"row_pooling_sequence": [[0, 2, 4, 6]]},
        ValueError,
        "row_pooling_sequence must be a one-dimensional sequence of integers, got 2 dimensions",
    ),
    (
        {"row_pooling_sequence": np.zeros((4, 1), np.int64)},
        ValueError,
        "row_pooling_sequence must be a one-dimensional sequence",
    ),
    (
        {"row_pooling_sequence": 3},
        ValueError,
        "row_pooling_sequence must be a one-dimensional sequence of integers, got 0 dimensions",
    ),
    (
        {"row_pooling_sequence": [0, 2, 4, 6.0]},
        TypeError,
        "row_pooling_sequence must be a one-dimensional sequence of integers",
    ),
    (
        {"row_pooling_sequence": np.array([0, 2, 4, 6.0])},
        TypeError,
        "row_pooling_sequence must be a one-dimensional sequence of integers, got an array of float64",
    ),
    (
        {"row_pooling_sequence": np.array([False, True, True, True])},
        TypeError,
        "row_pooling_sequence must be a one-dimensional sequence of integers, got an array of bool",
    ),
    (
        {"row_pooling_sequence": [False, 2, 4, 6]},
        TypeError,
        "row_pooling_sequence must be a one-dimensional sequence of integers",
    ),
    ({"overlapping": 0}, TypeError, "overlapping must be True or False, got 0"),
    (
        {"data_format": "NCHW"},
        ValueError,
        "col_pooling_sequence must have at least 4 elements, one more than out_backprop",
    ),
    ({"data_format": "nhwc"}, ValueError, "data_format must be 'NHWC' or 'NCHW', got 'nhwc'"),
    ({"out": np.empty((2, 6, 8, 3), np.float64)}, TypeError, "out must have the dtype of the inputs"),
    ({"out": np.empty((2, 3, 8, 3), np.float32)}, ValueError, "out must have the shape of the result"),
]


def named(value):
    """The arguments that a case changes."""
    return "-".join(value) if isinstance(value, dict) else ""


@pytest.mark.parametrize(("changes", "kind", "message"), POOLINGS, ids=named)
def test_pooling_refuses(changes, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        gradops.fractional_avg_pool(**{"value": IMAGE, "pooling_ratio": RATIO} | changes)


@pytest.mark.parametrize(("changes", "kind", "message"), GRADIENTS, ids=named)
def test_gradient_refuses(changes, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        gradops.fractional_avg_pool_grad(**GRAD | changes)


def test_more_memory_than_there_is():
    dy = np.ones((1, 1, 1, 1), np.float64)
    with pytest.raises(MemoryError):
        gradops.fractional_avg_pool_grad((1, 2**30, 2**30, 1), dy, [0, 1], [0, 1])


@pytest.mark.parametrize("kind", [list, tuple, "int64", "uint8", ">i4", "uint64"])
def test_sequences_of_any_integers_are_taken(kind):
    expected = gradops.fractional_avg_pool_grad(**GRAD)
    names = ("row_pooling_sequence", "col_pooling_sequence")
    sequences = {name: np.array(GRAD[name], kind) if isinstance(kind, str) else kind(GRAD[name]) for name in names}
    np.testing.assert_array_equal(gradops.fractional_avg_pool_grad(**GRAD | sequences), expected)


@pytest.mark.parametrize(
    "ratio", [[1, 1.5, 2, 1], np.array([1, 1.5, 2, 1], np.float32), (np.int64(1), np.float64(1.5), 2, 1)]
)
def test_ratios_of_any_numbers_are_taken(ratio):
    assert gradops.fractional_avg_pool(IMAGE, ratio, np.True_, deterministic=True, seed=np.int32(4)).output.shape == (
        2,
        4,
        4,
        3,
    )
