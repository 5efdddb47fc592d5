"""Part of `planes_gather`: input gradients of 3x3 and 5x5 taps with stride 2. Rows and columns of dst fall into two lanes each, one of which has a tap more, and all four phases
read the same rows and columns of src: each row is loaded once for all of them.
"""
from libc.stdint cimport int64_t
from _planes cimport SQUARE, first_cell, row_of, walks_down
from _problem cimport Lane, larger, row_lanes, col_lanes
from _storage cimport real, vec, BFLOAT16, FLOAT16, MR, REAL_STORAGE, VL, WIDE, item_size, keep, load, load_stored, load_stored_twins, multiply_add, prefetch_soon, spread_once, spread_twins, unknown, zero

cdef enum:
    SIDE = 3                                            # rows and columns of src that phases read, at most


cdef bint are_phases(const Lane *lanes, int64_t count) noexcept nogil:
    """Whether there are two lanes in turns, of one and two neighbouring taps, or two and three, of which one reads what the other does."""
    cdef const Lane *few = lanes if count == 2 and lanes[0].taps < lanes[1].taps else lanes + 1
    cdef const Lane *more = lanes + 1 if few == lanes else lanes
    if count != 2 or few.taps == 0 or more.taps != few.taps + 1 or more.taps > SIDE or more.tap_step != 1 or few.z_step != 1 or more.z_step != 1:
        return False
    return few.out_step == more.out_step == 2 and few.out_start + more.out_start == 1 and few.src_start == more.src_start + (more.out_start == 0)


cdef bint has_phases(const Gather *w) noexcept nogil:
    """Whether all phases are computed at once. Lane by lane of rows, 3x3 taps of 14x14 to 112x112 pixels take 1.2 to 1.4 times as long, 5x5 taps 1.2, AVX2 1.1 to 1.3, float64
    0.95 to 1.35; images of 257x257 1.0 to 1.35, but of float32 0.92 to 0.97 (Zen 4)."""
    cdef const Problem *g = w.g
    if not walks_down(g) or w.together != 2 or g.filter_rows != g.filter_cols or not (w.storage == w.held or is_whole(w)):
        return False
    return are_phases(row_lanes(g), g.row_lanes) and are_phases(col_lanes(g), g.col_lanes)


cdef inline void load_row(int held, bint twins, int side, const char *x, const char *other, const vec *mask, vec *row) noexcept nogil:
    """Neighbouring columns of a row, or those of two planes."""
    cdef int64_t size = item_size(held)
    cdef int j
    for j in range(side):
        row[j] = keep(load_stored_twins(held, x + j * size, other + j * size) if twins else load_stored(held, x + j * size), mask[j])


cdef inline void take_taps(bint twins, bint holds, int rows, int cols, const Tile *s, const Columns *col, vec *held_weights, real *weights) noexcept nogil:
    """The weights of a phase, or those of two planes."""
    cdef const real *tap
    cdef int i, j
    for i in range(rows):
        for j in range(cols):
            tap = col.weights + i * s.weight_row + j * col.weight_step
            if twins:
                held_weights[i * cols + j] = spread_twins(tap, tap + s.twin_weights)
            elif holds:
                held_weights[i * cols + j] = spread_once(tap)
            else:
                weights[i * cols + j] = tap[0]


cdef inline vec phase(bint holds, int rows, int cols, int side, const vec *cells, const vec *held_weights, const real *weights) noexcept nogil:
    """sum_(i, j) cells[i][j] weights[i, j]."""
    cdef vec sums = zero()
    cdef int i, j
    for i in range(rows):
        for j in range(cols):
            if not holds:
                sums = multiply_add(weights[i * cols + j], cells[i * side + j], sums)
            elif i + j > 0:
                sums += held_weights[i * cols + j] * cells[i * side + j]
            else:
                sums = held_weights[0] * cells[0]
    return sums


