"""gradops.jax beside JAX's own convolutions: values, gradients, transformations, platforms, stored programs, whole networks."""

import ctypes
import doctest
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax", reason="JAX is not installed")

import jax
import jax.numpy as jnp
from jax import lax

import gradops
import gradops.jax as adapter
from gradops import _xla
from gradops.jax import _convolution, _pooling

REPOSITORY = Path(__file__).parent.parent
CHECKOUT = pytest.mark.skipif(
    not (REPOSITORY / "CMakeLists.txt").exists(), reason="the tests do not lie in a checkout with its sources"
)
NATIVE = lax.conv_general_dilated
NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
TOLERANCE = {"float64": 1e-12, "float32": 3e-5, "float16": 2e-3, "bfloat16": 2e-2}

# channels in, channels out, groups; rows and columns of the filter; and the rest of a call
CHANNELS = {"dense": (3, 8, 1), "wide": (16, 16, 1), "grouped": (8, 12, 4), "depthwise": (6, 12, 6)}
WINDOWS = {
    "same": dict(taps=(3, 3), window_strides=(1, 1), padding="SAME"),
    "pointwise": dict(taps=(1, 1), window_strides=(1, 1), padding="VALID"),
    "strided": dict(taps=(3, 2), window_strides=(2, 3), padding="SAME"),
    "lower": dict(taps=(2, 4), window_strides=(1, 2), padding="SAME_LOWER"),
    "dilated": dict(taps=(3, 3), window_strides=(1, 1), padding=[(2, 0), (3, 4)], rhs_dilation=(2, 1)),
    "transposed": dict(taps=(3, 2), window_strides=(1, 1), padding=[(2, 1), (1, 1)], lhs_dilation=(2, 3)),
    "both": dict(
        taps=(2, 3), window_strides=(1, 1), padding=[(1, 2), (0, 1)], lhs_dilation=(3, 1), rhs_dilation=(2, 2)
    ),
}


@pytest.fixture(autouse=True)
def _wide_types():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def drawn(shape, dtype="float32", seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def case(channels, window, numbers, dtype="float32", batch=2):
    """Operands of a convolution, and its attributes."""
    into, out, groups = CHANNELS[channels]
    rest = dict(WINDOWS[window])
    rows, cols = rest.pop("taps")
    x = (batch, 9, 8, into) if numbers is NHWC else (batch, into, 9, 8)
    w = (rows, cols, into // groups, out) if numbers is NHWC else (out, into // groups, rows, cols)
    return drawn(x, dtype), drawn(w, dtype, 1), rest | dict(dimension_numbers=numbers, feature_group_count=groups)


def close(found, expected, dtype="float32", factor=1.0):
    found, expected = (np.asarray(array, np.float64) for array in (found, expected))
    assert found.shape == expected.shape
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=factor * TOLERANCE[dtype] * scale)


def gradients(conv, x, w, seed=5):
    y, pull = jax.vjp(conv, x, w)
    return y, *pull(drawn(y.shape, y.dtype, seed))


GRID = [
    (channels, window, numbers, dtype)
    for channels, window, numbers, dtype in itertools.product(CHANNELS, WINDOWS, (NHWC, NCHW), TOLERANCE)
    if dtype == "float32" or window in ("same", "strided", "transposed")
]


@pytest.mark.parametrize(
    ("channels", "window", "numbers", "dtype"), GRID, ids=[f"{c}-{w}-{n[0]}-{d}" for c, w, n, d in GRID]
)
def test_output_and_gradients_are_those_of_lax(channels, window, numbers, dtype):
    x, w, rest = case(channels, window, numbers, dtype)
    wide = dtype if dtype == "float64" else "float32"
    before = adapter.stats()["taken"].get("conv_general_dilated", 0)
    found = gradients(partial(adapter.conv_general_dilated, **rest), x, w)
    assert adapter.stats()["taken"]["conv_general_dilated"] == before + 1
    y, pull = jax.vjp(partial(NATIVE, **rest), x.astype(wide), w.astype(wide))
    expected = y, *pull(drawn(y.shape, dtype, 5).astype(wide))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == dtype
        close(ours, theirs, dtype)


@pytest.mark.parametrize("window", ["strided", "dilated", "transposed"])
@pytest.mark.parametrize("channels", ["dense", "grouped", "depthwise"])
def test_derivatives_of_second_order_in_both_modes(channels, window):
    x, w, rest = case(channels, window, NHWC, "float64")

    def sharpness(conv, x, w):
        dx, dw = jax.grad(lambda x, w: (conv(x, w) ** 3).sum(), argnums=(0, 1))(x, w)
        return jnp.sin(dx).sum() + jnp.sin(dw).sum()

    found, expected = (
        jax.jit(jax.grad(partial(sharpness, partial(conv, **rest)), argnums=(0, 1)))(x, w)
        for conv in (adapter.conv_general_dilated, NATIVE)
    )
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs, "float64", factor=10)
    tangents = drawn(x.shape, "float64", 7), drawn(w.shape, "float64", 8)
    found, expected = (
        jax.jvp(jax.grad(lambda x, w, conv=conv: (conv(x, w, **rest) ** 2).sum()), (x, w), tangents)[1]
        for conv in (adapter.conv_general_dilated, NATIVE)
    )
    close(found, expected, "float64", factor=10)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (2, 1)], ids=str)
