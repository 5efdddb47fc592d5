# cython: language_level=3, cdivision=True
"""What this CPU, compiler and OpenMP runtime offer, and new arrays. Built once, for the compiler's default target."""
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyTypeObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free
cimport numpy as cnp

cnp.import_array()

cdef enum:
    MOST_DIMENSIONS = 8
    KEPT = 1 << 22                                      # bytes of a block from which on it is kept when its array dies
    MOST_KEPT = 1 << 28                                 # bytes of all kept blocks
    SLOTS = 16                                          # kept blocks, at most
    HUGE_PAGE = 1 << 21
    PAGE = 1 << 12
    APART = 27 * 64                                     # bytes between places in a page: loads wait for stores at the same place of one, or of few of its parts
    PLACED = 1 << 15                                    # bytes of an array from which on it has its place
    NUMPY_DOMAIN = 389047                               # of tracemalloc, where the memory of arrays is seen

cdef extern from *:
    """
    #ifdef __linux__
    #include <sys/syscall.h>
    #include <unistd.h>
    #endif
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    static int gradops_supports_v3(void) { __builtin_cpu_init(); return __builtin_cpu_supports("x86-64-v3"); }
    static int gradops_supports_v4(void) { __builtin_cpu_init(); return __builtin_cpu_supports("x86-64-v4"); }
    static int gradops_supports_bf16(void) { return gradops_supports_v4() && __builtin_cpu_supports("avx512bf16"); }
    /* Threads have no room for tiles until the process has asked for it. */
    static int gradops_supports_tiles(void) {
    #if defined(__linux__) && defined(SYS_arch_prctl)
        enum { REQUEST = 0x1023, TILES = 18 };
        return gradops_supports_bf16() && __builtin_cpu_supports("amx-bf16") && syscall(SYS_arch_prctl, REQUEST, TILES) == 0;
    #else
        return 0;
    #endif
    }
    #else
    static int gradops_supports_v3(void) { return 0; }
    static int gradops_supports_v4(void) { return 0; }
    static int gradops_supports_bf16(void) { return 0; }
    static int gradops_supports_tiles(void) { return 0; }
    #endif
    """
    bint gradops_supports_v3()
    bint gradops_supports_v4()
    bint gradops_supports_bf16()
    bint gradops_supports_tiles()
    const char *__VERSION__
    const int _OPENMP

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(PyTypeObject *subtype, cnp.dtype descr, int nd, const cnp.npy_intp *dims, const cnp.npy_intp *strides, void *data, int flags, void *obj)

cdef extern from "omp.h" nogil:
    int omp_get_max_threads()

cdef extern from "<stdlib.h>":
    int posix_memalign(void **out, size_t alignment, size_t size)

cdef extern from "kernels.h":
    void use_huge_pages(void *memory, size_t size)
    bint has_slow_dots()

cdef extern from "Python.h":
    int PyTraceMalloc_Track(unsigned int domain, uintptr_t pointer, size_t size)
    int PyTraceMalloc_Untrack(unsigned int domain, uintptr_t pointer)


cdef uintptr_t last_place = 0                           # of an array, in a page

kept_from = KEPT                                        # for those who would rather allocate less elsewhere

# Arrays of KEPT bytes may be mapped anew each time, and the system clears every page of them, which takes longer than many a gradient (38 MB: 3 ms,
# a depthwise gradient that fills them 1.5 ms). So blocks of dead arrays are kept for the next ones, the newest first in the list; under the GIL.
cdef struct Block:
    void *memory
    size_t size

cdef Block[SLOTS] kept
cdef int kept_count = 0
cdef size_t kept_bytes = 0


cdef Block forget(int at) noexcept:
    """Takes a block out of the list."""
    global kept_count, kept_bytes
    cdef Block block = kept[at]
    kept_count -= 1
    kept_bytes -= block.size
    for i in range(at, kept_count):
        kept[i] = kept[i + 1]
    return block


cdef void keep(Block block) noexcept:
    """Puts a block into the list, and gives the oldest ones back to the system that no longer fit."""
    global kept_count, kept_bytes
    if block.size > MOST_KEPT:
        free(block.memory)
        return
    while kept_count == SLOTS or kept_bytes + block.size > MOST_KEPT:
        free(forget(kept_count - 1).memory)
    for i in range(kept_count, 0, -1):
        kept[i] = kept[i - 1]
    kept[0] = block
    kept_count += 1
    kept_bytes += block.size


