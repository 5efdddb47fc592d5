"""The other libraries. Each is imported only when it is asked for, and gets as many threads as gradops.

To add one: a class that is a `gradops._bench.runner.Peer`, and a row in `PEERS`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradops.testing import OPS, PoolProblem, Problem

from .runner import Case, Contender, Peer

_NO_POOLING = "has no fractional average pooling"
_GRADIENTS = {"input": 0, "filter": 1}


class MissingPeer(ValueError):
    """A library that is not known or not installed."""


def gradient_of(op: str) -> str:
    """Return what a convolution op computes: "input" or "filter" for a gradient, "" for the op itself."""
    return op.rpartition("_")[2] if "_backprop_" in op else ""


def _named(problem: Problem, case: Case, operands: Sequence[NDArray]) -> dict[str, NDArray]:
    """x, w and dy; of the one that the op does not read, zeros of its shape."""
    shapes = {"x": problem.input_shape, "w": problem.filter_shape, "dy": problem.output_shape}
    read = {"": ("x", "w"), "input": ("w", "dy"), "filter": ("x", "dy")}[gradient_of(case.op)]
    given = dict(zip(read, operands, strict=True))
    return {name: given.get(name, np.zeros(shape, operands[0].dtype)) for name, shape in shapes.items()}


def _sides(problem: Problem) -> list[tuple[int, int]]:
    """The padding before and after the rows and the columns."""
    sides = []
    for size, out, taps, stride, dilation, before in problem.axes:
        after = (out - 1) * stride + (taps - 1) * dilation + 1 - size - before
        sides.append((before, max(after, 0)))
    return sides


class _Torch:
    """PyTorch, whose convolutions are mostly oneDNN's, on contiguous tensors or on channels_last ones."""

    def __init__(self, name: str, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch: Any = torch
        self.memory: Any = torch.channels_last if name == "torch_cl" else torch.contiguous_format
        self.name = name
        self.errors: tuple[type[Exception], ...] = (RuntimeError, NotImplementedError)

    def version(self) -> str:
        return str(self.torch.__version__)

    def can(self, case: Case) -> str:
        if isinstance(case.problem, PoolProblem):
            return _NO_POOLING
        if any(before != after for before, after in _symmetric(case.problem)):
            return "has no padding that differs between the sides"
        return ""

    def contender(self, case: Case, operands: Sequence[NDArray]) -> Contender:
        problem, torch = case.problem, self.torch
        assert isinstance(problem, Problem)
        arrays = _named(problem, case, operands)
        order = (0, 3, 1, 2) if problem.layout == "NHWC" else (0, 1, 2, 3)
        x, dy = (self._image(arrays[name].transpose(order)) for name in ("x", "dy"))
        taps = self._tensor(_as_dense(problem, arrays["w"]).transpose(3, 2, 0, 1))
        groups = problem.filter_groups[1]
        padding = [before for before, _ in _symmetric(problem)]
        steps = (list(problem.strides), padding, list(problem.dilations))
        restore = partial(self._restored, back=np.argsort(order).tolist(), dtype=operands[0].dtype)
        if not (gradient := gradient_of(case.op)):
            call = partial(torch.nn.functional.conv2d, x, taps, None, *steps, groups)
            return Contender(self.name, call, restore)
        which = _GRADIENTS[gradient]
        mask = [which == 0, which == 1, False]
        backward = partial(torch.ops.aten.convolution_backward, dy, x, taps, None, *steps, False, [0, 0], groups, mask)
        if which == 0:
            return Contender(self.name, backward, lambda result: restore(result[0]))
        to_filter = partial(self._restored, back=(2, 3, 1, 0), dtype=operands[0].dtype)
        return Contender(self.name, backward, lambda result: to_filter(result[1]).reshape(problem.filter_shape))

    def _image(self, array: NDArray) -> Any:
        return self._tensor(array)

    def _tensor(self, array: NDArray) -> Any:
        if array.dtype.name == "bfloat16":
            tensor = self.torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(np.ascontiguousarray(array))
        return tensor.clone(memory_format=self.memory)  # into memory of PyTorch's own, which is aligned

    def _restored(self, tensor: Any, back: Sequence[int], dtype: np.dtype) -> NDArray:
        tensor = (tensor.to_dense() if tensor.is_mkldnn else tensor).permute(*back).contiguous()
        if dtype.name == "bfloat16":
            return np.asarray(tensor.view(self.torch.int16).numpy()).view(dtype)
        return np.asarray(tensor.numpy())


class _OneDnn(_Torch):
    """oneDNN through PyTorch: images in oneDNN's own blocked format, as a convolution before leaves them, so that none is reordered."""

    def version(self) -> str:
        found = re.search(r"(?:oneDNN|MKL-DNN) v?([\d.]+)", self.torch.__config__.show())
        return found.group(1) if found else "unknown"

    def can(self, case: Case) -> str:
        return super().can(case) or ("" if case.dtype == "float32" else "convolves float32 alone in its blocked format")

    def _image(self, array: NDArray) -> Any:
        tensor = self._tensor(array)
        channels = tensor.shape[1]
        same = self.torch.eye(channels, dtype=tensor.dtype).reshape(channels, channels, 1, 1)
        return self.torch.nn.functional.conv2d(tensor.to_mkldnn(), same)


def _symmetric(problem: Problem) -> list[tuple[int, int]]:
    """The padding as one number per axis, where the one after the last row or column matters to no output."""
    sides = []
    for (before, after), (size, out, taps, stride, dilation, _) in zip(_sides(problem), problem.axes, strict=True):
        reached = (size + 2 * before - (taps - 1) * dilation - 1) // stride + 1
        sides.append((before, before) if reached == out else (before, after if after != before else before + 1))
    return sides


def _as_dense(problem: Problem, w: NDArray) -> NDArray:
    """A depthwise filter [r, s, c, m] as the grouped one [r, s, 1, c m]; both are the same memory."""
    per_group, groups, outputs = problem.filter_groups
    return w.reshape(problem.r, problem.s, per_group, groups * outputs)


class _TensorFlow:
    """TensorFlow's raw ops, eagerly; those on the CPU take NHWC."""

    def __init__(self, threads: int) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with _quiet():
            import tensorflow as tf

        if tf.config.threading.get_intra_op_parallelism_threads() != threads:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        self.tf: Any = tf
        self.name = "tf"
        self.errors: tuple[type[Exception], ...] = (tf.errors.OpError, ValueError)

    def version(self) -> str:
        return str(self.tf.__version__)

    def can(self, case: Case) -> str:
        problem = case.problem
        if case.layout == "NCHW":
            return "takes NHWC only on the CPU"
        if isinstance(problem, PoolProblem):
            return f"pools no {case.dtype}" if case.dtype in ("float16", "bfloat16") else ""
        if problem.depthwise:
            return "strides of depthwise ops have to be equal" if len({*problem.strides}) > 1 else ""
        if gradient_of(case.op) and problem.groups > 1:
            return "has no gradients of grouped convolutions on the CPU"
        if gradient_of(case.op) and problem.dilations != (1, 1):
            return "has no gradients of dilated convolutions on the CPU"
        return ""

    def contender(self, case: Case, operands: Sequence[NDArray]) -> Contender:
        op, problem, tf = OPS[case.op], case.problem, self.tf
        arguments: dict[str, Any] = op.arguments(problem, *operands)
        for name in op.operands:
            arguments[name] = tf.constant(arguments[name])
        if op.sizes:
            wide = op.sizes == "orig_input_tensor_shape"
            arguments[op.sizes] = tf.constant(arguments[op.sizes], tf.int64 if wide else tf.int32)
        for name in ("row_pooling_sequence", "col_pooling_sequence"):
            if name in arguments:
                arguments[name] = tf.constant(arguments[name], tf.int64)
        if isinstance(problem, PoolProblem):
            arguments.pop("data_format", None)
        else:
            arguments |= {name: list(arguments[name]) for name in ("strides", "dilations")}
            if "explicit_paddings" in arguments:
                arguments["explicit_paddings"] = list(arguments["explicit_paddings"])
        return Contender(self.name, partial(getattr(tf.raw_ops, op.raw_name), **arguments), _first_numpy)


def _first_numpy(result: Any) -> NDArray:
    return np.asarray((result.output if hasattr(result, "output") else result).numpy())


class _Jax:
    """JAX on the CPU, compiled beforehand. Its threads are the CPUs that the process may use."""

    def __init__(self, threads: int) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", "cpu")
        self.jax: Any = jax
        self.name = "jax"
        self.errors: tuple[type[Exception], ...] = (TypeError, ValueError, NotImplementedError, RuntimeError)

    def version(self) -> str:
        return str(self.jax.__version__)

    def can(self, case: Case) -> str:
        return _NO_POOLING if isinstance(case.problem, PoolProblem) else ""

    def contender(self, case: Case, operands: Sequence[NDArray]) -> Contender:
        jax, problem = self.jax, case.problem
        assert isinstance(problem, Problem)
        arrays = _named(problem, case, operands)
        arrays["w"] = _as_dense(problem, arrays["w"])

        def forward(x: Any, w: Any) -> Any:
            return jax.lax.conv_general_dilated(
                x,
                w,
                problem.strides,
                _sides(problem),
                rhs_dilation=problem.dilations,
                feature_group_count=problem.filter_groups[1],
                dimension_numbers=(problem.layout, "HWIO", problem.layout),
            )

        gradient = gradient_of(case.op)
        x, w, dy = (jax.device_put(arrays[name]) for name in ("x", "w", "dy"))
        if gradient:
            which = _GRADIENTS[gradient]
            call = partial(jax.jit(lambda x, w, dy: jax.vjp(forward, x, w)[1](dy)[which]), x, w, dy)
        else:
            call = partial(jax.jit(forward), x, w)
        shape = {"": problem.output_shape, "input": problem.input_shape, "filter": problem.filter_shape}[gradient]
        return Contender(self.name, lambda: call().block_until_ready(), lambda y: np.asarray(y).reshape(shape))


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop what a library writes on stderr while it is imported, below Python."""
    stderr = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


PEERS: dict[str, tuple[str, str, Callable[[int], list[Peer]]]] = {
    "torch": ("torch", "torch", lambda threads: [_Torch("torch", threads), _Torch("torch_cl", threads)]),
    "onednn": ("torch", "torch", lambda threads: [_OneDnn("onednn", threads)]),
    "tf": ("tensorflow", "tensorflow-cpu", lambda threads: [_TensorFlow(threads)]),
    "jax": ("jax", "jax", lambda threads: [_Jax(threads)]),
}
"""By the name that --vs takes: the module, what to install, and what makes the peers."""


def load(names: Sequence[str], threads: int) -> list[Peer]:
    """Import the peers of these names.

    Raises
    ------
    MissingPeer
        One is unknown or not installed; nothing has been imported then.
    """
    names = list(PEERS) if list(names) == ["all"] else list(dict.fromkeys(names))
    for name in names:
        if name not in PEERS:
            raise MissingPeer(f"--vs: unknown peer {name!r}; known are {', '.join(PEERS)}")
        module, package, _ = PEERS[name]
        if find_spec(module) is None:
            raise MissingPeer(f"--vs: {name} is not installed; try: pip install {package}")
    _limit_cpus(threads)
    return [peer for name in names for peer in PEERS[name][2](threads)]


def _limit_cpus(threads: int) -> None:
    """Give the process as many CPUs as threads: the only limit that every library respects."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
