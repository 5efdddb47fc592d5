# cython: language_level=3
"""Scratch: one aligned slab for a call, cut by offset."""
from libc.stdint cimport int64_t
from libc.stdlib cimport free
from _storage cimport real

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **out, size_t alignment, size_t size)

cdef extern from "kernels.h" nogil:
    void use_huge_pages(void *memory, size_t size)

cdef enum:
    HUGE_PAGE = 1 << 21                                 # bytes
    LARGE = 1 << 22                                     # bytes of a slab from which on it gets huge pages, 512 times fewer to fault in


cdef inline real *allocate(int64_t count) noexcept nogil:
    """`count` reals at a multiple of 64 bytes, or NULL; give it back with free."""
    cdef void *slab = NULL
    cdef size_t size = count * sizeof(real) + 64
    if posix_memalign(&slab, HUGE_PAGE if size >= LARGE else 64, size):
        return NULL
    if size >= LARGE:
        use_huge_pages(slab, size)
    return <real *> slab


cdef inline int64_t padded(int64_t count) noexcept nogil:
    """count rounded up, so that what follows is 64-byte aligned."""
    return (count + 15) // 16 * 16
