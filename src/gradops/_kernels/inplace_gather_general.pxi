"""Part of `inplace_gather`: tiles for any number of taps in a row and any step from pixel to pixel, where no others are made for them. Each pixel loads what its taps
need, which is one number for one product, rather than each column once for all pixels.
"""
from libc.stdint cimport int64_t
from _inplace cimport PIXELS, Walk, begins_line, fetch_pixels, next_column, registers, row_ahead, taps_inside
from _problem cimport Lane, smaller
from _storage cimport real, vec, LINE, VL, load, load_wide, store_wide, store_wide_past, zero


cdef inline void add_taps(int held, int pixels, bint inside, const Walk *s, const Lane *col, const char *x, const real *weights, vec *acc) noexcept nogil:
    """acc[q] += sum_j x[q step + j] weights[j] for a row of taps, columns outside the image zero, unless all are `inside`.

    *Assumes:* held, pixels and inside are compile-time constants of the caller.
    """
    cdef vec[2] tap
    cdef vec[2] v
    cdef const char *at
    cdef int64_t j, c, distance = col.z_step * s.src_x
    cdef int h, n = registers(held), q
    for j in range(col.taps):
        at, c = x + j * s.src_x, j
        for h in range(n):
            tap[h] = load(weights + j * s.filter_col + h * VL)
        for q in range(pixels):
            load_wide(held, at if inside or s.low <= c < s.high else s.zeros, v)
            at, c = next_column(at, distance), c + col.z_step
            for h in range(n):
                acc[q * n + h] += v[h] * tap[h]


cdef inline void fetch_steps(const Walk *s, const Lane *col, const char *src, const char *dst, int64_t y, int pixels) noexcept nogil:
    """Fetches a vector of what the like of a row that reads from row y on will need."""
    cdef int64_t i
    cdef int q, columns = <int> smaller(col.z_step, col.taps)
    cdef const char *at
    if not s.past:
        fetch_pixels(dst + s.dst_ahead, s.dst_x, pixels)
    for i in range(s.fresh):
        at = row_ahead(s, src, y, i)
        for q in range(pixels):
            fetch_pixels(at + q * col.z_step * s.src_x, s.src_x, columns)


cdef inline void general_ukr(int held, int pixels, const Walk *s, const Lane *col, const char *src, const real *filter, char *dst) noexcept nogil:
    """walk_ukr for any taps and step, those of the lane of columns.

    *Assumes:* held and pixels are compile-time constants of the caller.
    """
    cdef vec[2 * PIXELS] acc
    cdef const char *x
    cdef const real *weights
    cdef char *at
    cdef int64_t y, begin, end, _r, _v, i
    cdef bint fetch, inside = s.low == 0 and (pixels - 1) * col.z_step + col.taps <= s.high
    cdef int n = registers(held), q
    for _v in range(s.vectors):
        fetch = s.fetch and begins_line(s, dst)
        at, y = dst, s.y
        for _r in range(s.rows):
            for q in range(pixels * n):
                acc[q] = zero()
            if fetch:
                fetch_steps(s, col, src, at, y, pixels)
            taps_inside(s, y, &begin, &end)
            for i in range(begin, end):
                x, weights = src + (y + i * s.unit) * s.src_y, filter + i * s.filter_row
                if inside:
                    add_taps(held, pixels, True, s, col, x, weights, acc)
                else:
                    add_taps(held, pixels, False, s, col, x, weights, acc)
            if VL * sizeof(real) == LINE and s.past:
                for q in range(pixels):
                    store_wide_past(held, at + q * s.dst_x, acc + q * n)
            else:
                for q in range(pixels):
                    store_wide(held, at + q * s.dst_x, acc + q * n)
            at += s.dst_y
            y += s.step
        src, dst, filter = src + s.vector, dst + s.vector, filter + s.panel


cdef inline void walk_general(int held, const Walk *s, const Lane *col, int64_t pixels, const char *src, const real *filter, char *dst) noexcept nogil:
    """general_ukr for the pixels of `tile_pixels`."""
    if pixels == 8: general_ukr(held, 8, s, col, src, filter, dst)
    elif pixels == 7: general_ukr(held, 7, s, col, src, filter, dst)
    elif pixels == 4: general_ukr(held, 4, s, col, src, filter, dst)
    else: general_ukr(held, 1, s, col, src, filter, dst)
