# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dx[h, w] = sum over the cells (r, k) that cover (h, w) of dy[r, k] / pixels(r, k): fractional_avg_pool_grad, as a gather.

In parallel: strips of dx; each is written once, by one thread, its cells summed in float64 in the order of (r, k). Rows of dx in the same
row cells are equal, and copied. Packed: each row of dy that a strip needs, divided once, as [cell][channel]. The two
latest rows stay, for a row of dx lies in two row cells at most. Only equal neighbours in an overlapping sequence put it into more, which are
summed into the second; likewise columns. Vectors are channels; planes of a single one have their own way (`pool_spread_planes.pxi`).

*Assumes:* dy and dx are contiguous and aligned; no dimension of dx is zero; cells are as `gradops._pooling` checks them.
"""
from libc.stdint cimport int32_t, int64_t, uint16_t, uint64_t, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from libc.math cimport fma
from libc.string cimport memcpy, memset
from _blocks cimport IN_ORDER, do_blocks
from _cells cimport (
    Cell, Cut, Pool, Runs, Strip, DOUBLES, INT32, STRIPS, TILE, col_cells, cut, doubles, is_far, is_power, item_size, largest, load_doubles, load_floats, next_doubles, odd_doubles,
    pick_doubles, pick_reals, quotients, row_cells, runs, set_pick, store_doubles, store_floats, store_some_doubles, strip, strips,
)
from _entry cimport DONE, NO_MEMORY, exported
from _problem cimport smaller, larger, divide_up
from _scratch cimport allocate_bytes, bytes_apart, own_scratch, release
from _storage cimport (
    real, FLOAT16, FLOAT32, FLOAT64, FUSED, LINE, VL, fetch_lines, load, load_some, narrow_bfloat16s, narrow_float16s, store, store_some, widen_bfloat16s, widen_float16s,
)

cdef enum:
    PARALLEL = 16384                                    # values of dx and dy from which on 2 threads gain, on a Zen 4
    LOST = (1 << 29) - 1                                # bits of a double that a float does not have
    CELLS = 1536                                        # values of the cells of a row: those of two rows stay in a first cache

cdef double TWO_63 = 9223372036854775808.0


ctypedef fused total:
    float
    double


cdef struct Span:
    int64_t first, last                                 # cells [first, last)


cdef struct Row:
    int64_t name                                        # which row of dy, or -1 if it is the sum of several
    double *cells                                       # divided: [cell][channel], after a cell of zeros


cdef struct Picks
cdef struct Mix


cdef struct Spread:
    const Pool *g
    int storage
    const char *dy
    char *dx
    Cut cut                                             # of dx
    Span *row_spans                                     # the cells that cover each row of dx
    Span *col_spans
    double *widths                                      # columns of each column cell
    int64_t *near                                       # the first cell of each column, counted from its strip's first, or -1
    int64_t *far                                        # the second cell, or the one that holds the sum of it and all that follow, or -1
    int64_t cells                                       # column cells of a strip, at most
    int64_t sums                                        # and sums of column cells
    bint ahead                                          # whether rows are fetched ahead
    Picks *picks                                        # of all columns, where the way of planes is taken
    bint overlapping                                    # whether some of them lie in two cells
    bint by_rows                                        # whether rows are done one by one
    bint single                                         # whether dx is a float of one cell everywhere, so that float division rounds it once
    int64_t batch                                       # how many planes are done together
    int64_t room                                        # for numbers of each kind


cdef struct Scratch:
    Row[2] rows
    double *wide                                        # cells of dy as they are widened, and a row of dx before it is rounded
    float *floats                                       # the same of 16 bits
    double *pixels                                      # of the cells of a band
    double *inverses
    int64_t *tables                                     # where those of each row of cells begin
    double *cells                                       # of a plane of a band; of rows that are done one by one, each in a room of its own, before one of zeros
    double *mixed                                       # sums of row cells, or of two, of columns alone and shared: float64, or as many float32 in half the room
    Mix *mixes                                          # of each row
    double *picked                                      # rows of dx before they are rounded


cdef inline void widen_halves(int storage, const char *src, int64_t n, float *dst) noexcept nogil:
    """dst[0:n] = src[0:n], of 16 bits."""
    if storage == FLOAT16:
        widen_float16s(<const uint16_t *> src, n, dst)
    else:
        widen_bfloat16s(<const uint16_t *> src, n, dst)


cdef inline void widen(int storage, const char *src, int64_t n, double *dst) noexcept nogil:
    """dst[0:n] = src[0:n], integers; exact, but for int64 beyond 2^53."""
    cdef int64_t i
    if storage == INT32:
        for i in range(n):
            dst[i] = (<const int32_t *> src)[i]
    else:
        for i in range(n):
            dst[i] = <double> (<const int64_t *> src)[i]


cdef inline float odd(double x) noexcept nogil:
    """x cut to a float, its last bit set if anything was lost: rounding that to 16 bits rounds x once."""
    cdef uint64_t bits, lost = LOST
    memcpy(&bits, &x, sizeof(x))
    bits = (((bits & lost) + lost) | bits) & ~lost
    memcpy(&x, &bits, sizeof(x))
    return <float> x


cdef inline void narrow_halves(int storage, const float *src, int64_t n, char *dst) noexcept nogil:
    """dst[0:n] = src[0:n], which `odd` has cut, rounded to 16 bits."""
    if storage == FLOAT16:
        narrow_float16s(src, n, <uint16_t *> dst)
    else:
        narrow_bfloat16s(src, n, <uint16_t *> dst)


cdef inline void narrow(int storage, const double *src, int64_t n, char *dst) noexcept nogil:
    """dst[0:n] = src[0:n], integers, which truncate towards zero and saturate."""
    cdef int64_t i
    if storage == INT32:
        for i in range(n):
            (<int32_t *> dst)[i] = <int32_t> min(max(src[i], <double> INT32_MIN), <double> INT32_MAX)
    else:
        for i in range(n):
            (<int64_t *> dst)[i] = INT64_MAX if src[i] >= TWO_63 else INT64_MIN if src[i] < -TWO_63 else <int64_t> src[i]


cdef inline double quotient(float a, double b, double inverse) noexcept nogil:
    """a / b, given RN(1 / b), where products are added without rounding. Were it not RN(a / b), that would be within 2^-104 of a number of 54 bits
    times b, which is farther from any float than that; infinities have no remainder."""
    cdef double rough = a * inverse, left = fma(-rough, b, a), exact = fma(left, inverse, rough)
    return exact if left == left else rough


cdef inline void scale(const total *src, int64_t n, double pixels, bint add, double *dst) noexcept nogil:
    """dst[i] (+)= src[i] / pixels; a product where that is the same."""
    cdef int64_t i, whole = <int64_t> pixels
    cdef double factor = 1 / pixels
    if add:
        for i in range(n):
            dst[i] += src[i] / pixels
    elif is_power(whole):
        for i in range(n):
            dst[i] = src[i] * factor
    elif total is float and FUSED:
        for i in range(n):
            dst[i] = quotient(src[i], pixels, factor)
    else:
        for i in range(n):
            dst[i] = src[i] / pixels


cdef inline void divide_cell(int storage, const char *src, int64_t n, double pixels, bint add, Scratch *s, double *dst) noexcept nogil:
    """dst[i] (+)= src[i] / pixels, whatever the type."""
    if storage == FLOAT32:
        scale(<const float *> src, n, pixels, add, dst)
    elif storage < FLOAT32:
        widen_halves(storage, src, n, s.floats)
        scale(s.floats, n, pixels, add, dst)
    elif storage == FLOAT64:
        scale(<const double *> src, n, pixels, add, dst)
    else:
        widen(storage, src, n, s.wide)
        scale(s.wide, n, pixels, add, dst)


cdef void divide(const Spread *w, const Strip *t, int64_t r, Span span, bint add, Scratch *s, double *cells) noexcept nogil:
    """cells[k, c] (+)= dy[r, k, c] / pixels(r, k) for the column cells k of `span`. Fetches the next row of dy."""
    cdef const Pool *g = w.g
    cdef int64_t pixel = g.depth * item_size(w.storage), k
    cdef double height = row_cells(g)[r].size
    cdef const char *src = w.dy + ((t.plane * g.cell_rows + r) * g.cell_cols + span.first) * pixel + t.channel * item_size(w.storage)
    for k in range(span.last - span.first):
        if w.ahead:
            fetch_lines(src + (g.cell_cols + k) * pixel, t.channels * item_size(w.storage), False)
        divide_cell(w.storage, src + k * pixel, t.channels, height * w.widths[span.first + k], add, s, cells + k * t.channels)


cdef void add_far(const Spread *w, const Strip *t, double *cells) noexcept nogil:
    """Adds the second, third ... cells of the columns that lie in more than two."""
    cdef const Span *spans = w.col_spans + t.x
    cdef int64_t x, k, c
    cdef double *total
    for x in range(t.width):
        if spans[x].last - spans[x].first > 2:
            total = cells + w.far[t.x + x] * t.channels
            for c in range(t.channels):
                total[c] = 0
            for k in range(spans[x].first + 1 - spans[0].first, spans[x].last - spans[0].first):
                for c in range(t.channels):
                    total[c] += cells[k * t.channels + c]


cdef const double *prepared(const Spread *w, const Strip *t, Span rows, Scratch *s) noexcept nogil:
    """The cells of a row of dy, or of the sum of several; perhaps still there from the row above."""
    cdef Row *row = &s.rows[rows.first & 1]
    cdef int64_t name = ((t.plane * w.g.cols + t.x) * w.cut.depth + t.channel) * w.g.cell_rows + rows.first, r
    cdef Span cols = Span(w.col_spans[t.x].first, w.col_spans[t.x + t.width - 1].last)
    if rows.last > rows.first + 1:
        name = -1
    if name < 0 or row.name != name:
        memset(row.cells - t.channels, 0, t.channels * sizeof(double))
        for r in range(rows.first, rows.last):
            divide(w, t, r, cols, r > rows.first, s, row.cells)
        if w.sums:
            add_far(w, t, row.cells)
        row.name = name
    return row.cells


cdef inline total rounded(double x, bint halves, const total *_) noexcept nogil:
    """x as `total`, or as a float that is to be rounded to 16 bits."""
    return odd(x) if total is float and halves else <total> x


cdef inline void sum_row(const Spread *w, const Strip *t, const double *above, const double *below, int64_t ld, bint halves, const char *next, total *out) noexcept nogil:
    """out[x ld + c] = the sum of the cells that cover it: near and far above, then near and far below; `above` may be NULL, or `below`.
    Fetches the pixels of the `next` row, unless that is NULL: one by one, since memory takes longer with many at once."""
    cdef int64_t x, c, n, f, pixel = w.g.depth * item_size(w.storage), size = t.channels * item_size(w.storage)
    for x in range(t.width):
        if next != NULL:
            fetch_lines(next + x * pixel, size, False)
        n, f = w.near[t.x + x] * t.channels, w.far[t.x + x] * t.channels
        if above == NULL:
            for c in range(t.channels):
                out[c] = 0
        elif f < 0 and below == NULL:
            for c in range(t.channels):
                out[c] = rounded(above[n + c], halves, out)
        elif f < 0:
            for c in range(t.channels):
                out[c] = rounded(above[n + c] + below[n + c], halves, out)
        elif below == NULL:
            for c in range(t.channels):
                out[c] = rounded(above[n + c] + above[f + c], halves, out)
        else:
            for c in range(t.channels):
                out[c] = rounded(above[n + c] + above[f + c] + below[n + c] + below[f + c], halves, out)
        out += ld


cdef void compute_row(const Spread *w, const Strip *t, const double *above, const double *below, const Runs *row, Scratch *s, const char *next, char *dst) noexcept nogil:
    """A row of a strip of dx."""
    cdef int64_t n = row.size // item_size(w.storage), i
    if w.storage == FLOAT32:
        sum_row(w, t, above, below, w.g.depth, False, next, <float *> dst)
        return
    if w.storage == FLOAT64:
        sum_row(w, t, above, below, w.g.depth, False, next, <double *> dst)
        return
    if w.storage < FLOAT32:
        sum_row(w, t, above, below, t.channels, True, next, s.floats)
    else:
        sum_row(w, t, above, below, t.channels, False, next, s.wide)
    for i in range(row.count):
        if w.storage < FLOAT32:
            narrow_halves(w.storage, s.floats + i * n, n, dst + i * row.step)
        else:
            narrow(w.storage, s.wide + i * n, n, dst + i * row.step)


cdef void fetch_row(const Runs *row, const char *dst) noexcept nogil:
    """Fetches a row that is going to be written."""
    cdef int64_t i
    for i in range(row.count):
        fetch_lines(dst + i * row.step, row.size, False)


cdef void copy_row(const Runs *row, const char *src, char *dst) noexcept nogil:
    """A row of a strip of dx that equals another."""
    cdef int64_t i
    for i in range(row.count):
        memcpy(dst + i * row.step, src + i * row.step, row.size)


cdef void spread_strip(const void *work, int64_t index, void *slab) noexcept nogil:
    """The rows of a strip of dx. Each is fetched, where that is far, while the one above it is written."""
    cdef const Spread *w = <const Spread *> work
    cdef Scratch *s = <Scratch *> slab
    cdef Strip t = strip(&w.cut, index)
    cdef int64_t size = item_size(w.storage), down = w.g.cols * w.g.depth * size, h
    cdef Runs row = runs(&w.cut, &t, t.width, w.g.depth, size)
    cdef const double *above
    cdef const double *below
    cdef const char *next
    cdef Span span
    cdef bint equal
    cdef char *dst = w.dx + ((t.plane * w.g.rows * w.g.cols + t.x) * w.g.depth + t.channel) * size
    for h in range(t.top, t.bottom):
        span, next = w.row_spans[h], dst + (h + 1) * down if w.ahead else NULL
        equal = h > t.top and span.first == w.row_spans[h - 1].first and span.last == w.row_spans[h - 1].last
        if equal:
            if next != NULL:
                fetch_row(&row, next)
            copy_row(&row, dst + (h - 1) * down, dst + h * down)
            continue
        above = prepared(w, &t, Span(span.first, span.first + 1), s) if span.first < span.last else NULL
        below = prepared(w, &t, Span(span.first + 1, span.last), s) if span.first + 1 < span.last else NULL
        compute_row(w, &t, above, below, &row, s, next, dst + h * down)


cdef int64_t whole(int64_t n) noexcept nogil:
    """n rounded up to lines of doubles."""
    return divide_up(n, 8) * 8


include "pool_spread_planes.pxi"
include "pool_spread_rows.pxi"
include "pool_spread_batch.pxi"


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


cdef int64_t strip_values(const Pool *g) noexcept nogil:
    """Values of a row of a strip: whole rows if they are short, else as many as CELLS cover."""
    if g.cols * g.depth <= TILE:
        return TILE
    return smaller(CELLS * g.cols // g.cell_cols, TILE)


cdef void plan(Spread *w, int threads) noexcept nogil:
    """Cuts strips and fills the tables."""
    cdef const Pool *g = w.g
    cdef int64_t i, start, cells, sums = 0
    cdef Span span
    w.ahead = is_far(g, item_size(w.storage))
    cover(row_cells(g), g.cell_rows, g.rows, w.row_spans)
    cover(col_cells(g), g.cell_cols, g.cols, w.col_spans)
    for i in range(g.cell_cols):
        w.widths[i] = col_cells(g)[i].size
    if w.picks != NULL and is_regular(w.row_spans, g.rows) and is_regular(w.col_spans, g.cols):
        plan_planes(w, threads)
    else:
        w.cut = cut(g.planes, g.depth, TILE, strip_values(g), g.rows, g.cols, threads)
        w.picks = NULL
    w.cells = w.sums = 0
    for i in range(g.cols):
        span = w.col_spans[i]
        start = w.col_spans[i // w.cut.width * w.cut.width].first
        cells = span.last - span.first
        w.near[i] = span.first - start if cells > 0 else -1
        w.far[i] = span.first - start + 1 if cells > 1 else -1
        w.cells = larger(w.cells, span.last - start)
    for i in range(g.cols):
        sums = sums if i % w.cut.width else 0
        if w.col_spans[i].last - w.col_spans[i].first > 2:
            w.far[i] = w.cells + sums
            sums += 1
            w.sums = larger(w.sums, sums)
    if w.picks != NULL:
        size_planes(w)


cdef int64_t row_size(const Spread *w) noexcept nogil:
    """Doubles of a row of cells and one more."""
    return whole((w.cells + w.sums + 1) * w.cut.channels)


cdef int64_t pixels_size(const Spread *w) noexcept nogil:
    """Doubles of one thread's buffers."""
    return 2 * row_size(w) + whole(larger(w.cells * w.cut.channels, TILE)) + TILE


