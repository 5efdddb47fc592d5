# cython: language_level=3, cdivision=True
"""Register tiles of rows of taps whose windows overlap: a number that several of them read is loaded once and multiplied for all of them.

Tiles of one vector need as many loads as multiplications otherwise, which is what limits them where CPUs do two of each at once.
"""
from libc.stdint cimport int64_t
from _gemm cimport Operands, fetch_some, store_tile
from _problem cimport smaller
from _storage cimport real, vec, MR, NR, PAIR, VL, load, multiply_add, prefetch_soon, store, unknown, zero

cdef enum:
    LEAST_PIXELS = 8                                    # of a row that tiles gather: in shorter ones, what they save is not what limits
    ROW_TAPS = 3                                        # of a tile that sums,
    LEAST_CHANNELS = 3                                  # whose sums are enough for an addition to end before the next one to its sum,
    MOST_CHANNELS = 8                                   # and not more than there are registers


cdef inline void gather_ukr(int m, int taps, const Operands *p, const real *a, const real *b, real *c, const char *one) noexcept nogil:
    """c[i] (+)= sum_(tap, k) a[p.taps.at[tap] + i lda + k] b[tap, k] for i < m, in one register each, for rows of so many taps: pixel i + 1 reads with
    each of them what pixel i reads with the next one, or with the one before. With each row, `one` fetches taps times p.two lines.

    *Assumes:* m and taps are compile-time constants of the caller, p.taps has whole rows of taps, all of one depth.
    """
    cdef vec[14][2] acc
    cdef vec[3] w
    cdef real x
    cdef const real *at
    cdef const real *end
    cdef const real *half
    cdef int64_t lda = p.lda, size = p.taps.depth[0] * NR, tap = 0, first, last, left, next_tap
    cdef int upper = (m + taps) // 2, i, j, q           # rows that are read from one address: their distances stay in registers
    for i in range(m):
        acc[i][0] = zero()
    while True:
        first, last = p.taps.at[tap], p.taps.at[tap + taps - 1]
        one = fetch_some(one, p.one, taps * p.two)
        next_tap = size if first < last else -size      # b holds taps in their order; those that read first come first here
        left = 0 if first < last else (taps - 1) * size
        at = a + smaller(first, last)
        half = unknown(at + upper * lda)
        end, b = b + left + size, b + left
        while True:
            for j in range(taps):
                w[j] = load(b + j * next_tap)
            for q in range(m + taps - 1):
                x = at[q * lda] if q < upper else half[(q - upper) * lda]
                for j in range(taps):
                    i = q - j
                    if 0 <= i < m:
                        acc[i][0] = multiply_add(x, w[j], acc[i][0])
            at += 1
            half += 1
            b += NR
            if b == end:
                break
        b += (taps - 1) * size - left
        tap += taps
        if tap == p.taps.count:
            break
    store_tile(m, 1, p, acc, c)


cdef inline void gather_pixels(int taps, int m, const Operands *p, const real *a, const real *b, real *c, const char *one) noexcept nogil:
    if m == 14: gather_ukr(14, taps, p, a, b, c, one)
    elif m == 13: gather_ukr(13, taps, p, a, b, c, one)
    elif m == 12: gather_ukr(12, taps, p, a, b, c, one)
    elif m == 11: gather_ukr(11, taps, p, a, b, c, one)
    elif m == 10: gather_ukr(10, taps, p, a, b, c, one)
    elif m == 9: gather_ukr(9, taps, p, a, b, c, one)
    elif m == 8: gather_ukr(8, taps, p, a, b, c, one)
    elif m == 7: gather_ukr(7, taps, p, a, b, c, one)
    elif m == 6: gather_ukr(6, taps, p, a, b, c, one)
    elif m == 5: gather_ukr(5, taps, p, a, b, c, one)
    elif m == 4: gather_ukr(4, taps, p, a, b, c, one)
    elif m == 3: gather_ukr(3, taps, p, a, b, c, one)
    elif m == 2: gather_ukr(2, taps, p, a, b, c, one)
    elif m == 1: gather_ukr(1, taps, p, a, b, c, one)


cdef inline void gather_windows(int taps, int m, const Operands *p, const real *a, const real *b, real *c, const char *one) noexcept nogil:
    """gather_ukr for any m <= MR and 3 taps or, but of pairs, which gain nothing from it, 2."""
    if MR > 6 and taps == 3: gather_pixels(3, m, p, a, b, c, one)
    elif MR > 6 and PAIR == 1 and taps == 2: gather_pixels(2, m, p, a, b, c, one)


