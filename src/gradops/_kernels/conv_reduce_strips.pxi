"""Part of `conv_reduce`: strips of x, some rows of an image by channel, that are copied once for all taps where tiles multiply (TILE).

Of a channel, pixels of bfloat16 lie side by side, row by row, with zeros between that both neighbouring rows share as borders; so do pairs of pixels of
dy. A tap multiplies all pixels of a strip by those of dy that are as far behind them as it reaches. Lines that tiles load must not be cut, which takes
them four times as long: so it is dy that is shifted, by pairs, and for odd distances there is another copy of it, whose pairs begin one pixel earlier.
With strides, pixels of each remainder (*phase*) are rows of their own. Groups of few channels are bundled, and sums of two groups left out.
"""
from libc.stdint cimport int64_t
from _gemm cimport Operands, operands
from _partials cimport first_wave, store_block
from _patches cimport Line, Patches, line_of, patches
from _problem cimport Lane, Problem, row_lanes, col_lanes, divide_up, larger, part, smaller
from _scratch cimport padded
from _storage cimport real, MR, NR, NV, REAL_STORAGE, TILE, VL, clear, clear_halves, item_size, pair_before, pair_lines, place_halves, widen_block

cdef enum:
    RUN = 256                                           # pixels of a strip, about: those of a tile of channels, and of a panel of dy, stay in a first cache,
    LEAST_RUN = 96                                      # and at least: of fewer, sums take longer to read and write than to add
    MOST_PHASES = 4
    MOST_TAPS = 128                                     # of a filter: of more, sums of a block need more memory than a thread may have
    LEAST_INPUTS = 16                                   # channels of x: fewer fill no tile
    MOST_COLUMNS = 128                                  # channels of x and of dy that a block has, at most
    MOST_SUMS = 160 * 1024                              # sums of a block, at most, unless TILE channels of x have more
    MOST_LENGTH = 8192                                  # numbers of a channel of a strip, at most
    STRIP_BLOCKS = 16                                   # images are split into spans until there are as many blocks,
    MOST_SPANS = 8                                      # but no more than these, and if sums have more bytes than FEW_SUMS, two
    FEW_SUMS = 1 << 18


cdef struct Border:                                     # of a phase's rows: of the pixels that taps read, those low <= i < high lie inside
    int64_t low, high


cdef struct StripTap:                                   # what a tap multiplies
    int64_t x, dy                                       # where pixels and pairs begin, in reals
    bint odd                                            # whether pairs are those that begin one pixel earlier
    int64_t depth                                       # pairs


cdef int64_t reach(const Lane *lane) noexcept nogil:
    """How many pixels of a phase the last tap is beyond the first one."""
    return lane.tap_step * (lane.taps - 1) // lane.z_step


cdef Border border(const Lane *lane, int64_t phase, int64_t size) noexcept nogil:
    """Pixel i of a phase is src_start + src_unit (z_step i + phase)."""
    cdef int64_t step = lane.src_unit * lane.z_step, first = lane.src_start + lane.src_unit * phase, most = lane.count + reach(lane)
    cdef Border b
    b.low = smaller(divide_up(larger(-first, 0), step), most)
    b.high = larger(smaller(divide_up(larger(size - first, 0), step), most), b.low)
    return b