cdef void place_pixels(const Spread *w, double *slab, Scratch *s) noexcept nogil:
    """Gives a thread its buffers."""
    s.rows[0] = Row(-1, slab + w.cut.channels)
    s.rows[1] = Row(-1, slab + row_size(w) + w.cut.channels)
    s.wide = slab + 2 * row_size(w)
    s.floats = <float *> (s.wide + whole(larger(w.cells * w.cut.channels, TILE)))


cdef int spread(Spread *w, int threads) noexcept nogil:
    """Allocates the buffers and computes; returns nonzero if memory ran out."""
    cdef int64_t head = whole(sizeof(Scratch) // sizeof(double))
    cdef int64_t size = bytes_apart((head + (planes_size(w) if w.picks != NULL else pixels_size(w))) * sizeof(double), threads)
    cdef char *slab = <char *> allocate_bytes(threads * size)
    cdef double *own
    cdef int i
    if slab == NULL:
        return 1
    for i in range(threads):
        own = <double *> own_scratch(slab, size, i, threads)
        if w.picks != NULL:
            place_planes(w, own + head, <Scratch *> own)
        else:
            place_pixels(w, own + head, <Scratch *> own)
    do_blocks(spread_planes if w.picks != NULL else spread_strip, w, strips(&w.cut), threads, IN_ORDER, slab, size)
    release(slab)
    return 0


cdef int drive(Spread *w, int threads) noexcept nogil:
    """Plans and computes; returns nonzero if memory ran out."""
    cdef const Pool *g = w.g
    cdef int64_t vectors = divide_up(g.cols, DOUBLES) if g.depth == 1 else 0
    cdef void *tables = allocate_bytes(vectors * sizeof(Picks) + (2 * g.rows + 4 * g.cols + g.cell_cols) * sizeof(double))
    cdef int failed
    if tables == NULL:
        return 1
    w.row_spans = <Span *> (<Picks *> tables + vectors)
    w.col_spans = w.row_spans + g.rows
    w.near = <int64_t *> (w.col_spans + g.cols)
    w.far = w.near + g.cols
    w.widths = <double *> (w.far + g.cols)
    w.picks = <Picks *> tables if g.depth == 1 else NULL
    if g.planes * g.depth * (g.rows * g.cols + g.cell_rows * g.cell_cols) < PARALLEL:
        threads = 1
    plan(w, threads)
    failed = spread(w, threads)
    release(tables)
    return failed


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dx; see the module's docstring."""
    cdef Spread w
    w.g = <const Pool *> problem
    w.storage = storage
    w.dy = <const char *> inputs[0]
    w.dx = <char *> out
    return NO_MEMORY if drive(&w, num_threads) else DONE


entry = exported(compute)