@pytest.mark.parametrize("numbers", [NHWC, NCHW], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("channels", ["dense", "grouped", "depthwise"])
def test_vmap_of_output_and_gradients(channels, numbers, axes):
    x, w, rest = case(channels, "strided", numbers)
    operands = [
        a if axis is None else jnp.stack([a, 2 * a, a[::-1] if name == "x" else -a], axis)
        for name, a, axis in zip("xw", (x, w), axes, strict=True)
    ]
    for found, expected in zip(
        *(
            jax.vmap(lambda x, w, conv=conv: gradients(partial(conv, **rest), x, w), axes)(*operands)
            for conv in (adapter.conv_general_dilated, NATIVE)
        ),
        strict=True,
    ):
        close(found, expected)


def test_gradients_of_each_example():
    x, w, rest = case("dense", "same", NHWC, batch=4)

    def loss(w, x, conv):
        return (conv(x[None], w, **rest) ** 2).sum()

    found, expected = (
        jax.jit(jax.vmap(jax.grad(partial(loss, conv=conv)), (None, 0)))(w, x)
        for conv in (adapter.conv_general_dilated, NATIVE)
    )
    close(found, expected)


def test_other_orders_of_a_filter_are_transposed():
    x, w, rest = case("grouped", "same", NHWC)
    for order in ("IHWO", "WOHI", "OIHW"):
        turned = jnp.transpose(w, ["HWIO".index(letter) for letter in order])
        numbers = lax.conv_dimension_numbers(x.shape, turned.shape, ("NHWC", order, "NHWC"))
        found = adapter.conv_general_dilated(x, turned, **rest | dict(dimension_numbers=numbers))
        close(found, NATIVE(x, w, **rest))


DECLINED = {
    "not two-dimensional": ((1, 5, 3), (3, 3, 2), dict(window_strides=(1,), padding="SAME", dimension_numbers=("NWC", "WIO", "NWC"))),
    "dimension_numbers": ((5, 6, 2, 3), (3, 3, 3, 2), dict(dimension_numbers=("HWNC", "HWIO", "HWNC"))),
    "padding that crops": ((2, 6, 5, 3), (3, 3, 3, 2), dict(padding=[(-1, 0), (0, 0)])),
    "window_strides beside lhs_dilation": ((2, 6, 5, 3), (3, 3, 3, 2), dict(window_strides=(2, 1), padding=[(1, 1)] * 2, lhs_dilation=(2, 2))),
    "batch_group_count": ((2, 6, 5, 3), (3, 3, 3, 2), dict(batch_group_count=2)),
    "empty": ((0, 6, 5, 3), (3, 3, 3, 2), dict()),
    "dtype": ((2, 6, 5, 3), (3, 3, 3, 2), dict(preferred_element_type="float64")),
}  # fmt: skip


@pytest.mark.parametrize("reason", DECLINED)
def test_what_gradops_does_not_compute_is_counted_and_laxs_own(reason):
    x, w, rest = DECLINED[reason]
    rest = dict(window_strides=(1, 1), padding="SAME", dimension_numbers=NHWC) | rest
    before = adapter.stats()["declined"].get(reason, 0)
    found = adapter.conv_general_dilated(drawn(x), drawn(w), **rest)
    assert adapter.stats()["declined"][reason] == before + 1
    expected = NATIVE(drawn(x), drawn(w), **rest)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_integers_and_complex_numbers_are_laxs_own():
    for dtype in ("int32", "complex64"):
        x, w = jnp.ones((1, 4, 4, 2), dtype), jnp.ones((3, 3, 2, 2), dtype)
        found = adapter.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)
        np.testing.assert_array_equal(found, NATIVE(x, w, (1, 1), "SAME", dimension_numbers=NHWC))


