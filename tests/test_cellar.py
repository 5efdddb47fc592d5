"""The inline code that the kernels share and no function exposes, compiled here with the kernels' own flags."""

import importlib.util
import os
import re
import shlex
import shutil
import sysconfig
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from Cython.Build import cythonize
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

from gradops._arrays import STORAGE, empty
from gradops._dispatch import PARTIAL
from gradops._geometry import attributes, plan
from gradops._problem import Lane
from gradops._problem import Problem as Packed
from gradops.testing import LEVELS, OPS, Problem, dtype_named, forced, random_integers, runnable

REPOSITORY = Path(__file__).parent.parent
KERNELS = REPOSITORY / "src" / "gradops" / "_kernels"
PROBE = Path(__file__).with_name("cellar_probe.pyx")
pytestmark = pytest.mark.skipif(not KERNELS.is_dir(), reason="the tests do not lie in a checkout with its sources")

PRECISIONS = {"float16": "f32", "bfloat16": "f32", "float32": "f32", "float64": "f64"}
REALS = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
every_storage = pytest.mark.parametrize("storage", PRECISIONS)
every_half = pytest.mark.parametrize("storage", ["float16", "bfloat16"])
every_real = pytest.mark.parametrize("storage", ["float32", "float64"])

GUARD, MARGIN = 99, 40


def cmake(command):
    """List the arguments of each call of a command in the project's own CMake files."""
    files = (REPOSITORY / "CMakeLists.txt", REPOSITORY / "cmake" / "GradopsKernels.cmake")
    text = re.sub(r"#.*", "", "\n".join(path.read_text() for path in files))
    return [shlex.split(call) for call in re.findall(rf'\b{command}\(((?:[^()"]|"[^"]*")*)\)', text)]


def flags(precision, level):
    """Give the kernels' compiler options, but for -O3 and inlining: -O1 compiles in a third of the time what the tests look at."""
    (common,) = [rest for name, *rest in cmake("set") if name == "GRADOPS_FLAGS"]
    selections = [rest for name, *rest in cmake("gradops_level") if name == level]
    selections += [rest[0].split(";") for name, *rest in cmake("gradops_build") if name == level]
    (selecting,) = selections
    ((_, _, *definitions),) = cmake("target_compile_definitions")
    definitions = [name for name in definitions if not name.startswith("CYTHON_INLINE")]
    return [
        *common,
        "-O1",
        "-g0",
        "-w",
        "-Wno-all",  # with which GCC would still look for what it may not say
        *selecting,
        *(
            f"-D{name}"
            for name in (
                *definitions,
                f"GRADOPS_REAL_{precision}",
                f"GRADOPS_STORAGE=storage_blocks_{precision}_{level}",
            )
        ),
    ]


