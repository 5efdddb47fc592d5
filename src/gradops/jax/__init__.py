"""JAX: 2-d convolutions and fractional average pooling with all their gradients, computed by gradops on the CPU.

`conv_general_dilated` is `jax.lax.conv_general_dilated`, argument for argument. What gradops computes becomes a custom call of XLA, without
Python in its path, under ``jit``, ``grad`` (of any order and mode), ``vmap``, ``pmap`` and ``shard_map``. Everything else, and every other
platform, gets the plain operation. `enable` puts it in the place of JAX's own, where layers of Flax and Keras find it.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("jax") is None:
    raise ImportError("gradops.jax needs JAX, which is not installed: pip install gradops[jax]")

import jax

if jax.__version_info__ < (0, 10):
    raise ImportError(f"gradops.jax needs JAX 0.10 or newer, got {jax.__version__}")

from ._functions import conv_general_dilated, depthwise_conv2d
from ._override import disable, enable, enabled
from ._pooling import FractionalAvgPool, fractional_avg_pool
from ._stats import stats

__all__ = [
    "FractionalAvgPool",
    "conv_general_dilated",
    "depthwise_conv2d",
    "disable",
    "enable",
    "enabled",
    "fractional_avg_pool",
    "stats",
]
