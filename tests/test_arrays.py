"""What is taken as an array, in which dtype it is read, and how results and copies lie in memory."""

import array
import os
import sys
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from gradops._arrays import (
    ALIGNMENT,
    FLOATS,
    NUMBERS,
    STORAGE,
    empty,
    native,
    pair,
    ready,
    shape_of,
    single,
    storage_of,
    zeros,
)

ONE = np.ones(1, np.float64)


class Exporter:
    """Hands on the protocols of an array that are named."""

    def __init_subclass__(cls, protocols=()):
        for word in protocols:
            setattr(cls, word, lambda self, *args, _word=word, **kwargs: getattr(self.array, _word)(*args, **kwargs))

    def __init__(self, array):
        self.array = array


class Converts(Exporter, protocols=["__array__"]):
    pass


class OnlyDlpack(Exporter, protocols=["__dlpack__", "__dlpack_device__"]):
    pass


class DlpackAfterRefusal(OnlyDlpack):
    def __array__(self, *args, **kwargs):
        raise RuntimeError("no")


class Interface:
    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.array = array

    __array_interface__ = None


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("order", ["=", "<", ">"])
def test_storage_code_does_not_depend_on_byte_order(name, order):
    assert storage_of(np.dtype(name).newbyteorder(order)) == STORAGE[name]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8", ml_dtypes.bfloat16])
def test_native_undoes_a_swapped_byte_order(dtype):
    swapped = np.dtype(dtype).newbyteorder()
    assert not swapped.isnative
    assert native(swapped) == np.dtype(dtype) == native(np.dtype(dtype))


@pytest.mark.parametrize("dtype", ["i2", "u4", "c8", "O", "U3", "V2", "M8[s]", "g", "?", ml_dtypes.float8_e5m2])
def test_other_dtypes_have_no_storage_code(dtype):
    assert storage_of(np.dtype(dtype)) == len(NUMBERS)


@pytest.mark.parametrize("wrap", [np.asarray, Converts, OnlyDlpack, DlpackAfterRefusal, Interface, memoryview])
def test_arrays_and_exporters_are_read_without_a_copy(wrap):
    source = np.arange(3.0)
    taken, _, code = pair("a", wrap(source), "b", ONE)
    assert type(taken) is np.ndarray
    assert np.shares_memory(taken, source)
    assert code == STORAGE["float64"]


@pytest.mark.parametrize("source", [array.array("f", [1, 2]), np.ma.array(np.float32([1, 2]))])
def test_other_containers_of_numbers_are_taken(source):
    taken, code = single("a", source)
    assert type(taken) is np.ndarray
    assert (taken.tolist(), code) == ([1, 2], STORAGE["float32"])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16])
@pytest.mark.parametrize("swapped", [False, True])
def test_nests_take_the_dtype_of_the_other_argument(dtype, swapped):
    other = np.ones(1, dtype)
    other = other.astype(other.dtype.newbyteorder()) if swapped else other
    for first, second in [([[1, 2.5]], other), (other, [[1, 2.5]])]:
        *both, code = pair("a", first, "b", second)
        nest = next(x for x in both if x.ndim == 2)
        assert nest.dtype == np.dtype(dtype)
        assert nest.tolist() == [[1, 2.5]]
        assert code == storage_of(np.dtype(dtype))


def test_nests_are_float32_among_themselves():
    a, b, code = pair("a", [1, 2], "b", (np.float64(3), 4))
    assert (a.dtype, b.dtype, code) == (np.float32, np.float32, STORAGE["float32"])
    assert single("a", 1)[0].dtype == np.float32


def test_integer_nests_are_taken_beside_an_integer_array():
    a, _, code = pair("a", [[1, -2]], "b", np.ones(1, np.int64), NUMBERS)
    assert (a.dtype, a.tolist(), code) == (np.int64, [[1, -2]], STORAGE["int64"])


def test_nests_may_be_empty_or_hold_bfloat16():
    assert pair("a", [[]], "b", np.ones(1, np.int32), NUMBERS)[0].dtype == np.int32
    half = [np.ones(2, ml_dtypes.bfloat16)]
    assert pair("a", half, "b", np.ones(1, np.float32))[0].dtype == np.float32


def test_both_arrays_may_be_of_a_different_byte_order():
    a, b, code = pair("a", np.ones(1, ">f4"), "b", np.ones(1, "<f4"))
    assert code == STORAGE["float32"]
    assert ready(a).dtype.isnative and ready(b).dtype.isnative


def unaligned(values):
    """The values at an odd address."""
    buffer = np.empty(values.nbytes + 1, np.uint8)
    copy = buffer[1:].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


