# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""y[r, k] = sum over the pixels (h, w) of the cell (r, k) of x[h, w] / pixels(r, k): fractional_avg_pool.

In parallel: strips of y; each is written once, by one thread. A row of a strip sums its input rows first, its columns second.
Packed: float16 and bfloat16 are widened to float32, a piece of a row at a time; other types are read where they lie. Where channels come
first, the sums of VL planes are turned to [column][plane], so that columns are added vector by vector, too.

*Assumes:* x and y are contiguous and aligned; no dimension is zero; cells are as `gradops._pooling` checks them.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from _blocks cimport FIRST_FREE, do_blocks
from _cells cimport Cell, Cut, Pool, Runs, Strip, INT32, TILE, col_cells, cut, is_far, item_size, row_cells, runs, strip, strips
from _entry cimport DONE, NO_MEMORY, exported
from _problem cimport smaller, larger
from _scratch cimport allocate_bytes, release
from _storage cimport FLOAT32, FLOAT64, VL, real, fetch_lines, narrow, narrow_block, widen, widen_block

ctypedef fused total:                                   # what a storage type is summed in; unsigned, so that integers wrap
    float
    double
    uint32_t
    uint64_t

cdef enum:
    CHUNK = 256                                         # values that are added at a time
    PARALLEL = 32768                                    # values of x and y from which on 2 threads gain, on a Zen 4


cdef struct Gather:
    const Pool *g
    int storage
    const char *x
    char *y
    Cut cut                                             # of y
    int64_t pixel                                       # from pixel to pixel, in elements
    int64_t x_channel, y_channel                        # from channel to channel
    bint ahead                                          # whether rows are fetched ahead


cdef inline total mean(total sum, double pixels) noexcept nogil:
    """Integers divide towards zero: exactly in double for 32 bits, whose quotients are never that close to the next integer."""
    if total is uint32_t:
        return <uint32_t> <int32_t> (<double> <int32_t> sum / pixels)
    elif total is uint64_t:
        return <uint64_t> (<int64_t> sum / <int64_t> pixels)
    else:
        return sum / <total> pixels


cdef inline void add(int storage, const char *src, int64_t n, bint first, int64_t ahead, total *wide, total *sums) noexcept nogil:
    """sums[0:n] += src[0:n], or = where nothing has been summed yet. Fetches what lies `ahead` (bytes), unless that is 0, while it adds."""
    cdef const total *values
    cdef int64_t size = item_size(storage), done = 0, count, i
    while done < n:
        count = smaller(CHUNK, n - done)
        if ahead:
            fetch_lines(src + ahead + done * size, count * size, False)
        values = <const total *> (src + done * size)
        if total is float:
            if storage < FLOAT32:
                widen(storage, src + done * size, count, <real *> wide)
                values = wide
        if first:
            for i in range(count):
                sums[done + i] = values[i]
        else:
            for i in range(count):
                sums[done + i] += values[i]
        done += count


cdef inline void add_rows(
    const Gather *w, const Strip *t, int64_t r, int64_t x, int64_t width, total *wide, total *rows, total *sums
) noexcept nogil:
    """sums[x', c] = the sum of input pixels (h, x + x', c) over the rows h of row cell r. Fetches as many rows that follow."""
    cdef const Pool *g = w.g
    cdef Cell cell = row_cells(g)[r]
    cdef int64_t size = item_size(w.storage), row = g.cols * w.pixel * size, h, i
    cdef const char *src = w.x + (t.plane * g.rows * g.cols * w.cut.depth + (cell.start * g.cols + x) * w.pixel + t.channel * w.x_channel) * size
    cdef int64_t ahead = cell.size * row if w.ahead else 0
    if w.x_channel != 1:
        for i in range(t.channels):
            for h in range(cell.size):
                add(w.storage, src + h * row + i * w.x_channel * size, width, h == 0, ahead, wide, rows + i * width)
        turn(rows, width, t.channels, sums)
        return
    for h in range(cell.size):
        if t.channels == w.cut.depth:
            add(w.storage, src + h * row, width * t.channels, h == 0, ahead, wide, sums)
        else:
            for i in range(width):
                add(w.storage, src + h * row + i * w.pixel * size, t.channels, h == 0, ahead, wide, sums + i * t.channels)


cdef inline void turn(const total *rows, int64_t width, int64_t channels, total *sums) noexcept nogil:
    """sums[x channels + c] = rows[c width + x]"""
    cdef int64_t x, c
    if total is float:
        widen_block(FLOAT32, <const char *> rows, 1, width, width, channels, <real *> sums, channels)
        return
    for x in range(width):
        for c in range(channels):
            sums[x * channels + c] = rows[c * width + x]


