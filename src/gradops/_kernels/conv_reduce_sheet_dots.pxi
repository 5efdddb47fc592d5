"""Part of `conv_reduce`: dots of sheets. dy is copied to where x has what its pixels read, with zeros between, so that all rows of a pass are one."""
from libc.stdint cimport int64_t
from _dots cimport DOT_COLUMNS, DOT_ROWS, Dots
from _gemm cimport at_result, stream
from _patches cimport Patches
from _problem cimport divide_up, larger, part, smaller
from _sheet cimport tap_place
from _storage cimport real, PAIR, VL, item_size, place_halves, widen_block


cdef void pack_sheet_dy(const Reduce *w, const Patches *p, const Panel *b, const Piece *at, int64_t count) noexcept nogil:
    """dy, so many numbers of each channel, row by row if there is something between them."""
    cdef const Sheets *s = &w.sheets
    cdef int64_t run = p.col.count if s.col.pitch > p.col.count else at.rows * p.col.count, n, i, place
    cdef bint apart = s.col.pitch > p.col.count or (at.images > 1 and s.row.pitch > at.rows)
    clear_numbers(b.channels, 0 if apart else count - VL * PAIR, count if apart else VL * PAIR, b.dy, s.dy_ld)
    for n in range(at.images):
        for i in range(at.rows * p.col.count // run):
            place = (n * s.row.pitch + i) * s.col.pitch
            copy_numbers(w, dy_of(w, b, at.image + n, at.row * p.col.count + i * run), b.channels, run, at_result(True, b.dy, place))


cdef void copy_numbers(const Reduce *w, const char *dy, int64_t channels, int64_t count, real *dst) noexcept nogil:
    """dst[k][i] = dy[k][i] for i < count."""
    if PAIR > 1:
        place_halves(dy, w.g.dst_c * item_size(w.storage), channels, 1, 0, count, count, <char *> dst, w.sheets.dy_ld)
    else:
        widen_block(w.storage, dy, w.g.dst_c, 1, channels, count, dst, w.sheets.dy_ld)


cdef void multiply_dots(const Reduce *w, const Patches *p, const Panel *b, const Piece *at, const Piece *next, bint accumulate) noexcept nogil:
    """c (+)= x' dy: some channels of x, which stay near, by all taps, by all channels of dy, of which a tile has no fewer than DOT_ROWS, there or not. Each tile
    fetches some lines of what is copied next."""
    cdef const Sheets *s = &w.sheets
    cdef int64_t taps = p.row.taps * p.col.taps, panels = divide_up(b.inputs, DOT_COLUMNS), tiles = divide_up(b.channels, DOT_ROWS)
    cdef int64_t count = sheet_numbers(w, at.images, at.rows), j, tap, i, first, row
    cdef Fetched fetched = next_piece(w, p, b, next)
    cdef const char *one
    cdef real *c
    cdef Dots t
    pack_sheet_dy(w, p, b, at, count)
    t.whole, t.tail, t.accumulate, t.a.ld, t.b.ld = count // PAIR, False, accumulate, s.dy_ld, s.ld
    t.one = t.two = stream(b.c, 0, 0, 1)
    for j in range(panels):
        first = part(b.inputs, j, panels)
        for tap in range(taps):
            t.b.at = at_result(True, b.patch + first * s.ld, tap_place(p.row, p.col, &s.col, s.plane, tap))
            c = b.c + sums_at(w, b, taps, tap, first)
            for i in range(tiles):
                row = larger(smaller(i * DOT_ROWS, b.channels - DOT_ROWS), 0)
                t.a.at = b.dy + row * s.dy_ld
                one = take_next(&fetched, t.whole // VL, &t.one.step)
                dot_tile(part(b.inputs, j + 1, panels) - first, &t, 0, <int> (i * DOT_ROWS - row), c + row, w.ldc * taps if w.innermost else w.ldc, one, <const char *> b.c)
