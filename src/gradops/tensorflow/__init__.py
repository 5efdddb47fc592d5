"""Gradients of convolutions and of fractional pooling inside TensorFlow: `enable` and no line of the model changes.

`enable` registers kernels with TensorFlow's runtime, over its C API, that come before the built-in ones for `Conv2DBackpropInput`,
`Conv2DBackpropFilter`, `DepthwiseConv2dNativeBackpropInput`, `DepthwiseConv2dNativeBackpropFilter` and `FractionalAvgPoolGrad` on the CPU:
in eager mode, in `tf.function`, and where oneDNN has renamed the ops. What is compiled by XLA (`jit_compile=True`) knows no kernels.

A registered kernel stays registered. To have the built-in one compute all the same, after `disable` or where it wins, the kernel calls it by a door that TensorFlow leaves open: the built-in kernels look neither at the attribute ``use_cudnn_on_gpu`` of dense
convolutions nor at which name the padding of a depthwise one has, so gradops' kernels are registered for ``use_cudnn_on_gpu=True`` and
for the paddings ``"SAME"`` and ``"VALID"``, and pass a call on with ``False`` and ``"EXPLICIT"``.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("tensorflow") is None:
    raise ImportError("gradops.tensorflow needs TensorFlow: pip install 'gradops[tensorflow]'")

import tensorflow as tf

if tuple(int(part) for part in tf.__version__.split(".")[:2]) < (2, 21):
    raise ImportError(f"gradops.tensorflow needs TensorFlow 2.21 or newer, got {tf.__version__}")

from ._override import disable, enable, stats

__all__ = ["disable", "enable", "stats"]
