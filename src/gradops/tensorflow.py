"""Gradients of convolutions and of fractional pooling inside TensorFlow: `enable` and no line of the model changes.

`enable` registers kernels with TensorFlow's runtime, over its C API, that come before the built-in ones for `Conv2DBackpropInput`,
`Conv2DBackpropFilter`, `DepthwiseConv2dNativeBackpropInput`, `DepthwiseConv2dNativeBackpropFilter` and `FractionalAvgPoolGrad` on the CPU:
in eager mode, in `tf.function`, and where oneDNN has renamed the ops. What is compiled by XLA (`jit_compile=True`) knows no kernels.

A registered kernel stays registered. To have the built-in one compute all the same, after `disable`, the kernel calls it by a door that TensorFlow leaves open: the built-in kernels look neither at the attribute ``use_cudnn_on_gpu`` of dense
convolutions nor at which name the padding of a depthwise one has, so gradops' kernels are registered for ``use_cudnn_on_gpu=True`` and
for the paddings ``"SAME"`` and ``"VALID"``, and pass a call on with ``False`` and ``"EXPLICIT"``.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.util import find_spec
from math import prod
from typing import Any, NamedTuple, TypeAlias

from gradops._arrays import ITEM_SIZES, STORAGE
from gradops._call import recipe
from gradops._geometry import Attributes, attributes
from gradops._geometry import plan as plan_convolution
from gradops._kernels import tensorflow_kernels
from gradops._pooling import gradient as plan_pooling
from gradops._values import LAYOUTS, Shape

OLDEST = (2, 21)
"""The first version of TensorFlow that this is tested with."""

if find_spec("tensorflow") is None:
    raise ImportError("gradops.tensorflow needs TensorFlow: pip install 'gradops[tensorflow]'")

import tensorflow as tf  # noqa: E402
from tensorflow.core.framework import attr_value_pb2, kernel_def_pb2, node_def_pb2  # noqa: E402
from tensorflow.python.client.session import BaseSession  # noqa: E402
from tensorflow.python.eager import context as eager  # noqa: E402
from tensorflow.python.framework import kernels as registry  # noqa: E402

__all__ = ["disable", "enable", "stats"]

if tuple(int(part) for part in tf.__version__.split(".")[:2]) < OLDEST:
    raise ImportError(
        f"gradops.tensorflow needs TensorFlow {'.'.join(map(str, OLDEST))} or newer, got {tf.__version__}"
    )

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_POOL = "FractionalAvgPoolGrad"


class _Op(NamedTuple):
    """One op: its function in gradops, which input holds sizes, which inputs the kernel reads, for which types there is one."""

    function: str
    sizes: int
    operands: tuple[int, ...]
    dtypes: tuple[str, ...] = _FLOATS


_OPS = {
    "Conv2DBackpropInput": _Op("conv2d_backprop_input", 0, (2, 1)),
    "Conv2DBackpropFilter": _Op("conv2d_backprop_filter", 1, (0, 2)),
    "DepthwiseConv2dNativeBackpropInput": _Op("depthwise_conv2d_native_backprop_input", 0, (2, 1)),
    "DepthwiseConv2dNativeBackpropFilter": _Op("depthwise_conv2d_native_backprop_filter", 1, (0, 2)),
    _POOL: _Op("fractional_avg_pool_grad", 0, (1,), ("float32", "float64", "int32", "int64")),
}

_RENAMED = "_MklNative"
"""How oneDNN's names of the ops begin, in graphs and of some ops in eager mode."""
_LABEL = "MklNameChangeOp"
_PRIORITY = 100
"""Built-in kernels have 0."""

_COUNTERS = ("disabled", *_OPS)

_FILTER = "Conv2DBackpropFilter"
_FUSED = "Conv2DBackpropFilterWithBias"
"""What oneDNN makes of the gradients of a filter and of a bias in a graph. TensorFlow then sums the bias, which it does well for float32 only."""


