"""The suites: every network has the work and the parameters that were published, and every layer can be run."""

import re
from pathlib import Path

import numpy as np
import pytest

import gradops
from gradops._bench import suites as module
from gradops._bench.suites import describe, load, suites
from gradops._geometry import attributes, plan
from gradops.testing import OPS, assert_exact, random_integers

REPOSITORY = Path(__file__).parent.parent
CHECKOUT = pytest.mark.skipif(
    not (REPOSITORY / "CMakeLists.txt").exists(), reason="the tests do not lie in a checkout with its sources"
)
NAMES = [
    "resnet50",
    "resnext50",
    "vgg16",
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3",
    "efficientnet_b0",
    "convnext_t",
    "dcgan",
    "unet",
    "deeplab",
    "stems",
    "tails",
    "tiny",
    "fractional",
]

# Multiply-adds of one image in billions, as published or as the frameworks' model pages have them.
WORK = {
    "resnet50": 4.09,
    "resnext50": 4.23,
    "vgg16": 15.3,
    "mobilenet_v1": 0.569,
    "mobilenet_v2": 0.300,
    "mobilenet_v3": 0.217,
    "efficientnet_b0": 0.39,
    "convnext_t": 4.46,
    "deeplab": 177.1,
}
LAYERS = {
    "resnet50": 1 + 16 * 3 + 4,
    "resnext50": 1 + 16 * 3 + 4,
    "vgg16": 13,
    "mobilenet_v1": 27,
    "mobilenet_v2": 1 + 16 * 3 + 2 + 2,
    "mobilenet_v3": 1 + 14 * 3 + 2 + 8 * 2 + 3,
    "efficientnet_b0": 1 + 15 * 5 + 4 + 1,
    "convnext_t": 1 + 3 + 18 * 3,
    "dcgan": 4 + 4,
    "unet": 23,
}


def total(name, amount):
    return sum(count * amount(layer) for count, layer in load(name))


def outputs(layer):
    return layer.oc


def dense_layer(inputs, outputs):
    return (inputs + 1) * outputs


def normalised(name):
    """Scale and shift of a batch normalisation after each convolution but the classifier; biases in the other ones."""

    def extra(layer):
        return layer.oc if re.search(r"_se[12]$|:head$|:classifier$", layer.name) else 2 * layer.oc

    return total(name, extra)


def efficientnet_extras():
    squeezed = total("efficientnet_b0", lambda layer: layer.oc * (1 if "_se" in layer.name else 2))
    return squeezed + dense_layer(1280, 1000)


def convnext_extras():
    blocks = sum(times * 3 * width for width, times in ((96, 3), (192, 3), (384, 9), (768, 3)))
    normalisations = 2 * (96 + 96 + 192 + 384 + 768)
    return total("convnext_t", outputs) + blocks + normalisations + dense_layer(768, 1000)


# What a network has besides its convolutions' filters, and its parameters in all, as frameworks count them.
PARAMETERS = {
    "resnet50": (lambda: normalised("resnet50") + dense_layer(2048, 1000), 25_557_032),
    "resnext50": (lambda: normalised("resnext50") + dense_layer(2048, 1000), 25_028_904),
    "vgg16": (
        lambda: (
            total("vgg16", outputs) + dense_layer(7 * 7 * 512, 4096) + dense_layer(4096, 4096) + dense_layer(4096, 1000)
        ),
        138_357_544,
    ),
    "mobilenet_v1": (lambda: normalised("mobilenet_v1") + dense_layer(1024, 1000), 4_231_976),
    "mobilenet_v2": (lambda: normalised("mobilenet_v2"), 3_504_872),
    "mobilenet_v3": (lambda: normalised("mobilenet_v3"), 5_483_032),
    "efficientnet_b0": (efficientnet_extras, 5_288_548),
    "convnext_t": (convnext_extras, 28_589_128),
    "unet": (lambda: total("unet", lambda layer: layer.ic if layer.name.endswith("upconv") else layer.oc), 31_030_658),
}


def test_all_suites_are_there():
    assert suites() == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_names_its_layers_and_has_each_once(name):
    layers = load(name)
    assert layers
    assert all(count >= 1 and layer.name for count, layer in layers)
    unnamed = [(str(layer).partition('n"')[0], layer.name.rpartition("_")[2] in ("se1", "se2")) for _, layer in layers]
    assert len(set(unnamed)) == len(unnamed)
    assert len({layer.name for _, layer in layers}) == len(layers)


@pytest.mark.parametrize("name", NAMES)
def test_a_suite_is_written_canonically_and_says_where_it_comes_from(name):
    text = module._text(name)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == [f"{count} {layer}" for count, layer in load(name)]
    assert re.search(r"\((19|20)\d\d\)|[Oo]f no\s+network", describe(name))
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", NAMES)
def test_the_batch_is_eight_unless_the_head_says_otherwise(name):
    batches = {layer.mb for _, layer in load(name)}
    assert batches == {"unet": {1}, "tiny": {1}, "deeplab": {2}}.get(name, {8}) or name in ("tails", "stems")


