"""Where gradops wins: the rules by which "auto" takes a gradient, from measurements of single layers.

PyTorch 2.13 beside gradops on 2 threads of a Zen 5 (AVX-512 with bfloat16): the times of PyTorch over those of gradops for each layer of
MobileNetV2, ConvNeXt-T and ResNet-50 with 8 images, within steps of training, where caches hold what the layers before have left; of float16
(Zen 4), of grouped layers, and of most dense ones of bfloat16 (Zen 4), by themselves. What no rule names is left to PyTorch.

==========  =====================  =============  =============  =============  =============
dtype       layers                 default: dx    dw             channels_last  dw
==========  =====================  =============  =============  =============  =============
float16     all                    1.5 to 74      0.9 to 180     1.9 to 160     1.5 to 150
float64     depthwise              3.9 to 22      6.9 to 42      9.3 to 104     18 to 56
float64     grouped                1.4 to 3.0     1.7 to 3.4     1.3 to 4.5     1.6 to 5.4
float64     3x3, stride 1          2.9 to 3.6     1.8 to 11      2.7 to 3.2     2.2 to 22
float64     1x1                    1.9 to 6.0     1.1 to 3.0     1.9 to 8.3     1.6 to 4.2
float64     strided                2.0 to 5.9     1.1 to 4.6     1.9 to 11      0.9 to 2.6
float32     depthwise 7x7          2.6 to 3.0     5.0 to 40      2.5 to 3.0     5.5 to 39
float32     depthwise 3x3          1.5 to 19      1.9 to 7.9     1.2 to 11      1.0 to 2.0
float32     grouped 3x3, 2 or 4    2.3 to 8.6     8.4 to 19      2.6 to 3.6     3.0 to 8.2
float32     grouped 3x3, 8         1.1 to 6.3     1.2 to 1.9     1.1 to 1.5     1.7 to 5.2
float32     grouped 3x3, 16        0.6 to 0.8     0.95           0.7 to 0.9     0.95 to 1.0
float32     the same, strided      0.8 to 1.0     1.4            1.1 to 1.5     0.9 to 1.2
float32     grouped 3x3, 24 or 32  1.0 to 2.5     1.1 to 2.1     1.1 to 2.2     1.0 to 1.3
float32     grouped 1x1            2.5 to 5.0     1.4 to 2.8     0.9 to 2.0     1.5 to 3.7
float32     first                                 1.1 to 1.4                    1.5 to 2.2
float32     3x3, stride 1          1.0 to 1.7     1.0 to 1.7     1.3 to 1.4     1.6 to 1.8
float32     1x1                    0.9 to 4.1     0.9 to 2.4     0.95 to 2.2    1.1 to 3.0
float32     strided 3x3            0.96 to 1.4    0.9 to 1.3     1.1 to 1.2     1.7 to 2.4
float32     strided 1x1            1.7 to 4.3     1.1 to 1.4     1.1 to 1.3     1.1 to 1.4
float32     patches                                              1.1 to 1.2     1.6 to 2.1
bfloat16    depthwise 7x7          2.0 to 2.6     15 to 77       1.9 to 2.4     14 to 82
bfloat16    depthwise 3x3          1.2 to 42      0.9 to 3.6     1.5 to 146     1.1 to 3.2
bfloat16    grouped 3x3, 2 or 4    1.1 to 8.2     6.5 to 14      1.0 to 2.8     3.2 to 7.7
bfloat16    grouped 3x3, 8         0.9 to 1.0     5.1 to 6.9     0.6 to 0.7     0.95 to 1.6
bfloat16    grouped 3x3, 16        0.5 to 0.6     1.0            0.5 to 0.6     0.9
bfloat16    the same, strided      0.5 to 0.7     1.1            0.5 to 0.7     0.9
bfloat16    grouped 3x3, 24 or 32  0.7 to 0.9     0.98 to 3.7    0.9 to 1.0     1.0 to 1.25
bfloat16    the same, strided      1.6 to 2.5     1.2 to 3.2     1.2 to 1.8     1.2 to 1.6
bfloat16    grouped 1x1            2.7 to 3.8     1.1 to 3.3     0.5 to 0.8     1.0 to 2.7
bfloat16    first                                 1.1 to 4.0                    1.1 to 1.7
bfloat16    3x3, stride 1          0.9 to 0.95    0.8 to 1.0     0.9 to 0.95    0.8 to 1.2
bfloat16    1x1                    0.9 to 2.3     1.1 to 2.4     0.9 to 1.9     1.1 to 2.2
bfloat16    strided 3x3            0.8 to 1.2     0.9 to 1.3     1.0 to 1.2     0.9 to 2.0
bfloat16    strided 1x1            1.3 to 3.6     1.2 to 1.3     1.2 to 1.4     1.0 to 1.7
bfloat16    patches                0.8 to 1.3     0.9 to 1.6     1.1 to 1.2     1.3 to 2.3
==========  =====================  =============  =============  =============  =============

With tiles (2 threads of a Granite Rapids), the time of both gradients of bfloat16 by PyTorch over that by gradops, within steps of training: default layout
1.3 to 5, 3x3 layers 1.1 to 1.6, of 512 channels the filter's alone; channels_last 1x1 layers 0.97 to 5, with strides 1.4 to 2.4; 3x3 ones of 64, 128, 256 and
512 channels 1.3, 1.0, 1.4 and 1.9 (56x56, 28x28, 14x14 and 7x7 pixels), of 224x224 pixels and 64 channels 3.7, of 112x112 and 128 2.5, of 56x56 and 256 1.2 (these
two the filter's alone, the input's would take 1.05 to 1.1 of PyTorch's time), with strides of 128, 256 and
512 1.0, 1.3 and 2.2; groups of 4, 8, 16 and 32 4.8, 1.1, 0.95 and 0.7, with strides of
8, 16 and 32 1.5, 1.4 and 1.0; patches of 96, 192 and 384 channels 0.97, 1.3 and 1.9; first layers 1.3 to 1.4.

Where bfloat16 is widened on Intel's CPUs (2 threads of an Emerald Rapids without tiles), PyTorch multiplies pairs half as fast as float32: dense layers 1.1 to 2.7 by
themselves, in channels_last 1x1 inputs from 0.74 on, grouped 1.1 to 14 and 0.93 to 7.7, transposed 1.1 to 2.7; all backward passes, within steps of training with
8 images of 160x160, ResNet 1.5 to 1.9 (by the rules for pairs 1.25), MobileNetV2 2.3 to 2.6, ConvNeXt 2.1 to 2.4. So all are taken.

By themselves, default layout: float32 inputs of 2x2 and 3x3 layers with strides 1 to 3 1.1 to 1.6, of 3x1 0.97; filters of first layers with strides
of 4 and more 0.85 to 1.0, of 4x4 patches 1.03 to 1.4, of 14x14 ones 0.94, of 16x16 ones 1.08 to 1.26; of bfloat16 1.2 to 1.6 (Zen 4).

Of 470 random layers of 4x4 to 7x7, to 6x6 with stride 2 (8 to 512 channels, 1 to 16 images of 4x4 to 56x56, Zen 4): channels_last 1.6 (inputs) and 1.45
(filters, geometric means), default layout, of filters with up to four channel pairs a pixel, 1.4, 8 % of them 0.85 to 0.98; of larger ones 0.3 to 2. AlexNet's second
layer 1.35 to 1.4, DCGAN's of 5x5 1.3 to 2.5, of 4x4 1.1 to 1.8, transposed 1.1 to 1.75 and 1.0 to 1.6; transposed 3x3 with stride 1 1.2 to 1.5, with stride 2 inputs
0.85 to 1.0, filters 1.03 and 1.3.

Filters of 3x3 to 7x7 with stride 1 and fewer outputs than inputs, up to 24 (heads), 8 to 1024 inputs, 1 to 8 images of 4x4 to 64x64, default layout and channels_last,
geometric mean and worst of 560 (Zen 4): float32 3.0 and 1.17, bfloat16 3.1 and 1.07, dense and of 4 and 16 groups alike.
"""

