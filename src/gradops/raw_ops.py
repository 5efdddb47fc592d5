"""TensorFlow's own names for the ops: code written against ``tf.raw_ops`` runs on arrays with ``gradops.raw_ops``.

All arguments are keywords and have TensorFlow's names and defaults. `name` and `use_cudnn_on_gpu` have no effect. What
differs from TensorFlow on the CPU: every op works for both data formats, all dilations, groups and strides; the V2 ops
exist; errors are `ValueError`, `TypeError` and `MemoryError`.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from gradops import _conv_ops, _pool_ops
from gradops._arrays import Array, shape_of
from gradops._geometry import attributes
from gradops._values import sizes

__all__ = [
    "Conv2D",
    "Conv2DBackpropFilter",
    "Conv2DBackpropFilterV2",
    "Conv2DBackpropInput",
    "Conv2DBackpropInputV2",
    "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter",
    "DepthwiseConv2dNativeBackpropInput",
    "FractionalAvgPool",
    "FractionalAvgPoolGrad",
]

_ONES = (1, 1, 1, 1)


def Conv2D(
    *,
    input: ArrayLike,
    filter: ArrayLike,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Any = (),
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
) -> Array:
    """See `gradops.conv2d`.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> ones = np.ones((1, 2, 2, 1), np.float32)
    >>> raw_ops.Conv2D(input=ones, filter=np.ones((2, 2, 1, 1), np.float32), strides=[1, 1, 1, 1], padding="VALID")
    array([[[[4.]]]], dtype=float32)
    """
    return _conv_ops.conv2d(
        input,
        filter,
        strides,
        padding,
        use_cudnn_on_gpu,
        data_format,
        dilations,
        name,
        explicit_paddings=explicit_paddings,
    )


def Conv2DBackpropInput(
    *,
    input_sizes: Any,
    filter: ArrayLike,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Any = (),
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
) -> Array:
    """See `gradops.conv2d_backprop_input`.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> one, ones = np.ones((1, 1, 1, 1), np.float32), np.ones((1, 2, 1, 1), np.float32)
    >>> raw_ops.Conv2DBackpropInput(
    ...     input_sizes=[1, 1, 2, 1], filter=ones, out_backprop=one, strides=[1, 1, 1, 1], padding="VALID"
    ... )
    array([[[[1.],
             [1.]]]], dtype=float32)
    """
    return _conv_ops.conv2d_backprop_input(
        input_sizes,
        filter,
        out_backprop,
        strides,
        padding,
        use_cudnn_on_gpu,
        data_format,
        dilations,
        name,
        explicit_paddings=explicit_paddings,
    )


def Conv2DBackpropInputV2(
    *,
    input: Any,
    filter: ArrayLike,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Any = (),
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
) -> Array:
    """See `gradops.conv2d_backprop_input`. Of `input`, anything with four dimensions, only the shape is used.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> one, ones = np.ones((1, 1, 1, 1), np.float32), np.ones((1, 2, 1, 1), np.float32)
    >>> raw_ops.Conv2DBackpropInputV2(
    ...     input=np.empty((1, 1, 2, 1)), filter=ones, out_backprop=one, strides=[1, 1, 1, 1], padding="VALID"
    ... )
    array([[[[1.],
             [1.]]]], dtype=float32)
    """
    given = attributes(strides, padding, explicit_paddings, data_format, dilations)
    shape = sizes("the shape of input", shape_of(input))
    return _conv_ops.input_gradient("Conv2DBackpropInputV2", shape, filter, out_backprop, given, None, None)


def Conv2DBackpropFilter(
    *,
    input: ArrayLike,
    filter_sizes: Any,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Any = (),
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
) -> Array:
    """See `gradops.conv2d_backprop_filter`.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> one, ones = np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1, 2, 1), np.float32)
    >>> raw_ops.Conv2DBackpropFilter(
    ...     input=ones, filter_sizes=[1, 2, 1, 1], out_backprop=one, strides=[1, 1, 1, 1], padding="VALID"
    ... )
    array([[[[1.]],
    <BLANKLINE>
            [[1.]]]], dtype=float32)
    """
    return _conv_ops.conv2d_backprop_filter(
        input,
        filter_sizes,
        out_backprop,
        strides,
        padding,
        use_cudnn_on_gpu,
        data_format,
        dilations,
        name,
        explicit_paddings=explicit_paddings,
    )


def Conv2DBackpropFilterV2(
    *,
    input: ArrayLike,
    filter: Any,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    use_cudnn_on_gpu: bool = True,
    explicit_paddings: Any = (),
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
) -> Array:
    """See `gradops.conv2d_backprop_filter`. Of `filter`, anything with four dimensions, only the shape is used.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> one, ones = np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1, 2, 1), np.float32)
    >>> raw_ops.Conv2DBackpropFilterV2(
    ...     input=ones, filter=np.empty((1, 2, 1, 1)), out_backprop=one, strides=[1, 1, 1, 1], padding="VALID"
    ... )
    array([[[[1.]],
    <BLANKLINE>
            [[1.]]]], dtype=float32)
    """
    given = attributes(strides, padding, explicit_paddings, data_format, dilations)
    shape = sizes("the shape of filter", shape_of(filter))
    return _conv_ops.filter_gradient("Conv2DBackpropFilterV2", input, shape, out_backprop, given, None, None)


def DepthwiseConv2dNative(
    *,
    input: ArrayLike,
    filter: ArrayLike,
    strides: Any,
    padding: Any,
    explicit_paddings: Any = (),
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
) -> Array:
    """See `gradops.depthwise_conv2d_native`.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> pixel, filter = np.ones((1, 1, 1, 2), np.float32), np.ones((1, 1, 2, 1), np.float32)
    >>> raw_ops.DepthwiseConv2dNative(input=pixel, filter=filter, strides=[1, 1, 1, 1], padding="VALID")
    array([[[[1., 1.]]]], dtype=float32)
    """
    return _conv_ops.depthwise_conv2d_native(
        input, filter, strides, padding, data_format, dilations, name, explicit_paddings=explicit_paddings
    )


def DepthwiseConv2dNativeBackpropInput(
    *,
    input_sizes: Any,
    filter: ArrayLike,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    explicit_paddings: Any = (),
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
) -> Array:
    """See `gradops.depthwise_conv2d_native_backprop_input`.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> pixel, filter = np.ones((1, 1, 1, 2), np.float32), np.ones((1, 1, 2, 1), np.float32)
    >>> raw_ops.DepthwiseConv2dNativeBackpropInput(
    ...     input_sizes=[1, 1, 1, 2], filter=filter, out_backprop=pixel, strides=[1, 1, 1, 1], padding="VALID"
    ... )
    array([[[[1., 1.]]]], dtype=float32)
    """
    return _conv_ops.depthwise_conv2d_native_backprop_input(
        input_sizes,
        filter,
        out_backprop,
        strides,
        padding,
        data_format,
        dilations,
        name,
        explicit_paddings=explicit_paddings,
    )


def DepthwiseConv2dNativeBackpropFilter(
    *,
    input: ArrayLike,
    filter_sizes: Any,
    out_backprop: ArrayLike,
    strides: Any,
    padding: Any,
    explicit_paddings: Any = (),
    data_format: str = "NHWC",
    dilations: Any = _ONES,
    name: str | None = None,
) -> Array:
    """See `gradops.depthwise_conv2d_native_backprop_filter`.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> pixel = np.ones((1, 1, 1, 2), np.float32)
    >>> raw_ops.DepthwiseConv2dNativeBackpropFilter(
    ...     input=pixel, filter_sizes=[1, 1, 2, 1], out_backprop=pixel, strides=[1, 1, 1, 1], padding="VALID"
    ... )
    array([[[[1.],
             [1.]]]], dtype=float32)
    """
    return _conv_ops.depthwise_conv2d_native_backprop_filter(
        input,
        filter_sizes,
        out_backprop,
        strides,
        padding,
        data_format,
        dilations,
        name,
        explicit_paddings=explicit_paddings,
    )


def FractionalAvgPool(
    *,
    value: ArrayLike,
    pooling_ratio: Any,
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> _pool_ops.FractionalAvgPool:
    """See `gradops.fractional_avg_pool`.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> rows = np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1)
    >>> raw_ops.FractionalAvgPool(value=rows, pooling_ratio=[1.0, 2.0, 1.0, 1.0]).output[0, :, 0, 0]
    array([0.5, 2.5], dtype=float32)
    """
    return _pool_ops.fractional_avg_pool(
        value, pooling_ratio, pseudo_random, overlapping, deterministic, seed, seed2, name
    )


def FractionalAvgPoolGrad(
    *,
    orig_input_tensor_shape: Any,
    out_backprop: ArrayLike,
    row_pooling_sequence: Any,
    col_pooling_sequence: Any,
    overlapping: bool = False,
    name: str | None = None,
) -> Array:
    """See `gradops.fractional_avg_pool_grad`.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops import raw_ops
    >>> raw_ops.FractionalAvgPoolGrad(
    ...     orig_input_tensor_shape=[1, 4, 1, 1],
    ...     out_backprop=np.array([1, 3], np.float32).reshape(1, 2, 1, 1),
    ...     row_pooling_sequence=[0, 2, 4],
    ...     col_pooling_sequence=[0, 1],
    ... )[0, :, 0, 0]
    array([0.5, 0.5, 1.5, 1.5], dtype=float32)
    """
    return _pool_ops.fractional_avg_pool_grad(
        orig_input_tensor_shape, out_backprop, row_pooling_sequence, col_pooling_sequence, overlapping, name
    )
