"""What a kernel does with inputs of certain shapes and sizes: it asks once, then follows what it was told."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, TypeAlias

import tensorflow as tf

from gradops._arrays import ITEM_SIZES
from gradops._call import recipe
from gradops._geometry import Attributes
from gradops._geometry import plan as plan_convolution
from gradops._kernels import tensorflow_kernels
from gradops._pooling import gradient as plan_pooling
from gradops._values import Shape

from ._native import Native, bias_gradient, native_op
from ._nodes import Input, Key, Node, inputs_of, node_of
from ._ops import COUNTERS, POOL
from ._table import tensorflow_wins

Answer: TypeAlias = tuple[object, tuple[int, ...], int, Shape, int, tuple[Native, ...], int, bool]


def answer(text: bytes, key: Key, native: bool) -> Answer:
    """What a kernel does with inputs of these shapes and sizes, in the order in which `tensorflow_kernels.connect` describes it."""
    node, inputs = node_of(text), inputs_of(key)
    if node.name == POOL:
        return _computed(node, plan_pooling(*_pooling_arguments(inputs, node.given)))
    if native:
        return _passed_on(node, inputs, "disabled")
    case = _case(node, inputs)
    plan = plan_convolution(*case)
    if tensorflow_wins(plan, node.storage):
        return _passed_on(node, inputs, "slower")
    return _computed(node, plan, _recipe(case, node.storage))


def _computed(node: Node, plan: Any, kept: object = None) -> Answer:
    """A recipe does it; one that is not kept has to be kept by the kernel for as long as it computes."""
    _limit_threads()
    shape = plan.result_shape
    made = kept or recipe(plan, node.storage)
    size = prod(shape) * ITEM_SIZES[node.storage]
    ops = (bias_gradient(node),) if node.fused else ()
    return made, node.op.operands, node.dtype, shape, size, ops, COUNTERS.index(node.name), kept is not None


def _passed_on(node: Node, inputs: list[Input], reason: str) -> Answer:
    """TensorFlow does it."""
    ops = (native_op(node, inputs), bias_gradient(node)) if node.fused else (native_op(node, inputs),)
    return None, (), 0, (), 0, ops, COUNTERS.index(reason), True


_recipes: dict[object, object] = {}


def _recipe(case: tuple[Any, ...], storage: int) -> object:
    """The recipe of a convolution. It is never let go, nor replaced by that of another thread: kernels keep its address."""
    found = _recipes.get((case, storage))
    return found or _recipes.setdefault((case, storage), recipe(plan_convolution(*case), storage))


def _values(name: str, given: Input) -> Shape:
    if given.values is None:
        raise ValueError(f"{name} must be a vector of integers, got shape {given.shape}")
    return given.values


def _case(node: Node, inputs: list[Input]) -> tuple[str, Shape, Shape, Shape, Attributes]:
    """The arguments of a convolution's plan: the function, the shapes of input, filter and out_backprop, the attributes."""
    at = node.op.sizes
    shapes = [given.shape for given in inputs]
    shapes[at] = _values(("input_sizes", "filter_sizes")[at], inputs[at])
    return node.op.function, shapes[0], shapes[1], shapes[2], node.given


def _pooling_arguments(inputs: list[Input], overlapping: bool) -> tuple[Any, ...]:
    names = ("orig_input_tensor_shape", "out_backprop", "row_pooling_sequence", "col_pooling_sequence")
    sizes, rows, cols = (_values(names[i], inputs[i]) for i in (0, 2, 3))
    return sizes, inputs[1].shape, rows, cols, overlapping, "NHWC"


@cache
def _limit_threads() -> None:
    """Tells the kernels how many threads TensorFlow may use in an op, which is settled when the first one is computed."""
    tensorflow_kernels.set_most_threads(tf.config.threading.get_intra_op_parallelism_threads())
