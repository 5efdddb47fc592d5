"""Every refusal: its type, what it says, and that nothing was written, computed or allocated before it."""

import re
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import gradops
from gradops import raw_ops

HALF = ml_dtypes.bfloat16


def f4(*shape):
    return np.ones(shape, np.float32)


def huge(*shape):
    """A view as large as is asked for, on one number."""
    return np.broadcast_to(np.float32(1), shape)


def conv(x=(1, 5, 5, 3), w=(3, 3, 3, 4), strides=1, padding="SAME", **more):
    """conv2d of ones of these shapes, or of what else is given."""
    return gradops.conv2d(*(f4(*v) if isinstance(v, tuple) else v for v in (x, w)), strides, padding, **more)


def dx(sizes=(1, 5, 5, 3), w=(3, 3, 3, 4), dy=(1, 5, 5, 4), strides=1, padding="SAME", **more):
    arrays = (f4(*v) if isinstance(v, tuple) else v for v in (w, dy))
    return gradops.conv2d_backprop_input(sizes, *arrays, strides, padding, **more)


def dw(x=(1, 5, 5, 3), sizes=(3, 3, 3, 4), dy=(1, 5, 5, 4), strides=1, padding="SAME", **more):
    x, dy = (f4(*v) if isinstance(v, tuple) else v for v in (x, dy))
    return gradops.conv2d_backprop_filter(x, sizes, dy, strides, padding, **more)


def deep(x=(1, 5, 5, 3), w=(3, 3, 3, 2), strides=1, padding="SAME", **more):
    return gradops.depthwise_conv2d_native(f4(*x), f4(*w), strides, padding, **more)


def deep_dx(sizes=(1, 5, 5, 3), w=(3, 3, 3, 2), dy=(1, 5, 5, 6), strides=1, padding="SAME", **more):
    return gradops.depthwise_conv2d_native_backprop_input(sizes, f4(*w), f4(*dy), strides, padding, **more)


def deep_dw(x=(1, 5, 5, 3), sizes=(3, 3, 3, 2), dy=(1, 5, 5, 6), strides=1, padding="SAME", **more):
    return gradops.depthwise_conv2d_native_backprop_filter(f4(*x), sizes, f4(*dy), strides, padding, **more)


class Refuses:
    """An array that cannot be read."""

    def __array__(self, *args, **kwargs):
        raise RuntimeError("it lies on another device")


PADS = (0, 0, 1, 1, 1, 1, 0, 0)
STEPS = "must be an integer, a pair of integers (rows, columns) or four integers in data_format order, got "
PADDING = (
    "padding must be 'SAME', 'VALID', 'EXPLICIT' or four pairs (before, after) of integers in data_format order, got "
)
UNFIT = "explicit_paddings must be 8 integers when padding is 'EXPLICIT', got "
DTYPES = "must have dtype float16, bfloat16, float32 or float64, got "

