# cython: language_level=3, cdivision=True
"""Adding the partial sums of a reduction that was split into spans: always in the same order, wave by wave, so that few are kept at a time."""
from cython.parallel cimport prange
from libc.stdint cimport int64_t
from _problem cimport divide_up, larger, smaller
from _storage cimport real, all_finite, item_size, narrow

cdef enum:
    ADDED = 4096                                        # elements that one thread adds at a time
    PARTIALS = 1 << 20                                  # bytes of the partial sums for each thread, at most, where two of them are not larger


cdef struct Wave:                                       # spans that are summed side by side, before all of them are added to the total
    int64_t spans, first, count                         # of `spans`, those from `first` on
    int64_t slots                                       # how many partial sums there is memory for; the first one holds the total


cdef inline Wave first_wave(int64_t spans, int64_t size, int threads) noexcept nogil:
    """The spans that come first of a reduction to `size` elements: as many as there may be memory for, the same number in all waves."""
    cdef Wave w
    cdef int64_t most = larger(threads * (PARTIALS // (size * <int64_t> sizeof(real))), 2)
    w.spans, w.first = spans, 0
    w.count = w.slots = spans
    if spans > most:
        w.count = divide_up(spans, divide_up(spans, most - 1))
        w.slots = w.count + 1
    return w


cdef inline bint next_wave(Wave *w) noexcept nogil:
    """Moves on. Returns whether any spans are left."""
    w.first += w.count
    w.count = smaller(w.count, w.spans - w.first)
    return w.count > 0


cdef inline int64_t place(const Wave *w, int64_t span) noexcept nogil:
    """Which partial sum a span of the wave has."""
    return span - w.first + (w.first > 0)


cdef inline bint add_partials(real *partials, int64_t count, int64_t size, int64_t first, int64_t elements, int storage, char *out) noexcept nogil:
    """out[i] = sum_j partials[j size + i] for j < count and the elements from first on; uses the first partial's memory for the sum.

    Returns whether the sums are finite. Without `out` they stay there alone.
    """
    cdef int64_t j, i
    cdef real *total = partials + first
    for j in range(1, count):
        for i in range(elements):
            total[i] += total[j * size + i]
    if out == NULL:
        return True
    narrow(storage, total, elements, out + first * item_size(storage))
    return all_finite(total, elements)


cdef inline void add_wave(real *partials, const Wave *w, int64_t size, int storage, char *out, int threads, bint *finite) noexcept nogil:
    """add_partials for all of `size`, ADDED at a time in parallel; the last wave writes the result, and clears `finite` where a sum is not."""
    cdef int64_t i, count = w.count + (w.first > 0)
    cdef char *result = out if w.first + w.count == w.spans else NULL
    if threads == 1:
        for i in range(divide_up(size, ADDED)):
            if not add_partials(partials, count, size, i * ADDED, smaller(ADDED, size - i * ADDED), storage, result):
                finite[0] = False
        return
    for i in prange(divide_up(size, ADDED), num_threads=threads, schedule="static"):
        if not add_partials(partials, count, size, i * ADDED, smaller(ADDED, size - i * ADDED), storage, result):
            finite[0] = False
