# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dx[h, w] = sum over the cells (r, k) that cover (h, w) of dy[r, k] / pixels(r, k): fractional_avg_pool_grad, as a gather.

In parallel: strips of dx; each is written once, by one thread, its cells summed in float64 in the order of (r, k).
Packed: each row of dy that a strip needs, divided once and expanded to the strip's columns: `near` holds the first cell of each
column, `far` the second. The two latest rows stay, for a row of dx lies in two row cells at most. Only equal neighbours in an
overlapping sequence put it into more, which are summed into the second; likewise columns.

*Assumes:* dy and dx are contiguous and aligned; no dimension of dx is zero; cells are as `gradops._pooling` checks them.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cython.parallel cimport prange, threadid
from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from libc.string cimport memcpy, memset
cimport numpy as cnp
from _cells cimport Cell, Pool, Strip, TILE, col_cells, row_cells, strip, strip_channels, strip_width, strips
from _problem cimport smaller, larger, divide_up
from _scratch cimport allocate_bytes, release
from _storage cimport FLOAT16, FLOAT32, FLOAT64, widen_bfloat16s, widen_float16s, narrow_bfloat16s, narrow_float16s

cnp.import_array()

cdef enum:
    INT32 = 4                                           # as in gradops._arrays.STORAGE
    INT64 = 5
    CHUNK = 256                                         # values rounded at a time on their way to 16 bits
    PARALLEL = 16384                                    # values of dx and dy from which on 2 threads gain, on a Zen 4

cdef double TWO_63 = 9223372036854775808.0


cdef struct Span:
    int64_t first, last                                 # cells [first, last)


cdef struct Row:
    # A row of dy, or the sum of several, divided and expanded to the columns of a strip.
    int64_t name                                        # which one, or -1
    double *near
    double *far


cdef struct Spread:
    const Pool *g
    int storage
    const char *dy
    char *dx
    Span *row_spans                                     # the cells that cover each row of dx
    Span *col_spans
    double *widths                                      # columns of each column cell
    int64_t *near                                       # the first cell of each column, counted from its strip's first, or -1
    int64_t *far                                        # the second cell
    int64_t reach                                       # cells of a column, at most
    int64_t cells                                       # column cells of a strip, at most


cdef struct Scratch:
    Row[2] rows
    double *acc
    double *wide                                        # one row of dy
    double *scaled                                      # the same divided, with a cell of zeros before it


cdef inline int64_t item_size(int storage) noexcept nogil:
    return 2 if storage < FLOAT32 else 4 if storage == FLOAT32 or storage == INT32 else 8


cdef inline void widen(int storage, const char *src, int64_t n, double *dst) noexcept nogil:
    """dst[0:n] = src[0:n]; exact, but for int64 beyond 2^53."""
    cdef int64_t i, done = 0, count
    cdef float[CHUNK] chunk
    if storage == FLOAT64:
        memcpy(dst, src, n * sizeof(double))
    elif storage == FLOAT32:
        for i in range(n):
            dst[i] = (<const float *> src)[i]
    elif storage == INT32:
        for i in range(n):
            dst[i] = (<const int32_t *> src)[i]
    elif storage == INT64:
        for i in range(n):
            dst[i] = <double> (<const int64_t *> src)[i]
    else:
        while done < n:
            count = smaller(CHUNK, n - done)
            if storage == FLOAT16:
                widen_float16s(<const uint16_t *> src + done, count, chunk)
            else:
                widen_bfloat16s(<const uint16_t *> src + done, count, chunk)
            for i in range(count):
                dst[done + i] = chunk[i]
            done += count


cdef inline float odd(double x) noexcept nogil:
    """x cut to a float, its last bit set if anything was lost: rounding that to 16 bits rounds x once."""
    cdef uint64_t bits
    memcpy(&bits, &x, sizeof(x))
    bits = (bits >> 29 | ((bits & 0x1fffffff) != 0)) << 29
    memcpy(&x, &bits, sizeof(x))
    return <float> x


cdef inline void narrow(int storage, const double *src, int64_t n, char *dst) noexcept nogil:
    """dst[0:n] = src[0:n], rounded once; integers truncate towards zero and saturate."""
    cdef int64_t i, done = 0, count
    cdef float[CHUNK] chunk
    if storage == FLOAT64:
        memcpy(dst, src, n * sizeof(double))
    elif storage == FLOAT32:
        for i in range(n):
            (<float *> dst)[i] = <float> src[i]
    elif storage == INT32:
        for i in range(n):
            (<int32_t *> dst)[i] = <int32_t> min(max(src[i], <double> INT32_MIN), <double> INT32_MAX)
    elif storage == INT64:
        for i in range(n):
            (<int64_t *> dst)[i] = INT64_MAX if src[i] >= TWO_63 else INT64_MIN if src[i] < -TWO_63 else <int64_t> src[i]
    else:
        while done < n:
            count = smaller(CHUNK, n - done)
            for i in range(count):
                chunk[i] = odd(src[done + i])
            if storage == FLOAT16:
                narrow_float16s(chunk, count, <uint16_t *> dst + done)
            else:
                narrow_bfloat16s(chunk, count, <uint16_t *> dst + done)
            done += count