@pytest.mark.parametrize(
    ("x", "w", "rest"),
    [
        (jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 3, 2)), dict()),
        (jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 2), "float16"), dict()),
        (jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 3)), dict(feature_group_count=2)),
        (jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 2)), dict(padding="HALF")),
        (jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 2)), dict(padding="SAME", lhs_dilation=(2, 2))),
    ],
    ids=["channels", "dtypes", "groups", "padding", "transposed"],
)
def test_errors_are_those_of_lax(x, w, rest):
    rest = dict(window_strides=(1, 1), padding="SAME", dimension_numbers=NHWC) | rest
    with pytest.raises((TypeError, ValueError, RuntimeError)) as expected:
        NATIVE(x, w, **rest)
    with pytest.raises(type(expected.value), match=re.escape(str(expected.value).partition("\n")[0])):
        adapter.conv_general_dilated(x, w, **rest)


def test_infinities_do_not_meet_the_padding():
    x, w, rest = case("wide", "same", NHWC)
    w = w.at[0, 0, 0, 0].set(jnp.inf)
    y = adapter.conv_general_dilated(x, w, **rest)
    assert np.isinf(y).any()
    assert np.isfinite(y[:, 0]).all()
    assert not np.isnan(y).any()


def lowered(platform):
    x, w, rest = case("dense", "same", NHWC)
    step = jax.jit(lambda x, w: gradients(partial(adapter.conv_general_dilated, **rest), x, w))
    return step.trace(x, w).lower(lowering_platforms=(platform,)).as_text()


def test_only_the_cpu_gets_custom_calls():
    assert lowered("cpu").count("@gradops_follow(") == 3
    assert "stablehlo.convolution" not in lowered("cpu")
    for platform in ("cuda", "tpu"):
        assert "gradops_follow" not in lowered(platform)
        assert lowered(platform).count("stablehlo.convolution") == 3


def test_plain_operations_of_other_platforms_agree(monkeypatch):
    conv = _convolution.Conv((2, 1), ((1, 0), (2, 1)), (1, 2), "NCHW")
    x, w = drawn((2, 8, 9, 8)), drawn((3, 2, 2, 12), seed=1)
    y = _convolution.forward(x, w, conv)
    dy = drawn(y.shape, seed=2)
    close(conv.native(x, w), y)
    dx, dw = (dy, w, conv, x.shape), (x, dy, conv, w.shape)
    close(_convolution.native_input_gradient(*dx), _convolution.input_gradient(*dx))
    close(_convolution.native_filter_gradient(*dw), _convolution.filter_gradient(*dw))


def test_symbolic_shapes_are_laxs_own():
    sizes = jax.export.symbolic_shape("n, 8, 8, 3")
    function = jax.jit(
        lambda x: adapter.conv_general_dilated(
            x, jnp.ones((3, 3, 3, 4), "float32"), (1, 1), "SAME", dimension_numbers=NHWC
        )
    )
    exported = jax.export.export(function)(jax.ShapeDtypeStruct(sizes, "float32"))
    assert exported.call(jnp.ones((2, 8, 8, 3), "float32")).shape == (2, 8, 8, 4)
    assert adapter.stats()["declined"]["symbolic shape"] == 1


