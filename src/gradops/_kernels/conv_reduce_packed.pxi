"""Part of `conv_reduce`: wide layers whose pixels are rows on either side, on Intel's CPUs. Each block packs both operands as tiles read them, from end to end."""
from libc.stdint cimport int64_t
from _gemm cimport Operands, gemm_packed, operands, tile_rows
from _patches cimport Patches, Rows, dst_in_rows, pixels, src_in_rows
from _problem cimport divide_up, smaller
from _storage cimport real, MR, NR, PAIR, TILE, VL, REAL_STORAGE, clear, item_size, load, store, widen_block

cdef enum:
    LEAST_PACKED = 24                                   # multiply-adds for each number of a pixel, at least; where it could be read as it lies, for each byte
    PACKED_COLUMNS = 512                                # of a block, at most
    PACKED_LD = PACKED_COLUMNS + PAD                    # distance of rows of sums, and of rows that are converted
    AT_ONCE = 16                                        # rows that are packed side by side


cdef bint is_packed(const Reduce *w) noexcept nogil:
    """Whether blocks pack both operands. 1x1 layers of 728 to 2048 channels take 0.8 to 0.9 of the time, of 128 to 1024 0.87 to 1.0 (float32), of 256 to 2048
    0.93 to 1.0 (float64), of 24 to 1024 0.8 to 1.0 (float16); narrower ones would take up to 1.3 (Granite Rapids)."""
    cdef Patches p = first_patches(w)
    cdef int64_t least = LEAST_PACKED * <int64_t> sizeof(real) if w.storage == REAL_STORAGE else LEAST_PACKED
    if not INTEL or TILE > 1 or PAIR > 1 or MR <= 6 or w.g.src_c != 1 or not whole(w.g) or not src_in_rows(&p) or not dst_in_rows(&p):
        return False
    return pixels(&p) >= packed_depth() and w.slots * w.g.dst_channels >= least * (w.slots + w.g.dst_channels)


cdef int64_t packed_depth() noexcept nogil:
    """Pixels of a pass."""
    return DEPTH * 2 // <int64_t> sizeof(real)


cdef int64_t packed_rows() noexcept nogil:
    """Rows of a block, at most."""
    return PACKED_COLUMNS * 4 // <int64_t> sizeof(real)


cdef int64_t tile_distance() noexcept nogil:
    """From one tile's packed columns to the next one's."""
    return packed_depth() * MR + PAD


cdef int64_t packed_tiles() noexcept nogil:
    """Reals of all tiles of a block."""
    return divide_up(packed_rows(), MR) * tile_distance()


cdef int64_t packed_scratch() noexcept nogil:
    """Reals of tiles, panels, rows that are converted, and sums."""
    return packed_tiles() + packed_depth() * PACKED_COLUMNS + (AT_ONCE + packed_rows()) * PACKED_LD


cdef void place_packed(Panel *b) noexcept nogil:
    """Where these lie in the scratch that begins with the tiles."""
    b.dy = b.patch + packed_tiles()
    b.turn = b.dy + packed_depth() * PACKED_COLUMNS
    b.c = b.turn + AT_ONCE * PACKED_LD


cdef void pack_tiles(int storage, const Rows *rows, int64_t depth, int64_t m, real *converted, real *dst) noexcept nogil:
    """dst[tile][i][j] = row i's column j of a register tile, MR apart, of m columns in all: whole vectors, which the next row overwrites, unless they reach beyond them."""
    cdef int64_t tiles = divide_up(m, MR), reach = divide_up(MR, VL) * VL, done = 0, ld = rows.row // item_size(storage), some, t, column, width, i, j
    cdef const real *src
    cdef real *to
    while done < depth:
        some, src, column = smaller(AT_ONCE, depth - done), <const real *> (rows.lies + done * rows.row), 0
        if storage != REAL_STORAGE:
            widen_block(storage, rows.lies + done * rows.row, ld, 1, some, m, converted, PACKED_LD)
            src = converted
        for t in range(tiles):
            width, to = tile_rows(m, t), dst + t * tile_distance() + done * MR
            if column + reach > m:
                widen_block(REAL_STORAGE, <const char *> (src + column), PACKED_LD if src == converted else ld, 1, some, width, to, MR)
            else:
                for i in range(some):
                    for j in range(divide_up(MR, VL)):
                        store(to + i * MR + j * VL, load(src + column + i * (PACKED_LD if src == converted else ld) + j * VL))
            column += width
        done += some


cdef void pack_panels(int storage, const Rows *rows, int64_t depth, int64_t n, real *dst) noexcept nogil:
    """dst[panel][i][j] = row i's column panel NR + j, zero beyond n columns."""
    cdef int64_t size = item_size(storage), distance = packed_depth() * NR, done = 0, some, panel
    if n % NR:
        clear(dst + n // NR * distance, depth * NR)
    while done < depth:
        some = smaller(AT_ONCE, depth - done)
        for panel in range(divide_up(n, NR)):
            widen_block(storage, rows.lies + done * rows.row + panel * NR * size, rows.row // size, 1, some, smaller(n - panel * NR, NR), dst + panel * distance + done * NR, NR)
        done += some


cdef void reduce_packed(const Reduce *w, const Patches *p, const Panel *b) noexcept nogil:
    """c = x' dy or, turned, dy' x over the block's span of pixels. Nothing is fetched: CPUs foresee what is packed, and lines on their way to the second cache keep
    those from it waiting (1.0 to 1.05 of the time)."""
    cdef int64_t first = span_begin(w, p, b.span), end = span_begin(w, p, b.span + 1), size = item_size(w.storage), depth
    cdef int64_t m = b.channels if w.turned else b.slots, n = b.slots if w.turned else b.channels
    cdef bint accumulate = False
    cdef Operands product
    cdef Rows x, dy
    while first < end:
        depth = smaller(packed_depth(), end - first)
        x = rows_of(p.src, w.g.src_x, size, first, b.slot, True)
        dy = rows_of(w.dy, w.g.dst_x, size, first, b.group * w.g.dst_channels + b.channel, True)
        pack_tiles(w.storage, &dy if w.turned else &x, depth, m, b.turn, b.patch)
        pack_panels(w.storage, &x if w.turned else &dy, depth, n, b.dy)
        product = operands(depth, NULL, MR, NR, w.ldc, accumulate)
        product.tile = tile_distance()
        gemm_packed(column_tile, True, m, n, &product, b.patch, b.dy, packed_depth() * NR, b.c)
        first += depth
        accumulate = True
