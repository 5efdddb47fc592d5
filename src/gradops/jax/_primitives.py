"""Primitives that gradops computes on the CPU: the custom call of a plan there, JAX's own operations on other platforms."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from gradops import _xla

TARGET = "gradops_follow"
jax.ffi.register_ffi_target(TARGET, _xla.handler(), platform="cpu")

PlanOf: TypeAlias = Callable[..., Any]
"""From the shapes of the operands and the parameters of a primitive to its plan."""


def primitive_of(name: str, plan: PlanOf, native: Callable[..., jax.Array]) -> Primitive:
    """A primitive that is the custom call of a plan on the CPU and `native` elsewhere. Its parameter `shape` is that of the result."""
    primitive = Primitive(f"gradops_{name}")

    @lru_cache(maxsize=1024)
    def compiled(parameters: tuple[tuple[str, Any], ...]) -> Callable[..., jax.Array]:
        return jax.jit(lambda *operands: primitive.bind(*operands, **dict(parameters)))

    def lowered(context: mlir.LoweringRuleContext, *operands: Any, **parameters: Any) -> Any:
        avals = context.avals_in
        recipe = _xla.packed(plan(*(aval.shape for aval in avals), **parameters), avals[0].dtype.name)
        return jax.ffi.ffi_lowering(TARGET)(context, *operands, recipe=np.frombuffer(recipe, np.int64))

    primitive.def_impl(lambda *operands, **parameters: compiled(tuple(parameters.items()))(*operands))
    primitive.def_abstract_eval(lambda first, *_, shape, **__: first.update(shape=shape, weak_type=False))
    mlir.register_lowering(primitive, mlir.lower_fun(native, multiple_results=False))
    mlir.register_lowering(primitive, lowered, platform="cpu")
    return primitive
