"""Where gradops wins: the rules by which "auto" takes a gradient, from measurements of single layers.

PyTorch 2.13 beside gradops, turn by turn, 2 threads of a Zen 4 (AVX-512 with bfloat16), 8 images and 1 image, all layers of
mobilenet_v2, convnext_t and resnet50 and some of 20 other networks. Times of PyTorch over those of gradops; a rule takes a class of
layers where the mean is above 1 and none is below by more than the spread of the measurement. What no rule names is left to PyTorch.

==========  =====================  =============  =============  =============  =============
dtype       layers                 default: dx    dw             channels_last  dw
==========  =====================  =============  =============  =============  =============
float16     all                    1.5 to 50      1.5 to 180     1.9 to 160     1.5 to 150
float64     depthwise              1.5 to 40      1.9 to 68      3.1 to 112     3.5 to 210
float64     grouped                1.4 to 3.0     1.7 to 3.4     1.3 to 4.5     1.6 to 5.4
float64     3x3, stride 1          1.0 to 4.6     1.1 to 5.3     1.6 to 4.8     1.5 to 5.7
float64     other dense            0.9 to 2.7     0.9 to 3.3     0.9 to 3.0     1.0 to 5.5
float32     depthwise 5x5, 7x7     0.8 to 2.5     1.9 to 77      0.8 to 1.5     2.4 to 11
float32     depthwise 3x3          0.5 to 4.4     0.8 to 29      0.5 to 2.0     0.7 to 3.1
float32     3x3, stride 1          0.9 to 6.7     1.3 to 6.1     1.2 to 6.6     1.2 to 6.1
float32     dx of 8 channels       2.2 to 16                     1.8 to 16
float32     1x1                    0.7 to 6.6     0.8 to 6.0     0.7 to 1.9     0.9 to 2.5
float32     grouped, 5x5, strided  0.4 to 3.9     0.4 to 1.9     0.4 to 1.3     0.5 to 1.5
bfloat16    depthwise 5x5, 7x7     0.7 to 16      1.9 to 36      0.5 to 25      3.1 to 46
bfloat16    depthwise, strided     4.4 to 18      0.9 to 1.7     6.7 to 37      0.4 to 0.8
bfloat16    dense                  0.4 to 8.4     0.4 to 3.8     0.3 to 8.3     0.6 to 2.6
==========  =====================  =============  =============  =============  =============
"""

from __future__ import annotations

from typing import NamedTuple

LEAST = 2_000_000
"""Multiply-adds below which the way through Python costs more than a faster kernel saves, but for depthwise layers."""


class Layer(NamedTuple):
    """A convolution as the rules see it; of a transposed one, that whose input gradient it is.

    `channels` and `outputs` are those of a group, `planes` the pixels of an input image, `size` its elements with all images.
    """

    dtype: str
    channels_last: bool
    kind: str
    groups: int
    channels: int
    outputs: int
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    images: int
    plane: int
    work: int

    @property
    def filter(self) -> int:
        """Elements of a group's filter, tap by tap."""
        return self.channels * self.outputs

    @property
    def pointwise(self) -> bool:
        """1x1 with stride 1."""
        return self.taps == self.stride == (1, 1)

    @property
    def dense_taps(self) -> bool:
        """3x3 with stride 1, for which Winograd's algorithm saves products."""
        return self.taps == (3, 3) and self.stride == (1, 1)

    @property
    def bytes(self) -> int:
        """Of the images, in float32."""
        return 4 * self.images * self.plane * self.groups * self.channels


def wins(layer: Layer, gradient: str) -> bool:
    """Whether gradops computes the gradient, of "input" or "filter", in less time than PyTorch."""
    of_filter = gradient == "filter"
    if layer.channels == 1 and layer.groups > 1:
        if layer.kind == "transposed":
            return of_filter or layer.dtype == "float64"
        return _DEPTHWISE[layer.dtype](layer, of_filter)
    return layer.work >= LEAST and _OTHERS[layer.dtype](layer, of_filter)


def _always(layer: Layer, of_filter: bool) -> bool:
    return True


def _depthwise_float32(layer: Layer, of_filter: bool) -> bool:
    large, repeated = min(layer.taps) >= 5, layer.outputs > 1
    if layer.work < 100_000 or max(layer.dilation) > 1:
        return True
    if of_filter and layer.channels_last:
        return large or (layer.stride == (1, 1) and (repeated or layer.bytes >= 12e6))
    if of_filter:
        return large or layer.plane >= 784
    if layer.channels_last:
        crowded = layer.bytes >= 12e6 and layer.groups >= 64 and layer.stride == (1, 1)
        return not repeated and (min(layer.taps) >= 7 or (not large and crowded))
    return not repeated and (layer.plane >= 3136 or layer.groups % 8 > 0)


def _depthwise_bfloat16(layer: Layer, of_filter: bool) -> bool:
    if max(layer.dilation) > 1:
        return True
    if of_filter:
        return min(layer.taps) >= 5 or layer.outputs > 1
    return layer.outputs == 1 and max(layer.stride) > 1


def _float64(layer: Layer, of_filter: bool) -> bool:
    if layer.kind == "grouped" or layer.dense_taps:
        return True
    if layer.kind == "transposed":
        return not of_filter
    if layer.pointwise and of_filter:
        return _pointwise_filter(layer, 50_000)
    if layer.pointwise:
        return layer.plane >= 784 or layer.filter >= 150_000
    if of_filter:
        return layer.channels_last or layer.filter < 50_000
    return max(layer.taps) > 1 and (layer.channels <= 8 or layer.channels >= 64 or min(layer.taps) > 3)


def _float32(layer: Layer, of_filter: bool) -> bool:
    if layer.kind == "grouped":
        return layer.pointwise
    if layer.kind == "transposed":
        return of_filter and layer.channels_last and min(layer.channels, layer.outputs) >= 64
    if layer.pointwise:
        return _pointwise_float32(layer, of_filter)
    if layer.channels <= 8 and not of_filter:
        return True
    if layer.dense_taps:
        known = layer.dilation == (1, 1) or layer.channels >= 64
        return known and layer.outputs >= 8 and (layer.channels_last or layer.filter < 150_000)
    return of_filter and layer.channels_last and layer.channels >= 64 and max(layer.taps) <= 3


def _pointwise_float32(layer: Layer, of_filter: bool) -> bool:
    if of_filter:
        return _pointwise_filter(layer, 100_000)
    if layer.channels_last:
        return layer.images > 1 and layer.plane >= 3136 and layer.outputs >= 3 * layer.channels
    return layer.plane >= 784


def _pointwise_filter(layer: Layer, small: int) -> bool:
    """Small filters and, where channels come last, large ones; those between only on large images."""
    if layer.channels_last:
        return not 100_000 < layer.filter < 250_000
    return layer.filter < small or layer.plane >= 3136


def _bfloat16(layer: Layer, of_filter: bool) -> bool:
    return layer.kind == "dense" and layer.channels <= 8 and not of_filter and not layer.pointwise


_DEPTHWISE = {
    "float16": _always,
    "float64": _always,
    "float32": _depthwise_float32,
    "bfloat16": _depthwise_bfloat16,
}
_OTHERS = {"float16": _always, "float64": _float64, "float32": _float32, "bfloat16": _bfloat16}