cdef inline void phases_ukr(int held, bint twins, int side, bint late_row, bint late_col, const Tile *few, const Tile *more) noexcept nogil:
    """planes_ukr for both lanes of rows, of which one has `side` taps, and the other one fewer, of the later rows if late_row; and so have columns, of the later ones if
    late_col, where those of more taps are the even ones.

    *Assumes:* held, twins, side, late_row and late_col are compile-time constants of the caller. Of twins, registers hold the weights.
    """
    cdef int less = side - 1, wide = 0 if late_col else 1, slim = 1 - wide, i, j
    cdef bint holds = MR > 6 and side == 2
    cdef vec[SQUARE * SQUARE] held_weights
    cdef real[MOST_WEIGHTS] taken
    cdef const real *weights = NULL
    cdef vec[SIDE] mask
    cdef vec[SIDE * SIDE] cells
    cdef vec most, least
    cdef const char *x
    cdef const char *other
    cdef const char *at
    cdef char *out_few
    cdef char *out_more
    cdef int64_t size = item_size(held), step = more.v.row, low = more.v.low, high = larger(more.v.high, few.v.high + late_row), twin_out = more.twin_out
    cdef int64_t rows_few = few.rows, rows_more = more.rows, row_few = few.out_row, row_more = more.out_row, ahead_few = few.out_ahead, ahead_more = more.out_ahead
    cdef int64_t pixels = more.pixels, cols = more.cols, start = more.lanes[wide].x, ahead = larger(few.ahead, more.ahead), vector = 0, cell, some, r
    cdef const char *zeros = more.v.zeros
    cdef const real *masks = more.lanes[wide].masks
    take_taps(twins, holds, side, side, more, &more.lanes[wide], held_weights, taken)
    take_taps(twins, holds, side, less, more, &more.lanes[slim], held_weights + side * side, taken + side * side)
    take_taps(twins, holds, less, side, few, &few.lanes[wide], held_weights + side * (side + less), taken + side * (side + less))
    take_taps(twins, holds, less, less, few, &few.lanes[slim], held_weights + side * (side + 2 * less), taken + side * (side + 2 * less))
    if not holds:
        weights = unknown(taken)
    while True:
        cell = first_cell(pixels, vector)
        some, out_few, out_more = cols - 2 * cell, few.out + 2 * cell * size, more.out + 2 * cell * size
        x, other = more.v.cells + cell * size, more.v.cells + more.twin_src
        for j in range(side):
            mask[j] = load(masks + (side * vector + j) * VL)
        for i in range(less):
            load_row(held, twins, side, row_of(x, step, i, low, high, zeros) + start, row_of(other, step, i, low, high, zeros) + start, mask, cells + i * side)
        for r in range(larger(rows_few, rows_more)):
            at = row_of(x, step, r + less, low, high, zeros) + start
            if not twins:
                prefetch_soon(at + ahead)
            load_row(held, twins, side, at, row_of(other, step, r + less, low, high, zeros) + start, mask, cells + less * side)
            most = phase(holds, side, side, side, cells, held_weights, weights)
            least = phase(holds, side, less, side, cells + late_col, held_weights + side * side, weights + side * side)
            if r < rows_more:
                store_row(held, twins, 2, some, ahead_more, twin_out, out_more, most if late_col else least, least if late_col else most)
            most = phase(holds, less, side, side, cells + late_row * side, held_weights + side * (side + less), weights + side * (side + less))
            least = phase(holds, less, less, side, cells + late_row * side + late_col, held_weights + side * (side + 2 * less), weights + side * (side + 2 * less))
            if r < rows_few:
                store_row(held, twins, 2, some, ahead_few, twin_out, out_few, most if late_col else least, least if late_col else most)
            for i in range(less * side):
                cells[i] = cells[i + side]
            out_few, out_more = out_few + row_few, out_more + row_more
        vector += 1
        if vector * VL >= pixels:
            break


cdef inline void phases(int held, bint twins, int side, const Tile *s) noexcept nogil:
    """phases_ukr for two lanes of rows in any order."""
    cdef const Tile *few = s if s.tap_rows < side else s + 1
    cdef const Tile *more = s + 1 if few == s else s
    cdef bint late_row = few.v.cells != more.v.cells, late_col = more.lanes[0].taps == side
    if late_row and late_col: phases_ukr(held, twins, side, True, True, few, more)
    elif late_row: phases_ukr(held, twins, side, True, False, few, more)
    elif late_col: phases_ukr(held, twins, side, False, True, few, more)
    else: phases_ukr(held, twins, side, False, False, few, more)


cdef inline void held_phases(bint twins, int side, const Tile *s) noexcept nogil:
    """phases for what planes are computed from."""
    if s.held == REAL_STORAGE: phases(REAL_STORAGE, twins, side, s)
    elif WIDE > 1 and s.held == BFLOAT16: phases(BFLOAT16, twins, side, s)
    elif WIDE > 1 and s.held == FLOAT16: phases(FLOAT16, twins, side, s)


cdef void walk_phases(const Tile *s) noexcept nogil:
    held_phases(False, 2, s)


cdef void walk_more_phases(const Tile *s) noexcept nogil:
    held_phases(False, 3, s)


cdef void walk_twin_phases(const Tile *s) noexcept nogil:
    if MR > 6:
        held_phases(True, 2, s)
