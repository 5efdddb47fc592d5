# cython: language_level=3, cdivision=True
"""Adding the partial sums of a reduction that was split into spans, always in the same order."""
from libc.stdint cimport int64_t
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