cdef inline void divide(
    const Spread *w, const Strip *t, int64_t r, Span span, int64_t channels, bint add, double *wide, double *scaled
) noexcept nogil:
    """wide[k, c] = dy[r, k, c] / pixels(r, k) for the column cells k of `span`; added to `scaled` if `add`."""
    cdef const Pool *g = w.g
    cdef int64_t size = item_size(w.storage), k, c
    cdef double height = row_cells(g)[r].size
    cdef const char *src = w.dy + (((t.plane * g.cell_rows + r) * g.cell_cols + span.first) * g.depth + t.channel) * size
    if channels == g.depth:
        widen(w.storage, src, (span.last - span.first) * channels, wide)
    else:
        for k in range(span.last - span.first):
            widen(w.storage, src + k * g.depth * size, channels, wide + k * channels)
    for k in range(span.last - span.first):
        for c in range(channels):
            wide[k * channels + c] /= height * w.widths[span.first + k]
    if add:
        for k in range((span.last - span.first) * channels):
            scaled[k] += wide[k]


cdef inline void expand(const int64_t *cells, int64_t width, int64_t channels, const double *scaled, double *row) noexcept nogil:
    """row[x, c] = scaled[cells[x], c]"""
    cdef int64_t x, c
    for x in range(width):
        for c in range(channels):
            row[x * channels + c] = scaled[cells[x] * channels + c]


cdef inline void expand_rest(const Spread *w, const Strip *t, const double *scaled, double *far) noexcept nogil:
    """far[x, c] += scaled[k, c] for the third and later cells k of each column."""
    cdef const Span *spans = w.col_spans + t.x
    cdef int64_t x, k, c
    for x in range(t.width):
        for k in range(spans[x].first + 2, spans[x].last):
            for c in range(t.channels):
                far[x * t.channels + c] += scaled[(k - spans[0].first) * t.channels + c]


cdef inline void fill(
    const Spread *w, const Strip *t, Span rows, int64_t channels, double *wide, double *scaled, Row *row
) noexcept nogil:
    """row = the sum of `rows` of dy, divided and expanded."""
    cdef Span cols = Span(w.col_spans[t.x].first, w.col_spans[t.x + t.width - 1].last)
    cdef int64_t r
    memset(scaled - channels, 0, channels * sizeof(double))
    divide(w, t, rows.first, cols, channels, False, scaled, scaled)
    for r in range(rows.first + 1, rows.last):
        divide(w, t, r, cols, channels, True, wide, scaled)
    expand(w.near + t.x, t.width, channels, scaled, row.near)
    if w.reach > 1:
        expand(w.far + t.x, t.width, channels, scaled, row.far)
    if w.reach > 2:
        expand_rest(w, t, scaled, row.far)


cdef Row *prepared(const Spread *w, const Strip *t, Span rows, Scratch *s) noexcept nogil:
    """The sum of `rows` of dy as it is needed here; perhaps still there from the strip above."""
    cdef Row *row = &s.rows[rows.first & 1]
    cdef int64_t name = ((t.plane * w.g.cols + t.x) * w.g.depth + t.channel) * w.g.cell_rows + rows.first
    if rows.last > rows.first + 1:
        name = -1
    if name < 0 or row.name != name:
        if t.channels == 1:                             # the compiler then vectorises over cells instead of channels
            fill(w, t, rows, 1, s.wide, s.scaled, row)
        else:
            fill(w, t, rows, t.channels, s.wide, s.scaled, row)
        row.name = name
    return row


cdef const double *summed(const Spread *w, int64_t n, const Row *above, const Row *below, double *acc) noexcept nogil:
    """above.near + above.far + below.near + below.far, in that order; what is absent counts as zeros."""
    cdef int64_t i
    if above == NULL:
        memset(acc, 0, n * sizeof(double))
    elif below == NULL and w.reach < 2:
        return above.near
    elif below == NULL:
        for i in range(n):
            acc[i] = above.near[i] + above.far[i]
    elif w.reach < 2:
        for i in range(n):
            acc[i] = above.near[i] + below.near[i]
    else:
        for i in range(n):
            acc[i] = above.near[i] + above.far[i] + below.near[i] + below.far[i]
    return acc


cdef inline void spread_row(const Spread *w, const Strip *t, int64_t h, Scratch *s) noexcept nogil:
    """Row h of a strip of dx."""
    cdef const Pool *g = w.g
    cdef Span span = w.row_spans[h]
    cdef Row *above = NULL
    cdef Row *below = NULL
    cdef int64_t size = item_size(w.storage), x
    cdef const double *values
    cdef char *dst = w.dx + (((t.plane * g.rows + h) * g.cols + t.x) * g.depth + t.channel) * size
    if span.first < span.last:
        above = prepared(w, t, Span(span.first, span.first + 1), s)
    if span.first + 1 < span.last:
        below = prepared(w, t, Span(span.first + 1, span.last), s)
    values = summed(w, t.width * t.channels, above, below, s.acc)
    if t.channels == g.depth:
        narrow(w.storage, values, t.width * t.channels, dst)
    else:
        for x in range(t.width):
            narrow(w.storage, values + x * t.channels, t.channels, dst + x * g.depth * size)


