# cython: language_level=3, cdivision=True
"""Blocks of a kernel's work, shared among threads."""
from cython.parallel cimport parallel, prange, threadid
from libc.stdint cimport int64_t
from _problem cimport part
from _scratch cimport own_scratch

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
    void wait_for_team()                                # until all threads that do blocks are here


cdef struct Stage:                                      # blocks that do not wait for each other
    block_t block
    const void *work
    int64_t count
    Order order
    char *scratch                                       # of all threads, `size` bytes apart (bytes_apart)
    int64_t size


cdef inline Stage stage(block_t block, const void *work, int64_t count, Order order, void *scratch, int64_t size) noexcept nogil:
    cdef Stage s
    s.block, s.work, s.count, s.order, s.scratch, s.size = block, work, count, order, <char *> scratch, size
    return s


cdef inline int divide(const Stage *s, Share *shares, int threads) noexcept nogil:
    """Into how many shares a stage falls: one for each thread or, in no order, one for all."""
    cdef int count = 1, t
    if s.order == IN_ORDER:
        count = threads if threads < SHARES else SHARES
    for t in range(count):
        shares[t].next, shares[t].end = part(s.count, t, count), part(s.count, t + 1, count)
    return count


cdef inline void do_shares(const Stage *s, Share *shares, int count, int own, void *scratch) noexcept nogil:
    """All blocks of a thread's own share, then what is left of the others."""
    cdef int64_t i
    cdef int _k
    for _k in range(count):
        i = take_block(shares + own)
        while i < shares[own].end:
            s.block(s.work, i, scratch)
            i = take_block(shares + own)
        own = own + 1 if own + 1 < count else 0


cdef inline void do_stages(const Stage *stages, int count, int threads) noexcept nogil:
    """One or two stages, each after all of the one before, in parallel, by one team: to call another takes longer than to wait for this one (layers of 20 to 40 us
    0.98 to 1.0 of the time with two threads). One thread needs none."""
    cdef int64_t i
    cdef int t, k
    cdef int[2] parts
    cdef Share[2 * SHARES] shares
    if threads == 1:
        for k in range(count):
            for i in range(stages[k].count):
                stages[k].block(stages[k].work, i, own_scratch(stages[k].scratch, stages[k].size, 0, threads))
        return
    for k in range(count):
        parts[k] = divide(stages + k, shares + k * SHARES, threads)
    with parallel(num_threads=threads):
        for k in range(count):
            for t in prange(threads, schedule="static"):
                do_shares(stages + k, shares + k * SHARES, parts[k], t % parts[k], own_scratch(stages[k].scratch, stages[k].size, threadid(), threads))
            if k + 1 < count:
                wait_for_team()


cdef inline void do_blocks(block_t block, const void *work, int64_t count, int threads, Order order, void *scratch, int64_t size) noexcept nogil:
    """A single stage."""
    cdef Stage one = stage(block, work, count, order, scratch, size)
    do_stages(&one, 1, threads)


cdef inline void do_both(Stage first, Stage second, int threads) noexcept nogil:
    """The second stage when all of the first is done; either may be empty."""
    cdef Stage[2] both
    both[0], both[1] = first, second
    do_stages(both + (first.count == 0), 1 if first.count == 0 or second.count == 0 else 2, threads)
