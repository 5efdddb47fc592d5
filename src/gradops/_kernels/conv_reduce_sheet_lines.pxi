"""Part of `conv_reduce`: register tiles of sheets. dy is turned, pixel by pixel, and x read row by row: where a row of pixels ends, tiles go on with the next one."""
from libc.stdint cimport int64_t
from _gemm cimport TAPS, Operands, Taps, at_result, gemm_tile, operands
from _lines cimport lines_left
from _patches cimport Patches, reads_row
from _problem cimport divide_up, part, smaller
from _sheet cimport tap_place
from _storage cimport real, MR, NR, NV, PAIR, REAL_STORAGE, TILE, VL, place_halves, widen_block


cdef int64_t place_lines(const Reduce *w, const Patches *p, const Piece *at, int64_t *lies, int64_t *depths) noexcept nogil:
    """Where each row of pixels begins in a sheet, and how many steps it has. Returns how many rows there are."""
    cdef int64_t i
    for i in range(at.images * at.rows):
        lies[i] = (i // at.rows * w.sheets.row.pitch + i % at.rows) * w.sheets.col.pitch // PAIR
        depths[i] = divide_up(p.col.count, PAIR)
    return at.images * at.rows


cdef struct Run:                                        # the rows of pixels that read rows of the image with a tap, from the first to the last one
    int64_t first, count


cdef Run run_inside(const Patches *p, const Piece *at, int64_t tap_row) noexcept nogil:
    """One, which reads zeros, if none does. Without those before and after, 3x3 taps take 0.97 to 1.0 of the time (bfloat16, 7x7 to 56x56 pixels, 2 threads of a Zen 4)."""
    cdef int64_t end = at.images * at.rows
    cdef Run r
    r.first = 0
    while r.first < end - 1 and not reads_row(p, at.row + r.first % at.rows, tap_row):
        r.first += 1
    while r.first < end - 1 and not reads_row(p, at.row + (end - 1) % at.rows, tap_row):
        end -= 1
    r.count = end - r.first
    return r


cdef void turn_dy(const Reduce *w, const Patches *p, const Panel *b, const Piece *at) noexcept nogil:
    """Panels of dy, pixel by pixel, or pair by pair, of which none has pixels of two rows."""
    cdef int64_t columns = p.col.count, width = divide_up(columns, PAIR) * PAIR, count = at.rows * width, panel, n
    cdef Panel some = b[0]
    if PAIR == 1 or w.g.dst_c == 1:
        pack_dy(w, p, b.group * w.g.dst_channels + b.channel, b.channels, (at.image * p.row.count + at.row) * columns, at.images * at.rows * columns, w.g.dst_c == 1, b.dy, DEPTH * NR)
        return
    for panel in range(divide_up(b.channels, NR)):
        some.channel, some.channels = b.channel + panel * NR, smaller(b.channels - panel * NR, NR)
        for n in range(at.images):
            turn_lines(w, p, &some, at.image + n, at.row, at.rows, b.dy + (panel * DEPTH + n * count // PAIR) * NR)


cdef void turn_lines(const Reduce *w, const Patches *p, const Panel *b, int64_t image, int64_t row, int64_t rows, real *dst) noexcept nogil:
    """A panel of pairs, some rows of an image, from where they lie or by way of copied ones, with a zero beside an odd one."""
    cdef int64_t columns = p.col.count, width = divide_up(columns, PAIR) * PAIR, i
    if width == columns and planes_in_place(w):
        widen_block(REAL_STORAGE, dy_of(w, b, image, row * columns), 1, w.g.dst_c // PAIR, rows * width // PAIR, b.channels, dst, NR)
        return
    for i in range(rows):
        place_halves(dy_of(w, b, image, (row + i) * columns), w.g.dst_c * 2, b.channels, 1, 0, columns, width, <char *> at_result(True, b.turn, i * width), LD)
    widen_block(REAL_STORAGE, <const char *> b.turn, 1, LD, rows * width // PAIR, b.channels, dst, NR)


cdef void line_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    if TILE == 1:
        gemm_tile(False, True, TAPS, m, nv, p, a, b, c, one, two)


cdef void multiply_lines(const Reduce *w, const Patches *p, const Panel *b, const Piece *at, const Piece *next, bint accumulate) noexcept nogil:
    """c (+)= x' dy: a panel of dy, which stays near, by all taps of some channels of x. Each tile fetches some of what is copied next."""
    cdef const Sheets *s = &w.sheets
    cdef int64_t taps = p.row.taps * p.col.taps, tiles = divide_up(b.inputs, MR), panels = divide_up(b.channels, NR), panel, tap, t, first, end, distance = sums_at(w, b, taps, 1, 0)
    cdef int64_t[SHEET_LINES] lies, depths
    cdef int64_t[SHEET_SLOTS] places
    cdef Run[SHEET_SLOTS] runs
    cdef Taps lines
    cdef Fetched fetched = next_piece(w, p, b, next)
    cdef Operands product = operands(0, &lines, s.ld, NR, w.ldc * taps if w.innermost else w.ldc, accumulate)
    cdef const real *x
    cdef const real *dy
    cdef real *c
    cdef const char *one
    turn_dy(w, p, b, at)
    lines.at, lines.depth, lines.count = lies, depths, place_lines(w, p, at, lies, depths)
    product.two = divide_up(lines_left(&fetched.x) + lines_left(&fetched.dy), panels * taps * tiles * lines.count)
    for tap in range(taps):
        places[tap], runs[tap] = tap_place(p.row, p.col, &s.col, s.plane, tap), run_inside(p, at, tap // p.col.taps)
    for panel in range(panels):
        dy = b.dy + panel * DEPTH * NR
        for t in range(tiles):
            first, end = part(b.inputs, t, tiles), part(b.inputs, t + 1, tiles)
            x, c = b.patch + first * s.ld, b.c + sums_at(w, b, taps, 0, first) + panel * NR
            for tap in range(taps):
                lines.at, lines.depth, lines.count = lies + runs[tap].first, depths + runs[tap].first, runs[tap].count
                one = take_next(&fetched, lines.count * product.two, &product.one)
                line_tile(<int> (end - first), NV if b.channels - panel * NR > VL else 1, &product, at_result(True, x, places[tap]), dy + runs[tap].first * depths[0] * NR,
                          c + tap * distance, one, NULL)
