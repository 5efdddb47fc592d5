"""The public pooling functions: what each is, and how its arguments reach a plan and a kernel."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from gradops._arrays import NUMBERS, Array, single
from gradops._call import call
from gradops._pooling import attributes, checked_format, forward, gradient, input_sizes
from gradops._values import integers


class FractionalAvgPool(NamedTuple):
    """The result of `fractional_avg_pool`.

    Attributes
    ----------
    output : numpy.ndarray
        The means, in the layout and dtype of the input.
    row_pooling_sequence, col_pooling_sequence : numpy.ndarray of int64
        Where the row and the column cells begin, and the size of the axis as their last element.
    """

    output: Array
    row_pooling_sequence: Array
    col_pooling_sequence: Array


def fractional_avg_pool(
    value: ArrayLike,
    pooling_ratio: Any,
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
    *,
    data_format: str = "NHWC",
    out: Array | None = None,
    num_threads: int | None = None,
) -> FractionalAvgPool:
    """The mean over cells whose sizes vary, so that an image can shrink by a factor that is no integer.

    Rows and columns are cut into cells of random sizes, which differ by one pixel at most. An axis of n pixels gets
    floor(n / ratio) cells, divided in float32 as TensorFlow does. TensorFlow: ``tf.raw_ops.FractionalAvgPool``.

    Parameters
    ----------
    value : array_like, shape (N, H, W, C) or (N, C, H, W)
        Images of dtype float16, bfloat16, float32, float64, int32 or int64.
    pooling_ratio : sequence of four float
        By how much each dimension shrinks, in `data_format` order: at least 1, and 1 for batch and channels.
    pseudo_random : bool, optional
        Draw one number for each axis instead of shuffling its cells: sizes then alternate evenly.
    overlapping : bool, optional
        Whether a cell includes the first row and column of the next one.
    deterministic : bool, optional
        Whether the sequences are the same each time: those of `seed` and `seed2`, which are TensorFlow's, or, if both are 0,
        those that this process has chosen for these attributes. Otherwise every call draws new ones.
    seed, seed2 : int, optional
        Seeds of the generator, 64 bits each; 0 unless `deterministic`.
    name : str, optional
        Has no effect; it is here because TensorFlow's op has it.
    data_format : {"NHWC", "NCHW"}, optional
        The order of the dimensions of images.
    out : numpy.ndarray, optional
        Where to write the output: C-contiguous, aligned, of the output's shape and dtype, sharing no memory with `value`.
    num_threads : int, optional
        How many threads to use; see `set_num_threads` for what happens without it. It does not change the result.

    Returns
    -------
    FractionalAvgPool
        A named tuple (output, row_pooling_sequence, col_pooling_sequence). float16 and bfloat16 are summed in float32 and rounded
        once. Sums of integers wrap around; their mean is cut off towards zero.

    Raises
    ------
    TypeError
        If the dtype is unsupported, or an attribute is not of its type.
    ValueError
        If the attributes do not fit the shape or each other, or `out` does not fit the output.
    MemoryError
        If the output does not fit into memory.

    See Also
    --------
    fractional_avg_pool_grad : its gradient.

    Examples
    --------
    >>> import numpy as np
    >>> import gradops
    >>> row = np.array([20, 5, 16, 3, 7], np.float32).reshape(1, 1, 5, 1)
    >>> pooled = gradops.fractional_avg_pool(row, (1, 1, 1.6, 1), deterministic=True, seed=1)
    >>> pooled.col_pooling_sequence
    array([0, 1, 3, 5])
    >>> pooled.output.ravel()
    array([20. , 10.5,  5. ], dtype=float32)
    """
    flags = (
        _flag("pseudo_random", pseudo_random),
        _flag("overlapping", overlapping),
        _flag("deterministic", deterministic),
    )
    given = attributes(pooling_ratio, *flags, seed, seed2, data_format)
    x, storage = single("value", value, NUMBERS)
    plan = forward(x.shape, given)
    y = call(plan, (x,), storage, out, num_threads)
    return FractionalAvgPool(y, np.array(plan.row_sequence, np.int64), np.array(plan.col_sequence, np.int64))


def fractional_avg_pool_grad(
    orig_input_tensor_shape: Any,
    out_backprop: ArrayLike,
    row_pooling_sequence: ArrayLike,
    col_pooling_sequence: ArrayLike,
    overlapping: bool = False,
    name: str | None = None,
    *,
    data_format: str = "NHWC",
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """The gradient of `fractional_avg_pool` with respect to its input.

    Each element of `out_backprop` is shared evenly among the pixels of its cell. Pixels in no cell get 0, pixels in several
    the sum.
    TensorFlow: ``tf.raw_ops.FractionalAvgPoolGrad``.

    Parameters
    ----------
    orig_input_tensor_shape : sequence of four int
        The shape of the input in `data_format` order, which is the shape of the result.
    out_backprop : array_like, shape (N, P, Q, C) or (N, C, P, Q)
        The gradient of the output, of dtype float16, bfloat16, float32, float64, int32 or int64.
    row_pooling_sequence, col_pooling_sequence : array_like of int
        What the forward op returned: P + 1 row and Q + 1 column positions. Other sequences are taken if no position is negative
        and every cell begins inside the image and is not empty: then cells are cut off at the edge, and rows and columns before
        the first cell or after the last one get 0. Surplus elements have no effect.
    overlapping : bool, optional
        As it was for the forward op.
    name : str, optional
        Has no effect; it is here because TensorFlow's op has it.
    data_format : {"NHWC", "NCHW"}, optional
        The order of the dimensions of images.
    out : numpy.ndarray, optional
        Where to write the result: C-contiguous, aligned, of the result's shape and dtype, sharing no memory with an input.
    num_threads : int, optional
        How many threads to use; see `set_num_threads` for what happens without it. It does not change the result.

    Returns
    -------
    numpy.ndarray, shape (N, H, W, C) or (N, C, H, W)
        Of the dtype of `out_backprop`, or `out`. Every dtype is summed in float64 and rounded once; integers are cut off towards
        zero after the sum, and take the nearest value of their type if they are out of its range.

    Raises
    ------
    TypeError
        If the dtype is unsupported, or something that must be an integer is none.
    ValueError
        If shapes, sequences or `out` do not fit together; the message names the argument and what was expected.
    MemoryError
        If the result does not fit into memory.

    See Also
    --------
    fractional_avg_pool

    Examples
    --------
    >>> import numpy as np
    >>> import gradops
    >>> dy = np.array([12, 30], np.float32).reshape(1, 1, 2, 1)
    >>> gradops.fractional_avg_pool_grad((1, 1, 5, 1), dy, [0, 1], [0, 2, 5]).ravel()
    array([ 6.,  6., 10., 10., 10.], dtype=float32)
    """
    shape = input_sizes(orig_input_tensor_shape)
    dy, storage = single("out_backprop", out_backprop, NUMBERS)
    rows = _sequence("row_pooling_sequence", row_pooling_sequence)
    cols = _sequence("col_pooling_sequence", col_pooling_sequence)
    plan = gradient(shape, dy.shape, rows, cols, _flag("overlapping", overlapping), checked_format(data_format))
    return call(plan, (dy,), storage, out, num_threads)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _sequence(name: str, value: object) -> tuple[int, ...]:
    """A pooling sequence as a tuple of integers."""
    expected = "a one-dimensional sequence of integers"
    if isinstance(value, np.ndarray) and value.ndim == 1:
        if value.dtype.kind not in "iu":
            raise TypeError(f"{name} must be {expected}, got an array of {value.dtype.name}")
        return tuple(value.tolist())
    if np.ndim(cast(Any, value)) != 1:
        raise ValueError(f"{name} must be {expected}, got {np.ndim(cast(Any, value))} dimensions")
    return cast("tuple[int, ...]", integers(name, value, expected))
