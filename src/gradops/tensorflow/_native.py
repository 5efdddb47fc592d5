"""TensorFlow's own ops, for what is passed on to it."""

from __future__ import annotations

from typing import TypeAlias

from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager import context as eager

from gradops._values import LAYOUTS

from ._nodes import Input, Node

Native: TypeAlias = tuple[object, bytes, tuple[tuple[bytes, bytes], ...], tuple[int, ...], int]


def native_op(node: Node, inputs: list[Input]) -> Native:
    """The op of a node, for its built-in kernel."""
    attr = dict(node.attr)
    if "Depthwise" in node.name:
        attr |= _explicit(node, inputs)
    else:
        attr["use_cudnn_on_gpu"] = attr_value_pb2.AttrValue(b=False)
    return _op(node.name, attr, (0, 1, 2), 0)


def bias_gradient(node: Node) -> Native:
    """The gradient of the bias, from out_backprop."""
    return _op("BiasAddGrad", {word: node.attr[word] for word in ("T", "data_format")}, (2,), 1)


def _op(name: str, attr: dict[str, attr_value_pb2.AttrValue], inputs: tuple[int, ...], output: int) -> Native:
    """An op as `tensorflow_kernels.connect` describes it."""
    eager.context().ensure_initialized()
    pairs = tuple((word.encode(), value.SerializeToString()) for word, value in attr.items())
    return eager.context()._handle, name.encode(), pairs, inputs, output


def _explicit(node: Node, inputs: list[Input]) -> dict[str, attr_value_pb2.AttrValue]:
    """The padding of a depthwise convolution under its other name. TensorFlow ignores dilations here."""
    strides, padding, _, data_format, _ = node.given
    layout = LAYOUTS[data_format]
    pads = [0] * 8
    image, filter = (given.shape if given.values is None else given.values for given in (inputs[0], inputs[1]))
    if padding == "SAME" and len(image) == len(filter) == len(strides) == 4:
        for at, taps in zip((layout.h, layout.w), filter, strict=False):
            out = -(-image[at] // strides[at])
            total = max(0, (out - 1) * strides[at] + taps - image[at])
            pads[2 * at : 2 * at + 2] = total // 2, total - total // 2
    numbers = attr_value_pb2.AttrValue.ListValue(i=pads)
    return {
        "padding": attr_value_pb2.AttrValue(s=b"EXPLICIT"),
        "explicit_paddings": attr_value_pb2.AttrValue(list=numbers),
    }
