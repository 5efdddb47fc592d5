# cython: language_level=3
"""Blocks of a kernel's work, shared among threads."""
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t

# Does one block; `scratch` is the thread's own.
ctypedef void (*block_t)(const void *work, int64_t index, void *scratch) noexcept nogil

cdef enum Order:
    IN_ORDER                                            # each thread does as many, one after the other: they take the same time, and neighbours read the same
    FIRST_FREE                                          # the thread that is free first does the next one


cdef inline void do_blocks(block_t block, const void *work, int64_t count, int threads, Order order, void *scratch, int64_t size) noexcept nogil:
    """block(work, i, scratch) for i < count, in parallel; each thread has `size` bytes of scratch. One thread needs no team."""
    cdef int64_t i
    cdef char *slab = <char *> scratch
    if threads == 1:
        for i in range(count):
            block(work, i, slab)
    elif order == IN_ORDER:
        for i in prange(count, num_threads=threads, schedule="static"):
            block(work, i, slab + threadid() * size)
    else:
        for i in prange(count, num_threads=threads, schedule="dynamic"):
            block(work, i, slab + threadid() * size)
