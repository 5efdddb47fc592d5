"""TensorFlow's names: signatures, and that they give what the public functions give."""

import inspect

import numpy as np
import pytest

import gradops
from gradops import raw_ops

CONV = {
    "use_cudnn_on_gpu": True,
    "explicit_paddings": (),
    "data_format": "NHWC",
    "dilations": (1, 1, 1, 1),
    "name": None,
}
DEPTHWISE = {name: default for name, default in CONV.items() if name != "use_cudnn_on_gpu"}
POOL = {"pseudo_random": False, "overlapping": False, "deterministic": False, "seed": 0, "seed2": 0, "name": None}
SIGNATURES = {
    "Conv2D": ("input filter strides padding", CONV),
    "Conv2DBackpropInput": ("input_sizes filter out_backprop strides padding", CONV),
    "Conv2DBackpropInputV2": ("input filter out_backprop strides padding", CONV),
    "Conv2DBackpropFilter": ("input filter_sizes out_backprop strides padding", CONV),
    "Conv2DBackpropFilterV2": ("input filter out_backprop strides padding", CONV),
    "DepthwiseConv2dNative": ("input filter strides padding", DEPTHWISE),
    "DepthwiseConv2dNativeBackpropInput": ("input_sizes filter out_backprop strides padding", DEPTHWISE),
    "DepthwiseConv2dNativeBackpropFilter": ("input filter_sizes out_backprop strides padding", DEPTHWISE),
    "FractionalAvgPool": ("value pooling_ratio", POOL),
    "FractionalAvgPoolGrad": (
        "orig_input_tensor_shape out_backprop row_pooling_sequence col_pooling_sequence",
        {"overlapping": False, "name": None},
    ),
}


def test_every_op_is_here():
    assert sorted(SIGNATURES) == raw_ops.__all__


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_is_tensorflows(name):
    required, defaults = SIGNATURES[name]
    parameters = inspect.signature(getattr(raw_ops, name)).parameters.values()
    assert {p.kind for p in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    assert [p.name for p in parameters] == [*required.split(), *defaults]
    assert [p.default for p in parameters] == [*[inspect.Parameter.empty] * len(required.split()), *defaults.values()]


rng = np.random.default_rng(0)
IMAGE = rng.standard_normal((2, 4, 7, 6)).astype(np.float32)
DENSE, DENSE_DY = (
    rng.standard_normal((3, 2, 2, 4)).astype(np.float32),
    rng.standard_normal((2, 4, 4, 8)).astype(np.float32),
)
DEPTH, DEPTH_DY = (
    rng.standard_normal((3, 2, 4, 2)).astype(np.float32),
    rng.standard_normal((2, 8, 4, 8)).astype(np.float32),
)
ATTRIBUTES = {
    "strides": [1, 1, 2, 1],
    "padding": "EXPLICIT",
    "explicit_paddings": [0, 0, 0, 0, 2, 0, 4, 0],
    "data_format": "NCHW",
    "dilations": [1, 1, 1, 2],
}

SAME_AS = [
    ("Conv2D", gradops.conv2d, {"input": IMAGE, "filter": DENSE}),
    (
        "Conv2DBackpropInput",
        gradops.conv2d_backprop_input,
        {"input_sizes": IMAGE.shape, "filter": DENSE, "out_backprop": DENSE_DY},
    ),
    (
        "Conv2DBackpropFilter",
        gradops.conv2d_backprop_filter,
        {"input": IMAGE, "filter_sizes": DENSE.shape, "out_backprop": DENSE_DY},
    ),
    ("DepthwiseConv2dNative", gradops.depthwise_conv2d_native, {"input": IMAGE, "filter": DEPTH}),
    (
        "DepthwiseConv2dNativeBackpropInput",
        gradops.depthwise_conv2d_native_backprop_input,
        {"input_sizes": IMAGE.shape, "filter": DEPTH, "out_backprop": DEPTH_DY},
    ),
    (
        "DepthwiseConv2dNativeBackpropFilter",
        gradops.depthwise_conv2d_native_backprop_filter,
        {"input": IMAGE, "filter_sizes": DEPTH.shape, "out_backprop": DEPTH_DY},
    ),
]


@pytest.mark.parametrize(
    ("name", "function", "tensors"), SAME_AS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_raw_op_gives_what_the_function_gives(name, function, tensors):
    found = getattr(raw_ops, name)(**tensors, **ATTRIBUTES, name="here")
    np.testing.assert_array_equal(found, function(**tensors, **ATTRIBUTES))
    assert found.any()


class OnlyShape:
    def __init__(self, shape):
        self.shape = shape


@pytest.mark.parametrize(
    "wrap", [OnlyShape, lambda shape: np.full(shape, np.nan), lambda shape: np.zeros(shape).tolist()]
)
def test_second_versions_use_the_shape_only(wrap):
    dx = raw_ops.Conv2DBackpropInputV2(input=wrap(IMAGE.shape), filter=DENSE, out_backprop=DENSE_DY, **ATTRIBUTES)
    dw = raw_ops.Conv2DBackpropFilterV2(input=IMAGE, filter=wrap(DENSE.shape), out_backprop=DENSE_DY, **ATTRIBUTES)
    expected = {"filter": DENSE, "out_backprop": DENSE_DY, **ATTRIBUTES}
    np.testing.assert_array_equal(dx, raw_ops.Conv2DBackpropInput(input_sizes=IMAGE.shape, **expected))
    expected = {"input": IMAGE, "out_backprop": DENSE_DY, **ATTRIBUTES}
    np.testing.assert_array_equal(dw, raw_ops.Conv2DBackpropFilter(filter_sizes=DENSE.shape, **expected))


@pytest.mark.parametrize("shape", [(7, 6), (2, 4, 7), (), (1, 2, 4, 7, 6)])
def test_second_versions_have_no_short_form(shape):
    with pytest.raises(ValueError, match=r"input must have 4 dimensions \(NCHW\), got shape"):
        raw_ops.Conv2DBackpropInputV2(input=np.zeros(shape), filter=DENSE, out_backprop=DENSE_DY, **ATTRIBUTES)
    with pytest.raises(ValueError, match="filter must have 4 dimensions"):
        raw_ops.Conv2DBackpropFilterV2(input=IMAGE, filter=np.zeros(shape), out_backprop=DENSE_DY, **ATTRIBUTES)


def test_pooling_gives_what_the_functions_give():
    value = np.moveaxis(IMAGE, 1, 3)
    attributes = {"pooling_ratio": [1.0, 1.4, 1.7, 1.0], "pseudo_random": True, "overlapping": True}
    seeds = {"deterministic": True, "seed": 3, "seed2": 5}
    raw = raw_ops.FractionalAvgPool(value=value, **attributes, **seeds)
    pooled = gradops.fractional_avg_pool(value, **attributes, **seeds)
    assert raw._fields == ("output", "row_pooling_sequence", "col_pooling_sequence")
    for found, expected in zip(raw, pooled, strict=True):
        np.testing.assert_array_equal(found, expected)
    given = {"out_backprop": raw.output, "overlapping": True}
    sequences = {name: getattr(raw, name) for name in raw._fields[1:]}
    np.testing.assert_array_equal(
        raw_ops.FractionalAvgPoolGrad(orig_input_tensor_shape=value.shape, **given, **sequences),
        gradops.fractional_avg_pool_grad(value.shape, **given, **sequences),
    )
