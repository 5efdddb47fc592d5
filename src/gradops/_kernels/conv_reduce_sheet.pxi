"""Part of `conv_reduce`: sheets of x, channels first. What the taps of some rows of an image read, or of some images, is copied once for all taps, not for each; channels
that come last are turned if two pixels of bfloat16 are multiplied at once, which lie side by side then.

Blocks have all taps of some channels. They are dots, which fill lanes whatever the channels of dy, but multiply what lies between rows, too, by zeros; or register
tiles, which go on with the next row where one ends.
"""
from libc.stdint cimport int64_t
from _band cimport extent
from _dots cimport DOT_ROWS
from _gemm cimport at_result
from _lines cimport Lines, lines_of, take_lines
from _patches cimport BY_HALF, BY_SLOT, Line, Patches, clear_block, dst_in_planes, dst_in_rows, line_of, pack_line, pixels
from _problem cimport Lane, Problem, col_lanes, divide_up, larger, part, row_lanes, smaller
from _scratch cimport padded
from _sheet cimport axis_of
from _storage cimport real, LINE, MR, NR, PAIR, REAL_STORAGE, TILE, VL, clear_halves, item_size, pair_lines, widen_block

cdef enum:
    SHEET_ROOM = 1 << 19                                # bytes of x, at most
    LONG_STRIDE = 4                                     # of rows, and columns, at most
    SHEET_ROW = 4096                                    # bytes of a row of dots, at most: those of a register tile stay near
    SHEET_SUMS = 1 << 18                                # of the sums of dots of a block,
    DOT_CHANNELS = 128                                  # and channels of dy
    LEAST_DOT_SLOTS = 60                                # of dots, at least: to copy dy takes long beside fewer,
    LEAST_BESIDE_DOTS = 100                             # and of pairs, if they were dots that read dy where it lies,
    LEAST_DOT_INPUTS = 8                                # and channels of x
    SHEET_SLOTS = 288                                   # of tiles of a block, at most: 32 channels of 3x3 taps
    SHEET_LINES = 256                                   # rows of pixels that they go through, at most,
    SHORT_LINE = 12                                     # pixels of one, at least,
    LINE_TURNED = 24                                    # and if x is turned,
    TAPS_TURNED = 6                                     # beside so many taps, at least,
    PIXELS_TURNED = 64                                  # at a time
    FEW_INPUTS = 32 // PAIR                             # channels of x,
    FEW_OUTPUTS = 32                                    # and of dy
    DOT_LOSS = 105 - PAIR // 2 * 5                      # time that dots take for each that tiles take, in hundredths,
    HALF_LOSS = 100 + PAIR // 2 * 15                    # tiles of one vector, for each lane,
    BAND_LOSS = 70                                      # to turn a number of a band, for each lane,
    COPY_LOSS = 140                                     # and to copy one of patches for taps beyond the first
    FEW_COPIED = 9