ATTRIBUTES = [
    (dict(data_format="NHCW"), ValueError, "data_format must be 'NHWC' or 'NCHW', got 'NHCW'"),
    (dict(data_format="nhwc"), ValueError, "data_format must be 'NHWC' or 'NCHW', got 'nhwc'"),
    (dict(data_format=None), TypeError, "data_format must be a string, 'NHWC' or 'NCHW', got None"),
    (dict(data_format=["NHWC"]), TypeError, "data_format must be a string, 'NHWC' or 'NCHW', got ['NHWC']"),
    (dict(strides=None), TypeError, f"strides {STEPS}None"),
    (dict(strides="1"), TypeError, f"strides {STEPS}'1'"),
    (dict(strides=b"12"), TypeError, f"strides {STEPS}b'12'"),
    (dict(strides=1.0), TypeError, f"strides {STEPS}1.0"),
    (dict(strides=True), TypeError, f"strides {STEPS}True"),
    (dict(strides=(1, True)), TypeError, f"strides {STEPS}(1, True)"),
    (dict(strides=[1, 1.0, 1, 1]), TypeError, f"strides {STEPS}[1, 1.0, 1, 1]"),
    (dict(strides=np.ones(2)), TypeError, f"strides {STEPS}array([1., 1.])"),
    (dict(strides=np.ones(2, bool)), TypeError, f"strides {STEPS}array([ True,  True])"),
    (dict(strides=[[1, 1]]), TypeError, f"strides {STEPS}[[1, 1]]"),
    (dict(strides=()), ValueError, f"strides {STEPS}0 integers: ()"),
    (dict(strides=(1,)), ValueError, f"strides {STEPS}1 integers: (1,)"),
    (dict(strides=(1, 1, 1)), ValueError, f"strides {STEPS}3 integers: (1, 1, 1)"),
    (dict(strides=0), ValueError, "strides must be at least 1 and at most 2147483647, got 0"),
    (dict(strides=(1, -1)), ValueError, "strides must be at least 1 and at most 2147483647, got (1, -1)"),
    (dict(strides=2**31), ValueError, "strides must be at least 1 and at most 2147483647, got 2147483648"),
    (
        dict(strides=(2, 1, 1, 1)),
        ValueError,
        "strides must be 1 for batch and channels, got (2, 1, 1, 1) with data_format 'NHWC'",
    ),
    (dict(strides=(1, 1, 1, 0)), ValueError, "strides must be 1 for batch and channels, got (1, 1, 1, 0)"),
    (dict(dilations=None), TypeError, f"dilations {STEPS}None"),
    (dict(dilations=(1, 2.0)), TypeError, f"dilations {STEPS}(1, 2.0)"),
    (dict(dilations=(1,) * 5), ValueError, f"dilations {STEPS}5 integers: (1, 1, 1, 1, 1)"),
    (dict(dilations=(1, 0, 1, 1)), ValueError, "dilations must be at least 1 and at most 2147483647, got (1, 0, 1, 1)"),
    (dict(dilations=2**40), ValueError, "dilations must be at least 1 and at most 2147483647, got 1099511627776"),
    (dict(dilations=(1, 1, 1, 2)), ValueError, "dilations must be 1 for batch and channels, got (1, 1, 1, 2)"),
    (dict(padding="same"), ValueError, f"{PADDING}'same'"),
    (dict(padding=None), TypeError, f"{PADDING}None"),
    (dict(padding=b"SAME"), TypeError, f"{PADDING}b'SAME'"),
    (dict(padding=PADS), ValueError, f"{PADDING}(0, 0, 1, 1, 1, 1, ...)"),
    (dict(padding=[(0, 0), (1, 1), (1, 1)]), ValueError, f"{PADDING}[(0, 0), (1, 1), (1, 1)]"),
    (dict(padding=[(0, 0), (1, 1, 1), (1,), (0, 0)]), ValueError, f"{PADDING}[(0, 0), (1, 1, 1), (1,), (0, 0)]"),
    (dict(padding=[(0, 0), (1.0, 1), (1, 1), (0, 0)]), TypeError, f"{PADDING}(1.0, 1)"),
    (
        dict(padding=[(0, 0), (-1, 1), (1, 1), (0, 0)]),
        ValueError,
        "padding must not be negative, got (0, 0, -1, 1, 1, 1, 0, 0)",
    ),
    (
        dict(padding=[(0, 0), (1, 1), (1, 1), (0, 1)]),
        ValueError,
        "padding must be 0 for batch and channels, got (0, 0, 1, 1, 1, 1, 0, 1)",
    ),
    (
        dict(padding=[(0, 0), (1, 1), (1, 1), (0, 0)], explicit_paddings=PADS),
        ValueError,
        "explicit_paddings must be empty unless padding is 'EXPLICIT', got (0, 0, 1, 1, 1, 1, ...) with padding ((0",
    ),
    (
        dict(explicit_paddings=PADS),
        ValueError,
        "explicit_paddings must be empty unless padding is 'EXPLICIT', got (0, 0, 1, 1, 1, 1, ...) with padding 'SAME'",
    ),
    (
        dict(padding="VALID", explicit_paddings=0),
        ValueError,
        "explicit_paddings must be empty unless padding is 'EXPLICIT', got 0",
    ),
    (dict(padding="EXPLICIT"), ValueError, f"{UNFIT}()"),
    (dict(padding="EXPLICIT", explicit_paddings=PADS[:4]), ValueError, f"{UNFIT}(0, 0, 1, 1)"),
    (dict(padding="EXPLICIT", explicit_paddings=1), ValueError, f"{UNFIT}1"),
    (
        dict(padding="EXPLICIT", explicit_paddings=(0, 0, 1.0, 1, 1, 1, 0, 0)),
        TypeError,
        "explicit_paddings must be a sequence of 8 integers",
    ),
    (
        dict(padding="EXPLICIT", explicit_paddings=(0, 0, 1, -1, 0, 0, 0, 0)),
        ValueError,
        "explicit_paddings must not be negative, got (0, 0, 1, -1",
    ),
    (
        dict(padding="EXPLICIT", explicit_paddings=PADS, data_format="NCHW"),
        ValueError,
        "explicit_paddings must be 0 for batch and channels, got (0, 0, 1, 1, 1, 1, 0, 0) with data_format 'NCHW'",
    ),
    (
        dict(padding="EXPLICIT", explicit_paddings=(0, 0, 2**62, 0, 0, 0, 0, 0)),
        ValueError,
        "padded input and dilated filter must have less than 2**62 rows",
    ),
    (dict(num_threads=0), ValueError, "num_threads must be an integer of at least 1, got 0"),
    (dict(num_threads=1.0), TypeError, "num_threads must be an integer of at least 1, got 1.0"),
    (dict(num_threads=True), TypeError, "num_threads must be an integer of at least 1, got True"),
]

