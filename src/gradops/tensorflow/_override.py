"""Gradops' kernels in the place of TensorFlow's, and what they have counted."""

from __future__ import annotations

from tensorflow.python.eager import context as eager

from gradops._kernels import tensorflow_kernels

from ._ops import COUNTERS, OPS, REASONS
from ._registration import register


def enable() -> None:
    """Have gradops compute the gradients of convolutions and of fractional pooling in this process, on the CPU.

    The few that TensorFlow is known to compute in less time are passed on to it; `stats` counts them.

    Raises
    ------
    RuntimeError
        If a `tf.compat.v1.Session` exists, which may have made its kernels, or TensorFlow refuses the registration.

    See Also
    --------
    disable, stats

    Notes
    -----
    The best place is behind the imports. A later call takes effect as well: it clears TensorFlow's cache of kernels, as
    ``tf.config`` does for some options, so that functions that have been traced make new ones when they are next called.

    Examples
    --------
    >>> import gradops.tensorflow
    >>> import tensorflow as tf
    >>> gradops.tensorflow.enable()
    >>> x, w = tf.ones((1, 3, 3, 1)), tf.ones((2, 2, 1, 1))
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "VALID")
    >>> tape.gradient(y, x)[0, :, :, 0].numpy()
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]], dtype=float32)
    >>> gradops.tensorflow.stats()["taken"]["DepthwiseConv2dNativeBackpropInput"]
    1
    """
    register()
    tensorflow_kernels.set_enabled(True)
    _forget_kernels()


def disable() -> None:
    """Have TensorFlow compute again.

    Its kernels are called through gradops', which remain registered, so this costs some ten microseconds a call. Dense convolutions are
    computed by the very kernels that would have run, depthwise ones by TensorFlow's portable kernels, also in a graph where oneDNN's
    would have run, which cannot be reached. The gradient of fractional pooling stays with gradops, whose numbers are equal to the last bit.
    A process that has never called `enable` is as TensorFlow left it.

    See Also
    --------
    enable, stats

    Examples
    --------
    >>> import gradops.tensorflow
    >>> gradops.tensorflow.enable()
    >>> gradops.tensorflow.disable()
    """
    tensorflow_kernels.set_enabled(False)


def stats() -> dict[str, dict[str, int]]:
    """How many calls gradops has computed and how many it has passed on to TensorFlow, in this process.

    Returns
    -------
    dict
        ``"taken"`` by op; ``"declined"`` by reason: ``"disabled"``, after `disable`, and ``"slower"``, where TensorFlow's own kernel
        takes less time, as measured.

    See Also
    --------
    enable, disable

    Examples
    --------
    >>> import gradops.tensorflow
    >>> sorted(gradops.tensorflow.stats())
    ['declined', 'taken']
    """
    counts = dict(zip(COUNTERS, tensorflow_kernels.counts(), strict=False))
    return {
        "taken": {op: counts[op] for op in OPS},
        "declined": {reason: counts[reason] for reason in REASONS},
    }


def _forget_kernels() -> None:
    """Has TensorFlow make the kernels anew that it has made so far."""
    eager.context().clear_kernel_cache()
