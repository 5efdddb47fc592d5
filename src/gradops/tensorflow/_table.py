"""Where TensorFlow wins: the gradients that are passed on to it, from measurements of single layers.

TensorFlow 2.21 beside gradops on 2 threads of a Zen 4. In 609 gradients of the layers of fourteen networks its kernels are slower, by up to 200
times, but for those of the inputs of 1x1 convolutions of float32 with a large filter, or with next to nothing to sum. (Three more, by themselves,
took 0.92 to 0.99 of the time: two of strided 1x1 filters, one of a strided 2x2 input. They are not passed on.) Times over those of gradops
inside TensorFlow:

=================  ========================  ====================
inputs to outputs  pixels                    time over gradops'
=================  ========================  ====================
3072 to 768        8 images of 7x7           0.78
1280 to 640        8 of 7x7                  1.18
1024 to 1024       8 of 7x7                  1.11
1024 to 1024       8 of 14x14                0.98
1024 to 1024       2 of 65x65                0.93
728 to 1024        2 of 65x65                0.97
1024 to 1536       2 of 65x65                0.87
1536 to 2048       2 of 65x65                0.89
1024 to 256        8 of 14x14                1.06
640 to 1280        8 of 14x14                1.17
512 to 2048        8 of 7x7                  1.38
64 to 2            1 of 388x388              0.76
64 to 3            2 of 388x388              0.64
=================  ========================  ====================
"""

from __future__ import annotations

from math import prod

from gradops._arrays import STORAGE
from gradops._problem import Plan

LARGE, PIXELS = 700_000, 1500
"""Elements of a filter and pixels from which on passing on pays, unless there are at least twice as many outputs as inputs. With three times as
many inputs as outputs, few pixels will do."""

FEW, MANY = 4, 1_000_000
"""Outputs below which there is too little to sum for a product of matrices, and elements of a gradient from which on that costs more than passing on."""


def tensorflow_wins(plan: Plan, storage: int) -> bool:
    """Whether TensorFlow computes a gradient in less time than gradops."""
    if plan.op != "conv2d_backprop_input" or storage != STORAGE["float32"] or plan.data_format != "NHWC":
        return False
    if plan.groups > 1 or any(axis.taps > 1 or axis.stride > 1 for axis in (plan.rows, plan.cols)):
        return False
    inputs, outputs = plan.filter_shape[2:]
    if outputs < FEW:
        return prod(plan.result_shape) >= MANY
    enough = prod(plan.result_shape[:3]) >= PIXELS or inputs >= 3 * outputs
    return enough and inputs * outputs >= LARGE and outputs < 2 * inputs
