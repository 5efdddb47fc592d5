"""What the comparisons with other frameworks share: a grid of problems, and gradops' three results for one of them."""

import numpy as np

from gradops.testing import OPS, Problem, dtype_named, error_bound, random_normal, runnable

ROUNDS_PARTIAL_SUMS = not runnable("x86_64_v4")
"""Whether PyTorch and TensorFlow round partial sums to bfloat16: where there is no AVX-512, oneDNN has no kernels for it, and theirs do."""

_PADDINGS = ("SAME", "VALID", (1, 2, 0, 3))
_STEPS = (
    ((1, 1), (1, 1)),
    ((2, 2), (1, 1)),
    ((1, 2), (1, 1)),
    ((1, 1), (2, 2)),
    ((2, 1), (1, 3)),
    ((3, 2), (2, 1)),
    ((4, 4), (1, 1)),
)
_TAPS = ((3, 3), (1, 1), (2, 5), (4, 3), (5, 1), (3, 3), (7, 7))

_CHANNELS = ({"c": 6, "k": 10}, {"c": 8, "k": 12, "groups": 4}, {"c": 5, "m": 3}, {"c": 16, "m": 1})

PROBLEMS = [
    Problem(n=2, h=13, w=17, r=r, s=s, strides=strides, dilations=dilations, padding=padding, layout=layout, **channels)
    for at, ((strides, dilations), (r, s)) in enumerate(zip(_STEPS, _TAPS, strict=True))
    for layout in ("NHWC", "NCHW")
    for padding in (_PADDINGS[at % 3], _PADDINGS[(at + 1) % 3])
    for channels in _CHANNELS
]

# Compilers take a second for each problem: they get a third of the grid, and each problem in one precision.
FEW = [(problem, ("float32", "float64")[at % 2]) for at, problem in enumerate(PROBLEMS[::3])]


def names(problem):
    """Name the three ops of a problem: forward, input gradient, filter gradient."""
    forward = "depthwise_conv2d_native" if problem.depthwise else "conv2d"
    return forward, forward + "_backprop_input", forward + "_backprop_filter"


def operands(problem, dtype):
    """Draw x, w and dy."""
    return random_normal(
        [problem.input_shape, problem.filter_shape, problem.output_shape], dtype_named(dtype), seed=len(str(problem))
    )


def check(problem, dtype, theirs):
    """Compare gradops' three results with a peer's (None where it has none); both may err by the bound."""
    x, w, dy = operands(problem, dtype)
    for name, pair, peer in zip(names(problem), [(x, w), (w, dy), (x, dy)], theirs, strict=True):
        if peer is not None:
            got, peer = OPS[name](problem, *pair), np.asarray(peer)
            label = f"{name} {problem} {dtype}"
            assert peer.shape == got.shape, label
            assert np.count_nonzero(got) > 0.05 * got.size, label
            apart = np.abs(got.astype(np.float64) - peer.astype(np.float64))
            bound = 2 * error_bound(OPS[name].expect(problem, *pair), got.dtype)
            assert (apart <= bound).all(), f"{label}: {np.max(apart / bound):.2g} times the bound apart"


def nchw(problem, array):
    """Order an image tensor as [n, c, h, w]."""
    return array if problem.layout == "NCHW" else array.transpose(0, 3, 1, 2)


def in_layout(problem, array):
    """Order a tensor [n, c, h, w] as the problem's layout says."""
    return array if problem.layout == "NCHW" else array.transpose(0, 2, 3, 1)
