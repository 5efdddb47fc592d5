"""The grammar of layers: what it reads, what it refuses, and what a layer amounts to."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradops
from gradops._bench.problems import Layer, PoolLayer, parse
from gradops._geometry import attributes, plan
from gradops.testing import OPS, pooling_sequences

READ = {
    'mb8ic64ih56oc64oh56kh3ph1n"resnet50:res2a"': 'mb8ic64ih56oc64oh56kh3ph1n"resnet50:res2a"',
    "mb8ic64ih56oc64oh56kh3ph1nresnet50:res2a": 'mb8ic64ih56oc64oh56kh3ph1n"resnet50:res2a"',
    "ic3ih5oc4kh3": "mb2ic3ih5oc4oh3kh3ph0",
    "ic3ih5oc4kh3ph1": "mb2ic3ih5oc4oh5kh3ph1",
    "ic3ih5oc4oh5kh3": "mb2ic3ih5oc4oh5kh3ph1",
    "ic3ih6oc4oh3kh3sh2": "mb2ic3ih6oc4oh3kh3sh2ph0",
    "ic3ih7oc4oh7kh4": "mb2ic3ih7oc4oh7kh4ph1",
    "g1_mb2_ic3ih5iw5_oc4oh5ow5_kh3kw3_sh1sw1_ph1pw1_dh0dw0": "mb2ic3ih5oc4oh5kh3ph1",
    "g32mb8ic32ih112oc32oh112kh3ph1": "g32mb8ic32ih112oc32oh112kh3ph1",
    "ic3ih33oc4kh3ph2dh1": "mb2ic3ih33oc4oh33kh3ph2dh1",
    "ic3ih9iw11oc4kh3kw3sh2": "mb2ic3ih9iw11oc4oh4ow9kh3kw3sh2sw1ph0pw0",
    "ic6ih384iw512oc64kh7kw7sh2sw2ph3pw3": "mb2ic6ih384iw512oc64oh192ow256kh7kw7sh2sw2ph3pw3",
    "kh1ph0oc1ih1ic1mb1": "mb1ic1ih1oc1oh1kh1ph0",
    "mb8ic64ih112rh1.73o1": "mb8ic64ih112rh1.73o1",
    'ic64ih112rh2.0o0n"fmp:1"': 'mb2ic64ih112rh2n"fmp:1"',
    "ic64ih112iw56rh2": "mb2ic64ih112iw56rh2rw2",
    "mb1_ic2ih3rh1.5rw1.25": "mb1ic2ih3iw3rh1.5rw1.25",
}


@pytest.mark.parametrize(("text", "canonical"), READ.items())
def test_a_string_is_read_and_written_canonically(text, canonical):
    assert str(parse(text)) == canonical
    assert parse(canonical) == parse(text)
    assert parse(f"  {text}\n") == parse(text)


REFUSED = {
    "": "ic: got none, expected a number",
    "resnet": "got 'resnet', expected a key and a number",
    "mb8ic64ih56oc64kh3x": "got 'x', expected a key and a number such as 'ih56'",
    "mb8ic64ih-56oc64kh3": "got 'ih-56oc64kh3', expected a key and a number",
    "mb8ic64ih56oc64kh3mb4": "mb: got 8 and then 4, expected it once",
    "mb8ic64ih56oc64kh3kd3": "kd3: got the key 'kd', expected one of g, mb, ic, oc, ih",
    "mb8ic64oc64kh3": "ih: got none, expected a number",
    "mb8ic64ih56oc64": "kh: got none, expected a number",
    "mb8ic64ih56oc64kh3sw2": "iw: got none, expected a number beside sw",
    "mb8ic64ih56iw28oc64kh3": "kw: got none, expected a number beside iw",
    "mb0ic64ih56oc64kh3": "mb: got 0, expected at least 1",
    "mb8ic64ih56oc64kh3sh0": "sh: got 0, expected at least 1",
    "mb8ic64ih56oc64oh0kh3": "oh: got 0, expected at least 1",
    "mb8ic64ih5.5oc64kh3": "ih: got 5.5, expected an integer",
    "mb8ic64ih" + "9" * 5000 + "oc64kh3": "ih: got 99999999999999999..., expected an integer of at most 18 digits",
    "g3mb8ic64ih56oc63kh3": "ic: got 64, expected a multiple of g, which is 3",
    "g4mb8ic64ih56oc63kh3": "oc: got 63, expected a multiple of g, which is 4",
    "mb8ic64ih5oc64kh7": "kh: got 7, expected a filter that fits into ih 5 padded by 0; its reach with dh 0 is 7",
    "mb8ic64ih56oc64oh54kh3ph1": "oh: got 54, expected 55 to 57 as ih is 56, kh is 3, sh is 1, dh is 0, ph is 1",
    "mb8ic64ih56oc64oh560kh3ph1": "oh: got 560, expected 55 to 57",
    "mb8ic64ih56iw9oc64oh56ow3kh3kw3ph1pw0": "ow: got 3, expected 7 to 9 as iw is 9, kw is 3",
    "mb8ic64ih56oc64kh3n": "n: got 'n', expected a name",
    'mb8ic64ih56oc64kh3n""': "n: got 'n\"\"', expected a name",
    'mb8ic64ih56oc64kh3n"two words"': "n: got 'two words', expected a name without quotes and white space",
    "mb8ic64ih56rh0.5": "rh: got 0.5, expected 1 to 56 as ih is 56",
    "mb8ic64ih56iw4rh2rw5": "rw: got 5, expected 1 to 4 as iw is 4",
    "mb8ic64ih56rh2o2": "o: got 2, expected 0 or 1",
    "mb8ic64ih56rw2": "rh: got none, expected a number",
    "mb8ic64ih56rh2kh3": "kh3: got the key 'kh', expected one of mb, ic, ih, iw, rh, rw, o or n",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=lambda text: text[:40])
def test_what_cannot_be_read_is_refused_by_name(text, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        parse(text)
    assert message in str(refused.value)
    assert str(refused.value).startswith("problem '")
    assert len(str(refused.value)) < 300 or len(text) > 100


def test_a_layer_checks_itself():
    fine = parse("mb1ic2ih5oc4kh3ph1")
    given_ = {key: getattr(fine, key) for key in Layer.__dataclass_fields__}
    with pytest.raises(ValueError, match="oh: got 8, expected 4 to 6"):
        Layer(**given_ | {"oh": 8})
    with pytest.raises(ValueError, match="mb: got -1, expected at least 1"):
        fine.with_batch(-1)
    with pytest.raises(TypeError, match=r"mb: got 2\.5, expected an integer"):
        fine.with_batch(2.5)
    with pytest.raises(ValueError, match="ph: got -1, expected at least 0"):
        Layer(**given_ | {"ph": -1})
    with pytest.raises(ValueError, match=r"rh: got nan, expected 1 to 5"):
        PoolLayer(ic=1, ih=5, iw=5, rh=math.nan, rw=1.0)


names = st.sampled_from(("", "a", "net:layer", "n", "mb8", "res2a_3x3", "Größe"))
small = st.integers(1, 40)


@st.composite
def axes(draw):
    """Size, output size, taps, stride, dilation less one and padding before, which fit together."""
    size, taps, stride = draw(small), draw(st.integers(1, 7)), draw(st.integers(1, 5))
    gaps, before = draw(st.integers(0, 3)), draw(st.integers(0, 6))
    first = list(range(-before, size, stride))
    inside = [start for start in first if start + (taps - 1) * (gaps + 1) < size]
    return size, draw(st.integers(max(1, len(inside)), len(first))), taps, stride, gaps, before


@st.composite
def layers(draw):
    rows, columns = draw(axes()), draw(axes())
    columns = rows if draw(st.booleans()) else columns
    groups, per_group, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    spatial = dict(zip(("ih", "oh", "kh", "sh", "dh", "ph"), rows, strict=True))
    spatial |= dict(zip(("iw", "ow", "kw", "sw", "dw", "pw"), columns, strict=True))
    channels = {"g": groups, "ic": groups * per_group, "oc": groups * outputs}
    return Layer(**spatial, **channels, mb=draw(small), name=draw(names))


@st.composite
def pool_layers(draw):
    ih, iw = draw(small), draw(small)
    rh, rw = draw(st.floats(1, ih)), draw(st.floats(1, iw))
    if draw(st.booleans()):
        iw, rw = ih, rh
    return PoolLayer(
        ic=draw(small), ih=ih, iw=iw, rh=rh, rw=rw, o=draw(st.integers(0, 1)), mb=draw(small), name=draw(names)
    )


@given(layer=st.one_of(layers(), pool_layers()))
def test_the_canonical_string_parses_back(layer):
    assert parse(str(layer)) == layer
    assert str(parse(str(layer))) == str(layer)


@given(layer=layers(), random=st.randoms(use_true_random=False))
def test_keys_come_in_any_order(layer, random):
    tokens = [f"{key}{getattr(layer, key)}" for key in Layer.__dataclass_fields__ if key != "name"]
    random.shuffle(tokens)
    assert parse("_".join(tokens) + (f'n"{layer.name}"' if layer.name else "")) == layer


@given(layer=layers(), layout=st.sampled_from(("NHWC", "NCHW")))
def test_gradops_computes_the_output_that_the_layer_says(layer, layout):
    problem = layer.problem(layout)
    given_ = problem.attributes
    order = [given_.get(name, ()) for name in ("strides", "padding", "explicit_paddings")]
    op = "depthwise_conv2d_native" if layer.kind == "depthwise" else "conv2d"
    normal = attributes(*order, given_["data_format"], given_["dilations"])
    made = plan(op, problem.input_shape, problem.filter_shape, None, normal)
    expected = (layer.mb, layer.oh, layer.ow, layer.oc)
    assert made.result_shape == (expected if layout == "NHWC" else tuple(expected[at] for at in (0, 3, 1, 2)))
    assert made.result_shape == problem.output_shape
    assert math.prod(problem.filter_shape) == layer.parameters


@given(size=small, taps=st.integers(1, 7), stride=st.integers(1, 5), gaps=st.integers(0, 3))
def test_an_output_alone_is_padded_as_same_is(size, taps, stride, gaps):
    out = -(-size // stride)
    layer = parse(f"ic1ih{size}oc1oh{out}kh{taps}sh{stride}dh{gaps}")
    total = max(0, (out - 1) * stride + (taps - 1) * (gaps + 1) + 1 - size)
    assert layer.padding == (total // 2, total - total // 2) * 2


@given(layer=layers())
def test_the_padding_at_the_end_is_the_least_that_gives_the_output(layer):
    _, bottom, _, _ = layer.padding
    reach = (layer.kh - 1) * (layer.dh + 1) + 1

    def windows(after):
        return sum(start + reach <= layer.ih + after for start in range(-layer.ph, layer.ih + after, layer.sh))

    assert windows(bottom) == layer.oh
    assert bottom == 0 or windows(bottom - 1) < layer.oh


def products(layer):
    """Count the multiply-adds of a convolution one by one."""
    ranges = (layer.mb, layer.oh, layer.ow, layer.oc, layer.kh, layer.kw, layer.ic // layer.g)
    return sum(1 for _ in product(*map(range, ranges)))


SMALL = (
    "mb2ic3ih5oc4kh3ph1",
    "mb1ic3ih6oc4oh3kh3sh2ph0",
    "g2mb2ic4ih5iw4oc6kh3kw2ph1",
    "g3mb2ic3ih5oc3kh3ph2dh1",
    "g3mb2ic3ih5oc6kh3ph1",
    "mb2ic3ih9rh1.73",
    "mb2ic3ih9iw7rh1.5rw2.3o1",
)


@pytest.mark.parametrize("text", SMALL[:5])
def test_flops_are_two_for_each_product_of_the_definition(text):
    layer = parse(text)
    assert {layer.flops(op) for op in layer.ops} == {2 * products(layer)}


@pytest.mark.parametrize("text", SMALL[5:])
def test_flops_of_pooling_are_two_for_each_pixel_of_each_cell(text):
    layer = parse(text)
    rows, columns = pooling_sequences(layer.problem())
    pixels = [
        (y, x)
        for top, bottom in pairwise(rows)
        for left, right in pairwise(columns)
        for y in range(top, min(bottom + layer.o, layer.ih))
        for x in range(left, min(right + layer.o, layer.iw))
    ]
    assert {layer.flops(op) for op in layer.ops} == {2 * layer.mb * layer.ic * len(pixels)}


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("text", SMALL)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bytes_are_those_of_the_operands_and_the_result(text, layout, dtype):
    layer = parse(text)
    for name in layer.ops:
        op, problem = OPS[name], layer.problem(layout)
        operands = [np.ones(shape, dtype) for shape in op.shapes(problem)]
        result = op(problem, *operands)
        assert layer.nbytes(name, np.dtype(dtype).itemsize) == sum(array.nbytes for array in (*operands, result))


def test_work_is_known_for_a_layer_that_is_known():
    layer = parse("mb8ic64ih56oc64oh56kh3ph1")
    assert layer.flops("conv2d") == 2 * 8 * 56 * 56 * 64 * 64 * 9 == 1_849_688_064
    assert layer.nbytes("conv2d_backprop_filter", 4) == 4 * (2 * 8 * 56 * 56 * 64 + 9 * 64 * 64)
    pool = parse("mb8ic64ih112rh2")
    assert pool.flops("fractional_avg_pool_grad") == 2 * 8 * 64 * 112 * 112
    assert pool.nbytes("fractional_avg_pool_grad", 2) == 2 * 8 * 64 * (112 * 112 + 56 * 56)


@given(layer=pool_layers())
def test_pooling_has_the_cells_that_gradops_gives(layer):
    ratio = (1.0, layer.rh, layer.rw, 1.0)
    value = np.zeros((1, layer.ih, layer.iw, 1), np.float32)
    output = gradops.fractional_avg_pool(value, ratio, deterministic=True, seed=1).output
    assert output.shape == (1, layer.oh, layer.ow, 1)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ic8ih5oc8kh3", "dense"),
        ("g2ic8ih5oc8kh3", "dense"),
        ("g8ic8ih5oc8kh3", "depthwise"),
        ("g8ic8ih5oc24kh3", "depthwise"),
        ("g1ic1ih5oc8kh3", "dense"),
        ("ic8ih5rh2", "pool"),
    ],
)
def test_a_layer_has_the_ops_of_its_kind(text, kind):
    layer = parse(text)
    assert layer.kind == kind
    assert layer.ops == tuple(name for name, op in OPS.items() if op.kind == kind)


@pytest.mark.parametrize("text", ["g8ic8ih5oc8kh3", "ic8ih5rh2"])
def test_an_op_of_another_kind_is_refused(text):
    layer = parse(text)
    with pytest.raises(ValueError, match=r"op: got 'conv2d', expected one of \w+, \w+"):
        layer.flops("conv2d")
    with pytest.raises(ValueError, match=r"op: got 'conv2d', expected one of \w+, \w+"):
        layer.nbytes("conv2d", 4)


@given(layer=st.one_of(layers(), pool_layers()), images=small)
def test_the_batch_changes_nothing_else(layer, images):
    other = layer.with_batch(images)
    assert (other.mb, other.name) == (images, layer.name)
    assert other.with_batch(layer.mb) == layer
    assert all(other.flops(op) * layer.mb == layer.flops(op) * images for op in layer.ops)
