"""Part of `conv_gather`: pixels of dst, side by side, as channels of one (space to depth). Few channels fill few columns of tiles (TILE), those of a block of pixels,
which has the taps of all of them, fill more. With strides, they are pixels of all phases. Whatever multiplies, planes of *patches* that lie side by side are
folded, each of whose pixels has one tap: src is packed once for all of them, and the filter needs no zeros and no other order.

Where a pixel of a block has no tap, the filter has zeros, which would spread infinities: sums that are not finite are told, and a problem that is computed as
such (`unpadded`) is not folded. Patches of two columns are multiplied as channel rows, of which two take turns in a row of dst.
"""
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
from _band cimport extent, fills_tiles, lowest
from _blocks cimport FIRST_FREE, do_blocks
from _gemm cimport LD
from _patches cimport Patches, Pixel, advance
from _problem cimport Lane, Problem, row_lanes, col_lanes, divide_up, larger, smaller
from _scratch cimport allocate_bytes, release
from _storage cimport real, MR, PAIR, REAL_STORAGE, TILE, VL, item_size, load, narrow_block, narrow_in_turns, store, widen_block

cdef enum:
    MOST_FOLDED = 4 * TILE                              # channels of a block of pixels in tiles, at most
    MOST_WINDOW = 1 << 10                               # taps of a block on either axis
    MOST_TIMES = 4                                      # as many pixels of each phase on either side of a block, at most
    PAIRS_FOLDED = 2 * TILE                             # MOST_FOLDED, in pairs
    LEAST_RUN = 4                                       # columns of a patch, at least, unless they are TURNS,
    MOST_RUN = 64                                       # and at most
    TURNS = 2                                           # columns that may be rows of sums


cdef struct Folded:                                     # where a filter goes
    const Gather *w                                     # of the problem whose pixels are folded
    const Problem *whole                                # and of blocks
    char *dense


cdef bint fold_lanes(const Lane *lanes, int64_t count, int64_t times, Lane *all) noexcept nogil:
    """The lane of blocks of so many pixels of each of some lanes. False if these are not all pixels, in turn, or their taps lie too far apart to be a window."""
    cdef int64_t low = 1 << 62, end = -(1 << 62), most = 0, first, i
    for i in range(count):
        if lanes[i].src_unit != 1 or lanes[i].z_step != lanes.z_step or lanes[i].out_step != count or lanes[i].taps == 0:
            return False
        first = lanes[i].src_start + lowest(lanes + i, 0, lanes[i].taps)
        low, end, most = smaller(low, first), larger(end, first + extent(lanes + i, times, lanes[i].taps)), larger(most, lanes[i].count)
    all.count, all.out_start, all.out_step = divide_up(most, times), 0, 1
    all.src_start, all.src_unit, all.z_step = low, 1, times * lanes.z_step
    all.tap_step, all.taps, all.filter_start, all.filter_step = 1, end - low, 0, 1
    return all.taps <= MOST_WINDOW