SHAPES = [
    (lambda: conv(x=(5, 5, 3)), "input must have 4 dimensions (NHWC), got shape (5, 5, 3)"),
    (lambda: conv(x=()), "input must have 4 dimensions (NHWC), got shape ()"),
    (
        lambda: conv(w=(3, 3, 3)),
        "filter must have 4 dimensions (filter rows, filter columns, input channels, output channels or multiplier)",
    ),
    (lambda: conv(w=(3, 3, 0, 4)), "filter must have at least 1 input channel, got shape (3, 3, 0, 4)"),
    (lambda: conv(w=(0, 3, 3, 4)), "filter must have at least 1 row and 1 column, got shape (0, 3, 3, 4)"),
    (
        lambda: conv(w=(3, 3, 2, 4)),
        "input must have a positive multiple of the 2 input channels of filter (3, 3, 2, 4), got 3 channels in (1",
    ),
    (
        lambda: conv(x=(1, 4, 5, 5), w=(3, 3, 2, 3), data_format="NCHW"),
        "filter must have a multiple of 2 output channels, got 3 in (3, 3, 2, 3): 4 input channels / 2 of",
    ),
    (
        lambda: conv(x=(1, 3, 3, 3), w=(5, 1, 3, 4), padding="VALID"),
        "the filter must not be larger than the padded input, got output rows "
        "(3 input + 0 + 0 padding - 5 dilated filter + 1 stride) / 1 = -1, which is negative",
    ),
    (
        lambda: conv(dilations=(1, 3), padding="VALID", strides=(1, 1)),
        "got output columns (5 input + 0 + 0 padding - 7 dilated filter + 1 stride) / 1 = -1, which is negative",
    ),
    (
        lambda: conv(padding="EXPLICIT", explicit_paddings=(0, 0, 2**40, 0, 2**40, 0, 0, 0)),
        "the output must have at most 2**63 - 1 elements, got shape (1, 1099511627779, 1099511627779, 4)",
    ),
    (lambda: dx(sizes=5), "input_sizes must be a sequence of 4 integers, got the single integer 5"),
    (lambda: dx(sizes=()), "input_sizes must have 4 or 2 elements, got 0: ()"),
    (lambda: dx(sizes=(5, 5, 3)), "input_sizes must have 4 or 2 elements, got 3: (5, 5, 3)"),
    (lambda: dx(sizes=(1, -5, 5, 3)), "input_sizes must not be negative, got (1, -5, 5, 3)"),
    (lambda: dx(sizes=(-5, 5)), "input_sizes must not be negative, got (1, -5, 5, 3)"),
    (
        lambda: dx(sizes=(2**31, 2**31, 2, 3)),
        "input_sizes must have at most 2**63 - 1 elements, got shape (2147483648, 2147483648, 2, 3)",
    ),
    (lambda: dx(sizes=(2**64, 5, 5, 0)), "input_sizes must have at most 2**63 - 1 elements"),
    (lambda: dx(sizes=(5, 5), dy=(5, 5, 4)), "out_backprop must have 4 dimensions (NHWC), got shape (5, 5, 4)"),
    (lambda: dx(sizes=(5, 5), w=(3, 3)), "filter must have 4 dimensions (filter rows, filter columns,"),
    (lambda: dx(w=(3, 3, 0, 4)), "filter must have at least 1 input channel, got shape (3, 3, 0, 4)"),
    (
        lambda: dx(sizes=(1, 5, 5, 0)),
        "input_sizes must have a positive multiple of the 3 input channels of filter (3, 3, 3, 4), got 0 channels",
    ),
    (lambda: dx(sizes=(1, 5, 5, 4)), "input_sizes must have a positive multiple of the 3 input channels of filter"),
    (lambda: dx(sizes=(1, 5, 5, 9)), "filter must have a multiple of 3 output channels, got 4 in (3, 3, 3, 4)"),
    (
        lambda: dx(dy=(2, 4, 3, 5), strides=(2, 1), padding="VALID"),
        "out_backprop must have shape (1, 2, 3, 4) (NHWC), got (2, 4, 3, 5): batch 1 of input_sizes, "
        "output rows (5 input + 0 + 0 padding - 3 dilated filter + 2 stride) / 2 = 2, "
        "output columns (5 input + 0 + 0 padding - 3 dilated filter + 1 stride) / 1 = 3, "
        "4 output channels of filter (3, 3, 3, 4)",
    ),
    (
        lambda: dx(sizes=(1, 3, 5, 5), dy=(1, 5, 5, 4), strides=2, data_format="NCHW"),
        "out_backprop must have shape (1, 4, 3, 3) (NCHW), got (1, 5, 5, 4): batch 1 of input_sizes, "
        "output rows (5 input + 2 stride - 1) / 2 = 3, output columns (5 input + 2 stride - 1) / 2 = 3, 4",
    ),
    (
        lambda: raw_ops.Conv2DBackpropInputV2(
            input=f4(1, 5, 5, 4), filter=f4(3, 3, 3, 4), out_backprop=f4(1, 5, 5, 4), strides=1, padding="SAME"
        ),
        "input must have a positive multiple of the 3 input channels of filter (3, 3, 3, 4), got 4 channels",
    ),
    (lambda: dw(sizes=(3, 3)), "filter_sizes must have 4 elements, got 2: (3, 3)"),
    (lambda: dw(sizes=3), "filter_sizes must be a sequence of 4 integers, got the single integer 3"),
    (lambda: dw(sizes=(3, -3, 3, 4)), "filter_sizes must not be negative, got (3, -3, 3, 4)"),
    (lambda: dw(sizes=(2**62, 1, 3, 4)), "filter_sizes must have at most 2**63 - 1 elements"),
    (lambda: dw(sizes=(2**61, 1, 3, 1), dilations=2), "padded input and dilated filter must have less than 2**62 rows"),
    (lambda: dw(sizes=(3, 3, 0, 4)), "filter_sizes must have at least 1 input channel, got shape (3, 3, 0, 4)"),
    (
        lambda: dw(sizes=(3, 3, 2, 4)),
        "input must have a positive multiple of the 2 input channels of filter_sizes (3, 3, 2, 4), got 3",
    ),
    (
        lambda: dw(x=(1, 5, 5, 0)),
        "input must have a positive multiple of the 3 input channels of filter_sizes (3, 3, 3, 4), got 0",
    ),
    (lambda: dw(x=(1, 5, 5, 6), sizes=(3, 3, 3, 3)), "filter_sizes must have a multiple of 2 output channels, got 3"),
    (lambda: dw(x=(5, 5, 3)), "input must have 4 dimensions (NHWC), got shape (5, 5, 3)"),
    (lambda: dw(dy=(1, 5, 5, 4, 1)), "out_backprop must have 4 dimensions (NHWC), got shape (1, 5, 5, 4, 1)"),
    (
        lambda: dw(dy=(1, 5, 5, 5)),
        "out_backprop must have shape (1, 5, 5, 4) (NHWC), got (1, 5, 5, 5): batch 1 of input, ",
    ),
    (lambda: dw(dy=(0, 5, 5, 4)), "out_backprop must have shape (1, 5, 5, 4) (NHWC), got (0, 5, 5, 4)"),
    (
        lambda: deep(w=(3, 3, 2, 2)),
        "filter must have the 3 channels of input (1, 5, 5, 3) as its third dimension, got 2 in (3, 3, 2, 2)",
    ),
    (lambda: deep_dx(sizes=(5, 5)), "input_sizes must have 4 elements, got 2: (5, 5)"),
    (
        lambda: deep_dx(sizes=(1, 5, 5, 2)),
        "filter must have the 2 channels of input_sizes (1, 5, 5, 2) as its third dimension, got 3",
    ),
    (lambda: deep_dx(dy=(1, 5, 5, 3)), "out_backprop must have shape (1, 5, 5, 6) (NHWC), got (1, 5, 5, 3)"),
    (lambda: deep_dx(padding="VALID", dilations=2, dy=(1, 3, 3, 6)), "out_backprop must have shape (1, 1, 1, 6)"),
    (
        lambda: deep_dw(sizes=(3, 3, 1, 2)),
        "filter_sizes must have the 3 channels of input (1, 5, 5, 3) as its third dimension, got 1",
    ),
    (lambda: deep_dw(sizes=(3, 3, 3)), "filter_sizes must have 4 elements, got 3: (3, 3, 3)"),
    (lambda: deep_dw(dy=(1, 5, 5, 3)), "6 output channels of filter_sizes (3, 3, 3, 2)"),
]