def enable() -> None:
    """Have gradops compute the gradients of convolutions and of fractional pooling in this process, on the CPU.

    Raises
    ------
    RuntimeError
        If a `tf.compat.v1.Session` exists, which may have made its kernels, or TensorFlow refuses the registration.

    See Also
    --------
    disable, stats

    Notes
    -----
    The best place is behind the imports. A later call takes effect as well: it clears TensorFlow's cache of kernels, as
    ``tf.config`` does for some options, so that functions that have been traced make new ones when they are next called.

    Examples
    --------
    >>> import gradops.tensorflow
    >>> import tensorflow as tf
    >>> gradops.tensorflow.enable()
    >>> x, w = tf.ones((1, 3, 3, 1)), tf.ones((2, 2, 1, 1))
    >>> with tf.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "VALID")
    >>> tape.gradient(y, x)[0, :, :, 0].numpy()
    array([[1., 2., 1.],
           [2., 4., 2.],
           [1., 2., 1.]], dtype=float32)
    >>> gradops.tensorflow.stats()["taken"]["DepthwiseConv2dNativeBackpropInput"]
    1
    """
    _register()
    tensorflow_kernels.set_enabled(True)
    _forget_kernels()


def disable() -> None:
    """Have TensorFlow compute again.

    Its kernels are called through gradops', which remain registered, so this costs some ten microseconds a call. Dense convolutions are
    computed by the very kernels that would have run, depthwise ones by TensorFlow's portable kernels, also in a graph where oneDNN's
    would have run, which cannot be reached. The gradient of fractional pooling stays with gradops, whose numbers are equal to the last bit.
    A process that has never called `enable` is as TensorFlow left it.

    See Also
    --------
    enable, stats

    Examples
    --------
    >>> import gradops.tensorflow
    >>> gradops.tensorflow.enable()
    >>> gradops.tensorflow.disable()
    """
    tensorflow_kernels.set_enabled(False)


def stats() -> dict[str, dict[str, int]]:
    """How many calls gradops has computed and how many it has passed on to TensorFlow, in this process.

    Returns
    -------
    dict
        ``"taken"`` by op; ``"declined"`` by reason, of which there is one: ``"disabled"``, after `disable`.

    See Also
    --------
    enable, disable

    Examples
    --------
    >>> import gradops.tensorflow
    >>> sorted(gradops.tensorflow.stats())
    ['declined', 'taken']
    """
    counts = dict(zip(_COUNTERS, tensorflow_kernels.counts(), strict=False))
    return {
        "taken": {op: counts[op] for op in _OPS},
        "declined": {"disabled": counts["disabled"]},
    }


# Registration


@cache
def _register() -> None:
    """Registers all kernels, once in a process."""
    sessions = [thing for thing in gc.get_objects() if isinstance(thing, BaseSession)]
    if sessions:
        raise RuntimeError(
            f"gradops.tensorflow.enable() must come before the first tf.compat.v1.Session is made, which keeps its kernels; "
            f"got {len(sessions)} of them"
        )
    tensorflow_kernels.connect(_addresses(), _answer)
    for definition in (definition for name, op in _OPS.items() for definition in _definitions(name, op)):
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


_LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")
_NOLOAD = 4
"""RTLD_NOLOAD: the library is there or it is an error."""


def _definitions(name: str, op: _Op) -> Iterator[kernel_def_pb2.KernelDef]:
    """What the kernels of an op are registered as: under its name, and under oneDNN's names that have kernels for some of its types."""
    yield _definition(name, "", op.dtypes)
    renamed = {name: op.dtypes, _FUSED: ("float32",)} if name == _FILTER else {name: op.dtypes}
    for other, dtypes in renamed.items():
        taken = [
            tf.as_dtype(dtype).name
            for kernel in registry.get_registered_kernels_for_op(_RENAMED + other).kernel
            if kernel.device_type == "CPU" and kernel.label == _LABEL
            for constraint in kernel.constraint
            for dtype in constraint.allowed_values.list.type
        ]
        known = tuple(dtype for dtype in dtypes if dtype in taken)
        if known:
            yield _definition(_RENAMED + other, _LABEL, known)


