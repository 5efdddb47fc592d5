"""gradops.torch: the gradients of PyTorch's own kernels, wherever they are asked for, and functions of gradops' own."""

import doctest
import importlib.util
import inspect
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from math import prod
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.9", reason="PyTorch of at least 2.9 is not installed")

import gradops.torch as gt  # noqa: E402
from gradops import _threads  # noqa: E402
from gradops._algorithms import ALGORITHMS  # noqa: E402
from gradops._kernels import torch_convolution  # noqa: E402
from gradops.testing import LEVELS, forced, runnable  # noqa: E402
from gradops.torch import _boxed, _override, _stable  # noqa: E402
from gradops.torch._case import meets_all  # noqa: E402
from gradops.torch._override import KINDS  # noqa: E402
from gradops.torch._table import (  # noqa: E402
    LEAST,
    LEAST_KEPT,
    LEAST_KEPT_PIXELS,
    MOST_HEAD_OUTPUTS,
    MOST_KEPT_PIXELS,
    Layer,
    keeps_order,
    wins,
)

nn, functional = torch.nn, torch.nn.functional
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
FUNCTIONS = {False: functional.conv2d, True: functional.conv_transpose2d}

# transposed, images, filter, and the rest of the arguments
CASES = {
    "3x3": (False, (2, 16, 13, 17), (24, 16, 3, 3), {"padding": 1}),
    "3x3-strided": (False, (2, 16, 13, 17), (24, 16, 3, 3), {"padding": 1, "stride": 2}),
    "1x1": (False, (2, 16, 13, 17), (24, 16, 1, 1), {}),
    "1x1-strided": (False, (2, 16, 13, 17), (24, 16, 1, 1), {"stride": (2, 1)}),
    "stem": (False, (2, 3, 33, 33), (24, 3, 7, 7), {"stride": 2, "padding": 3}),
    "patches": (False, (2, 16, 16, 16), (24, 16, 2, 2), {"stride": 2}),
    "embedding": (False, (2, 3, 48, 66), (24, 3, 16, 16), {"stride": 16}),
    "one-column": (False, (2, 16, 16, 1), (24, 16, 3, 1), {"stride": (2, 1)}),
    "one-channel": (False, (2, 1, 9, 8), (1, 1, 3, 3), {"padding": 1}),
    "one-pixel": (False, (3, 16, 1, 1), (24, 16, 1, 1), {}),
    "asymmetric": (False, (1, 5, 12, 9), (7, 5, 2, 5), {"padding": (1, 2), "dilation": (3, 1), "stride": (1, 2)}),
    "grouped": (False, (2, 16, 13, 17), (24, 4, 3, 3), {"padding": 1, "groups": 4, "dilation": 2}),
    "depthwise": (False, (2, 17, 13, 17), (17, 1, 3, 3), {"padding": 1, "groups": 17}),
    "depthwise-strided": (False, (2, 16, 13, 17), (16, 1, 5, 5), {"padding": 2, "groups": 16, "stride": 2}),
    "multiplied": (False, (2, 6, 13, 17), (18, 1, 7, 7), {"padding": 3, "groups": 6}),
    "transposed": (True, (2, 16, 7, 9), (16, 24, 3, 3), {"padding": 1, "stride": 2, "output_padding": 1}),
    "windows": (False, (3, 32, 13, 11), (40, 32, 5, 4), {"padding": (2, 1), "stride": 2}),
    "transposed-windows": (True, (2, 40, 7, 9), (40, 32, 4, 6), {"padding": (1, 2), "stride": 2}),
    "transposed-grouped": (True, (2, 16, 7, 9), (16, 6, 4, 4), {"padding": 1, "stride": 2, "groups": 4}),
    "transposed-depthwise": (True, (2, 16, 7, 9), (16, 1, 4, 4), {"stride": 2, "groups": 16, "dilation": 2}),
    "split": (False, (8, 64, 56, 56), (64, 64, 1, 1), {}),
    "winograd": (False, (4, 64, 28, 28), (72, 64, 3, 3), {"padding": 1}),
    "taps-innermost": (False, (2, 120, 6, 7), (140, 120, 3, 3), {"padding": 1}),
}
EVERY_CASE = pytest.mark.parametrize("name", CASES)
WAYS = {"stable": _stable, "boxed": _boxed}
STABLE = pytest.mark.skipif(not _stable.available(), reason=f"PyTorch {torch.__version__} lacks what is called")
BOTH_WAYS = pytest.mark.usefixtures("way")
"""Both registrations, whichever PyTorch this is."""


@pytest.fixture(autouse=True)
def as_it_was():
    """Leave nothing enabled."""
    yield
    gt.disable()


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Have `enable` register the kernel over PyTorch's C interface, or that in Python."""
    if request.param == "stable" and not _stable.available():
        pytest.skip(f"PyTorch {torch.__version__} lacks what the kernel over its C interface calls")
    monkeypatch.setattr(_override, "_register", WAYS[request.param].Registration)
    return request.param


def operands(name, dtype=torch.float32, image_format="contiguous", filter_format="contiguous"):
    """Draw images, a filter and a gradient for what they give, and return the convolution as a function."""
    transposed, image, taps, how = CASES[name]
    generator = torch.Generator().manual_seed(len(name))
    x, w = (torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in (image, taps))
    x = x.contiguous(memory_format=FORMATS[image_format]).requires_grad_()
    w = w.contiguous(memory_format=FORMATS[filter_format]).requires_grad_()

    def convolve(x, w):
        return FUNCTIONS[transposed](x, w, **how)

    with torch.no_grad():
        y = convolve(x, w)
    dy = torch.empty_like(y).copy_(torch.randn(y.shape, generator=generator, dtype=torch.float64))
    return convolve, x, w, dy


def gradients(convolve, x, w, dy, **options):
    return torch.autograd.grad(convolve(x, w), (x, w), dy, **options)


def close(got, expected, dtype):
    """Both of one shape and within the dtype's tolerance of the largest element."""
    assert got.shape == expected.shape
    assert got.dtype == dtype
    assert expected.count_nonzero() > 0.05 * expected.numel()
    apart = (got.double() - expected.double()).abs().max() / expected.double().abs().max()
    assert apart <= TOLERANCE[dtype], f"{apart:.2g} apart"


