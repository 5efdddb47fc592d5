"""The problems that the tests of several ops share, and how they are chosen."""

import random
from functools import cache, lru_cache
from itertools import combinations, product

import numpy as np

from gradops.testing import OPS, Expected, PoolProblem, Problem, dtype_named, random_integers, random_normal

CONVOLUTIONS = [op for op in OPS.values() if op.kind != "pool"]
POOLINGS = [op for op in OPS.values() if op.kind == "pool"]

CHANNELS = (1, 2, 3, 5, 7, 13, 14, 15, 16, 17, 28, 29, 31, 32, 33, 63, 64, 65, 70)

_SHARED = {
    "layout": ("NHWC", "NCHW"),
    "padding": ("SAME", "VALID", (1, 2, 0, 3), (6, 0, 2, 7)),
    "strides": ((1, 1), (2, 2), (1, 2), (3, 1), (2, 3), (5, 4)),
    "dilations": ((1, 1), (2, 2), (1, 3), (3, 2), (2, 1), (4, 4)),
    "taps": ((1, 1), (3, 3), (2, 3), (5, 1), (1, 4), (7, 7)),
    "image": ((1, 1), (2, 3), (5, 7), (11, 13), (16, 17), (8, 31)),
    "n": (1, 2, 3),
}
FACTORS = {
    "dense": _SHARED | {"groups": (1, 2, 3), "per_group": (1, 2, 3, 7, 16, 33), "outputs": (1, 2, 5, 8, 17, 32)},
    "depthwise": _SHARED | {"c": (1, 2, 3, 7, 8, 16, 17, 33), "m": (1, 2, 3, 5)},
}


def covering_rows(factors, build, seed=0, tries=40):
    """Choose rows greedily until any two values of any two factors meet in one, where `build` permits it."""
    rng = random.Random(seed)
    names = list(factors)
    missing = {
        ((one, a), (other, b))
        for one, other in combinations(names, 2)
        for a, b in product(factors[one], factors[other])
    }
    rows = []
    while missing:
        wanted = min(missing, key=repr)
        candidates = [{name: rng.choice(factors[name]) for name in names} | dict(wanted) for _ in range(tries)]
        candidates = [row for row in candidates if build(row) is not None]
        if not candidates:
            missing.discard(wanted)
            continue
        pairs_of = [missing & set(combinations(row.items(), 2)) for row in candidates]
        best = max(range(len(candidates)), key=lambda at: len(pairs_of[at]))
        missing -= pairs_of[best]
        rows.append(candidates[best])
    return rows


def build_convolution(row):
    """Make a `Problem` of one row of factors, or None where no output pixel would be left."""
    given = {name: row[name] for name in ("layout", "padding", "strides", "dilations", "n")}
    given |= {"h": row["image"][0], "w": row["image"][1], "r": row["taps"][0], "s": row["taps"][1]}
    if "m" in row:
        problem = Problem(c=row["c"], m=row["m"], **given)
    else:
        groups = row["groups"]
        problem = Problem(c=groups * row["per_group"], k=groups * row["outputs"], groups=groups, **given)
    return problem if all(axis[1] > 0 for axis in problem.axes) else None


COVERING = {
    kind: [build_convolution(row) for row in covering_rows(factors, build_convolution)]
    for kind, factors in FACTORS.items()
}

POOL_PROBLEMS = [
    PoolProblem(n=n, h=h, w=w, c=c, ratio=ratio, pseudo_random=pseudo, overlapping=overlapping, layout=layout, seed=h)
    for at, (n, h, w, c, ratio) in enumerate(
        [(1, 5, 7, 1, (1.5, 1.3)), (2, 13, 17, 3, (1.73, 2.2)), (3, 8, 31, 16, (1.0, 3.1)), (1, 20, 9, 33, (2.9, 1.1))]
    )
    for layout in ("NHWC", "NCHW")
    for overlapping in (False, True)
    for pseudo in (bool(at % 2) ^ overlapping,)
]

