"""Part of `pool_spread`: planes of a single channel, whose rows and columns lie in one cell or in two neighbours each.

A row of dx has few different numbers: of each column cell that of the columns which lie in no other (`alone`) and that of the columns which lie in the
next one, too (`shared`). Both are summed in float64 for each row of cells and for each two neighbours, vectors being cells; rounded, they are what columns
pick a vector at a time (`Picks`). So much is done of a plane of a strip, or of several small ones, whose cells are contiguous.
"""

cdef enum:
    PLANES = 16                                         # of a strip, or more, if there are as many for each thread: what they have in common is found once
    BATCH = 2048                                        # values of small planes that are done together
    WIDE = 2048                                         # columns of a strip, at most; and of cells
    WIDE_CELLS = 256
    FLOAT_WHOLE = 1 << 24                               # whole numbers up to here are floats
    NARROW = 24                                         # cells of a row from which on rows are summed one by one, and only those needed


cdef struct Picks:                                      # of a vector of columns
    char[64] words                                      # which cell each is of, and whether shared: see pick_reals
    int64_t first                                       # the cell from which these count, from its strip's first
    int64_t[7] unused                                   # so that words are aligned


cdef struct Mix:                                        # what a row of dx is made of
    int64_t first                                       # its first cell, of the strip's in a plane
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
    """Counts the pixels of the cells of a batch and finds what rows are made of."""
    cdef Band b
    cdef int64_t h, i, k
    cdef double height
    cdef Span span
    b.row, b.rows = w.row_spans[t.top].first, w.row_spans[t.bottom - 1].last - w.row_spans[t.top].first
    b.col, b.cols = w.col_spans[t.x].first, w.col_spans[t.x + t.width - 1].last - w.col_spans[t.x].first
    b.size = b.rows * b.cols
    b.alone = b.both = False
    for i in range(b.rows):
        height = row_cells(w.g)[b.row + i].size
        for k in range(i * b.cols, (i + 1) * b.cols):
            s.pixels[k] = height * w.widths[b.col + k - i * b.cols]
            s.inverses[k] = 1 / s.pixels[k]
    if w.single:
        for k in range(b.size):
            (<float *> s.inverses)[k] = s.pixels[k]
    for i in range(1, smaller(w.batch, t.channels)):
        memcpy(s.pixels + i * b.size, s.pixels, b.size * sizeof(double))
        if w.single:
            memcpy(<float *> s.inverses + i * b.size, s.inverses, b.size * sizeof(float))
        else:
            memcpy(s.inverses + i * b.size, s.inverses, b.size * sizeof(double))
    for h in range(t.bottom - t.top):
        span = w.row_spans[t.top + h]
        s.mixes[h] = Mix((span.first - b.row) * b.cols, span.last - span.first > 1, False)
        s.mixes[h].again = h > 0 and s.mixes[h].first == s.mixes[h - 1].first and s.mixes[h].both == s.mixes[h - 1].both
        b.alone |= not s.mixes[h].both
        b.both |= s.mixes[h].both
    return b


cdef inline void divide_floats(const float *src, int64_t n, const float *pixels, float *dst) noexcept nogil:
    """dst[i] = src[i] / pixels[i], rounded once."""
    cdef int64_t i
    for i in range(n):
        dst[i] = src[i] / pixels[i]


cdef inline void divide_line(int storage, const char *src, int64_t n, const double *pixels, const double *inverses, Scratch *s, double *dst) noexcept nogil:
    """dst[i] = src[i] / pixels[i]; whole vectors of them."""
    cdef const float *floats = <const float *> src if storage == FLOAT32 else s.floats
    cdef const double *values = <const double *> src if storage == FLOAT64 else s.wide
    cdef int64_t i
    if storage > FLOAT32:
        if storage > FLOAT64:
            widen(storage, src, n, s.wide)
        for i in range(n):
            dst[i] = values[i] / pixels[i]
        return
    if storage < FLOAT32:
        widen_halves(storage, src, n, s.floats)
    for i in range(divide_up(n, DOUBLES)):
        store_doubles(
            dst + i * DOUBLES,
            quotients(load_floats(floats + i * DOUBLES, n - i * DOUBLES), load_doubles(pixels + i * DOUBLES), load_doubles(inverses + i * DOUBLES)),
        )


cdef inline void divide_planes(const Spread *w, const Band *b, int64_t planes, const char *src, Scratch *s) noexcept nogil:
    """s.cells[plane, r, k] = src[plane, r, k] / pixels(r, k); several planes are contiguous."""
    cdef int64_t lines = 1 if b.cols == w.g.cell_cols else b.rows, n = planes * b.size // lines, i
    for i in range(lines):
        if w.single:
            divide_floats(<const float *> src + i * w.g.cell_cols, n, <const float *> s.inverses + i * n, <float *> s.mixed + i * n)
            continue
        divide_line(w.storage, src + i * w.g.cell_cols * item_size(w.storage), n, s.pixels + i * n, s.inverses + i * n, s, s.cells + i * n)