def check(name, dtype, image_format, filter_format):
    convolve, x, w, dy = operands(name, dtype, image_format, filter_format)
    native = gradients(convolve, x, w, dy)
    wide = [tensor.detach().double().requires_grad_() for tensor in (x, w)]
    expected = gradients(convolve, *wide, dy.double())
    with gt.enabled("all"):
        got = gradients(convolve, x, w, dy)
        assert gt.stats() == ({"input": 1, "filter": 1}, {})
    for mine, theirs, right in zip(got, native, expected, strict=True):
        close(mine, right, dtype)
        sizes = mine.shape
        assert [s for s, n in zip(mine.stride(), sizes, strict=True) if n > 1] == [
            s for s, n in zip(theirs.stride(), sizes, strict=True) if n > 1
        ], "memory format"


@BOTH_WAYS
@EVERY_CASE
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_are_those_of_pytorch_in_its_memory_format(name, dtype):
    for image_format, filter_format in itertools.product(FORMATS, repeat=2):
        check(name, dtype, image_format, filter_format)


def layer(w, pixels=(1, 8, 8), **changed):
    """A dense float32 layer in the default layout, with a filter's shape and so many pixels in and out."""
    call = {"dtype": "float32", "channels_last": False, "kind": "dense", "groups": 1, "stride": (1, 1)}
    k, c, r, s = w
    given = {"channels": c, "outputs": k, "taps": (r, s), "dilation": (1, 1)}
    image = {"images": pixels[0], "plane": prod(pixels[1:]), "whole": True}
    return Layer(**call | given | image | {"work": prod(pixels) * prod(w), "tiled": False, "widened": False} | changed)