from __future__ import annotations

from typing import NamedTuple

LEAST = 350_000
"""Multiply-adds below which nothing is gained, but for depthwise layers: with 0 to 350,000, backward passes of MobileNetV2 and ResNet with small images take the same time.

Where the way leads through Python (`_boxed`), a layer that is declined takes PyTorch 25 to 90 us longer within such steps than one that gradops
is not asked about. So taking it wins long before the kernel alone does: both gradients of 1x1 layers of 0.5 to 2 million ran at 1.4 to 1.7
times PyTorch's speed where they were taken, and at 0.7 to 0.8 where they were declined (float32, Zen 4).
"""


MOST_HEAD_OUTPUTS = 24
"""Of the filters named last, in a group."""


class Layer(NamedTuple):
    """A convolution as the rules see it; of a transposed one, that whose input gradient it is.

    `channels` and `outputs` are those of a group, `plane` the pixels of each of the input images, `work` the multiply-adds. `whole` says whether there is
    a pixel for each row and column of taps, `tiled` whether the CPU multiplies tiles of its dtype, `widened` whether it has to multiply float32 instead.
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
    whole: bool
    work: int
    tiled: bool
    widened: bool

    @property
    def filter(self) -> int:
        """Elements of a group's filter, tap by tap."""
        return self.channels * self.outputs

    @property
    def pixels(self) -> int:
        """Pixels that are computed, of all images."""
        return self.work // (self.groups * self.filter * self.taps[0] * self.taps[1])

    @property
    def pointwise(self) -> bool:
        """1x1 with stride 1."""
        return self.taps == self.stride == (1, 1)

    @property
    def patches(self) -> bool:
        """Windows of several pixels that lie side by side."""
        return self.taps == self.stride and max(self.taps) > 1

    @property
    def embedding(self) -> bool:
        """Patches of few channels and many taps, whose windows `conv` copies row by row."""
        windows = self.patches and self.taps[1] >= 8 and 128 < self.taps[0] * self.taps[1] <= 256
        return windows and self.kind == "dense" and self.channels <= 4 and not self.channels_last

    @property
    def head(self) -> bool:
        """Few outputs of more inputs, which exchange their images for the gradient of the filter."""
        few = self.outputs < self.channels and self.outputs <= MOST_HEAD_OUTPUTS and self.kind != "transposed"
        return few and not self.strided and max(self.taps) > 1

    @property
    def strided(self) -> bool:
        """Pixels between those that are computed."""
        return max(self.stride) > 1

    @property
    def exchanged(self) -> bool:
        """Groups of few inputs and as many outputs, which change places within a vector."""
        return self.channels == self.outputs and self.channels in (2, 4, 8)

    @property
    def dense_taps(self) -> bool:
        """3x3 with stride 1, for which Winograd's algorithm saves products."""
        return self.taps == (3, 3) and self.stride == (1, 1)

    @property
    def windows(self) -> bool:
        """4x4 to 7x7, or to 6x6 with stride 2, for which it saves them, too."""
        steps = self.stride in ((1, 1), (2, 2)) and self.dilation == (1, 1)
        return steps and min(self.taps) >= 4 and max(self.taps) <= (6 if self.strided else 7)

    @property
    def copied_for_many(self) -> bool:
        """Whether copying the filter into another order, if it is, is little beside what is computed."""
        return self.channels_last or 4 * self.pixels >= self.filter