ARRAYS = [
    (lambda: dx(sizes=(1, 5.0, 5, 3)), TypeError, "input_sizes must be a sequence of integers, got (1, 5.0, 5, 3)"),
    (lambda: dx(sizes=None), TypeError, "input_sizes must be a sequence of integers, got None"),
    (
        lambda: dx(sizes=np.ones(4)),
        TypeError,
        "input_sizes must be a sequence of integers, got array([1., 1., 1., 1.])",
    ),
    (lambda: dw(sizes=(3, 3, True, 4)), TypeError, "filter_sizes must be a sequence of integers, got (3, 3, True, 4)"),
    (lambda: dw(sizes="3334"), TypeError, "filter_sizes must be a sequence of integers, got '3334'"),
    (lambda: conv(x=np.ones((1, 5, 5, 3), int)), TypeError, f"input {DTYPES}int64"),
    (lambda: conv(w=np.ones((3, 3, 3, 4), "c8")), TypeError, f"filter {DTYPES}complex64"),
    (lambda: conv(x=np.ones((1, 5, 5, 3), bool)), TypeError, f"input {DTYPES}bool"),
    (lambda: conv(x=np.ones((1, 5, 5, 3), object)), TypeError, f"input {DTYPES}object"),
    (lambda: conv(x=np.ones((1, 5, 5, 3), "g")), TypeError, f"input {DTYPES}float"),
    (lambda: conv(x=np.ones((1, 5, 5, 3), ">i4")), TypeError, f"input {DTYPES}byte-swapped int32"),
    (lambda: dx(dy=np.ones((1, 5, 5, 4), int)), TypeError, f"out_backprop {DTYPES}int64"),
    (lambda: dw(x=np.ones((1, 5, 5, 3), "u1"), dy=[[]]), TypeError, f"input {DTYPES}uint8"),
    (
        lambda: conv(x=np.ones((1, 5, 5, 3), np.float64)),
        TypeError,
        "input and filter must have the same dtype, got input of float64 and filter of float32",
    ),
    (
        lambda: dx(w=np.ones((3, 3, 3, 4), HALF)),
        TypeError,
        "filter and out_backprop must have the same dtype, got filter of bfloat16 and",
    ),
    (
        lambda: dw(dy=np.ones((1, 5, 5, 4), "f2")),
        TypeError,
        "input and out_backprop must have the same dtype, got input of float32 and",
    ),
    (
        lambda: conv(x=[[1, 2], [3]]),
        ValueError,
        "input must be an array or evenly nested sequences of numbers: setting an array element",
    ),
    (lambda: conv(x=[["a"]]), TypeError, "input must be an array of float32 numbers, got list of str"),
    (lambda: conv(x=[[1j]]), TypeError, "input must be an array of float32 numbers, got list of complex128"),
    (lambda: conv(x=[[True]]), TypeError, "input must be an array of float32 numbers, got list of bool"),
    (lambda: conv(x=None), TypeError, "input must be an array of float32 numbers, got NoneType of object"),
    (lambda: conv(x=object()), TypeError, "input must be an array of float32 numbers, got object of object"),
    (lambda: conv(x="image"), TypeError, "input must be an array of float32 numbers, got str of str"),
    (
        lambda: conv(x=Refuses()),
        TypeError,
        "input must be an array, got Refuses, which cannot be read: it lies on another device",
    ),
]