cdef inline void put(total *dst, bint halves, doubles v) noexcept nogil:
    """dst[0:DOUBLES] = v, rounded, or cut if it is to be rounded to 16 bits."""
    if total is double:
        store_doubles(dst, v)
    elif halves:
        store_floats(dst, odd_doubles(v))
    else:
        store_floats(dst, v)


cdef inline void mix_line(const double *above, const double *below, int64_t n, bint both, bint overlapping, bint halves, total *alone, total *shared) noexcept nogil:
    """alone[k] = above[k] + below[k], shared[k] = above[k] + above[k + 1] + below[k] + below[k + 1], `both` of them or only those above."""
    cdef int64_t i
    cdef doubles near, far
    for i in range(divide_up(n, DOUBLES)):
        near = load_doubles(above + i * DOUBLES)
        if overlapping:
            far = near + load_doubles(above + i * DOUBLES + 1)
            if both:
                far = far + load_doubles(below + i * DOUBLES) + load_doubles(below + i * DOUBLES + 1)
            put(shared + i * DOUBLES, halves, far)
        if both:
            near = near + load_doubles(below + i * DOUBLES)
        put(alone + i * DOUBLES, halves, near)


cdef inline void mix_any(const Spread *w, const Band *b, int64_t first, int64_t n, bint both, bint halves, Scratch *s, total *mixed) noexcept nogil:
    """mix_line of n cells of rows of dx of one kind, each kind in a loop of its own."""
    cdef const double *cells = s.cells + first
    cdef total *alone = mixed + (2 * w.room if both else 0) + first
    if both and w.overlapping:
        mix_line(cells, cells + b.cols, n, True, True, halves, alone, alone + w.room)
    elif both:
        mix_line(cells, cells + b.cols, n, True, False, halves, alone, alone + w.room)
    elif w.overlapping:
        mix_line(cells, cells, n, False, True, halves, alone, alone + w.room)
    else:
        mix_line(cells, cells, n, False, False, halves, alone, alone + w.room)


cdef inline void mix_planes(const Spread *w, const Strip *t, const Band *b, int64_t planes, bint halves, const char *dst, Scratch *s, total *mixed) noexcept nogil:
    """Sums what columns pick, of all rows or of those needed. Fetches the rows of dx meanwhile."""
    cdef int64_t size = item_size(w.storage), h, i
    cdef Mix m
    if b.cols < NARROW:
        if w.ahead:
            fetch_lines(dst, planes * (t.bottom - t.top) * w.g.cols * size, False)
        if b.alone and not w.single:
            mix_any(w, b, 0, planes * b.size, False, halves, s, mixed)
        if b.both:
            mix_any(w, b, 0, planes * b.size, True, halves, s, mixed)
        return
    for i in range(planes):
        for h in range(t.bottom - t.top):
            if w.ahead:
                fetch_lines(dst + (i * w.g.rows + h) * w.g.cols * size, t.width * size, False)
            m = s.mixes[h]
            if not m.again and not w.single:
                mix_any(w, b, i * b.size + m.first, b.cols, m.both, halves, s, mixed)


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


cdef inline void pick_planes(
    const Spread *w, const Strip *t, const Band *b, int64_t planes, const char *next, Scratch *s, const total *mixed, total *dst, int64_t ld
) noexcept nogil:
    """dst[plane, h ld + x] = what each column picks. Fetches the next planes of dy meanwhile."""
    cdef const Picks *picks = w.picks + t.x // (VL if total is float else DOUBLES)
    cdef int64_t rows = t.bottom - t.top, share = divide_up(b.size * item_size(w.storage), rows), i, h
    cdef const total *alone
    for i in range(planes):
        for h in range(rows):
            if w.ahead:
                fetch_lines(next + (i * rows + h) * share, share, False)
            alone = mixed + (2 * w.room if s.mixes[h].both else 0) + i * b.size + s.mixes[h].first
            pick_line(picks, t.width, alone, alone + w.room, dst + h * ld)
        dst += w.g.rows * ld


cdef inline void round_planes(const Spread *w, const Strip *t, int64_t planes, Scratch *s, char *dst) noexcept nogil:
    """dst[plane, h, x] = numbers that were picked, of other types than these."""
    cdef int64_t rows = t.bottom - t.top, lines = 1 if t.width == w.g.cols else rows, n = planes * rows * t.width // lines, size = item_size(w.storage), i
    for i in range(lines):
        if w.storage < FLOAT32:
            narrow_halves(w.storage, s.picked_floats + i * n, n, dst + i * w.g.cols * size)
        else:
            narrow(w.storage, s.picked + i * n, n, dst + i * w.g.cols * size)


