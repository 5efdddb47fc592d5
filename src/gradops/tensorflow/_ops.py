"""The ops of TensorFlow that gradops computes, by TensorFlow's names and by oneDNN's."""

from __future__ import annotations

from typing import NamedTuple

_FLOATS = ("float16", "bfloat16", "float32", "float64")
POOL = "FractionalAvgPoolGrad"


class Op(NamedTuple):
    """One op: its function in gradops, which input holds sizes, which inputs the kernel reads, for which types there is one."""

    function: str
    sizes: int
    operands: tuple[int, ...]
    dtypes: tuple[str, ...] = _FLOATS


OPS = {
    "Conv2DBackpropInput": Op("conv2d_backprop_input", 0, (2, 1)),
    "Conv2DBackpropFilter": Op("conv2d_backprop_filter", 1, (0, 2)),
    "DepthwiseConv2dNativeBackpropInput": Op("depthwise_conv2d_native_backprop_input", 0, (2, 1)),
    "DepthwiseConv2dNativeBackpropFilter": Op("depthwise_conv2d_native_backprop_filter", 1, (0, 2)),
    POOL: Op("fractional_avg_pool_grad", 0, (1,), ("float32", "float64", "int32", "int64")),
}

RENAMED = "_MklNative"
"""How oneDNN's names of the ops begin, in graphs and of some ops in eager mode."""

REASONS = ("disabled", "slower")
"""Why calls are passed on to TensorFlow: after `disable`, and where it wins (`_table`)."""

COUNTERS = (*REASONS, *OPS)
"""What kernels count, by its place there."""

FILTER = "Conv2DBackpropFilter"
FUSED = "Conv2DBackpropFilterWithBias"
"""What oneDNN makes of the gradients of a filter and of a bias in a graph. TensorFlow then sums the bias, which it does well for float32 only."""
