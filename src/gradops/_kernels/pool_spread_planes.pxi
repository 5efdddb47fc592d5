"""Part of `pool_spread`: planes of a single channel, whose rows and columns lie in one cell or in two neighbours each.

A row of dx has few different numbers: of each column cell that of the columns which lie in no other (`alone`) and that of the columns which lie in the
next one, too (`shared`). Both are summed in float64 for each row of cells and for each two neighbours, vectors being cells; rounded, they are what columns
pick a vector at a time (`Picks`). So much is done of a row after the other (`pool_spread_rows.pxi`) or, if these are short, of all rows of a plane, or of
several ones (`pool_spread_batch.pxi`).
"""

cdef enum:
    PLANES = 16                                         # of a strip, or more, if there are as many for each thread: what they have in common is found once
    BATCH = 2048                                        # values of planes that are small
    WIDE = 2048                                         # columns of a strip, at most; and of cells
    WIDE_CELLS = 256
    FLOAT_WHOLE = 1 << 24                               # whole numbers up to here are floats
    LONG = 24                                           # cells of a row from which on rows are done one by one


cdef struct Picks:                                      # of a vector of columns
    char[64] words                                      # which cell each is of, and whether shared: see pick_reals
    int64_t first                                       # the cell from which these count, from its strip's first
    int64_t[7] unused                                   # so that words are aligned


cdef struct Mix:                                        # what a row of dx is made of
    int64_t row                                         # its first row of cells, of the strip's
    bint both                                           # whether of the row below, too
    bint again                                          # whether the row above is the same


cdef struct Band:                                       # what the planes of a strip have in common
    int64_t row, rows                                   # rows of cells [row, row + rows)
    int64_t col, cols                                   # columns of cells [col, col + cols)
    int64_t size                                        # cells of a plane
    bint alone, both                                    # which kinds of rows of dx there are


cdef bint is_regular(const Span *spans, int64_t n) noexcept nogil:
    """Whether each of n pixels lies in one cell or in two, and not farther from the one before it than a cell."""
    cdef int64_t i
    for i in range(n):
        if spans[i].last - spans[i].first not in (1, 2) or (i > 0 and spans[i].first - spans[i - 1].first > 1):
            return False
    return True


