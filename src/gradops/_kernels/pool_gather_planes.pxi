"""Part of `pool_gather`: planes of a single channel. Vectors are columns of the sums of rows, then cells, each of which picks its first column from one of some
windows, two vectors of sums wide, then its second ..., where cells are narrow enough (`Pick`). Few rows are summed where they lie, a window at a time. Of narrow
planes, a batch of contiguous ones has its rows summed at once, as if a cell began at each, for each height that cells have."""

cdef enum:
    AHEAD = 16384                                       # bytes that a plane is fetched ahead
    AHEAD_WRITTEN = 2048                                # and one of y
    MOST_PICKS = 12                                     # of a vector of cells
    MOST_CELLS = 256                                    # of a strip's row
    MOST_PICKING = 4096                                 # cells of a row that pick: their tables have 300 bytes for each
    SMALL = 4096                                        # values of planes of which a strip has some
    NARROW = 16                                         # columns of planes that are done in batches: `batch` says when twice as many are, or four times,
    NARROWEST = 7                                       # or only so many
    HEIGHTS = 3                                         # that cells of these may have, one after the other
    FEW = 3                                             # columns and rows of cells, at most, whose picks are unrolled


cdef struct Pick:                                       # one column of each cell of a vector, or of some of them
    char[64] words                                      # which one each picks: see pick_reals
    char[64] kept                                       # all bits set where it does
    int64_t first                                       # the column from which words count, from the first one of their strip's cells
    int64_t[7] unused                                   # so that words are aligned


cdef struct Picks:                                      # of a vector of cells of a row
    Pick[MOST_PICKS] each
    float[16] widths                                    # columns of each, or 1 beyond the last cell,
    double[8] wide_widths
    float[16] inverses                                  # and one by that,
    double[8] wide_inverses
    int64_t[8] exact                                    # if the first of these says that all of them are powers of two: products are quotients then


