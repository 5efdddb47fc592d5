"""Part of `conv_gather`: channel rows of sheets. A sheet is some rows of all planes of src, or of pairs of planes, copied once: rows follow each other with zeros between, which
both sides share, so that each tap reads the same pixels in one piece from another place on. Register tiles write dst itself, or what lies between its rows is left out.

Pixels fall into runs: rows, or one of all rows and what lies between them, whichever takes fewer register tiles.
"""
from libc.stdint cimport int64_t
from _band cimport extent, lowest
from _gemm cimport OF_B, TAPS, Operands, Taps, at_result, gemm_tile, operands
from _lines cimport lines_left, lines_of, take_lines
from _patches cimport BY_SLOT, Line, Patches, Pixel, clear_block, line_of, pack_line, pixel, slots
from _problem cimport Lane, Problem, divide_up, larger, part, smaller
from _sheet cimport Axis, axis_of, tap_place
from _storage cimport real, LINE, MR, NR, NV, PAIR, REAL_STORAGE, TILE, VL, copy_halves, item_size, narrow_block, place_pairs

cdef enum:
    SHEET_ROOM = 1 << 19                                # bytes of a sheet, at most: half of a second cache of 1 MiB
    SHEET_PIXELS = 1024                                 # of one, at most, but for a row
    SHEET_SLOTS = 3200                                  # of the only pass, at most,
    SHEET_TAPS = 256                                    # and taps
    MOST_SHEETS = 4                                     # of a block, so that the next one is fetched
    WHOLE_TILE = 10                                     # tenths of the time of a register tile, and of one of half as many vectors
    HALF_TILE = 7
    SHEET_GAIN = 8 * PAIR                               # channels whose products take as long as it takes to turn what a tap reads of a channel, about, and in tenths
    TILE_GAIN = 3 * PAIR                                # for each tap as long as tiles of few channels lose


cdef struct Sheet:
    int64_t rows                                        # of pixels
    int64_t width                                       # columns of src in a row
    Axis col
    int64_t reach                                       # rows of src beyond those of pixels
    int64_t ld                                          # from plane to plane, or pair to pair
    int64_t runs, run                                   # into how many runs of so many pixels they fall: rows, or one of all and what lies between them


cdef int64_t run_cost(int64_t pixels) noexcept nogil:
    """Tenths of the time of a register tile that so many pixels take."""
    cdef int64_t left = pixels % NR
    return pixels // NR * WHOLE_TILE + (WHOLE_TILE if left > VL else HALF_TILE if left else 0)


cdef Sheet sheet_of(const Patches *p, int64_t rows) noexcept nogil:
    """That of so many rows of pixels."""
    cdef Sheet s
    cdef int64_t columns = p.col.count, all_pixels
    s.col, s.rows, s.reach = axis_of(p.col, p.g.src_cols), rows, extent(p.row, 1, p.row.taps) - 1
    s.width = columns + s.col.reach
    all_pixels = (rows - 1) * s.col.pitch + columns
    s.runs, s.run = 1, all_pixels
    if rows * run_cost(columns) <= run_cost(all_pixels):
        s.runs, s.run = rows, columns
    s.ld = (divide_up(all_pixels + NR + s.reach * s.col.pitch + s.width - columns, VL) | 1) * VL
    return s


cdef int64_t sheets_cost(const Patches *p, int64_t parts, int64_t threads) noexcept nogil:
    """Tenths of the time of a register tile that all sheets take, if an image falls into so many."""
    cdef Sheet s = sheet_of(p, divide_up(p.row.count, parts))
    return divide_up(p.g.images * p.g.groups * parts, threads) * s.runs * run_cost(s.run)


