# cython: language_level=3, cdivision=True
"""What the depthwise kernels for channels first share: some rows of one plane of src, in which a tap is a load at a distance.

Planes are read where they lie, one lane of rows after the other, or all rows at once where dilated taps have few rows in common: these are *apart* then,
tap_step rows from each other. A vector of neighbours may hold numbers of other rows or planes, for which there is a mask; rows outside the image
are left out, or read from a row of zeros. What is not stored as it is computed with, and planes where a vector would reach over an end of the array,
are first copied into a *run*, as they are computed with. Where columns are read by a step of two or more, a vector is every second number of two, or every third of three. Rows that fill at
most half of a vector have a *twin*: the same row of the next plane, in the other half. Few channels that come last are *turned*: some planes of an image are
widened into scratch, where all of them are safe to read, and computed there.
"""
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from _problem cimport Lane, Problem, row_lanes, col_lanes, copy_problem, divide_up, hull, is_far, larger, problem_size, smaller
from _scratch cimport padded
from _storage cimport real, vec, MOST_STEP, MR, REAL_STORAGE, VL, WIDE, clear, every_lane, every_stored, fetch_lines, item_size, lane_mask, load_once, load_stored, load_stored_both, load_stored_twins, widen

cdef enum:
    SQUARE = 3                                          # rows and columns of filters that twins are computed for
    TAPS = 7                                            # rows of taps, at most (MOST_PLANE_ROWS of gradops._algorithms.planes)
    ROWS = 8                                            # of a strip, at least
    TURNED = 3 << 18                                    # bytes of planes that are turned at once, about
    STRIP = 16 * 1024                                   # bytes of the rows that are read together, about: half of a first cache
    AHEAD = 16                                          # planes from one to that which is fetched with it


cdef struct Reader:                                     # how planes are read for some lanes of rows, and all lanes of columns
    Lane row, col                                       # what all of them read
    int64_t line                                        # pixels of a lane of columns, in whole vectors
    int64_t before, after                               # reals that vectors may reach over the ends of a plane
    int64_t rows, height                                # of dst lanes in a strip, at most: all of them if taps are apart; of src that these reach over
    int64_t planes                                      # that are copied at once, at most: several if they are one strip each
    bint twins
    int64_t masks                                       # reals of the masks; a row of zeros with its margins follows them


cdef struct View:                                       # of some rows of a plane
    const char *cells                                   # column 0 of the row that the first tap of the first pixel reads
    int64_t row                                         # distance of rows, in bytes
    int64_t low, high                                   # the rows that lie inside the image, counted from there
    const char *zeros                                   # column 0 of a row outside the image


cdef inline bint comes_last(const Problem *g) noexcept nogil:
    """Whether channels come after pixels, which then have to be turned."""
    return g.src_x != 1 or g.dst_x != 1


cdef inline int64_t copy_size(const Problem *g) noexcept nogil:
    """Reals of a copy of a problem with its lanes, where one is needed."""
    return padded(divide_up(problem_size(g), sizeof(real))) if comes_last(g) else 0


cdef inline const Problem *as_planes(const Problem *g, real *memory) noexcept nogil:
    """The same problem for planes, in the memory of a copy: those of the second of three images, so that vectors may reach over their ends."""
    cdef Problem *near = copy_problem(g, memory)
    near.images = 3
    near.src_x, near.src_y, near.src_c = 1, g.src_cols, g.src_rows * g.src_cols
    near.dst_x, near.dst_y, near.dst_c = 1, g.dst_cols, g.dst_rows * g.dst_cols
    near.src_n, near.dst_n = g.groups * near.src_c, g.groups * near.dst_c
    return near


