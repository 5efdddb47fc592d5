# cython: language_level=3, cdivision=True
"""A total that is split into spans: the partial sums are always added in the same order, wave by wave, so that few are kept at a time."""
from libc.stdint cimport int64_t
from _blocks cimport Order, IN_ORDER, block_t, do_both, stage
from _problem cimport divide_up, larger, smaller
from _scratch cimport GAP, allocate, apart, padded, release
from _storage cimport real, REAL_STORAGE, all_finite, item_size, narrow, narrow_block, rows_finite

cdef enum:
    LEAST_ADDED = 256                                   # elements that a thread adds at a time, at least, and
    MOST_ADDED = 4096                                   # at most; all threads add, since what others have just written takes long to arrive
    PARTIALS = 1 << 20                                  # bytes of the partial sums for each thread, at most, where two of them are not larger,
    ROOM = 1 << 21                                      # and with its scratch and the gap before that


cdef struct Wave:                                       # spans that are summed side by side, before all of them are added to the total
    int64_t first, count
    int64_t slots                                       # how many partial sums there is memory for; the first one holds the total


cdef struct Total:
    int storage
    char *out
    bint *finite                                        # cleared if the total holds an infinity or NaN
    int64_t size                                        # elements
    int64_t added                                       # of them, how many a thread adds at a time
    int64_t spans                                       # chosen by the problem alone, never by the number of threads
    int64_t room                                        # bytes of the partial sums for each thread
    Wave wave                                           # the spans at hand
    real *partials                                      # of each span of the wave, as `out` lies, where there are several spans


cdef inline void aim_total(Total *t, int storage, void *out, bint *finite) noexcept nogil:
    """Says where a total goes. The kernel chooses the size and the spans."""
    t.storage, t.out, t.finite, t.room = storage, <char *> out, finite, PARTIALS


cdef inline void leave_room(Total *t, int64_t scratch) noexcept nogil:
    """For the scratch of a thread, so many bytes."""
    t.room = larger(smaller(ROOM - GAP - scratch, PARTIALS), 0)


cdef inline Wave first_wave(const Total *t, int threads) noexcept nogil:
    """The spans that come first: as many as there may be memory for, about the same number in all waves, as many for each thread if possible."""
    cdef Wave w
    cdef int64_t most = larger(<int64_t> threads * t.room // (t.size * <int64_t> sizeof(real)), 2)
    w.first, w.count, w.slots = 0, t.spans, t.spans
    if t.spans > most:
        w.count = divide_up(t.spans, divide_up(t.spans, most - 1))
        if threads < most:
            w.count = smaller(divide_up(w.count, threads), (most - 1) // threads) * threads
        w.slots = w.count + 1
    return w


cdef inline void check_block(const Total *t, const real *sums, int64_t ld, int64_t rows, int64_t columns) noexcept nogil:
    """Tells if a block of the only span holds an infinity or NaN."""
    if not rows_finite(sums, ld, rows, columns):
        t.finite[0] = False


cdef inline void store_block(const Total *t, int64_t span, const real *src, int64_t ld, int64_t rows, int64_t columns, int64_t at, int64_t row_step, int64_t column_step) noexcept nogil:
    """Writes a span's sums of a block, which begins `at` an element, to the result or, of several spans, to its partial sum."""
    if t.spans > 1:
        at += (span - t.wave.first + (t.wave.first > 0)) * t.size
        narrow_block(REAL_STORAGE, src, ld, rows, columns, <char *> (t.partials + at), row_step, column_step)
        return
    narrow_block(t.storage, src, ld, rows, columns, t.out + at * item_size(t.storage), row_step, column_step)
    check_block(t, src, ld, rows, columns)


cdef inline void add_part(const void *work, int64_t index, void *_) noexcept nogil:
    """Adds some elements of all spans of a wave to the first partial sum. The last wave then writes them to the result."""
    cdef const Total *t = <const Total *> work
    cdef int64_t first = index * t.added, elements = smaller(t.added, t.size - first), j, i
    cdef real *sums = t.partials + first
    for j in range(1, t.wave.count + (t.wave.first > 0)):
        for i in range(elements):
            sums[i] += sums[j * t.size + i]
    if t.wave.first + t.wave.count < t.spans:
        return
    narrow(t.storage, sums, elements, t.out + first * item_size(t.storage))
    if not all_finite(sums, elements):
        t.finite[0] = False


cdef inline int sum_spans(Total *t, block_t block, const void *work, int64_t blocks, int threads, Order order, int64_t scratch_size) noexcept nogil:
    """Allocates, and does all blocks of all spans, those of a span one after the other; a thread has scratch_size reals. Returns nonzero if memory ran out."""
    cdef int64_t partials
    t.wave, t.added = first_wave(t, threads), padded(larger(smaller(t.size // (2 * threads), MOST_ADDED), LEAST_ADDED))
    partials = padded(t.wave.slots * t.size) if t.spans > 1 else 0
    scratch_size = apart(scratch_size, threads)
    t.partials = allocate(partials + threads * scratch_size)
    if t.partials == NULL:
        return 1
    while t.wave.count > 0:
        do_both(stage(block, work, t.wave.count * blocks, order, t.partials + partials, scratch_size * sizeof(real)),
                stage(add_part, t, divide_up(t.size, t.added) if t.spans > 1 else 0, IN_ORDER, NULL, 0), threads)
        t.wave.first += t.wave.count
        t.wave.count = smaller(t.wave.count, t.spans - t.wave.first)
    release(t.partials)
    return 0
