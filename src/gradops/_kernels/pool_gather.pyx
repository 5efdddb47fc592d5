# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""y[r, k] = sum over the pixels (h, w) of the cell (r, k) of x[h, w] / pixels(r, k): fractional_avg_pool.

In parallel: strips of y; each is written once, by one thread. A row of a strip sums its input rows first, its columns second, as many cells
at a time as a first cache holds the sums of. Packed: float16 and bfloat16 are widened to float32, a piece of a row at a time; other types are read
where they lie. Vectors are channels; of planes of a single one, columns, and cells pick theirs from a vector of sums, into which 16 bits may be widened
(`pool_gather_planes.pxi`).

*Assumes:* x and y are contiguous and aligned; no dimension is zero; cells are as `gradops._pooling` checks them.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from _blocks cimport FIRST_FREE, do_blocks
from _cells cimport (
    Cell, Cut, Pool, Runs, Strip, DOUBLES, INT32, STRIPS, TILE, col_cells, cut, doubles, is_far, is_power, item_size, keep_doubles, largest, load_doubles, no_doubles, pick_doubles,
    pick_reals, row_cells, runs, set_pick, store_doubles, store_some_doubles, strip, strips,
)
from _entry cimport DONE, NO_MEMORY, exported
from _problem cimport divide_up, larger, smaller
from _scratch cimport allocate_bytes, bytes_apart, release
from _storage cimport BFLOAT16, FLOAT16, FLOAT32, FLOAT64, VL, WIDE, fetch_lines, keep, load, load_stored, narrow, real, store, store_some, vec, widen, zero

ctypedef fused total:                                   # what a storage type is summed in; unsigned, so that integers wrap
    float
    double
    uint32_t
    uint64_t

cdef enum:
    CHUNK = 256                                         # values that are added at a time
    PARALLEL = 32768                                    # values of x and y from which on 2 threads gain, on a Zen 4
    PAD = 64                                            # values that are read beyond sums


cdef struct Picks


cdef struct Gather:
    const Pool *g
    int storage
    const char *x
    char *y
    Cut cut                                             # of y; planes of a single channel count as channels
    bint ahead                                          # whether rows are fetched ahead
    Picks *picks                                        # of all cells of a row of planes, or NULL
    int64_t most                                        # columns of a cell
    int64_t windows                                     # from which those of a vector are picked; 0: they are not
    int64_t batch                                       # planes that are done at once, 0 if they are not
    int64_t low, high                                   # rows of a cell, at least and at most


cdef inline total mean(total sum, double pixels) noexcept nogil:
    """Integers divide towards zero: exactly in double for 32 bits, whose quotients are never that close to the next integer."""
    if total is uint32_t:
        return <uint32_t> <int32_t> (<double> <int32_t> sum / pixels)
    elif total is uint64_t:
        return <uint64_t> (<int64_t> sum / <int64_t> pixels)
    else:
        return sum / <total> pixels


cdef inline void add_chunk(const total *src, int64_t row, int64_t rows, int64_t n, total *sums) noexcept nogil:
    """sums[0:n] = the sum of as many of each row, `row` bytes apart."""
    cdef const total *second = <const total *> (<const char *> src + row)
    cdef const total *third = <const total *> (<const char *> second + row)
    cdef int64_t h, i
    if rows == 1:
        memcpy(sums, src, n * sizeof(total))
    elif rows == 2:
        for i in range(n):
            sums[i] = src[i] + second[i]
    else:
        for i in range(n):
            sums[i] = src[i] + second[i] + third[i]
    for h in range(3, rows):
        third = <const total *> (<const char *> src + h * row)
        for i in range(n):
            sums[i] += third[i]


cdef inline void add_halves(int storage, const char *src, int64_t row, int64_t rows, int64_t n, real *wide, real *sums) noexcept nogil:
    """The same of 16 bits, widened to `wide`."""
    cdef int64_t h, i
    widen(storage, src, n, sums)
    for h in range(1, rows):
        widen(storage, src + h * row, n, wide)
        for i in range(n):
            sums[i] += wide[i]


