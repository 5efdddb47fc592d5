"""Where gradops wins: the rules by which "auto" takes a gradient, from measurements of single layers.

PyTorch 2.13 beside gradops on 2 threads of a Zen 4 (AVX-512 with bfloat16): the times of PyTorch over those of gradops for each layer of
MobileNetV2, ConvNeXt-T and ResNet-50 with 8 images, within steps of training, where caches hold what the layers before have left; of float16
and of grouped layers, by themselves. What no rule names is left to PyTorch, and so is what only some sizes win.

==========  =====================  =============  =============  =============  =============
dtype       layers                 default: dx    dw             channels_last  dw
==========  =====================  =============  =============  =============  =============
float16     all                    1.5 to 74      0.9 to 180     1.9 to 160     1.5 to 150
float64     depthwise              1.5 to 41      1.9 to 68      3.1 to 112     3.5 to 210
float64     grouped                1.4 to 3.0     1.7 to 3.4     1.3 to 4.5     1.6 to 5.4
float64     3x3, stride 1          2.1 to 3.2     1.0 to 16      1.8 to 2.5     1.3 to 9.2
float64     1x1                    1.2 to 3.3     0.6 to 1.6     1.2 to 3.5     1.1 to 2.1
float64     strided                0.7 to 2.8     0.9 to 8.0     0.8 to 1.4     1.2 to 4.5
float32     depthwise 7x7          1.7 to 2.0     10 to 50       1.7 to 1.8     9.3 to 160
float32     depthwise 3x3          0.9 to 5.0     0.9 to 6.4     0.7 to 3.4     1.2 to 2.0
float32     3x3, stride 1          1.1 to 1.7     1.5 to 1.7     1.2 to 1.6     1.6 to 2.1
float32     1x1                    0.9 to 6.6     0.9 to 4.2     0.6 to 1.8     0.9 to 2.2
float32     strided                0.9 to 6.3     0.8 to 2.5     0.9 to 2.1     1.1 to 2.4
bfloat16    depthwise 7x7          0.9 to 1.9     5.0 to 69      1.2 to 1.5     17 to 62
bfloat16    depthwise 3x3          0.7 to 27      0.6 to 2.6     1.1 to 61      1.1 to 2.8
bfloat16    3x3, stride 1          0.5 to 0.7     0.7 to 0.8     0.7 to 0.8     0.9 to 1.1
bfloat16    1x1                    0.7 to 2.0     0.8 to 1.7     0.5 to 1.4     0.7 to 1.8
bfloat16    strided                0.5 to 1.6     0.4 to 1.6     0.7 to 1.2     0.5 to 2.0
==========  =====================  =============  =============  =============  =============

Depthwise layers of MobileNetV1, V2 and V3 by themselves on a Zen 5, default layout: float32 1.4 to 22 and 1.5 to 46, bfloat16 1.2 to 88 and 1.03 to 34.
"""

from __future__ import annotations

from typing import NamedTuple

LEAST = 2_000_000
"""Multiply-adds below which the way through Python costs more than a faster kernel saves, but for depthwise layers."""


class Layer(NamedTuple):
    """A convolution as the rules see it; of a transposed one, that whose input gradient it is.

    `channels` and `outputs` are those of a group, `plane` the pixels of an input image, `work` the multiply-adds.
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
    if layer.work < 100_000 or max(layer.dilation) > 1:
        return True
    return of_filter or layer.outputs == 1


def _depthwise_bfloat16(layer: Layer, of_filter: bool) -> bool:
    return of_filter or layer.outputs == 1


def _float64(layer: Layer, of_filter: bool) -> bool:
    if layer.kind == "grouped":
        return True
    if layer.dense_taps:
        return not of_filter or layer.channels_last or layer.filter < 250_000
    if layer.kind == "transposed":
        return not of_filter
    if layer.pointwise and of_filter:
        return layer.channels_last or layer.filter < 100_000 or layer.plane >= 3136
    if layer.pointwise:
        return layer.plane >= 784 or layer.filter >= 150_000
    if layer.taps == (1, 1) and not of_filter:
        return True
    if of_filter:
        return layer.channels_last or layer.filter < 50_000
    return max(layer.taps) > 1 and (layer.channels <= 8 or layer.channels >= 64 or min(layer.taps) > 3)


def _float32(layer: Layer, of_filter: bool) -> bool:
    if layer.kind == "grouped":
        return layer.pointwise
    if layer.kind == "transposed":
        return of_filter and layer.channels_last and min(layer.channels, layer.outputs) >= 64
    if layer.pointwise:
        return of_filter or layer.plane >= (784 if layer.channels_last else 100) or layer.channels < 100
    if layer.taps == (1, 1):
        return of_filter or layer.filter < 1_000_000
    if layer.channels <= (4 if of_filter else 8):
        return True
    if layer.dense_taps:
        known = layer.dilation == (1, 1) or layer.channels >= 64
        return known and layer.outputs >= 8 and (of_filter or layer.channels_last or layer.filter < 150_000)
    return (
        layer.channels_last and layer.channels >= 64 and max(layer.taps) <= 3 and (of_filter or layer.filter < 300_000)
    )


def _bfloat16(layer: Layer, of_filter: bool) -> bool:
    if layer.kind != "dense":
        return False
    if not layer.pointwise:
        if of_filter:
            patches = layer.taps == layer.stride and layer.channels > 8
            return patches or (layer.channels_last and max(layer.stride) > 1 and layer.plane < 784)
        return layer.channels <= 8
    if of_filter:
        small = layer.filter < (0 if layer.channels_last else 30_000)
        return small or (layer.plane < 100 and layer.filter >= (90_000 if layer.channels_last else 1_000_000))
    if layer.channels_last:
        return layer.outputs >= 3 * layer.channels and layer.channels < 200
    return layer.filter < 30_000


_DEPTHWISE = {
    "float16": _always,
    "float64": _always,
    "float32": _depthwise_float32,
    "bfloat16": _depthwise_bfloat16,
}
_OTHERS = {"float16": _always, "float64": _float64, "float32": _float32, "bfloat16": _bfloat16}