def wins(layer: Layer, gradient: str) -> bool:
    """Whether gradops computes the gradient, of "input" or "filter", in less time than PyTorch."""
    of_filter = gradient == "filter"
    if layer.channels == 1 and layer.groups > 1:
        if layer.kind == "transposed":
            return of_filter or layer.dtype == "float64"
        return _DEPTHWISE[layer.dtype](layer, of_filter)
    tiled = layer.tiled and layer.kind != "transposed"
    heads = of_filter and layer.head and not tiled
    rule = _always if layer.widened or heads else _tiled if tiled else _OTHERS[layer.dtype]
    return layer.work >= LEAST and rule(layer, of_filter)


def _always(layer: Layer, of_filter: bool) -> bool:
    return True


def _depthwise_float32(layer: Layer, of_filter: bool) -> bool:
    if layer.work < 100_000 or max(layer.dilation) > 1:
        return True
    return of_filter or layer.outputs == 1


def _depthwise_bfloat16(layer: Layer, of_filter: bool) -> bool:
    return of_filter or layer.outputs == 1


def _float64(layer: Layer, of_filter: bool) -> bool:
    return layer.kind != "transposed" or not of_filter


def _float32(layer: Layer, of_filter: bool) -> bool:
    gradient = "filter" if of_filter else "input"
    if layer.kind != "dense":
        return (_grouped_float32 if layer.kind == "grouped" else _transposed_float32)(layer, of_filter)
    if layer.pointwise:
        return of_filter or layer.plane >= 100 or layer.outputs < 2048
    if layer.taps == (1, 1):
        return True
    if of_filter and layer.embedding:
        return layer.taps[1] % 16 == 0
    if layer.channels <= (4 if of_filter else 8):
        small = layer.patches and layer.taps == (4, 4)
        return not of_filter or layer.channels_last or max(layer.stride) <= 2 or small
    if layer.windows:
        return layer.copied_for_many
    if _turns_too_much(layer, gradient):
        return False
    if keeps_order(layer, "filter") and layer.pixels < LEAST_KEPT_PIXELS[layer.strided]:
        return layer.plane > 1 and not (of_filter and layer.images == 1)
    if layer.dense_taps:
        return (layer.dilation == (1, 1) or layer.channels >= 64) and layer.outputs >= 8
    as_it_is = layer.channels_last or keeps_order(layer, gradient)
    known = as_it_is or (layer.channels >= 512 if of_filter else min(layer.taps) > 1)
    return known and layer.channels >= 64 and max(layer.taps) <= 3


