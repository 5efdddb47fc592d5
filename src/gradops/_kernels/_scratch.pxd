# cython: language_level=3
"""Scratch: one aligned slab for a call, cut by offset."""
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free
from _storage cimport real

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **out, size_t alignment, size_t size)

cdef extern from "kernels.h" nogil:
    void use_huge_pages(void *memory, size_t size)

cdef extern from "Python.h" nogil:
    int PyTraceMalloc_Track(unsigned int domain, uintptr_t pointer, size_t size)
    int PyTraceMalloc_Untrack(unsigned int domain, uintptr_t pointer)

cdef enum:
    HUGE_PAGE = 1 << 21                                 # bytes
    DOMAIN = 0x67726164                                 # of tracemalloc, where scratch is told apart from Python's memory
    LARGE = 1 << 22                                     # bytes of a slab from which on it gets huge pages, 512 times fewer to fault in


cdef inline void *allocate_bytes(size_t size) noexcept nogil:
    """`size` bytes at a multiple of 64, or NULL, that tracemalloc sees if it is on; give them back with release."""
    cdef void *slab = NULL
    if posix_memalign(&slab, HUGE_PAGE if size >= LARGE else 64, size):
        return NULL
    if size >= LARGE:
        use_huge_pages(slab, size)
    PyTraceMalloc_Track(DOMAIN, <uintptr_t> slab, size)
    return slab


cdef inline real *allocate(int64_t count) noexcept nogil:
    """allocate_bytes for `count` reals."""
    return <real *> allocate_bytes(count * sizeof(real) + 64)


cdef inline void release(void *slab) noexcept nogil:
    PyTraceMalloc_Untrack(DOMAIN, <uintptr_t> slab)
    free(slab)


cdef inline int64_t padded(int64_t count) noexcept nogil:
    """count rounded up, so that what follows is 64-byte aligned."""
    return (count + 15) // 16 * 16