# In JAX's place


def test_enabled_replaces_one_name_and_traces_again():
    x, w, rest = case("dense", "same", NHWC)
    step = jax.jit(lambda x, w: lax.conv_general_dilated(x, w, **rest))
    step(x, w)
    with adapter.enabled():
        assert lax.conv_general_dilated is adapter.conv_general_dilated
        assert "gradops_follow" in step.lower(x, w).as_text()
        with adapter.enabled():
            adapter.enable()
        assert lax.conv_general_dilated is adapter.conv_general_dilated
    assert lax.conv_general_dilated is NATIVE
    assert "gradops_follow" not in step.lower(x, w).as_text()
    adapter.disable()
    assert lax.conv_general_dilated is NATIVE


def test_what_somebody_else_has_replaced_is_left_alone(monkeypatch):
    monkeypatch.setattr(lax, "conv_general_dilated", print)
    for change in (adapter.enable, adapter.disable):
        with pytest.raises(RuntimeError, match="must be JAX's own or that of gradops, got <built-in function print>"):
            change()


# Depthwise convolution and fractional pooling


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_depthwise_convolution_is_that_of_gradops(data_format):
    shape = (2, 7, 6, 4) if data_format == "NHWC" else (2, 4, 7, 6)
    x, w = drawn(shape), drawn((3, 2, 4, 3), seed=1)
    given = dict(strides=(1, 2), padding="SAME", data_format=data_format)
    y, dx, dw = gradients(partial(adapter.depthwise_conv2d, **given), x, w)
    dy = np.asarray(drawn(y.shape, seed=5))
    close(y, gradops.depthwise_conv2d_native(x, w, **given))
    close(dx, gradops.depthwise_conv2d_native_backprop_input(x.shape, w, dy, **given))
    close(dw, gradops.depthwise_conv2d_native_backprop_filter(x, w.shape, dy, **given))


def test_depthwise_convolution_names_what_does_not_fit():
    x = jnp.ones((1, 4, 4, 2))
    with pytest.raises(ValueError, match=r"filter must have shape .*, got \(3, 3, 3, 1\) for input \(1, 4, 4, 2\)"):
        adapter.depthwise_conv2d(x, jnp.ones((3, 3, 3, 1)))
    with pytest.raises(ValueError, match="data_format must be 'NHWC' or 'NCHW', got 'CHWN'"):
        adapter.depthwise_conv2d(x, jnp.ones((3, 3, 2, 1)), data_format="CHWN")
    with pytest.raises(ValueError, match="strides must be a positive integer or a pair of them, got 0"):
        adapter.depthwise_conv2d(x, jnp.ones((3, 3, 2, 1)), 0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("data_format", "overlapping"), list(itertools.product(["NHWC", "NCHW"], [False, True])))
def test_fractional_pooling_is_that_of_gradops(data_format, overlapping, dtype):
    shape = (2, 9, 8, 3) if data_format == "NHWC" else (2, 3, 9, 8)
    ratio = (1, 1.5, 1.3, 1) if data_format == "NHWC" else (1, 1, 1.5, 1.3)
    given = dict(overlapping=overlapping, deterministic=True, seed=3, data_format=data_format)
    x = drawn(shape, dtype)
    found, expected = (
        adapter.fractional_avg_pool(x, ratio, **given),
        gradops.fractional_avg_pool(np.asarray(x), ratio, **given),
    )
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    y, pull = jax.vjp(lambda x: adapter.fractional_avg_pool(x, ratio, **given).output, x)
    dy = drawn(y.shape, dtype, 2)
    dx = gradops.fractional_avg_pool_grad(x.shape, np.asarray(dy), *expected[1:], overlapping, data_format=data_format)
    np.testing.assert_array_equal(pull(dy)[0], dx)
    pool = _pooling.Pool(tuple(expected[1].tolist()), tuple(expected[2].tolist()), overlapping, data_format)
    close(pool.native(x), y, dtype)
    close(_pooling.native_spread(dy, pool, x.shape), dx, dtype, factor=2)