# Large enough to be split between threads, with sizes that no tile divides.
LARGER = {
    "dense": [
        Problem(n=2, h=29, w=31, c=35, k=37, padding="SAME"),
        Problem(n=3, h=30, w=23, c=18, k=66, strides=(2, 1), padding=(2, 0, 1, 3), groups=2, layout="NCHW"),
        Problem(n=1, h=57, w=58, c=3, k=33, r=7, s=5, strides=(2, 3), dilations=(1, 2), padding="SAME"),
        Problem(n=5, h=11, w=19, c=70, k=65, r=1, s=1),
        Problem(n=1, h=5, w=6, c=260, k=130, padding="SAME", layout="NCHW"),
        Problem(n=4, h=26, w=31, c=35, k=19, strides=(2, 3), padding="SAME", layout="NCHW"),  # lanes of 10 and 11
        Problem(n=2, h=9, w=21, c=40, k=600, s=2, strides=(1, 2), padding="SAME", layout="NCHW"),
        Problem(n=2, h=18, w=48, c=20, k=24, r=2, strides=(2, 3), layout="NCHW"),  # each lane reads whole planes
    ],
    "depthwise": [
        Problem(n=2, h=57, w=59, c=35, m=1, padding="SAME"),
        Problem(n=3, h=31, w=33, c=18, m=3, r=5, s=5, strides=(2, 1), padding=(2, 0, 1, 3), layout="NCHW"),
        Problem(n=1, h=43, w=61, c=66, m=1, r=7, s=7, dilations=(2, 3), padding="SAME"),
        Problem(n=2, h=19, w=23, c=130, m=2, strides=(3, 2), padding="SAME", layout="NCHW"),
    ],
    "pool": [
        PoolProblem(n=3, h=51, w=67, c=35, ratio=(1.73, 2.3), overlapping=True),
        PoolProblem(n=2, h=64, w=45, c=18, ratio=(2.5, 1.4), pseudo_random=True, layout="NCHW"),
    ],
}


EVERY_OP = tuple(OPS.values())


def rows(table, ops=EVERY_OP):
    """Pair every op with the problems that it takes."""
    return [(op, problem) for op in ops for problem in table[op.kind]]


def named(value):
    """Name a parameter of a test."""
    return str(value) if not isinstance(value, tuple) else "-".join(map(str, value))


@lru_cache(maxsize=8)
def exact(op, problem):
    """Operands of small integers, in float64, and what the reference says. Whether sums of so many products are exact, their largest possible one says."""
    operands = random_integers(op.shapes(problem), np.float64, seed=len(str(problem)))
    largest = np.multiply(*(np.abs(operand).max(initial=0) for operand in operands)) * op.depth(problem)
    return operands, Expected(op.reference(problem, *operands), largest, op.depth(problem), "float32")


@lru_cache(maxsize=8)
def exact_case(op, problem, dtype):
    """The same with the operands in a dtype."""
    operands, expected = exact(op, problem)
    return [operand.astype(dtype_named(dtype)) for operand in operands], expected


@lru_cache(maxsize=2)
def drawn(op, problem, dtype, seed):
    """Operands of normal numbers, which take longer to draw than most ops."""
    return random_normal(op.shapes(problem), np.dtype(dtype), seed)


def normal(op, problem, dtype, seed):
    """Operands of normal numbers: of 16 bits, those of float32, rounded."""
    operands = drawn(op, problem, "float32" if "float16" in dtype else dtype, seed)
    return [operand.astype(dtype_named(dtype)) for operand in operands]


@lru_cache(maxsize=8)
def rounded_case(op, problem, dtype):
    """Operands of normal numbers and what the reference says."""
    operands = normal(op, problem, dtype, seed=len(str(problem)))
    return operands, op.expect(problem, *operands)


@lru_cache(maxsize=16)
def normal_operands(op, problem, dtype):
    """Operands of normal numbers, for what needs no reference."""
    return normal(op, problem, dtype, seed=9)


@cache
def leaves_untouched(op, problem):
    """Whether geometry alone leaves a fifth of the result or more at zero, as a stride beyond the filter does."""
    if op.kind == "pool":
        return False
    terms = op.reference(problem, *(np.ones(shape) for shape in op.shapes(problem)))
    return np.count_nonzero(terms) <= 0.8 * terms.size
