# cython: language_level=3
"""Scratch: one aligned slab for a call, cut by offset."""
from libc.stdint cimport int64_t
from libc.stdlib cimport free
from _storage cimport real

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **out, size_t alignment, size_t size)


cdef inline real *allocate(int64_t count) noexcept nogil:
    """`count` reals at a multiple of 64 bytes, or NULL; give it back with free."""
    cdef void *slab = NULL
    if posix_memalign(&slab, 64, count * sizeof(real) + 64):
        return NULL
    return <real *> slab


cdef inline int64_t padded(int64_t count) noexcept nogil:
    """count rounded up, so that what follows is 64-byte aligned."""
    return (count + 15) // 16 * 16