cdef int64_t image_sheets(const Patches *p, int64_t threads) noexcept nogil:
    """Into how many sheets an image falls, so that they take the least time; 0 if there is no room for a row."""
    cdef int64_t pairs = p.g.src_channels // PAIR, height = p.row.count, rows = smaller(larger(SHEET_PIXELS // p.col.count, 1), height), least, best, i
    while rows > 0 and pairs * sheet_of(p, rows).ld > SHEET_ROOM // <int64_t> sizeof(real):
        rows -= 1
    if rows == 0:
        return 0
    best = least = smaller(larger(divide_up(height, rows), divide_up(FEW_BLOCKS * threads, p.g.images * p.g.groups) if threads > 1 else 1), height)
    for i in range(least, smaller(2 * least, height) + 1):
        if sheets_cost(p, i, threads) < sheets_cost(p, best, threads):
            best = i
    return best


cdef int64_t tap_rows_inside(const Patches *p) noexcept nogil:
    """How many rows of pixels each row of taps reads something for, in all."""
    cdef int64_t count = 0, first, i
    for i in range(p.row.taps):
        first = p.row.src_start + p.row.tap_step * i
        count += larger(smaller(p.row.count, p.g.src_rows - first) - larger(-first, 0), 0)
    return count


cdef bint reads_neighbours(const Lane *lane) noexcept nogil:
    """Whether successive pixels read, and are, neighbours."""
    return lane.z_step == lane.src_unit == lane.out_step == 1


cdef bint makes_sheets(const Gather *w) noexcept nogil:
    """Whether planes become sheets: if register tiles lose less time between rows, and to taps outside, than it takes to turn a band and its results, or to copy patches for
    each tap; that is as much as the products of a few channels, or, where two numbers are multiplied at once, of twice as many.

    Time without over that with sheets, 8 images, gradient of the input, 2 threads of a Zen 4, 3x3 taps. bfloat16: 16 channels of 14x14 pixels 1.1, 28x28 1.4, 56x56 1.4 to
    1.5; 32 channels 1.0, 1.0, 1.1 to 1.15, of 112x112 1.25; 64 of 112x112 1.1, of 224x224 1.2; 128 1.03; 256 of 64x64 1.03. 5x5 taps, 16 and 32 channels of 56x56
    pixels 1.5, 1.0; 7x7 taps, 24 channels of 64x64 1.65. float32 and float16: 4 channels 1.9 to 2.4, 5x5 taps 2.6 to 3, 8 channels 1.4 to 1.8, 1.7 to 1.95, 16 of 28x28
    to 112x112 1.05 to 1.3, 32 of 112x112 1.1; 7x7 taps, 24 of 64x64 1.2. Without this rule: bfloat16, 64 to 256 channels of 20x20 pixels 0.9 to 0.95, of 28x28 0.95 to 1.0, float32, 16
    channels of 14x14 0.93, 32 of 28x28 0.96.
    """
    cdef const Problem *g = w.g
    cdef int64_t parts
    cdef double cost, useful, gain
    cdef Patches p
    if TILE > 1 or g.dst_c == 1 or g.src_x != 1 or g.dst_x != 1 or g.row_lanes * g.col_lanes != 1 or g.src_channels % PAIR or w.fold.rows or w.chunks > 1 or w.missing:
        return False
    p = pair_patches(w, 0, 0)
    if not reads_neighbours(p.row) or not reads_neighbours(p.col) or slots(&p) > SHEET_SLOTS or not 1 < p.row.taps * p.col.taps <= SHEET_TAPS:
        return False
    if larger(extent(p.row, 1, p.row.taps), extent(p.col, p.col.count, p.col.taps)) > SHEET_ROOM:
        return False
    parts = image_sheets(&p, 1)
    if parts == 0:
        return False
    cost = <double> sheets_cost(&p, parts, 1) * NR / (g.images * g.groups)
    useful = <double> WHOLE_TILE * p.col.count * tap_rows_inside(&p) / p.row.taps
    gain = SHEET_GAIN / <double> (p.row.taps * p.col.taps) + TILE_GAIN / 10.0
    return (cost - useful) * g.src_channels * g.dst_channels <= gain * cost * (g.src_channels + g.dst_channels)


