# cython: language_level=3, cdivision=True
"""Adding the partial sums of a reduction that was split into spans, always in the same order."""
from cython.parallel cimport prange
from libc.stdint cimport int64_t
from _problem cimport divide_up, smaller
from _storage cimport real, all_finite, item_size, narrow

cdef enum:
    ADDED = 4096                                        # elements that one thread adds at a time


cdef inline bint add_partials(real *partials, int64_t spans, int64_t size, int64_t first, int64_t count, int storage, char *out) noexcept nogil:
    """out[i] = sum_span partials[span size + i] for first <= i < first + count; uses the first span's memory for the sum.

    Returns whether the sums are finite.
    """
    cdef int64_t span, i
    cdef real *total = partials + first
    for span in range(1, spans):
        for i in range(count):
            total[i] += total[span * size + i]
    narrow(storage, total, count, out + first * item_size(storage))
    return all_finite(total, count)


cdef inline void add_all_partials(real *partials, int64_t spans, int64_t size, int storage, char *out, int threads, bint *finite) noexcept nogil:
    """add_partials for all of `size`, ADDED at a time in parallel; clears `finite` where a sum is not."""
    cdef int64_t i
    if threads == 1:
        for i in range(divide_up(size, ADDED)):
            if not add_partials(partials, spans, size, i * ADDED, smaller(ADDED, size - i * ADDED), storage, out):
                finite[0] = False
        return
    for i in prange(divide_up(size, ADDED), num_threads=threads, schedule="static"):
        if not add_partials(partials, spans, size, i * ADDED, smaller(ADDED, size - i * ADDED), storage, out):
            finite[0] = False
