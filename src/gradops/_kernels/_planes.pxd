# cython: language_level=3, cdivision=True
"""What the depthwise kernels for channels first share: some rows of one plane of src, in which a tap is a load at a distance.

Planes are read where they lie. A vector of neighbours may hold numbers of other rows or planes, for which there is a mask; rows outside the image
are read from a row of zeros. What is not stored as it is computed with, and planes where a vector would reach over an end of the array, are first
copied into a *run*. Where columns are read by a step of two, those of even numbers are copied to a plane of their own, and the odd ones
to another.
"""
from libc.stdint cimport int64_t
from _problem cimport Lane, Problem, row_lanes, col_lanes, divide_up, hull, is_far, larger, smaller
from _scratch cimport padded
from _storage cimport real, BFLOAT16, FLOAT16, REAL_STORAGE, VL, clear, copy, copy_even, fetch_lines, item_size, lane_mask, widen

cdef enum:
    TAPS = 7                                            # rows of taps, at most (MOST_PLANE_ROWS of gradops._algorithms)
    ROWS = 8                                            # of a register tile, at most
    STRIP = 16 * 1024                                   # bytes of the rows that are read together, about: half of a first cache


cdef struct Reader:                                     # how planes are read for some lanes of rows, and all lanes of columns
    Lane row, col                                       # what all of them read
    int64_t line                                        # pixels of a lane of columns, in whole vectors
    int64_t before, after                               # reals that vectors may reach over the ends of a plane
    int64_t half                                        # columns of even numbers
    int64_t rows, height                                # of dst lanes in a strip, at most; of src that these read
    int64_t masks                                       # reals of the masks; a row of zeros with its margins follows them


cdef struct View:                                       # of some rows of a plane
    const real *cells                                   # column 0 of the row that the first tap of the first pixel reads
    int64_t row                                         # distance of rows
    int64_t low, high                                   # the rows that lie inside the image, counted from there
    int64_t odd, half                                   # 1 if columns are read by two, else 0; then odd columns are so far from even ones
    const real *zeros                                   # column 0 of a row outside the image


cdef inline int64_t lanes_together(const Problem *g) noexcept nogil:
    """How many lanes of rows are read together: all of them, if they read neighbouring rows, or each by itself."""
    cdef Lane h
    return g.row_lanes if hull(row_lanes(g), g.row_lanes, &h) else 1


cdef inline int64_t masks_size(const Reader *w, const Lane *col) noexcept nogil:
    """Reals of the masks of one lane of columns."""
    return divide_up(w.col.count, VL) * col.taps * VL


