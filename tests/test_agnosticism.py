"""What a result must not depend on: threads, memory layout of the operands, where it is written, who calls."""

import numpy as np
import pytest
from checks import own_dtypes
from problems import COVERING, LARGER, POOL_PROBLEMS, rows

from gradops.testing import OPS, PoolProblem, Problem, dtype_named, random_normal

MODERATE = {
    "dense": Problem(n=2, h=9, w=11, c=6, k=10, groups=2, strides=(2, 1), padding="SAME"),
    "depthwise": Problem(n=2, h=9, w=11, c=6, m=3, strides=(2, 1), padding="SAME"),
    "pool": PoolProblem(n=2, h=9, w=11, c=6, overlapping=True),
}
EVERY_OP = pytest.mark.parametrize("op", OPS.values(), ids=str)
THREADS = (1, 2, 3, 7)


def moderate(op, dtype="float32"):
    problem = MODERATE[op.kind]
    operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=1)
    return problem, operands, op(problem, *operands)


def same_bits(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize(("op", "problem"), rows(LARGER), ids=str)
def test_result_does_not_depend_on_num_threads(op, problem, level):
    for dtype in own_dtypes(op):
        operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=5)
        serial = op(problem, *operands, num_threads=1)
        for threads in THREADS[1:]:
            assert same_bits(op(problem, *operands, num_threads=threads), serial), (dtype, threads)


@pytest.mark.parametrize(("op", "problem"), rows(COVERING | {"pool": POOL_PROBLEMS}), ids=str)
def test_small_results_do_not_depend_on_num_threads(op, problem):
    operands = random_normal(op.shapes(problem), np.float32, seed=6)
    serial = op(problem, *operands, num_threads=1)
    for threads in THREADS[1:]:
        assert same_bits(op(problem, *operands, num_threads=threads), serial), threads


@EVERY_OP
def test_result_is_repeated_bit_by_bit(op, level):
    for problem in LARGER[op.kind]:
        operands = random_normal(op.shapes(problem), np.float32, seed=7)
        first = op(problem, *operands)
        assert all(same_bits(op(problem, *operands), first) for _ in range(3))


