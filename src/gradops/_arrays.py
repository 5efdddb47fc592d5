"""Whether an array can be handed to a kernel: conversion, agreement of dtypes, contiguity, allocation, `out=`."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any, TypeAlias

import numpy as np

from gradops._kernels import runtime

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

FLOATS = ("float16", "bfloat16", "float32", "float64")
NUMBERS = (*FLOATS, "int32", "int64")
ITEM_SIZES = (2, 2, 4, 8, 4, 8)
STORAGE = {name: code for code, name in enumerate(NUMBERS)}
"""The code by which the kernels know a dtype."""

KEPT = runtime.kept_from
"""Bytes from which on the memory of results is kept for the next ones."""

ALIGNMENT = 64
LARGE = 2**30
"""Results above this many bytes are held against the memory that is available."""
MAX_BYTES = 2**63 - 1 - ALIGNMENT
_UNKNOWN = len(NUMBERS)
_BYTE = np.dtype(np.uint8)

# bfloat16 is no dtype of NumPy's own. It is told by its name, once per dtype object, since `dtype.name` is slow.
_codes: dict[np.dtype[Any], int] = {np.dtype(name): code for name, code in STORAGE.items() if name != "bfloat16"}

_address_of = ctypes.addressof
_first_byte = ctypes.c_char.from_buffer


def storage_of(dtype: np.dtype[Any]) -> int:
    """The storage code of `dtype` in either byte order; `len(NUMBERS)` if there is none."""
    code = _codes.get(dtype)
    if code is None:
        code = STORAGE.get(dtype.name, _UNKNOWN)
        if code != _UNKNOWN:
            _codes[dtype] = code
    return code


def pair(a_name: str, a: object, b_name: str, b: object, dtypes: tuple[str, ...] = FLOATS) -> tuple[Array, Array, int]:
    """Two arguments as arrays of one supported dtype, and its storage code; neither is copied to be made contiguous.

    A nest of Python numbers takes the dtype of the other argument, or float32 if that is one as well.
    """
    if type(a) is np.ndarray and type(b) is np.ndarray:
        code = _codes.get(a.dtype, _UNKNOWN)
        if code < len(dtypes) and _codes.get(b.dtype) == code:
            return a, b, code
    x, y = _typed(a_name, a), _typed(b_name, b)
    if x is None:
        x = _nest(a_name, a, np.dtype(np.float32) if y is None else _supported(b_name, y, dtypes).dtype)
    if y is None:
        y = _nest(b_name, b, _supported(a_name, x, dtypes).dtype)
    code = storage_of(_supported(a_name, x, dtypes).dtype)
    if storage_of(_supported(b_name, y, dtypes).dtype) != code:
        raise TypeError(
            f"{a_name} and {b_name} must have the same dtype, "
            f"got {a_name} of {x.dtype.name} and {b_name} of {y.dtype.name}"
        )
    return x, y, code


def single(name: str, value: object, dtypes: tuple[str, ...] = FLOATS) -> tuple[Array, int]:
    """One argument as an array of a supported dtype, and its storage code; a nest of Python numbers becomes float32."""
    array = _typed(name, value)
    if array is None:
        array = _nest(name, value, np.dtype(np.float32))
    return array, storage_of(_supported(name, array, dtypes).dtype)


def ready(array: Array) -> Array:
    """`array` itself if a kernel can read it, else an aligned, contiguous, native copy."""
    if runtime.readable(array):
        return array
    copy = empty(array.shape, native(array.dtype))
    copy[...] = array
    return copy


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """`dtype` in this machine's byte order."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], beside: Array | None = None) -> Array:
    """An uninitialised array that starts on a 64-byte boundary, in a page apart from the array that is read beside it, or from the last one."""
    array = runtime.empty(shape, dtype, ALIGNMENT, LARGE, beside)
    if array is not None:
        return array
    return _aligned(shape, dtype, np.empty(_room(shape, dtype), _BYTE))


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of zeros that starts on a 64-byte boundary; the system clears its pages when they are first used."""
    return _aligned(shape, dtype, np.zeros(_room(shape, dtype), _BYTE))


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any], buffer: Array) -> Array:
    return np.ndarray(shape, dtype, buffer, -_address_of(_first_byte(buffer)) % ALIGNMENT)  # type: ignore[arg-type]


def _room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes for an array and its alignment. NumPy counts empty dimensions as 1 to find an overflow; so does this."""
    nbytes = prod(shape) * dtype.itemsize
    extent = nbytes or prod([size or 1 for size in shape]) * dtype.itemsize
    if extent > MAX_BYTES:
        raise MemoryError(
            f"an array of shape {shape} and dtype {dtype.name} is larger than memory can be: {extent} bytes"
        )
    if nbytes > LARGE and nbytes > (available := _available_bytes()):
        raise MemoryError(
            f"an array of shape {shape} and dtype {dtype.name} needs {nbytes} bytes, {available} are available"
        )
    return nbytes + ALIGNMENT