def overlapping(part):
    x = f4(1, 5, 5, 4)
    return lambda: gradops.conv2d(
        x, f4(1, 1, 4, 4), 1, "SAME", out=x if part == "all" else x.ravel()[:100].reshape(x.shape)
    )


def read_only(x):
    x.flags.writeable = False
    return x


def unaligned(*shape):
    return np.zeros(4 * np.prod(shape) + 1, np.uint8)[1:].view(np.float32).reshape(shape)


OUTS = [
    (lambda: conv(out=[[[[0.0]]]]), TypeError, "out must be a numpy.ndarray, got list"),
    (
        lambda: conv(out=np.zeros((1, 5, 5, 4))),
        TypeError,
        "out must have the dtype of the inputs, float32, got float64",
    ),
    (
        lambda: conv(out=np.zeros((1, 5, 5, 4), ">f4")),
        TypeError,
        "out must have the dtype of the inputs, float32, got byte-swapped float32",
    ),
    (
        lambda: conv(out=f4(1, 5, 5, 5)),
        ValueError,
        "out must have the shape of the result, (1, 5, 5, 4), got (1, 5, 5, 5)",
    ),
    (lambda: conv(out=f4(100)), ValueError, "out must have the shape of the result, (1, 5, 5, 4), got (100,)"),
    (
        lambda: dx(out=f4(1, 5, 5, 4)),
        ValueError,
        "out must have the shape of the result, (1, 5, 5, 3), got (1, 5, 5, 4)",
    ),
    (
        lambda: dw(out=f4(1, 5, 5, 4)),
        ValueError,
        "out must have the shape of the result, (3, 3, 3, 4), got (1, 5, 5, 4)",
    ),
    (
        lambda: conv(out=f4(1, 5, 4, 5).swapaxes(2, 3)),
        ValueError,
        "out must be C-contiguous, got an array of shape (1, 5, 5, 4) with strides",
    ),
    (lambda: conv(out=np.asfortranarray(f4(1, 5, 5, 4))), ValueError, "out must be C-contiguous"),
    (
        lambda: conv(out=unaligned(1, 5, 5, 4)),
        ValueError,
        "out must be aligned to the 4 bytes of float32, got an unaligned array",
    ),
    (lambda: conv(out=read_only(f4(1, 5, 5, 4))), ValueError, "out must be writeable, got a read-only array"),
    (overlapping("all"), ValueError, "out must not overlap an input, got an array that shares memory with input"),
    (overlapping("part"), ValueError, "out must not overlap an input, got an array that shares memory with input"),
]