cdef int64_t tap_at(const Lane *lanes, int64_t count, int64_t pixel, int64_t at) noexcept nogil:
    """Which row, or column, of the filter a pixel of a block is multiplied with at a position of src; -1 if none."""
    cdef int64_t i, distance
    for i in range(count):
        distance = at - lanes[i].src_start - lanes[i].z_step * (pixel // count)
        if lanes[i].out_start == pixel % count and distance % lanes[i].tap_step == 0 and 0 <= distance // lanes[i].tap_step < lanes[i].taps:
            return lanes[i].filter_start + lanes[i].filter_step * (distance // lanes[i].tap_step)
    return -1


cdef int64_t lane_steps(const Lane *lanes, int64_t count, int64_t unit) noexcept nogil:
    """Taps of as many pixels as are multiplied at once."""
    cdef int64_t total = 0, i
    for i in range(count):
        total += lanes[i].taps * divide_up(lanes[i].count, unit)
    return total


cdef bint are_patches(const Problem *g) noexcept nogil:
    """Whether dst is patches in planes, whose pixels have the taps of a filter, in turn, and long enough rows."""
    cdef Lane row, col
    if g.unpadded or not g.covered or g.groups > 1 or g.dst_c == 1 or g.src_c == 1 or g.src_channels % PAIR:
        return False
    if not (LEAST_RUN <= g.col_lanes <= MOST_RUN or (g.col_lanes == TURNS and TILE == 1)) or g.row_lanes * g.col_lanes * g.dst_channels > CHANNELS:
        return False
    return lies_in_turn(row_lanes(g), g.row_lanes, &row) and lies_in_turn(col_lanes(g), g.col_lanes, &col)


cdef bint folds_turns(const Gather *w) noexcept nogil:
    """Whether dst is patches of two columns, whose sums are rows: a phase after the other, 2x2 taps would take 1.05 to 1.4 times as long, in 16 bits 1.1 to 1.5
    (16 to 512 channels, Emerald Rapids)."""
    return TILE == 1 and w.fold.cols == TURNS


cdef bint lies_in_turn(const Lane *lanes, int64_t count, Lane *all) noexcept nogil:
    """Whether each lane has one tap, of the same row or column of src, in the order of the filter."""
    cdef int64_t i
    for i in range(count):
        if lanes[i].out_start != i or lanes[i].filter_start != i:
            return False
    return fold_lanes(lanes, count, 1, all) and all.taps == 1


cdef Fold fold_of(const Problem *g) noexcept nogil:
    """Patches, or else the blocks that take the fewest products of tiles, at most three quarters of those without; none, of no rows, if there are no such."""
    cdef int64_t least = lane_steps(row_lanes(g), g.row_lanes, 1) * lane_steps(col_lanes(g), g.col_lanes, TILE) * 3 // 4, steps, i, j, columns, pixels
    cdef Fold best
    cdef Lane row, col
    best.g, best.rows, best.cols, best.pixels = g, 0, 0, PIXELS
    if are_patches(g):
        best.rows, best.cols = g.row_lanes, g.col_lanes
        return best
    if TILE == 1 or g.unpadded or not g.covered or g.groups > 1 or g.dst_channels > TILE // 2:
        return best
    for i in range(1, MOST_TIMES + 1):
        for j in range(1, MOST_TIMES + 1):
            columns = i * j * g.row_lanes * g.col_lanes * g.dst_channels
            if columns > MOST_FOLDED or not fold_lanes(row_lanes(g), g.row_lanes, i, &row) or not fold_lanes(col_lanes(g), g.col_lanes, j, &col):
                continue
            steps, pixels = lane_steps(&row, 1, 1) * lane_steps(&col, 1, TILE) * divide_up(columns, TILE), banded_pixels(g, &row, &col, PIXELS * LD)
            if steps < least and pixels and g.images * row.count * col.count >= FEW_PIXELS:
                least, best.rows, best.cols, best.pixels = steps, i * g.row_lanes, j * g.col_lanes, pixels
    return best


cdef void fold(Fold *f, Problem *whole) noexcept nogil:
    """The problem of blocks, whose pixels follow each other."""
    cdef const Problem *g = f.g
    cdef Lane *lanes = <Lane *> (whole + 1)
    whole[0] = g[0]
    whole.row_lanes = whole.col_lanes = 1
    fold_lanes(row_lanes(g), g.row_lanes, f.rows // g.row_lanes, lanes)
    fold_lanes(col_lanes(g), g.col_lanes, f.cols // g.col_lanes, lanes + 1)
    whole.dst_rows, whole.dst_cols, whole.dst_channels = lanes[0].count, lanes[1].count, f.rows * f.cols * g.dst_channels
    whole.dst_c, whole.dst_x, whole.dst_y = 1, whole.dst_channels, whole.dst_cols * whole.dst_channels
    whole.dst_n = whole.dst_rows * whole.dst_y
    whole.filter_rows, whole.filter_cols = lanes[0].taps, lanes[1].taps
    if are_patches(g):
        order_as_filter(f, whole)
    else:
        order_as_dst(f, whole)


cdef void order_as_filter(Fold *f, Problem *whole) noexcept nogil:
    """Channels of patches lie as they do in the filter, all of whose taps are one."""
    whole.filter_dst = smaller(f.g.filter_dst, f.g.filter_x)
    f.row, f.col, f.channel = f.g.filter_y // whole.filter_dst, f.g.filter_x // whole.filter_dst, f.g.filter_dst // whole.filter_dst


cdef void order_as_dst(Fold *f, Problem *whole) noexcept nogil:
    """Channels of blocks lie as in dst; those of the filter [tap][row, column and channel of a pixel][what lies side by side in the filter] or, if those are
    channels of dst, the other way."""
    cdef const Problem *g = f.g
    f.row, f.col, f.channel = f.cols * g.dst_channels, g.dst_channels if g.dst_c == 1 else 1, 1 if g.dst_c == 1 else f.cols
    whole.filter_src, whole.filter_dst = 1 if g.filter_src == 1 else whole.dst_channels, g.src_channels if g.filter_src == 1 else 1
    whole.filter_x = whole.dst_channels * g.src_channels
    whole.filter_y = whole.filter_cols * whole.filter_x
    whole.filter_group = whole.filter_rows * whole.filter_y


cdef int64_t column_of(const Fold *f, int64_t y, int64_t x, int64_t channel) noexcept nogil:
    """Which channel of a block a pixel's is."""
    return y * f.row + x * f.col + channel * f.channel


cdef void fold_tap(const void *work, int64_t index, void *_) noexcept nogil:
    """Writes the filter of one tap of blocks."""
    cdef const Folded *f = <const Folded *> work
    cdef const Gather *w = f.w
    cdef const Problem *g = w.fold.g
    cdef const Problem *to = f.whole
    cdef int64_t size = item_size(w.storage), above = row_lanes(to).src_start + index // to.filter_cols, left = col_lanes(to).src_start + index % to.filter_cols, y, x, r, s, c, k
    cdef char *dst = f.dense + index * to.filter_x * size
    cdef const char *src
    memset(dst, 0, to.filter_x * size)
    for y in range(w.fold.rows):
        r = tap_at(row_lanes(g), g.row_lanes, y, above)
        for x in range(w.fold.cols if r >= 0 else 0):
            s = tap_at(col_lanes(g), g.col_lanes, x, left)
            for c in range(g.dst_channels if s >= 0 else 0):
                src = w.filter + (r * g.filter_y + s * g.filter_x + c * g.filter_dst) * size
                if g.filter_src == 1:
                    memcpy(dst + column_of(&w.fold, y, x, c) * to.filter_dst * size, src, g.src_channels * size)
                    continue
                for k in range(g.src_channels):
                    memcpy(dst + (k * to.filter_src + column_of(&w.fold, y, x, c)) * size, src + k * g.filter_src * size, size)


cdef void unfold(const Gather *w, const Patches *p, const Block *b, Pixel *at, int64_t count) noexcept nogil:
    """store_pixels of blocks, tile by tile or, of channel rows, row by row."""
    cdef int64_t done = 0, take
    while done < count:
        take = smaller(smaller(p.col.count - at.v, count - done), count if w.channel_rows else MR)
        if w.channel_rows:
            unfold_turns(w, b.c + done, take, at)
        elif w.fold.g.dst_c != 1 and w.fold.cols == TURNS and w.fold.g.dst_channels > 1:
            unfold_pairs(w, b.c + done * (w.channels + PAD), take, at)
        else:
            unfold_runs(w, b.c + done * (w.channels + PAD), take, at)
        advance(p, at, take)
        done += take


cdef int64_t pixels_inside(const Gather *w, int64_t count, const Pixel *at) noexcept nogil:
    """Columns of dst that so many blocks have."""
    return smaller(count * w.fold.cols, w.fold.g.dst_cols - at.v * w.fold.cols)


cdef char *dst_of(const Gather *w, const Pixel *at, int64_t y, int64_t c) noexcept nogil:
    """The first pixel of row y of a block, channel c."""
    cdef const Problem *g = w.fold.g
    return w.dst + (at.n * g.dst_n + (at.u * w.fold.rows + y) * g.dst_y + at.v * w.fold.cols * g.dst_x + c * g.dst_c) * item_size(w.storage)


cdef int64_t rows_inside(const Gather *w, const Pixel *at) noexcept nogil:
    return smaller(w.fold.rows, w.fold.g.dst_rows - at.u * w.fold.rows)


cdef void unfold_runs(const Gather *w, const real *sums, int64_t count, const Pixel *at) noexcept nogil:
    """Row by row of dst what lies side by side there, of all channels or of one."""
    cdef int64_t planes = w.fold.g.dst_channels if w.fold.g.dst_c != 1 else 1, run = w.g.dst_channels // (w.fold.rows * planes), ldc = w.channels + PAD
    cdef int64_t left = pixels_inside(w, count, at) * run // w.fold.cols, n
    cdef real[MR * MOST_RUN + VL] line
    for n in range(rows_inside(w, at) * planes):
        take_runs(sums + column_of(&w.fold, n // planes, 0, n % planes), ldc, count, run, w.fold.col if planes > 1 else 1, line)
        narrow_block(w.storage, line, left, 1, left, dst_of(w, at, n // planes, n % planes), left, 1)


cdef void unfold_turns(const Gather *w, const real *sums, int64_t count, const Pixel *at) noexcept nogil:
    """The same of patches of two columns, whose sums are rows."""
    cdef int64_t planes = w.fold.g.dst_channels, left = pixels_inside(w, count, at), n
    cdef const real *even
    cdef char *dst
    for n in range(rows_inside(w, at) * planes):
        even, dst = sums + column_of(&w.fold, n // planes, 0, n % planes) * w.ldp, dst_of(w, at, n // planes, n % planes)
        narrow_in_turns(w.storage, even, even + w.fold.col * w.ldp, left // 2, dst)
        if left % 2:
            narrow_block(w.storage, even + left // 2, w.ldp, 1, 1, dst + (left - 1) * item_size(w.storage), 1, 1)


cdef void take_runs(const real *src, int64_t ld, int64_t count, int64_t run, int64_t step, real *dst) noexcept nogil:
    """dst[i, j] = src[i ld + j step]; beyond, where the next one is going to be."""
    cdef int64_t i, j
    for i in range(count):
        j = 0
        while step == 1 and j < run:
            store(dst + i * run + j, load(src + i * ld + j))
            j += VL
        while j < run:
            dst[i * run + j] = src[i * ld + j * step]
            j += 1


cdef void unfold_pairs(const Gather *w, const real *sums, int64_t count, const Pixel *at) noexcept nogil:
    """The same of planes, two columns of which are turned as one number: layers take 0.75 to 0.95 of the time (Granite Rapids)."""
    cdef int64_t pairs = divide_up(w.g.dst_channels, VL) * VL // 2, left = pixels_inside(w, count, at), n
    cdef real[MR * PAIRS_FOLDED] words, lines
    narrow_block(w.storage, sums, w.channels + PAD, count, 2 * pairs, <char *> words, 2 * pairs, 1)
    widen_block(REAL_STORAGE, <const char *> words, 1, pairs, rows_inside(w, at) * w.fold.g.dst_channels, count, lines, MR)
    for n in range(rows_inside(w, at) * w.fold.g.dst_channels):
        memcpy(dst_of(w, at, n // w.fold.g.dst_channels, n % w.fold.g.dst_channels), lines + n * MR, left * item_size(w.storage))


cdef int drive_folded(Gather *w, int threads) noexcept nogil:
    """drive with blocks of pixels as one."""
    cdef OnePair whole
    cdef Folded folded
    cdef int failed
    fold(&w.fold, &whole.problem)
    if are_patches(w.g):
        w.g = &whole.problem
        return drive(w, threads)
    folded.w, folded.whole = w, &whole.problem
    folded.dense = <char *> allocate_bytes(whole.problem.filter_group * item_size(w.storage))
    if folded.dense == NULL:
        return 1
    do_blocks(fold_tap, &folded, whole.problem.filter_rows * whole.problem.filter_cols, threads, FIRST_FREE, NULL, 0)
    w.g, w.filter, w.sparse = &whole.problem, folded.dense, True
    failed = drive(w, threads)
    release(folded.dense)
    return failed