def _available_bytes() -> int:
    """Memory that can be had without swapping, where Linux tells; the system itself would grant more and kill whoever uses it."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return MAX_BYTES


def check_out(
    out: object, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: tuple[tuple[str, Array], ...]
) -> Array:
    """`out`, if a kernel can write a result of `shape` and `dtype` straight into it."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a numpy.ndarray, got {type(out).__name__}")
    if out.dtype != dtype:
        raise TypeError(f"out must have the dtype of the inputs, {_spelled(dtype)}, got {_spelled(out.dtype)}")
    if out.shape != shape:
        raise ValueError(f"out must have the shape of the result, {shape}, got {out.shape}")
    if not out.flags.c_contiguous:
        raise ValueError(f"out must be C-contiguous, got an array of shape {out.shape} with strides {out.strides}")
    if not out.flags.aligned:
        raise ValueError(f"out must be aligned to the {dtype.alignment} bytes of {dtype.name}, got an unaligned array")
    if not out.flags.writeable:
        raise ValueError("out must be writeable, got a read-only array")
    for name, array in inputs:
        if np.may_share_memory(out, array):
            raise ValueError(f"out must not overlap an input, got an array that shares memory with {name}")
    return out


def _typed(name: str, value: Any) -> Array | None:
    """`value` as an array, or None if it has no dtype of its own."""
    if isinstance(value, np.ndarray):
        return value if type(value) is np.ndarray else np.asarray(value)
    failure: Exception | None = None
    array: Array
    for convert in _converters(value):
        try:
            array = convert(value)
            return array
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            failure = failure or error
    if failure is not None:
        raise TypeError(
            f"{name} must be an array, got {type(value).__name__}, which cannot be read: {failure}"
        ) from failure
    return None


def _converters(value: object) -> list[Any]:
    """The functions of NumPy that `value` offers itself to."""
    kind = type(value)
    takes_array = any(hasattr(kind, word) for word in ("__array__", "__array_interface__", "__array_struct__"))
    offers = [np.asarray] if takes_array or _has_buffer(value) else []
    return [*offers, np.from_dlpack] if hasattr(kind, "__dlpack__") else offers


def _has_buffer(value: object) -> bool:
    try:
        memoryview(value).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _nest(name: str, value: object, dtype: np.dtype[Any]) -> Array:
    """Python numbers in nested sequences as an array of `dtype`."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array or evenly nested sequences of numbers: {error}") from error
    whole = dtype.kind in "iu"
    numbers = array.dtype.kind in ("iu" if whole else "iuf") or (array.dtype.name == "bfloat16" and not whole)
    if array.size and not numbers:
        raise TypeError(
            f"{name} must be an array of {dtype.name} numbers, got {type(value).__name__} of {array.dtype.name}"
        )
    converted = array.astype(native(dtype))
    if whole and not np.array_equal(converted, array):
        raise ValueError(
            f"{name} must hold numbers that fit {dtype.name}, got values from {array.min()} to {array.max()}"
        )
    return converted


def _supported(name: str, array: Array, dtypes: tuple[str, ...]) -> Array:
    if storage_of(array.dtype) >= len(dtypes):
        raise TypeError(f"{name} must have dtype {', '.join(dtypes[:-1])} or {dtypes[-1]}, got {_spelled(array.dtype)}")
    return array


def _spelled(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.isnative else f"byte-swapped {dtype.name}"


def shape_of(value: Any) -> Any:
    """The shape of anything that has one, or of a nest; its values are not read."""
    shape = getattr(value, "shape", None)
    return np.shape(value) if shape is None else shape
