# cython: language_level=3, cdivision=True
"""Blocks of a kernel's work, shared among threads."""
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
from _problem cimport part

# Does one block; `scratch` is the thread's own.
ctypedef void (*block_t)(const void *work, int64_t index, void *scratch) noexcept nogil

cdef enum Order:
    IN_ORDER                                            # each thread does as many, one after the other, for neighbours read the same; then it helps the others
    FIRST_FREE                                          # the thread that is free first does the next one


cdef extern from "kernels.h" nogil:
    enum: SHARES                                        # at most
    ctypedef struct Share:                              # of the blocks, those that are left
        int64_t next, end
    int64_t take_block(Share *share)                    # the next one, or any number from `end` on


cdef inline void do_shares(block_t block, const void *work, Share *shares, int count, int own, void *scratch) noexcept nogil:
    """All blocks of a thread's own share, then what is left of the others."""
    cdef int64_t i
    cdef int _k
    for _k in range(count):
        i = take_block(shares + own)
        while i < shares[own].end:
            block(work, i, scratch)
            i = take_block(shares + own)
        own = own + 1 if own + 1 < count else 0


cdef inline void do_blocks(block_t block, const void *work, int64_t count, int threads, Order order, void *scratch, int64_t size) noexcept nogil:
    """block(work, i, scratch) for i < count, in parallel; each thread has `size` bytes of scratch. One thread needs no team."""
    cdef int64_t i
    cdef int t, most = threads if threads < SHARES else SHARES
    cdef char *slab = <char *> scratch
    cdef Share[SHARES] shares
    if threads == 1:
        for i in range(count):
            block(work, i, slab)
    elif order == IN_ORDER:
        for t in range(most):
            shares[t].next, shares[t].end = part(count, t, most), part(count, t + 1, most)
        for t in prange(threads, num_threads=threads, schedule="static"):
            do_shares(block, work, shares, most, t % most, slab + threadid() * size)
    else:
        for i in prange(count, num_threads=threads, schedule="dynamic"):
            block(work, i, slab + threadid() * size)
