"""Fractional average pooling and its gradient: known answers, exact rounding, coverage, odd sequences, tiles and threads."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradops
from gradops._arrays import STORAGE
from gradops._call import call
from gradops._pooling import pooled
from gradops.testing import DTYPES, OPS, PoolProblem, dtype_named, pooling_sequences, random_integers, random_normal

POOL, GRAD = OPS["fractional_avg_pool"], OPS["fractional_avg_pool_grad"]
FLOATS, INTEGERS = DTYPES[:4], DTYPES[4:]
LAYOUTS = ("NHWC", "NCHW")


def line(values, dtype=np.float64):
    """An image of one row and one channel."""
    return np.array(values, dtype).reshape(1, 1, -1, 1)


def grad_of_line(size, values, sequence, overlapping=False, dtype=np.float64):
    dx = gradops.fractional_avg_pool_grad((1, 1, size, 1), line(values, dtype), [0, 1], sequence, overlapping)
    return dx.ravel()


def nearest(exact, dtype):
    """`exact` rounded once to `dtype`, ties to even; integers cut off towards zero."""
    if np.issubdtype(dtype, np.integer):
        return np.trunc(exact).astype(dtype)
    if dtype.name != "bfloat16":
        return exact.astype(dtype)
    toward_zero = (np.abs(exact).astype(np.float32).view(np.uint32) >> 16).astype(np.uint32)
    toward_zero -= (toward_zero << 16).view(np.float32) > np.abs(exact)
    below, above = ((bits << 16).view(np.float32).astype(np.float64) for bits in (toward_zero, toward_zero + 1))
    excess = (np.abs(exact) - below) - (above - np.abs(exact))
    up = (excess > 0) | ((excess == 0) & (toward_zero % 2 == 1))
    return (np.sign(exact) * np.where(up, above, below)).astype(dtype)


# Known answers


def test_documentation_example(whole_level):
    plan = pooled((1, 1, 5, 1), (0, 1), (0, 2, 4), True, "NHWC")
    means = call(plan, (line([20, 5, 16, 3, 7]),), STORAGE["float64"])
    np.testing.assert_allclose(means.ravel(), [41 / 3, 26 / 3], rtol=1e-15)
    shares = grad_of_line(5, means.ravel(), [0, 2, 4], overlapping=True)
    np.testing.assert_allclose(shares, [41 / 9, 41 / 9, 41 / 9 + 26 / 9, 26 / 9, 26 / 9], rtol=1e-15)


def test_means_of_a_pooling_with_known_sequences(whole_level):
    pooled = gradops.fractional_avg_pool(line([20, 5, 16, 3, 7]), (1, 1, 1.6, 1), deterministic=True, seed=1)
    assert pooled.col_pooling_sequence.tolist() == [0, 1, 3, 5]
    assert pooled.row_pooling_sequence.tolist() == [0, 1]
    assert pooled.output.ravel().tolist() == [20, 10.5, 5]
    pooled = gradops.fractional_avg_pool(line([20, 5, 16, 3, 7]), (1, 1, 1.6, 1), False, True, True, 1)
    np.testing.assert_allclose(pooled.output.ravel(), [12.5, 8, 5])


def test_result_is_a_named_tuple():
    pooled = gradops.fractional_avg_pool(np.ones((1, 4, 6, 2), np.float32), (1, 2, 2, 1))
    output, rows, cols = pooled
    assert pooled._fields == ("output", "row_pooling_sequence", "col_pooling_sequence")
    assert output.shape == (1, 2, 3, 2)
    assert rows.dtype == cols.dtype == np.int64
    assert (rows[0], rows[-1], cols[0], cols[-1]) == (0, 4, 0, 6)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_means_wrap_and_then_divide_towards_zero(dtype, whole_level):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for values, mean in [
        ((-3, -4), -3),
        ((3, 4), 3),
        ((-1, 0), 0),
        ((high, 1), low // 2),
        ((low, low), 0),
        ((high, high), -1),
    ]:
        assert gradops.fractional_avg_pool(line(values, dtype), (1, 1, 2, 1)).output.item() == mean


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_gradients_are_cut_off_after_the_sum(dtype, whole_level):
    assert grad_of_line(3, [7, 7], [0, 1, 3], overlapping=True, dtype=dtype).tolist() == [3, 7, 3]
    assert grad_of_line(3, [-7, -7], [0, 1, 3], overlapping=True, dtype=dtype).tolist() == [-3, -7, -3]
    dx = gradops.fractional_avg_pool_grad(
        (1, 3, 1, 1), np.full((1, 2, 1, 1), 7, dtype), [0, 1, 2], [0, 3], overlapping=True
    )
    assert dx.ravel().tolist() == [3, 7, 3]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_gradients_out_of_range_saturate(dtype, whole_level):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    assert grad_of_line(1, [high, high], [0, 0, 1], overlapping=True, dtype=dtype).item() == high
    assert grad_of_line(1, [low, low], [0, 0, 1], overlapping=True, dtype=dtype).item() == low
    assert grad_of_line(1, [low], [0, 1], dtype=dtype).item() == low


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_are_not_rounded_to_float32_on_the_way(dtype, whole_level):
    storage = dtype_named(dtype)
    step = float(2 * np.spacing(np.ones((), storage)) if dtype == "float16" else 2.0**-6)
    tie = 1 + step / 4
    assert grad_of_line(1, np.array([tie - step / 4, step / 4], storage), [0, 0, 1], True, storage).item() == 1
    assert (
        grad_of_line(1, np.array([1, step / 4, 2.0**-24], storage), [0, 0, 0, 1], True, storage).item() == 1 + step / 2
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("channels", [1, 40])
def test_shares_are_quotients_rounded_once(dtype, channels, whole_level):
    storage, sizes = dtype_named(dtype), np.arange(1, 65)
    exponents = np.random.default_rng(4).integers(*{"float16": (-28, 15)}.get(dtype, (-149, 127)), (1, 1, 64, channels))
    dy = (random_normal([exponents.shape], "float64", seed=3)[0] * 2.0**exponents).astype(storage)
    ends = np.append(0, np.cumsum(sizes))
    dx = gradops.fractional_avg_pool_grad((1, 1, ends[-1], channels), dy, [0, 1], ends)
    with np.errstate(under="ignore"):
        expected = nearest(dy.astype(np.float64) / sizes[:, None], storage)
    np.testing.assert_array_equal(dx[0, 0, ends[:-1]], expected[0, 0])


def test_shares_of_more_pixels_than_a_float_counts(whole_level):
    side = 4097
    pixels = side**2
    value = next(v for v in np.float32(range(1, 99)) if np.float32(np.float64(v) / pixels) != v / np.float32(pixels))
    dx = gradops.fractional_avg_pool_grad((1, side, side, 1), value.reshape(1, 1, 1, 1), [0, side], [0, side])
    assert (dx == np.float32(np.float64(value) / pixels)).all()


def test_special_values_stay_in_their_cells(whole_level):
    dx = grad_of_line(6, [np.nan, 1, np.inf], [0, 2, 4, 6])
    np.testing.assert_array_equal(dx, [np.nan, np.nan, 0.5, 0.5, np.inf, np.inf])
    dx = grad_of_line(9, [np.nan, 1, -np.inf], [0, 3, 6, 9], dtype=np.float32)
    np.testing.assert_array_equal(dx, np.repeat(np.float32([np.nan, 1 / 3, -np.inf]), 3))
    x = line([1, np.inf, 2, 4, np.nan, 1])
    np.testing.assert_array_equal(gradops.fractional_avg_pool(x, (1, 1, 2, 1)).output.ravel(), [np.inf, 3, np.nan])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", [40, 63])
def test_means_of_subnormal_numbers_are_quotients_rounded_once(dtype, width, whole_level):
    """Of cells of one, two and four pixels, products with the inverse are."""
    storage = dtype_named(dtype)
    problem = PoolProblem(n=1, h=9, w=width, c=2, ratio=(1.5, 1.4), layout="NCHW")
    (counts,) = random_integers(POOL.shapes(problem), np.float64, seed=6)
    step = float(np.nextafter(np.zeros((), storage), np.ones((), storage)))
    exact = nearest(POOL.reference(problem, counts * step), storage)
    assert len(np.unique(exact.astype(np.float64))) > 4
    np.testing.assert_array_equal(POOL(problem, (counts * step).astype(storage)), exact)


@pytest.mark.parametrize("width", [5, 13, 23, 40, 63])
@pytest.mark.parametrize("overlapping", [False, True])
def test_nothing_is_read_beyond_the_last_plane(width, overlapping, whole_level, at_the_edge):
    problem = PoolProblem(n=2, h=7, w=width, c=2, ratio=(1.4, 1.3), overlapping=overlapping, layout="NCHW")
    for storage, op in product(map(dtype_named, FLOATS), (POOL, GRAD)):
        (x,) = random_normal(op.shapes(problem), storage, seed=8)
        for begins in False, True:
            np.testing.assert_array_equal(op(problem, at_the_edge(x, begins)), op(problem, x))


# Every type, layout, tile and thread count, against the references

SHAPES = [
    PoolProblem(n=2, h=9, w=11, c=3, ratio=(1.7, 2.3)),
    PoolProblem(n=1, h=40, w=37, c=1, ratio=(1.0, 1.0)),
    PoolProblem(n=1, h=5, w=700, c=1, ratio=(2.4, 1.3), seed=5),
    PoolProblem(n=3, h=35, w=23, c=24, ratio=(1.5, 1.2)),
    PoolProblem(n=1, h=6, w=5, c=600, ratio=(2.0, 1.9)),
    PoolProblem(n=1, h=3, w=4, c=1300, ratio=(1.0, 1.4)),
    PoolProblem(n=2, h=50, w=1200, c=2, ratio=(50.0, 1200.0)),
    PoolProblem(n=2, h=33, w=29, c=5, ratio=(1.1, 6.5), pseudo_random=True),
    PoolProblem(n=3, h=6, w=5, c=90, ratio=(1.4, 1.3)),
    PoolProblem(n=1, h=3, w=4100, c=2, ratio=(1.4, 1.9)),
    PoolProblem(n=1, h=70, w=90, c=3, ratio=(1.3, 2.2), pseudo_random=True),
    PoolProblem(n=1, h=30, w=70, c=2, ratio=(1.2, 3.6)),
    PoolProblem(n=2, h=20, w=30, c=9, ratio=(1.6, 1.2), seed=3),
    PoolProblem(n=2, h=9, w=16, c=40, ratio=(4.4, 1.5)),
]
VARIANTS = [
    pytest.param(problem, layout, overlapping, id=f"{problem}-{layout}-{overlapping}")
    for problem, layout, overlapping in product(SHAPES, LAYOUTS, (False, True))
]


def varied(problem, layout, overlapping):
    fields = {name: getattr(problem, name) for name in PoolProblem.__slots__}
    return PoolProblem(**fields | {"layout": layout, "overlapping": overlapping})


@pytest.mark.parametrize(("problem", "layout", "overlapping"), VARIANTS)
def test_gradient_is_the_float64_sum_rounded_once(problem, layout, overlapping, whole_level):
    problem = varied(problem, layout, overlapping)
    for storage in map(dtype_named, DTYPES):
        (dy,) = random_normal(GRAD.shapes(problem), storage, seed=3)
        exact = nearest(GRAD.reference(problem, dy.astype(np.float64)), storage)
        results = [GRAD(problem, dy, num_threads=threads) for threads in (1, 2, 5)]
        np.testing.assert_array_equal(results[0].astype(np.float64), exact.astype(np.float64), str(storage))
        assert len({result.tobytes() for result in results}) == 1, storage


@pytest.mark.parametrize(("problem", "layout", "overlapping"), VARIANTS)
def test_means_of_small_integers_are_exact(problem, layout, overlapping, whole_level):
    problem = varied(problem, layout, overlapping)
    for storage in map(dtype_named, DTYPES):
        (x,) = random_integers(POOL.shapes(problem), storage, seed=4)
        results = [POOL(problem, x, num_threads=threads) for threads in (1, 2, 5)]
        exact = POOL.reference(problem, x)
        wide = exact if storage.kind == "i" else exact.astype(np.float32 if storage.itemsize < 8 else np.float64)
        np.testing.assert_array_equal(results[0], wide.astype(storage), str(storage))
        assert len({result.tobytes() for result in results}) == 1, storage


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("overlapping", [False, True])
def test_gradient_is_the_transpose_of_pooling(layout, overlapping, whole_level):
    problem = PoolProblem(n=2, h=13, w=17, c=5, ratio=(1.4, 2.7), overlapping=overlapping, layout=layout)
    (x,), (dy,) = random_normal(POOL.shapes(problem), np.float64, 1), random_normal(GRAD.shapes(problem), np.float64, 2)
    np.testing.assert_allclose(np.vdot(POOL(problem, x), dy), np.vdot(x, GRAD(problem, dy)), rtol=1e-13)


def test_gradient_is_the_slope_of_pooling(whole_level):
    problem = PoolProblem(h=4, w=5, c=2, ratio=(1.4, 1.7), overlapping=True)
    (x,), (dy,) = random_normal(POOL.shapes(problem), np.float64, 1), random_normal(GRAD.shapes(problem), np.float64, 2)
    slopes = np.empty_like(x)
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-4
        slopes[at] = np.vdot(POOL(problem, x + step) - POOL(problem, x - step), dy) / 2e-4
    np.testing.assert_allclose(GRAD(problem, dy), slopes, rtol=1e-9, atol=1e-10)


def test_every_pixel_gets_its_share(whole_level):
    for overlapping, layout, seed in product((False, True), LAYOUTS, range(5)):
        problem = PoolProblem(h=19, w=43, c=3, ratio=(1.6, 3.3), overlapping=overlapping, layout=layout, seed=seed + 1)
        (shape,) = GRAD.shapes(problem)
        dx = GRAD(problem, np.ones(shape))
        assert (dx > 0).all()
        np.testing.assert_allclose(dx.sum(), np.prod(shape), rtol=1e-13)


# Sequences that no forward op returns


@pytest.mark.parametrize(
    ("size", "sequence", "overlapping", "expected"),
    [
        (6, [2, 3, 5], False, [0, 0, 6, 3, 3, 0]),
        (6, [1, 3, 4], True, [0, 2, 2, 5, 3, 0]),
        (3, [0, 2, 99], False, [3, 3, 6]),
        (3, [0, 2, 99], True, [2, 2, 8]),
        (3, [0, 0, 2], True, [8, 2, 2]),
        (2, [1, 1, 1], True, [0, 12]),
        (2, [0, 1, 2, -7, 500], False, [6, 6]),
        (3, [2, 3], False, [0, 0, 6]),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cells_are_clipped_and_what_they_leave_out_is_zero(size, sequence, overlapping, expected, dtype, whole_level):
    cells = 1 if len(sequence) == 2 else 2
    storage = dtype_named(dtype)
    assert grad_of_line(size, [6] * cells, sequence, overlapping, storage).tolist() == expected
    dy = np.full((1, cells, 1, 1), 6, storage)
    column = gradops.fractional_avg_pool_grad((1, size, 1, 1), dy, sequence, [0, 1], overlapping)
    assert column.ravel().tolist() == expected


@st.composite
def crowded(draw):
    """Overlapping sequences in which any number of cells may share a row or column."""
    h, w = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    rows, cols = (tuple(sorted(draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=12)))) for size in (h, w))
    return PoolProblem(
        n=draw(st.integers(1, 2)),
        h=h,
        w=w,
        c=draw(st.integers(1, 40)),
        overlapping=True,
        sequences=(rows, cols),
        layout=draw(st.sampled_from(LAYOUTS)),
    )


def test_any_number_of_cells_may_share_a_pixel(whole_level):
    @given(problem=crowded(), dtype=st.sampled_from(DTYPES), threads=st.integers(1, 3))
    def check(problem, dtype, threads):
        (dy,) = random_integers(GRAD.shapes(problem), dtype_named(dtype), seed=1)
        exact = GRAD.reference(problem, dy.astype(np.float64))
        got = GRAD(problem, dy, num_threads=threads).astype(np.float64)
        tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-6)
        slack = 1 + 1e-6 if dtype in INTEGERS else tolerance * (1 + np.abs(exact))
        assert (np.abs(got - exact) <= slack).all()

    check()


# Empty arrays


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("n", "c"), [(0, 3), (2, 0), (0, 0)])
def test_empty_batches_and_channels_give_empty_arrays(n, c, layout, dtype):
    problem = PoolProblem(n=n, h=5, w=7, c=c, layout=layout)
    x = np.empty(problem.input_shape, dtype_named(dtype))
    rows, cols = pooling_sequences(problem)
    y = POOL(problem, x)
    assert (y.shape, y.dtype) == (problem.output_shape(len(rows) - 1, len(cols) - 1), x.dtype)
    dx = GRAD(problem, y)
    assert (dx.shape, dx.dtype) == (x.shape, x.dtype)


def test_no_cells_give_zeros():
    dy = np.empty((2, 0, 3, 4), np.float32)
    dx = gradops.fractional_avg_pool_grad((2, 5, 6, 4), dy, [0], [0, 2, 4, 6])
    np.testing.assert_array_equal(dx, np.zeros((2, 5, 6, 4)))
    assert gradops.fractional_avg_pool_grad((2, 0, 6, 4), dy, [0], [0, 2, 4, 6]).shape == (2, 0, 6, 4)