cdef inline void add_cols(
    const Cell *cells, int64_t count, int64_t x, int64_t width, int64_t channels, const total *sums, total *acc
) noexcept nogil:
    """acc[k, c] += the sum of sums[x', c] over the columns of cell k that lie in [x, x + width)."""
    cdef int64_t k, i, c
    for k in range(count):
        for i in range(larger(cells[k].start, x) - x, smaller(cells[k].start + cells[k].size, x + width) - x):
            for c in range(channels):
                acc[k * channels + c] += sums[i * channels + c]


cdef inline void average(const Cell *cells, int64_t count, int64_t channels, double height, total *acc) noexcept nogil:
    """acc[k, c] /= pixels(k)"""
    cdef int64_t k, c
    for k in range(count):
        for c in range(channels):
            acc[k * channels + c] = mean(acc[k * channels + c], height * cells[k].size)


cdef inline void gather_row(const Gather *w, const Strip *t, int64_t r, int64_t channels, total *acc) noexcept nogil:
    """Row r of a strip of y, but for rounding it."""
    cdef const Pool *g = w.g
    cdef const Cell *cells = col_cells(g) + t.x
    cdef int64_t x = cells[0].start, stop = cells[t.width - 1].start + cells[t.width - 1].size, width
    cdef total *sums = acc + TILE
    cdef total *wide = acc + 2 * TILE
    memset(acc, 0, t.width * channels * sizeof(total))
    while x < stop:
        width = smaller(w.cut.width, stop - x)
        add_rows(w, t, r, x, width, wide, acc + 3 * TILE, sums)
        add_cols(cells, t.width, x, width, channels, sums, acc)
        x += width
    average(cells, t.width, channels, row_cells(g)[r].size, acc)


cdef inline void store(const Gather *w, const Strip *t, int64_t r, const total *acc) noexcept nogil:
    """Writes a row of a strip of y, rounded once."""
    cdef const Pool *g = w.g
    cdef int64_t size = item_size(w.storage), n, i, x
    cdef char *dst = w.y + (t.plane * g.cell_rows * g.cell_cols * w.cut.depth + (r * g.cell_cols + t.x) * w.pixel + t.channel * w.y_channel) * size
    cdef Runs row = runs(&w.cut, t, t.width, w.pixel, w.y_channel, size)
    if w.y_channel != 1:
        if total is float:
            narrow_block(w.storage, <const real *> acc, t.channels, t.width, t.channels, dst, 1, w.y_channel)
        else:
            for i in range(t.channels):
                for x in range(t.width):
                    (<total *> dst)[i * w.y_channel + x] = acc[x * t.channels + i]
        return
    n = row.size // size
    for i in range(row.count):
        if total is float:
            narrow(w.storage, <const real *> (acc + i * n), n, dst + i * row.step)
        else:
            memcpy(dst + i * row.step, acc + i * n, row.size)


cdef void gather_rows(const Gather *w, int64_t index, total *scratch) noexcept nogil:
    """The rows of a strip of y."""
    cdef Strip t = strip(&w.cut, index)
    cdef int64_t r
    for r in range(t.top, t.bottom):
        gather_row(w, &t, r, t.channels, scratch)
        store(w, &t, r, scratch)


cdef void gather_strip(const void *work, int64_t index, void *scratch) noexcept nogil:
    """gather_rows, summed in what the storage type is summed in."""
    cdef const Gather *w = <const Gather *> work
    if w.storage <= FLOAT32:
        gather_rows(w, index, <float *> scratch)
    elif w.storage == FLOAT64:
        gather_rows(w, index, <double *> scratch)
    elif w.storage == INT32:
        gather_rows(w, index, <uint32_t *> scratch)
    else:
        gather_rows(w, index, <uint64_t *> scratch)


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Allocates and computes; returns nonzero if memory ran out."""
    cdef const Pool *g = w.g
    cdef void *scratch
    w.ahead = is_far(g, item_size(w.storage))
    if g.planes * g.depth * (g.rows * g.cols + g.cell_rows * g.cell_cols) < PARALLEL:
        threads = 1
    if g.depth == 1:                                    # planes are turned round, VL at a time
        w.cut = cut(1, g.planes, VL, TILE, g.cell_rows, g.cell_cols, threads)
        w.pixel, w.x_channel, w.y_channel = 1, g.rows * g.cols, g.cell_rows * g.cell_cols
    else:
        w.cut = cut(g.planes, g.depth, TILE, TILE, g.cell_rows, g.cell_cols, threads)
        w.pixel, w.x_channel, w.y_channel = g.depth, 1, 1
    scratch = allocate_bytes(threads * 4 * TILE * sizeof(double))
    if scratch == NULL:
        return 1
    do_blocks(gather_strip, w, strips(&w.cut), threads, FIRST_FREE, scratch, 4 * TILE * sizeof(double))
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
