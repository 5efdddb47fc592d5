"""How kernels are made known to TensorFlow's runtime, once in a process."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from functools import cache

import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2
from tensorflow.python.client.session import BaseSession
from tensorflow.python.framework import kernels as registry

from gradops._kernels import tensorflow_kernels

from ._answers import answer
from ._ops import FILTER, FUSED, OPS, RENAMED, Op

_LABEL = "MklNameChangeOp"
_PRIORITY = 100
"""Built-in kernels have 0."""

_LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
_NOLOAD = 4
"""RTLD_NOLOAD: the library is there or it is an error."""


@cache
def register() -> None:
    """Registers all kernels, once in a process."""
    sessions = [thing for thing in gc.get_objects() if isinstance(thing, BaseSession)]
    if sessions:
        raise RuntimeError(
            f"gradops.tensorflow.enable() must come before the first tf.compat.v1.Session is made, which keeps its kernels; "
            f"got {len(sessions)} of them"
        )
    tensorflow_kernels.connect(_addresses(), answer)
    for definition in (definition for name, op in OPS.items() for definition in _definitions(name, op)):
        name = definition.op.encode()
        tensorflow_kernels.register(definition.SerializeToString(), name, b"gradops_" + name)


def _addresses() -> tuple[int, ...]:
    """Where the functions of TensorFlow's C API lie in the libraries that the import of TensorFlow has loaded."""
    libraries = [ctypes.CDLL(name, mode=ctypes.RTLD_LOCAL | _NOLOAD) for name in _LIBRARIES]
    found = {
        name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        for library in libraries
        for name in tensorflow_kernels.SYMBOLS
        if hasattr(library, name)
    }
    missing = [name for name in tensorflow_kernels.SYMBOLS if name not in found]
    if missing:
        raise ImportError(f"TensorFlow {tf.__version__} lacks {', '.join(missing)}, which gradops.tensorflow calls")
    return tuple(found[name] or 0 for name in tensorflow_kernels.SYMBOLS)


def _definitions(name: str, op: Op) -> Iterator[kernel_def_pb2.KernelDef]:
    """What the kernels of an op are registered as: under its name, and under oneDNN's names that have kernels for some of its types."""
    yield _definition(name, "", op.dtypes)
    renamed = {name: op.dtypes, FUSED: ("float32",)} if name == FILTER else {name: op.dtypes}
    for other, dtypes in renamed.items():
        taken = [
            tf.as_dtype(dtype).name
            for kernel in registry.get_registered_kernels_for_op(RENAMED + other).kernel
            if kernel.device_type == "CPU" and kernel.label == _LABEL
            for constraint in kernel.constraint
            for dtype in constraint.allowed_values.list.type
        ]
        known = tuple(dtype for dtype in dtypes if dtype in taken)
        if known:
            yield _definition(RENAMED + other, _LABEL, known)


def _definition(name: str, label: str, dtypes: tuple[str, ...]) -> kernel_def_pb2.KernelDef:
    definition = kernel_def_pb2.KernelDef(op=name, device_type="CPU", label=label, priority=_PRIORITY)
    types = definition.constraint.add(name="T").allowed_values.list.type
    types.extend(tf.as_dtype(dtype).as_datatype_enum for dtype in dtypes)
    if "Depthwise" in name:
        definition.constraint.add(name="padding").allowed_values.list.s.extend([b"SAME", b"VALID"])
    elif "Conv2D" in name:
        definition.constraint.add(name="use_cudnn_on_gpu").allowed_values.list.b.append(True)
    return definition
