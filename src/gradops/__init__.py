"""Convolutions, fractional average pooling and their gradients on NumPy arrays, with TensorFlow's semantics.

The ops have the names, argument order and defaults of TensorFlow's documented functions; `gradops.raw_ops` has them
under TensorFlow's CamelCase names with keyword arguments.

======================================  ============================================================
op                                      gradients
======================================  ============================================================
`conv2d`                                `conv2d_backprop_input`, `conv2d_backprop_filter`
`depthwise_conv2d_native`               `depthwise_conv2d_native_backprop_input`,
                                        `depthwise_conv2d_native_backprop_filter`
`fractional_avg_pool`                   `fractional_avg_pool_grad`
======================================  ============================================================

`set_num_threads`, `get_num_threads` and `num_threads` say how many threads run them, `show_config` shows what they run
on, ``bench()`` how fast.
"""

from gradops import raw_ops
from gradops._config import show_config
from gradops._conv_ops import (
    conv2d,
    conv2d_backprop_filter,
    conv2d_backprop_input,
    depthwise_conv2d_native,
    depthwise_conv2d_native_backprop_filter,
    depthwise_conv2d_native_backprop_input,
)
from gradops._pool_ops import fractional_avg_pool, fractional_avg_pool_grad
from gradops._threads import get_num_threads, num_threads, set_num_threads
from gradops._version import __version__

__all__ = [
    "__version__",
    "bench",
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "depthwise_conv2d_native",
    "depthwise_conv2d_native_backprop_filter",
    "depthwise_conv2d_native_backprop_input",
    "fractional_avg_pool",
    "fractional_avg_pool_grad",
    "get_num_threads",
    "num_threads",
    "raw_ops",
    "set_num_threads",
    "show_config",
]


def bench(*what: str, budget: float = 30.0) -> None:
    """Print a table of how fast gradops runs here, as ``gradops bench`` does on the command line.

    Parameters
    ----------
    *what : str
        Suites, such as "resnet50", or problems, such as "mb8ic64ih56oc64oh56kh3ph1"; by default a quick selection.
    budget : float, optional
        Seconds for all rows together.

    Raises
    ------
    ValueError
        If a suite is unknown, a problem cannot be read, or the package rich, which draws the table, is not installed.

    Examples
    --------
    >>> import gradops
    >>> gradops.bench("mb1ic4ih5oc4oh5kh3ph1", budget=0.1)  # doctest: +SKIP
    """
    from gradops._bench import bench as run

    run(*what, budget=budget)