def message_of(case):
    return next(part for part in case if isinstance(part, str))


@pytest.mark.parametrize("call", [conv, dx, dw, deep, deep_dx, deep_dw], ids=lambda call: call.__name__)
@pytest.mark.parametrize(("attributes", "error", "message"), ATTRIBUTES, ids=map(message_of, ATTRIBUTES))
def test_bad_attributes_are_named(call, attributes, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call(**attributes)


@pytest.mark.parametrize(("call", "message"), SHAPES, ids=map(message_of, SHAPES))
def test_shapes_that_do_not_fit_are_explained(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(("call", "error", "message"), ARRAYS, ids=map(message_of, ARRAYS))
def test_what_is_no_array_or_of_a_wrong_dtype_is_named(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


@pytest.mark.parametrize(("call", "error", "message"), OUTS, ids=map(message_of, OUTS))
def test_unfit_out_is_refused(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_a_float_is_refused_even_when_an_equal_call_is_cached():
    assert conv(strides=(1, 1)).shape == (1, 5, 5, 4)
    for strides in ((1, 1.0), (True, 1), 1.0):
        with pytest.raises(TypeError, match="strides must be"):
            conv(strides=strides)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda out: conv(strides=0, out=out),
        lambda out: conv(x=(2, 5, 5, 3), out=out),
        lambda out: conv(num_threads=0, out=out),
        lambda out: conv(x=np.ones((1, 5, 5, 3)), w=np.ones((3, 3, 3, 4)), out=out),
        lambda out: dx(out=out),
        lambda out: dw(out=out),
        lambda out: conv(out=read_only(out)),
    ],
)
def test_out_is_untouched_when_a_call_is_refused(wrong):
    out = np.full((1, 5, 5, 4), 7, np.float32)
    with pytest.raises((TypeError, ValueError)):
        wrong(out)
    assert (out == 7).all()


REFUSED = [
    lambda: dx(sizes=(1, 2**20, 2**20, 3)),
    lambda: dx(sizes=(0, 2**30, 2**30, 3), dy=(0, 2**30, 2**30, 4), out=f4(0)),
    lambda: dw(sizes=(2**20, 2**20, 3, 2**10)),
    lambda: conv(x=huge(1, 2**20, 2**20, 3), w=(3, 3, 4, 4)),
    lambda: conv(x=huge(1, 2**20, 2**20, 3), out=f4(1)),
    lambda: conv(padding="EXPLICIT", explicit_paddings=(0, 0, 2**20, 0, 2**20, 0, 0, 0), num_threads=0),
]


@pytest.mark.parametrize("call", REFUSED)
def test_nothing_large_is_allocated_for_a_refused_call(call):
    tracemalloc.start()
    try:
        with pytest.raises((TypeError, ValueError)):
            call()
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


LONG = 2**42
FAR = {"dilations": (2**31 - 1, 1), "padding": "VALID"}
TOO_LARGE = [
    lambda: conv(x=huge(1, 2**20, 2**20, 3)),
    lambda: conv(padding="EXPLICIT", explicit_paddings=(0, 0, 2**24, 0, 2**24, 0, 0, 0)),
    lambda: dx(sizes=(1, 2**24, 2**24, 3), strides=2**23, dy=(1, 2, 2, 4)),
    lambda: dx(sizes=(1, 2**31, 2**31 - 1, 1), w=(1, 1, 1, 1), strides=2**30, dy=(1, 2, 2, 1)),
    lambda: dw(sizes=(2**29, 2**29, 3, 4)),
    lambda: deep(padding="EXPLICIT", explicit_paddings=(0, 0, 2**24, 0, 2**24, 0, 0, 0)),
    lambda: gradops.depthwise_conv2d_native(huge(1, LONG, 1, 1), f4(2, 1, 1, 1), 1, **FAR),
    lambda: gradops.depthwise_conv2d_native_backprop_filter(
        huge(1, LONG, 1, 1), (2, 1, 1, 1), huge(1, LONG - 2**31 + 1, 1, 1), 1, **FAR
    ),
]


@pytest.mark.parametrize("call", TOO_LARGE)
def test_more_memory_than_there_is_is_a_memory_error(call):
    with pytest.raises(MemoryError):
        call()


@pytest.mark.parametrize("call", [conv, deep])
def test_attributes_may_be_written_in_every_accepted_way(call):
    expected = call(
        strides=(1, 2, 1, 1), dilations=(1, 1, 2, 1), padding="EXPLICIT", explicit_paddings=(0, 0, 1, 2, 3, 0, 0, 0)
    )
    pairs = [[0, 0], [1, 2], [3, 0], [0, 0]]
    for strides in ((2, 1), [2, 1], np.array([2, 1]), np.array([1, 2, 1, 1], np.int8)):
        for dilations in ((1, 2), [1, 1, 2, 1]):
            for padding in (pairs, tuple(map(tuple, pairs)), np.array(pairs)):
                found = call(strides=strides, dilations=dilations, padding=padding)
                np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        call(strides=np.int64(2), padding=np.str_("SAME")), call(strides=(2, 2), padding="SAME")
    )