cdef void spread_strip(const Spread *w, int64_t index, Scratch *s) noexcept nogil:
    cdef Strip t = strip(w.g, w.g.rows, w.g.cols, index)
    cdef int64_t h
    for h in range(t.top, t.bottom):
        spread_row(w, &t, h, s)


cdef void spread_strips(const Spread *w, int threads, Scratch *scratch) noexcept nogil:
    cdef int64_t index, count = strips(w.g, w.g.rows, w.g.cols)
    if threads == 1:
        for index in range(count):
            spread_strip(w, index, scratch)
        return
    for index in prange(count, num_threads=threads, schedule="dynamic"):
        spread_strip(w, index, scratch + threadid())


cdef void cover(const Cell *cells, int64_t count, int64_t n, Span *spans) noexcept nogil:
    """Which cells cover each of n pixels."""
    cdef int64_t first = 0, last = 0, i
    for i in range(n):
        while first < count and cells[first].start + cells[first].size <= i:
            first += 1
        while last < count and cells[last].start <= i:
            last += 1
        spans[i].first = first
        spans[i].last = last


cdef void plan(Spread *w) noexcept nogil:
    """Fills the tables."""
    cdef const Pool *g = w.g
    cdef int64_t i, width = strip_width(g.depth), start, cells
    cdef Span span
    cover(row_cells(g), g.cell_rows, g.rows, w.row_spans)
    cover(col_cells(g), g.cell_cols, g.cols, w.col_spans)
    w.reach = w.cells = 0
    for i in range(g.cols):
        span = w.col_spans[i]
        start = w.col_spans[i // width * width].first
        cells = span.last - span.first
        w.near[i] = span.first - start if cells > 0 else -1
        w.far[i] = span.first - start + 1 if cells > 1 else -1
        w.reach = larger(w.reach, cells)
        w.cells = larger(w.cells, span.last - start)
    for i in range(g.cell_cols):
        w.widths[i] = col_cells(g)[i].size


cdef int64_t scaled_size(const Spread *w) noexcept nogil:
    """Doubles of a row of divided cells and one more cell."""
    return divide_up((w.cells + 1) * strip_channels(w.g.depth), 8) * 8


cdef int64_t scratch_size(const Spread *w) noexcept nogil:
    """Doubles of one thread's buffers."""
    return 5 * TILE + 2 * scaled_size(w) + divide_up(strip_channels(w.g.depth), 8) * 8


cdef void place(const Spread *w, int threads, double *slab, Scratch *scratch) noexcept nogil:
    """Gives each thread its buffers."""
    cdef int64_t t
    for t in range(threads):
        scratch[t].rows[0] = Row(-1, slab, slab + TILE)
        scratch[t].rows[1] = Row(-1, slab + 2 * TILE, slab + 3 * TILE)
        scratch[t].acc = slab + 4 * TILE
        scratch[t].wide = slab + 5 * TILE
        scratch[t].scaled = scratch[t].wide + scaled_size(w) + divide_up(strip_channels(w.g.depth), 8) * 8
        slab += scratch_size(w)


cdef int drive(Spread *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef const Pool *g = w.g
    cdef double *tables = <double *> allocate_bytes((2 * g.rows + 4 * g.cols + g.cell_cols) * sizeof(double))
    cdef double *slab
    cdef Scratch *scratch
    if tables == NULL:
        return 1
    w.row_spans = <Span *> tables
    w.col_spans = w.row_spans + g.rows
    w.near = <int64_t *> (w.col_spans + g.cols)
    w.far = w.near + g.cols
    w.widths = <double *> (w.far + g.cols)
    plan(w)
    if g.planes * g.depth * (g.rows * g.cols + g.cell_rows * g.cell_cols) < PARALLEL:
        threads = 1
    slab = <double *> allocate_bytes(threads * (scratch_size(w) * sizeof(double) + sizeof(Scratch)))
    if slab == NULL:
        release(tables)
        return 1
    scratch = <Scratch *> (slab + threads * scratch_size(w))
    place(w, threads, slab, scratch)
    spread_strips(w, threads, scratch)
    release(slab)
    release(tables)
    return 0


def run(bytes problem not None, int storage, cnp.ndarray dy not None, cnp.ndarray dx not None, int num_threads):
    """Computes dx; see the module's docstring."""
    cdef Spread w
    cdef int failed
    w.g = <const Pool *> PyBytes_AS_STRING(problem)
    w.storage = storage
    w.dy = <const char *> cnp.PyArray_DATA(dy)
    w.dx = <char *> cnp.PyArray_DATA(dx)
    with nogil:
        failed = drive(&w, num_threads)
    if failed:
        raise MemoryError("no memory for the scratch of fractional_avg_pool_grad")