cdef inline Reader reader(const Problem *g, int64_t first) noexcept nogil:
    """For the lanes of rows from `first` on that are read together."""
    cdef Reader w
    cdef int64_t i
    if not hull(row_lanes(g), g.row_lanes, &w.row):
        w.row = row_lanes(g)[first]
    if not hull(col_lanes(g), g.col_lanes, &w.col):
        w.col = col_lanes(g)[0]
    w.line = divide_up(w.col.count, VL) * VL
    w.before = padded(larger(-w.col.src_start, 0) + 1)
    w.after = padded(larger(w.col.src_start, 0) + w.line + (w.col.taps - 1) * w.col.tap_step + 1)
    w.half = divide_up(g.src_cols, 2)
    w.rows = divide_up(larger(STRIP // (g.src_cols * w.row.z_step * <int64_t> sizeof(real)), 1), ROWS) * ROWS
    w.rows = smaller(w.rows, w.row.count)
    w.height = w.row.z_step * (w.rows - 1) + w.row.taps
    w.masks = 0
    for i in range(g.col_lanes):
        w.masks += masks_size(&w, col_lanes(g) + i)
    return w


cdef inline Reader largest_reader(const Problem *g) noexcept nogil:
    """One with the largest strips of all: for what has to be allocated."""
    cdef Reader w = reader(g, 0), other
    cdef int64_t i
    for i in range(1, g.row_lanes // lanes_together(g)):
        other = reader(g, i)
        w.rows, w.height = larger(w.rows, other.rows), larger(w.height, other.height)
    return w


cdef inline int64_t run_size(const Problem *g, const Reader *w) noexcept nogil:
    """Reals of a run with its margins."""
    return w.before + padded(w.height * g.src_cols) + w.after


cdef inline int64_t half_size(const Reader *w) noexcept nogil:
    """Reals of every other column of a run, with margins."""
    return w.before + padded(w.height * w.half) + w.after


cdef inline int64_t view_size(const Problem *g, const Reader *w) noexcept nogil:
    """Reals of scratch for a view."""
    return run_size(g, w) + (2 * half_size(w) if w.col.z_step == 2 else 0)


cdef inline int64_t shared_size(const Problem *g, const Reader *w) noexcept nogil:
    """Reals of the masks and the row of zeros, both halves of it."""
    return w.masks + w.before + padded(g.src_cols) + w.after + (half_size(w) if w.col.z_step == 2 else 0)


cdef inline int64_t first_cell(const Reader *w, int64_t v) noexcept nogil:
    """Of a vector of all lanes; the last one of several begins early enough to be full in the longest."""
    return larger(smaller(v * VL, w.col.count - VL), 0)


cdef inline void share(const Problem *g, const Reader *w, bint whole, int64_t size, real *masks) noexcept nogil:
    """Fills `size` reals: masks of all lanes of columns, [vector][tap][VL], which numbers of a vector lie inside a row; then zeros. If `whole`, vectors are
    disjoint, and their numbers belong to a pixel, or else they are those of `first_cell`."""
    cdef const Lane *col
    cdef int64_t i, v, j, cell, x, z
    for i in range(g.col_lanes):
        col = col_lanes(g) + i
        z = col.z_step
        for v in range(divide_up(w.col.count, VL)):
            cell = v * VL if whole else first_cell(w, v)
            for j in range(col.taps):
                x = col.src_start + z * cell + j * col.tap_step
                lane_mask(divide_up(-x, z) if x < 0 else 0, smaller(divide_up(g.src_cols - x, z) if x < g.src_cols else 0, col.count - cell if whole else VL), masks)
                masks += VL
    clear(masks, size - w.masks)


cdef inline const real *widened(int storage, const char *src, int64_t step, int64_t rows, int64_t cols, real *run) noexcept nogil:
    """Rows at a distance, as they lie; where they are stored as 16 bits, copied to `run` one after the other."""
    cdef int64_t times = 1 if step == cols else rows, m
    if storage == REAL_STORAGE:
        return <const real *> src
    for m in range(times):
        if storage == FLOAT16:
            widen(FLOAT16, src + m * step * 2, rows * cols // times, run + m * cols)
        else:
            widen(BFLOAT16, src + m * step * 2, rows * cols // times, run + m * cols)
    return run


cdef inline bint is_safe(const Problem *g, const Reader *w, int64_t plane) noexcept nogil:
    """Whether vectors that reach over the ends of a plane stay inside the array."""
    cdef int64_t size = g.src_rows * g.src_cols
    return plane * size >= w.before and (g.images * g.groups - 1 - plane) * size >= w.after


cdef inline void part_columns(const real *src, int64_t step, int64_t rows, int64_t cols, real *even, real *odd) noexcept nogil:
    """Every other column of rows at a distance, and the others: if these are neighbours with an even number of columns, of all at once."""
    cdef int64_t half = divide_up(cols, 2), m
    if step == cols and cols % 2 == 0:
        copy_even(src, rows * half, even)
        copy_even(src + 1, rows * half, odd)
        return
    for m in range(rows):
        copy_even(src + m * step, half, even + m * half)
        copy_even(src + m * step + 1, cols - half, odd + m * half)


cdef inline void fetch(const Problem *g, int storage, const char *at, int64_t count) noexcept nogil:
    """The numbers that follow so many, if that is far."""
    cdef int64_t bytes = count * item_size(storage)
    if is_far(g, item_size(storage)):
        fetch_lines(at + bytes, bytes, False)


cdef inline View view(const Problem *g, int storage, const Reader *w, const char *src, int64_t plane, int64_t t, int64_t rows, const real *masks, real *scratch) noexcept nogil:
    """What rows t.. of dst lanes read of a plane. Fetches as much of what follows, if that is far."""
    cdef int64_t unit = w.row.src_unit, y = w.row.src_start + unit * w.row.z_step * t, count = w.row.z_step * (rows - 1) + w.row.taps
    cdef int64_t begin = smaller(divide_up(-y, unit), count) if y < 0 else 0, step = unit * g.src_cols, m
    cdef int64_t end = larger(smaller(divide_up(g.src_rows - y, unit), count), begin) if y < g.src_rows else begin
    cdef const char *at = src + (plane * g.src_rows + y + begin * unit) * g.src_cols * item_size(storage)
    cdef real *run = scratch + w.before
    cdef real *halves = run + run_size(g, w)
    cdef const real *reals = widened(storage, at, step, end - begin, g.src_cols, run)
    cdef View s
    s.low, s.high, s.row, s.odd, s.half, s.zeros = begin, end, step, w.col.z_step - 1, half_size(w), masks + w.masks + w.before
    fetch(g, storage, at, (end - begin) * step)
    if storage != REAL_STORAGE:
        s.row = g.src_cols
    if s.odd:
        part_columns(reals, s.row, end - begin, g.src_cols, halves, halves + s.half)
        s.row = w.half
        reals = halves
    elif storage == REAL_STORAGE and not is_safe(g, w, plane):
        s.row = g.src_cols
        for m in range(end - begin):
            copy(reals + m * step, s.row, run + m * s.row)
        reals = run
    s.cells = reals - begin * s.row
    return s


cdef inline int64_t column(const View *s, int64_t x) noexcept nogil:
    """How far column x lies from column 0, of a row or from those before or behind it."""
    return (x & s.odd) * s.half + (x >> s.odd)