def test_large_filters_for_few_pixels_are_not_copied():
    large = (LEAST_KEPT // 128, 128, 3, 3)
    both = "input", "filter"
    assert all(keeps_order(layer(large), gradient) and wins(layer(large), gradient) for gradient in both)
    single = layer(large, (1, 1, LEAST_KEPT_PIXELS[False] - 1))
    assert keeps_order(single, "input") and wins(single, "input") and not wins(single, "filter")
    assert wins(layer(large, (2, 1, LEAST_KEPT_PIXELS[False] // 2 - 1)), "filter")
    assert not wins(layer(large, (30, 1, 1)), "input")
    assert keeps_order(layer(large, (1, 1, MOST_KEPT_PIXELS), dtype="float64"), "input")
    many = layer(large, (1, 1, MOST_KEPT_PIXELS + 1))
    assert not keeps_order(many, "input") and keeps_order(many, "filter")
    strided = layer(large, stride=(2, 2))
    assert not keeps_order(strided, "input") and keeps_order(strided, "filter") and wins(strided, "filter")
    assert not keeps_order(strided._replace(whole=False), "filter")
    for gradient in both:
        assert not keeps_order(layer((LEAST_KEPT // 128 - 1, 128, 3, 3)), gradient)
        for changed in {"channels_last": True}, {"dtype": "bfloat16"}, {"dilation": (2, 2)}:
            assert not keeps_order(layer(large, **changed), gradient)


def test_filters_of_heads_are_taken():
    for shape, groups in ((1, 64, 3, 3), 1), ((MOST_HEAD_OUTPUTS, 25, 1, 7), 1), ((3, 17, 5, 5), 4):
        head = layer(shape, (2, 28, 28), groups=groups, kind="dense" if groups == 1 else "grouped")
        for dtype, channels_last in itertools.product(("float32", "float64", "float16", "bfloat16"), (False, True)):
            assert wins(head._replace(dtype=dtype, channels_last=channels_last), "filter")
    wide, small = layer((MOST_HEAD_OUTPUTS + 1, 64, 1, 7), (2, 28, 28)), layer((6, 64, 3, 3), (2, 28, 28))
    for other in wide, small._replace(stride=(2, 2)):
        assert not (other.head or wins(other, "filter"))
    assert wins(small, "filter") and not small._replace(kind="transposed").head


def test_filters_of_patch_embeddings_are_written_as_pytorch_has_them():
    first = layer((768, 3, 16, 16), (8, 14, 14), stride=(16, 16))
    for dtype in "float32", "bfloat16":
        assert keeps_order(first._replace(dtype=dtype), "filter") and wins(first._replace(dtype=dtype), "filter")
    fourteen = first._replace(taps=(14, 14), stride=(14, 14))
    assert not wins(fourteen, "filter") and wins(fourteen._replace(dtype="bfloat16"), "filter")
    for changed in {"taps": (8, 8), "stride": (8, 8)}, {"stride": (8, 8)}, {"channels": 5}, {"channels_last": True}:
        assert not keeps_order(first._replace(**changed), "filter")
    assert not keeps_order(first._replace(whole=False), "filter") and not keeps_order(first, "input")


def test_filters_of_first_layers_are_taken_but_for_large_strides_without_small_patches():
    first = layer((96, 3, 4, 4), (8, 56, 56), stride=(4, 4))
    large = {"taps": (11, 11)}, {"taps": (3, 3), "stride": (3, 3)}, {"taps": (8, 8), "stride": (8, 8)}
    assert wins(first, "filter") and wins(first._replace(stride=(2, 2)), "filter")
    assert not any(wins(first._replace(**changed), "filter") for changed in large)
    assert all(wins(first._replace(channels_last=True, **changed), "filter") for changed in large)


def test_larger_filters_of_which_products_are_saved_are_taken_where_copying_them_is_little():
    taken = layer((128, 128, 5, 5), (4, 32, 32))
    few = layer((128, 128, 5, 5), (1, 32, 32))
    for gradient in "input", "filter":
        assert all(wins(taken._replace(kind=kind, stride=(2, 2)), gradient) for kind in ("dense", "transposed"))
        assert wins(taken, gradient) and wins(taken._replace(taps=(4, 7), work=taken.work * 28 // 25), gradient)
        assert not wins(few, gradient) and wins(few._replace(channels_last=True), gradient)
        for changed in {"taps": (4, 8)}, {"taps": (7, 7), "stride": (2, 2)}, {"stride": (3, 3)}, {"dilation": (2, 2)}:
            assert not wins(taken._replace(**changed), gradient)
    same = layer((64, 64, 3, 3), (8, 28, 28), kind="transposed")
    assert wins(same, "input") and not wins(same._replace(stride=(2, 2)), "input")


def test_all_of_bfloat16_is_taken_but_small_layers_where_it_is_widened():
    paired = layer((128, 128, 3, 3), (8, 28, 28), dtype="bfloat16")
    assert not wins(paired, "input") and not wins(paired._replace(kind="transposed"), "filter")
    widened = paired._replace(widened=True)
    for kind, gradient in itertools.product(("dense", "grouped", "transposed"), ("input", "filter")):
        assert wins(widened._replace(kind=kind, groups=4 if kind == "grouped" else 1), gradient)
        assert not wins(widened._replace(kind=kind, work=LEAST - 1), gradient)


@pytest.mark.parametrize("size", range(1, 6))
def test_each_tap_meets_a_pixel_or_not(size):
    for taps, stride, padding, dilation in itertools.product((1, 2, 3, 5), (1, 2, 3), (0, 1, 3), (1, 2)):
        out = (size + 2 * padding - (taps - 1) * dilation - 1) // stride + 1
        reads = [[0 <= at * stride - padding + tap * dilation < size for at in range(out)] for tap in range(taps)]
        assert meets_all(size, out, taps, stride, padding, dilation) == all(map(any, reads))


@EVERY_CASE
@pytest.mark.parametrize("level", LEVELS)
def test_every_level_reads_and_writes_pytorchs_filters(name, level):
    if not runnable(level):
        pytest.skip(f"this CPU does not run {level}")
    with forced(level):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            check(name, dtype, "contiguous", "contiguous")
            check(name, dtype, "channels_last", "channels_last")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@EVERY_CASE
def test_every_algorithm_reads_and_writes_pytorchs_filters(name, algorithm):
    with forced(algorithm=algorithm):
        check(name, torch.float32, "channels_last", "contiguous")
        check(name, torch.float32, "contiguous", "channels_last")


@BOTH_WAYS
@EVERY_CASE
def test_only_what_is_asked_for_is_computed(name):
    convolve, x, w, dy = operands(name)
    with gt.enabled("all"):
        both = gradients(convolve, x, w, dy)
        (dx,) = torch.autograd.grad(convolve(x, w.detach()), x, dy)
        assert gt.stats().taken == {"input": 2, "filter": 1}
        (dw,) = torch.autograd.grad(convolve(x.detach(), w), w, dy)
        assert gt.stats().taken == {"input": 2, "filter": 2}
    assert torch.equal(dx, both[0])
    assert torch.equal(dw, both[1])


@BOTH_WAYS
def test_the_gradient_of_a_bias_is_the_sum():
    layer, x = nn.Conv2d(3, 8, 3), torch.randn(2, 3, 9, 9)
    expected = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
    with gt.enabled("all"):
        got = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
        assert gt.stats().taken == {"filter": 1}
        layer.weight.requires_grad_(False)
        (alone,) = torch.autograd.grad(layer(x).square().sum(), [layer.bias])
        assert gt.stats().taken == {"filter": 1}
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(alone, expected[1])


@BOTH_WAYS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("taken", ["all", ("grouped",)])
def test_the_gradient_of_a_bias_of_many_pixels_is_rounded_once(dtype, memory_format, taken):
    layer = nn.Conv2d(4, 48, 1).to(dtype).to(memory_format=memory_format)
    x = torch.randn(3, 4, 131, 127).to(dtype).to(memory_format=memory_format)
    dy = torch.randn(3, 48, 131, 127).to(dtype).to(memory_format=memory_format)
    with gt.enabled(taken):
        (got,) = torch.autograd.grad(layer(x), [layer.bias], dy)
        _, beside = torch.autograd.grad(layer(x), [layer.weight, layer.bias], dy)
    expected = dy.double().sum((0, 2, 3))
    for sums in (got, beside):
        torch.testing.assert_close(sums.double(), expected, rtol=2**-8, atol=0.05)
        assert sums.dtype is dtype


@BOTH_WAYS
def test_an_expanded_gradient_is_read_right():
    convolve, x, w, _ = operands("3x3")
    expected = torch.autograd.grad(convolve(x, w).sum(), (x, w))
    with gt.enabled("all"):
        got = torch.autograd.grad(convolve(x, w).sum(), (x, w))
        assert gt.stats().taken
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@BOTH_WAYS
def test_slices_of_larger_tensors_are_read_right():
    x = torch.randn(2, 20, 15, 14)[:, 1:17, 1:-1, ::2].requires_grad_()
    w = torch.randn(9, 24, 3, 3)[:8, 8:].requires_grad_()
    dy = torch.randn(2, 8, 11, 10)[..., ::2]
    expected = gradients(functional.conv2d, x, w, dy)
    with gt.enabled("all"):
        got = gradients(functional.conv2d, x, w, dy)
        assert gt.stats().taken == {"input": 1, "filter": 1}
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@BOTH_WAYS
@pytest.mark.parametrize("name", ["3x3", "taps-innermost"])
def test_infinities_go_where_their_products_go(name):
    convolve, x, w, dy = operands(name, torch.float64)
    dy[0, 0, 0, 0], dy[1, 3, 5, 5] = float("inf"), float("nan")
    expected = gradients(convolve, x, w, dy)
    with gt.enabled("all"):
        got = gradients(convolve, x, w, dy)
        assert gt.stats().taken
    finite = expected[0].isfinite()
    assert 0 < finite.sum() < finite.numel()
    # PyTorch's own padding spreads them by products with zeros; whatever is finite there is the same here.
    torch.testing.assert_close(got[0][finite], expected[0][finite])


@BOTH_WAYS
def test_large_results_lie_in_memory_that_is_kept():
    x, w = torch.randn(4, 96, 160, 160).requires_grad_(), torch.randn(96, 1, 3, 3)
    dy = torch.randn(4, 96, 160, 160)
    for memory_format in FORMATS.values():
        image = x.detach().contiguous(memory_format=memory_format).requires_grad_()
        (expected,) = torch.autograd.grad(functional.conv2d(image, w, padding=1, groups=96), image, dy)
        with gt.enabled("all"):
            for _ in range(2):
                (got,) = torch.autograd.grad(functional.conv2d(image, w, padding=1, groups=96), image, dy)
        assert got.nbytes > 2**25
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


# What is declined


def declined(function):
    """Call it natively and enabled; the results have to be the same to the last bit. Return the reasons."""
    expected = function()
    with gt.enabled("all"):
        got = function()
        found = gt.stats()
    assert not found.taken
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    return found.declined


@BOTH_WAYS
def test_convolutions_of_other_ranks_are_left_to_pytorch():
    for dims, function in ((1, functional.conv1d), (3, functional.conv3d)):
        x = torch.randn(2, 3, *[6] * dims, requires_grad=True)
        w = torch.randn(4, 3, *[3] * dims, requires_grad=True)
        assert declined(lambda x=x, w=w, f=function: torch.autograd.grad(f(x, w).square().sum(), (x, w))) == {
            "not 2-d": 2
        }


@BOTH_WAYS
def test_complex_numbers_are_left_to_pytorch():
    x = torch.randn(2, 3, 6, 6, dtype=torch.complex64, requires_grad=True)
    w = torch.randn(4, 3, 3, 3, dtype=torch.complex64, requires_grad=True)
    with gt.enabled("all"):
        got = torch.autograd.grad(functional.conv2d(x, w).abs().sum(), (x, w))
    expected = torch.autograd.grad(functional.conv2d(x, w).abs().sum(), (x, w))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


@BOTH_WAYS
def test_empty_batches_are_left_to_pytorch():
    x = torch.randn(0, 3, 6, 6, requires_grad=True)
    w = torch.randn(4, 3, 3, 3, requires_grad=True)
    assert declined(lambda: torch.autograd.grad(functional.conv2d(x, w).sum(), (x, w))) == {"empty": 2}


@BOTH_WAYS
def test_output_padding_beyond_the_stride_is_left_to_pytorch():
    x = torch.randn(1, 4, 5, 5, requires_grad=True)
    w = torch.randn(4, 3, 3, 3, requires_grad=True)
    how = {"stride": 2, "dilation": 3, "output_padding": 2}
    reasons = declined(lambda: torch.autograd.grad(functional.conv_transpose2d(x, w, **how).square().sum(), (x, w)))
    assert sum(reasons.values()) == 2


@BOTH_WAYS
def test_wrong_shapes_are_pytorchs_own_errors():
    op = torch.ops.aten.convolution_backward
    given = (torch.ones(1, 4, 9, 9), torch.ones(1, 3, 6, 6), torch.ones(4, 3, 3, 3), None, [1, 1], [0, 0], [1, 1])
    rest = (False, [0, 0], 1, [True, True, False])
    with pytest.raises(RuntimeError) as native:
        op(*given, *rest)
    with gt.enabled("all"), pytest.raises(RuntimeError) as enabled:
        op(*given, *rest)
    assert str(enabled.value) == str(native.value)


@BOTH_WAYS
@pytest.mark.parametrize(("name", "reason"), [("one-channel", "too little work"), ("transposed", "PyTorch is as fast")])
def test_what_pytorch_does_as_fast_is_left_to_it_by_auto(name, reason):
    convolve, x, w, dy = operands(name)
    expected = gradients(convolve, x, w, dy)
    with gt.enabled():
        got = gradients(convolve, x, w, dy)
        assert gt.stats() == ({}, {reason: 2})
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


def test_counts_outlast_the_decisions(monkeypatch):
    monkeypatch.setattr(_override, "_register", _boxed.Registration)
    monkeypatch.setattr(_boxed, "MOST_CASES", 2)
    with gt.enabled("all"):
        for name in ("3x3", "1x1", "stem", "3x3", "grouped"):
            gradients(*operands(name))
        assert gt.stats() == ({"input": 5, "filter": 5}, {})


@STABLE
def test_more_kinds_of_calls_than_are_kept_are_computed_and_counted():
    op, w = torch.ops.aten.convolution_backward.default, torch.full((1, 1, 1, 1), 3.0)
    shapes = list(itertools.product((1,), (1,), range(1, 68), range(1, 68)))
    with gt.enabled("all"):
        for shape in (*shapes, *shapes[-9:]):
            x, dy = torch.full(shape, 2.0), torch.ones(shape)
            dx, dw, _ = op(dy, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
            assert torch.equal(dx, dy * 3)
            assert float(dw) == 2 * dy.numel()
        calls = len(shapes) + 9
        assert gt.stats() == ({"input": calls, "filter": calls}, {})


@STABLE
def test_a_call_that_cannot_be_planned_is_pytorchs_and_says_why(monkeypatch):
    convolve, x, w, dy = operands("3x3")
    expected = gradients(convolve, x, w, dy)

    def fail(*given):
        raise RuntimeError("planned badly")

    reported = []
    monkeypatch.setattr(_stable, "decide", fail)
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    with gt.enabled("all"):
        got = gradients(convolve, x, w, dy)
        assert gt.stats() == ({}, {})
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))
    assert [str(each.exc_value) for each in reported] == ["planned badly"]


@STABLE
def test_a_gradient_without_kept_memory_has_pytorchs(monkeypatch):
    asked = []

    def fail(size):
        asked.append(size)
        raise MemoryError

    monkeypatch.setattr(_stable, "_memory", fail)
    check("split", torch.float32, "contiguous", "contiguous")
    assert asked == [8 * 64 * 56 * 56 * 4]


@STABLE
def test_pytorchs_c_interface_is_declared_as_in_its_headers():
    """Of each function the same kinds of arguments, in the order of what is looked up."""
    include = Path(torch.__file__).parent / "include" / "torch" / "csrc"
    names = ("inductor/aoti_torch/c/shim.h", "inductor/aoti_torch/generated/c_shim_cpu.h", "stable/c/shim.h")
    headers = "".join(re.sub(r"//.*", "", (include / name).read_text()) for name in names)
    pxd = Path(__file__).parents[1] / "src" / "gradops" / "_kernels" / "_torch.pxd"
    table = pxd.read_text().partition("cdef struct Torch:")[2]
    declared = re.findall(r"^    .*?\(\*(\w+)\)\((.*)\) noexcept", table, re.MULTILINE)
    assert [name for name, _ in declared][:-1] == list(torch_convolution.SYMBOLS)[:-1]
    for name, arguments in declared[:-1]:
        (prototype,) = re.findall(rf"\b{name}\(([^;]*)\);", headers)
        assert kinds(arguments) == kinds(prototype), name


def kinds(arguments):
    """What arguments are passed as: pointers, or numbers of some type."""
    plain = re.sub(r"\(\s*\*\s*\w+\)\([^)]*\)", "*", arguments.replace("noexcept nogil", ""))  # callbacks
    found = []
    for argument in filter(str.strip, plain.split(",")):
        pointer = "*" in argument or re.search(r"Handle|Tensor|List|Library|kernel_t", argument)
        found.append("pointer" if pointer else re.sub("Value|StableIValue", "uint64_t", argument.split()[0]))
    return found


@BOTH_WAYS
@pytest.mark.parametrize(
    "wrong",
    [{"stride": [0, 0]}, {"stride": [1, 0]}, {"stride": [-1, -1]}, {"dilation": [0, 0]}, {"groups": 0}, {"groups": -1}],
    ids=str,
)
def test_what_is_no_convolution_is_pytorchs_error(wrong, capfd):
    given = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1} | wrong
    tensors = torch.ones(1, 4, 6, 6), torch.ones(1, 4, 6, 6), torch.ones(4, 4, 3, 3)

    def call():
        rest = given["stride"], given["padding"], given["dilation"], False, [0, 0], given["groups"], [True, True, False]
        with pytest.raises(RuntimeError) as raised:
            torch.ops.aten.convolution_backward(*tensors, None, *rest)
        return str(raised.value).splitlines()[0]

    expected = call()
    with gt.enabled("all"):
        assert call() == expected
        assert gt.stats() == ({}, {"not a stride, dilation or number of groups": 2})
    assert "Traceback" not in capfd.readouterr().err


@BOTH_WAYS
def test_auto_takes_one_gradient_and_leaves_the_other():
    x = torch.randn(8, 64, 14, 14, requires_grad=True)
    w = torch.randn(128, 64, 3, 3, requires_grad=True)
    dy = torch.randn(8, 128, 7, 7)

    def convolve(x, w):
        return functional.conv2d(x, w, stride=2, padding=1)

    expected = gradients(convolve, x, w, dy)
    with gt.enabled():
        got = gradients(convolve, x, w, dy)
        assert gt.stats() == ({"input": 1}, {"PyTorch is as fast": 1})
    close(got[0], expected[0], torch.float32)
    assert torch.equal(got[1], expected[1])


@pytest.mark.parametrize(
    ("images", "outputs", "taps", "stride", "layout", "taken"),
    [
        ((1, 32, 16, 16), 48, 1, 1, torch.contiguous_format, ("input", "filter")),
        ((1, 32, 16, 16), 32, 1, 1, torch.contiguous_format, ()),  # too little work
        ((1, 256, 8, 8), 256, 3, 1, torch.contiguous_format, ("input", "filter")),
        ((1, 256, 8, 7), 256, 3, 1, torch.contiguous_format, ("input", "filter")),  # the filter is not copied
        ((1, 256, 8, 7), 256, 3, 1, torch.channels_last, ("input", "filter")),
        ((4, 128, 20, 20), 128, 3, 2, torch.contiguous_format, ("filter",)),  # is copied; its gradient is not
        ((4, 96, 20, 20), 96, 3, 2, torch.contiguous_format, ("input",)),  # few are copied
    ],
)
def test_auto_weighs_work_and_pixels(images, outputs, taps, stride, layout, taken):
    x = torch.randn(images).contiguous(memory_format=layout).requires_grad_()
    w = torch.randn(outputs, images[1], taps, taps).contiguous(memory_format=layout).requires_grad_()
    with gt.enabled():
        functional.conv2d(x, w, stride=stride, padding=taps // 2).sum().backward()
        assert gt.stats().taken == dict.fromkeys(taken, 1)
        assert sum(gt.stats().declined.values()) == 2 - len(taken)


@BOTH_WAYS
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_can_be_chosen(kind):
    of_kind = {"dense": "3x3", "depthwise": "depthwise", "grouped": "grouped", "transposed": "transposed"}
    with gt.enabled([kind]):
        for name in of_kind.values():
            gradients(*operands(name))
        assert gt.stats() == ({"input": 1, "filter": 1}, {"not asked for": 6})


@BOTH_WAYS
def test_declining_costs_microseconds():
    """The bar is 8 us on an idle machine; a test may meet a busy one. On one thread: to wake another takes PyTorch 1 us or 100."""
    given = (torch.ones(1, 2, 4, 4), torch.ones(1, 2, 4, 4), torch.ones(2, 2, 1, 1), [2], [1, 1], [0, 0], [1, 1])
    rest = (False, [0, 0], 1, [True, True, True])
    op, threads = torch.ops.aten.convolution_backward.default, torch.get_num_threads()

    def seconds():
        begin = time.perf_counter()
        for _ in range(300):
            op(*given, *rest)
        return (time.perf_counter() - begin) / 300

    torch.set_num_threads(1)
    try:
        native, declined = [], []
        for _ in range(15):  # turn by turn
            native.append(seconds())
            with gt.enabled():
                declined.append(seconds())
        assert min(declined) - min(native) < 80e-6
    finally:
        torch.set_num_threads(threads)


# Switching


@BOTH_WAYS
def test_disabling_leaves_pytorch_as_it_was():
    convolve, x, w, dy = operands("3x3")
    expected = gradients(convolve, x, w, dy)
    gt.enable("all")
    gt.enable("all")
    gt.disable()
    gt.disable()
    assert gt.stats() == ({}, {})
    assert all(torch.equal(one, other) for one, other in zip(gradients(convolve, x, w, dy), expected, strict=True))


@BOTH_WAYS
def test_blocks_nest():
    case = operands("3x3")
    with gt.enabled("all"):
        with gt.enabled(["depthwise"]):
            gradients(*case)
            assert gt.stats().declined == {"not asked for": 2}
        gradients(*case)
        assert gt.stats() == ({"input": 1, "filter": 1}, {})
    gradients(*case)
    assert gt.stats() == ({}, {})


@pytest.mark.parametrize(
    ("ops", "error"), [("fast", ValueError), ((), ValueError), (["dense", "sparse"], ValueError), (3, TypeError)]
)
def test_bad_choices_are_refused_by_name(ops, error):
    with pytest.raises(error, match="^ops must be 'auto', 'all' or some of 'dense', 'depthwise'"):
        gt.enable(ops)
    assert gt.stats() == ({}, {})


def test_a_missing_or_old_pytorch_is_named():
    code = """
import importlib.util, sys, types
if sys.argv[1] == "missing":
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
else:
    sys.modules["torch"] = types.ModuleType("torch")
    sys.modules["torch"].__version__ = sys.argv[1]
    sys.modules["torch"].__spec__ = importlib.util.spec_from_loader("torch", None)
import gradops.torch
"""
    for given, said in (("missing", "not installed"), ("2.8.1+cpu", "found 2.8.1")):
        ran = subprocess.run([sys.executable, "-c", code, given], capture_output=True, text=True)
        assert "ImportError: gradops.torch needs PyTorch of at least 2.9, " in ran.stderr
        assert said in ran.stderr


# Where gradients are asked for


class Net(nn.Sequential):
    """A stem, a depthwise and a dense block, a transposed layer."""

    def __init__(self, dtype=torch.float32):
        super().__init__(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 5, padding=2, groups=16),
            nn.GELU(),
            nn.Conv2d(16, 24, 1),
            nn.Conv2d(24, 24, 3, padding=1, groups=3),
            nn.ReLU(),
            nn.ConvTranspose2d(24, 8, 2, 2),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(32, 10),
        )
        self.to(dtype)


def trained(model, images, labels, steps=4, rate=0.05, forward=None):
    """Train for a few steps and return the losses."""
    optimizer, losses = torch.optim.SGD(model.parameters(), rate, momentum=0.9), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy((model if forward is None else forward)(images).float(), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def batch(size=20, count=4, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, size, size, generator=generator, dtype=dtype), torch.arange(count) % 10


def fresh(cls=Net, *arguments):
    torch.manual_seed(7)
    return cls(*arguments)


@pytest.mark.filterwarnings("default")  # those of the compiler
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("layout", FORMATS)
def test_compiled_models_train_alike(backend, layout):
    images, labels = batch()
    images = images.contiguous(memory_format=FORMATS[layout])
    expected = trained(fresh().to(memory_format=FORMATS[layout]), images, labels)
    torch.compiler.reset()
    with gt.enabled("all"):
        model = fresh().to(memory_format=FORMATS[layout])
        got = trained(model, images, labels, forward=torch.compile(model, backend=backend))
        assert gt.stats().taken["filter"] >= 4 * 5
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@BOTH_WAYS
def test_gradients_of_gradients():
    for name in ("3x3-strided", "depthwise", "grouped", "transposed"):
        convolve, x, w, dy = operands(name, torch.float64)
        dy.requires_grad_()

        def penalty(convolve=convolve, x=x, w=w, dy=dy):
            dx, dw = gradients(convolve, x, w, dy, create_graph=True)
            return torch.autograd.grad(dx.square().sum() + dw.pow(3).sum(), (x, w, dy))

        expected = penalty()
        with gt.enabled("all"):
            got = penalty()
            assert not gt.stats().declined
            assert gt.stats().taken == {"input": 1, "filter": 1}
        for one, other in zip(got, expected, strict=True):
            close(one, other, torch.float64)


def test_vmap_of_grad_gives_the_gradients_of_each_image():
    model = fresh(Net, torch.float64)
    images, labels = batch(dtype=torch.float64)
    parameters = dict(model.named_parameters())

    def loss(parameters, image, label):
        return functional.cross_entropy(torch.func.functional_call(model, parameters, (image[None],)), label[None])

    def each():
        return torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, images, labels)

    expected = each()
    with gt.enabled("all"):
        got = each()
        assert gt.stats().taken["filter"] >= 5
    for name, right in expected.items():
        torch.testing.assert_close(got[name], right)


def test_autocast_trains_alike():
    images, labels = batch()
    for dtype in (torch.bfloat16, torch.float16):

        def forward(model, x, dtype=dtype):
            with torch.autocast("cpu", dtype):
                return model(x)

        model = fresh()
        expected = trained(model, images, labels, forward=lambda x, m=model: forward(m, x))
        model = fresh()
        with gt.enabled("all"):
            got = trained(model, images, labels, forward=lambda x, m=model: forward(m, x))
            assert gt.stats().taken["filter"] >= 4 * 5
        np.testing.assert_allclose(got, expected, rtol=2e-2)


@BOTH_WAYS
def test_several_python_threads_train_at_once():
    images, labels = batch()
    expected = trained(fresh(), images, labels)
    models, losses = [fresh() for _ in range(4)], [None] * 4

    def train(at):
        losses[at] = trained(models[at], images, labels)

    with gt.enabled("all"):
        threads = [threading.Thread(target=train, args=(at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert gt.stats() == ({"input": 4 * 4 * 4, "filter": 4 * 4 * 5}, {})
    for found in losses:
        np.testing.assert_allclose(found, expected, rtol=1e-5)


class Gradients(torch.utils.data.Dataset):
    """Each sample is a gradient that a worker computes."""

    def __len__(self):
        return 4

    def __getitem__(self, at):
        x = torch.full((1, 8, 24, 24), float(at + 1), requires_grad=True)
        functional.conv2d(x, torch.ones(16, 8, 3, 3), padding=1).sum().backward()
        return x.grad[0], sum(gt.stats().taken.values())


@BOTH_WAYS
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_workers_compute_too():
    trained(fresh(), *batch(), steps=1)
    with gt.enabled("all"):
        trained(fresh(), *batch(), steps=1)
        before = gt.stats().taken["input"]
        loader = torch.utils.data.DataLoader(
            Gradients(), num_workers=2, batch_size=1, multiprocessing_context="fork", timeout=60
        )
        found = list(loader)
        assert gt.stats().taken["input"] == before
    assert len(found) == 4
    for grad, taken in found:
        assert int(taken) > before
        assert float(grad[0, 0, 5, 5]) == 144.0
        assert float(grad[0, 0, 0, 0]) == 64.0


WORKER = """
import json, os, sys
import torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
import gradops.torch
from test_adapter_torch import Net, batch, fresh, trained
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
images, labels = batch(count=8)
images, labels = images[4 * rank : 4 * rank + 4], labels[4 * rank : 4 * rank + 4]
results = []
for enabled in (False, True):
    if enabled:
        gradops.torch.enable("all")
    model = torch.nn.parallel.DistributedDataParallel(fresh())
    losses = trained(model, images, labels)
    results.append((losses, [float(p.double().sum()) for p in model.parameters()]))
taken = gradops.torch.stats().taken
dist.destroy_process_group()
print(json.dumps({"results": results, "taken": taken}))
"""


def test_two_processes_train_together_as_natively():
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000), "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-c", WORKER, os.path.dirname(__file__)]  # noqa: PTH120
    workers = [
        subprocess.Popen(command, env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    found = [json.loads(worker.communicate(timeout=120)[0].splitlines()[-1]) for worker in workers]
    for one in found:
        (native_losses, native), (losses, weights) = one["results"]
        np.testing.assert_allclose(losses, native_losses, rtol=1e-5)
        np.testing.assert_allclose(weights, native, rtol=1e-4, atol=1e-4)
        assert one["taken"]["filter"] == 4 * 5
    assert found[0]["results"][1][1] == found[1]["results"][1][1], "both processes have the same weights"


def test_models_train_alike():
    """Networks of the benchmark, shallow, on small images, in both layouts."""
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "benchmarks"))  # noqa: PTH118, PTH120
    try:
        import training_torch
    finally:
        sys.path.pop(0)
    for build, dtype, ops in itertools.product(
        training_torch.MODELS.values(), (torch.float32, torch.float64), ("auto", "all")
    ):
        images, labels = batch(64, 2, dtype)
        for layout in FORMATS.values():
            losses = []
            for enable in (False, True):
                torch.manual_seed(3)
                model = build(depth=2).to(dtype).to(memory_format=layout)
                given = images.contiguous(memory_format=layout)
                if enable:
                    gt.enable(ops)
                losses.append(trained(model, given, labels, steps=3, rate=1e-3))
            assert gt.stats().taken
            gt.disable()
            np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3 if dtype is torch.float32 else 1e-9)


KERAS = """
import sys
import keras, numpy as np
import gradops.torch
from keras import layers
keras.config.set_image_data_format(sys.argv[1])
shape = (16, 16, 3) if sys.argv[1] == "channels_last" else (3, 16, 16)
keras.utils.set_random_seed(1)
model = keras.Sequential([
    keras.Input(shape),
    layers.Conv2D(8, 3, strides=2, padding="same", activation="relu"),
    layers.DepthwiseConv2D(3, padding="same"),
    layers.SeparableConv2D(16, 3, padding="same", activation="relu"),
    layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu"),
    layers.GlobalAveragePooling2D(),
    layers.Dense(5),
])
initial = model.get_weights()
random = np.random.default_rng(0)
x, y = random.standard_normal((32, *shape)).astype("float32"), random.integers(0, 5, 32)
def trained():
    model.set_weights(initial)
    model.compile(keras.optimizers.SGD(0.2, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(x, y, batch_size=8, epochs=4, shuffle=False, verbose=0).history["loss"]
    return losses, model.get_weights()
losses, weights = trained()
assert losses[3] < 0.99 * losses[0], losses
for ops in ("all", "auto"):
    gradops.torch.enable(ops)
    found = trained()
    np.testing.assert_allclose(found[0], losses, rtol=1e-4)
    for one, other, was in zip(found[1], weights, initial, strict=True):
        np.testing.assert_allclose(one - was, other - was, rtol=0, atol=2e-3 * np.abs(other - was).max())
    taken, declined = gradops.torch.stats()
    print(taken["input"], taken["filter"], sum(declined.values()))
"""


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_keras_on_the_torch_backend_trains_alike(data_format):
    """In 16 steps of 5 convolutions, the first of which has no gradient of its input: "auto" takes both depthwise ones."""
    if importlib.util.find_spec("keras") is None:
        pytest.skip("Keras is not installed")
    command = [sys.executable, "-c", KERAS, data_format]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"KERAS_BACKEND": "torch"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["64", "80", "0", "32", "32", "80"]


THREADS = """
import os, torch, gradops.torch
from gradops._kernels import torch_convolution
from torch.nn.functional import conv2d
like = {"memory_format": torch.channels_last}
x, dy = (torch.ones(8, 64, 40, 40).contiguous(**like).requires_grad_() for _ in range(2))
w = torch.ones(64, 64, 1, 1, requires_grad=True)
gradops.torch.enable("all")
for threads in (1, 2):
    torch.set_num_threads(threads)
    torch.autograd.grad(conv2d(x, w), (x, w), dy)
    print(torch_convolution.most_threads())
op, given = torch.ops.aten.convolution_backward, (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
child = os.fork()
if child == 0:
    dx, dw, _ = op(dy.detach(), x.detach(), w.detach(), *given)
    os._exit(int(dx[3, 3, 3, 3]) == 64 and int(dw[3, 3, 0, 0]) == 8 * 40 * 40)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@STABLE
def test_threads_are_as_many_as_pytorchs_and_one_in_forked_children():
    command = [sys.executable, "-W", "ignore", "-c", THREADS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "2", "1"]


def test_the_number_of_threads_is_pytorchs_also_by_way_of_python(monkeypatch):
    seen = []
    monkeypatch.setattr(_override, "_register", _boxed.Registration)
    monkeypatch.setattr(
        _threads, "checked", lambda n, name="num_threads", was=_threads.checked: seen.append(n) or was(n)
    )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with gt.enabled("all"):
            gradients(*operands("3x3"))
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1]


# Functions on tensors


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", FORMATS)
def test_convolutions_of_gradops_own_are_those_of_pytorch(dtype, layout):
    for name, (transposed, _, _, how) in CASES.items():
        if transposed:
            continue
        _, x, w, dy = operands(name, dtype, layout, layout)
        expected = functional.conv2d(x.double(), w.double(), **how)
        got = gt.conv2d(x, w, **how)
        close(got.detach(), expected.detach(), dtype)
        assert got.is_contiguous(memory_format=FORMATS[layout])
        right = torch.autograd.grad(expected, (x, w), dy.double())
        for mine, theirs in zip(torch.autograd.grad(got, (x, w), dy), right, strict=True):
            close(mine, theirs, dtype)


def test_depthwise_convolutions_take_their_groups_from_the_images():
    x, w, b = torch.randn(2, 6, 9, 11), torch.randn(18, 1, 3, 3), torch.randn(18)
    expected = functional.conv2d(x, w, b, 2, 1, 1, 6)
    torch.testing.assert_close(gt.depthwise_conv2d(x, w, b, 2, 1), expected)


def test_paddings_may_be_words_or_differ_on_each_side():
    x, w = torch.randn(2, 3, 10, 12), torch.randn(4, 3, 3, 5)
    torch.testing.assert_close(gt.conv2d(x, w, padding="same"), functional.conv2d(x, w, padding="same"))
    torch.testing.assert_close(gt.conv2d(x, w, padding="valid"), functional.conv2d(x, w))
    sided = functional.conv2d(functional.pad(x, (3, 2, 0, 1)), w, stride=2)
    torch.testing.assert_close(gt.conv2d(x, w, stride=2, padding=((0, 1), (3, 2))), sided)
    assert gt.conv2d(x, w, stride=(3, 5), padding="same").shape == (2, 4, 4, 3)


def test_functions_have_gradients_of_any_order():
    generator = torch.Generator().manual_seed(2)
    x, w, b = (
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((2, 4, 5, 6), (6, 2, 3, 2), (6,))
    )

    def convolve(x, w, b):
        return gt.conv2d(x, w, b, (2, 1), ((1, 0), (2, 1)), (1, 2), 2)

    def pool(x):
        return gt.fractional_avg_pool2d(x, (1.5, 1.3), overlapping=True, generator=torch.Generator().manual_seed(3))

    assert torch.autograd.gradcheck(convolve, (x, w, b))
    assert torch.autograd.gradgradcheck(lambda x, w: convolve(x, w, b), (x, w))
    assert torch.autograd.gradcheck(pool, (x,))
    assert torch.autograd.gradgradcheck(pool, (x,))


def test_functions_are_mapped_over_images_filters_and_both():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn((3, 2, 4, 7, 6), generator=generator, dtype=torch.float64)
    w = torch.randn((3, 6, 2, 3, 3), generator=generator, dtype=torch.float64)

    def loss(convolve, w, x):
        return convolve(x, w, None, 2, 1, 1, 2).pow(3).sum()

    for in_dims, given in (((None, 0), (w[0], x)), ((0, None), (w, x[0])), ((0, 0), (w, x))):
        got, expected = (
            torch.func.vmap(torch.func.grad(lambda w, x, f=f: loss(f, w, x), (0, 1)), in_dims)(*given)
            for f in (gt.conv2d, functional.conv2d)
        )
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other)
    torch.manual_seed(1)
    pooled = torch.func.vmap(lambda x: gt.fractional_avg_pool2d(x, 1.5), randomness="same")(x)
    torch.manual_seed(1)
    torch.testing.assert_close(pooled.flatten(0, 1), gt.fractional_avg_pool2d(x.flatten(0, 1), 1.5))


@pytest.mark.filterwarnings("default")  # those of the compiler
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_functions_are_compiled_whole(backend):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Parameter(0.3 * torch.randn(8, 3, 3, 3)), nn.Parameter(torch.randn(8, 1, 5, 5))
            self.last = nn.Linear(8, 10)

        def forward(self, x):
            x = torch.relu(gt.conv2d(x, self.first, stride=2, padding="same"))
            x = gt.depthwise_conv2d(x, self.second, padding=2)
            return self.last(gt.fractional_avg_pool2d(x, x.shape[2]).flatten(1))

    images, labels = batch()
    expected = trained(fresh(Own), images, labels, rate=1e-2)
    torch.compiler.reset()
    model = fresh(Own)
    got = trained(model, images, labels, rate=1e-2, forward=torch.compile(model, backend=backend, fullgraph=True))
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_ops_keep_the_rules_of_pytorchs_ops():
    x, w = torch.randn(2, 4, 7, 9, requires_grad=True), torch.randn(6, 2, 3, 3, requires_grad=True)
    dy, how = torch.randn(2, 6, 7, 9, requires_grad=True), ([1, 1], [1, 1, 1, 1], [1, 1], 2)
    ops, rows, cols = torch.ops.gradops, torch.tensor([0, 3, 7]), torch.tensor([0, 4, 6, 9])
    for op, given in (
        (ops.convolution, (x, w, *how)),
        (ops.convolution_input_gradient, (dy, w, [2, 4, 7, 9], *how)),
        (ops.convolution_filter_gradient, (dy, x, [6, 2, 3, 3], *how)),
        (ops.fractional_avg_pool, (x, rows, cols, True)),
        (
            ops.fractional_avg_pool_gradient,
            (torch.randn(2, 4, 2, 3, requires_grad=True), rows, cols, [2, 4, 7, 9], True),
        ),
    ):
        torch.library.opcheck(op, given)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", FORMATS)
def test_pooling_is_the_mean_over_its_cells(dtype, layout):
    x = torch.randn(2, 5, 11, 13).to(dtype).contiguous(memory_format=FORMATS[layout])
    y, rows, cols = gt.fractional_avg_pool2d(x, (1.7, 2.1), return_sequences=True)
    assert y.is_contiguous(memory_format=FORMATS[layout])
    assert (int(rows[0]), int(rows[-1]), int(cols[-1])) == (0, 11, 13)
    expected = torch.empty(y.shape, dtype=torch.float64)
    for p, q in itertools.product(range(len(rows) - 1), range(len(cols) - 1)):
        cell = x[:, :, int(rows[p]) : int(rows[p + 1]), int(cols[q]) : int(cols[q + 1])]
        expected[:, :, p, q] = cell.double().mean((2, 3))
    close(y, expected, dtype)


def test_pooling_follows_pytorchs_random_numbers():
    x = torch.randn(1, 2, 40, 40)

    def drawn(seed):
        torch.manual_seed(seed)
        return gt.fractional_avg_pool2d(x, 1.4, return_sequences=True)[1].tolist()

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(5)}) == 5


def test_autocast_reaches_the_functions():
    x, w = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert gt.conv2d(x, w).dtype is torch.bfloat16
    assert gt.conv2d(x, w).dtype is torch.float32


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, "input must be a torch.Tensor, got ndarray", lambda x, w: gt.conv2d(x.numpy(), w)),
        (ValueError, "input must have 4 dimensions, got shape (3, 8, 8)", lambda x, w: gt.conv2d(x[0], w)),
        (TypeError, "input must have dtype torch.float16, torch.bfloat16, torch.float32, torch.float64, got torch.int32",
         lambda x, w: gt.conv2d(x.int(), w)),
        (TypeError, "input and weight must have the same dtype, got torch.float32 and torch.float64",
         lambda x, w: gt.conv2d(x, w.double())),
        (ValueError, "with the 3 channels of input", lambda x, w: gt.conv2d(x, w[:, :2])),
        (ValueError, "bias must be a tensor of shape (4,), got (3,)", lambda x, w: gt.conv2d(x, w, torch.ones(3))),
        (ValueError, "stride must be at least 1, got 0", lambda x, w: gt.conv2d(x, w, stride=0)),
        (TypeError, "stride must be an integer, got 1.5", lambda x, w: gt.conv2d(x, w, stride=1.5)),
        (ValueError, "padding must be 'same', 'valid' or numbers, got 'full'",
         lambda x, w: gt.conv2d(x, w, padding="full")),
        (ValueError, "weight must not reach over more rows than the padded input has, got 15 rows",
         lambda x, w: gt.conv2d(x, w, dilation=7)),
        (ValueError, "weight must have shape (C * M, 1, R, S)", lambda x, w: gt.depthwise_conv2d(x, w)),
        (ValueError, "ratio must be a number or a pair", lambda x, w: gt.fractional_avg_pool2d(x, (1.0, 2.0, 3.0))),
        (ValueError, "at least 1", lambda x, w: gt.fractional_avg_pool2d(x, 0.5)),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(error, message, call):
    with pytest.raises(error) as raised:
        call(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3))
    assert message in str(raised.value)


# Documentation


@pytest.mark.parametrize("name", gt.__all__)
def test_what_is_public_is_described_and_its_examples_run(name):
    value = getattr(gt, name)
    tests = [test for test in doctest.DocTestFinder().find(value, name, globs={}) if test.examples]
    assert tests or value is gt.Stats
    for test in tests:
        report = []
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
        assert runner.run(test, out=report.append).failed == 0, "".join(report)
    text = inspect.getdoc(value)
    for parameter in inspect.signature(value).parameters:
        assert re.search(rf"^(\w+, )*{parameter}(, \w+)*( : .*)?\n    \S", text, re.MULTILINE), parameter
