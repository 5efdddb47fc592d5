"""The comparisons, descriptors and tables that the other tests rest on must themselves be able to fail."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from problems import COVERING, FACTORS, POOL_PROBLEMS, build_convolution, leaves_untouched, rows

from gradops.testing import (
    DTYPES,
    OPS,
    Expected,
    MistrustedComparison,
    PoolProblem,
    Problem,
    assert_close,
    assert_exact,
    dtype_named,
    error_bound,
    random_integers,
    random_normal,
)

FLOATS = DTYPES[:4]
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def expected_of(values, absolute=None, depth=10, accumulation="float32"):
    values = np.asarray(values, np.float64)
    return Expected(
        values, np.abs(values) if absolute is None else np.asarray(absolute, np.float64), depth, accumulation
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_assert_close_accepts_the_bound_and_rejects_twice_the_bound(dtype):
    expected = expected_of([1.0, -2.0, 4.0], accumulation="float64" if dtype == "float64" else "float32")
    bound = error_bound(expected, dtype_named(dtype))
    near, far = expected.value + 0.9 * bound, expected.value.copy()
    assert_close(near.astype(dtype_named(dtype)), expected)
    far[1] -= 2.1 * bound[1] + 2 * ROUNDOFF[dtype]
    with pytest.raises(AssertionError, match="1 of 3"):
        assert_close(far.astype(dtype_named(dtype)), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_error_bound_grows_with_depth_magnitudes_and_roundoff(dtype):
    dtype = dtype_named(dtype)
    small = error_bound(expected_of([1.0], [1.0], depth=4), dtype)
    assert (error_bound(expected_of([1.0], [1.0], depth=40), dtype) > small).all()
    assert (error_bound(expected_of([1.0], [100.0], depth=4), dtype) > small).all()
    exact_sum = error_bound(expected_of([1.0], [1.0], depth=0), dtype)
    narrowing = ROUNDOFF[dtype.name] if dtype.itemsize == 2 else 0.0
    np.testing.assert_allclose(exact_sum, narrowing, atol=2.0**-100)


def test_error_bound_of_a_long_sum_grows_like_its_square_root():
    bounds = [error_bound(expected_of([0.0], [1.0], depth=depth), np.dtype("float32"))[0] for depth in (10**4, 10**6)]
    assert bounds[1] / bounds[0] == pytest.approx(10)


def test_assert_close_sees_a_missing_term():
    rng = np.random.default_rng(0)
    terms = rng.standard_normal((1000, 64))
    expected = Expected(terms.sum(0), np.abs(terms).sum(0), 1000, "float32")
    assert_close(terms.sum(0).astype(np.float32), expected)
    with pytest.raises(AssertionError):
        assert_close(terms[1:].sum(0).astype(np.float32), expected)


@pytest.mark.parametrize("check", [assert_close, assert_exact])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_comparisons_reject_values_that_are_not_finite(check, wrong):
    got = np.array([1.0, wrong, 3.0], np.float32)
    with pytest.raises(AssertionError, match="first at \\(1,\\)"):
        check(got, expected_of([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("check", [assert_close, assert_exact])
def test_comparisons_reject_another_shape(check):
    with pytest.raises(AssertionError, match="shape"):
        check(np.ones((1, 3), np.float32), expected_of([1.0, 1.0, 1.0]))


@pytest.mark.parametrize("check", [assert_close, assert_exact])
@pytest.mark.parametrize("values", [[], [0.0, 0.0, 0.0, 1.0, 0.0], [0.0]])
def test_comparisons_with_nothing_or_mostly_zeros_are_mistrusted_unless_told(check, values):
    expected, got = expected_of(values), np.array(values, np.float32)
    with pytest.raises(MistrustedComparison):
        check(got, expected)
    check(got, expected, mostly_zero_ok=True)


@pytest.mark.parametrize("check", [assert_close, assert_exact])
def test_mostly_zeros_still_have_to_be_equal(check):
    with pytest.raises(AssertionError):
        check(np.array([0, 0, 0.5], np.float32), expected_of([0, 0, 0]), mostly_zero_ok=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_assert_exact_rejects_the_nearest_neighbour(dtype):
    dtype = dtype_named(dtype)
    got = np.array([3, 5, -7]).astype(dtype)
    assert_exact(got, expected_of([3, 5, -7]))
    neighbour = got.view(f"u{dtype.itemsize}").copy()
    neighbour[2] += 1
    with pytest.raises(AssertionError, match="1 of 3"):
        assert_exact(neighbour.view(dtype), expected_of([3, 5, -7]))


def test_assert_exact_rounds_the_reference_once():
    assert_exact(np.array([720]).astype(dtype_named("bfloat16")), expected_of([722]))
    with pytest.raises(AssertionError):
        assert_exact(np.array([724]).astype(dtype_named("bfloat16")), expected_of([722]))


@pytest.mark.parametrize(("accumulation", "limit"), [("float32", 2**24), ("float64", 2**53)])
def test_assert_exact_mistrusts_sums_that_may_round(accumulation, limit):
    assert_exact(np.array([1.0]), expected_of([1.0], [limit], accumulation=accumulation))
    with pytest.raises(MistrustedComparison, match="exact"):
        assert_exact(np.array([1.0]), expected_of([1.0], [2 * limit], accumulation=accumulation))


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_are_the_same_in_every_dtype_and_never_zero(dtype):
    for wide, stored in zip(
        random_integers([(40, 5), (7,)], np.float64, seed=3),
        random_integers([(40, 5), (7,)], dtype_named(dtype), seed=3),
        strict=True,
    ):
        assert stored.dtype == dtype_named(dtype)
        np.testing.assert_array_equal(stored.astype(np.float64), wide)
        assert (wide != 0).all()
        assert len(np.unique(wide)) > 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_normal_numbers_have_the_dtype_and_no_other_pattern(dtype):
    one, other = random_normal([(100,), (100,)], dtype_named(dtype), seed=5)
    assert one.dtype == other.dtype == dtype_named(dtype)
    assert (one != other).any()
    assert np.count_nonzero(one) > 90


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("n8h56w56c64k32r3s3_same_nhwc", Problem(n=8, h=56, w=56, c=64, k=32, padding="SAME")),
        ("n1h5w7c4m2r3s1_u2x3_d1x2_p1.0.2.3_nchw",
         Problem(h=5, w=7, c=4, m=2, s=1, strides=(2, 3), dilations=(1, 2), padding=(1, 0, 2, 3), layout="NCHW")),
        ("n1h5w5c4k6r3s3_g2_valid_nhwc", Problem(c=4, k=6, groups=2)),
    ],
)  # fmt: skip
def test_problems_print_and_parse(name, problem):
    assert str(problem) == name
    assert Problem.parse(name) == problem


@pytest.mark.parametrize("problem", [problem for kind in COVERING for problem in COVERING[kind]], ids=str)
def test_every_problem_of_the_tables_survives_its_name(problem):
    assert Problem.parse(str(problem)) == problem


@pytest.mark.parametrize(
    "name", ["", "n1", "n1h5w5c4r3s3", "n1h5w5c4k6r3s3_sam", "n1h5w5c4k6m2r3s3", "n1h5w5c4k6r3s3_u2"]
)
def test_problems_reject_other_names(name):
    with pytest.raises(ValueError, match="not the name of a problem"):
        Problem.parse(name)


@pytest.mark.parametrize("given", [{}, {"k": 2, "m": 2}, {"c": 3, "k": 4, "groups": 2}, {"c": 4, "m": 1, "groups": 2}])
def test_problems_reject_what_is_neither_dense_nor_depthwise(given):
    with pytest.raises(ValueError, match=r"problem|groups"):
        Problem(**given)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({"h": 3, "r": 5, "strides": (2, 1), "padding": "VALID"}, 0),
        ({"h": 3, "r": 8, "strides": (3, 1), "padding": "VALID"}, 0),
        ({"h": 3, "r": 5, "padding": "VALID"}, -1),
        ({"h": 5, "r": 3, "strides": (2, 1), "padding": (1, 2, 0, 0)}, 3),
        ({"h": 7, "r": 2, "strides": (3, 1), "padding": "SAME"}, 3),
        ({"h": 0, "r": 3, "padding": "SAME"}, 0),
        ({"h": 4, "r": 0, "padding": "VALID"}, 5),
    ],
)
def test_output_sizes_truncate_towards_zero(given, size):
    assert Problem(k=1, **given).axes[0][1] == size


@pytest.mark.parametrize(
    ("taps", "stride", "dilation", "before"), [(3, 1, 1, 1), (2, 1, 1, 0), (4, 1, 1, 1), (3, 1, 2, 2), (3, 5, 1, 0)]
)
def test_same_padding_puts_the_odd_unit_after(taps, stride, dilation, before):
    assert (
        Problem(h=10, k=1, r=taps, strides=(stride, 1), dilations=(dilation, 1), padding="SAME").axes[0][-1] == before
    )


def test_pool_problems_have_different_names():
    assert len({str(problem) for problem in POOL_PROBLEMS}) == len(POOL_PROBLEMS)
    given = PoolProblem(sequences=((0, 2, 6), (0, 6)))
    assert str(given) != str(replace(given, sequences=((0, 3, 6), (0, 6))))


@pytest.mark.parametrize("kind", FACTORS)
def test_covering_table_misses_no_pair_of_values_that_can_meet(kind):
    factors = FACTORS[kind]
    rng = np.random.default_rng(1)
    seen = {pair for problem in COVERING[kind] for pair in combinations(_values(kind, problem).items(), 2)}
    missing = {
        ((one, a), (other, b))
        for one, other in combinations(factors, 2)
        for a, b in product(factors[one], factors[other])
    } - seen
    for pair in sorted(missing, key=repr):
        for _ in range(200):
            row = {name: values[rng.integers(len(values))] for name, values in factors.items()} | dict(pair)
            assert build_convolution(row) is None, f"{pair} can meet in {row}"


def _values(kind, problem):
    values = {name: getattr(problem, name) for name in ("layout", "padding", "strides", "dilations", "n")}
    values |= {"taps": (problem.r, problem.s), "image": (problem.h, problem.w)}
    if kind == "depthwise":
        values |= {"c": problem.c, "m": problem.m}
    else:
        per_group, groups, outputs = problem.filter_groups
        values |= {"groups": groups, "per_group": per_group, "outputs": outputs}
    return {name: values[name] for name in FACTORS[kind]}


def test_most_cases_of_the_covering_tables_are_not_mostly_zeros():
    cases = list(rows({**COVERING, "pool": POOL_PROBLEMS}))
    assert sum(leaves_untouched(*case) for case in cases) < 0.4 * len(cases)


def test_ops_name_each_public_function_once():
    assert list(OPS) == [op.name for op in OPS.values()]
    for op in OPS.values():
        assert callable(op.function)
        assert op.function.__name__ == op.name