def loaded(path):
    spec = importlib.util.spec_from_file_location(PROBE.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def probes(tmp_path_factory):
    """Builds of the probe by precision and level: transpiled once, compiled side by side."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C compiler {compiler!r} to compile {PROBE.name} with")
    folder = tmp_path_factory.mktemp("cellar")
    parts = cythonize([str(PROBE)], include_path=[str(KERNELS)], build_dir=str(folder), quiet=True)
    builds = {}
    wanted = [(precision, level) for level in LEVELS for precision in (["bf16"] if level in PARTIAL else REALS)]
    for precision, level in (pair for pair in wanted if runnable(pair[1])):
        folder_of_build = folder / f"{precision}_{level}"
        folder_of_build.mkdir()
        builds[precision, level] = Extension(
            f"{folder_of_build.name}.{PROBE.stem}",
            [shutil.copy(source, folder_of_build) for part in parts for source in part.sources],
            include_dirs=[str(KERNELS)],
            extra_compile_args=flags(precision, level),
        )
    command = build_ext(Distribution({"ext_modules": list(builds.values())}))
    command.build_lib = command.build_temp = str(folder)
    command.parallel = True
    command.ensure_finalized()
    command.run()
    return {build: loaded(command.get_ext_fullpath(extension.name)) for build, extension in builds.items()}


@pytest.fixture(params=LEVELS)
def level(request):
    """Unlike elsewhere each level has an item of its own: what some of them lack is skipped with its reason."""
    if not runnable(request.param):
        pytest.skip(f"this CPU does not run {request.param}")
    with forced(request.param):
        yield request.param


@pytest.fixture
def probe(probes, storage, level):
    """The build that kernels of this storage and level are."""
    if level in PARTIAL:
        return probes["bf16", level] if storage == "bfloat16" else probes[PRECISIONS[storage], PARTIAL[level]]
    return probes[PRECISIONS[storage], level]


def real_of(storage):
    return REALS[PRECISIONS[storage]]


def lattice(rows, cols, row, col):
    """Give the offsets of a strided block."""
    return row * np.arange(rows)[:, None] + col * np.arange(cols)


@contextmanager
def only(offsets, values, dtype, label):
    """Lend memory to write to: in the end the values must be at the offsets and nothing else anywhere around."""
    memory = np.full(MARGIN + offsets.max(initial=0) + 1 + MARGIN, GUARD, dtype)
    expected = memory.copy()
    expected[MARGIN + offsets] = values
    yield memory[MARGIN:]
    assert np.array_equal(memory, expected), label


def integers(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(-90, 90, shape).astype(dtype)


# Conversion


@cache
def halves(storage):
    return np.arange(2**16, dtype=np.uint16).view(dtype_named(storage))


@cache
@np.errstate(all="ignore")
def floats(storage):
    """Every half, every midpoint of two, their neighbours in float32, any 100,000 bit patterns; both signs."""
    steps = np.arange(2**15, dtype=np.uint16).view(dtype_named(storage))
    steps = steps[np.isfinite(steps)].astype(np.float64)
    steps = np.append(steps, 2 * steps[-1] - steps[-2])
    exact = np.concatenate([steps, (steps[1:] + steps[:-1]) / 2, [np.inf]]).astype(np.float32)
    beside = exact.view(np.uint32)[:, None] + np.array([-1, 0, 1]).astype(np.uint32)
    positive = np.concatenate([beside.ravel(), np.random.default_rng(0).integers(2**31, size=10**5, dtype=np.uint32)])
    return np.concatenate([positive, positive | np.uint32(2**31)]).view(np.float32)


def sums(values):
    """What sums of products of 16-bit numbers may be: NaN are quiet and have no lower bits."""
    bits = values.view(np.uint32)
    return np.where(np.isnan(values), bits & 0xFFFF0000 | 0x400000, bits).astype(np.uint32).view(np.float32)


@np.errstate(all="ignore")
def cast(src, dtype):
    return src.astype(dtype)


@np.errstate(all="ignore")
def assert_same_bits(got, expected, label=""):
    """NaN is as good as any other NaN."""
    unsigned = np.dtype(f"u{got.itemsize}")
    same = (got.view(unsigned) == expected.view(unsigned)) | (np.isnan(got) & np.isnan(expected))
    assert same.all(), (label, np.flatnonzero(~same)[:5])


def widen_turned(probe, code, src, dst):
    turned = src.reshape(-1, 256).T.ravel()
    probe.widen_block(code, turned, 1, 256, src.size // 256, 256, dst, 256)


def narrow_turned(probe, code, src, dst):
    rows = -(-src.size // 16)
    padded, got = np.resize(src, 16 * rows), np.zeros(16 * rows, dst.dtype)
    probe.narrow_block(code, padded.reshape(16, rows).T.ravel(), 16, rows, 16, got, 1, rows)
    dst[:] = got[: dst.size]


def narrow_in_turns(probe, code, src, dst):
    even, odd = (np.resize(src[start::2], src.size // 2 + 16) for start in (0, 1))
    probe.narrow_in_turns(code, even, odd, src.size // 2, dst)


CONVERSIONS = {
    "widened": (
        halves,
        lambda storage: np.float32,
        lambda probe, code, src, dst: probe.widen(code, src, src.size, dst),
        lambda probe, code, src, dst: probe.widen_strided(code, src, 1, src.size, dst),
        lambda probe, code, src, dst: probe.widen_strided(code, np.repeat(src, 2), 2, src.size, dst),
        lambda probe, code, src, dst: probe.widen_in_registers(code, src, src.size, dst),
        widen_turned,
    ),
    "narrowed": (
        floats,
        dtype_named,
        lambda probe, code, src, dst: probe.narrow(code, src, src.size, dst),
        lambda probe, code, src, dst: probe.narrow_strided(code, src, src.size, dst, 1),
        lambda probe, code, src, dst: probe.narrow_in_registers(code, sums(src), src.size, dst),
        narrow_turned,
        narrow_in_turns,
    ),
}
every_conversion = pytest.mark.parametrize("conversion", CONVERSIONS)


@every_half
@every_conversion
def test_numbers_are_converted_as_by_numpy(probe, storage, conversion):
    make, dtype_of, *ways = CONVERSIONS[conversion]
    src = make(storage)
    expected = cast(src, dtype_of(storage))
    for convert in ways:
        got = np.zeros_like(expected)
        convert(probe, STORAGE[storage], src, got)
        assert_same_bits(got, expected)


@every_half
@every_conversion
def test_conversion_is_the_same_at_every_length_and_offset(probe, storage, conversion):
    make, dtype_of, convert, *_ = CONVERSIONS[conversion]
    src = np.random.default_rng(0).choice(make(storage), 100)
    src = src[~np.isnan(cast(src, np.float32))]
    for n, start in product(range(71), range(4)):
        part, here = src[start : start + n], start + np.arange(n)
        with only(here, cast(part, dtype_of(storage)), dtype_of(storage), (n, start)) as dst:
            convert(probe, STORAGE[storage], part, dst[start:])


@every_half
def test_what_is_widened_is_narrowed_to_itself(probe, storage):
    wide, got = np.zeros(2**16, np.float32), np.zeros_like(halves(storage))
    probe.widen(STORAGE[storage], halves(storage), wide.size, wide)
    probe.narrow(STORAGE[storage], wide, wide.size, got)
    assert_same_bits(got, halves(storage))


@every_half
@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_is_infinity_and_underflow_a_signed_zero(probe, storage, sign):
    info = ml_dtypes.finfo(dtype_named(storage))
    largest, least = float(info.max), float(info.smallest_subnormal)
    ties = np.array([(largest + 2.0**info.maxexp) / 2, least / 2], np.float32)
    src = sign * np.append(ties, np.nextafter(ties, np.float32([0, 1])))
    got = np.zeros(4, dtype_named(storage))
    probe.narrow(STORAGE[storage], src, 4, got)
    assert_same_bits(got, (sign * np.array([np.inf, 0, largest, least])).astype(got.dtype))


# Moving


@every_real
def test_copy_and_clear_touch_exactly_their_extent(probe, storage):
    for n, start in product(range(3 * probe.SIZES["VL"] + 6), range(4)):
        src, here = integers(start + n, storage)[start:], start + np.arange(n)
        with only(here, src, storage, ("copy", n, start)) as dst:
            probe.copy(src, n, dst[start:])
        with only(here, 0, storage, ("clear", n, start)) as dst:
            probe.clear(dst[start:], n)


@every_real
def test_steps_read_and_write_nothing_between(probe, storage, at_the_edge):
    for n, step in product(range(1, 3 * probe.SIZES["VL"] + 6), (2, 3, 4)):
        apart = at_the_edge(integers(step * (n - 1) + 1, storage))
        with only(np.arange(n), apart[::step], storage, ("copy_every", n, step)) as dst:
            probe.copy_every(step, apart, n, dst)
        row = step * n + 3
        rows = at_the_edge(integers(2 * row + step * (n - 1) + 1, storage))
        offsets = lattice(3, n, n + 2, 1)
        with only(offsets, rows[lattice(3, n, row, step)], storage, ("copy_rows_every", n, step)) as dst:
            probe.copy_rows_every(step, rows, row, 3, n, dst, n + 2)
        together = at_the_edge(integers(n, storage))
        if step < 4:
            with only(step * np.arange(n), together, storage, ("store_every", n, step)) as dst:
                probe.store_every(step, together, n, dst)


@every_real
def test_lines_are_woven(probe, storage, at_the_edge):
    size = probe.SIZES["VL"]
    for step, n in product((2, 3, 4), (1, 2, size - 1, size, 3 * size + 1, 6 * size, 7 * size + 5)):
        each = -(-n // (step * size)) * size + size
        lines = integers((step, each), storage)
        whole = -(-n // (step * size)) * step * size
        expected = lines[:, : whole // step].T.reshape(-1)
        with only(np.arange(whole), expected, storage, (step, n)) as dst:
            probe.interleave_lines(step, at_the_edge(lines), each, n, dst)


@every_real
def test_vectors_are_woven_and_their_numbers_picked(probe, storage):
    size = probe.SIZES["VL"]
    for step in 2, 3, 4:
        lines = integers((step, size), storage)
        for n in range(1, step * size + 1):
            with only(np.arange(n), lines.T.reshape(-1)[:n], storage, (step, n)) as dst:
                probe.store_woven(step, lines, n, dst)
        for first in range(step):
            with only(np.arange(size), lines.reshape(-1)[first::step], storage, (step, first)) as dst:
                probe.every_lane(step, first, lines, dst)


@every_real
def test_transpose_swaps_rows_and_columns(probe, storage):
    size = probe.SIZES["VL"]
    for src_ld, dst_ld in product((size, size + 1, 3 * size), repeat=2):
        src = integers((size, src_ld), storage)
        with only(lattice(size, size, dst_ld, 1), src[:, :size].T, storage, (src_ld, dst_ld)) as dst:
            probe.transpose(src, src_ld, dst, dst_ld)


BLOCKS = {
    "contiguous rows": lambda rows, cols: (cols + 3, 1),
    "contiguous columns": lambda rows, cols: (1, rows + 3),
    "strided rows": lambda rows, cols: (2 * cols + 1, 2),
    "rows of every third": lambda rows, cols: (3 * cols, 3),
    "rows of every fourth": lambda rows, cols: (4 * cols + 1, 4),
    "rows of every fifth": lambda rows, cols: (5 * cols, 5),
    "strided columns": lambda rows, cols: (3, 3 * rows + 2),
}


@every_storage
@pytest.mark.parametrize("strides", BLOCKS)
def test_blocks_are_widened_and_narrowed_whatever_their_strides(probe, storage, strides):
    code, dtype, real = STORAGE[storage], dtype_named(storage), real_of(storage)
    for rows, cols in product(range(2 * probe.SIZES["VL"] + 4), repeat=2):
        steps, ld = BLOCKS[strides](rows, cols), cols + 2
        outside, inside = lattice(rows, cols, *steps), lattice(rows, cols, ld, 1)
        stored, reals = (integers(at.max(initial=0) + 1, real) for at in (outside, inside))
        with only(inside, stored[outside], real, (rows, cols)) as dst:
            probe.widen_block(code, stored.astype(dtype), *steps, rows, cols, dst, ld)
        with only(outside, reals[inside], dtype, (rows, cols)) as dst:
            probe.narrow_block(code, reals, ld, rows, cols, dst, *steps)


@every_storage
def test_two_lanes_of_columns_are_narrowed_in_turns(probe, storage):
    lanes, dtype, real = probe.SIZES["VL"], dtype_named(storage), real_of(storage)
    for n in range(2 * lanes + 4):
        even, odd = integers((2, 4 * lanes + 4), real, n)
        with only(np.arange(2 * n), np.stack([even, odd], 1)[:n].ravel(), dtype, n) as dst:
            probe.narrow_in_turns(STORAGE[storage], even, odd, n, dst)


@every_storage
def test_vectors_are_written_past_caches_and_nothing_beside_them(probe, storage):
    """Into whole cache lines, after something that caches still hold."""
    dtype, size = dtype_named(storage), probe.SIZES["VL"]
    if dtype.itemsize == 2:
        if probe.SIZES["WIDE"] == 1:
            pytest.skip("this level has no vectors of 16 bits")
        size *= probe.SIZES["WIDE"]
    memory, src = empty((5, size), dtype), integers((3, size), storage)
    memory[...] = GUARD
    probe.store_wide_past(STORAGE[storage], src, 3, src[0].nbytes, memory[1:])
    assert np.array_equal(memory[1:4], src)
    assert (memory[[0, 4]] == GUARD).all()


@every_real
def test_some_numbers_of_vectors_are_stored_and_nothing_beyond(probe, storage):
    lanes, dtype = probe.SIZES["VL"], real_of(storage)
    even, odd = integers((2, lanes), dtype)
    for n in range(1, lanes + 1):
        with only(np.arange(n), even[:n], dtype, n) as dst:
            probe.store_some(even, n, dst)
    for n in range(1, 2 * lanes + 1):
        with only(np.arange(n), np.stack([even, odd], 1).ravel()[:n], dtype, n) as dst:
            probe.store_some_pairs(even, odd, n, dst)


@every_real
def test_two_vectors_are_parted_and_a_number_is_spread(probe, storage):
    lanes, dtype = probe.SIZES["VL"], real_of(storage)
    every = integers((2 * lanes,), dtype)
    even, odd, spread = np.zeros((3, lanes), dtype)
    probe.part_lanes(every, even, odd)
    assert np.array_equal(even, every[::2]) and np.array_equal(odd, every[1::2])
    for number in np.array([[-0.0], [np.inf], [3]], dtype):
        probe.spread_once(number, spread)
        assert np.array_equal(spread.view(np.uint8), np.repeat(number, lanes).view(np.uint8))


@every_real
def test_twins_are_halves_of_two_vectors(probe, storage):
    lanes, dtype = probe.SIZES["VL"], real_of(storage)
    half = lanes // 2
    one, other = integers((2, lanes), dtype)
    loaded, spread, upper = twins = np.zeros((3, lanes), dtype)
    probe.twins(one, other, twins)
    assert np.array_equal(loaded, [*one[:half], *other[:half]])
    assert np.array_equal(spread, np.repeat([one[0], other[0]], half))
    assert np.array_equal(upper, [*one[half:], *other[half:]])


def need_vectors_as_stored(probe, storage):
    """Skip where 16-bit numbers are widened in memory."""
    if dtype_named(storage) != real_of(storage) and probe.SIZES["WIDE"] == 1:
        pytest.skip("this build has no vectors of 16-bit numbers: it widens them in memory")


@every_storage
def test_vectors_are_loaded_as_they_are_stored(probe, storage):
    lanes, dtype, real = probe.SIZES["VL"], dtype_named(storage), real_of(storage)
    half = lanes // 2
    one, other = integers((2, lanes), real).astype(dtype)
    loaded, twins, even, odd = got = np.zeros((4, lanes), real)
    need_vectors_as_stored(probe, storage)
    probe.load_stored(STORAGE[storage], one, other, got)
    assert np.array_equal(loaded, one.astype(real))
    assert np.array_equal(twins, np.concatenate([one[:half], other[:half]]).astype(real))
    every = np.concatenate([one, other]).astype(real)
    assert np.array_equal(even, every[::2]) and np.array_equal(odd, every[1::2])


@every_storage
def test_vectors_are_rounded_as_they_are_stored_and_nothing_beyond(probe, storage):
    lanes, dtype, real = probe.SIZES["VL"], dtype_named(storage), real_of(storage)
    need_vectors_as_stored(probe, storage)
    code, half = STORAGE[storage], lanes // 2
    even, odd = values = (np.random.default_rng(3).standard_normal((2, lanes)) * 90).astype(real)
    stored, pairs = values.astype(dtype), np.stack([even, odd], 1).ravel().astype(dtype)
    for n in range(1, lanes + 1):
        with only(np.arange(n), stored[0, :n], dtype, n) as dst:
            probe.store_stored(code, even, n, dst)
    for n in range(1, 2 * lanes + 1):
        with only(np.arange(n), pairs[:n], dtype, n) as dst:
            probe.store_stored_pairs(code, even, odd, n, dst)
    for second, each, most in (None, stored[0], half), (odd, pairs, lanes):
        for n in range(1, most + 1):
            with (
                only(np.arange(n), each[:n], dtype, n) as one,
                only(np.arange(n), each[most : most + n], dtype, n) as other,
            ):
                probe.store_stored_twins(code, even, second, n, one, other)


@every_half
def test_what_is_no_number_stays_none_in_a_register(probe, storage):
    lanes, dtype = probe.SIZES["VL"], dtype_named(storage)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 3.4e38, -0.0, 1e-40, 0x7F7FFFFF], np.float32)
    special[-1] = np.uint32(0x7F800001).view(np.float32)
    src, got = np.resize(special, lanes).astype(np.float32), np.zeros(lanes, dtype)
    probe.narrow(STORAGE[storage], src, lanes, got)
    with np.errstate(over="ignore", invalid="ignore"):
        want = src.astype(dtype).astype(np.float32)
    assert np.array_equal(got.astype(np.float32), want, equal_nan=True)
    if probe.SIZES["WIDE"] > 1:
        again = np.zeros(lanes, dtype)
        probe.store_stored(STORAGE[storage], sums(src), lanes, again)
        assert_same_bits(again, got)


@every_real
def test_a_walk_stops_where_rows_begin_or_cease_to_lie_inside(probe, storage):
    for low, high, reads in product(range(4), range(1, 9), (1, 2)):
        first = low // 2 * 2 if reads == 2 else low
        steps = -(-(high - first) // reads) if low < high else 0
        inside = [all(low <= first + t * reads + p < high for p in range(reads)) for t in range(steps)]
        for t in range(steps):
            end = probe.alike(low, high, first, reads, t)
            assert t < end <= steps and len(set(inside[t:end])) == 1
            assert not inside[t] or end == steps or not inside[end]


@every_real
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_taps_of_groups_are_parted_by_the_distance_of_lanes_and_joined_again(probe, storage, size):
    lanes, ld, dtype = probe.SIZES["VL"], probe.SIZES["VL"] + 3, real_of(storage)
    ways, wide = min(size, lanes), max(size // lanes, 1)
    rows, vectors = integers((wide * ways, ld), dtype), np.zeros((wide, ways, lanes), dtype)
    distance, lane = np.arange(ways)[:, None], np.arange(lanes)
    expected = np.stack([rows[u * lanes + lane % ways, lane ^ distance] for u in range(wide)])
    probe.part_ways(rows, ld, ways, wide, vectors)
    assert np.array_equal(vectors, expected)
    with only(lattice(wide * ways, lanes, ld, 1), rows[:, :lanes], dtype, size) as joined:
        probe.join_ways(vectors, ways, wide, joined, ld)


LINES = [  # count, lanes per multiplier, multipliers, step of a pixel, step of a channel
    (count, channels, repeat, *steps)
    for count in (0, 1, 2, 5, 19)
    for channels, repeat in [(1, 1), (3, 1), (16, 1), (37, 1), (64, 1), (1, 2), (7, 3), (16, 4), (1, 64)]
    for steps in [(channels, 1), (channels + 3, 1), (1, 23), (3, 60)]
]


@every_storage
def test_lines_are_packed_into_vectors_of_lanes(probe, storage):
    size = probe.SIZES["VL"]
    for count, channels, repeat, step, channel_step in LINES:
        src = integers(19 * step + channels * channel_step, dtype_named(storage))
        lanes, plane = channels * repeat, count * size + 3
        i, lane = np.indices((count, -(-lanes // size) * size), sparse=True)
        values = src[i * step + np.minimum(lane // repeat, channels - 1) * channel_step]
        here, label = lane // size * plane + i * size + lane % size, (count, channels, repeat, step, channel_step)
        with only(here, np.where(lane < lanes, values, 0), real_of(storage), label) as dst:
            probe.pack_line(STORAGE[storage], src, step, channel_step, count, lanes, repeat, dst, plane)


# Arithmetic


@every_real
def test_all_finite_finds_infinity_and_nan_wherever_they_are(probe, storage):
    info = np.finfo(storage)
    harmless = np.array([info.max, -info.max, info.smallest_subnormal, -0.0, 1], storage)
    for n in range(3 * probe.SIZES["VL"] + 2):
        src = np.resize(harmless, n + 2)
        src[[0, -1]] = np.nan
        assert probe.all_finite(src[1:], n), n
        for at, bad in product(range(1, n + 1), (np.inf, -np.inf, np.nan)):
            src[at], before = bad, src[at]
            assert not probe.all_finite(src[1:], n), (n, at, bad)
            src[at] = before


@every_real
def test_dots_are_the_products_of_all_rows_and_their_tails(probe, storage):
    vl, rows, most = (probe.SIZES[name] for name in ("VL", "DOT_ROWS", "DOT_COLUMNS"))
    before = 3
    for columns, vectors, tail, skip in product(range(1, most + 1), (0, 1, 3), (False, True), range(rows)):
        if not vectors and not tail:
            continue
        a, b = (random_integers([(n, 5 * vl + k)], storage, seed=n)[0] for n, k in ((rows, 1), (before + columns, 2)))
        a_tails, b_tails = a[:, 4 * vl : 5 * vl], b[:, 4 * vl : 5 * vl]
        expected = b[before:, : vectors * vl] @ a[:, : vectors * vl].T
        if tail:
            expected = expected + b_tails[before:] @ a_tails.T
        for accumulate in False, True:
            c = np.full((columns, rows + 6), GUARD, storage)
            wanted = c.copy()
            wanted[:, skip:rows] = expected[:, skip:] + GUARD * accumulate
            probe.dot_columns(columns, a, a_tails, b, b_tails, vectors * vl, tail, before, skip, accumulate, c)
            np.testing.assert_array_equal(c, wanted, f"{columns} {vectors} {tail} {skip} {accumulate}")


@every_real
def test_rows_finite_looks_at_all_rows_and_not_between_them(probe, storage):
    rows, between = 3, 2
    for n in range(3 * probe.SIZES["VL"] + 2):
        src = np.full((rows, n + between), np.nan, storage)
        src[:, :n] = 1
        assert probe.rows_finite(src, n + between, rows, n), n
        assert probe.rows_finite(src, n + between, 0, n + 1), n
        for row, at in product(range(rows), range(n)):
            src[row, at] = np.inf
            assert not probe.rows_finite(src, n + between, rows, n), (n, row, at)
            src[row, at] = 1


@pytest.mark.parametrize("storage", ["float32"])
@pytest.mark.parametrize("order", [0, 1], ids=["in order", "first free"])
def test_each_block_is_done_once(probe, order):
    for count, threads in product((0, 1, 2, 7, 64, 1000), (1, 2, 3, 8, 70)):
        counts = np.zeros(count, np.int64)
        probe.do_blocks(order, threads, counts)
        assert (counts == 1).all(), (count, threads)


@every_storage
def test_spans_are_summed_in_waves_of_bounded_memory(probe, storage):
    most = (1 << 20) // real_of(storage).itemsize
    for spans, (size, blocks), threads in product(
        (1, 2, 3, 7, 31), ((1, 1), (70, 3), (9000, 2), (most // 3, 1)), (1, 2, 5)
    ):
        sums, label = integers((spans, size), real_of(storage)), (spans, size, blocks, threads)
        with only(np.arange(size), sums.sum(axis=0), dtype_named(storage), label) as out:
            finite, count, slots = probe.sum_spans(sums, STORAGE[storage], out, blocks, threads)
        assert finite, label
        assert count <= spans, label
        assert slots <= 2 or slots * size <= threads * most, label


@every_real
@pytest.mark.parametrize("spans", [1, 2, 5])
def test_totals_tell_whether_they_are_finite(probe, storage, spans):
    size, out = 37, np.zeros(37, storage)
    for at in range(size):
        sums = np.ones((spans, size), storage)
        sums[:, at] = np.finfo(storage).max if spans > 1 else np.inf
        assert not probe.sum_spans(sums, STORAGE[storage], out, 2, 1)[0], at


@every_real
def test_parts_are_contiguous_and_differ_by_at_most_one(probe):
    for total, parts in product((0, 1, 2, 5, 13, 14, 15, 100, 2**40 + 7), range(1, 20)):
        ends = [probe.part(total, index, parts) for index in range(parts + 1)]
        sizes = np.diff(ends)
        assert (ends[0], ends[-1]) == (0, total)
        assert sizes.min() >= 0
        assert sizes.max() - sizes.min() <= 1


@every_real
def test_rounding_up(probe, storage):
    for count in (0, 1, 15, 16, 17, 2**40 + 1):
        assert probe.padded(count) * np.dtype(storage).itemsize % 64 == 0
        assert 0 <= probe.padded(count) - count < 16
        for unit in (1, 2, 7, 16):
            assert probe.divide_up(count, unit) == -(-count // unit)


@every_real
def test_scratch_of_threads_lies_apart(probe, storage):
    for count, threads in product((1, 15, 16, 1000, 100_001), (1, 2, 5)):
        size, gap, label = count * np.dtype(storage).itemsize, probe.GAP * (threads > 1), (count, threads)
        places, slab = probe.scratch_places(count, threads)
        before = np.array([0, *np.add(places[:-1], size)])
        assert not np.mod(places, 64).any(), label
        assert np.all(places - before >= gap), label
        assert places[-1] + size <= slab < threads * (size + 64 + gap), label


@every_real
@pytest.mark.parametrize("by_column", [False, True], ids=["by_row", "by_column"])
@pytest.mark.parametrize("packed", [False, True], ids=["wide", "packed"])
def test_product_of_blocks_is_exact_and_stays_inside(probe, storage, by_column, packed):
    most_rows, most_cols = 2 * probe.SIZES["MR"] + 1, 2 * probe.SIZES["NR"] + 1
    for depth, cols in product((0, 1, 2, probe.SIZES["KC"]), range(1, most_cols + 1)):
        a, b = integers((most_rows, depth), storage), integers((depth, cols), storage, seed=1)
        b = np.pad(b, ((0, 0), (0, -cols % probe.SIZES["NR"])))
        a_panel = leading(a.T if by_column else a, probe.SIZES["LD"])
        b_panel, ldb, panel = panels(b, probe.SIZES["NR"], packed)
        whole = -(-cols // probe.SIZES["VL"]) * probe.SIZES["VL"]
        exact, ldc = (a @ b)[:, :whole], b.shape[1] + 3
        for rows, add in product(range(1, most_rows + 1), (False, True)):
            here, label = lattice(rows, whole, ldc, 1), (rows, cols, depth, add)
            with only(here, exact[:rows] + GUARD * add, storage, label) as c:
                probe.gemm_block(by_column, rows, cols, depth, a_panel, b_panel, ldb, panel, c, ldc, add)


@pytest.fixture
def windows(probe):
    """The probe of a level that has the registers for tiles of windows."""
    if probe.SIZES["MR"] <= 6:
        pytest.skip("its 16 registers are too few for tiles of windows")
    return probe


@every_real
def test_windows_of_neighbouring_pixels_are_exact_and_stay_inside(windows, storage):
    """Rows of taps, each of which reads what the next pixel does with the tap before, or after: of one vector of outputs."""
    most, lanes, width = (windows.SIZES[name] for name in ("MR", "VL", "NR"))
    for taps, turn, depth, rows in product((2, 3), (1, -1), (1, 2, 5), (1, 2, 3)):
        pixel, line = depth + 1, (most + taps) * (depth + 1) + 3
        a, b = integers(rows * line, storage), integers((rows * taps * depth, lanes), storage, seed=1)
        at = (np.arange(rows)[:, None] * line + np.arange(taps)[::turn] * pixel).ravel()
        for m, add in product(range(1, most + 1), (False, True)):
            read = a[at[None, :, None] + np.arange(m)[:, None, None] * pixel + np.arange(depth)]
            exact, label = read.reshape(m, -1) @ b, (taps, turn, m, depth, rows, add)
            with only(lattice(m, lanes, lanes + 3, 1), exact + GUARD * add, storage, label) as c:
                depths = np.full(at.size, depth)
                windows.gather_windows(taps, m, at, depths, a, pixel, leading(b, width), c, lanes + 3, add)


@every_real
@pytest.mark.parametrize("step", [1, 2])
def test_windows_are_summed_over_steps_inside_alone(windows, storage, step):
    """Nothing of x is read before the first step inside, or from the last one on."""
    for channels, depths, first, beyond in product(range(3, 9), [(1,), (2, 5), (4, 4, 3)], (0, 1, 2), (0, 1, 2)):
        columns = (np.array(depths) - 1) * step + 3
        low, high = np.minimum(first, -(-columns // step)), np.maximum(-(-columns // step) - beyond, 0)
        x = np.full((len(depths), columns.max(), channels + 2), np.nan, storage)
        dy = integers((sum(depths), windows.SIZES["VL"]), storage, seed=2)
        exact, pixel = np.zeros((3, channels, dy.shape[1])), 0
        for row, count, begin, end in zip(x, depths, low * step, np.minimum(high * step, columns), strict=True):
            row[begin:end, :channels] = integers((max(end - begin, 0), channels), storage)
            for q, tap in product(range(count), range(3)):
                if begin <= q * step + tap < end:
                    exact[tap] += np.outer(row[q * step + tap, :channels], dy[pixel + q])
            pixel += count
        distance, at = 7 + channels * (dy.shape[1] + 3), np.arange(len(depths)) * x[0].size
        here = distance * np.arange(3)[:, None, None] + lattice(channels, dy.shape[1], dy.shape[1] + 3, 1)
        for add in False, True:
            with only(here, exact + GUARD * add, storage, (channels, depths, first, beyond, add)) as c:
                spread = leading(dy, dy.shape[1] + 2)
                windows.sum_channels(
                    step,
                    channels,
                    at,
                    np.array(depths),
                    low,
                    high,
                    x,
                    channels + 2,
                    spread,
                    spread.shape[1],
                    c,
                    distance,
                    dy.shape[1] + 3,
                    add,
                )


def paired(one, other):
    """Two float32 arrays of bfloat16 numbers as one array of pairs, the first in the lower half."""
    return (one.view(np.uint32) >> 16 | other.view(np.uint32)).view(np.float32)


@pytest.fixture(params=PARTIAL)
def pairing(probes, request):
    if not runnable(request.param):
        pytest.skip(f"this CPU does not run {request.param}")
    return probes["bf16", request.param]


@pytest.mark.parametrize("odd", [False, True], ids=["even", "odd"])
def test_blocks_are_paired_in_place_bit_by_bit(pairing, odd):
    special = np.array([np.inf, -np.inf, np.nan, -0.0, 1e-40, -3], np.float32).view(np.uint32) & 0xFFFF0000
    for size in range(2 + odd, 90, 2):
        matrix = np.resize(special.view(np.float32), (size, 48)) * np.float32(1)
        missing = np.zeros((int(odd), 48), np.float32)
        expected = paired(*(np.vstack([matrix, missing])[at::2].copy() for at in (0, 1)))
        by_rows, by_columns = matrix.copy(), leading(np.ascontiguousarray(matrix.T), 128)
        pairing.pair_rows(by_rows, size, 48, 48)
        pairing.pair_columns(by_columns, 48, size, 128)
        np.testing.assert_array_equal(by_rows[: len(expected)].view(np.uint32), expected.view(np.uint32))
        np.testing.assert_array_equal(by_columns[:, : len(expected)].T.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("distance", [1, 2, 15, 16, 21])
def test_numbers_are_paired_with_those_ahead_bit_by_bit(pairing, distance):
    special = np.array([np.inf, 3, np.nan, -0.0, 1e-40, -3, 7], np.float32).view(np.uint32) & 0xFFFF0000
    for size in range(70):
        row = np.resize(special.view(np.float32), size)
        ahead = np.concatenate([row, np.zeros(distance, np.float32)])[distance:]
        wanted = paired(row, ahead).view(np.uint32)[None]
        with only(lattice(1, size, size, 1), wanted, np.uint32, size) as memory:
            memory[:size] = row.view(np.uint32)
            pairing.pair_ahead(memory.view(np.float32), size, distance)


def test_rows_are_paired_with_those_before_bit_by_bit(pairing):
    width, special = pairing.SIZES["NR"], np.array([np.inf, 3, np.nan, -0.0, 1e-40, -3, 7], np.float32)
    for rows, ld in product(range(4), (width, width + 3)):
        src = np.resize(special, (rows + 1, ld))
        bits = src.view(np.uint32)
        wanted = (bits[:-1] >> 16 | bits[1:] << 16)[:, :width]
        with only(lattice(rows, width, ld, 1), wanted, np.uint32, (rows, ld)) as dst:
            pairing.pair_before(src, rows, ld, dst.view(np.float32))


SPANS = [
    (0, 0, 0),
    (1, 0, 1),
    (5, 2, 4),
    (31, 0, 31),
    (32, 0, 32),
    (33, 1, 33),
    (70, 33, 65),
    (70, 0, 70),
    (70, 70, 70),
    (200, 0, 200),
    (201, 2, 199),
]


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_halves_a_few_apart_are_placed_side_by_side(pairing, step):
    for (n, low, high), rows in product(SPANS, (1, 3)):
        src, ld = np.arange(1, 1 + rows * (step * n + 1), dtype=np.uint16).reshape(rows, -1), n // 2 + 3
        wanted = np.where((np.arange(n) >= low) & (np.arange(n) < high), src[:, : step * n : step], 0)
        with only(lattice(rows, n, 2 * ld, 1), wanted, np.uint16, (n, low, high, rows)) as dst:
            pairing.place_halves(src, 2 * src.shape[1], rows, step, low, high, n, dst, ld)


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_halves_of_two_rows_are_placed_as_pairs(pairing, step):
    for (n, low, high), rows in product(SPANS, (1, 3)):
        src, at = np.arange(1, 1 + 2 * rows * (step * n + 1), dtype=np.uint16).reshape(2, rows, -1), np.arange(n)
        few = max(low, high - 1)
        one, two = (
            np.where((at >= low) & (at < end), half[:, : step * n : step], 0)
            for half, end in zip(src, (high, few), strict=True)
        )
        with only(
            lattice(rows, n, n + 2, 1), one | two.astype(np.uint32) << 16, np.uint32, (n, low, high, rows)
        ) as dst:
            pairing.place_pairs(
                src[0], low, high, src[1], low, few, 2 * src.shape[2], rows, step, n, dst.view(np.float32), n + 2
            )


def test_halves_are_cleared_and_no_others(pairing):
    for n, rows in product((0, 1, 5, 31, 32, 33, 70), (0, 1, 3)):
        ld = n // 2 + 2
        with only(lattice(rows, n, 2 * ld, 1), 0, np.uint16, (n, rows)) as dst:
            pairing.clear_halves(rows, n, dst, ld)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_an_infinity_or_nan_is_found_in_either_half_of_a_pair(pairing, special):
    for size in range(1, 40):
        halves = np.array([3e38, -0.0, 1e-40, -3], dtype_named("bfloat16")).repeat(10)
        assert pairing.pairs_finite(halves.view(np.float32), size // 2)
        halves[size - 1] = special
        pairs = halves.view(np.float32)
        assert [pairing.pairs_finite(pairs, n) for n in range(20)] == [2 * n < size for n in range(20)]


def test_rows_of_sums_are_narrowed_and_no_others_touched(pairing):
    dtype, width = dtype_named("bfloat16"), pairing.SIZES["NR"]
    special = np.array([1 + 2**-8, 1 + 3 * 2**-8, -3.3e38, np.inf, np.nan, -0.0, 2.0**-126], np.float32)
    for rows, cols, ld in product((0, 1, 5), range(1, width + 1), (width, width + 3)):
        src = np.resize(special, (rows + 1, ld))
        wanted = src[:rows, :cols].astype(dtype).view(np.uint16)
        with only(lattice(rows, cols, cols + 5, 1), wanted, np.uint16, (rows, cols, ld)) as dst:
            pairing.narrow_rows(src, ld, rows, cols, dst, 2 * (cols + 5))


@pytest.mark.parametrize("depth", [1, 7, 32, 33, 64, 95])
def test_product_of_pairs_is_the_sum_of_both_products_and_stays_inside(pairing, depth):
    ld, width, lanes, tile = (pairing.SIZES[name] for name in ("LD", "NR", "VL", "TILE"))
    for rows, cols in product((*range(1, 36), 70), (width // 2 - 1, width, width + 1, 2 * width)):
        a, b = integers((rows, depth), "float32"), integers((depth, cols), "float32", seed=1)
        b_whole = np.pad(b, ((0, depth % 2), (0, -cols % width)))
        a_panel, b_panel, exact = leading(a, ld), np.vstack(np.hsplit(b_whole, b_whole.shape[1] // width)), a @ b
        pairing.pair_columns(a_panel, rows, depth, ld)
        pairs = len(b_whole) // 2
        for panel in range(b_whole.shape[1] // width):
            pairing.pair_rows(b_panel[panel * 2 * pairs :], depth, width, width)
        whole = -(-cols // lanes) * lanes
        exact, ldc = np.pad(exact, ((0, 0), (0, whole - cols))), b_whole.shape[1] + 3
        for add, steps in product((False, True), sorted({tile, -(-3 * tile // 4), -(-tile // 3)})):
            here, label = lattice(rows, whole, ldc, 1), (rows, cols, add, steps)
            with only(here, exact + GUARD * add, "float32", label) as c:
                operands = a_panel, b_panel, width, 2 * pairs * width
                pairing.gemm_block(False, rows, cols, pairs, *operands, c, ldc, add, steps)


def leading(matrix, ld):
    """Rows `ld` apart, with NaN between them."""
    rows = np.full((matrix.shape[0], ld), np.nan, matrix.dtype)
    rows[:, : matrix.shape[1]] = matrix
    return rows


def panels(b, width, packed):
    """Give b in panels of `width` columns, one after another or side by side, with ldb and the distance of panels."""
    if packed:
        return np.vstack(np.hsplit(b, b.shape[1] // width)), width, b.shape[0] * width
    return leading(b, b.shape[1] + 5), b.shape[1] + 5, width


# Patches

PATCHES = [
    ("conv2d", "n2h5w6c3k2r3s2_same_nhwc"),
    ("conv2d", "n2h9w8c4k3r3s3_u2x3_p2.1.0.4_nhwc"),
    ("conv2d", "n1h6w9c3k2r2s3_u1x2_d2x2_same_nhwc"),
    ("conv2d", "n2h8w7c6k4r2s3_u3x2_d2x1_g2_p1.2.3.0_nhwc"),
    ("conv2d", "n2h7w9c6k4r3s3_u1x2_d2x1_g2_same_nchw"),
    ("conv2d", "n1h5w40c35k2r1s2_nchw"),
    ("conv2d", "n1h2w3c2k2r3s5_d4x3_p6.3.7.9_nhwc"),
    ("conv2d", "n1h2w3c2k2r3s5_u2x1_d4x3_p6.3.7.9_nchw"),
    ("conv2d_backprop_input", "n2h7w6c3k5r3s4_same_nhwc"),
    ("conv2d_backprop_input", "n1h11w9c2k4r4s3_u2x3_p1.2.0.1_nhwc"),
    ("conv2d_backprop_input", "n2h13w12c4k6r3s4_u4x2_d6x3_g2_p7.5.2.8_nchw"),
    ("conv2d_backprop_input", "n1h9w30c2k20r2s3_u5x1_d1x2_same_nchw"),
]


def planned(op, problem):
    dy = None if op == "conv2d" else problem.output_shape
    given = attributes(**{"explicit_paddings": ()} | problem.attributes)
    return plan(op, problem.input_shape, problem.filter_shape, dy, given)


def unpacked(problem):
    """Give the fields of a packed problem and its lanes."""
    fields = np.frombuffer(problem, np.int64).tolist()
    head = Packed(*fields[: len(Packed._fields)])
    lanes = [Lane(*lane) for lane in np.reshape(fields[len(head) :], (-1, len(Lane._fields))).tolist()]
    return head, lanes[: head.row_lanes], lanes[head.row_lanes :]


def patch_matrix(head, row, col, image, group):
    """By definition: [pixel, slot], where slots are (tap row, tap column, channel of the group)."""
    shape = (head.images, row.count, col.count, row.taps, col.taps, head.src_channels)
    n, u, v, i, j, c = np.indices(shape, sparse=True)
    y = row.src_start + row.src_unit * (row.z_step * u + row.tap_step * i)
    x = col.src_start + col.src_unit * (col.z_step * v + col.tap_step * j)
    inside = (y >= 0) & (y < head.src_rows) & (x >= 0) & (x < head.src_cols)
    values = image[n, np.where(inside, y, 0), np.where(inside, x, 0), group * head.src_channels + c]
    return np.where(inside, values, 0).reshape(np.prod(shape[:3]), np.prod(shape[3:]))


def blocks(shape, seed):
    """Give the whole of a matrix and some blocks of it, as (first, count) of rows and of columns."""
    rng = np.random.default_rng(seed)
    yield 0, shape[0], 0, shape[1]
    for _ in range(12):
        yield tuple(int(x) for size in shape for x in _span(rng, size))


def _span(rng, size):
    first, last = np.sort(rng.integers(size, size=2))
    return first, last + 1 - first


@every_storage
@pytest.mark.parametrize(("op", "name"), PATCHES, ids=["-".join(row) for row in PATCHES])
@pytest.mark.parametrize("unpadded", [False, True], ids=["padded", "unpadded"])
def test_patches_are_packed_by_pixel_and_by_slot(probe, storage, op, name, unpadded):
    problem = Problem.parse(name)
    packed = planned(op, problem).problem("conv", unpadded)
    head, row_lanes, col_lanes = unpacked(packed)
    (image,) = random_integers([OPS[op].shapes(problem)[op != "conv2d"]], dtype_named(storage), seed=3)
    nhwc = image if problem.layout == "NHWC" else image.transpose(0, 2, 3, 1)
    for (r, row), (s, col), group in product(enumerate(row_lanes), enumerate(col_lanes), range(head.groups)):
        matrix = patch_matrix(head, row, col, nhwc, group)
        for first, count, slot, slots in blocks(matrix.shape, seed=r + s):
            values = matrix[first : first + count, slot : slot + slots]
            for pack, wanted in (probe.pack_pixels, values), (probe.pack_slots, values.T):
                ld, label = wanted.shape[1] + 3, (row, col, group, first, count, slot, slots)
                with only(lattice(*wanted.shape, ld, 1), wanted, real_of(storage), label) as dst:
                    pack(packed, r, s, STORAGE[storage], image, group, first, count, slot, slots, dst, ld)


PAIRS = [
    ("conv2d", "n2h5w37c6k4r3s3_same_nchw"),
    ("conv2d", "n1h3w70c4k4r2s3_g2_p1.2.3.1_nchw"),
    ("conv2d", "n2h9w75c5k4r3s2_u2x2_d1x3_p1.2.40.37_nchw"),  # every second pixel, some of which read nothing
    ("conv2d", "n1h4w40c6k3r1s1_nchw"),
    ("conv2d", "n1h3w170c5k2r2s3_p0.0.0.1_nchw"),  # long rows, some of which lie inside
    ("conv2d_backprop_input", "n2h6w40c5k6r4s3_u2x1_same_nchw"),
    ("conv2d_backprop_input", "n1h5w33c4k8r3s5_u1x2_g2_same_nchw"),
]


@pytest.mark.parametrize(("op", "name"), PAIRS, ids=["-".join(row) for row in PAIRS])
def test_patches_of_planes_are_packed_as_pairs_of_slots_and_of_pixels(pairing, op, name):
    problem = Problem.parse(name)
    packed, storage = planned(op, problem).problem("conv"), STORAGE["bfloat16"]
    head, row_lanes, col_lanes = unpacked(packed)
    (image,) = random_integers([OPS[op].shapes(problem)[op != "conv2d"]], dtype_named("bfloat16"), seed=3)
    for (r, row), (s, col), group in product(enumerate(row_lanes), enumerate(col_lanes), range(head.groups)):
        nhwc = image.transpose(0, 2, 3, 1).reshape(head.images, head.src_rows, head.src_cols, -1)
        matrix = patch_matrix(head, row, col, nhwc, group)
        for first, count, slot, slots in blocks(matrix.shape, seed=r + s):
            values, label = (
                matrix[first : first + count, slot : slot + slots].view(np.uint16).T,
                (row, col, first, slot),
            )
            at = (packed, r, s, storage, image, group, first, count)
            with only(lattice(slots, count, 2 * (count + 3), 1), values, np.uint16, label) as memory:
                dst = memory[: len(memory) // 2 * 2].view(np.float32)
                pairing.pack_pixel_pairs(*at, slot, slots, dst, count + 3)
            values = matrix[first : first + count, slot : slot + slots].astype(np.float32).T
            values = np.concatenate([values, np.zeros((slots % 2, count), np.float32)])
            values = paired(values[::2].copy(), values[1::2].copy())
            with only(lattice(*values.shape, count + 3, 1), values, np.float32, label) as dst:
                pairing.pack_slot_pairs(*at, slot, slots, dst, count + 3)


RUNS = [
    ("conv2d", "n2h7w9c3k4r3s3_same_nhwc"),
    ("conv2d", "n1h5w40c1k2r2s5_u1x2_p1.2.3.0_nhwc"),
    ("conv2d", "n2h4w70c5k3r3s9_u2x1_same_nhwc"),  # windows longer than a register
    ("conv2d", "n1h2w3c3k2r3s5_p6.3.7.9_nhwc"),  # pixels that read nothing
    ("conv2d", "n1h9w9c1k2r3s3_same_nchw"),
    ("conv2d", "n1h7w9c4k4r3s3_u2x1_same_nhwc"),  # pairs of channels
    ("conv2d", "n2h9w8c9k4r3s3_d2x3_same_nhwc"),  # taps that lie apart
    ("conv2d", "n2h7w9c15k6r3s3_u1x2_g3_same_nhwc"),
]


@pytest.mark.parametrize(("op", "name"), RUNS, ids=["-".join(row) for row in RUNS])
def test_windows_are_copied_as_the_pairs_of_slots_that_they_are(pairing, op, name):
    problem = Problem.parse(name)
    packed, storage = planned(op, problem).problem("conv"), STORAGE["bfloat16"]
    head, (row,), (col,) = unpacked(packed)
    (image,) = random_integers([OPS[op].shapes(problem)[0]], dtype_named("bfloat16"), seed=3)
    matrix = patch_matrix(head, row, col, image.reshape(head.images, head.src_rows, head.src_cols, -1), 0)
    for first, count, slot, slots in blocks(matrix.shape, seed=0):
        values = matrix[first : first + count, slot : slot + slots].view(np.uint16)
        values = np.concatenate([values, np.zeros((count, slots % 2), np.uint16)], axis=1)
        with only(lattice(*values.shape, 2 * (slots + 3), 1), values, np.uint16, (first, slot)) as memory:
            dst = memory[: len(memory) // 2 * 2].view(np.float32)
            pairing.pack_pairs(packed, 0, 0, storage, image, 0, first, count, slot, slots, dst, slots + 3)


@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "bundled"),
    [(16, 16, 4, 2), (2, 4, 12, 6), (8, 8, 5, 1), (3, 5, 7, 1), (12, 4, 8, 2), (33, 1, 4, 1)],
)
def test_as_many_groups_as_a_tile_holds_are_one_with_the_same_lanes(pairing, channels, outputs, groups, bundled):
    problem = Problem(h=6, w=7, c=groups * channels, k=groups * outputs, groups=groups, strides=(2, 1), padding="SAME")
    packed = planned("conv2d", problem)
    for unpadded in False, True:
        given = packed.problem("conv", unpadded)
        count, whole = pairing.bundle(given)
        assert count == (bundled if pairing.SIZES["TILE"] > 1 and not unpadded else 1)
        head, *lanes = unpacked(whole)
        before, *same = unpacked(given)
        assert lanes == same
        assert head == before._replace(
            groups=groups // count, src_channels=channels * count, dst_channels=outputs * count
        )


BANDS = [
    ("conv2d", "n3h9w8c16k4r3s3_same_nhwc"),
    ("conv2d", "n2h12w15c64k6r3s3_u2x2_g2_p3.2.1.0_nhwc"),  # groups of two lines
    ("conv2d", "n2h9w8c20k4r5s3_p9.9.1.1_nhwc"),  # pixels that read nothing
    ("conv2d", "n2h7w9c12k6r3s2_d2x1_g2_same_nhwc"),
    ("conv2d_backprop_input", "n2h13w14c8k32r5s5_u2x2_g2_same_nhwc"),
    ("conv2d_backprop_input", "n2h9w9c8k32r3s3_d2x3_same_nhwc"),  # taps are apart
]
every_band = pytest.mark.parametrize(("op", "name"), BANDS, ids=["-".join(row) for row in BANDS])


def rows_read(row, taps, u):
    """The rows of src that taps of a pixel read."""
    return [row.src_start + row.src_unit * (row.z_step * u + row.tap_step * i) for i in taps]


@every_storage
@every_band
def test_lines_of_a_band_are_those_of_whole_rows_that_it_copies(probe, storage, op, name):
    problem = Problem.parse(name)
    packed, size = planned(op, problem).problem("conv"), dtype_named(storage).itemsize
    head, row_lanes, col_lanes = unpacked(packed)
    image, rng = np.zeros(OPS[op].shapes(problem)[op != "conv2d"], dtype_named(storage)), np.random.default_rng(0)
    for (r, row), (s, col), group in product(enumerate(row_lanes), enumerate(col_lanes), range(head.groups)):
        taps = range(row.taps)
        for _ in range(20):
            first, last = np.sort(rng.integers(head.images * row.count * col.count, size=2))
            burst = int(rng.integers(1, 9))
            found = probe.band_lines(
                packed, r, s, image, STORAGE[storage], group, int(first), int(last + 1 - first), burst
            )
            inside = {
                n * head.src_rows + y
                for n, u in (divmod(at, row.count) for at in range(first // col.count, last // col.count + 1))
                for y in range(min(rows_read(row, taps, u)), max(rows_read(row, taps, u)) + 1)
                if 0 <= y < head.src_rows
            }
            rows = np.arange(min(inside), max(inside) + 1) if inside else np.arange(0)
            pixels = np.add.outer(rows * head.src_cols, np.arange(head.src_cols)).ravel() * head.src_x * size
            begin, length = group * head.src_channels * size, head.src_channels * size
            expected = [at + begin + line for line in range(0, length, 64) for at in pixels]
            apart = row.src_unit > 1 or col.src_unit > 1
            assert found == ([] if apart else expected), (row, col, group, first, last)


@every_storage
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_rows_of_taps_of_few_channels_are_one_tap(probe, storage, channels):
    tiles, pair = probe.SIZES["TILE"], probe.SIZES["PAIR"]
    problem = Problem(n=1, h=5, w=30, c=channels, k=3, r=2, s=3)
    for taps, layout, dilation in product((1, 2, 3, 4, 8), ("NHWC", "NCHW"), (1, 2)):
        shape = replace(problem, s=taps, layout=layout, dilations=(1, dilation))
        (image,) = random_integers([OPS["conv2d"].shapes(shape)[0]], dtype_named(storage), seed=3)
        few = pair == 1 and layout == "NHWC" and channels < 4 and taps * channels >= 8 and dilation == 1
        joined = few or (tiles > 1 and dilation == 1 and channels % (2 * tiles))
        run = probe.tap_run(planned("conv2d", shape).problem("conv"), 0, 0, STORAGE[storage], image)
        assert run == (taps if joined else 1) * channels


@every_storage
@every_band
def test_taps_of_rows_outside_are_left_out(probe, storage, op, name):
    problem = Problem.parse(name)
    packed = planned(op, problem).problem("conv")
    head, row_lanes, col_lanes = unpacked(packed)
    (image,) = random_integers([OPS[op].shapes(problem)[op != "conv2d"]], dtype_named(storage), seed=3)
    for (r, row), (s, col) in product(enumerate(row_lanes), enumerate(col_lanes)):
        channels, all_slots = head.src_channels, row.taps * col.taps * head.src_channels
        run = probe.tap_run(packed, r, s, STORAGE[storage], image)
        tiles = probe.SIZES["TILE"]
        joined = tiles > 1 and col.tap_step == 1 and channels % (2 * tiles)
        assert run == (col.taps * channels if joined else channels)
        for u, (slot, end) in product(range(row.count), [(0, all_slots), (channels, all_slots), (2, all_slots - 2)]):
            if slot >= end:
                continue
            begin, depths = probe.taps_inside(packed, r, s, STORAGE[storage], image, u, slot, end - slot)
            taps = np.arange(slot, end) // channels
            inside = [0 <= y < head.src_rows for y in rows_read(row, taps // col.taps, u)]
            slots = np.arange(slot, end)
            row_of_taps = np.isin(slots // run, np.unique(slots // run)[: col.taps * channels // run])
            wanted = slots[inside if any(inside) else row_of_taps]
            assert (begin, sum(depths)) == (wanted[0], len(wanted)), (row, col, u, slot)
            assert depths == np.unique(wanted // run, return_counts=True)[1].tolist()


RINGS = [
    ("depthwise_conv2d_native", "n2h7w9c20m1r3s3_same_nhwc"),
    ("depthwise_conv2d_native", "n2h7w9c20m1r3s3_same_nchw"),
    ("depthwise_conv2d_native", "n1h9w40c37m1r5s4_p2.1.3.2_nchw"),
    ("depthwise_conv2d_native", "n1h9w11c5m1r2s3_u2x3_d1x2_p1.2.0.3_nhwc"),
    ("depthwise_conv2d_native", "n1h9w11c5m1r2s3_u3x2_d2x1_p1.2.0.3_nchw"),
    ("depthwise_conv2d_native_backprop_input", "n1h8w12c19m1r3s5_u2x2_same_nhwc"),
    ("depthwise_conv2d_native_backprop_input", "n1h8w12c19m1r3s5_same_nchw"),
]


@every_storage
@pytest.mark.parametrize(("op", "name"), RINGS, ids=["-".join(row) for row in RINGS])
@pytest.mark.parametrize(("strip", "spread"), [(1, False), (2, False), (100, False), (2, True)])
def test_rings_hold_rows_of_the_image_and_zeros_around_it(probe, storage, op, name, strip, spread):
    problem = Problem.parse(name)
    packed = planned(op, problem).problem("depthwise")
    head, row_lanes, col_lanes = unpacked(packed)
    (image,) = random_integers([OPS[op].shapes(problem)[op != "depthwise_conv2d_native"]], dtype_named(storage), seed=3)
    nhwc = image if problem.layout == "NHWC" else image.transpose(0, 2, 3, 1)
    size, channels = 1 if spread else probe.SIZES["VL"], nhwc.shape[3]
    for (r, row), (s, col) in product(enumerate(row_lanes), enumerate(col_lanes)):
        ring = np.full(100_000, np.nan, real_of(storage))
        height, width, planes = probe.pack_rows(packed, r, s, STORAGE[storage], image, channels, spread, strip, ring)
        read = col.z_step * (col.count - 1) + col.tap_step * (col.taps - 1) + 1
        y = row.src_start + row.src_unit * np.arange(height)[:, None]
        x = col.src_start + col.src_unit * np.arange(width)
        inside = (y >= 0) & (y < head.src_rows) & (x >= 0) & (x < head.src_cols)
        values = nhwc[0, np.clip(y, 0, head.src_rows - 1), np.clip(x, 0, head.src_cols - 1)]
        values = np.pad(np.where(inside[..., None], values, 0), ((0, 0), (0, 0), (0, planes * size - channels)))
        found = ring[: height * planes * width * size].reshape(height, planes, width, size).transpose(0, 2, 1, 3)
        rows = (row.z_step * np.arange(row.count)[:, None] + np.arange(row.taps)).ravel()
        np.testing.assert_array_equal(found.reshape(values.shape)[rows, :read], values[rows, :read], str((r, s)))
        assert read <= width and np.isnan(ring[height * planes * width * size :]).all()


@every_real
@pytest.mark.parametrize("taps", range(1, 8))
@pytest.mark.parametrize("stride", range(1, 5))
def test_a_hull_reaches_what_all_its_lanes_do(probe, storage, taps, stride):
    for size, before in product((5, 12, 13), range(taps)):
        problem = Problem(h=size, w=1, c=1, m=1, r=taps, s=1, strides=(stride, 1), padding=(before, taps, 0, 0))
        packed = planned("depthwise_conv2d_native_backprop_input", problem).problem("depthwise")
        _, lanes, _ = unpacked(packed)
        found = probe.hull(np.array(lanes, np.int64).tobytes())
        if len(lanes) < 2:
            assert found is None
            continue
        start, count, reach = found
        assert count == max(lane.count for lane in lanes)
        assert start == min(lane.src_start for lane in lanes)
        assert start + reach == max(lane.src_start + lane.taps for lane in lanes)


@pytest.mark.parametrize("storage", ["float32"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_columns_take_turns_in_two_lanes_that_alternate(probe, layout):
    seen = set()
    for size, taps, stride, before in product((5, 12, 13), (1, 2, 3), (1, 2, 3), (0, 1)):
        options = {"strides": (1, stride), "padding": (0, 0, before, taps), "layout": layout}
        problem = Problem(h=1, w=size, c=2, k=2, r=1, s=taps, **options)
        packed = planned("conv2d_backprop_input", problem).problem("conv")
        _, _, lanes = unpacked(packed)
        columns = [[lane.out_start + lane.out_step * t for t in range(lane.count)] for lane in lanes]
        alternate = len(columns) == 2 and sorted(columns) == [list(range(0, size, 2)), list(range(1, size, 2))]
        expected = layout == "NCHW" and alternate and size % 2 == 0
        assert probe.takes_turns(packed) == expected, problem
        seen.add(expected)
    assert seen == ({False, True} if layout == "NCHW" else {False})


@every_real
def test_strips_of_a_pool_cover_every_value_once(probe, storage):
    sizes = (1, 3), (1, 5, 70), (16, 64), (50, 1024), (1, 12), (1, 7, 1300), (1, 8)
    for planes, depth, most, values, rows, cols, threads in product(*sizes):
        covered = np.zeros((planes, rows, cols, depth), np.int8)
        strips = probe.pool_strips(planes, depth, most, values, rows, cols, threads)
        for plane, top, bottom, x, width, channel, channels in strips:
            assert channels <= most and width * channels <= max(values, channels)
            covered[plane, top:bottom, x : x + width, channel : channel + channels] += 1
        assert (covered == 1).all()


@every_real
def test_lanes_pick_from_either_vector(probe, storage):
    for dtype in {np.dtype(real_of(storage)), np.dtype(np.float64)}:
        lanes = probe.SIZES["DOUBLES"] * 8 // dtype.itemsize
        a, b = (integers(lanes, dtype, seed) for seed in (1, 2))
        for seed in range(20):
            rng = np.random.default_rng(seed)
            numbers, seconds = rng.integers(0, lanes, lanes), rng.integers(0, 2, lanes)
            dst = np.zeros(lanes, dtype)
            probe.picked(a, b, numbers.tolist(), seconds.tolist(), dst)
            np.testing.assert_array_equal(dst, np.where(seconds, b[numbers], a[numbers]))


@every_real
def test_vectors_are_shifted_and_read_in_part(probe, storage):
    lanes, real = probe.SIZES["DOUBLES"], real_of(storage)
    values, dst = integers(2 * lanes, np.float64, 3), np.zeros(lanes)
    probe.next_doubles(values, dst)
    np.testing.assert_array_equal(dst, values[1 : lanes + 1])
    for n in range(probe.SIZES["VL"] + 1):
        src, dst = integers(n, real, 4), np.ones(probe.SIZES["VL"], real)
        probe.load_some(src, n, dst)
        np.testing.assert_array_equal(dst, np.pad(src, (0, dst.size - n)))


@every_real
def test_quotients_are_those_of_float64(probe, storage):
    lanes = probe.SIZES["DOUBLES"]
    values = np.float32([1, -3.4e38, np.inf, -np.inf, np.nan, 0, 1e-45, 0.1])
    for divisor in (1, 3, 7, 49, 2**24 + 1, 987654321):
        for first in range(len(values)):
            for n in range(1, lanes + 1):
                a, b = np.roll(values, first)[:n].copy(), np.full(lanes, divisor, np.float64)
                dst = np.zeros(lanes)
                probe.quotients(a, np.concatenate([b, 1 / b]), n, dst)
                np.testing.assert_array_equal(dst[:n], a.astype(np.float64) / divisor)


A = np.array([[1, 0], [1, 1], [1, -1], [0, -1]])
B = np.array([[1, 0, 0, 0], [0, 1, -1, 1], [-1, 1, 1, 0], [0, 0, 0, -1]])
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
ALL = range(4)
POINTS = [(ALL, ALL), (range(3), range(1, 4)), (range(1, 3), range(3)), (range(1, 4), range(1, 3))]
# What a transform does to one channel, given the points of an axis: the matrix, and whether its two sides are lines or planes.
TRANSFORMS = {
    "transform_src": (lambda points: B.T[points], "line", "plane"),
    "transform_dst": (lambda points: A[points], "line", "plane"),
    "transform_filter": (lambda points: G[points], "plane", "plane"),
    "restore_dst": (lambda points: A.T[:, points], "plane", "line"),
    "restore_filter": (
        lambda points: G.T[[set(np.flatnonzero(tap)) <= set(points) for tap in G.T]][:, points],
        "plane",
        "line",
    ),
}


def strides_of(kind, shape, lanes):
    """Distances of rows and columns, and the arguments that give them."""
    if kind == "line":
        return (7 * shape[1] * lanes, lanes + 3), (7 * shape[1] * lanes, lanes + 3)
    return (shape[1] * (lanes + 5), lanes + 5), (lanes + 5,)


@every_real
@pytest.mark.parametrize("points", POINTS, ids=str)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_winograds_transforms_are_products_of_matrices(probe, storage, name, points):
    matrix, read, written = TRANSFORMS[name]
    down, across = (matrix(list(some)) for some in points)
    lanes, result, size = probe.SIZES["VL"], (len(down), len(across)), (down.shape[1], across.shape[1])
    (row, col), taken = strides_of(read, size, lanes)
    (dst_row, dst_col), given = strides_of(written, result, lanes)
    if name == "transform_src":
        dst_row, given = dst_row + 2 * dst_col, (*given, result[1] + 2)
    tile = integers((*size, lanes), np.float64, seed=3)
    src = np.full(size[0] * row + size[1] * col, np.nan, real_of(storage))
    src[lattice(*size, row, col)[..., None] + np.arange(lanes)] = tile
    offsets = lattice(*result, dst_row, dst_col)[..., None] + np.arange(lanes)
    ends = [end for some in points for end in (some[0], some[-1] + 1)]
    with only(offsets, np.einsum("ia,abl,jb->ijl", down, tile, across), real_of(storage), name) as dst:
        getattr(probe, name)(src, *taken, ends, dst, *given)


@every_real
def test_the_largest_dead_slab_is_kept_for_those_that_fit(probe, storage):
    size, allocate = 1 << 20, probe.allocate_bytes
    held = [allocate(1 << power) for power in range(17, 27)]  # one of them has what others have left behind
    slab, other = allocate(size), allocate(2 * size)
    assert slab % 64 == other % 64 == 0
    probe.release(slab)
    probe.release(other)
    assert allocate(size) == other, "the larger one is kept"
    beside = allocate(size)
    assert beside != other, "no one else may have it meanwhile"
    probe.release(beside)
    probe.release(other)
    small = allocate(2 * size // probe.TIMES - 64)
    assert small != other, "it is too large for so little"
    assert allocate(2 * size) == other, "and stays"
    probe.release(small)
    large = allocate(probe.MOST_KEPT + 64)
    probe.release(large)
    probe.release(other)
    assert allocate(size) == other, "one that is too large to be kept does not take its place"
    tiny = allocate(probe.LEAST_KEPT - 64)
    for each in tiny, other, *held:
        probe.release(each)


SHEETS = [
    (op, replace(problem, layout="NCHW"))
    for op in ("conv2d", "conv2d_backprop_input")
    for problem in (
        Problem(h=7, w=9, c=1, k=1, padding="SAME"),
        Problem(h=6, w=9, c=1, k=1, r=3, s=2, padding="VALID"),
        Problem(h=7, w=8, c=1, k=1, r=2, s=5, padding=(3, 1, 0, 5)),  # different zeros on both sides
        Problem(h=9, w=8, c=1, k=1, r=3, s=2, dilations=(4, 7), padding="SAME"),
        Problem(h=5, w=6, c=1, k=1, padding=(9, 9, 1, 9)),  # pixels that read nothing
    )
] + [
    ("conv2d", Problem(layout="NCHW", c=1, k=1, **options))
    for options in (
        {"h": 14, "w": 15, "strides": (2, 2), "padding": "SAME"},
        {"h": 14, "w": 14, "strides": (2, 2), "padding": (1, 1, 1, 1)},
        {"h": 31, "w": 31, "strides": (3, 3), "padding": (1, 1, 1, 1)},  # as many columns as pixels in all phases
        {"h": 17, "w": 18, "r": 5, "s": 4, "strides": (2, 3), "padding": (2, 2, 3, 0)},
        {"h": 17, "w": 30, "r": 2, "s": 1, "strides": (4, 3), "padding": "VALID"},  # fewer phases than steps
        {"h": 19, "w": 20, "dilations": (3, 1), "strides": (1, 2), "padding": "SAME"},
    )
]


@pytest.mark.parametrize("storage", ["float32"])
@pytest.mark.parametrize(("op", "problem"), SHEETS, ids=[f"{op}-{problem}" for op, problem in SHEETS])
def test_taps_read_their_pixels_in_a_sheet(probe, op, problem):
    head, (row,), (col,) = unpacked(planned(op, problem).problem("conv"))
    plane = 10_000
    lanes = [np.array(lane, np.int64).tobytes() for lane in (row, col)]
    rows, cols, places = probe.sheet(*lanes, head.src_rows, head.src_cols, plane)
    src = np.arange(1, head.src_rows * head.src_cols + 1).reshape(head.src_rows, head.src_cols)

    def value(y, x):
        return src[y, x] if 0 <= y < head.src_rows and 0 <= x < head.src_cols else 0

    sheet = {}
    for i, j in product(range(rows["phases"]), range(cols["phases"])):
        for y, x in product(range(row.count + rows["reach"]), range(max(col.count + cols["reach"], cols["pitch"]))):
            at = (i * cols["phases"] + j) * plane + y * cols["pitch"] + x
            sheet[at] = value(rows["start"] + i + row.z_step * y, cols["start"] + j + col.z_step * x)
    for (tap, place), u, v in product(enumerate(places), range(row.count), range(col.count)):
        y = row.src_start + row.z_step * u + row.tap_step * (tap // col.taps)
        x = col.src_start + col.z_step * v + col.tap_step * (tap % col.taps)
        assert sheet[place + u * cols["pitch"] + v] == value(y, x), (tap, u, v)
    assert cols["pitch"] <= col.count + cols["reach"] and rows["pitch"] <= row.count + rows["reach"]
