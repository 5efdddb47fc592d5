"""Part of `pool_spread`: planes whose rows of cells are long, a row of dx after the other. All rows but single quotients are sums of two, if need be of one and a row of
negative zeros, which change no number: branches that follow the cells are guessed wrongly, which takes as long as the sums. A row is picked when the
next one has been summed, since vectors of what has just been written in parts are long in coming."""

cdef enum:
    FETCHED = 4096                                      # bytes that dx is fetched ahead, in the next plane if need be


cdef void count_rows(const Spread *w, const Band *b, Scratch *s) noexcept nogil:
    """count_cells of rows, one of those that are of the same height."""
    cdef int64_t tables = 0, i, k
    for i in range(b.rows):
        s.tables[i] = -1
        for k in range(i):
            if row_cells(w.g)[b.row + k].size == row_cells(w.g)[b.row + i].size:
                s.tables[i] = s.tables[k]
                break
        if s.tables[i] < 0:
            s.tables[i] = tables * w.room
            count_cells(w, b, i, s.tables[i], s)
            tables += 1
    for k in range(w.room):
        s.cells[b.rows * w.room + k] = -0.0


cdef inline void divide_rows(const Spread *w, const Band *b, const char *src, Scratch *s) noexcept nogil:
    """s.cells[r, k] = src[r, k] / pixels(r, k)."""
    cdef int64_t lines = 1 if b.cols == w.g.cell_cols else b.rows, n = b.size // lines, row = w.g.cell_cols * item_size(w.storage), i
    cdef int storage = w.storage
    if storage < FLOAT32:                               # at once where rows follow each other: 0.7 to 0.9 of the time
        for i in range(lines):
            widen_halves(storage, src + i * row, n, s.floats + i * n)
        src, row, storage = <const char *> s.floats, b.cols * <int64_t> sizeof(float), FLOAT32
    for i in range(b.rows):
        divide_line(storage, src + i * row, b.cols, s.pixels + s.tables[i], s.inverses + s.tables[i], s, s.cells + i * w.room)


cdef inline void mix_row(const Spread *w, const Band *b, const Mix *m, const char *src, bint halves, Scratch *s, total *mixed) noexcept nogil:
    """Sums what the columns of a row of dx pick."""
    cdef const double *above = s.cells + m.row * w.room
    cdef const double *below = s.cells + (m.row + 1 if m.both else b.rows) * w.room
    if w.single:
        divide_floats(<const real *> (src + m.row * w.g.cell_cols * sizeof(real)), b.cols, <const real *> s.pixels + s.tables[m.row], <real *> mixed)
    elif w.overlapping:
        mix_line(True, True, halves, above, below, b.cols, mixed, mixed + w.room)
    else:
        mix_line(True, False, halves, above, below, b.cols, mixed, mixed + w.room)


cdef inline void spread_rows(const Spread *w, const Strip *t, const Band *b, int64_t plane, bint halves, Scratch *s, total *picked) noexcept nogil:
    """The strip's rows of a plane of dx, which are `picked` before they are rounded unless that is NULL. Fetches them, and those of dy of the next plane."""
    cdef const Pool *g = w.g
    cdef int64_t size = item_size(w.storage), row = g.cols * size, rows = t.bottom - t.top, share = divide_up(b.size * size, rows), far = smaller(FETCHED // row, rows), h
    cdef const char *src = w.dy + ((plane * g.cell_rows + b.row) * g.cell_cols + b.col) * size
    cdef char *dst = w.dx + ((plane * g.rows + t.top) * g.cols + t.x) * size
    cdef const Picks *picks = w.picks + t.x // (VL if total is float else DOUBLES)
    cdef total *now = <total *> s.mixed
    cdef total *other = now + 2 * w.room
    cdef const total *last
    if not w.single:
        divide_rows(w, b, src, s)
    for h in range(rows + 1):
        last = now
        if h < rows and not s.mixes[h].again:
            now, other = other, now
            mix_row(w, b, s.mixes + h, src, halves, s, now)
        if h == 0:
            continue
        if w.ahead:
            fetch_lines(dst + (far if h - 1 + far < rows else g.rows - rows + far) * row, t.width * size, False)
            fetch_lines(src + g.cell_rows * g.cell_cols * size + (h - 1) * share, share, False)
        pick_line(picks, t.width, last, last + w.room, <total *> dst if picked == NULL else picked + (h - 1) * t.width)
        dst += row
    if picked != NULL:
        round_planes(w, t, 1, picked, dst - rows * row)