def test_fractional_pooling_under_vmap_and_twice_differentiated():
    given = dict(pooling_ratio=(1, 1.5, 1.3, 1), deterministic=True, seed=3)
    xs = drawn((3, 2, 9, 8, 3), "float64")

    def loss(x):
        return (adapter.fractional_avg_pool(x, **given).output ** 2).sum()

    for each, x in zip(jax.jit(jax.vmap(jax.grad(loss)))(xs), xs, strict=True):
        np.testing.assert_array_equal(each, jax.grad(loss)(x))
    tangent = drawn(xs[0].shape, "float64", 1)
    pooled = adapter.fractional_avg_pool(tangent, **given).output
    curvature = jax.jvp(jax.grad(loss), (xs[0],), (tangent,))[1]
    np.testing.assert_allclose((curvature * tangent).sum(), 2 * (pooled**2).sum(), rtol=1e-12)
    with pytest.raises(TypeError, match="value must have dtype float16, .*, got int32"):
        adapter.fractional_avg_pool(jnp.ones((1, 4, 4, 1), "int32"), (1, 2, 2, 1))


@pytest.mark.parametrize("name", sorted(set(adapter.__all__) - {"FractionalAvgPool"}))
def test_examples_run(name):
    jax.config.update("jax_enable_x64", False)
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(adapter, name), name, globs={})
    assert test.examples
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test).failed == 0


# Threads, processes, stored programs


WITHOUT = """
import importlib.util, sys, types
if sys.argv[1] == "missing":
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name == "jax" else find(name, *rest)
else:
    old = sys.modules["jax"] = types.ModuleType("jax")
    old.__version__, old.__version_info__ = sys.argv[1], tuple(map(int, sys.argv[1].split(".")))
    old.__spec__ = importlib.util.spec_from_loader("jax", None)
import gradops.jax
"""


@pytest.mark.parametrize(
    ("given", "said"), [("missing", "which is not installed"), ("0.9.2", "0.10 or newer, got 0.9.2")]
)
def test_a_missing_or_old_jax_is_named(given, said):
    ran = subprocess.run([sys.executable, "-c", WITHOUT, given], capture_output=True, text=True)
    assert "ImportError: gradops.jax needs JAX" in ran.stderr
    assert said in ran.stderr


def test_result_does_not_depend_on_threads_or_neighbours():
    x, w, rest = case("wide", "same", NHWC, batch=16)
    step = jax.jit(lambda x, w: gradients(partial(adapter.conv_general_dilated, **rest), x, w))
    before = gradops.set_num_threads(1)
    try:
        expected = [np.asarray(array).tobytes() for array in step(x, w)]
        for threads in (2, 5):
            gradops.set_num_threads(threads)
            with ThreadPoolExecutor(4) as pool:
                for arrays in pool.map(lambda _: step(x, w), range(40)):
                    assert [np.asarray(array).tobytes() for array in arrays] == expected
    finally:
        gradops.set_num_threads(before)


def run(code, *arguments, **environment):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=170)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


