"""Part of `pool_spread`: planes whose rows of cells are short. The cells of all rows of a plane, or of several small planes, are contiguous: they are
divided and summed as if they were one row, each with the one below it, too."""


cdef void count_planes(const Spread *w, const Band *b, int64_t planes, Scratch *s) noexcept nogil:
    """count_cells of all rows of some planes."""
    cdef int64_t each = b.size * (sizeof(float) if w.single else sizeof(double)), i
    for i in range(b.rows):
        count_cells(w, b, i, i * b.cols, s)
    for i in range(1, planes):
        memcpy(<char *> s.pixels + i * each, s.pixels, each)
        memcpy(<char *> s.inverses + i * each, s.inverses, each)


cdef inline void divide_planes(const Spread *w, const Band *b, int64_t planes, const char *src, Scratch *s) noexcept nogil:
    """s.cells[plane, r, k] = src[plane, r, k] / pixels(r, k); several planes are contiguous."""
    cdef int64_t lines = 1 if b.cols == w.g.cell_cols else b.rows, n = planes * b.size // lines, i
    for i in range(lines):
        if w.single:
            divide_floats(<const real *> src + i * w.g.cell_cols, n, <const real *> s.pixels + i * n, <real *> s.mixed + i * n)
            continue
        divide_line(w.storage, src + i * w.g.cell_cols * item_size(w.storage), n, s.pixels + i * n, s.inverses + i * n, s, s.cells + i * n)


cdef inline void mix_planes(const Spread *w, const Band *b, bint both, int64_t n, bint halves, const Scratch *s, total *mixed) noexcept nogil:
    """Sums of one row of cells, or of both, as if each cell were the first one of a row."""
    cdef const double *below = s.cells + b.cols
    if both and w.overlapping:
        mix_line(True, True, halves, s.cells, below, n, mixed, mixed + w.room)
    elif both:
        mix_line(True, False, halves, s.cells, below, n, mixed, mixed + w.room)
    elif w.overlapping:
        mix_line(False, True, halves, s.cells, below, n, mixed, mixed + w.room)
    else:
        mix_line(False, False, halves, s.cells, below, n, mixed, mixed + w.room)


cdef inline void pick_planes(const Spread *w, const Strip *t, const Band *b, int64_t planes, const char *next, Scratch *s, const total *mixed, total *dst, int64_t ld) noexcept nogil:
    """dst[plane, h ld + x] = what each column picks. Fetches the next planes of dy meanwhile."""
    cdef const Picks *picks = w.picks + t.x // (VL if total is float else DOUBLES)
    cdef int64_t rows = t.bottom - t.top, share = divide_up(b.size * item_size(w.storage), rows), i, h
    cdef const total *alone
    for i in range(planes):
        for h in range(rows):
            if w.ahead:
                fetch_lines(next + (i * rows + h) * share, share, False)
            alone = mixed + (2 * w.room if s.mixes[h].both else 0) + i * b.size + s.mixes[h].row * b.cols
            pick_line(picks, t.width, alone, alone + w.room, dst + h * ld)
        dst += w.g.rows * ld


cdef inline void spread_batch(const Spread *w, const Strip *t, const Band *b, int64_t plane, int64_t planes, bint halves, Scratch *s, total *picked) noexcept nogil:
    """The strip's rows of some planes of dx, which are `picked` before they are rounded unless that is NULL. Fetches them, and as many that follow of dy."""
    cdef const Pool *g = w.g
    cdef int64_t size = item_size(w.storage)
    cdef const char *src = w.dy + ((plane * g.cell_rows + b.row) * g.cell_cols + b.col) * size
    cdef const char *next = src + planes * g.cell_rows * g.cell_cols * size
    cdef char *dst = w.dx + ((plane * g.rows + t.top) * g.cols + t.x) * size
    cdef total *mixed = <total *> s.mixed
    divide_planes(w, b, planes, src, s)
    if w.ahead:
        fetch_lines(dst, planes * (t.bottom - t.top) * g.cols * size, False)
    if b.alone and not w.single:
        mix_planes(w, b, False, planes * b.size, halves, s, mixed)
    if b.both:
        mix_planes(w, b, True, planes * b.size, halves, s, mixed + 2 * w.room)
    pick_planes(w, t, b, planes, next, s, mixed, <total *> dst if picked == NULL else picked, g.cols if picked == NULL else t.width)
    if picked != NULL:
        round_planes(w, t, planes, picked, dst)