cdef Block new_block(size_t size) noexcept:
    """A kept block that is at most a quarter too large, else a new one in huge pages; of no memory if there is none."""
    cdef Block block
    for i in range(kept_count):
        if size <= kept[i].size <= size + size // 4:
            return forget(i)
    block.size = size
    while posix_memalign(&block.memory, HUGE_PAGE, size):
        if kept_count == 0:
            block.memory = NULL
            return block
        free(forget(kept_count - 1).memory)
    use_huge_pages(block.memory, size)
    return block


cdef void release(object capsule) noexcept:
    """An array has died."""
    cdef Block *block = <Block *> PyCapsule_GetPointer(capsule, NULL)
    PyTraceMalloc_Untrack(NUMPY_DOMAIN, <uintptr_t> block.memory)
    keep(block[0])
    PyMem_RawFree(block)


cdef object owner_of(size_t size):
    """Owns a new block; MemoryError if there is none."""
    cdef Block *block = <Block *> PyMem_RawMalloc(sizeof(Block))
    if block == NULL:
        raise MemoryError
    block[0] = new_block(size)
    if block.memory == NULL:
        PyMem_RawFree(block)
        raise MemoryError(f"no memory for an array of {size} bytes")
    PyTraceMalloc_Track(NUMPY_DOMAIN, <uintptr_t> block.memory, size)
    return PyCapsule_New(block, NULL, release)


def supported_levels():
    """The ISA levels that this CPU and its operating system run, worst first. Where dot products are slow, 1x1 layers of bfloat16 take 1.25 to 1.5 times as long as
    widened to float32, of 3x3 taps, which Winograd's algorithm then multiplies, 1.7 to 2.7 times (Emerald Rapids without tiles)."""
    levels = ["generic"]
    if gradops_supports_v3():
        levels.append("x86_64_v3")
    if gradops_supports_v4():
        levels.append("x86_64_v4")
    if gradops_supports_bf16():
        levels.insert(len(levels) - has_slow_dots(), "x86_64_v4_bf16")
    if gradops_supports_tiles():
        levels.append("x86_64_v4_amx")
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


def empty(tuple shape not None, cnp.dtype dtype not None, int64_t alignment, int64_t most, cnp.ndarray beside=None):
    """An uninitialised array at a multiple of `alignment` bytes, in a page apart from the array that is read beside it, or from the last one; None if it would be
    empty or have more than `most` bytes or MOST_DIMENSIONS."""
    cdef cnp.npy_intp dims[MOST_DIMENSIONS]
    cdef cnp.npy_intp size = dtype.itemsize
    cdef int i, count = <int> len(shape)
    cdef cnp.ndarray array
    cdef object memory
    cdef char *data
    global last_place
    if count > MOST_DIMENSIONS:
        return None
    for i in range(count):
        dims[i] = shape[i]
        if dims[i] == 0 or size > most // dims[i]:
            return None
        size *= dims[i]
    size += alignment
    if size >= PLACED:
        size += PAGE
        last_place = APART + (last_place if beside is None else <uintptr_t> cnp.PyArray_DATA(beside))
    if size >= KEPT:
        memory = owner_of(size)
        data = <char *> (<Block *> PyCapsule_GetPointer(memory, NULL)).memory
    else:
        memory = cnp.PyArray_EMPTY(1, &size, cnp.NPY_UINT8, 0)
        data = <char *> cnp.PyArray_DATA(memory)
    if size >= PLACED:
        data += (last_place - <uintptr_t> data) % PAGE
    data += (alignment - <uintptr_t> data % alignment) % alignment
    Py_INCREF(dtype)
    array = PyArray_NewFromDescr(<PyTypeObject *> cnp.ndarray, dtype, count, dims, NULL, data, cnp.NPY_ARRAY_CARRAY, NULL)
    cnp.set_array_base(array, memory)
    return array


def readable(cnp.ndarray array not None):
    """Whether an array is aligned, C-contiguous and in this machine's byte order."""
    return cnp.PyArray_ISCARRAY_RO(array)