cdef void plan_sheets(Reduce *w) noexcept nogil:
    """Whether blocks are dots of sheets, tiles, or no sheets: dots where tiles leave more lanes empty than dots lose between rows, tiles where rows are long and
    channels many.

    Time without over that with them, 8 images, 2 threads of a Zen 4. Dots, float32: 24 channels of 56x56 pixels with stride 2 1.17, 40 of 28x28, 5x5 taps 1.08, with
    stride 2 1.24, 35 to 37 with strides of 3 and 2 1.13 and 1.25, dilated 1.05 to 1.08, 19 to 23, 4x4 taps 1.2 to 1.28, 5x5 taps with stride 2, 64
    channels to 16 to 64 1.1 to 1.5, 11x11 taps, 16x16 pixels 1.9, groups of 16 2.5; float16 1.05 to 1.6. bfloat16: 16 channels of
    28x28, 5x5 taps 1.4, 24 and 40 of 28x28 1.3 and 1.2, with strides 1.3 and 1.2, 64 to 16, 5x5 taps 1.45, 64 to 4 of 56x56 1.3 to 1.7, 63 to 65 of 31x31 1.3, groups of
    17 to 19 1.6, strides of 3 and 4 1.6 to 3. Fewer channels of x 0.6 to 0.9, 16 of float32, 5x5 taps 0.9. Tiles, bfloat16: 64 channels of 56x56 1.1, of 224x224 and 112x112 1.07, 5x5 taps 1.12, groups
    of 32 1.13 to 1.3, 128 to 512 of 28x28 and 14x14 1.03 to 1.08, with strides 1.03 to 1.08; of 7x7 0.95 to 1.0; float16, with strides or 5x5 taps 1.03 to 1.1; float32
    1.02 to 1.07 with one thread, 0.9 to 1.04 with two, float64 0.85 to 1.05. Channels last, bfloat16: 64 to 512 channels of 224x224 to 28x28 pixels 1.0 to 1.05, with one thread 1.02 to 1.1; of 14x14, with strides,
    or 2x2 taps 0.9 to 1.0.
    """
    w.sheets.inputs = 0
    if not may_be_sheets(w):
        return
    w.sheets.dots = True
    cut_sheets(w)
    if w.sheets.inputs and dots_win(w):
        return
    w.sheets.dots, w.sheets.inputs = False, 0
    if tiles_win(w):
        cut_sheets(w)


cdef bint may_be_sheets(const Reduce *w) noexcept nogil:
    """Whether several taps read planes, in phases that can be copied, and no infinity has to be kept from what lies between rows."""
    cdef const Problem *g = w.g
    cdef Patches p = first_patches(w)
    if TILE > 1 or not (turns_sheets(&p) if g.src_c == 1 else g.src_x == 1 and dst_in_planes(&p)) or not whole(g) or g.unpadded or pixels(&p) <= DEPTH or reads_windows(&p):
        return False
    if larger(extent(p.row, 1, p.row.taps), extent(p.col, p.col.count, p.col.taps)) > SHEET_ROOM:
        return False
    return p.row.taps * p.col.taps > 1 and p.row.src_unit == p.col.src_unit == 1 and p.row.z_step <= LONG_STRIDE and p.col.z_step <= LONG_STRIDE


cdef bint turns_sheets(const Patches *p) noexcept nogil:
    """Whether x is turned, channels last: pairs of pixels, of which patches would have to be made for each tap."""
    return PAIR > 1 and dst_in_rows(p) and p.row.z_step == p.col.z_step == 1 and p.row.taps * p.col.taps >= TAPS_TURNED and p.col.count >= LINE_TURNED


cdef bint dots_win(const Reduce *w) noexcept nogil:
    """Whether blocks are dots, channels first."""
    cdef int64_t least = LEAST_BESIDE_DOTS if PAIR > 1 and are_dots(w) else LEAST_DOT_SLOTS
    return w.g.src_c != 1 and w.slots >= least and w.g.src_channels >= LEAST_DOT_INPUTS and cost_of_dots(w) < cost_of_tiles(w)


cdef bint tiles_win(const Reduce *w) noexcept nogil:
    """Whether they are tiles, if they are no dots: of 16 bits, which patches would widen, or make pairs of, for each tap."""
    cdef Patches p = first_patches(w)
    return w.storage != REAL_STORAGE and (PAIR > 1 or not by_band(&p)) and p.col.count >= SHORT_LINE and w.g.src_channels >= FEW_INPUTS and w.g.dst_channels >= FEW_OUTPUTS


cdef double cost_of_dots(const Reduce *w) noexcept nogil:
    """What they multiply for each product, about."""
    cdef const Problem *g = w.g
    return <double> w.sheets.passes * sheet_numbers(w, w.sheets.images, w.sheets.rows) * divide_up(g.dst_channels, DOT_ROWS) * DOT_ROWS * DOT_LOSS / (100 * g.images * g.dst_c * g.dst_channels)


