"""A node of TensorFlow and the inputs of a call, as a kernel describes them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2

from gradops._arrays import STORAGE
from gradops._geometry import attributes
from gradops._values import Shape

from ._ops import FILTER, FUSED, OPS, POOL, RENAMED, Op

Key: TypeAlias = tuple[int, ...]
"""What a kernel tells of its inputs: `inputs_of` reads it."""


class Input(NamedTuple):
    """One input of a call."""

    shape: Shape
    values: tuple[int, ...] | None
    """Those of a vector of integers."""


class Node(NamedTuple):
    """What is the same for all calls of a kernel."""

    name: str
    fused: bool
    dtype: int
    given: Any
    """The attributes of a convolution, or whether pooling cells overlap."""
    attr: dict[str, attr_value_pb2.AttrValue]

    @property
    def op(self) -> Op:
        """What gradops has for it."""
        return OPS[self.name]

    @property
    def storage(self) -> int:
        """The code by which gradops' kernels know its dtype."""
        return STORAGE[tf.as_dtype(self.dtype).name]


@lru_cache(maxsize=1024)
def node_of(text: bytes) -> Node:
    """What gradops wants to know of a node."""
    definition = node_def_pb2.NodeDef.FromString(text)
    name = definition.op.removeprefix(RENAMED)
    attr = {word: value for word, value in definition.attr.items() if not word.startswith("_")}
    if name == POOL:
        return Node(name, False, attr["T"].type, attr["overlapping"].b, attr)
    paddings = attr["explicit_paddings"].list.i if "explicit_paddings" in attr else ()
    given = attributes(
        tuple(attr["strides"].list.i), attr["padding"].s.decode(), tuple(paddings),
        attr["data_format"].s.decode(), tuple(attr["dilations"].list.i),
    )  # fmt: skip
    return Node(FILTER if name == FUSED else name, name == FUSED, attr["T"].type, given, attr)


def inputs_of(key: Key) -> list[Input]:
    """The inputs of a call, from its key: of each the type, the rank, the dimensions, and the values of a vector of integers."""
    inputs, rest = [], iter(key)
    for dtype in rest:
        shape = tuple(next(rest) for _ in range(next(rest)))
        holds_values = len(shape) == 1 and dtype in (tf.int32.as_datatype_enum, tf.int64.as_datatype_enum)
        inputs.append(Input(shape, tuple(next(rest) for _ in range(shape[0])) if holds_values else None))
    return inputs