def _transposed_float32(layer: Layer, of_filter: bool) -> bool:
    saves = layer.windows or (layer.dense_taps and layer.dilation == (1, 1))
    many = of_filter and layer.channels_last and min(layer.channels, layer.outputs) >= 64
    return many or (saves and layer.copied_for_many)


LEAST_KEPT, MOST_KEPT_PIXELS, LEAST_KEPT_PIXELS = 1 << 14, 1600, {False: 36, True: 16}
"""Numbers of a filter, tap by tap, from which on the gradients of dense 3x3 taps are written, and pixels of all images up to which those with stride 1 are
read, as PyTorch has them, taps innermost: each block of pixels takes the filter's taps apart again, while gradients are put together once.

Time with copies in another order over that without, both gradients, 2 threads of a Zen 4: 512 channels, 8 pixels 1.7, 32 2.4, 49 1.9, 392 1.15, 1568
1.0; 256 channels, 36 pixels 1.4, 196 1.15, 784 1.2, 1568 1.2; 128 channels, 128 pixels 1.5, 1568 0.95, 6272 0.8. Below the last numbers, without a stride and
with, PyTorch computes the filter's gradient of a single image in 0.4 to 1.0 of our time, and those of images of one pixel. With stride 2, PyTorch's time over ours
of the filter's gradient alone: 512 channels, 9 pixels 0.4 to 1.0, of two images, 8 pixels 1.8 to 2.6, 392 1.1 (with copies 0.9 to 1.0); 256 channels, 16 pixels of
one image 0.9, 64 of four 4, 196 1.2, 1568 1.05 to 1.1; 128 channels, 64 pixels 1.7, 784 1.05 to 1.25, 6272 1.0 to 1.05.
"""


def keeps_order(layer: Layer, gradient: str) -> bool:
    """Whether a filter is read as PyTorch has it, for the gradient of the "input", or its own, of the "filter", is written so: neither is copied then."""
    if gradient == "filter" and layer.embedding:
        return layer.whole
    dense = layer.kind == "dense" and layer.taps == (3, 3) and layer.dilation == (1, 1) and layer.filter >= LEAST_KEPT
    real = layer.dtype in ("float32", "float64") and not layer.channels_last
    if not (dense and real):
        return False
    if gradient == "filter":
        return layer.dense_taps or layer.whole
    return layer.dense_taps and layer.pixels <= MOST_KEPT_PIXELS