def every_other(array):
    wide = np.zeros(tuple(2 * size for size in array.shape), array.dtype)
    view = wide[tuple(slice(1, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


class Exporter:
    """An array that NumPy can only read through DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Interface:
    """An array that NumPy can only read through __array__."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return np.array(self._array, dtype=dtype)


VIEWS = {
    "every other element": every_other,
    "reversed axes": lambda array: array[::-1, ::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1, ::-1],
    "transposed": lambda array: array.transpose(3, 1, 0, 2).copy().transpose(2, 1, 3, 0),
    "Fortran order": np.asfortranarray,
    "unaligned": unaligned,
    "read-only": read_only,
    "DLPack": Exporter,
    "__array__": Interface,
}
ORDERED = {"big endian": ">", "little endian": "<"}


@EVERY_OP
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_result_does_not_depend_on_how_operands_lie_in_memory(op, view):
    for dtype in op.dtypes:
        if view is Exporter and dtype == "bfloat16":
            continue  # NumPy neither exports nor imports ml_dtypes' bfloat16 through DLPack
        problem, operands, plain = moderate(op, dtype)
        for at in range(len(operands)):
            viewed = [view(operand) if at == index else operand for index, operand in enumerate(operands)]
            assert same_bits(op(problem, *viewed), plain), (dtype, op.operands[at])
        assert same_bits(op(problem, *map(view, operands)), plain), dtype


@EVERY_OP
@pytest.mark.parametrize("order", ORDERED.values(), ids=ORDERED.keys())
def test_operands_of_either_byte_order_give_a_native_result(op, order):
    for dtype in set(op.dtypes) - {"bfloat16"}:
        problem, operands, plain = moderate(op, dtype)
        swapped = [operand.astype(operand.dtype.newbyteorder(order)) for operand in operands]
        got = op(problem, *swapped)
        assert got.dtype.isnative
        assert same_bits(got, plain), dtype


@EVERY_OP
def test_operands_may_be_memory_mapped(op, tmp_path):
    problem, operands, plain = moderate(op)
    mapped = []
    for name, operand in zip(op.operands, operands, strict=True):
        np.save(tmp_path / f"{name}.npy", operand)
        mapped.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    assert same_bits(op(problem, *mapped), plain)


@EVERY_OP
def test_nested_lists_are_float32_or_what_the_other_operand_is(op):
    problem, operands, plain = moderate(op, "float32")
    lists = [operand.tolist() for operand in operands]
    assert same_bits(op(problem, *lists), plain)
    for dtype in op.dtypes if len(operands) == 2 else ():
        problem, operands, plain = moderate(op, dtype)
        assert same_bits(op(problem, operands[0].astype(np.float64).tolist(), operands[1]), plain), dtype
        assert same_bits(op(problem, operands[0], operands[1].astype(np.float64).tolist()), plain), dtype


@EVERY_OP
def test_operands_are_not_written_to(op, level):
    problem, operands, _ = moderate(op)
    copies = [operand.copy() for operand in operands]
    op(problem, *operands)
    assert all(same_bits(operand, copy) for operand, copy in zip(operands, copies, strict=True))


@EVERY_OP
def test_results_are_fresh_contiguous_and_aligned(op):
    for dtype in op.dtypes:
        problem, operands, plain = moderate(op, dtype)
        kept = [op(problem, *operands) for _ in range(8)]
        for result in [plain, *kept]:
            assert type(result) is np.ndarray
            assert result.flags.c_contiguous
            assert result.flags.writeable
            assert result.ctypes.data % 64 == 0
        assert len({result.ctypes.data for result in kept}) == len(kept)


@EVERY_OP
def test_out_is_filled_and_returned(op, level):
    for dtype in op.dtypes:
        problem, operands, plain = moderate(op, dtype)
        out = np.full(plain.shape, 77, plain.dtype)
        assert op(problem, *operands, out=out) is out
        assert same_bits(out, plain)


@EVERY_OP
def test_out_may_be_memory_mapped(op, tmp_path):
    problem, operands, plain = moderate(op)
    out = np.memmap(tmp_path / "out", plain.dtype, "w+", shape=plain.shape)
    assert op(problem, *operands, out=out) is out
    assert out.tobytes() == plain.tobytes()


@EVERY_OP
def test_memory_around_out_is_untouched(op, level):
    for problem in [MODERATE[op.kind], *LARGER[op.kind]]:
        for dtype in op.dtypes:
            operands = random_normal(op.shapes(problem), dtype_named(dtype), seed=8)
            plain = op(problem, *operands)
            memory = np.full(plain.nbytes + 8192, 0xA5, np.uint8)
            start = 4096 - memory.ctypes.data % 64
            out = memory[start : start + plain.nbytes].view(plain.dtype).reshape(plain.shape)
            op(problem, *operands, out=out)
            assert same_bits(out, plain)
            assert (memory[:start] == 0xA5).all()
            assert (memory[start + plain.nbytes :] == 0xA5).all()


@pytest.mark.parametrize("kind", ["dense", "depthwise"])
def test_layouts_give_the_same_numbers(kind, level):
    for problem in COVERING[kind]:
        if problem.layout == "NCHW":
            continue
        other = Problem.parse(str(problem).replace("_nhwc", "_nchw"))
        for op in OPS.values():
            if op.kind == kind:
                operands = random_normal(op.shapes(problem), np.float64, seed=9)
                is_image = [role != "filter" for role in op.operands]
                moved = [x.transpose(0, 3, 1, 2) if image else x for x, image in zip(operands, is_image, strict=True)]
                one, two = op(problem, *operands), op(other, *moved)
                two = two if op.sizes == "filter_sizes" else two.transpose(0, 2, 3, 1)
                np.testing.assert_allclose(two, one, rtol=1e-12, atol=1e-12, err_msg=f"{op} {problem}")
