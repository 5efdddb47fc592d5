# cython: language_level=3
"""What this CPU, compiler and OpenMP runtime offer, and new arrays. Built once, for the compiler's default target."""
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uintptr_t
cimport numpy as cnp

cnp.import_array()

cdef enum:
    MOST_DIMENSIONS = 8

cdef extern from *:
    """
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    static int gradops_supports_v3(void) { __builtin_cpu_init(); return __builtin_cpu_supports("x86-64-v3"); }
    static int gradops_supports_v4(void) { __builtin_cpu_init(); return __builtin_cpu_supports("x86-64-v4"); }
    static int gradops_supports_bf16(void) { return gradops_supports_v4() && __builtin_cpu_supports("avx512bf16"); }
    #else
    static int gradops_supports_v3(void) { return 0; }
    static int gradops_supports_v4(void) { return 0; }
    static int gradops_supports_bf16(void) { return 0; }
    #endif
    """
    bint gradops_supports_v3()
    bint gradops_supports_v4()
    bint gradops_supports_bf16()
    const char *__VERSION__
    const int _OPENMP

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(PyTypeObject *subtype, cnp.dtype descr, int nd, const cnp.npy_intp *dims, const cnp.npy_intp *strides, void *data, int flags, void *obj)

cdef extern from "omp.h" nogil:
    int omp_get_max_threads()


def supported_levels():
    """The ISA levels that this CPU and its operating system run, worst first."""
    levels = ["generic"]
    if gradops_supports_v3():
        levels.append("x86_64_v3")
    if gradops_supports_v4():
        levels.append("x86_64_v4")
    if gradops_supports_bf16():
        levels.append("x86_64_v4_bf16")
    return tuple(levels)


def compiler():
    """The compiler that built the kernels."""
    return (<bytes> __VERSION__).decode()


def openmp():
    """The date of the OpenMP standard that the compiler implements, as yyyymm."""
    return _OPENMP


def max_threads():
    """How many threads OpenMP would use by itself."""
    return omp_get_max_threads()


def empty(tuple shape not None, cnp.dtype dtype not None, int64_t alignment, int64_t most):
    """An uninitialised array at a multiple of `alignment` bytes; None if it would be empty or have more than `most` bytes or MOST_DIMENSIONS."""
    cdef cnp.npy_intp dims[MOST_DIMENSIONS]
    cdef cnp.npy_intp size = dtype.itemsize
    cdef int i, count = <int> len(shape)
    cdef cnp.ndarray memory, array
    cdef char *data
    if count > MOST_DIMENSIONS:
        return None
    for i in range(count):
        dims[i] = shape[i]
        if dims[i] == 0 or size > most // dims[i]:
            return None
        size *= dims[i]
    size += alignment
    memory = cnp.PyArray_EMPTY(1, &size, cnp.NPY_UINT8, 0)
    data = <char *> cnp.PyArray_DATA(memory)
    data += (alignment - <uintptr_t> data % alignment) % alignment
    Py_INCREF(dtype)
    array = PyArray_NewFromDescr(<PyTypeObject *> cnp.ndarray, dtype, count, dims, NULL, data, cnp.NPY_ARRAY_CARRAY, NULL)
    cnp.set_array_base(array, memory)
    return array


def readable(cnp.ndarray array not None):
    """Whether an array is aligned, C-contiguous and in this machine's byte order."""
    return cnp.PyArray_ISCARRAY_RO(array)
