"""Part of `conv_reduce`: wide layers, channels last, on Intel's CPUs. Each block packs both operands as tiles read them, from end to end."""
from libc.stdint cimport int64_t
from _gemm cimport Operands, Stream, gemm_block, operands, rows_stream, stream, tile_rows
from _patches cimport Patches, dst_in_rows, pack_pixels, pixels, src_in_rows
from _problem cimport divide_up, smaller
from _storage cimport real, MR, NR, PAIR, TILE, VL, REAL_STORAGE, clear, item_size, load, store, widen_block

cdef enum:
    LEAST_PACKED = 24                                   # multiply-adds for each number of a pixel, at least; of rows that could be read as they lie, for each byte;
    LEAST_PATCHES = 64                                  # of patches
    PACKED_COLUMNS = 512                                # of a block, at most
    PACKED_LD = PACKED_COLUMNS + PAD                    # distance of rows that are converted
    AT_ONCE = 16                                        # rows that are packed side by side


cdef struct Source:                                     # an operand, from the pixel on that a pass begins with
    const char *lies                                    # its rows, `row` bytes apart; NULL if they are patches:
    int64_t row
    int64_t first, column                               # of that pixel, from that slot on


cdef inline bint may_pack() noexcept nogil:
    """Whether there are such blocks at a level."""
    return TILE == 1 and PAIR == 1 and MR > 6


cdef bint is_packed(const Reduce *w) noexcept nogil:
    """Whether blocks pack both operands. 1x1 layers of 728 to 2048 channels take 0.75 to 0.9 of the time, of 128 to 1024 0.87 to 1.0 (float32), of 256 to 2048
    0.93 to 1.0 (float64), of 24 to 1024 0.8 to 1.0 (float16); with strides, or of more taps, 0.8 to 1.0; narrower ones would take up to 1.3 (Granite Rapids)."""
    cdef Patches p = first_patches(w)
    cdef int64_t least = LEAST_PACKED
    if not may_pack() or not INTEL or w.g.src_c != 1 or not whole(w.g) or not dst_in_rows(&p) or by_band(&p):
        return False
    if not src_in_rows(&p):
        least = LEAST_PATCHES
    elif w.storage == REAL_STORAGE:
        least *= sizeof(real)
    return pixels(&p) >= packed_depth() and w.slots * w.g.dst_channels >= least * (w.slots + w.g.dst_channels)


cdef int64_t packed_depth() noexcept nogil:
    """Pixels of a pass."""
    return DEPTH * 2 // <int64_t> sizeof(real)