VIEWS = {
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "fortran": np.asfortranarray,
    "broadcast": lambda x: np.broadcast_to(x[:1], (3, *x.shape[1:])),
    "swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "unaligned": unaligned,
}


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "int64"])
@pytest.mark.parametrize("view", VIEWS)
def test_unready_arrays_are_copied_once_into_aligned_memory(view, dtype):
    given = VIEWS[view](np.arange(12).reshape(3, 4).astype(dtype))
    copy = ready(given)
    assert copy.dtype == np.dtype(dtype)
    assert copy.flags.c_contiguous and copy.flags.aligned and copy.dtype.isnative
    assert copy.ctypes.data % ALIGNMENT == 0
    np.testing.assert_array_equal(copy.astype(float), given.astype(float))


def test_ready_arrays_are_not_copied():
    given = np.arange(12.0).reshape(3, 4)
    given.flags.writeable = False
    assert ready(given) is given


@pytest.mark.parametrize("make", [empty, zeros])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 2, 3, 4), (0, 3), (), (1000,), (2**40, 0, 2**10)])
def test_allocated_arrays_are_aligned_writeable_and_of_the_asked_shape(make, dtype, shape):
    made = make(shape, np.dtype(dtype))
    assert (made.shape, made.dtype) == (shape, np.dtype(dtype))
    assert made.ctypes.data % ALIGNMENT == 0
    assert made.flags.c_contiguous and made.flags.aligned and made.flags.writeable
    if make is zeros:
        assert not made.astype(float).any()


def places_apart(one, other):
    """How far two arrays begin from the same place of a quarter of a page."""
    gap = (one.ctypes.data - other.ctypes.data) % 1024
    return min(gap, 1024 - gap)


@pytest.mark.parametrize("count", [1 << 14, 1 << 18, 1 << 21])
def test_arrays_lie_apart_in_their_pages(count):
    """From the one that is read beside them, wherever that lies, or from the one before: else loads wait for stores, and both crowd the same sets."""
    memory = np.empty(count + 1024, np.float32)
    for start in (0, 5, 512, 1000):
        assert places_apart(empty((count,), np.dtype(np.float32), memory[start:]), memory[start:]) >= 128
    one, other = (empty((count,), np.dtype(np.float32)) for _ in range(2))
    assert places_apart(one, other) >= 128


@pytest.mark.parametrize("make", [empty, zeros])
@pytest.mark.parametrize(
    "shape", [(2**61,), (2**60, 2), (2**40, 2**40), (2**40, 2**40, 0), (0, 2**40, 2**40), (2**63 - 1,), (2**46,)]
)
def test_more_than_can_be_allocated_is_a_memory_error(make, shape):
    with pytest.raises(MemoryError):
        make(shape, np.dtype(np.float64))


LARGE = (40 << 20,)
BYTE = np.dtype(np.uint8)


def test_memory_of_a_large_array_is_kept_for_the_next_one_that_fits():
    def block(made):
        """Which huge page it begins with: an array begins somewhere in the first 4096 bytes, or at their end."""
        return made.ctypes.data >> 21

    first = empty(LARGE, BYTE)
    taken, view = block(first), first[1:]
    del first
    while_viewed = empty(LARGE, BYTE)
    assert block(while_viewed) != taken
    del view
    smaller = empty((LARGE[0] // 8, 7), BYTE)
    assert block(smaller) == taken


def test_large_arrays_that_live_share_no_memory():
    made = [empty(LARGE, BYTE) for _ in range(3)]
    for number, each in enumerate(made):
        each.fill(number)
    assert [each[[0, -1]].tolist() for each in made] == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/statm is Linux's")
def test_kept_memory_is_bounded():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    for size in range(40, 100, 12):
        made = [empty((size << 20,), BYTE) for _ in range(6)]
        for each in made:
            each.fill(1)
        del made, each
    assert resident() - before < 300 << 20


def test_tracemalloc_sees_large_arrays_while_they_live():
    tracemalloc.start()
    try:
        made = empty(LARGE, BYTE)
        assert tracemalloc.get_traced_memory()[0] > LARGE[0]
        del made
        assert tracemalloc.get_traced_memory()[0] < LARGE[0]
    finally:
        tracemalloc.stop()


class Shaped:
    shape = (1, 2, 3, 4)

    def __array__(self, *args, **kwargs):
        raise AssertionError("the values were read")


@pytest.mark.parametrize("value", [Shaped(), np.empty((1, 2, 3, 4), "O"), np.zeros((1, 2, 3, 4)).tolist()])
def test_shape_of_needs_no_values(value):
    assert tuple(shape_of(value)) == (1, 2, 3, 4)