cdef bint pick_columns_of(const Gather *w, int64_t windows, int64_t most) noexcept nogil:
    """Fills the picks of cells of a row that have at most so many columns, from so many windows each; False if these would be too narrow."""
    cdef const Cell *cells = col_cells(w.g)
    cdef int64_t size = 4 if w.storage <= FLOAT32 else 8, lanes = VL * 4 // size, group = lanes // windows, k, j, lane, first, at, width
    cdef Pick *p
    cdef Picks *vector
    memset(w.picks, 0, divide_up(w.g.cell_cols, lanes) * sizeof(Picks))
    for k in range(divide_up(w.g.cell_cols, lanes) * lanes):
        vector, lane, width = w.picks + k // lanes, k % lanes, cells[k].size if k < w.g.cell_cols else 1
        vector.exact[0] = is_power(width) and (lane == 0 or vector.exact[0])
        if size == 4:
            vector.widths[lane], vector.inverses[lane] = width, 1.0 / width
        else:
            vector.wide_widths[lane], vector.wide_inverses[lane] = width, 1.0 / width
    for k in range(w.g.cell_cols):
        lane, first = k % lanes, cells[k // group * group].start
        if cells[k].start + cells[k].size - first > 2 * lanes:
            return False
        for j in range(most):
            p = w.picks[k // lanes].each + lane // group * most + j
            p.first = first - cells[k // w.cut.width * w.cut.width].start
            if j < cells[k].size:
                at = cells[k].start + j - first
                set_pick(p.words, size, lane, at % lanes, at >= lanes)
                memset(p.kept + lane * size, 0xff, size)
    return True


cdef int64_t pick_columns(const Gather *w) noexcept nogil:
    """The same from as few windows as do; returns how many, 0 if there would be too many picks."""
    cdef int64_t windows = 1
    while w.picks != NULL and w.storage <= FLOAT64 and windows * w.most <= MOST_PICKS and windows <= DOUBLES:
        if pick_columns_of(w, windows, w.most):
            return windows
        windows *= 2
    return 0


cdef inline vec sum_of_reals(int storage, const char *at, int64_t row, int rows) noexcept nogil:
    """The sum of a vector of each row; the storage is a compile-time constant of the caller."""
    cdef vec v = load_stored(storage, at)
    cdef int h
    for h in range(1, rows):
        v = v + load_stored(storage, at + h * row)
    return v


cdef inline doubles sum_of_doubles(const char *at, int64_t row, int rows) noexcept nogil:
    """sum_of_reals of numbers of 64 bits."""
    cdef doubles v = load_doubles(<const double *> at)
    cdef int h
    for h in range(1, rows):
        v = v + load_doubles(<const double *> (at + h * row))
    return v


cdef inline void pick_cells(int storage, const Picks *picks, int64_t windows, int64_t most, int rows, int64_t n, const char *src, int64_t row, int64_t height, total *dst) noexcept nogil:
    """dst[0:n] = the means of a vector of cells, which have at most so many columns, from the sums of rows that are `row` bytes apart, of cells of that height.
    The storage, of what is summed, is a compile-time constant of the caller."""
    cdef const Pick *p = picks.each
    cdef const char *window
    cdef int64_t i, j
    cdef bint exact = picks.exact[0] and is_power(height)
    cdef vec v = zero(), a, b
    cdef doubles d = no_doubles(), e, f
    for i in range(windows):
        window = src + p.first * item_size(storage)
        if total is float:
            a, b = sum_of_reals(storage, window, row, rows), sum_of_reals(storage, window + VL * item_size(storage), row, rows)
        elif total is double:
            e, f = sum_of_doubles(window, row, rows), sum_of_doubles(window + DOUBLES * sizeof(double), row, rows)
        for j in range(most):
            if total is float:
                v = v + keep(pick_reals(a, b, p.words), load(<const real *> p.kept))
            elif total is double:
                d = d + keep_doubles(pick_doubles(e, f, p.words), p.kept)
            p += 1
    if total is float:
        if exact:
            v = v * (<real> (1.0 / height) * load(<const real *> picks.inverses))
        else:
            v = v / (<real> height * load(<const real *> picks.widths))
        if n >= VL:
            store(<real *> dst, v)
        else:
            store_some(<real *> dst, n, v)
    elif total is double:
        if exact:
            d = d * (1.0 / height * load_doubles(picks.wide_inverses))
        else:
            d = d / (<double> height * load_doubles(picks.wide_widths))
        if n >= DOUBLES:
            store_doubles(dst, d)
        else:
            store_some_doubles(dst, n, d)


cdef inline void pick_few(int storage, const Gather *w, const Picks *picks, int rows, int64_t n, const char *src, int64_t row, int64_t height, total *dst) noexcept nogil:
    """pick_all_cells of cells of few columns and one window: those of ratios below 2."""
    cdef int64_t lanes = VL if total is float else DOUBLES, i
    if w.most == 2:
        for i in range(divide_up(n, lanes)):
            pick_cells(storage, picks + i, 1, 2, rows, n - i * lanes, src, row, height, dst + i * lanes)
    else:
        for i in range(divide_up(n, lanes)):
            pick_cells(storage, picks + i, 1, 3, rows, n - i * lanes, src, row, height, dst + i * lanes)


cdef inline bint is_few(const Gather *w) noexcept nogil:
    """Whether picks are unrolled."""
    return w.windows == 1 and 2 <= w.most <= FEW


cdef inline bint reads_at_once(const Gather *w) noexcept nogil:
    """Whether rows are summed where they lie, window by window."""
    return is_few(w) and (w.storage >= FLOAT32 or WIDE > 1)


cdef void pick_all_cells(const Gather *w, const Picks *picks, int64_t n, const total *sums, int64_t height, total *dst) noexcept nogil:
    """dst[0:n] = the means of cells of that height, whose rows are summed."""
    cdef int64_t lanes = VL if total is float else DOUBLES, i
    if is_few(w):
        pick_few(FLOAT32 if total is float else FLOAT64, w, picks, 1, n, <const char *> sums, 0, height, dst)
        return
    for i in range(divide_up(n, lanes)):
        pick_cells(FLOAT32 if total is float else FLOAT64, picks + i, w.windows, w.most, 1, n - i * lanes, <const char *> sums, 0, height, dst + i * lanes)


cdef inline void pick_at_once(int storage, const Gather *w, const Picks *picks, int64_t n, const char *src, int64_t row, int64_t rows, total *dst) noexcept nogil:
    """pick_all_cells of few rows, which are summed where they lie, window by window: 0.5 to 0.8 of the time (Zen 4)."""
    if rows == 1:
        pick_few(storage, w, picks, 1, n, src, row, rows, dst)
    elif rows == 2:
        pick_few(storage, w, picks, 2, n, src, row, rows, dst)
    else:
        pick_few(storage, w, picks, 3, n, src, row, rows, dst)


cdef inline void pick_row(const Gather *w, const Strip *t, int64_t r, const char *below, total *wide, total *sums, total *dst) noexcept nogil:
    """dst[k] = row r of a plane of a strip of y. Fetches what lies AHEAD. Windows reach over the end of a row, so that the last ones of all are copied."""
    cdef const Pool *g = w.g
    cdef const Cell *cells = col_cells(g) + t.x
    cdef Cell cell = row_cells(g)[r]
    cdef int64_t size = item_size(w.storage), lanes = VL if total is float else DOUBLES, n = cells[t.width - 1].start + cells[t.width - 1].size - cells[0].start, row = g.cols * size, h
    cdef const Picks *picks = w.picks + t.x // lanes
    cdef const char *src = w.x + ((t.plane * g.rows + cell.start) * g.cols + cells[0].start) * size
    cdef const char *end = w.x + g.planes * g.rows * g.cols * size
    if w.ahead:
        fetch_lines(below, t.width * size, False)
    if reads_at_once(w) and cell.size <= FEW and src + (cell.size - 1) * row + (picks[(t.width - 1) // lanes].each[0].first + 2 * lanes) * size <= end:
        for h in range(cell.size, cell.size + rows_ahead(w, r)):
            fetch_lines(src + AHEAD + h * row, n * size, False)
        if total is double:
            pick_at_once(FLOAT64, w, picks, t.width, src, row, cell.size, dst)
        elif w.storage == FLOAT32:
            pick_at_once(FLOAT32, w, picks, t.width, src, row, cell.size, dst)
        elif w.storage == FLOAT16:
            pick_at_once(FLOAT16, w, picks, t.width, src, row, cell.size, dst)
        else:
            pick_at_once(BFLOAT16, w, picks, t.width, src, row, cell.size, dst)
        return
    add_rows(w, src, row, cell.size, n, rows_ahead(w, r), AHEAD, wide, sums)
    pick_all_cells(w, picks, t.width, sums, cell.size, dst)


cdef void gather_batch(const Gather *w, int64_t plane, int64_t planes, total *scratch) noexcept nogil:
    """Some contiguous planes of y. Fetches as many that follow."""
    cdef const Pool *g = w.g
    cdef int64_t size = item_size(w.storage), n = planes * g.rows * g.cols, height, i, r
    cdef const char *src = w.x + plane * g.rows * g.cols * size
    cdef char *dst = w.y + plane * g.cell_rows * g.cell_cols * size
    cdef total *sums = scratch + TILE - w.low * (TILE + PAD)
    cdef total *acc = <total *> dst if w.storage >= FLOAT32 else scratch + TILE + HEIGHTS * (TILE + PAD)
    cdef Cell cell
    if w.ahead:
        fetch_lines(src + n * size, n * size, False)
    for height in range(w.low, w.high + 1):
        add_rows(w, src, g.cols * size, height, n - (height - 1) * g.cols, 0, 0, scratch, sums + height * (TILE + PAD))
    for i in range(planes):
        for r in range(g.cell_rows):
            cell = row_cells(g)[r]
            pick_all_cells(
                w, w.picks, g.cell_cols, sums + cell.size * (TILE + PAD) + (i * g.rows + cell.start) * g.cols + col_cells(g).start, cell.size,
                acc + (i * g.cell_rows + r) * g.cell_cols,
            )
    if total is float:
        if w.storage < FLOAT32:
            narrow(w.storage, <const real *> acc, planes * g.cell_rows * g.cell_cols, dst)


cdef void gather_plane(const Gather *w, const Strip *t, total *scratch) noexcept nogil:
    """The rows of a plane of a strip of y."""
    cdef const Pool *g = w.g
    cdef total *sums = scratch + TILE
    cdef total *acc = sums + TILE + PAD
    cdef int64_t r
    cdef char *dst
    for r in range(t.top, t.bottom):
        dst = w.y + ((t.plane * g.cell_rows + r) * g.cell_cols + t.x) * item_size(w.storage)
        if w.storage >= FLOAT32:
            pick_row(w, t, r, dst + AHEAD_WRITTEN, scratch, sums, <total *> dst)
        else:
            pick_row(w, t, r, dst + AHEAD_WRITTEN, scratch, sums, acc)
            if total is float:
                narrow(w.storage, <const real *> acc, t.width, dst)


cdef void gather_planes(const Gather *w, const Strip *t, total *scratch) noexcept nogil:
    """A strip of y whose channels are planes."""
    cdef Strip one = t[0]
    cdef int64_t i
    one.channel, one.channels = 0, 1
    if total is float or total is double:               # others pick nothing
        if w.batch:
            for i in range(divide_up(t.channels, w.batch)):
                gather_batch(w, t.channel + i * w.batch, smaller(w.batch, t.channels - i * w.batch), scratch)
            return
        if w.windows:
            for one.plane in range(t.channel, t.channel + t.channels):
                gather_plane(w, &one, scratch)
            return
    for one.plane in range(t.channel, t.channel + t.channels):
        gather_rows(w, &one, scratch)


cdef int64_t batch(Gather *w) noexcept nogil:
    """How many planes are done at once, 0 if they are not: wider ones where half of all rows begin a cell, or numbers have 16 bits (0.7 to 1.0 of the time). Of cells of
    which few rows and columns are summed where they lie, planes of 8 to 32 columns take 1.1 to 1.6 times as long in batches, of 5 columns 0.75 to 0.85; in 16 bits those of
    20 to 32 columns 0.9 to 1.4, of 8 to 15 0.7 to 1.0 (Zen 4)."""
    cdef const Pool *g = w.g
    cdef int64_t most = NARROW * (2 if 2 * g.cell_rows >= g.rows else 1) * (2 if w.storage < FLOAT32 else 1), r
    w.low, w.high = row_cells(g).size, largest(row_cells(g), g.cell_rows)
    for r in range(g.cell_rows):
        w.low = smaller(w.low, row_cells(g)[r].size)
    if reads_at_once(w) and w.high <= FEW:
        most = NARROWEST if w.storage >= FLOAT32 else NARROW
    if w.windows == 0 or w.high - w.low >= HEIGHTS or g.cols > most:
        return 0
    return TILE // (g.rows * g.cols)


cdef void plan_planes(Gather *w, int threads) noexcept nogil:
    """Cuts strips of planes, of several if these are small."""
    cdef const Pool *g = w.g
    cdef int64_t values = g.rows * g.cols
    w.cut = cut(1, g.planes, larger(smaller(SMALL // values, g.planes // (STRIPS * threads)), 1), MOST_CELLS, g.cell_rows, g.cell_cols, threads)
    w.cut.width = MOST_CELLS
    w.most = largest(col_cells(g), g.cell_cols)
    w.windows = pick_columns(w)
    w.batch = batch(w)
    if w.batch:
        w.cut.height = g.cell_rows