cdef double cost_of_tiles(const Reduce *w) noexcept nogil:
    """The same of register tiles, and what it takes to turn a band, whose rows are copied again where taps reach beyond those of a pass, or to copy patches for each of
    many taps, unless tiles read sheets, too."""
    cdef Patches p = first_patches(w)
    cdef int64_t channels = w.g.dst_channels, taps = w.g.filter_rows * w.g.filter_cols, left = channels % NR, rows = larger(BAND_DEPTH // p.col.count, 1)
    cdef int64_t last = 0 if left == 0 else VL * HALF_LOSS if left <= VL else NR * 100
    cdef double copied = 0
    if by_band(&p):
        copied = <double> BAND_LOSS * (rows + w.sheets.row.reach) / (rows * taps)
    elif taps > FEW_COPIED and not tiles_win(w):
        copied = <double> COPY_LOSS * (taps - FEW_COPIED) / taps
    return (channels // NR * NR * 100 + last + copied * VL) / (100.0 * channels)


cdef void cut_sheets(Reduce *w) noexcept nogil:
    """Cuts images into passes, and finds how many channels of x there is room for. Where dots multiply what lies between rows, these share it; else no pair has pixels
    of two."""
    cdef const Problem *g = w.g
    cdef const Lane *row = row_lanes(g)
    cdef const Lane *col = col_lanes(g)
    cdef Sheets *s = &w.sheets
    cdef int64_t most = (SHEET_ROW if s.dots else DEPTH * 4) // <int64_t> sizeof(real) * PAIR, taps = row.taps * col.taps, image, line, parts, unit
    s.row, s.col = axis_of(row, g.src_rows), axis_of(col, g.src_cols)
    line = s.col.pitch
    image = line * s.row.pitch
    if not s.dots:
        s.row.pitch, s.col.pitch, line = row.count + s.row.reach, divide_up(col.count + s.col.reach, PAIR) * PAIR, divide_up(col.count, PAIR) * PAIR
        image = line * row.count
    parts = divide_up(row.count, larger(most // line, 1)) if image > most else 1
    s.passes = g.images * parts if parts > 1 else divide_up(g.images, larger(most // image, 1))
    s.images, s.rows = divide_up(g.images * parts, s.passes), divide_up(row.count, parts)
    s.plane = whole_vectors(sheet_numbers(w, s.images, s.rows) + s.row.reach * s.col.pitch + larger(s.col.reach, s.col.pitch))
    s.ld, s.dy_ld = odd_distance(s.row.phases * s.col.phases * s.plane), odd_distance(sheet_numbers(w, s.images, s.rows))
    s.inputs = SHEET_ROOM // (s.ld * <int64_t> sizeof(real)) if line <= most and (s.dots or s.images * s.rows <= SHEET_LINES) else 0
    if s.dots:
        s.inputs = smaller(s.inputs, SHEET_SUMS // (taps * sums_distance(w) * <int64_t> sizeof(real)))
    else:
        s.inputs = smaller(s.inputs, SHEET_SLOTS // taps)
        unit = LINE // 2 if g.src_c == 1 else MR
        if s.inputs > unit or g.src_c == 1:
            s.inputs = s.inputs // unit * unit


cdef int64_t whole_vectors(int64_t count) noexcept nogil:
    return divide_up(count, VL * PAIR) * VL * PAIR


cdef int64_t odd_distance(int64_t count) noexcept nogil:
    """Reals for so many numbers: an odd number of vectors, which spreads rows over a cache."""
    return (divide_up(count, VL * PAIR) | 1) * VL


cdef int64_t sheet_numbers(const Reduce *w, int64_t images, int64_t rows) noexcept nogil:
    """From the first to the last pixel of so many images' rows, and what fills the last vector."""
    return whole_vectors(((images - 1) * w.sheets.row.pitch + rows - 1) * w.sheets.col.pitch + col_lanes(w.g).count)


cdef int64_t sheet_inputs(const Reduce *w) noexcept nogil:
    """Channels of x of a block, at most."""
    return smaller(w.g.src_channels, w.sheets.inputs)


cdef int64_t sheet_outputs(const Reduce *w) noexcept nogil:
    """Those of dy."""
    return DOT_CHANNELS if w.sheets.dots else CHANNELS


cdef int64_t sheet_dy(const Reduce *w) noexcept nogil:
    """Reals of dy: as many channels as a tile of dots has, at least."""
    cdef int64_t channels = smaller(w.g.dst_channels, sheet_outputs(w))
    return padded(larger(channels, DOT_ROWS) * w.sheets.dy_ld if w.sheets.dots else divide_up(channels, NR) * NR * DEPTH)


cdef int64_t sums_distance(const Reduce *w) noexcept nogil:
    return padded(smaller(w.g.dst_channels, sheet_outputs(w))) + PAD


cdef int64_t sheet_sums(const Reduce *w) noexcept nogil:
    return sheet_inputs(w) * w.g.filter_rows * w.g.filter_cols * w.ldc


cdef int64_t sheet_scratch(const Reduce *w) noexcept nogil:
    """Reals of sums, dy, x, and a panel of pairs to be turned."""
    return padded(sheet_sums(w)) + sheet_dy(w) + padded(sheet_inputs(w) * w.sheets.ld) + (0 if PAIR == 1 or w.sheets.dots else NR * LD)


cdef void place_sheet(const Reduce *w, Panel *b) noexcept nogil:
    """Where these lie in the scratch, at which b.patch points so far. Sums come first: CPUs foresee the strides of their tiles, from tap to tap more than half of
    a GAP, and fetch on beyond the last one what another thread writes if that is where its scratch begins. Layers of 3x3 taps, bfloat16, take 0.97 of the time, in
    some processes 0.86 to 0.91 (2 threads of a Zen 4)."""
    b.c = b.patch
    b.dy = b.c + padded(sheet_sums(w))
    b.patch = b.dy + sheet_dy(w)
    b.turn = b.patch + padded(sheet_inputs(w) * w.sheets.ld)


cdef struct Piece:                                      # what a pass has: so many images, or some rows of one
    int64_t image, images, row, rows


cdef Piece piece_at(const Reduce *w, int64_t index) noexcept nogil:
    cdef int64_t count = row_lanes(w.g).count, parts = w.sheets.passes // w.g.images
    cdef Piece at
    at.image, at.images, at.row, at.rows = part(w.g.images, index, w.sheets.passes), 1, 0, count
    if w.sheets.rows < count:
        at.image, at.row = index // parts, part(count, index % parts, parts)
        at.rows = part(count, index % parts + 1, parts) - at.row
    else:
        at.images = part(w.g.images, index + 1, w.sheets.passes) - at.image
    return at


cdef void pack_sheet(const Reduce *w, const Patches *p, const Panel *b, const Piece *at) noexcept nogil:
    """Each phase of x: rows of all images, and zeros for what vectors read beyond them."""
    cdef const Sheets *s = &w.sheets
    cdef int64_t size = item_size(w.storage), height = at.rows + s.row.reach, width = larger(p.col.count + s.col.reach, s.col.pitch), phase, begin, end, n, y, row, col
    cdef const char *image
    cdef real *dst
    if at.images > 1:
        height = larger(height, s.row.pitch)
    end = ((at.images - 1) * s.row.pitch + height - 1) * s.col.pitch + width
    for phase in range(s.row.phases * s.col.phases):
        begin, row, col = phase * s.plane, s.row.start + phase // s.col.phases + p.row.z_step * at.row, s.col.start + phase % s.col.phases
        clear_numbers(b.inputs, begin + end, s.plane - end, b.patch, s.ld)
        for n in range(at.images):
            for y in range(height):
                image, dst = p.src + (at.image + n) * w.g.src_n * size, at_result(True, b.patch, begin + (n * s.row.pitch + y) * s.col.pitch)
                if PAIR > 1 and w.g.src_c == 1:
                    turn_line(w, p, b, line_of(p.g, w.storage, image, row + p.row.z_step * y, col, p.col.z_step, width), width, dst)
                else:
                    pack_line(p.g, w.storage, image, row + p.row.z_step * y, col, p.col.z_step, width, b.inputs, BY_HALF if PAIR > 1 else BY_SLOT, dst, s.ld)


cdef void turn_line(const Reduce *w, const Patches *p, const Panel *b, Line line, int64_t width, real *dst) noexcept nogil:
    """pack_line for pairs, channels last: those of pixels, turned as if each were one number, and a zero beside an odd one."""
    cdef int64_t step = p.col.z_step * w.g.src_x * 2, done = line.low, some
    clear_numbers(b.inputs, 0, line.low, dst, w.sheets.ld)
    while done < line.high:
        some = smaller(line.high - done, PIXELS_TURNED)
        pair_lines(line.at + done * step, step, some, b.inputs, b.turn, LD)
        widen_block(REAL_STORAGE, <const char *> b.turn, 1, LD, b.inputs, divide_up(some, PAIR), at_result(True, dst, done), w.sheets.ld)
        done += some
    clear_numbers(b.inputs, line.high, width - line.high, dst, w.sheets.ld)


cdef void clear_numbers(int64_t rows, int64_t first, int64_t count, real *dst, int64_t ld) noexcept nogil:
    """dst[r][first..] = 0 for so many numbers."""
    if PAIR > 1:
        clear_halves(rows, count, <char *> at_result(True, dst, first), ld)
    else:
        clear_block(rows, count, dst + first, ld)


cdef int64_t sums_at(const Reduce *w, const Panel *b, int64_t taps, int64_t tap, int64_t input) noexcept nogil:
    """Where the sums of a tap and a channel of x begin in a block."""
    return (input * taps + tap if w.innermost else tap * b.inputs + input) * w.ldc


cdef struct Fetched:                                    # what is copied next: lines of x, then of dy
    Lines x, dy


cdef Fetched next_piece(const Reduce *w, const Patches *p, const Panel *b, const Piece *at) noexcept nogil:
    """All lines of a piece, of the block's channels."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), top = w.sheets.row.start + p.row.z_step * at.row, end = top + p.row.z_step * (at.rows + w.sheets.row.reach)
    cdef Fetched f
    top = smaller(larger(top, 0), g.src_rows)
    if g.src_c == 1:
        f.x = lines_of(p.src + (at.image * g.src_n + top * g.src_y) * size, g.src_x * size, larger(smaller(end, g.src_rows) - top, 0) * g.src_cols, b.inputs * size)
        f.dy = lines_of(w.dy + (at.image * g.dst_n + at.row * g.dst_y + b.group * g.dst_channels + b.channel) * size, g.dst_x * size, at.rows * p.col.count, b.channels * size)
        return f
    f.x = lines_of(p.src + (at.image * g.src_n + top * g.src_y) * size, g.src_c * size, b.inputs, larger(smaller(end, g.src_rows) - top, 0) * g.src_y * size)
    f.dy = lines_of(dy_of(w, b, at.image, at.row * g.dst_y), g.dst_c * size, b.channels, at.rows * g.dst_y * size)
    return f


cdef const char *take_next(Fetched *f, int64_t count, int64_t *step) noexcept nogil:
    """Where the next so many lines begin, a step apart: the last ones again if none are left."""
    cdef Lines *s = &f.x if f.x.left else &f.dy
    step[0] = s.step if s.left else 0
    return take_lines(s, count)


cdef void reduce_sheets(const Reduce *w, const Patches *p, const Panel *b) noexcept nogil:
    """c = x' dy over the passes of the block's span."""
    cdef int64_t first = part(w.sheets.passes, b.span, w.dw.spans), end = part(w.sheets.passes, b.span + 1, w.dw.spans), i
    cdef Piece at, next
    for i in range(first, end):
        at, next = piece_at(w, i), piece_at(w, smaller(i + 1, end - 1))
        pack_sheet(w, p, b, &at)
        if w.sheets.dots:
            multiply_dots(w, p, b, &at, &next, i > first)
        elif sizeof(real) == 4:
            multiply_lines(w, p, b, &at, &next, i > first)
