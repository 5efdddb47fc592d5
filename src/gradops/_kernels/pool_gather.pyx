# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""y[r, k] = sum over the pixels (h, w) of the cell (r, k) of x[h, w] / pixels(r, k): fractional_avg_pool.

In parallel: strips of y; each is written once, by one thread. A row of a strip sums its input rows first, its columns second.
Packed: float16 and bfloat16 are widened to float32, a piece of a row at a time; other types are read where they lie.

*Assumes:* x and y are contiguous and aligned; no dimension is zero; cells are as `gradops._pooling` checks them.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
cimport numpy as cnp
from _cells cimport Cell, Cut, Pool, Strip, TILE, col_cells, cut, row_cells, strip, strips
from _problem cimport smaller, larger
from _scratch cimport allocate_bytes, release
from _storage cimport FLOAT32, FLOAT64, real, widen, narrow

cnp.import_array()

ctypedef fused total:                                   # what a storage type is summed in; unsigned, so that integers wrap
    float
    double
    uint32_t
    uint64_t

cdef enum:
    INT32 = 4                                           # as in gradops._arrays.STORAGE
    PARALLEL = 32768                                    # values of x and y from which on 2 threads gain, on a Zen 4


cdef struct Gather:
    const Pool *g
    int storage
    const char *x
    char *y
    Cut cut


cdef inline int64_t item_size(int storage, total like) noexcept nogil:
    return 2 if storage < FLOAT32 else sizeof(total)


cdef inline total mean(total sum, double pixels) noexcept nogil:
    """Integers divide towards zero: exactly in double for 32 bits, whose quotients are never that close to the next integer."""
    if total is uint32_t:
        return <uint32_t> <int32_t> (<double> <int32_t> sum / pixels)
    elif total is uint64_t:
        return <uint64_t> (<int64_t> sum / <int64_t> pixels)
    else:
        return sum / <total> pixels


cdef inline void add(int storage, const char *src, int64_t n, bint first, total *wide, total *sums) noexcept nogil:
    """sums[0:n] += src[0:n]"""
    cdef const total *values = <const total *> src
    cdef int64_t i
    if total is float:
        if storage < FLOAT32:
            widen(storage, src, n, <real *> wide)
            values = wide
    for i in range(n):
        sums[i] = values[i] if first else sums[i] + values[i]


cdef inline void add_rows(
    const Gather *w, const Strip *t, int64_t r, int64_t x, int64_t width, total *wide, total *sums
) noexcept nogil:
    """sums[x', c] = the sum of input pixels (h, x + x', c) over the rows h of row cell r."""
    cdef const Pool *g = w.g
    cdef Cell cell = row_cells(g)[r]
    cdef int64_t size = item_size(w.storage, <total> 0), h, i
    cdef const char *src
    for h in range(cell.size):
        src = w.x + (((t.plane * g.rows + cell.start + h) * g.cols + x) * g.depth + t.channel) * size
        if t.channels == g.depth:
            add(w.storage, src, width * t.channels, h == 0, wide, sums)
        else:
            for i in range(width):
                add(w.storage, src + i * g.depth * size, t.channels, h == 0, wide, sums + i * t.channels)


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
    memset(acc, 0, t.width * channels * sizeof(total))
    while x < stop:
        width = smaller(w.cut.width, stop - x)
        add_rows(w, t, r, x, width, acc + 2 * TILE, sums)
        add_cols(cells, t.width, x, width, channels, sums, acc)
        x += width
    average(cells, t.width, channels, row_cells(g)[r].size, acc)


cdef inline void store(const Gather *w, const Strip *t, int64_t r, const total *acc) noexcept nogil:
    """Writes a row of a strip of y, rounded once."""
    cdef const Pool *g = w.g
    cdef int64_t size = item_size(w.storage, <total> 0), i, pieces = 1, n = t.width * t.channels
    cdef char *dst = w.y + (((t.plane * g.cell_rows + r) * g.cell_cols + t.x) * g.depth + t.channel) * size
    if t.channels != g.depth:
        pieces, n = t.width, t.channels
    for i in range(pieces):
        if total is float:
            narrow(w.storage, <const real *> acc + i * n, n, dst + i * g.depth * size)
        else:
            memcpy(dst + i * g.depth * size, acc + i * n, n * size)


cdef void gather_strip(const Gather *w, int64_t index, total *scratch) noexcept nogil:
    cdef Strip t = strip(&w.cut, index)
    cdef int64_t r
    for r in range(t.top, t.bottom):
        if t.channels == 1:                             # the compiler then vectorises over cells instead of channels
            gather_row(w, &t, r, 1, scratch)
        else:
            gather_row(w, &t, r, t.channels, scratch)
        store(w, &t, r, scratch)


cdef void gather_strips(const Gather *w, int threads, total *scratch) noexcept nogil:
    cdef int64_t index, count = strips(&w.cut)
    if threads == 1:
        for index in range(count):
            gather_strip(w, index, scratch)
        return
    for index in prange(count, num_threads=threads, schedule="dynamic"):
        gather_strip(w, index, scratch + threadid() * 3 * TILE)


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Allocates and computes; returns nonzero if memory ran out."""
    cdef const Pool *g = w.g
    cdef void *scratch
    w.cut = cut(g.planes, g.depth, TILE, g.cell_rows, g.cell_cols)
    if g.planes * g.depth * (g.rows * g.cols + g.cell_rows * g.cell_cols) < PARALLEL:
        threads = 1
    scratch = allocate_bytes(threads * 3 * TILE * sizeof(double))
    if scratch == NULL:
        return 1
    if w.storage <= FLOAT32:
        gather_strips[float](w, threads, <float *> scratch)
    elif w.storage == FLOAT64:
        gather_strips[double](w, threads, <double *> scratch)
    elif w.storage == INT32:
        gather_strips[uint32_t](w, threads, <uint32_t *> scratch)
    else:
        gather_strips[uint64_t](w, threads, <uint64_t *> scratch)
    release(scratch)
    return 0


def run(bytes problem not None, int storage, cnp.ndarray x not None, cnp.ndarray y not None, int num_threads):
    """Computes y; see the module's docstring."""
    cdef Gather w
    cdef int failed
    w.g = <const Pool *> PyBytes_AS_STRING(problem)
    w.storage = storage
    w.x = <const char *> cnp.PyArray_DATA(x)
    w.y = <char *> cnp.PyArray_DATA(y)
    with nogil:
        failed = drive(&w, num_threads)
    if failed:
        raise MemoryError("no memory for the scratch of fractional_avg_pool")
