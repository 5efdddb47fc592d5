"""Part of `planes_gather`: input gradients of 3x3 taps with stride 2. Rows and columns of dst fall into two lanes each, of one and of two taps, and all four phases read the same
two rows and columns of src: each row is loaded once for all of them, and its sums never wait for the next one.
"""
from libc.stdint cimport int64_t
from _planes cimport first_cell, is_apart, row_of
from _problem cimport Lane, larger, row_lanes, col_lanes
from _storage cimport real, vec, BFLOAT16, FLOAT16, MR, REAL_STORAGE, VL, WIDE, item_size, keep, load, load_stored, load_stored_twins, prefetch_soon, spread_once, spread_twins


cdef bint are_phases(const Lane *lanes, int64_t count) noexcept nogil:
    """Whether there are two lanes, of one and of two neighbouring taps, in turns, of which one reads what the other does."""
    cdef const Lane *one = lanes if count == 2 and lanes[0].taps == 1 else lanes + 1
    cdef const Lane *two = lanes if count == 2 and lanes[0].taps == 2 else lanes + 1
    if count != 2 or one.taps != 1 or two.taps != 2 or two.tap_step != 1 or one.z_step != 1 or two.z_step != 1:
        return False
    return one.out_step == two.out_step == 2 and one.out_start + two.out_start == 1 and one.src_start == two.src_start + (two.out_start == 0)


cdef bint has_phases(const Gather *w) noexcept nogil:
    """Whether all phases are computed at once, for which registers hold the taps. Lane by lane of rows, 14x14 to 112x112 pixels take 1.2 to 1.4 times as long, float64 0.95 to
    1.35, images of 257x257 1.0 to 1.35, but of float32 0.92 to 0.97 (Zen 4)."""
    cdef const Problem *g = w.g
    if MR <= 6 or is_apart(g) or w.together != 2 or not (w.storage == w.held or is_whole(w)):
        return False
    return are_phases(row_lanes(g), g.row_lanes) and are_phases(col_lanes(g), g.col_lanes)


cdef inline void load_row(int held, bint twins, const char *x, const char *other, const vec *mask, vec *row) noexcept nogil:
    """Two neighbouring columns of a row, or those of two planes."""
    cdef int64_t size = item_size(held)
    cdef int j
    for j in range(2):
        row[j] = keep(load_stored_twins(held, x + j * size, other + j * size) if twins else load_stored(held, x + j * size), mask[j])


cdef inline vec spread_tap(bint twins, const Tile *s, const real *tap) noexcept nogil:
    """A weight, or those of two planes."""
    return spread_twins(tap, tap + s.twin_weights) if twins else spread_once(tap)


cdef inline void phases_ukr(int held, bint twins, bint late_row, bint late_col, const Tile *one, const Tile *two) noexcept nogil:
    """planes_ukr for both lanes of rows, of one and of two taps. The one tap reads the later one of two rows if late_row, and of two columns if late_col, where those of two
    taps are the even ones.

    *Assumes:* held, twins, late_row and late_col are compile-time constants of the caller.
    """
    cdef const Columns *pair = &two.lanes[0 if late_col else 1]
    cdef const Columns *single = &two.lanes[1 if late_col else 0]
    cdef const Columns *pair_of_one = &one.lanes[0 if late_col else 1]
    cdef const Columns *single_of_one = &one.lanes[1 if late_col else 0]
    cdef vec[9] weight
    cdef vec[2] mask, near, row
    cdef vec sums, alone
    cdef const char *cells
    cdef const char *twin_cells
    cdef char *out_one
    cdef char *out_two
    cdef int64_t size = item_size(held), step = two.v.row, low = two.v.low, high = larger(two.v.high, one.v.high + late_row), twin_out = two.twin_out
    cdef int64_t rows_one = one.rows, rows_two = two.rows, row_one = one.out_row, row_two = two.out_row, ahead_one = one.out_ahead, ahead_two = two.out_ahead
    cdef int64_t pixels = two.pixels, cols = two.cols, x = pair.x, ahead = larger(one.ahead, two.ahead), vector = 0, cell, some, r
    cdef const char *zeros = two.v.zeros
    cdef const char *at
    cdef int i, j
    for i in range(2):
        for j in range(2):
            weight[2 * i + j] = spread_tap(twins, two, pair.weights + i * two.weight_row + j * pair.weight_step)
        weight[4 + i] = spread_tap(twins, two, single.weights + i * two.weight_row)
        weight[6 + i] = spread_tap(twins, one, pair_of_one.weights + i * pair_of_one.weight_step)
    weight[8] = spread_tap(twins, one, single_of_one.weights)
    while True:
        cell = first_cell(pixels, vector)
        some, out_one, out_two = cols - 2 * cell, one.out + 2 * cell * size, two.out + 2 * cell * size
        cells, twin_cells = two.v.cells + cell * size, two.v.cells + two.twin_src
        for j in range(2):
            mask[j] = load(pair.masks + (2 * vector + j) * VL)
        load_row(held, twins, row_of(cells, step, 0, low, high, zeros) + x, row_of(twin_cells, step, 0, low, high, zeros) + x, mask, near)
        for r in range(larger(rows_one, rows_two)):
            at = row_of(cells, step, r + 1, low, high, zeros) + x
            if not twins:
                prefetch_soon(at + ahead)
            load_row(held, twins, at, row_of(twin_cells, step, r + 1, low, high, zeros) + x, mask, row)
            sums = weight[0] * near[0] + weight[1] * near[1] + weight[2] * row[0] + weight[3] * row[1]
            alone = weight[4] * near[late_col] + weight[5] * row[late_col]
            if r < rows_two:
                store_row(held, twins, 2, some, ahead_two, twin_out, out_two, sums if late_col else alone, alone if late_col else sums)
            if late_row:
                near[0], near[1] = row[0], row[1]
            sums = weight[6] * near[0] + weight[7] * near[1]
            alone = weight[8] * near[late_col]
            if r < rows_one:
                store_row(held, twins, 2, some, ahead_one, twin_out, out_one, sums if late_col else alone, alone if late_col else sums)
            near[0], near[1] = row[0], row[1]
            out_one, out_two = out_one + row_one, out_two + row_two
        vector += 1
        if vector * VL >= pixels:
            break


cdef inline void phases(int held, bint twins, const Tile *s) noexcept nogil:
    """phases_ukr for two lanes of rows in any order."""
    cdef const Tile *one = s if s.tap_rows == 1 else s + 1
    cdef const Tile *two = s if s.tap_rows == 2 else s + 1
    cdef bint late_row = one.v.cells != two.v.cells, late_col = two.lanes[0].taps == 2
    if late_row and late_col: phases_ukr(held, twins, True, True, one, two)
    elif late_row: phases_ukr(held, twins, True, False, one, two)
    elif late_col: phases_ukr(held, twins, False, True, one, two)
    else: phases_ukr(held, twins, False, False, one, two)


cdef inline void held_phases(bint twins, const Tile *s) noexcept nogil:
    """phases for what planes are computed from."""
    if MR <= 6: return
    elif s.held == REAL_STORAGE: phases(REAL_STORAGE, twins, s)
    elif WIDE > 1 and s.held == BFLOAT16: phases(BFLOAT16, twins, s)
    elif WIDE > 1 and s.held == FLOAT16: phases(FLOAT16, twins, s)


cdef void walk_phases(const Tile *s) noexcept nogil:
    held_phases(False, s)


cdef void walk_twin_phases(const Tile *s) noexcept nogil:
    held_phases(True, s)