DEVICES = """
import warnings
import jax, jax.numpy as jnp, numpy as np
from functools import partial
from jax.sharding import Mesh, PartitionSpec as P
import gradops.jax
x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6, 6, 4)), jnp.float32)
w = jnp.asarray(np.random.default_rng(1).standard_normal((3, 3, 4, 8)), jnp.float32)
def loss(conv, w, x):
    return (conv(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) ** 2).sum()
expected = jax.grad(partial(loss, jax.lax.conv_general_dilated))(w, x)
ours = jax.grad(partial(loss, gradops.jax.conv_general_dilated))
halves = x.reshape(2, 2, *x.shape[1:])
summed = jax.pmap(lambda w, x: jax.lax.psum(ours(w, x), "d"), "d", in_axes=(None, 0))(w, halves)
np.testing.assert_allclose(summed[0], expected, rtol=1e-4, atol=1e-3)
mesh = Mesh(np.array(jax.devices()), ("d",))
sharded = partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("d")))
for check in (True, False):
    explicit = sharded(lambda w, x: jax.lax.psum(ours(jax.lax.pcast(w, "d", to="varying"), x), "d"), out_specs=P(), check_vma=check)
    np.testing.assert_allclose(jax.jit(explicit)(w, x), expected, rtol=1e-4, atol=1e-3)
implicit = sharded(ours, out_specs=P())
np.testing.assert_allclose(jax.jit(implicit)(w, x), expected, rtol=1e-4, atol=1e-3)
outside = jax.grad(lambda w: sharded(lambda w, x: jax.lax.psum(loss(gradops.jax.conv_general_dilated, w, x), "d"), out_specs=P())(w, x))
np.testing.assert_allclose(jax.jit(outside)(w), expected, rtol=1e-4, atol=1e-3)
placed = jax.device_put(x, jax.NamedSharding(mesh, P("d")))
np.testing.assert_allclose(jax.jit(ours)(w, placed), expected, rtol=1e-4, atol=1e-3)
print(len(jax.devices()), gradops.jax.stats()["taken"]["conv_general_dilated"] > 0)
"""


