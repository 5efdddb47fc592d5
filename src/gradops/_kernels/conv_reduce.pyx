# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[slot, k] = sum_pixel patches(x)[pixel, slot] dy[pixel, k]: conv2d_backprop_filter, an implicit GEMM that reduces over pixels.

In parallel: blocks of (span of pixels, group, slots, channels k). Few blocks get more spans: each span sums into its own partial dw, and
the partials are added in order. Packed: patches and dy, DEPTH pixels at a time, unless they can be read where they lie; patches pixel by
pixel where the channels of x are contiguous, else slot by slot.

*Assumes:* x, dy and dw are contiguous and aligned; the problem is that of the forward op and not empty, its lanes have out_step and
filter_step 1; dw is [slots][groups][k].
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
from libc.stdlib cimport free
cimport numpy as cnp
from _gemm cimport READS, Stream, stream, gemm_block, gemm_packed
from _partials cimport add_all_partials
from _patches cimport Patches, Pixel, Rows, advance, dst_in_rows, patches, pixel, pixels, pack_pixels, pack_slots, src_in_rows
from _problem cimport Problem, row_lanes, col_lanes, divide_up, smaller, larger, part, useful_threads
from _scratch cimport allocate, padded
from _storage cimport real, LINE, MR, NR, PAIR, VL, REAL_STORAGE, all_finite, item_size, clear, widen_block, narrow_block, pair_columns, pair_rows

cnp.import_array()

cdef enum:
    DEPTH = 256                                         # pixels that are packed at a time
    SLOTS = 252                                         # of a block, at most
    LDP = DEPTH + 16                                    # distance of packed slots
    CHANNELS = 256                                      # of a block, at most
    MIN_BLOCKS = 32                                     # pixels are split into spans until there are as many blocks
    BLOCKS = 3                                          # of a thread: blocks shrink until there are as many
    MIN_SPAN = 1024                                     # pixels of a span, at least
    LDS = SLOTS + 16                                    # distance of packed pixels; not a power of two, which crowds a few cache sets
    LDC = CHANNELS + 16                                 # distance of rows of the block
    SCRATCH = DEPTH * LDS + DEPTH * CHANNELS + SLOTS * LDC


cdef struct Reduce:
    const Problem *g
    int storage
    const char *x
    const char *dy
    char *dw
    int64_t slots, slot_blocks, channels, channel_blocks, spans
    real *partials                                      # [span][slot][group][k], where there are several spans
    bint *finite                                        # cleared if dw holds an infinity or NaN