cdef void spread_batch(const Spread *w, const Strip *t, const Band *b, int64_t plane, int64_t planes, Scratch *s) noexcept nogil:
    """The strip's rows of some planes of dx."""
    cdef const Pool *g = w.g
    cdef int64_t size = item_size(w.storage)
    cdef const char *src = w.dy + ((plane * g.cell_rows + b.row) * g.cell_cols + b.col) * size
    cdef const char *next = src + planes * g.cell_rows * g.cell_cols * size
    cdef char *dst = w.dx + ((plane * g.rows + t.top) * g.cols + t.x) * size
    cdef float *floats = <float *> s.mixed
    divide_planes(w, b, planes, src, s)
    if w.storage == FLOAT32:
        mix_planes(w, t, b, planes, False, dst, s, floats)
        pick_planes(w, t, b, planes, next, s, floats, <float *> dst, g.cols)
    elif w.storage == FLOAT64:
        mix_planes(w, t, b, planes, False, dst, s, s.mixed)
        pick_planes(w, t, b, planes, next, s, s.mixed, <double *> dst, g.cols)
    elif w.storage < FLOAT32:
        mix_planes(w, t, b, planes, True, dst, s, floats)
        pick_planes(w, t, b, planes, next, s, floats, s.picked_floats, t.width)
        round_planes(w, t, planes, s, dst)
    else:
        mix_planes(w, t, b, planes, False, dst, s, s.mixed)
        pick_planes(w, t, b, planes, next, s, s.mixed, s.picked, t.width)
        round_planes(w, t, planes, s, dst)


cdef void spread_planes(const void *work, int64_t index, void *slab) noexcept nogil:
    """The rows of a strip of dx, plane by plane or some small ones at a time."""
    cdef const Spread *w = <const Spread *> work
    cdef Scratch *s = <Scratch *> slab
    cdef Strip t = strip(&w.cut, index)
    cdef Band b = begin_band(w, &t, s)
    cdef int64_t i
    for i in range(divide_up(t.channels, w.batch)):
        spread_batch(w, &t, &b, t.channel + i * w.batch, smaller(w.batch, t.channels - i * w.batch), s)


cdef void plan_planes(Spread *w, int threads) noexcept nogil:
    """Cuts strips of planes, whole vectors wide, or of whole planes if these are small."""
    cdef const Pool *g = w.g
    cdef int64_t values = g.rows * g.cols, i
    w.batch = 1
    if values <= BATCH:
        w.cut = cut(1, g.planes, larger(smaller(larger(PLANES, 2 * BATCH // values), g.planes // (STRIPS * threads)), 1), TILE, g.rows, g.cols, threads)
        w.cut.width, w.cut.height = g.cols, g.rows
        w.batch = smaller(BATCH // values, w.cut.channels)
    else:
        w.cut = cut(1, g.planes, PLANES, TILE, g.rows, g.cols, threads)
        w.cut.width = larger(smaller(WIDE_CELLS * g.cols // g.cell_cols, WIDE) // LINE, 1) * LINE
    pick_columns(w)
    w.single = w.storage == FLOAT32 and not w.overlapping and largest(row_cells(g), g.cell_rows) * largest(col_cells(g), g.cell_cols) <= FLOAT_WHOLE
    for i in range(g.rows):
        w.single &= w.row_spans[i].last - w.row_spans[i].first == 1


cdef void size_planes(Spread *w) noexcept nogil:
    """The room for cells of a batch: those of its rows, one more, and what vectors read beyond."""
    w.room = whole(w.batch * (smaller(w.cut.height + 1, w.g.cell_rows) + 1) * w.cells + LINE)


cdef int64_t planes_size(const Spread *w) noexcept nogil:
    """Doubles of one thread's buffers."""
    cdef int64_t picked = 0 if w.storage == FLOAT32 or w.storage == FLOAT64 else w.batch * w.cut.height * smaller(w.cut.width, w.g.cols)
    return 8 * w.room + 2 * w.cut.height + picked + 2 * LINE


cdef void place_planes(const Spread *w, double *slab, Scratch *s) noexcept nogil:
    """Gives a thread its buffers."""
    s.pixels = slab
    s.inverses = s.pixels + w.room
    s.cells = s.inverses + w.room
    s.wide = s.cells + w.room
    s.floats = <float *> s.wide
    s.mixed = s.wide + w.room
    s.mixes = <Mix *> (s.mixed + 4 * w.room)
    s.picked = <double *> (s.mixes + w.cut.height)
    s.picked_floats = <float *> s.picked