cdef int64_t packed_rows(const Reduce *w) noexcept nogil:
    """Rows of a block, at most: fewer where partial sums need memory beside many columns."""
    cdef int64_t most = PACKED_COLUMNS * 4 // <int64_t> sizeof(real), n = w.slots if w.turned else w.g.dst_channels
    if w.dw.size * <int64_t> sizeof(real) >= LARGE:
        return most
    return smaller(most * PACKED_COLUMNS * 3 // 4 // divide_up(n, divide_up(n, PACKED_COLUMNS)), most)


cdef int64_t block_rows(const Reduce *w) noexcept nogil:
    """Of the largest block."""
    return divide_up(w.panels, w.channel_blocks) * NR if w.turned else divide_up(w.slots, w.slot_blocks)


cdef int64_t block_columns(const Reduce *w) noexcept nogil:
    """Of the largest block, whole panels."""
    return divide_up(divide_up(w.slots, w.slot_blocks), NR) * NR if w.turned else divide_up(w.panels, w.channel_blocks) * NR


cdef int64_t tile_distance() noexcept nogil:
    """From one tile's packed columns to the next one's."""
    return packed_depth() * MR + PAD


cdef int64_t packed_tiles(const Reduce *w) noexcept nogil:
    """Reals of all tiles of a block."""
    return divide_up(block_rows(w), MR) * tile_distance()


cdef int64_t packed_scratch(const Reduce *w) noexcept nogil:
    """Reals of tiles, panels, rows that are converted, and sums."""
    return packed_tiles(w) + packed_depth() * block_columns(w) + AT_ONCE * PACKED_LD + block_rows(w) * w.ldc


cdef void place_packed(const Reduce *w, Panel *b) noexcept nogil:
    """Where these lie in the scratch that begins with the tiles."""
    b.dy = b.patch + packed_tiles(w)
    b.turn = b.dy + packed_depth() * block_columns(w)
    b.c = b.turn + AT_ONCE * PACKED_LD


cdef const real *real_rows(const Reduce *w, const Patches *p, const Source *source, int64_t done, int64_t count, int64_t columns, real *converted, int64_t *ld) noexcept nogil:
    """Some rows of an operand of so many columns, after those that are done: where they lie, or converted, or patches."""
    cdef const char *lies = source.lies + done * source.row if source.lies != NULL else NULL
    ld[0] = PACKED_LD
    if lies == NULL:
        pack_pixels(p, source.first + done, count, source.column, columns, converted, PACKED_LD)
    elif w.storage != REAL_STORAGE:
        widen_block(w.storage, lies, source.row // item_size(w.storage), 1, count, columns, converted, PACKED_LD)
    else:
        ld[0] = source.row // <int64_t> sizeof(real)
        return <const real *> lies
    return converted


cdef void pack_tiles(const Reduce *w, const Patches *p, const Source *source, int64_t depth, int64_t m, real *converted, real *dst) noexcept nogil:
    """dst[tile][i][j] = row i's column j of a register tile, MR apart, of m columns in all: whole vectors, which the next row overwrites, unless they reach beyond them."""
    cdef int64_t tiles = divide_up(m, MR), reach = divide_up(MR, VL) * VL, done = 0, ld, some, t, column, width, i, j
    cdef const real *src
    cdef real *to
    while done < depth:
        some, column = smaller(AT_ONCE, depth - done), 0
        src = real_rows(w, p, source, done, some, m, converted, &ld)
        for t in range(tiles):
            width, to = tile_rows(m, t), dst + t * tile_distance() + done * MR
            if column + reach > m:
                widen_block(REAL_STORAGE, <const char *> (src + column), ld, 1, some, width, to, MR)
            else:
                for i in range(some):
                    for j in range(divide_up(MR, VL)):
                        store(to + i * MR + j * VL, load(src + column + i * ld + j * VL))
            column += width
        done += some


cdef void pack_panels(const Reduce *w, const Patches *p, const Source *source, int64_t depth, int64_t n, real *converted, real *dst) noexcept nogil:
    """dst[panel][i][j] = row i's column panel NR + j, zero beyond n columns."""
    cdef int64_t distance = packed_depth() * NR, done = 0, ld, some, panel
    cdef const real *src
    if n % NR:
        clear(dst + n // NR * distance, depth * NR)
    while done < depth:
        some = smaller(AT_ONCE, depth - done)
        src = real_rows(w, p, source, done, some, n, converted, &ld)
        for panel in range(divide_up(n, NR)):
            widen_block(REAL_STORAGE, <const char *> (src + panel * NR), ld, 1, some, smaller(n - panel * NR, NR), dst + panel * distance + done * NR, NR)
        done += some


cdef Stream following(const Source *source, int64_t width, int64_t depth, int64_t left, bint wanted, const Panel *b) noexcept nogil:
    """The rows of an operand after a pass's, `width` bytes each, if they are wanted."""
    if source.lies == NULL or left <= 0 or not wanted:
        return stream(b.c, 0, 0, 1)
    return rows_stream(source.lies + depth * source.row, width, source.row, smaller(depth, left), depth)


cdef void reduce_packed(const Reduce *w, const Patches *p, const Panel *b) noexcept nogil:
    """c = x' dy or, turned, dy' x over the block's span of pixels. The next ones are fetched if no other block reads them, too, 256 to 256 channels 0.92 to 0.95 of the
    time, else not: CPUs foresee what is packed, and lines on their way to the second cache keep those from it waiting (1.0 to 1.1; Granite Rapids)."""
    cdef int64_t first = span_begin(w, p, b.span), end = span_begin(w, p, b.span + 1), size = item_size(w.storage), depth
    cdef int64_t m = b.channels if w.turned else b.slots, n = b.slots if w.turned else b.channels
    cdef bint accumulate = False, alone = w.slot_blocks * w.channel_blocks == 1
    cdef Operands product
    cdef Source x, dy
    cdef Stream next_x, next_dy
    while first < end:
        depth = smaller(packed_depth(), end - first)
        x.first, x.column, x.row, dy.row = first, b.slot, w.g.src_x * size, w.g.dst_x * size
        x.lies = p.src + first * x.row + b.slot * size if src_in_rows(p) else NULL
        dy.lies = w.dy + first * dy.row + (b.group * w.g.dst_channels + b.channel) * size
        pack_tiles(w, p, &dy if w.turned else &x, depth, m, b.turn, b.patch)
        pack_panels(w, p, &x if w.turned else &dy, depth, n, b.turn, b.dy)
        product = operands(depth, NULL, MR, NR, w.ldc, accumulate)
        product.tile = tile_distance()
        next_x = following(&x, b.slots * size, depth, end - first - depth, alone, b)
        next_dy = following(&dy, b.channels * size, depth, end - first - depth, alone, b)
        gemm_block(fetching_column_tile, column_tile, True, True, m, n, &product, b.patch, b.dy, packed_depth() * NR, b.c, next_x, next_dy)
        first += depth
        accumulate = True