def _definition(name: str, label: str, dtypes: tuple[str, ...]) -> kernel_def_pb2.KernelDef:
    definition = kernel_def_pb2.KernelDef(op=name, device_type="CPU", label=label, priority=_PRIORITY)
    types = definition.constraint.add(name="T").allowed_values.list.type
    types.extend(tf.as_dtype(dtype).as_datatype_enum for dtype in dtypes)
    if "Depthwise" in name:
        definition.constraint.add(name="padding").allowed_values.list.s.extend([b"SAME", b"VALID"])
    elif "Conv2D" in name:
        definition.constraint.add(name="use_cudnn_on_gpu").allowed_values.list.b.append(True)
    return definition


def _forget_kernels() -> None:
    """Has TensorFlow make the kernels anew that it has made so far."""
    eager.context().clear_kernel_cache()


# What a kernel asks for when it meets new shapes

_Key: TypeAlias = tuple[int, ...]
_Native: TypeAlias = tuple[object, bytes, tuple[tuple[bytes, bytes], ...], tuple[int, ...], int]
_Answer: TypeAlias = tuple[object, tuple[int, ...], int, Shape, int, tuple[_Native, ...], int, bool]


class _Input(NamedTuple):
    shape: Shape
    values: tuple[int, ...] | None
    """Those of a vector of integers."""


class _Node(NamedTuple):
    name: str
    fused: bool
    dtype: int
    given: Any
    """The attributes of a convolution, or whether pooling cells overlap."""
    attr: dict[str, attr_value_pb2.AttrValue]

    @property
    def op(self) -> _Op:
        return _OPS[self.name]

    @property
    def storage(self) -> int:
        return STORAGE[tf.as_dtype(self.dtype).name]


def _answer(text: bytes, key: _Key, native: bool) -> _Answer:
    """What a kernel does with inputs of these shapes and sizes, in the order in which `tensorflow_kernels.connect` describes it."""
    node, inputs = _parsed(text), _inputs(key)
    if node.name == _POOL:
        return _computed(node, plan_pooling(*_pooling_arguments(inputs, node.given)))
    if native:
        return _passed_on(node, inputs)
    case = _case(node, inputs)
    return _computed(node, plan_convolution(*case), _recipe(case, node.storage))


def _computed(node: _Node, plan: Any, kept: object = None) -> _Answer:
    """A recipe does it; one that is not kept has to be kept by the kernel for as long as it computes."""
    _limit_threads()
    shape = plan.result_shape
    made = kept or recipe(plan, node.storage)
    size = prod(shape) * ITEM_SIZES[node.storage]
    ops = (_bias(node),) if node.fused else ()
    return made, node.op.operands, node.dtype, shape, size, ops, _COUNTERS.index(node.name), kept is not None


def _passed_on(node: _Node, inputs: list[_Input]) -> _Answer:
    """TensorFlow does it."""
    ops = (_native(node, inputs), _bias(node)) if node.fused else (_native(node, inputs),)
    return None, (), 0, (), 0, ops, _COUNTERS.index("disabled"), True


_recipes: dict[object, object] = {}


def _recipe(case: tuple[Any, ...], storage: int) -> object:
    """The recipe of a convolution. It is never let go, nor replaced by that of another thread: kernels keep its address."""
    found = _recipes.get((case, storage))
    return found or _recipes.setdefault((case, storage), recipe(plan_convolution(*case), storage))


@lru_cache(maxsize=1024)
def _parsed(text: bytes) -> _Node:
    """What gradops wants to know of a node."""
    definition = node_def_pb2.NodeDef.FromString(text)
    name = definition.op.removeprefix(_RENAMED)
    attr = {word: value for word, value in definition.attr.items() if not word.startswith("_")}
    if name == _POOL:
        return _Node(name, False, attr["T"].type, attr["overlapping"].b, attr)
    paddings = attr["explicit_paddings"].list.i if "explicit_paddings" in attr else ()
    given = attributes(
        tuple(attr["strides"].list.i), attr["padding"].s.decode(), tuple(paddings),
        attr["data_format"].s.decode(), tuple(attr["dilations"].list.i),
    )  # fmt: skip
    return _Node(_FILTER if name == _FUSED else name, name == _FUSED, attr["T"].type, given, attr)


