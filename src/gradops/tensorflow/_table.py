"""Where TensorFlow wins: the gradients that are passed on to it, from measurements of single layers.

TensorFlow 2.21 beside gradops on 2 threads of a Zen 5. Of some 300 gradients of the layers of fourteen networks in float32, channels last, its
kernels take less time for four: the inputs of three 1x1 convolutions of 8450 pixels, and of a 2x2 one with stride 2 (0.89). Times over those of
gradops, 1x1:

=================  ========================  ====================
inputs to outputs  pixels                    time over gradops'
=================  ========================  ====================
728 to 728         2 images of 65x65         0.88
1536 to 2048       2 of 65x65                0.89
1024 to 1536       2 of 65x65                0.98
728 to 1024        2 of 65x65                1.02
1280 to 256        2 of 65x65                1.02
1024 to 1024       2 of 65x65                1.06
1536 to 1536       2 of 65x65                1.07
2048 to 512        8 of 7x7                  2.16
3072 to 768        8 of 7x7                  2.14
64 to 2            1 of 388x388              3.69
=================  ========================  ====================

What is passed on is what such measurements on a Zen 4 agree about: large filters with more outputs than inputs, and many pixels.
"""

from __future__ import annotations

from math import prod

from gradops._arrays import STORAGE
from gradops._problem import Plan

LARGE, PIXELS = 1_500_000, 1500
"""Elements of a filter and pixels from which on passing on pays where there are more outputs than inputs."""


def tensorflow_wins(plan: Plan, storage: int) -> bool:
    """Whether TensorFlow computes a gradient in less time than gradops."""
    if plan.op != "conv2d_backprop_input" or storage != STORAGE["float32"] or plan.data_format != "NHWC":
        return False
    if plan.groups > 1 or any(axis.taps > 1 or axis.stride > 1 for axis in (plan.rows, plan.cols)):
        return False
    inputs, outputs = plan.filter_shape[2:]
    return inputs < outputs and inputs * outputs >= LARGE and prod(plan.result_shape[:3]) >= PIXELS
