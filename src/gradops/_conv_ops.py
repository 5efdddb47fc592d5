"""The public convolution ops: what each is, and how its arguments reach a plan and a kernel."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from gradops._arrays import Array, pair
from gradops._call import call
from gradops._geometry import attributes, plan
from gradops._values import sizes

_ONES = (1, 1, 1, 1)


def forward(
    op: str, input: object, filter: object, given: tuple[object, ...], out: object, num_threads: object
) -> Array:
    """The output of `op`; `given` are its `attributes`."""
    x, w, storage = pair("input", input, "filter", filter)
    return call(plan(op, x.shape, w.shape, None, given), (x, w), storage, out, num_threads)


def input_gradient(
    op: str,
    input_sizes: tuple[int, ...],
    filter: object,
    out_backprop: object,
    given: tuple[object, ...],
    out: object,
    num_threads: object,
) -> Array:
    """The gradient of the input of `op`; `given` are its `attributes`."""
    w, dy, storage = pair("filter", filter, "out_backprop", out_backprop)
    return call(plan(op, input_sizes, w.shape, dy.shape, given), (dy, w), storage, out, num_threads)


def filter_gradient(
    op: str,
    input: object,
    filter_sizes: tuple[int, ...],
    out_backprop: object,
    given: tuple[object, ...],
    out: object,
    num_threads: object,
) -> Array:
    """The gradient of the filter of `op`; `given` are its `attributes`."""
    x, dy, storage = pair("input", input, "out_backprop", out_backprop)
    return call(plan(op, x.shape, filter_sizes, dy.shape, given), (x, dy), storage, out, num_threads)


def conv2d(
    input: ArrayLike,
    filter: ArrayLike,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
    *,
    explicit_paddings: Any = (),
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """The 2-D convolution (cross-correlation) of images with a filter.

    ``y[n, p, q, k] = sum over r, s, c of x[n, p*stride - pad + r*dilation, q*stride - pad + s*dilation, c] * w[r, s, c,
    k]``, where pixels outside the image are 0. TensorFlow: ``tf.raw_ops.Conv2D``.

    Parameters
    ----------
    input : array_like, shape (N, H, W, C) or (N, C, H, W)
        Images of dtype float16, bfloat16, float32 or float64.
    filter : array_like, shape (R, S, C/G, K)
        Of the same dtype, in this order for both data formats. With fewer input channels than the images, the
        convolution is grouped: G = C / filter.shape[2] groups, each with K/G of the output channels.
    strides : int, pair of int or four int
        Step of the window: one number, (rows, columns), or a vector in `data_format` order with 1 for batch and
        channels.
    padding : {"SAME", "VALID", "EXPLICIT"} or four pairs of int
        "SAME" pads so that the output has ceil(H / stride) rows, the odd one at the bottom or right; "VALID" pads
        nothing; "EXPLICIT" takes `explicit_paddings`. Four pairs (before, after) in `data_format` order are explicit
        paddings, too.
    use_cudnn_on_gpu : bool, optional
        Has no effect; it is here because TensorFlow's op has it.
    data_format : {"NHWC", "NCHW"}, optional
        The order of the dimensions of images.
    dilations : int, pair of int or four int, optional
        Distance between the filter's taps, written like `strides`.
    name : str, optional
        Has no effect; it is here because TensorFlow's op has it.
    explicit_paddings : sequence of 8 int, optional
        (before, after) of each dimension in `data_format` order, for padding "EXPLICIT" only.
    out : numpy.ndarray, optional
        Where to write the result: C-contiguous, aligned, of the result's shape and dtype, sharing no memory with an
        input.
    num_threads : int, optional
        How many threads to use; see `set_num_threads` for what happens without it.

    Returns
    -------
    numpy.ndarray, shape (N, P, Q, K) or (N, K, P, Q)
        Of the inputs' dtype, or `out`. float16 and bfloat16 are summed in float32 and rounded once.

    Raises
    ------
    TypeError
        If dtypes are unsupported or differ, or something that must be an integer is none.
    ValueError
        If shapes, attributes or `out` do not fit together; the message names the argument and what was expected.
    MemoryError
        If the result does not fit into memory.

    See Also
    --------
    conv2d_backprop_input, conv2d_backprop_filter : its gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import gradops
    >>> image = np.arange(1, 10, dtype=np.float32).reshape(1, 3, 3, 1)
    >>> gradops.conv2d(image, np.ones((2, 2, 1, 1), np.float32), 1, "VALID")[0, :, :, 0]
    array([[12., 16.],
           [24., 28.]], dtype=float32)
    """
    given = attributes(strides, padding, explicit_paddings, data_format, dilations)
    return forward("conv2d", input, filter, given, out, num_threads)


def conv2d_backprop_input(
    input_sizes: Any,
    filter: ArrayLike,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
    *,
    explicit_paddings: Any = (),
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """The gradient of `conv2d` with respect to its input, also known as transposed convolution.

    ``dx[n, h, w, c]`` is the sum of ``dy[n, p, q, k] * w[r, s, c, k]`` over all outputs (p, q) and taps (r, s) that
    meet at the pixel: ``h = p*stride - pad + r*dilation``, likewise w. Pixels that no window covers get 0. TensorFlow:
    ``tf.raw_ops.Conv2DBackpropInput``.

    Parameters
    ----------
    input_sizes : sequence of int
        The shape of the input, which is the shape of the result: four sizes in `data_format` order, or (height, width),
        with the batch of `out_backprop` and the channels of `filter`.
    filter : array_like, shape (R, S, C/G, K)
        As for `conv2d`, of dtype float16, bfloat16, float32 or float64; with fewer than C input channels it is grouped.
    out_backprop : array_like, shape (N, P, Q, K) or (N, K, P, Q)
        The gradient of the output, of the same dtype, with exactly the shape that `conv2d` gives for `input_sizes`.
    strides, padding, data_format, dilations, explicit_paddings
        As they were for `conv2d`.
    use_cudnn_on_gpu : bool, optional
        Has no effect; it is here because TensorFlow's op has it.
    name : str, optional
        Has no effect; it is here because TensorFlow's op has it.
    out : numpy.ndarray, optional
        Where to write the result: C-contiguous, aligned, of the result's shape and dtype, sharing no memory with an
        input.
    num_threads : int, optional
        How many threads to use; see `set_num_threads` for what happens without it.

    Returns
    -------
    numpy.ndarray, shape (N, H, W, C) or (N, C, H, W)
        Of the inputs' dtype, or `out`. float16 and bfloat16 are summed in float32 and rounded once.

    Raises
    ------
    TypeError
        If dtypes are unsupported or differ, or something that must be an integer is none.
    ValueError
        If shapes, attributes or `out` do not fit together; the message names the argument and what was expected.
    MemoryError
        If the result does not fit into memory.

    See Also
    --------
    conv2d, conv2d_backprop_filter

    Examples
    --------
    >>> import numpy as np
    >>> import gradops
    >>> filter = np.array([[1, 2], [3, 4]], np.float32).reshape(2, 2, 1, 1)
    >>> gradops.conv2d_backprop_input((1, 3, 3, 1), filter, np.ones((1, 2, 2, 1), np.float32), 1, "VALID")[0, :, :, 0]
    array([[ 1.,  3.,  2.],
           [ 4., 10.,  6.],
           [ 3.,  7.,  4.]], dtype=float32)
    """
    given = attributes(strides, padding, explicit_paddings, data_format, dilations)
    shape = sizes("input_sizes", input_sizes)
    return input_gradient("conv2d_backprop_input", shape, filter, out_backprop, given, out, num_threads)


def conv2d_backprop_filter(
    input: ArrayLike,
    filter_sizes: Any,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
    *,
    explicit_paddings: Any = (),
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """The gradient of `conv2d` with respect to its filter.

    ``dw[r, s, c, k]`` is the sum of ``x[n, p*stride - pad + r*dilation, q*stride - pad + s*dilation, c] * dy[n, p, q,
    k]`` over all images n and outputs (p, q). TensorFlow: ``tf.raw_ops.Conv2DBackpropFilter``.

    Parameters
    ----------
    input : array_like, shape (N, H, W, C) or (N, C, H, W)
        Images of dtype float16, bfloat16, float32 or float64.
    filter_sizes : sequence of four int
        The shape of the filter, (R, S, C/G, K) for both data formats, which is the shape of the result; with fewer than
        C input channels it is grouped, as for `conv2d`.
    out_backprop : array_like, shape (N, P, Q, K) or (N, K, P, Q)
        The gradient of the output, of the same dtype, with exactly the shape that `conv2d` gives for these shapes.
    strides, padding, data_format, dilations, explicit_paddings
        As they were for `conv2d`.
    use_cudnn_on_gpu : bool, optional
        Has no effect; it is here because TensorFlow's op has it.
    name : str, optional
        Has no effect; it is here because TensorFlow's op has it.
    out : numpy.ndarray, optional
        Where to write the result: C-contiguous, aligned, of the result's shape and dtype, sharing no memory with an
        input.
    num_threads : int, optional
        How many threads to use; see `set_num_threads` for what happens without it. It does not change the result.

    Returns
    -------
    numpy.ndarray, shape (R, S, C/G, K)
        Of the inputs' dtype, or `out`. float16 and bfloat16 are summed in float32 and rounded once.

    Raises
    ------
    TypeError
        If dtypes are unsupported or differ, or something that must be an integer is none.
    ValueError
        If shapes, attributes or `out` do not fit together; the message names the argument and what was expected.
    MemoryError
        If the result does not fit into memory.

    See Also
    --------
    conv2d, conv2d_backprop_input

    Examples
    --------
    >>> import numpy as np
    >>> import gradops
    >>> image = np.arange(1, 10, dtype=np.float32).reshape(1, 3, 3, 1)
    >>> gradops.conv2d_backprop_filter(image, (2, 2, 1, 1), np.ones((1, 2, 2, 1), np.float32), 1, "VALID")[:, :, 0, 0]
    array([[12., 16.],
           [24., 28.]], dtype=float32)
    """
    given = attributes(strides, padding, explicit_paddings, data_format, dilations)
    shape = sizes("filter_sizes", filter_sizes)
    return filter_gradient("conv2d_backprop_filter", input, shape, out_backprop, given, out, num_threads)


def depthwise_conv2d_native(
    input: ArrayLike,
    filter: ArrayLike,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
    *,
    explicit_paddings: Any = (),
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """The depthwise 2-D convolution: every channel of the images has its own M filters.

    Output channel ``c*M + m`` is input channel c, convolved with ``filter[:, :, c, m]``. Row and column strides may
    differ, which TensorFlow's CPU kernels refuse. TensorFlow: ``tf.raw_ops.DepthwiseConv2dNative``.

    Parameters
    ----------
    input : array_like, shape (N, H, W, C) or (N, C, H, W)
        Images of dtype float16, bfloat16, float32 or float64.
    filter : array_like, shape (R, S, C, M)
        Of the same dtype, in this order for both data formats.
    strides, padding, data_format, dilations, explicit_paddings
        As for `conv2d`.
    name : str, optional
        Has no effect; it is here because TensorFlow's op has it.
    out : numpy.ndarray, optional
        Where to write the result: C-contiguous, aligned, of the result's shape and dtype, sharing no memory with an
        input.
    num_threads : int, optional
        How many threads to use; see `set_num_threads` for what happens without it.

    Returns
    -------
    numpy.ndarray, shape (N, P, Q, C*M) or (N, C*M, P, Q)
        Of the inputs' dtype, or `out`. float16 and bfloat16 are summed in float32 and rounded once.

    Raises
    ------
    TypeError
        If dtypes are unsupported or differ, or something that must be an integer is none.
    ValueError
        If shapes, attributes or `out` do not fit together; the message names the argument and what was expected.
    MemoryError
        If the result does not fit into memory.

    See Also
    --------
    depthwise_conv2d_native_backprop_input, depthwise_conv2d_native_backprop_filter : its gradients.

    Examples
    --------
    >>> import numpy as np
    >>> import gradops
    >>> pixel = np.array([1, 2], np.float32).reshape(1, 1, 1, 2)
    >>> filter = np.array([[1, 10], [100, 1000]], np.float32).reshape(1, 1, 2, 2)
    >>> gradops.depthwise_conv2d_native(pixel, filter, 1, "SAME")[0, 0, 0]
    array([1.e+00, 1.e+01, 2.e+02, 2.e+03], dtype=float32)
    """
    given = attributes(strides, padding, explicit_paddings, data_format, dilations)
    return forward("depthwise_conv2d_native", input, filter, given, out, num_threads)


def depthwise_conv2d_native_backprop_input(
    input_sizes: Any,
    filter: ArrayLike,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
    *,
    explicit_paddings: Any = (),
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """The gradient of `depthwise_conv2d_native` with respect to its input.

    Dilations are honoured, which TensorFlow's CPU kernels ignore here, and row and column strides may differ.
    TensorFlow: ``tf.raw_ops.DepthwiseConv2dNativeBackpropInput``.

    Parameters
    ----------
    input_sizes : sequence of four int
        The shape of the input in `data_format` order, which is the shape of the result.
    filter : array_like, shape (R, S, C, M)
        Of dtype float16, bfloat16, float32 or float64.
    out_backprop : array_like, shape (N, P, Q, C*M) or (N, C*M, P, Q)
        The gradient of the output, of the same dtype, with exactly the shape that the forward op gives for
        `input_sizes`.
    strides, padding, data_format, dilations, explicit_paddings
        As they were for the forward op.
    name : str, optional
        Has no effect; it is here because TensorFlow's op has it.
    out : numpy.ndarray, optional
        Where to write the result: C-contiguous, aligned, of the result's shape and dtype, sharing no memory with an
        input.
    num_threads : int, optional
        How many threads to use; see `set_num_threads` for what happens without it.

    Returns
    -------
    numpy.ndarray, shape (N, H, W, C) or (N, C, H, W)
        Of the inputs' dtype, or `out`. float16 and bfloat16 are summed in float32 and rounded once.

    Raises
    ------
    TypeError
        If dtypes are unsupported or differ, or something that must be an integer is none.
    ValueError
        If shapes, attributes or `out` do not fit together; the message names the argument and what was expected.
    MemoryError
        If the result does not fit into memory.

    See Also
    --------
    depthwise_conv2d_native, depthwise_conv2d_native_backprop_filter

    Examples
    --------
    >>> import numpy as np
    >>> import gradops
    >>> filter = np.array([[1, 10], [100, 1000]], np.float32).reshape(1, 1, 2, 2)
    >>> ones = np.ones((1, 1, 1, 4), np.float32)
    >>> gradops.depthwise_conv2d_native_backprop_input((1, 1, 1, 2), filter, ones, 1, "SAME")
    array([[[[  11., 1100.]]]], dtype=float32)
    """
    given = attributes(strides, padding, explicit_paddings, data_format, dilations)
    shape = sizes("input_sizes", input_sizes)
    op = "depthwise_conv2d_native_backprop_input"
    return input_gradient(op, shape, filter, out_backprop, given, out, num_threads)


def depthwise_conv2d_native_backprop_filter(
    input: ArrayLike,
    filter_sizes: Any,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
    *,
    explicit_paddings: Any = (),
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """The gradient of `depthwise_conv2d_native` with respect to its filter.

    Dilations are honoured, which TensorFlow's CPU kernels ignore here, and row and column strides may differ.
    TensorFlow: ``tf.raw_ops.DepthwiseConv2dNativeBackpropFilter``.

    Parameters
    ----------
    input : array_like, shape (N, H, W, C) or (N, C, H, W)
        Images of dtype float16, bfloat16, float32 or float64.
    filter_sizes : sequence of four int
        The shape of the filter, (R, S, C, M) for both data formats, which is the shape of the result.
    out_backprop : array_like, shape (N, P, Q, C*M) or (N, C*M, P, Q)
        The gradient of the output, of the same dtype, with exactly the shape that the forward op gives for these
        shapes.
    strides, padding, data_format, dilations, explicit_paddings
        As they were for the forward op.
    name : str, optional
        Has no effect; it is here because TensorFlow's op has it.
    out : numpy.ndarray, optional
        Where to write the result: C-contiguous, aligned, of the result's shape and dtype, sharing no memory with an
        input.
    num_threads : int, optional
        How many threads to use; see `set_num_threads` for what happens without it. It does not change the result.

    Returns
    -------
    numpy.ndarray, shape (R, S, C, M)
        Of the inputs' dtype, or `out`. float16 and bfloat16 are summed in float32 and rounded once.

    Raises
    ------
    TypeError
        If dtypes are unsupported or differ, or something that must be an integer is none.
    ValueError
        If shapes, attributes or `out` do not fit together; the message names the argument and what was expected.
    MemoryError
        If the result does not fit into memory.

    See Also
    --------
    depthwise_conv2d_native, depthwise_conv2d_native_backprop_input

    Examples
    --------
    >>> import numpy as np
    >>> import gradops
    >>> pixel = np.array([1, 2], np.float32).reshape(1, 1, 1, 2)
    >>> ones = np.ones((1, 1, 1, 4), np.float32)
    >>> gradops.depthwise_conv2d_native_backprop_filter(pixel, (1, 1, 2, 2), ones, 1, "SAME")[0, 0]
    array([[1., 1.],
           [2., 2.]], dtype=float32)
    """
    given = attributes(strides, padding, explicit_paddings, data_format, dilations)
    shape = sizes("filter_sizes", filter_sizes)
    op = "depthwise_conv2d_native_backprop_filter"
    return filter_gradient(op, input, shape, out_backprop, given, out, num_threads)