@pytest.mark.parametrize(("name", "billions"), WORK.items())
def test_a_network_has_the_work_that_was_published(name, billions):
    work = total(name, lambda layer: layer.with_batch(1).flops(layer.ops[0]) / 2e9)
    assert work == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(("name", "extras", "published"), [(name, *row) for name, row in PARAMETERS.items()])
def test_a_network_has_the_parameters_that_were_published(name, extras, published):
    assert total(name, lambda layer: layer.parameters) + extras() == published


@pytest.mark.parametrize(("name", "layers"), LAYERS.items())
def test_a_network_has_all_of_its_layers(name, layers):
    assert total(name, lambda layer: 1) == layers


def test_deeplab_has_its_atrous_rates():
    rates = {layer.dilations[0] for _, layer in load("deeplab") if layer.kind == "depthwise"}
    assert rates == {1, 2, 4, 12, 24, 36}


def test_pooling_has_the_sizes_of_the_paper():
    sizes = [(layer.ih, layer.oh) for _, layer in load("fractional") if layer.name.startswith("fmp_mnist")]
    assert sizes == [(35, 25), (24, 17), (16, 11), (10, 7), (6, 4), (3, 2)]
    halves = [layer.ih / layer.oh for _, layer in load("fractional") if layer.name.startswith("fmp_cifar")]
    assert len(halves) == 12
    assert np.mean(halves[:6]) == pytest.approx(2 ** (1 / 3), rel=0.01)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "fractional"])
def test_gradops_takes_every_convolution(name, layout):
    for _, layer in load(name):
        if layer.kind == "pool":
            continue
        problem = layer.problem(layout)
        given = problem.attributes
        explicit = given.get("explicit_paddings", ())
        normal = attributes(given["strides"], given["padding"], explicit, layout, given["dilations"])
        made = plan(layer.ops[0], problem.input_shape, problem.filter_shape, None, normal)
        assert made.result_shape == problem.output_shape


def test_gradops_pools_to_the_sizes_that_the_layers_say():
    for _, layer in load("fractional"):
        value = np.zeros((1, layer.ih, layer.iw, 1), np.float32)
        output = gradops.fractional_avg_pool(value, (1, layer.rh, layer.rw, 1)).output
        assert output.shape == (1, layer.oh, layer.ow, 1)


@pytest.mark.parametrize("layer", [layer for _, layer in load("tiny")], ids=lambda layer: layer.name)
def test_tiny_layers_run_and_are_right(layer):
    for name in layer.ops:
        op, problem = OPS[name], layer.problem()
        operands = random_integers(op.shapes(problem), np.float64, seed=1)
        if op.kind == "pool":
            assert op(problem, *operands).shape == op.expect(problem, *operands).value.shape
        else:
            assert_exact(op(problem, *operands), op.expect(problem, *operands))


def test_an_unknown_suite_is_refused_with_those_that_there_are():
    for name in ("resnet51", "", "../shapes/tiny", "README.md"):
        with pytest.raises(ValueError, match=f"suite: got '{re.escape(name)}', expected one of convnext_t, .*, vgg16"):
            load(name)


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """An installed package with a `shapes` folder of its own."""
    (tmp_path / "shapes").mkdir()
    monkeypatch.setattr(module, "files", lambda package: tmp_path)
    return tmp_path / "shapes"


def test_files_of_the_installed_package_come_first(packaged):
    (packaged / "mine").write_text('# Mine (2026)\n# Two lines\n\n# a remark\n3 ic3ih5oc4kh3n"mine:a"\n\n')
    (packaged / "README.md").write_text("not a suite")
    assert suites() == ["mine"]
    assert [(count, str(layer)) for count, layer in load("mine")] == [(3, 'mb2ic3ih5oc4oh3kh3ph0n"mine:a"')]
    assert describe("mine") == "Mine (2026)\nTwo lines"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ic3ih5oc4kh3", "suite mine, line 2: got 'ic3ih5oc4kh3', expected a count and a problem"),
        ("0 ic3ih5oc4kh3", "suite mine, line 2: got '0 ic3ih5oc4kh3', expected a count"),
        ("2", "suite mine, line 2: got '2', expected a count and a problem"),
        ("2 ic3ih5oc4kh7", "suite mine, line 2: problem 'ic3ih5oc4kh7': kh: got 7"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(packaged, line, message):
    (packaged / "mine").write_text(f"# Mine\n{line}\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        load("mine")


@CHECKOUT
def test_the_wheel_gets_the_files():
    line = "install(DIRECTORY benchmarks/shapes DESTINATION gradops/_bench)"
    assert line in (REPOSITORY / "CMakeLists.txt").read_text().splitlines()