def test_two_devices_under_pmap_and_shard_map_add_up_to_one():
    assert run(DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=2") == ["2", "True"]


STORED = """
import sys
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
import gradops.jax
x = jnp.ones((1, 5, 5, 2))
file = Path(sys.argv[1])
if not file.exists():
    conv = lambda x: gradops.jax.conv_general_dilated(x, jnp.ones((3, 3, 2, 4)), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    checks = [jax.export.DisabledSafetyCheck.custom_call("gradops_follow")]
    file.write_bytes(jax.export.export(jax.jit(conv), disabled_checks=checks)(x).serialize())
    print(conv(x).sum())
else:
    print(jax.export.deserialize(file.read_bytes()).call(x).sum())
print(len(list(Path(jax.config.jax_compilation_cache_dir).glob("*-cache"))))
"""


def test_exported_and_cached_programs_run_in_another_process_and_at_another_level(tmp_path):
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    program = tmp_path / "program"
    first = run(STORED, program, **environment)
    assert first[0] == str(float(4 * 2 * (9 * 9 + 12 * 6 + 4 * 4)))
    again = run(STORED, program, **environment)
    assert again[0] == first[0]
    count = again[1]
    assert int(count) > 0
    assert run(STORED, program, **environment, GRADOPS_ISA="generic") == [first[0], count]


def test_programs_of_another_gradops_are_refused():
    x, w, rest = case("dense", "same", NHWC)
    step = jax.jit(partial(adapter.conv_general_dilated, **rest))
    expected = np.asarray(step(x, w))
    entries, threads = [_xla.kernel(stem).entry for stem in _xla.KERNELS], _xla.shared_threads()
    _xla.xla.handler(_xla.KEY + 1, entries, threads)
    try:
        with pytest.raises(
            (RuntimeError, ValueError), match="compiled or exported with another version of gradops; trace it again"
        ):
            jax.block_until_ready(step(x, w))
    finally:
        _xla.xla.handler(_xla.KEY, entries, threads)
    np.testing.assert_array_equal(step(x, w), expected)


# XLA's C interface

TYPES = {"size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "int": ctypes.c_int}


def declarations():
    """Structs of `_xla.pxd` as ctypes lays them out, and its numbers."""
    text = (REPOSITORY / "src" / "gradops" / "_kernels" / "_xla.pxd").read_text()
    structs = {}
    for name, body in re.findall(r"^cdef struct (\w+):\n((?:    .*\n)+)", text, re.MULTILINE):
        fields = []
        for line in body.splitlines():
            pointer = "*" in line
            kind, field = re.match(r"(?:const )?(\w+) \**\(?\*?(\w+)", line.strip()).groups()
            fields.append((field, ctypes.c_void_p if pointer else (TYPES | structs)[kind]))
        structs[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return structs, re.findall(r"^    (\w+) = (\d+)$", text, re.MULTILINE)


@CHECKOUT
def test_declarations_of_xlas_interface_are_those_of_the_installed_header(tmp_path):
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not header.exists() or compiler is None:
        pytest.skip(f"there is no {header}" if compiler else "there is no C compiler")
    structs, numbers = declarations()
    assert len(structs) == 13
    prints = []
    for name, struct in structs.items():
        for field, kind in struct._fields_:
            theirs = f"XLA_FFI_{field}" if name == "Api" and field == "Error_Create" else field
            prints.append(f'printf("{name}.{field} %zu\\n", offsetof(struct XLA_FFI_{name}, {theirs}));')
            if not issubclass(kind, ctypes.Structure):
                prints.append(f'printf("{name}.{field}.size %zu\\n", sizeof(((struct XLA_FFI_{name} *) 0)->{theirs}));')
    prints += [f'printf("{name} %d\\n", (int) XLA_FFI_{name});' for name, _ in numbers]
    source = tmp_path / "layout.c"
    source.write_text(
        f"#include <stdio.h>\n#include <stdbool.h>\ntypedef struct XLA_FFI_Api_Version XLA_FFI_Api_Version;\n"
        f'#include "{header}"\nint main(void) {{\n' + "\n".join(prints) + "\nreturn 0; }\n"
    )
    subprocess.run([compiler, str(source), "-o", str(tmp_path / "layout")], check=True, capture_output=True)
    printed = subprocess.run([str(tmp_path / "layout")], check=True, capture_output=True, text=True).stdout
    theirs = {name: int(value) for name, value in (line.split() for line in printed.splitlines())}
    ours = {name: int(value) for name, value in numbers}
    for name, struct in structs.items():
        for field, kind in struct._fields_:
            ours[f"{name}.{field}"] = getattr(struct, field).offset
            if not issubclass(kind, ctypes.Structure):
                ours[f"{name}.{field}.size"] = ctypes.sizeof(kind)
    assert ours == theirs


# Whole networks


@pytest.fixture(scope="module")
def training():
    path = REPOSITORY / "benchmarks" / "training_jax.py"
    if not path.exists():
        pytest.skip("the tests do not lie in a checkout with its benchmarks")
    spec = importlib.util.spec_from_file_location("training_jax", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["MobileNetV2", "ConvNeXt-T", "ResNet-50"])
def test_networks_train_alike(training, name):
    """In float64: in float32, a few steps of a network with batch normalisation make rounding errors as large as a step."""
    network = partial(training.NETWORKS[name], scale=0.2, classes=10)
    images, labels = training.data(4, 32, classes=10)
    values = [value.astype("float64") for value in training.initial(network, images[:1])]
    images = images.astype("float64")
    taken = adapter.stats()["taken"].get("conv_general_dilated", 0)
    losses = []
    for step in training.compiled(network, values, images, labels):
        trained, found = values, []
        for _ in range(4):
            loss, trained = step(trained, images, labels)
            found.append(float(loss))
        losses.append(found)
    assert adapter.stats()["taken"]["conv_general_dilated"] > taken
    assert losses[0][3] < losses[0][0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)


KERAS = """
import keras, numpy as np, jax
import gradops.jax
from keras import layers
def trained():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([
        keras.Input((16, 16, 3)),
        layers.Conv2D(8, 3, strides=2, padding="same", activation="relu"),
        layers.DepthwiseConv2D(3, padding="same"),
        layers.SeparableConv2D(16, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(5),
    ])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(0)
    x, y = random.standard_normal((32, 16, 16, 3)).astype("float32"), random.integers(0, 5, 32)
    return model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0).history["loss"]
expected = trained()
assert not gradops.jax.stats()["taken"]
gradops.jax.enable()
np.testing.assert_allclose(trained(), expected, rtol=1e-3)
print(gradops.jax.stats()["taken"]["conv_general_dilated"] > 0, gradops.jax.stats()["declined"])
"""


def test_keras_on_the_jax_backend_trains_alike():
    if importlib.util.find_spec("keras") is None:
        pytest.skip("Keras is not installed")
    assert run(KERAS, KERAS_BACKEND="jax") == ["True", "{}"]