cdef int64_t sheet_results(const Gather *w, const Patches *p) noexcept nogil:
    """Pixels of a sheet, and what lies between their rows, rounded up to register tiles."""
    return divide_up(divide_up(p.row.count, w.sheets) * sheet_of(p, 1).col.pitch, NR) * NR


cdef int64_t sheet_spans(const Gather *w) noexcept nogil:
    """Into how many spans all sheets fall."""
    cdef int64_t sheets = w.g.images * w.sheets
    return divide_up(sheets, larger(smaller(sheets * span_blocks(w) // (BLOCKS * w.threads), MOST_SHEETS), 1))


cdef void multiply_sheets(const Gather *w, const Patches *p, int64_t pair, const Block *b) noexcept nogil:
    """gather_pixels of a block, which counts sheets."""
    cdef int64_t i
    cdef Pixel at
    cdef Sheet s
    cdef Ahead ahead
    for i in range(b.first, b.first + b.count):
        at = sheet_pixel(w, p, i)
        s = sheet_of(p, part(p.row.count, i % w.sheets + 1, w.sheets) - at.u)
        pack_sheet(p, &s, &at, b.patch)
        ahead = next_sheet(w, p, b, &s, i + 1)
        multiply_sheet(w, p, pair, b, &s, &at, &ahead)


cdef Pixel sheet_pixel(const Gather *w, const Patches *p, int64_t sheet) noexcept nogil:
    """The first one of a sheet."""
    return pixel(p, (sheet // w.sheets * p.row.count + part(p.row.count, sheet % w.sheets, w.sheets)) * p.col.count)


cdef int64_t sheet_top(const Patches *p, const Pixel *at) noexcept nogil:
    """The row of src that a sheet begins with."""
    return p.row.src_start + at.u + lowest(p.row, 0, p.row.taps)


cdef void pack_sheet(const Patches *p, const Sheet *s, const Pixel *at, real *dst) noexcept nogil:
    """Row by row, all planes or pairs of them, and zeros for what register tiles read beyond."""
    cdef int64_t size = item_size(p.storage), plane = p.g.src_c * size, end = (s.rows + s.reach - 1) * s.col.pitch + s.width, r
    cdef Line line
    clear_block(p.g.src_channels // PAIR, s.ld - end, dst + end, s.ld)
    for r in range(s.rows + s.reach):
        if PAIR == 1:
            pack_line(p.g, p.storage, p.src + at.n * p.g.src_n * size, sheet_top(p, at) + r, s.col.start, 1, s.width, p.g.src_channels, BY_SLOT, dst + r * s.col.pitch, s.ld)
            continue
        line = line_of(p.g, p.storage, p.src + at.n * p.g.src_n * size, sheet_top(p, at) + r, s.col.start, 1, s.width)
        place_pairs(line.at, line.low, line.high, line.at + plane, line.low, line.high, 2 * plane, p.g.src_channels // PAIR, 1, s.width, dst + r * s.col.pitch, s.ld)


cdef Ahead next_sheet(const Gather *w, const Patches *p, const Block *b, const Sheet *s, int64_t next) noexcept nogil:
    """What the next sheet of the thread's pixels has that this one has not, to be fetched with the taps of all its tiles."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), tiles = divide_up(b.channels, MR) * s.runs * divide_up(s.run, NR), top
    cdef Ahead a = nothing()
    cdef Pixel at
    if next < b.end:
        at = sheet_pixel(w, p, next)
        top = smaller(larger(sheet_top(p, &at) + (s.reach if at.u else 0), 0), g.src_rows - 1)
        a.src = lines_of(p.src + (at.n * g.src_n + top * g.src_y) * size, g.src_c * size, g.src_channels, smaller(s.rows, g.src_rows - top) * g.src_y * size + LINE)
        a.burst = divide_up(lines_left(&a.src), tiles * p.row.taps * p.col.taps)
    return a


cdef void place_sheet_taps(const Patches *p, const Sheet *s, int64_t *at, int64_t *depth) noexcept nogil:
    """Where each tap lies from a pixel on, and how many steps it has."""
    cdef int64_t tap
    for tap in range(p.row.taps * p.col.taps):
        at[tap] = tap_place(p.row, p.col, &s.col, 0, tap)
        depth[tap] = p.g.src_channels // PAIR


cdef void multiply_sheet(const Gather *w, const Patches *p, int64_t pair, const Block *b, const Sheet *s, const Pixel *at, Ahead *ahead) noexcept nogil:
    """The products of a sheet, the channels of a register tile after the other."""
    cdef int64_t distance = panel_distance(w, p), tiles = divide_up(b.channels, MR), t, i, r
    cdef const real *filter = packed_filter(w, pair, b) + b.channel // w.channels * block_panels(w) * distance
    cdef int64_t[SHEET_TAPS] lies, depth
    cdef Taps taps
    cdef Block some = b[0]
    cdef Pixel row
    taps.at, taps.depth, taps.count = lies, depth, p.row.taps * p.col.taps
    place_sheet_taps(p, s, lies, depth)
    for t in range(tiles):
        i = part(b.channels, t, tiles)
        some.channel, some.channels, row = b.channel + i, part(b.channels, t + 1, tiles) - i, at[0]
        for r in range(s.runs):
            multiply_run(w, p, &some, s, &row, &taps, filter + t * distance, b.patch + r * s.col.pitch, ahead)
            row.u += 1


cdef void multiply_run(const Gather *w, const Patches *p, const Block *b, const Sheet *s, const Pixel *at, const Taps *taps, const real *filter, const real *sheet, Ahead *ahead) noexcept nogil:
    """Those of a run: whole vectors that lie side by side in dst are written there, others by way of c."""
    cdef const Problem *g = w.g
    cdef bint narrow = PAIR > 1, follow = (narrow or w.storage == REAL_STORAGE) and (s.run == p.col.count or s.col.pitch == g.dst_y)
    cdef int64_t whole = s.run // VL * VL if follow else 0, done = 0, nv, r
    cdef real *dst = <real *> dst_pixel(w, p, b, at)
    cdef Operands product = operands(0, taps, panel_width(w), s.ld, 0, False)
    cdef const char *one
    product.narrow = narrow
    while done < s.run:
        nv = NV if s.run - done > VL and whole - done != VL else 1
        product.ldc, product.one, product.two = g.dst_c if done < whole else w.ldp, ahead.src.step, ahead.burst if ahead.src.left else 0
        one = take_lines(&ahead.src, taps.count * ahead.burst)
        sheet_tile(<int> b.channels, <int> nv, &product, filter, sheet + done, at_result(narrow, dst if done < whole else b.c, done), one, NULL)
        done += nv * VL
    if follow:
        store_run(w, b, at_result(narrow, b.c, whole), s.run - whole, at_result(narrow, dst, whole))
        return
    for r in range(s.rows if s.runs == 1 else 1):
        store_run(w, b, at_result(narrow, b.c, r * s.col.pitch), p.col.count, <real *> (<char *> dst + r * g.dst_y * item_size(w.storage)))


cdef void store_run(const Gather *w, const Block *b, real *c, int64_t count, real *dst) noexcept nogil:
    """So many pixels of each of the block's channels, which pairs have left as bfloat16."""
    cdef int64_t i, j
    if PAIR == 1:
        narrow_block(w.storage, c, w.ldp, b.channels, count, <char *> dst, w.g.dst_c, 1)
        return
    for i in range(b.channels):
        for j in range(divide_up(count, 2 * VL)):
            copy_halves(at_result(True, c, i * w.ldp + j * 2 * VL), smaller(count - j * 2 * VL, 2 * VL), at_result(True, dst, i * w.g.dst_c + j * 2 * VL))


cdef void sheet_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    if TILE == 1:
        gemm_tile(True, OF_B, TAPS, m, nv, p, a, b, c, one, two)