cdef Strips strips_of(const Reduce *w) noexcept nogil:
    """How x falls into strips, and dw into blocks, by the problem alone; not used if tiles would multiply zeros rather than pixels."""
    cdef const Problem *g = w.g
    cdef Patches p = first_patches(w)
    cdef int64_t phases, phase, taps = p.row.taps * p.col.taps
    cdef Border b
    cdef Strips s
    s.used = False
    if TILE == 1 or g.unpadded or not whole(g) or taps == 1 or g.src_channels < LEAST_INPUTS or not (g.src_c == 1 or has_pairs(&p)):
        return s
    phases = p.row.z_step * p.col.z_step
    if phases > MOST_PHASES or p.col.count + reach(p.col) > MOST_LENGTH or reach(p.row) > RUN or taps > MOST_TAPS:
        return s
    s.pitch = s.margin = 0
    for phase in range(p.col.z_step):
        b = border(p.col, phase, g.src_cols)
        s.pitch = larger(s.pitch, larger(b.high, p.col.count + reach(p.col) - b.low))
        s.margin = larger(s.margin, b.low)
    s.pitch, s.margin = divide_up(s.pitch, 2) * 2, divide_up(s.margin + reach(p.col), 2) + TILE + 1
    s.parts = divide_up(p.row.count, larger(smaller(RUN // s.pitch, p.row.count), 1))
    s.rows = divide_up(p.row.count, s.parts)
    s.parts = divide_up(p.row.count, s.rows)
    s.height = s.rows + reach(p.row)
    s.ld = phases * phase_length(&s) // 2
    s.ld += TILE * (1 + s.ld // TILE % 2)
    if 2 * s.ld > MOST_LENGTH or 2 * s.pitch > 3 * p.col.count or s.rows * s.pitch < LEAST_RUN:
        return s
    s.output_blocks = divide_up(g.dst_channels, MOST_COLUMNS)
    s.outputs = divide_up(divide_up(g.dst_channels, s.output_blocks), NR) * NR
    s.inputs = larger(smaller(MOST_COLUMNS, MOST_SUMS // (taps * s.outputs) // TILE * TILE), TILE)
    s.input_blocks = divide_up(g.src_channels, s.inputs)
    s.inputs = divide_up(divide_up(g.src_channels, s.input_blocks), TILE) * TILE
    s.used = True
    return s


cdef int64_t phase_length(const Strips *s) noexcept nogil:
    """Numbers of a phase of a channel: as many as tiles read."""
    return divide_up(s.height * s.pitch, 2 * TILE) * 2 * TILE


cdef int64_t strip_blocks(const Reduce *w) noexcept nogil:
    """Of a span."""
    return w.g.groups * w.strips.input_blocks * w.strips.output_blocks


cdef int64_t panel_pairs(const Strips *s) noexcept nogil:
    """Of a panel of dy and the zeros on either side."""
    return s.rows * s.pitch // 2 + 2 * s.margin


cdef int64_t stage_size(const Strips *s) noexcept nogil:
    """Reals of what is going to be turned: a phase of all channels of x, or a panel of dy."""
    return larger(phase_length(s) // 2 * s.inputs, NR * s.rows * s.pitch // 2)


cdef int64_t strip_scratch(const Reduce *w) noexcept nogil:
    """Reals: strips, both copies of panels of dy, sums, what is going to be turned, and rows that tiles have beyond them."""
    cdef const Strips *s = &w.strips
    cdef int64_t sums = w.g.filter_rows * w.g.filter_cols * s.inputs * (s.outputs + PAD)
    return padded(s.inputs * s.ld) + 2 * s.outputs * panel_pairs(s) + padded(sums) + padded(stage_size(s)) + MR * s.ld


cdef void plan_strips(Reduce *w, int threads) noexcept nogil:
    """Chooses the spans, by the problem alone, and smaller blocks for more threads."""
    cdef Strips *s = &w.strips
    cdef int64_t strips = w.g.images * s.parts, bytes_of_sums, spans
    w.dw.size = w.slots // w.bundled * w.g.groups * w.g.dst_channels
    bytes_of_sums = w.dw.size * <int64_t> sizeof(real)
    w.dw.spans = larger(smaller(smaller(STRIP_BLOCKS // strip_blocks(w), 1 if bytes_of_sums >= LARGE else 2 if bytes_of_sums > FEW_SUMS else MOST_SPANS), strips // 2), 1)
    spans = first_wave(&w.dw, threads).count
    while threads > 1 and spans * strip_blocks(w) < 2 * threads and larger(s.inputs, s.outputs) > NR:
        if s.inputs >= s.outputs:
            s.inputs = divide_up(s.inputs, 2 * NR) * NR
            s.input_blocks = divide_up(w.g.src_channels, s.inputs)
        else:
            s.outputs = divide_up(s.outputs, 2 * NR) * NR
            s.output_blocks = divide_up(w.g.dst_channels, s.outputs)


cdef void pack_strip(const Reduce *w, const Patches *p, int64_t n, int64_t u, int64_t channels, real *dst, real *stage) noexcept nogil:
    """All phases of the rows of x that some rows of dst from u on read, p.src being at the block's first channel."""
    cdef const Strips *s = &w.strips
    cdef int64_t length = phase_length(s) // 2, fy, fx
    for fy in range(p.row.z_step):
        for fx in range(p.col.z_step):
            if w.g.src_c == 1:
                pack_phase(w, p, n, u, fy, fx, channels, stage)
                widen_block(REAL_STORAGE, <const char *> stage, 1, s.inputs, channels, length, dst, s.ld)
            else:
                place_phase(w, p, n, u, fy, fx, channels, dst)
            dst += length


cdef Line phase_line(const Reduce *w, const Patches *p, int64_t n, int64_t u, int64_t i, int64_t fy, int64_t fx) noexcept nogil:
    """Row i of a phase: its pixels that lie inside, from the first one on."""
    cdef const Problem *g = w.g
    cdef Border b = border(p.col, fx, g.src_cols)
    cdef int64_t y = p.row.src_start + p.row.src_unit * (p.row.z_step * (u + i) + fy), x = p.col.src_start + p.col.src_unit * (p.col.z_step * b.low + fx)
    return line_of(g, w.storage, p.src + n * g.src_n * item_size(w.storage), y, x, p.col.src_unit * p.col.z_step, b.high - b.low)


cdef void pack_phase(const Reduce *w, const Patches *p, int64_t n, int64_t u, int64_t fy, int64_t fx, int64_t channels, real *dst) noexcept nogil:
    """dst[pair of pixels][channel] of channels that come last, zeros between rows."""
    cdef const Strips *s = &w.strips
    cdef int64_t ld = s.inputs, i, pairs
    cdef Line line
    for i in range(s.height):
        line = phase_line(w, p, n, u, i, fy, fx)
        pairs = divide_up(line.high - line.low, 2)
        pair_lines(line.at, p.col.src_unit * p.col.z_step * w.g.src_x * item_size(w.storage), line.high - line.low, channels, dst, ld)
        clear(dst + pairs * ld, (s.pitch // 2 - pairs) * ld)
        dst += s.pitch // 2 * ld
    clear(dst, (phase_length(s) - s.height * s.pitch) // 2 * ld)


cdef void place_phase(const Reduce *w, const Patches *p, int64_t n, int64_t u, int64_t fy, int64_t fx, int64_t channels, real *dst) noexcept nogil:
    """dst[channel][pixel] of planes, zeros between rows."""
    cdef const Strips *s = &w.strips
    cdef int64_t plane = w.g.src_c * item_size(w.storage), i
    cdef Line line
    for i in range(s.height):
        line = phase_line(w, p, n, u, i, fy, fx)
        place_halves(line.at, plane, channels, <int> (p.col.src_unit * p.col.z_step), line.low, line.high, s.pitch, <char *> (dst + i * s.pitch // 2), s.ld)
    clear_halves(channels, phase_length(s) - s.height * s.pitch, <char *> (dst + s.height * s.pitch // 2), s.ld)


cdef void pack_panel(const Reduce *w, const char *dy, int64_t rows, int64_t channels, real *even, real *odd, real *stage) noexcept nogil:
    """even[pair of pixels][NR] of some channels of dy and so many rows, with zeros on either side of each; odd has the pairs that begin one pixel earlier."""
    cdef const Problem *g = w.g
    cdef const Strips *s = &w.strips
    cdef int64_t size = item_size(w.storage), columns = g.dst_cols, pairs = divide_up(columns, 2), pitch = s.pitch // 2, u
    cdef real *dst = even + s.margin * NR
    clear(even, s.margin * NR)
    for u in range(rows):
        if g.dst_c == 1:
            pair_lines(dy + u * g.dst_y * size, g.dst_x * size, columns, channels, dst + u * pitch * NR, NR)
            clear(dst + (u * pitch + pairs) * NR, (pitch - pairs) * NR)
        else:
            place_halves(dy + u * g.dst_y * size, g.dst_c * size, channels, 1, 0, columns, s.pitch, <char *> (stage + u * pitch), s.rows * pitch)
    if g.dst_c != 1:
        widen_block(REAL_STORAGE, <const char *> stage, 1, s.rows * pitch, rows * pitch, channels, dst, NR)
    clear(dst + rows * pitch * NR, ((s.rows - rows) * pitch + s.margin) * NR)
    clear(odd, NR)
    pair_before(even, panel_pairs(s) - 1, NR, odd + NR)


cdef void place_strip_taps(const Reduce *w, const Patches *p, StripTap *taps) noexcept nogil:
    """All taps: each reads from whole tiles of x, and dy as far behind."""
    cdef const Strips *s = &w.strips
    cdef int64_t i, y, x, reads, begin, end
    for i in range(p.row.taps * p.col.taps):
        y, x = p.row.tap_step * (i // p.col.taps), p.col.tap_step * (i % p.col.taps)
        reads = y // p.row.z_step * s.pitch + x // p.col.z_step - border(p.col, x % p.col.z_step, w.g.src_cols).low
        begin = larger(reads, 0) // (2 * TILE) * 2 * TILE
        end = divide_up(smaller(reads + s.rows * s.pitch, s.height * s.pitch), 2 * TILE) * 2 * TILE
        taps[i].odd = (begin - reads) & 1
        taps[i].x = ((y % p.row.z_step * p.col.z_step + x % p.col.z_step) * phase_length(s) + begin) // 2
        taps[i].dy = (s.margin + (begin - reads + taps[i].odd) // 2) * NR
        taps[i].depth = (end - begin) // 2


cdef void multiply_strip(const Reduce *w, const StripTap *taps, int64_t channels, int64_t outputs, const real *x, const real *even, const real *odd, real *c, bint accumulate) noexcept nogil:
    """c[tap][channel][output] (+)= x' dy: the taps of a tile of channels one after the other, which read the same lines."""
    cdef const Strips *s = &w.strips
    cdef int64_t panel, tile, i, ldc = s.outputs + PAD
    cdef const real *dy
    cdef Operands product = operands(0, NULL, s.ld, NR, ldc, accumulate)
    for panel in range(divide_up(outputs, NR)):
        for tile in range(divide_up(channels, MR)):
            for i in range(w.g.filter_rows * w.g.filter_cols):
                product.depth = taps[i].depth
                dy = (odd if taps[i].odd else even) + panel * panel_pairs(s) * NR + taps[i].dy
                row_tile(<int> smaller(MR, channels - tile * MR), NV if outputs - panel * NR > VL else 1, &product, x + tile * MR * s.ld + taps[i].x, dy,
                         c + (i * s.inputs + tile * MR) * ldc + panel * NR, NULL, NULL)


cdef void reduce_strips(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block of dw: some channels of x and of dy, all taps, summed over one span of strips."""
    cdef const Reduce *w = <const Reduce *> work
    cdef const Problem *g = w.g
    cdef const Strips *s = &w.strips
    cdef real *x = <real *> slab
    cdef real *even = x + padded(s.inputs * s.ld)
    cdef real *odd = even + s.outputs * panel_pairs(s)
    cdef real *c = odd + s.outputs * panel_pairs(s)
    cdef real *stage = c + padded(g.filter_rows * g.filter_cols * s.inputs * (s.outputs + PAD))
    cdef int64_t input = index % s.input_blocks * s.inputs, output = index // s.input_blocks % s.output_blocks * s.outputs
    cdef int64_t channels = smaller(s.inputs, g.src_channels - input), outputs = smaller(s.outputs, g.dst_channels - output)
    cdef int64_t group = index // s.input_blocks // s.output_blocks % g.groups, span = w.dw.wave.first + index // strip_blocks(w), size = item_size(w.storage)
    cdef int64_t first = part(g.images * s.parts, span, w.dw.spans), end = part(g.images * s.parts, span + 1, w.dw.spans), strip, n, u, rows, panel, tap, i
    cdef Patches p = patches(g, row_lanes(g), col_lanes(g), w.x, w.storage, group)
    cdef const char *rows_of_dy
    cdef StripTap[MOST_TAPS] taps
    place_strip_taps(w, &p, taps)
    p.src += input * g.src_c * size
    begin_tiles(TILE, TILE)
    for strip in range(first, end):
        n, u = strip // s.parts, strip % s.parts * s.rows
        rows = smaller(s.rows, p.row.count - u)
        rows_of_dy = w.dy + (n * g.dst_n + u * g.dst_y + (group * g.dst_channels + output) * g.dst_c) * size
        pack_strip(w, &p, n, u, channels, x, stage)
        for panel in range(divide_up(outputs, NR)):
            pack_panel(w, rows_of_dy + panel * NR * g.dst_c * size, rows, smaller(NR, outputs - panel * NR), even + panel * panel_pairs(s) * NR, odd + panel * panel_pairs(s) * NR, stage)
        multiply_strip(w, taps, channels, outputs, x, even, odd, c, strip > first)
    end_tiles()
    for tap in range(g.filter_rows * g.filter_cols):
        for i in range(w.bundled):
            store_block(&w.dw, span, c + (tap * s.inputs + i * (channels // w.bundled)) * (s.outputs + PAD) + i * (outputs // w.bundled), s.outputs + PAD, channels // w.bundled,
                        outputs // w.bundled, g.filter_first + tap * g.filter_x + input * g.filter_src + (group * w.bundled + i) * g.filter_group + output * g.filter_dst,
                        g.filter_src, g.filter_dst)