cdef void add_rows(const Gather *w, const char *src, int64_t row, int64_t rows, int64_t n, int64_t next, int64_t ahead, total *wide, total *sums) noexcept nogil:
    """sums[0:n] = the sum of as many of each row, whatever the type. Fetches so many of the rows that follow, `ahead` bytes farther."""
    cdef int64_t size = item_size(w.storage), done = 0, count, h
    while done < n:
        count = smaller(CHUNK, n - done)
        for h in range(rows, rows + next):
            fetch_lines(src + ahead + h * row + done * size, count * size, False)
        if total is float:
            if w.storage < FLOAT32:
                add_halves(w.storage, src + done * size, row, rows, count, <real *> wide, <real *> sums + done)
            else:
                add_chunk(<const total *> (src + done * size), row, rows, count, sums + done)
        else:
            add_chunk(<const total *> (src + done * size), row, rows, count, sums + done)
        done += count


cdef inline int64_t rows_ahead(const Gather *w, int64_t r) noexcept nogil:
    """How many more rows row cell r + 1 has than r, where they are fetched ahead."""
    cdef const Cell *cells = row_cells(w.g) + r
    if not w.ahead or r + 1 == w.g.cell_rows:
        return 0
    return cells[1].start + cells[1].size - cells[0].start - cells[0].size


cdef inline void add_pixels(const Gather *w, const Strip *t, int64_t r, int64_t x, int64_t width, total *wide, total *sums) noexcept nogil:
    """sums[x', c] = the sum of input pixels (h, x + x', c) over the rows h of row cell r. Fetches the rows that follow."""
    cdef const Pool *g = w.g
    cdef Cell cell = row_cells(g)[r]
    cdef int64_t pixel = g.depth * item_size(w.storage), row = g.cols * pixel, next = rows_ahead(w, r), i
    cdef const char *src = w.x + ((t.plane * g.rows + cell.start) * g.cols + x) * pixel + t.channel * item_size(w.storage)
    if t.channels == g.depth:
        add_rows(w, src, row, cell.size, width * t.channels, next, 0, wide, sums)
        return
    for i in range(width):
        add_rows(w, src + i * pixel, row, cell.size, t.channels, next, 0, wide, sums + i * t.channels)


cdef inline void add_cols(const total *sums, int64_t cols, int64_t channels, double pixels, total *dst) noexcept nogil:
    """dst[c] = the sum of sums[x, c] over the columns, divided."""
    cdef const total *second = sums + channels
    cdef const total *third = second + channels
    cdef int64_t i, c
    if cols == 1:
        for c in range(channels):
            dst[c] = mean(sums[c], pixels)
    elif cols == 2:
        for c in range(channels):
            dst[c] = mean(sums[c] + second[c], pixels)
    elif cols == 3:
        for c in range(channels):
            dst[c] = mean(sums[c] + second[c] + third[c], pixels)
    else:
        for c in range(channels):
            dst[c] = sums[c] + second[c] + third[c]
        for i in range(3, cols):
            for c in range(channels):
                dst[c] += sums[i * channels + c]
        for c in range(channels):
            dst[c] = mean(dst[c], pixels)