def _inputs(key: _Key) -> list[_Input]:
    """The inputs of a call, from its key: of each the type, the rank, the dimensions, and the values of a vector of integers."""
    inputs, rest = [], iter(key)
    for dtype in rest:
        shape = tuple(next(rest) for _ in range(next(rest)))
        holds_values = len(shape) == 1 and dtype in (tf.int32.as_datatype_enum, tf.int64.as_datatype_enum)
        inputs.append(_Input(shape, tuple(next(rest) for _ in range(shape[0])) if holds_values else None))
    return inputs


def _values(name: str, given: _Input) -> Shape:
    if given.values is None:
        raise ValueError(f"{name} must be a vector of integers, got shape {given.shape}")
    return given.values


def _case(node: _Node, inputs: list[_Input]) -> tuple[str, Shape, Shape, Shape, Attributes]:
    """The arguments of a convolution's plan: the function, the shapes of input, filter and out_backprop, the attributes."""
    at = node.op.sizes
    shapes = [given.shape for given in inputs]
    shapes[at] = _values(("input_sizes", "filter_sizes")[at], inputs[at])
    return node.op.function, shapes[0], shapes[1], shapes[2], node.given


def _pooling_arguments(inputs: list[_Input], overlapping: bool) -> tuple[Any, ...]:
    names = ("orig_input_tensor_shape", "out_backprop", "row_pooling_sequence", "col_pooling_sequence")
    sizes, rows, cols = (_values(names[i], inputs[i]) for i in (0, 2, 3))
    return sizes, inputs[1].shape, rows, cols, overlapping, "NHWC"


@cache
def _limit_threads() -> None:
    """Tells the kernels how many threads TensorFlow may use in an op, which is settled when the first one is computed."""
    tensorflow_kernels.set_most_threads(tf.config.threading.get_intra_op_parallelism_threads())


# TensorFlow's own ops


def _native(node: _Node, inputs: list[_Input]) -> _Native:
    """The op of a node, for its built-in kernel."""
    attr = dict(node.attr)
    if "Depthwise" in node.name:
        attr |= _explicit(node, inputs)
    else:
        attr["use_cudnn_on_gpu"] = attr_value_pb2.AttrValue(b=False)
    return _op(node.name, attr, (0, 1, 2), 0)


def _bias(node: _Node) -> _Native:
    """The gradient of the bias, from out_backprop."""
    return _op("BiasAddGrad", {word: node.attr[word] for word in ("T", "data_format")}, (2,), 1)


def _op(name: str, attr: dict[str, attr_value_pb2.AttrValue], inputs: tuple[int, ...], output: int) -> _Native:
    """An op as `tensorflow_kernels.connect` describes it."""
    eager.context().ensure_initialized()
    pairs = tuple((word.encode(), value.SerializeToString()) for word, value in attr.items())
    return eager.context()._handle, name.encode(), pairs, inputs, output


def _explicit(node: _Node, inputs: list[_Input]) -> dict[str, attr_value_pb2.AttrValue]:
    """The padding of a depthwise convolution under its other name. TensorFlow ignores dilations here."""
    strides, padding, _, data_format, _ = node.given
    layout = LAYOUTS[data_format]
    pads = [0] * 8
    image, filter = (given.shape if given.values is None else given.values for given in (inputs[0], inputs[1]))
    if padding == "SAME" and len(image) == len(filter) == len(strides) == 4:
        for at, taps in zip((layout.h, layout.w), filter, strict=False):
            out = -(-image[at] // strides[at])
            total = max(0, (out - 1) * strides[at] + taps - image[at])
            pads[2 * at : 2 * at + 2] = total // 2, total - total // 2
    numbers = attr_value_pb2.AttrValue.ListValue(i=pads)
    return {
        "padding": attr_value_pb2.AttrValue(s=b"EXPLICIT"),
        "explicit_paddings": attr_value_pb2.AttrValue(list=numbers),
    }