cdef inline int64_t turned_channels(const Problem *g) noexcept nogil:
    """Of an image, how many are turned at once, at most: so that their planes stay in the second cache."""
    return larger(TURNED // ((g.src_rows * g.src_cols + g.dst_rows * g.dst_cols) * <int64_t> sizeof(real)), 1)


cdef inline int64_t lanes_together(const Problem *g) noexcept nogil:
    """How many lanes of rows are read together: all of them, if they read neighbouring rows, or each by itself."""
    cdef Lane h
    return g.row_lanes if hull(row_lanes(g), g.row_lanes, &h) else 1


cdef inline bint is_apart(const Problem *g) noexcept nogil:
    """Whether taps are apart."""
    return row_lanes(g).tap_step > 1


cdef inline bint walks_down(const Problem *g) noexcept nogil:
    """Whether a row of src is loaded once for all rows of dst that it is read for: where taps are neighbours, steps are one or two, and columns two lanes at most, each of
    which has taps. Else each row of dst loads its own."""
    cdef int64_t i
    if is_apart(g) or g.col_lanes > 2 or row_lanes(g).z_step > 2:
        return False
    for i in range(g.col_lanes):
        if col_lanes(g)[i].z_step > 2 or col_lanes(g)[i].taps == 0:
            return False
    return True


cdef inline int64_t reach(const Lane *row, int64_t rows) noexcept nogil:
    """Units of src that so many rows of a lane reach over."""
    return row.z_step * (rows - 1) + row.tap_step * (row.taps - 1) + 1


cdef inline int64_t masks_size(const Reader *w, const Lane *col) noexcept nogil:
    """Reals of the masks of one lane of columns."""
    return divide_up(w.col.count, VL) * col.taps * VL


cdef inline bint has_twins(const Problem *g, const Reader *w) noexcept nogil:
    """Whether rows have twins: if they fill at most half of a vector, planes are one strip, of all lanes of rows, and registers hold all taps."""
    cdef int64_t i, least = SQUARE if g.col_lanes == 1 else 1, most = SQUARE if g.col_lanes == 1 else SQUARE - 1
    if MR <= 6 or 2 * w.col.count > VL or w.planes == 1 or not walks_down(g) or g.row_lanes != g.col_lanes or lanes_together(g) != g.row_lanes:
        return False
    for i in range(g.row_lanes):
        if not least <= row_lanes(g)[i].taps <= most or not least <= col_lanes(g)[i].taps <= most:
            return False
        if g.col_lanes > 1 and (col_lanes(g)[i].tap_step > 1 or row_lanes(g)[i].out_step > 2 or col_lanes(g)[i].out_step > 2):
            return False
    return g.filter_rows == g.filter_cols == SQUARE and w.row.z_step == w.col.z_step and (w.col.z_step == 1 or w.col.tap_step == 1)


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
    w.after = padded(larger(w.col.src_start, 0) + w.col.z_step * w.line + (w.col.taps - 1) * w.col.tap_step + 1)
    w.rows = w.row.count
    if not is_apart(g):
        w.rows = divide_up(w.rows, divide_up(w.rows, larger(STRIP // (g.src_cols * w.row.z_step * <int64_t> sizeof(real)), ROWS)))
    w.height, w.planes = smaller(reach(&w.row, w.rows), g.src_rows), 1
    if w.rows == w.row.count and w.row.src_unit == 1:
        w.planes = larger(STRIP // (larger(g.src_rows * g.src_cols, g.dst_rows * g.dst_cols) * <int64_t> sizeof(real)), 1)
    w.masks, w.twins = 0, has_twins(g, &w)
    for i in range(g.col_lanes):
        w.masks += masks_size(&w, col_lanes(g) + i)
    return w


cdef inline Reader largest_reader(const Problem *g) noexcept nogil:
    """One with the largest strips of all: for what has to be allocated."""
    cdef Reader w = reader(g, 0), other
    cdef int64_t i
    for i in range(1, g.row_lanes // lanes_together(g)):
        other = reader(g, i)
        w.rows, w.height, w.planes = larger(w.rows, other.rows), larger(w.height, other.height), larger(w.planes, other.planes)
    return w


cdef inline int64_t copied_rows(const Reader *w, int64_t strip, int64_t plane) noexcept nogil:
    """Rows that are copied at once, at most: of a strip, or of several planes, which have so many rows."""
    return larger(strip, w.planes * plane if w.planes > 1 else 0)


cdef inline int64_t view_size(const Problem *g, const Reader *w) noexcept nogil:
    """Reals of scratch for a view: a run with its margins."""
    return w.before + padded(copied_rows(w, w.height, g.src_rows) * g.src_cols) + w.after


cdef inline int64_t shared_size(const Problem *g, const Reader *w) noexcept nogil:
    """Reals of the masks and the row of zeros."""
    return w.masks + w.before + padded(g.src_cols) + w.after


cdef inline int64_t first_cell(int64_t pixels, int64_t v) noexcept nogil:
    """Of a vector of all lanes, the longest of which has so many pixels; the last one of several begins early enough to be full there."""
    return larger(smaller(v * VL, pixels - VL), 0)


cdef inline void share(const Problem *g, const Reader *w, bint whole, int64_t size, real *masks) noexcept nogil:
    """Fills `size` reals: masks of all lanes of columns, [vector][tap][VL], which numbers of a vector lie inside a row; then zeros. If `whole`, vectors are
    disjoint, and their numbers belong to a pixel, or else they are those of `first_cell`. Twins have the same."""
    cdef const Lane *col
    cdef int64_t i, v, j, lane, cell, x, z, most = VL // 2 if w.twins else VL
    for i in range(g.col_lanes):
        col = col_lanes(g) + i
        z = col.z_step
        for v in range(divide_up(w.col.count, VL)):
            cell = v * VL if whole else first_cell(w.col.count, v)
            for j in range(col.taps):
                x = col.src_start + z * cell + j * col.tap_step
                lane_mask(divide_up(-x, z) if x < 0 else 0, smaller(divide_up(g.src_cols - x, z) if x < g.src_cols else 0, col.count - cell if whole else most), masks)
                for lane in range(VL - most):
                    masks[most + lane] = masks[lane]
                masks += VL
    clear(masks, size - w.masks)


cdef inline bint is_safe(const Problem *g, const Reader *w, int64_t plane) noexcept nogil:
    """Whether vectors that reach over the ends of a plane stay inside the array."""
    cdef int64_t size = g.src_rows * g.src_cols
    return plane * size >= w.before and (g.images * g.groups - 1 - plane) * size >= w.after


cdef inline int held_planes(const Problem *g, int storage, const Reader *w) noexcept nogil:
    """What planes are computed from: numbers as they are stored, if a load can widen them and steps are usual: more code for others is worth less."""
    if WIDE == 1 or w.row.z_step != w.col.z_step or w.col.z_step > 2 or g.col_lanes > 2:
        return REAL_STORAGE
    return storage if w.col.z_step == 1 or w.row.tap_step == w.col.tap_step == 1 else REAL_STORAGE


cdef inline void copy_run(int storage, int held, const char *src, int64_t n, char *dst) noexcept nogil:
    """Copies n numbers as they are computed with."""
    if storage == held:
        memcpy(dst, src, n * item_size(storage))
    else:
        widen(storage, src, n, <real *> dst)


cdef inline int64_t planes_together(const Problem *g, int storage, int held, const Reader *w, int64_t plane, int64_t count) noexcept nogil:
    """How many of so many planes, all of them one strip, are read in the same way from one on: copied together, or where they lie."""
    if storage != held:
        return smaller(count, w.planes)
    if not is_safe(g, w, plane):
        return 1
    while not is_safe(g, w, plane + count - 1):
        count -= 1
    return count


cdef inline View view(const Problem *g, int storage, int held, const Reader *w, const char *src, int64_t plane, int64_t planes, int64_t t, int64_t rows, const real *masks, real *scratch) noexcept nogil:
    """What rows t.. of dst lanes read of a plane, and of those after it, as many numbers further on. What is copied is fetched as far ahead, if that is far."""
    cdef int64_t unit = w.row.src_unit, y = w.row.src_start + unit * w.row.z_step * t, count = reach(&w.row, rows)
    cdef int64_t begin = smaller(divide_up(-y, unit), count) if y < 0 else 0, step = unit * g.src_cols, size = g.src_rows * g.src_cols, each = item_size(held), m
    cdef int64_t end = larger(smaller(divide_up(g.src_rows - y, unit), count), begin) if y < g.src_rows else begin
    cdef const char *at = src + plane * size * item_size(storage)
    cdef char *run = <char *> (scratch + w.before)
    cdef View s
    s.low, s.high, s.row, s.zeros = begin, end, step * each, <const char *> (masks + w.masks + w.before)
    if storage == held and is_safe(g, w, plane):
        s.cells = at + y * g.src_cols * each
        return s
    s.row = g.src_cols * each
    if w.planes > 1:
        copy_run(storage, held, at, planes * size, run)
        s.cells = run + y * s.row
        return s
    at += (y + begin * unit) * g.src_cols * item_size(storage)
    if is_far(g, item_size(storage)):
        fetch_lines(at + (end - begin) * step * item_size(storage), (end - begin) * step * item_size(storage), False)
    for m in range(1 if unit == 1 else end - begin):
        copy_run(storage, held, at + m * step * item_size(storage), (end - begin if unit == 1 else 1) * g.src_cols, run + m * s.row)
    s.cells = run - begin * s.row
    return s


cdef inline const char *row_of(const char *rows, int64_t distance, int64_t index, int64_t low, int64_t high, const char *zeros) noexcept nogil:
    """The row of an index, low <= index < high, or zeros."""
    return rows + index * distance if low <= index < high else zeros


cdef inline int64_t alike(const View *v, int64_t first, int64_t reads, int64_t t) noexcept nogil:
    """Steps of a walk down a view, which reads so many rows in each, the first one from row `first` on: where those end that are like step t, since all of
    their rows lie inside, or not."""
    cdef int64_t begin = divide_up(larger(v.low - first, 0), reads), end = larger((v.high - first) // reads, begin)
    return begin if t < begin else end if t < end else divide_up(v.high - first, reads)


cdef inline void load_columns(int held, bint twins, int taps, int by, int64_t unit, const char *x, const char *other, vec *column) noexcept nogil:
    """column[j][q] = x[q by + j unit] for j < taps, the unit in bytes. By two, neighbours are every other number of the same two vectors, the second of which, as
    the second half of twins, lies at `other`; by more, of real numbers, every such number of as many vectors."""
    cdef vec[2] both
    cdef vec[MOST_STEP] cells
    cdef int64_t size = item_size(held)
    cdef int j, k
    for j in range(taps):
        if by == 1:
            column[j] = load_stored_twins(held, x + j * unit, other + j * unit) if twins else load_stored(held, x + j * unit)
        elif by == 2:
            if j % 2 == 0:
                load_stored_both(held, x + j * size, other + j * size, both)
            column[j] = every_stored(held, j % 2, both)
        else:
            for k in range(by if j % by == 0 else 0):
                cells[k] = load_once(<const real *> x + j + k * VL)
            column[j] = every_lane(by, j % by, cells)