cdef void add_wide_cell(const Gather *w, const Strip *t, int64_t r, Cell cell, double pixels, total *wide, total *sums, total *dst) noexcept nogil:
    """The same of a cell whose columns do not fit the room of the sums."""
    cdef int64_t most = larger(TILE // t.channels, 1), done = 0, width, i, c
    memset(dst, 0, t.channels * sizeof(total))
    while done < cell.size:
        width = smaller(most, cell.size - done)
        add_pixels(w, t, r, cell.start + done, width, wide, sums)
        for i in range(width):
            for c in range(t.channels):
                dst[c] += sums[i * t.channels + c]
        done += width
    for c in range(t.channels):
        dst[c] = mean(dst[c], pixels)


cdef inline int64_t fitting(const Cell *cells, int64_t count, int64_t most) noexcept nogil:
    """How many cells from the first on lie in so many columns: at least one."""
    cdef int64_t k = count
    if cells[count - 1].start + cells[count - 1].size - cells[0].start <= most:
        return count
    k = 1
    while k < count and cells[k].start + cells[k].size - cells[0].start <= most:
        k += 1
    return k


cdef inline void gather_row(const Gather *w, const Strip *t, int64_t r, int64_t ld, const char *below, total *wide, total *sums, total *dst) noexcept nogil:
    """dst[k ld + c] = row r of a strip of y. Fetches the one `below` in y, where that is far."""
    cdef const Cell *cells = col_cells(w.g) + t.x
    cdef double height = row_cells(w.g)[r].size
    cdef int64_t most = larger(TILE // t.channels, 1), k = 0, last, i
    while k < t.width:
        last = k + fitting(cells + k, t.width - k, most)
        if cells[k].size > most:
            add_wide_cell(w, t, r, cells[k], height * cells[k].size, wide, sums, dst + k * ld)
            k += 1
            continue
        add_pixels(w, t, r, cells[k].start, cells[last - 1].start + cells[last - 1].size - cells[k].start, wide, sums)
        for i in range(k, last):
            if w.ahead:
                fetch_lines(below + i * w.g.depth * item_size(w.storage), t.channels * item_size(w.storage), False)
            add_cols(sums + (cells[i].start - cells[k].start) * t.channels, cells[i].size, t.channels, height * cells[i].size, dst + i * ld)
        k = last


cdef void gather_rows(const Gather *w, const Strip *t, total *scratch) noexcept nogil:
    """The rows of a strip of y, each rounded once."""
    cdef const Pool *g = w.g
    cdef int64_t size = item_size(w.storage), r, i, n
    cdef Runs row
    cdef Cut pixels = w.cut
    cdef total *sums = scratch + TILE
    cdef total *acc = sums + TILE + PAD
    cdef char *dst
    cdef const char *below
    pixels.depth = g.depth                              # also where planes count as channels
    row = runs(&pixels, t, t.width, g.depth, size)
    for r in range(t.top, t.bottom):
        dst = w.y + (((t.plane * g.cell_rows + r) * g.cell_cols + t.x) * g.depth + t.channel) * size
        below = dst + g.cell_cols * g.depth * size
        if w.storage >= FLOAT32:
            gather_row(w, t, r, g.depth, below, scratch, sums, <total *> dst)
            continue
        gather_row(w, t, r, t.channels, below, scratch, sums, acc)
        n = row.size // size
        if total is float:
            for i in range(row.count):
                narrow(w.storage, <const real *> acc + i * n, n, dst + i * row.step)


include "pool_gather_planes.pxi"


cdef inline void gather_any(const Gather *w, const Strip *t, total *scratch) noexcept nogil:
    """A strip of pixels or of planes."""
    if w.g.depth == 1:
        gather_planes(w, t, scratch)
    else:
        gather_rows(w, t, scratch)


cdef void gather_strip(const void *work, int64_t index, void *scratch) noexcept nogil:
    """A strip of y, summed in what the storage type is summed in."""
    cdef const Gather *w = <const Gather *> work
    cdef Strip t = strip(&w.cut, index)
    if w.storage <= FLOAT32:
        gather_any(w, &t, <float *> scratch)
    elif w.storage == FLOAT64:
        gather_any(w, &t, <double *> scratch)
    elif w.storage == INT32:
        gather_any(w, &t, <uint32_t *> scratch)
    else:
        gather_any(w, &t, <uint64_t *> scratch)


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Allocates and computes; returns nonzero if memory ran out."""
    cdef const Pool *g = w.g
    cdef int64_t size
    cdef int64_t tables = divide_up(g.cell_cols, DOUBLES) * sizeof(Picks) if g.depth == 1 and g.cell_cols <= MOST_PICKING else 0
    cdef char *scratch
    w.ahead = is_far(g, item_size(w.storage))
    if g.planes * g.depth * (g.rows * g.cols + g.cell_rows * g.cell_cols) < PARALLEL:
        threads = 1
    size = bytes_apart((5 * TILE + 3 * PAD) * sizeof(double), threads)
    scratch = <char *> allocate_bytes(tables + threads * size)
    if scratch == NULL:
        return 1
    w.picks = <Picks *> scratch if tables else NULL
    if g.depth == 1:
        plan_planes(w, threads)
    else:
        w.cut = cut(g.planes, g.depth, TILE, TILE, g.cell_rows, g.cell_cols, threads)
    do_blocks(gather_strip, w, strips(&w.cut), threads, FIRST_FREE, scratch + tables, size)
    release(scratch)
    return 0


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes y; see the module's docstring."""
    cdef Gather w
    w.g = <const Pool *> problem
    w.storage = storage
    w.x = <const char *> inputs[0]
    w.y = <char *> out
    return NO_MEMORY if drive(&w, num_threads) else DONE


entry = exported(compute)