def _turns_too_much(layer: Layer, gradient: str) -> bool:
    """Filters of several taps that are copied into another order for few pixels: 512x512 for 100 pixels ran at 0.66 of PyTorch's speed, for 392 at 1.1."""
    least = 512 if layer.strided else layer.filter >> 10
    return (
        not (layer.channels_last or keeps_order(layer, gradient))
        and layer.filter >= LEAST_KEPT
        and layer.pixels < least
    )


def _grouped_float32(layer: Layer, of_filter: bool) -> bool:
    if layer.exchanged:
        return True
    if layer.pointwise:
        return of_filter or not layer.channels_last
    if not layer.channels_last and layer.filter <= 128:
        return True
    if layer.taps != (3, 3) or layer.dilation != (1, 1):
        return False
    fewest = min(layer.channels, layer.outputs)
    return fewest >= 24 or (fewest >= 16 and layer.strided and of_filter != layer.channels_last)


def _grouped_bfloat16(layer: Layer, of_filter: bool) -> bool:
    if not layer.exchanged:
        if layer.taps != (3, 3) or layer.dilation != (1, 1):
            return False
        fewest = min(layer.channels, layer.outputs)
        if of_filter and not layer.channels_last:
            return layer.strided and fewest >= 16
        return fewest >= 24 and (of_filter or layer.strided)
    if of_filter:
        return layer.channels <= 4 or layer.strided or not layer.channels_last
    if layer.pointwise:
        return not layer.channels_last
    return layer.channels <= 4 and not (layer.strided and layer.channels_last)


def _narrowing(layer: Layer) -> bool:
    """1x1 of large images to fewer channels, and few."""
    large = layer.pointwise and layer.channels_last and layer.plane >= 3136
    return large and layer.channels >= 2 * layer.outputs and layer.outputs < 32


def _bfloat16(layer: Layer, of_filter: bool) -> bool:
    if layer.kind == "grouped":
        return _grouped_bfloat16(layer, of_filter)
    if layer.kind != "dense":
        return False
    if layer.pointwise:
        return of_filter or not (_narrowing(layer) or layer.filter >= 2_000_000)
    if layer.taps == (1, 1):
        return True
    if layer.channels <= 8:
        return not of_filter or (layer.channels_last and layer.patches) or max(layer.taps) <= 7 or layer.embedding
    if layer.dense_taps:
        return of_filter and layer.channels_last and min(layer.channels, layer.outputs) >= 512
    if layer.channels_last:
        return layer.patches or max(layer.taps) <= 3
    if of_filter:
        return layer.taps == layer.stride == (2, 2)
    return layer.taps in ((2, 2), (3, 3)) and layer.stride == (2, 2) and layer.plane >= 784


def _tiled(layer: Layer, of_filter: bool) -> bool:
    """bfloat16 where tiles are multiplied."""
    fewest = min(layer.channels, layer.outputs)
    if layer.kind == "grouped":
        return _grouped_tiled(layer, of_filter, fewest)
    if layer.taps == (1, 1):
        return of_filter or not _narrowing(layer)
    if layer.channels <= 8:
        long = max(layer.taps) > 3 and layer.channels <= 4
        return not (of_filter and layer.channels_last) or layer.patches or long
    if layer.patches:
        return not of_filter or layer.channels >= 192
    if max(layer.taps) > 3 or max(layer.dilation) > 1:
        return of_filter or not layer.channels_last
    if not layer.channels_last:
        return of_filter or fewest < 512
    if layer.strided:
        return fewest >= (256 if of_filter else 128)
    return of_filter or fewest >= 512 or layer.plane * fewest <= 200_704 or max(layer.channels, layer.outputs) <= 64


def _grouped_tiled(layer: Layer, of_filter: bool, fewest: int) -> bool:
    if layer.taps != (3, 3) or layer.dilation != (1, 1):
        return _grouped_bfloat16(layer, of_filter)
    if not layer.channels_last:
        return fewest <= 16 or layer.strided
    return fewest <= 8 or (fewest <= 16 and layer.strided and not of_filter)


_DEPTHWISE = {
    "float16": _always,
    "float64": _always,
    "float32": _depthwise_float32,
    "bfloat16": _depthwise_bfloat16,
}
_OTHERS = {"float16": _always, "float64": _float64, "float32": _float32, "bfloat16": _bfloat16}