cdef void pick_columns(Spread *w) noexcept nogil:
    """Fills the picks of all columns."""
    cdef const Span *spans = w.col_spans
    cdef int64_t size = 4 if w.storage <= FLOAT32 else 8, lanes = VL * 4 // size, i, start
    cdef Picks *p
    w.overlapping = False
    for i in range(w.g.cols):
        p, start = w.picks + i // lanes, spans[i // lanes * lanes].first
        if i % lanes == 0:
            memset(p, 0, sizeof(Picks))
            p.first = start - spans[i // w.cut.width * w.cut.width].first
        set_pick(p.words, size, i % lanes, spans[i].first - start, spans[i].last - spans[i].first > 1)
        w.overlapping |= spans[i].last - spans[i].first > 1


cdef Band begin_band(const Spread *w, const Strip *t, Scratch *s) noexcept nogil:
    """Finds what the rows of a strip are made of, and counts the pixels of its cells."""
    cdef Band b
    cdef int64_t h
    cdef Span span
    b.row, b.rows = w.row_spans[t.top].first, w.row_spans[t.bottom - 1].last - w.row_spans[t.top].first
    b.col, b.cols = w.col_spans[t.x].first, w.col_spans[t.x + t.width - 1].last - w.col_spans[t.x].first
    b.size = b.rows * b.cols
    b.alone = b.both = False
    for h in range(t.bottom - t.top):
        span = w.row_spans[t.top + h]
        s.mixes[h] = Mix(span.first - b.row, span.last - span.first > 1, False)
        s.mixes[h].again = h > 0 and s.mixes[h].row == s.mixes[h - 1].row and s.mixes[h].both == s.mixes[h - 1].both
        b.alone |= not s.mixes[h].both
        b.both |= s.mixes[h].both
    if w.by_rows:
        count_rows(w, &b, s)
    else:
        count_planes(w, &b, smaller(w.batch, t.channels), s)
    return b


cdef void count_cells(const Spread *w, const Band *b, int64_t row, int64_t at, Scratch *s) noexcept nogil:
    """The pixels of the cells of a row, from `at` on: as floats if these are single ones, else with one by each."""
    cdef double height = row_cells(w.g)[b.row + row].size
    cdef int64_t k
    for k in range(b.cols):
        if w.single:
            (<float *> s.pixels)[at + k] = height * w.widths[b.col + k]
        else:
            s.pixels[at + k] = height * w.widths[b.col + k]
            s.inverses[at + k] = 1 / s.pixels[at + k]


cdef inline void divide_floats(const real *src, int64_t n, const real *pixels, real *dst) noexcept nogil:
    """dst[i] = src[i] / pixels[i], rounded once; whole vectors of them."""
    cdef int64_t whole = n // VL, i
    for i in range(whole):
        store(dst + i * VL, load(src + i * VL) / load(pixels + i * VL))
    if whole * VL < n:
        store(dst + whole * VL, load_some(src + whole * VL, n - whole * VL) / load(pixels + whole * VL))


cdef inline void divide_vector(const float *src, int64_t n, const double *pixels, const double *inverses, double *dst) noexcept nogil:
    """divide_line of a vector of which n are read."""
    store_doubles(dst, quotients(load_floats(src, n), load_doubles(pixels), load_doubles(inverses)))


cdef inline void divide_line(int storage, const char *src, int64_t n, const double *pixels, const double *inverses, Scratch *s, double *dst) noexcept nogil:
    """dst[i] = src[i] / pixels[i]; whole vectors of them."""
    cdef const float *floats = <const float *> src if storage == FLOAT32 else s.floats
    cdef const double *values = <const double *> src if storage == FLOAT64 else s.wide
    cdef int64_t whole = n // DOUBLES * DOUBLES, i
    if storage > FLOAT32:
        if storage > FLOAT64:
            widen(storage, src, n, s.wide)
        for i in range(n):
            dst[i] = values[i] / pixels[i]
        return
    if storage < FLOAT32:
        widen_halves(storage, src, n, s.floats)
    for i in range(whole // DOUBLES):
        divide_vector(floats + i * DOUBLES, DOUBLES, pixels + i * DOUBLES, inverses + i * DOUBLES, dst + i * DOUBLES)
    if whole < n:
        divide_vector(floats + whole, n - whole, pixels + whole, inverses + whole, dst + whole)


cdef inline void put(total *dst, bint halves, doubles v) noexcept nogil:
    """dst[0:DOUBLES] = v, rounded, or cut if it is to be rounded to 16 bits."""
    if total is double:
        store_doubles(dst, v)
    elif halves:
        store_floats(dst, odd_doubles(v))
    else:
        store_floats(dst, v)


cdef inline void mix_line(bint both, bint overlapping, bint halves, const double *above, const double *below, int64_t n, total *alone, total *shared) noexcept nogil:
    """alone[k] = above[k] + below[k], shared[k] = above[k] + above[k + 1] + below[k] + below[k + 1], if cells are `overlapping`; of `both`, or of those above.

    *Assumes:* the first three are compile-time constants of the caller; a vector more is readable than n cells need.
    """
    cdef int64_t i
    cdef doubles a = load_doubles(above), b = load_doubles(below), next_a, next_b, far
    for i in range(divide_up(n, DOUBLES)):
        next_a, next_b = load_doubles(above + (i + 1) * DOUBLES), load_doubles(below + (i + 1) * DOUBLES)
        if overlapping:
            far = a + next_doubles(a, next_a)
            if both:
                far = far + b + next_doubles(b, next_b)
            put(shared + i * DOUBLES, halves, far)
        put(alone + i * DOUBLES, halves, a + b if both else a)
        a, b = next_a, next_b


cdef inline void pick_line(const Picks *picks, int64_t n, const total *alone, const total *shared, total *dst) noexcept nogil:
    """dst[x] = alone[k] or shared[k], as each column picks."""
    cdef int64_t lanes = VL if total is float else DOUBLES, whole = n // lanes, i
    cdef const Picks *p
    for i in range(whole):
        p = picks + i
        if total is float:
            store(<real *> dst + i * VL, pick_reals(load(<const real *> alone + p.first), load(<const real *> shared + p.first), p.words))
        else:
            store_doubles(dst + i * DOUBLES, pick_doubles(load_doubles(alone + p.first), load_doubles(shared + p.first), p.words))
    if whole * lanes < n:
        p = picks + whole
        if total is float:
            store_some(<real *> dst + whole * VL, n - whole * VL, pick_reals(load(<const real *> alone + p.first), load(<const real *> shared + p.first), p.words))
        else:
            store_some_doubles(dst + whole * DOUBLES, n - whole * DOUBLES, pick_doubles(load_doubles(alone + p.first), load_doubles(shared + p.first), p.words))


cdef inline void round_planes(const Spread *w, const Strip *t, int64_t planes, const total *picked, char *dst) noexcept nogil:
    """dst[plane, h, x] = numbers that were picked, of other types than these."""
    cdef int64_t rows = t.bottom - t.top, lines = 1 if t.width == w.g.cols else rows, n = planes * rows * t.width // lines, size = item_size(w.storage), i
    for i in range(lines):
        if total is float:
            narrow_halves(w.storage, picked + i * n, n, dst + i * w.g.cols * size)
        else:
            narrow(w.storage, picked + i * n, n, dst + i * w.g.cols * size)


cdef inline void spread_part(const Spread *w, const Strip *t, const Band *b, int64_t plane, int64_t planes, bint halves, Scratch *s, total *picked) noexcept nogil:
    """The strip's rows of some planes of dx."""
    if w.by_rows:
        spread_rows(w, t, b, plane, halves, s, picked)
    else:
        spread_batch(w, t, b, plane, planes, halves, s, picked)


cdef void spread_planes(const void *work, int64_t index, void *slab) noexcept nogil:
    """The rows of a strip of dx, plane by plane or some small ones at a time."""
    cdef const Spread *w = <const Spread *> work
    cdef Scratch *s = <Scratch *> slab
    cdef Strip t = strip(&w.cut, index)
    cdef Band b = begin_band(w, &t, s)
    cdef int64_t plane = t.channel, end = t.channel + t.channels, planes
    while plane < end:
        planes = smaller(w.batch, end - plane)
        if w.storage == FLOAT32:
            spread_part(w, &t, &b, plane, planes, False, s, <float *> NULL)
        elif w.storage == FLOAT64:
            spread_part(w, &t, &b, plane, planes, False, s, <double *> NULL)
        elif w.storage < FLOAT32:
            spread_part(w, &t, &b, plane, planes, True, s, <float *> s.picked)
        else:
            spread_part(w, &t, &b, plane, planes, False, s, s.picked)
        plane += planes


cdef void plan_planes(Spread *w, int threads) noexcept nogil:
    """Cuts strips of planes, whole vectors wide, or of whole planes if these are small."""
    cdef const Pool *g = w.g
    cdef int64_t values = g.rows * g.cols, i
    w.batch, w.by_rows = 1, g.cell_cols >= LONG
    if values <= BATCH:
        w.cut = cut(1, g.planes, larger(smaller(larger(PLANES, 2 * BATCH // values), g.planes // (STRIPS * threads)), 1), TILE, g.rows, g.cols, threads)
        w.cut.width, w.cut.height = g.cols, g.rows
        w.batch = 1 if w.by_rows else smaller(BATCH // values, w.cut.channels)
    else:
        w.cut = cut(1, g.planes, PLANES, TILE, g.rows, g.cols, threads)
        w.cut.width = larger(smaller(WIDE_CELLS * g.cols // g.cell_cols, WIDE) // LINE, 1) * LINE
    pick_columns(w)
    w.single = w.storage == FLOAT32 and not w.overlapping and largest(row_cells(g), g.cell_rows) * largest(col_cells(g), g.cell_cols) <= FLOAT_WHOLE
    for i in range(g.rows):
        w.single &= w.row_spans[i].last - w.row_spans[i].first == 1


cdef int64_t cell_rows_of(const Spread *w) noexcept nogil:
    """Rows of cells of a strip, at most."""
    return smaller(w.cut.height + 1, w.g.cell_rows)


cdef void size_planes(Spread *w) noexcept nogil:
    """The room for a row of cells, or for those of a batch: its rows, one more, and what vectors read beyond."""
    w.room = whole((1 if w.by_rows else w.batch * (cell_rows_of(w) + 1)) * w.cells) + VL


cdef int64_t rooms(const Spread *w) noexcept nogil:
    """How many of them cells take: one for each row, and one of zeros."""
    return cell_rows_of(w) + 1 if w.by_rows else 1


cdef int64_t planes_size(const Spread *w) noexcept nogil:
    """Doubles of one thread's buffers."""
    cdef int64_t picked = 0 if w.storage == FLOAT32 or w.storage == FLOAT64 else whole(w.batch * w.cut.height * smaller(w.cut.width, w.g.cols))
    return (4 * rooms(w) + 4) * w.room + picked + whole(2 * w.cut.height) + whole(cell_rows_of(w))


cdef void place_planes(const Spread *w, double *slab, Scratch *s) noexcept nogil:
    """Gives a thread its buffers."""
    s.pixels = slab
    s.inverses = s.pixels + rooms(w) * w.room
    s.cells = s.inverses + rooms(w) * w.room
    s.wide = s.cells + rooms(w) * w.room
    s.floats = <float *> s.wide
    s.mixed = s.wide + rooms(w) * w.room
    s.picked = s.mixed + 4 * w.room
    s.mixes = <Mix *> (slab + planes_size(w) - whole(2 * w.cut.height) - whole(cell_rows_of(w)))
    s.tables = <int64_t *> (slab + planes_size(w) - whole(cell_rows_of(w)))
