"""The enumerator: one row per op, for tests and benchmarks to iterate over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import gradops
from gradops._algorithms import stem_of

from ._compare import Expected
from ._inputs import DTYPES
from ._problems import PoolProblem, Problem
from ._references import conv_filter_gradient, conv_forward, conv_input_gradient, pool_forward, pool_gradient
from ._sequences import pooling_sequences

_FLOATS = DTYPES[:4]


@dataclass(frozen=True, kw_only=True)
class Op:
    """One public op.

    Attributes
    ----------
    name, raw_name : str
        The function in `gradops` and in `gradops.raw_ops`.
    kind : "dense", "depthwise" or "pool"
        Which problems it takes: a `Problem` with k, one with m, or a `PoolProblem`.
    operands : tuple of str
        The arrays that it reads, by argument name, in the order of the reference's arguments.
    sizes : str
        The argument that gives the shape of the result, or "".
    stems : tuple of str
        The kernels that serve it; a build adds the level.
    dtypes : tuple of str
        The storage types that it takes.
    reference : callable
        The naive float64 version, of a problem and the operands.
    """

    name: str
    raw_name: str
    kind: str
    operands: tuple[str, ...]
    sizes: str
    stems: tuple[str, ...]
    dtypes: tuple[str, ...]
    reference: Callable[..., NDArray]

    def __str__(self) -> str:
        return self.name

    @property
    def result(self) -> str:
        """What a convolution computes, as `gradops._algorithms` calls it."""
        return {"": "output", "input_sizes": "input", "filter_sizes": "filter"}[self.sizes]

    @property
    def function(self) -> Callable[..., Any]:
        """The public function."""
        return getattr(gradops, self.name)

    def shapes(self, problem: Problem | PoolProblem) -> list[tuple[int, ...]]:
        """Return the shape of each operand."""
        return [_SHAPES[role](problem) for role in self.operands]

    def arguments(self, problem: Problem | PoolProblem, *operands: ArrayLike) -> dict[str, Any]:
        """Return the keyword arguments of a call of the public function."""
        arguments = dict(zip(self.operands, operands, strict=True))
        if self.sizes:
            arguments[self.sizes] = _SHAPES["filter" if self.sizes == "filter_sizes" else "input"](problem)
        return arguments | (problem.attributes if isinstance(problem, Problem) else self._pool_attributes(problem))

    def __call__(self, problem: Problem | PoolProblem, *operands: ArrayLike, **options: Any) -> NDArray:
        """Call the public function; of fractional pooling return the output alone."""
        result = self.function(**self.arguments(problem, *operands), **options)
        return result.output if self.name == "fractional_avg_pool" else result

    def expect(self, problem: Problem | PoolProblem, *operands: ArrayLike) -> Expected:
        """Return what the reference says, with what the comparisons need to know about it."""
        dtype = np.asarray(operands[0]).dtype
        value = self.reference(problem, *operands)
        magnitudes = [np.abs(np.asarray(operand).astype(np.float64)) for operand in operands]
        absolute = self.reference(problem, *magnitudes)
        return Expected(value, absolute, self.depth(problem), self.accumulation(dtype))

    def accumulation(self, dtype: np.dtype) -> str:
        """Return the type in which the op sums, given what it stores."""
        wide = dtype.name not in ("float16", "bfloat16", "float32") or self.name == "fractional_avg_pool_grad"
        return "float64" if wide else "float32"

    def depth(self, problem: Problem | PoolProblem) -> int:
        """Return the largest number of roundings in one element of the result."""
        if isinstance(problem, PoolProblem):
            return _largest_cell(problem) + 1 if self.name == "fractional_avg_pool" else 8
        per_group, _, outputs = problem.filter_groups
        (_, p, *_), (_, q, *_) = problem.axes
        taps = problem.r * problem.s
        return {"filter": problem.n * p * q, "input": taps * outputs, "": taps * per_group}[
            self.sizes.partition("_")[0]
        ]

    def _pool_attributes(self, problem: PoolProblem) -> dict[str, Any]:
        shared = {"overlapping": problem.overlapping, "data_format": problem.layout}
        if self.name == "fractional_avg_pool_grad":
            rows, cols = pooling_sequences(problem)
            return shared | {"row_pooling_sequence": rows, "col_pooling_sequence": cols}
        ratio = (1.0, *problem.ratio, 1.0) if problem.layout == "NHWC" else (1.0, 1.0, *problem.ratio)
        seeds = {"deterministic": True, "seed": problem.seed, "seed2": problem.seed2}
        return shared | seeds | {"pooling_ratio": ratio, "pseudo_random": problem.pseudo_random}


def _largest_cell(problem: PoolProblem) -> int:
    rows, cols = (max(np.diff(sequence)) + problem.overlapping for sequence in pooling_sequences(problem))
    return int(rows * cols)


def _output_shape(problem: Problem | PoolProblem) -> tuple[int, ...]:
    if isinstance(problem, Problem):
        return problem.output_shape
    return problem.output_shape(*(len(sequence) - 1 for sequence in pooling_sequences(problem)))


_SHAPES: dict[str, Callable[[Any], tuple[int, ...]]] = {
    "input": lambda problem: problem.input_shape,
    "value": lambda problem: problem.input_shape,
    "filter": lambda problem: problem.filter_shape,
    "out_backprop": _output_shape,
}

_REFERENCES = {"": conv_forward, "input_sizes": conv_input_gradient, "filter_sizes": conv_filter_gradient}
_OPERANDS = {
    "": ("input", "filter"),
    "input_sizes": ("filter", "out_backprop"),
    "filter_sizes": ("input", "out_backprop"),
}


def _convolution(name: str, raw_name: str, kind: str, sizes: str) -> Op:
    work = "reduce" if sizes == "filter_sizes" else "gather"
    own = ("inplace", "planes") if kind == "depthwise" else ("conv", "winograd")
    algorithms = (
        *own,
        "depthwise",
        "stem",
        *(("gemv",) if kind == "dense" and work == "gather" else ()),
        *(("col2im",) if sizes == "input_sizes" else ()),
    )
    return Op(
        name=name,
        raw_name=raw_name,
        kind=kind,
        operands=_OPERANDS[sizes],
        sizes=sizes,
        stems=tuple(
            dict.fromkeys(stem_of(algorithm, work, storage) for algorithm in algorithms for storage in range(4))
        ),
        dtypes=_FLOATS,
        reference=_REFERENCES[sizes],
    )


OPS: dict[str, Op] = {
    op.name: op
    for op in (
        _convolution("conv2d", "Conv2D", "dense", ""),
        _convolution("conv2d_backprop_input", "Conv2DBackpropInput", "dense", "input_sizes"),
        _convolution("conv2d_backprop_filter", "Conv2DBackpropFilter", "dense", "filter_sizes"),
        _convolution("depthwise_conv2d_native", "DepthwiseConv2dNative", "depthwise", ""),
        _convolution(
            "depthwise_conv2d_native_backprop_input",
            "DepthwiseConv2dNativeBackpropInput",
            "depthwise",
            "input_sizes",
        ),
        _convolution(
            "depthwise_conv2d_native_backprop_filter",
            "DepthwiseConv2dNativeBackpropFilter",
            "depthwise",
            "filter_sizes",
        ),
        Op(
            name="fractional_avg_pool",
            raw_name="FractionalAvgPool",
            kind="pool",
            operands=("value",),
            sizes="",
            stems=("pool_gather",),
            dtypes=DTYPES,
            reference=pool_forward,
        ),
        Op(
            name="fractional_avg_pool_grad",
            raw_name="FractionalAvgPoolGrad",
            kind="pool",
            operands=("out_backprop",),
            sizes="orig_input_tensor_shape",
            stems=("pool_spread",),
            dtypes=DTYPES,
            reference=pool_gradient,
        ),
    )
}
"""One row per public op, by the name of its function."""
