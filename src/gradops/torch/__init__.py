"""gradops for PyTorch: an override that makes convolutions train faster on the CPU, and functions on tensors.

`enable` has `aten::convolution_backward` take what gradops computes faster than PyTorch; no model changes. `conv2d`,
`depthwise_conv2d` and `fractional_avg_pool2d` are computed by gradops in any case. Needs PyTorch of at least 2.9.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError(
        "gradops.torch needs PyTorch of at least 2.9, which is not installed: pip install 'gradops[torch]'"
    )

import torch

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9):
    raise ImportError(f"gradops.torch needs PyTorch of at least 2.9, found {torch.__version__}")

from ._functions import conv2d, depthwise_conv2d, fractional_avg_pool2d
from ._override import Stats, disable, enable, enabled, stats

__all__ = [
    "Stats",
    "conv2d",
    "depthwise_conv2d",
    "disable",
    "enable",
    "enabled",
    "fractional_avg_pool2d",
    "stats",
]
