"""Part of `planes_gather`: taps that are apart, since few rows have dilated ones in common, and steps that are wide. Row by row of results reads the rows of src that lie
inside; of wide steps, as many vectors of neighbours are loaded as a step, and columns are picked from them.
"""
from libc.stdint cimport int64_t
from _planes cimport SQUARE, Reader, load_columns
from _problem cimport Problem, smaller
from _storage cimport real, vec, BFLOAT16, FLOAT16, MOST_STEP, REAL_STORAGE, VL, WIDE, item_size, keep, load, load_stored, multiply_add, prefetch_soon, spread_once, unknown, zero


cdef inline vec add_by_more(int by, const char *x, const Columns *col, const real *mask, const real *weights, vec sum) noexcept nogil:
    """sum + sum_j x[q by + j] weights[j]: as many neighbours as a step are picked from the same vectors."""
    cdef vec[MOST_STEP] column
    cdef int64_t tap = 0, taps = col.taps, weight_step = col.weight_step
    cdef int k
    while tap < taps:
        load_columns(REAL_STORAGE, False, by, by, 0, x + tap * <int64_t> sizeof(real), x, column)
        for k in range(by):
            if tap + k < taps:
                sum = multiply_add(weights[(tap + k) * weight_step], keep(column[k], load(mask + (tap + k) * VL)), sum)
        tap += by
    return sum


cdef inline void walk_apart(int held, int lanes, int taps, int one, int by, const Tile *s, int64_t cell, const Columns *col, const vec *mask, const real *const *masks, bint holds, const vec *held_weights, const real *weights) noexcept nogil:
    """planes_ukr for the vector of pixels from `cell` on, where taps are apart or steps wide: row by row, each of which reads the rows of src that lie inside."""
    cdef vec[MOST_STEP] acc
    cdef vec v
    cdef const char *x
    cdef const char *at
    cdef int64_t size = item_size(held), some = s.cols - lanes * cell, ahead = s.ahead, out_ahead = s.out_ahead, out_row = s.out_row, all_rows = s.rows
    cdef int64_t low = s.v.low, inside = s.v.high - low, src_row = s.v.row, y = -low, z_step = s.z_step, tap_step = s.tap_step, tap_rows = s.tap_rows, weight_row = s.weight_row, new_rows = smaller(z_step, tap_rows), r, tap, step
    cdef const char *cells = s.v.cells + by * cell * size + low * src_row
    cdef char *out = s.out + lanes * cell * size
    cdef bint neighbours = col[0].unit == size
    cdef int i, j, lane
    for r in range(all_rows):
        for lane in range(lanes):
            acc[lane] = zero()
        for step in range(new_rows):
            for lane in range(by):
                prefetch_soon(cells + (r * z_step + step) * src_row + ahead + lane * VL * size)
        for i in range(taps if taps > 0 else tap_rows):
            if not 0 <= y + i * tap_step < inside:
                continue
            x = <const char *> unknown(<const real *> (cells + (y + i * tap_step) * src_row))
            for j in range(one):
                v = keep(load_stored(held, x + col[0].x + j * col[0].unit), mask[j])
                acc[0] += v * held_weights[j * taps + i] if holds else v * spread_once(weights + j * taps + i)
            if by > 2 and neighbours:
                acc[0] = add_by_more(by, x + col[0].x, col, masks[0], col[0].weights + i * weight_row, acc[0])
                continue
            for lane in range(0 if one else lanes):
                for tap in range(col[lane].taps):
                    at = x + col[lane].x + tap * col[lane].unit
                    load_columns(held, False, 1, by, 0, at, at + VL * size, &v)
                    acc[lane] = multiply_add(col[lane].weights[i * weight_row + tap * col[lane].weight_step], keep(v, load(masks[lane] + tap * VL)), acc[lane])
        if lanes > 2:
            store_turns(lanes, some, out_ahead, out, acc)
        else:
            store_row(held, False, lanes, some, out_ahead, 0, out, acc[0], acc[lanes - 1])
        y, out = y + z_step, out + out_row


cdef inline void planes_apart(int held, int lanes, int by, const Tile *s) noexcept nogil:
    """planes_ukr for taps that are apart or steps that are wide; the number of taps of square filters is known."""
    if lanes == by == 1 and s.tap_rows == SQUARE and has_taps(s, 1, SQUARE, 0): planes_ukr(held, False, 1, SQUARE, SQUARE, 0, 0, 1, 1, s)
    else: planes_ukr(held, False, lanes, 0, 0, 0, 0, by, 1, s)


cdef inline void half_apart(int lanes, const Tile *s) noexcept nogil:
    """planes_apart for numbers of 16 bits."""
    if WIDE > 1 and s.held == BFLOAT16: planes_apart(BFLOAT16, lanes, 1, s)
    elif WIDE > 1: planes_apart(FLOAT16, lanes, 1, s)


cdef void walk_apart_ones(const Tile *s) noexcept nogil:
    planes_apart(REAL_STORAGE, 1, 1, s)


cdef void walk_half_apart_ones(const Tile *s) noexcept nogil:
    half_apart(1, s)


cdef void walk_apart_lanes(const Tile *s) noexcept nogil:
    planes_apart(REAL_STORAGE, 2, 1, s)


cdef void walk_half_apart_lanes(const Tile *s) noexcept nogil:
    half_apart(2, s)


cdef void walk_apart_by_two(const Tile *s) noexcept nogil:
    planes_apart(REAL_STORAGE, 1, 2, s)


cdef void walk_apart_by_three(const Tile *s) noexcept nogil:
    planes_apart(REAL_STORAGE, 1, 3, s)


cdef void walk_apart_by_four(const Tile *s) noexcept nogil:
    planes_apart(REAL_STORAGE, 1, 4, s)


cdef void walk_three_lanes(const Tile *s) noexcept nogil:
    planes_apart(REAL_STORAGE, 3, 1, s)


cdef void walk_four_lanes(const Tile *s) noexcept nogil:
    planes_apart(REAL_STORAGE, 4, 1, s)


cdef walk_t apart_walker(const Problem *g, const Reader *r, bint halves) noexcept nogil:
    """walker for taps that are apart or steps that are wide."""
    if g.col_lanes > 2:
        return walk_three_lanes if g.col_lanes == 3 else walk_four_lanes
    if g.col_lanes == 2:
        return walk_half_apart_lanes if halves else walk_apart_lanes
    if r.col.z_step > 2:
        return walk_apart_by_three if r.col.z_step == 3 else walk_apart_by_four
    if r.col.z_step == 2:
        return walk_apart_by_two
    return walk_half_apart_ones if halves else walk_apart_ones