cdef struct Windows:                                    # rows of pixels, and what their taps read
    int64_t count
    const int64_t *at                                   # where each begins
    const int64_t *depth                                # pixels of each
    const int64_t *low                                  # its first step of pixels that reads inside the image, counted from its first pixel,
    const int64_t *high                                 # and the end of these
    int64_t pixel                                       # distance from a column to the next one,
    int64_t ldb                                         # and from a pixel of dy to the next one


cdef inline void sum_step(int channels, int step, bint beyond, const real *x, const real *second, const vec *d, vec *acc) noexcept nogil:
    """acc[tap, i] += x[column, i] d[j] for the columns of a step and the taps that read them, of the j-th pixel before; beyond the last one not of d[0]."""
    cdef int column, i, tap
    for column in range(step):
        for i in range(channels):
            for tap in range(step if beyond else 0, ROW_TAPS):
                if tap % step == column:
                    acc[tap * channels + i] = multiply_add(second[i] if column else x[i], d[tap // step], acc[tap * channels + i])


cdef inline void sum_ukr(int channels, int step, const Windows *w, const real *x, const real *dy, real *c, int64_t row, int64_t ldc, bint accumulate, const char *one, const char *two, int64_t next_one, int64_t next_two) noexcept nogil:
    """c[tap row + i ldc] (+)= sum_pixel x[pixel step + tap, i] dy[pixel] for a row of taps, i < channels and a vector of dy. Pixels beyond the ends of a row
    count as zeros. Fetches a line of two streams with each step.

    *Assumes:* channels and step are compile-time constants of the caller.
    """
    cdef vec[ROW_TAPS * MOST_CHANNELS] acc
    cdef vec[ROW_TAPS] d
    cdef const real *at
    cdef const real *second
    cdef const real *b
    cdef int64_t r, t, depth
    cdef int i, j, before = (ROW_TAPS - 1) // step
    for i in range(channels):
        for j in range(ROW_TAPS):
            acc[j * channels + i] = zero()
    for r in range(w.count):
        t, depth = w.low[r], w.depth[r]
        at, b = x + w.at[r] + t * step * w.pixel, dy + t * w.ldb
        second = unknown(at + w.pixel)                  # the second column of a step
        for j in range(1, before + 1):
            d[j] = load(b - j * w.ldb) if 0 <= t - j < depth else zero()
        while t < smaller(depth, w.high[r]):
            prefetch_soon(one)
            prefetch_soon(two)
            one, two = one + next_one, two + next_two
            d[0] = load(b)
            sum_step(channels, step, False, at, second, d, acc)
            for j in range(before, 0, -1):
                d[j] = d[j - 1]
            t, at, second, b = t + 1, at + step * w.pixel, second + step * w.pixel, b + w.ldb
        d[0] = zero()
        while t < w.high[r]:
            sum_step(channels, step, True, at, second, d, acc)
            for j in range(before, 0, -1):
                d[j] = d[j - 1]
            t, at, second = t + 1, at + step * w.pixel, second + step * w.pixel
        dy += depth * w.ldb
    for i in range(channels):
        for j in range(ROW_TAPS):
            at = c + j * row + i * ldc
            store(<real *> at, load(at) + acc[j * channels + i] if accumulate else acc[j * channels + i])


# sum_ukr for a step and LEAST_CHANNELS to MOST_CHANNELS: a function of its own, whose loops have all registers to themselves.
ctypedef void (*sum_t)(int channels, const Windows *w, const real *x, const real *dy, real *c, int64_t row, int64_t ldc, bint accumulate, const char *one, const char *two, int64_t next_one, int64_t next_two) noexcept nogil


cdef inline void sum_channels(int step, int channels, const Windows *w, const real *x, const real *dy, real *c, int64_t row, int64_t ldc, bint accumulate, const char *one, const char *two, int64_t next_one, int64_t next_two) noexcept nogil:
    """What a kernel's `sum_t` is."""
    if MR <= 6: return
    elif channels == 8: sum_ukr(8, step, w, x, dy, c, row, ldc, accumulate, one, two, next_one, next_two)
    elif channels == 7: sum_ukr(7, step, w, x, dy, c, row, ldc, accumulate, one, two, next_one, next_two)
    elif channels == 6: sum_ukr(6, step, w, x, dy, c, row, ldc, accumulate, one, two, next_one, next_two)
    elif channels == 5: sum_ukr(5, step, w, x, dy, c, row, ldc, accumulate, one, two, next_one, next_two)
    elif channels == 4: sum_ukr(4, step, w, x, dy, c, row, ldc, accumulate, one, two, next_one, next_two)
    elif channels == 3: sum_ukr(3, step, w, x, dy, c, row, ldc, accumulate, one, two, next_one, next_two)