cdef void plan(Reduce *w, int threads) noexcept nogil:
    """Chooses the spans, by the problem alone, and the blocks, which no sum depends on."""
    cdef const Problem *g = w.g
    cdef int64_t blocks
    w.slots = g.filter_rows * g.filter_cols * g.src_channels
    w.slot_blocks = divide_up(w.slots, SLOTS)
    w.channels = CHANNELS
    blocks = g.groups * w.slot_blocks * divide_up(g.dst_channels, w.channels)
    w.spans = larger(smaller(divide_up(MIN_BLOCKS, blocks), g.images * g.dst_rows * g.dst_cols // MIN_SPAN), 1)
    while threads > 1 and w.spans * g.groups * w.slot_blocks * divide_up(g.dst_channels, w.channels) < BLOCKS * threads:
        if w.slots // w.slot_blocks >= 4 * MR:
            w.slot_blocks *= 2
        elif w.channels > NR:
            w.channels //= 2
        else:
            break
    w.channel_blocks = divide_up(g.dst_channels, w.channels)


cdef int64_t filter_size(const Reduce *w) noexcept nogil:
    return w.slots * w.g.groups * w.g.dst_channels


cdef void pack_dy(const Reduce *w, const Patches *p, int64_t channel, int64_t channels, int64_t first, int64_t count, real *dst) noexcept nogil:
    """dst[panel][i][j] = dy[pixel first + i, channel + panel NR + j], zero beyond the channels."""
    cdef int64_t panel, width, done = 0, take
    cdef Pixel at = pixel(p, first)
    cdef const char *src
    if channels % NR:
        clear(dst + channels // NR * DEPTH * NR, count * NR)
    while done < count:
        take = smaller(p.col.count - at.v, count - done)
        for panel in range(divide_up(channels, NR)):
            width = smaller(channels - panel * NR, NR)
            src = w.dy + dy_index(w, p, &at, channel + panel * NR) * item_size(w.storage)
            widen_block(w.storage, src, w.g.dst_x, w.g.dst_c, take, width, dst + (panel * DEPTH + done) * NR, NR)
        advance(p, &at, take)
        done += take
    for panel in range(divide_up(channels, NR)):
        pair_rows(dst + panel * DEPTH * NR, count, NR, NR)


cdef inline int64_t dy_index(const Reduce *w, const Patches *p, const Pixel *at, int64_t channel) noexcept nogil:
    return at.n * w.g.dst_n + (p.row.out_start + at.u) * w.g.dst_y + (p.col.out_start + at.v) * w.g.dst_x + channel * w.g.dst_c


cdef struct Panel:                                      # what a thread works on: a block of dw and its scratch
    int64_t span, group, slot, slots, channel, channels
    real *patch
    real *dy
    real *c


cdef Rows patch_rows(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots) noexcept nogil:
    """Patches [pixel][slot] or, where the channels of x are not contiguous, [slot][pixel]."""
    cdef Rows rows = rows_of(p.src, w.g.src_x, item_size(w.storage), first, slot, src_in_rows(p))
    rows.in_place = usable(w, &rows)
    if rows.in_place:
        rows.at, rows.ld = <const real *> rows.lies, w.g.src_x
    elif w.g.src_c == 1:
        rows.at, rows.ld = b.patch, LDS
        pack_pixels(p, first, depth, slot, slots, b.patch, LDS)
        pair_rows(b.patch, depth, slots, LDS)
    else:
        rows.at, rows.ld = b.patch, LDP
        pack_slots(p, first, depth, slot, slots, b.patch, LDP)
        pair_columns(b.patch, slots, depth, LDP)
    return rows


cdef Rows dy_rows(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth) noexcept nogil:
    """Panels of dy. In place, the last panel reads on into the next pixels, for columns that no one uses; the last pixels have none."""
    cdef int64_t channel = b.group * w.g.dst_channels + b.channel
    cdef Rows rows = rows_of(w.dy, w.g.dst_x, item_size(w.storage), first, channel, dst_in_rows(p))
    rows.in_place = usable(w, &rows) and (b.channels % VL == 0 or (pixels(p) - first - depth) * w.g.dst_x >= NR)
    if rows.in_place:
        rows.at, rows.ld, rows.panel = <const real *> rows.lies, w.g.dst_x, NR
    else:
        rows.at, rows.ld, rows.panel = b.dy, NR, DEPTH * NR
        pack_dy(w, p, channel, b.channels, first, depth, b.dy)
    return rows


cdef Rows rows_of(const char *array, int64_t pixel_step, int64_t size, int64_t first, int64_t column, bint in_rows) noexcept nogil:
    """An operand that begins with pixel `first` and a column of an array, neither packed nor used in place yet."""
    cdef Rows rows
    rows.at, rows.ld, rows.panel, rows.in_place = NULL, 0, 0, False
    rows.lies, rows.row = array + (first * pixel_step + column) * size if in_rows else NULL, pixel_step * size
    return rows


cdef bint usable(const Reduce *w, const Rows *rows) noexcept nogil:
    """Whether rows can be an operand where they lie: not for narrow tiles, which need a row again before the cache can bring it."""
    return rows.lies != NULL and w.storage == REAL_STORAGE and MR > 6


cdef void multiply_rows(int64_t slots, int64_t channels, int64_t depth, int64_t size, const Rows *x, const Rows *dy, real *c, bint accumulate, bint more) noexcept nogil:
    """c (+)= x' dy. Fetches the rows after these, if there are more."""
    gemm_block(True, slots, channels, divide_up(depth, PAIR), x.at, x.ld, dy.at, dy.ld, dy.panel, c, LDC, accumulate, READS,
               next_rows(x, slots * size, depth, more, c), next_rows(dy, channels * size, depth, more, c))


cdef Stream next_rows(const Rows *rows, int64_t width, int64_t depth, bint more, const real *c) noexcept nogil:
    """The rows after an operand's, `width` bytes each, column by column of cache lines, if they lie in rows and are needed next."""
    if rows.lies == NULL or not more:
        return stream(c, 0, 0, 1)
    return stream(rows.lies + depth * rows.row, LINE, rows.row * PAIR, divide_up(width, LINE))


cdef void reduce_run(const Reduce *w, const Patches *p, const Panel *b, int64_t pair_slot, int64_t slots, real *c, bint accumulate) noexcept nogil:
    """c[0:slots] (+)= the lane pair's slots from pair_slot on, summed over the block's span of pixels, DEPTH at a time."""
    cdef int64_t first = part(pixels(p), b.span, w.spans), end = part(pixels(p), b.span + 1, w.spans), depth
    cdef Rows x, dy
    while first < end:
        depth = smaller(DEPTH, end - first)
        x = patch_rows(w, p, b, first, depth, pair_slot, slots)
        dy = dy_rows(w, p, b, first, depth)
        if w.g.src_c == 1:
            multiply_rows(slots, b.channels, depth, item_size(w.storage), &x, &dy, c, accumulate, first + depth < end)
        else:
            gemm_packed(False, slots, b.channels, divide_up(depth, PAIR), x.at, LDP, dy.at, dy.ld, dy.panel, c, LDC, accumulate)
        first += depth
        accumulate = True


cdef void reduce_pair(const Reduce *w, const Patches *p, const Panel *b) noexcept nogil:
    """Adds a lane pair that has some of the taps: its filter rows one by one, as far as they lie in the block."""
    cdef int64_t cs = w.g.src_channels, width = p.col.taps * cs, i, begin, low, high
    for i in range(p.row.taps):
        begin = ((p.row.filter_start + i) * w.g.filter_cols + p.col.filter_start) * cs
        low, high = larger(begin, b.slot), smaller(begin + width, b.slot + b.slots)
        if low < high:
            reduce_run(w, p, b, i * width + low - begin, high - low, b.c + (low - b.slot) * LDC, True)


cdef void store_block(const Reduce *w, const Panel *b) noexcept nogil:
    """Writes a block to the result or, of several spans, to its partial."""
    cdef int64_t row = w.g.groups * w.g.dst_channels, at = b.slot * row + b.group * w.g.dst_channels + b.channel, i
    if w.spans > 1:
        narrow_block(REAL_STORAGE, b.c, LDC, b.slots, b.channels, <char *> (w.partials + b.span * filter_size(w) + at), row, 1)
        return
    narrow_block(w.storage, b.c, LDC, b.slots, b.channels, w.dw + at * item_size(w.storage), row, 1)
    for i in range(b.slots):
        if not all_finite(b.c + i * LDC, b.channels):
            w.finite[0] = False


cdef void reduce_block(const Reduce *w, int64_t index, real *scratch) noexcept nogil:
    """One block of dw, summed over one span of pixels."""
    cdef int64_t slot_block = index % w.slot_blocks, i, pairs = w.g.row_lanes * w.g.col_lanes
    cdef bint whole = pairs == 1 and row_lanes(w.g).taps == w.g.filter_rows and col_lanes(w.g).taps == w.g.filter_cols
    cdef Patches p
    cdef Panel b
    index = index // w.slot_blocks
    b.slot = part(w.slots, slot_block, w.slot_blocks)
    b.slots = part(w.slots, slot_block + 1, w.slot_blocks) - b.slot
    b.channel = index % w.channel_blocks * w.channels
    b.channels = smaller(w.channels, w.g.dst_channels - b.channel)
    b.group = index // w.channel_blocks % w.g.groups
    b.span = index // w.channel_blocks // w.g.groups
    b.patch, b.dy, b.c = scratch, scratch + DEPTH * LDS, scratch + DEPTH * LDS + DEPTH * CHANNELS
    if not whole:
        clear(b.c, SLOTS * LDC)
    for i in range(pairs):
        p = patches(w.g, row_lanes(w.g) + i // w.g.col_lanes, col_lanes(w.g) + i % w.g.col_lanes, w.x, w.storage, b.group)
        if whole:
            reduce_run(w, &p, &b, b.slot, b.slots, b.c, False)
        else:
            reduce_pair(w, &p, &b)
    store_block(w, &b)


cdef void reduce_blocks(const Reduce *w, int threads, real *scratch) noexcept nogil:
    cdef int64_t block
    if threads == 1:
        for block in range(w.spans * w.g.groups * w.slot_blocks * w.channel_blocks):
            reduce_block(w, block, scratch)
        return
    for block in prange(w.spans * w.g.groups * w.slot_blocks * w.channel_blocks, num_threads=threads, schedule="dynamic"):
        reduce_block(w, block, scratch + threadid() * SCRATCH)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef int64_t partials
    threads = useful_threads(w.g, threads, threads)
    plan(w, threads)
    threads = <int> smaller(threads, w.spans * w.g.groups * w.slot_blocks * w.channel_blocks)
    partials = padded(w.spans * filter_size(w)) if w.spans > 1 else 0
    w.partials = allocate(partials + threads * SCRATCH)
    if w.partials == NULL:
        return 1
    reduce_blocks(w, threads, w.partials + partials)
    if w.spans > 1:
        add_all_partials(w.partials, w.spans, filter_size(w), w.storage, w.dw, threads, w.finite)
    free(w.partials)
    return 0


def run(bytes problem not None, int storage, cnp.ndarray x not None, cnp.ndarray dy not None, cnp.ndarray dw not None, int num_threads):
    """Computes dw. Returns whether it is finite: if not, infinities of dy may have met the zeros of the padding of x."""
    cdef Reduce w
    cdef int failed
    cdef bint finite = True
    w.g = <const Problem *> PyBytes_AS_STRING(problem)
    w.storage = storage
    w.x = <const char *> cnp.PyArray_DATA(x)
    w.dy = <const char *> cnp.PyArray_DATA(dy)
    w.dw = <char *> cnp.PyArray_DATA(dw)
    w.finite = &finite
    with nogil:
        failed = drive(&w, num_threads)
    if failed:
        raise MemoryError("no memory for packed panels and scratch")
    return finite
