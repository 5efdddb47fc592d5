# cython: language_level=3, cdivision=True
"""A ring of packed rows: what the depthwise stencils read instead of the image.

Lanes are (channel, multiplier) pairs in memory order; a block of them is `vectors` vectors wide, all lanes if they fit. Each row that a
stencil needs is packed once: widened, channels brought into vectors, repeated for each multiplier, zero beyond the image. A row is
[vector][column][VL]; or, where the multipliers of a channel fill whole vectors, [channel][column]: a number that is read is then spread over a vector. Rows are
computed strip by strip, vector by vector: the image is read in the order of memory, each vector's part of the strip stays in the first cache while it is used, and
what the next strip needs is fetched meanwhile.
"""
from libc.stdint cimport int64_t
from _groups cimport group_lanes, is_grouped
from _problem cimport Problem, Lane, divide_up, larger, smaller
from _storage cimport real, vec, lane_index, LINE, VL, REAL_STORAGE, item_size, clear, copy, load, pick, prefetch_soon, spread, store, widen_block

cdef enum:
    LANES = 64                                          # of a block, at most, where channels are repeated
    WIDTH = 512                                         # packed columns of a row, unless one pixel's taps span more
    RING = 192 * 1024                                   # bytes of a ring: blocks get narrower, down to one vector, to fit
    LONGEST_LINE = 4 * RING                             # bytes of the results of a strip that are stored together: a stride makes them many
    SPREAD_LINE = 48 * 1024                             # the same of a small ring, channels last: what is fetched ahead lies far apart
    ENOUGH_ROWS = 2                                     # of a strip: blocks get narrower until it has as many
    MIN_BLOCKS = 32                                     # rows, then lanes, are split until there are as many blocks
    ROWS_PER_TAP = 4                                    # rows of a part, at least: its first rows pack a filter's height of src alone
    PICKED = 32                                         # pixels whose channels are widened at a time before they are repeated
    PLANE = 128                                         # pixels of a plane that are transposed at a time
    LEAST_LANES = 32                                    # of a block that is split for that


cdef struct Block:
    const Problem *g
    const Lane *row
    const Lane *col
    int storage
    const char *src                                     # at the image and the first lane's channel
    int64_t lanes, vectors, repeat
    int64_t pitch, planes                               # reals of a packed column, VL or 1, and vectors or channels of a row


cdef inline void set_lanes(Block *b, int64_t lanes, int64_t vectors, int64_t repeat, int64_t pitch) noexcept nogil:
    """So many lanes of a block of so many vectors, `repeat` of which have the same channel."""
    b.lanes, b.vectors, b.repeat, b.pitch = lanes, vectors, repeat, pitch
    b.planes = vectors if pitch == VL else lanes // repeat


cdef struct Ring:
    real *rows
    int64_t height, width                               # rows that it holds, columns of a row
    int64_t row                                         # reals of a row
    int64_t next                                        # the first row that has not been packed


cdef inline void fetch_line(const char *src, int64_t step, int64_t channel_step, int64_t count, int64_t lanes) noexcept nogil:
    """Fetches the elements at src + i step + c channel_step (bytes) for i < count, c < lanes <= VL."""
    cdef int64_t along = larger(LINE // step, 1), c, i
    for c in range(lanes if channel_step >= LINE else 1):
        for i in range(divide_up(count, along)):
            prefetch_soon(src + c * channel_step + i * along * step)


cdef inline void pack_line(int storage, const char *src, int64_t step, int64_t channel_step, int64_t count, int64_t lanes, int64_t repeat, int64_t ahead, real *dst, int64_t plane) noexcept nogil:
    """dst[lane // VL][i][lane % VL] = src[i step + lane // repeat channel_step] for i < count, zero beyond the lanes. Fetches what lies `ahead`."""
    cdef int64_t size = item_size(storage), whole = 0, v, n, i, vectors
    cdef real[PICKED * LANES] channels
    cdef lane_index[LANES] first
    cdef lane_index[LANES] offset
    cdef const real *at
    if repeat == 1:
        if storage == REAL_STORAGE and channel_step == 1:
            whole = lanes // VL
            for i in range(count):
                at = <const real *> src + i * step
                for v in range(whole):
                    prefetch_soon(at + ahead + v * VL)
                    store(dst + v * plane + i * VL, load(at + v * VL))
        for v in range(whole, divide_up(lanes, VL)):
            n = smaller(lanes - v * VL, VL)
            if n < VL:
                clear(dst + v * plane, count * VL)
            fetch_line(src + (v * VL * channel_step + ahead) * size, step * size, channel_step * size, count, n)
            widen_block(storage, src + v * VL * channel_step * size, step, channel_step, count, n, dst + v * plane, VL)
        return
    vectors = divide_up(lanes, VL)
    for v in range(vectors):
        first[v] = <lane_index> (v * VL // repeat)
        for i in range(VL):
            offset[v * VL + i] = <lane_index> ((v * VL + i) // repeat - first[v]) if v * VL + i < lanes else -1
    if storage == REAL_STORAGE and channel_step == 1:   # pixels behind which there are others to read instead of nothing
        whole = larger(count - divide_up(first[vectors - 1] + VL, step), 0)
        for i in range(whole):
            pick(<const real *> src + i * step, first, offset, vectors, dst + i * VL, plane)
    while whole < count:
        n = smaller(count - whole, PICKED)
        widen_block(storage, src + whole * step * size, step, channel_step, n, lanes // repeat, channels, LANES)
        for i in range(n):
            pick(channels + i * LANES, first, offset, vectors, dst + (whole + i) * VL, plane)
        whole += n


cdef inline void pack_row(const Block *b, int64_t z, int64_t first, int64_t width, int64_t ahead, real *dst) noexcept nogil:
    """Packs columns first.. of row z, both counted in the lanes' steps of src_unit. Fetches the same of the row `ahead`."""
    cdef const Problem *g = b.g
    cdef int64_t y = b.row.src_start + b.row.src_unit * z, x = b.col.src_start + b.col.src_unit * first, unit = b.col.src_unit, v
    cdef int64_t low = smaller(larger(divide_up(-x, unit), 0), width) if x < 0 else 0
    cdef int64_t high = larger(smaller(divide_up(g.src_cols - x, unit), width), low) if x < g.src_cols else low
    cdef int64_t size = item_size(b.storage)
    cdef const char *src
    if not 0 <= y < g.src_rows:
        low = high = width
    for v in range(b.planes):
        clear(dst + v * width * b.pitch, low * b.pitch)
        clear(dst + (v * width + high) * b.pitch, (width - high) * b.pitch)
    src, ahead = b.src + (y * g.src_y + (x + low * unit) * g.src_x) * size, ahead * b.row.src_unit * g.src_y
    if b.pitch == 1:
        fetch_line(src + ahead * size, unit * g.src_x * size, g.src_c * size, high - low, b.planes)
        widen_block(b.storage, src, g.src_c, unit * g.src_x, b.planes, high - low, dst + low, width)
    else:
        pack_line(b.storage, src, unit * g.src_x, g.src_c, high - low, b.lanes, b.repeat, ahead, dst + low * VL, width * VL)


cdef inline void pack_planes(const Block *b, const Ring *ring, int64_t z, int64_t end, int64_t first, int64_t ahead) noexcept nogil:
    """pack_row for rows z <= row < end, all of them and their columns in the image, whose pixels are contiguous: transposed PLANE at a time."""
    cdef const Problem *g = b.g
    cdef int64_t left = -b.col.src_start - first, cols = g.src_cols, size = item_size(b.storage), v, lanes, done, count, take, x, i
    cdef int64_t total = (end - z) * cols, start = (b.row.src_start + z) * cols, plane = ring.width * VL
    cdef real[PLANE * VL] turned
    cdef real *row
    for v in range(b.vectors):
        lanes = smaller(b.lanes - v * VL, VL)
        for i in range(z, end):
            row = ring_row(ring, i) + v * plane
            clear(row, left * VL)
            clear(row + (left + cols) * VL, (ring.width - left - cols) * VL)
        done = 0
        while done < total:
            count = smaller(total - done, PLANE)
            pack_line(b.storage, b.src + (v * VL * g.src_c + start + done) * size, 1, g.src_c, count, lanes, 1, ahead * cols, turned, 0)
            i = 0
            while i < count:
                x = (done + i) % cols
                take = smaller(cols - x, count - i)
                copy(turned + i * VL, take * VL, ring_row(ring, z + (done + i) // cols) + v * plane + (left + x) * VL)
                i += take
            done += count


cdef inline bint is_planar(const Block *b, const Ring *ring, int64_t first) noexcept nogil:
    """Whether rows are whole, and pixels of a channel contiguous."""
    cdef const Problem *g = b.g
    cdef int64_t x = b.col.src_start + first
    return (g.src_c != 1 and g.src_x == 1 and g.src_y == g.src_cols and b.repeat == 1 and b.row.src_unit == 1 and b.col.src_unit == 1
            and x <= 0 and x + ring.width >= g.src_cols)


cdef inline void open_ring(const Block *b, Ring *ring, int64_t height, int64_t width) noexcept nogil:
    """So many rows of so many columns, none of which has been packed."""
    ring.height, ring.width, ring.row, ring.next = height, width, b.planes * width * b.pitch, 0


cdef inline real *ring_row(const Ring *ring, int64_t z) noexcept nogil:
    return ring.rows + z % ring.height * ring.row


cdef inline vec load_column(int pitch, const real *column) noexcept nogil:
    """A vector of lanes of a packed column, or its number in all lanes. *Assumes:* pitch is a compile-time constant of the caller."""
    return load(column) if pitch == VL else spread(column)


cdef inline int64_t at_column(const Block *b, const Ring *ring, int64_t v, int64_t column) noexcept nogil:
    """Reals from a ring's row to a column of it, for vector v of lanes."""
    return ((v if b.pitch == VL else v * VL // b.repeat) * ring.width + column) * b.pitch


cdef inline const real *next_row(const Ring *ring, const real *row) noexcept nogil:
    """The row after `row`, both at the same vector and column."""
    return row + ring.row if row + ring.row < ring.rows + ring.height * ring.row else row + ring.row - ring.height * ring.row


cdef inline void fill_ring(const Block *b, Ring *ring, int64_t t, int64_t rows, int64_t first, int64_t ahead) noexcept nogil:
    """Packs what the ring does not hold yet of what pixel rows t.. of a strip read, and fetches what is read `ahead` pixel rows later.

    *Assumes:* t never falls while the ring is in use.
    """
    cdef int64_t end = b.row.z_step * (t + rows - 1) + b.row.taps, begin = larger(ring.next, b.row.z_step * t), z
    cdef int64_t top = end, bottom = end
    if is_planar(b, ring, first):
        top = smaller(larger(begin, -b.row.src_start), end)
        bottom = larger(smaller(end, b.g.src_rows - b.row.src_start), top)
        pack_planes(b, ring, top, bottom, first, b.row.z_step * ahead)
    for z in range(begin, end):
        if not top <= z < bottom:
            pack_row(b, z, first, ring.width, b.row.z_step * ahead, ring_row(ring, z))
    ring.next = end


cdef inline int64_t chunk_width(const Lane *col, int64_t pixels) noexcept nogil:
    """Packed columns that `pixels` neighbours read."""
    return col.z_step * (pixels - 1) + col.tap_step * (col.taps - 1) + 1


cdef inline int64_t chunk_pixels(const Problem *g, const Lane *col) noexcept nogil:
    """Pixels of a row that are computed at a time: as many as WIDTH columns serve, or fewer under a high filter; at least one."""
    cdef int64_t width = smaller(WIDTH, RING // <int64_t> sizeof(real) // (g.filter_rows * VL)) - chunk_width(col, 1)
    return smaller(width // col.z_step + 1 if width > 0 else 1, col.count)


cdef inline int64_t ring_width(const Lane *col, int64_t pixels) noexcept nogil:
    """Columns of a ring's rows: an odd number, so that vectors spread over the cache sets."""
    return chunk_width(col, pixels) | 1


cdef inline bint is_direct(const Problem *g, int storage, int64_t lanes) noexcept nogil:
    """Whether vectors of lanes lie in dst as they lie in registers."""
    return storage == REAL_STORAGE and g.dst_c == 1 and lanes % VL == 0


cdef struct Blocking:                                   # how lanes and rows fall into blocks and what a thread needs for one
    int64_t multiplier                                  # lanes of a channel
    int64_t unit                                        # lanes that are not split: of a channel or, of one lane each, of a vector or a group
    int64_t total                                       # lanes altogether
    int64_t lanes, vectors                              # of a block
    int64_t pitch                                       # reals of a packed column of a vector, VL or 1
    int64_t blocks                                      # of lanes
    int64_t parts                                       # of an image's rows
    int64_t count                                       # pixels of the longest row lane
    int64_t pixels                                      # of a chunk, at most
    int64_t rows                                        # of a strip, at most
    bint merged                                         # whether several column lanes of a strip of results are stored together
    int64_t ring, line                                  # reals of the ring, and of a strip of packed results or gradients


cdef inline int64_t strip_rows(const Lane *rows, int64_t row_lanes, int64_t row_size) noexcept nogil:
    """Rows of a strip whose ring fits, for packed rows of so many reals; 0 if not even the taps of one pixel do."""
    cdef int64_t most = RING // <int64_t> sizeof(real) // row_size, strip = most, i
    for i in range(row_lanes):
        strip = smaller(strip, (most - rows[i].taps) // rows[i].z_step + 1 if most >= rows[i].taps else 0)
    return strip


cdef inline Blocking blocking(const Problem *g, const Lane *rows, int64_t row_lanes, const Lane *cols, int64_t col_lanes) noexcept nogil:
    """Blocks of whole channels: as many lanes as leave room for ENOUGH_ROWS in the ring, fewer where there would be too few blocks."""
    cdef Blocking k
    cdef int64_t i, height = 0, width = 1, count = 0, most, line
    k.pixels = 0
    for i in range(row_lanes):
        count = larger(count, rows[i].count)
    for i in range(col_lanes):
        k.pixels = larger(k.pixels, chunk_pixels(g, cols + i))
        width = larger(width, ring_width(cols + i, chunk_pixels(g, cols + i)))
    k.multiplier = 1 if is_grouped(g) else g.src_channels * g.dst_channels
    k.unit = k.multiplier if k.multiplier > 1 else larger(group_lanes(g), VL)
    k.total = g.groups * group_lanes(g) * k.multiplier
    k.pitch = 1 if k.multiplier > 1 and k.multiplier % VL == 0 and g.src_channels == 1 else VL
    most = k.total if k.multiplier == 1 else smaller(k.total, LANES // k.multiplier * k.multiplier)
    k.blocks = divide_up(k.total, most)
    while block_lanes(&k) > larger(k.unit, VL) and strip_rows(rows, row_lanes, width * column_size(&k, block_lanes(&k))) < smaller(ENOUGH_ROWS, count):
        k.blocks += 1
    k.parts = larger(smaller(divide_up(MIN_BLOCKS, k.blocks * g.images), count // (ROWS_PER_TAP * g.filter_rows)), 1)
    k.blocks = larger(k.blocks, smaller(divide_up(MIN_BLOCKS, k.parts * g.images), k.total // larger(LEAST_LANES, k.unit)))
    k.lanes = block_lanes(&k)
    k.blocks = divide_up(k.total, k.lanes)
    k.vectors = divide_up(k.lanes, VL)
    k.count = count
    k.merged = g.col_lanes > 1 and g.dst_cols * k.vectors * VL <= LONGEST_LINE // <int64_t> sizeof(real)
    for i in range(col_lanes):
        k.merged = k.merged and cols[i].count <= chunk_pixels(g, cols + i)
    line = larger(g.dst_cols if k.merged else k.pixels, 1) * k.vectors * VL
    k.rows = smaller(strip_rows(rows, row_lanes, width * column_size(&k, k.lanes)), divide_up(count, k.parts))
    k.rows = larger(smaller(k.rows, (SPREAD_LINE if k.pitch == 1 and g.dst_c == 1 else LONGEST_LINE) // <int64_t> sizeof(real) // line), 1)
    k.line = k.rows * line
    for i in range(row_lanes):
        height = larger(height, ring_height(rows + i, &k))
    k.ring = height * width * column_size(&k, k.lanes)
    return k


cdef inline int64_t column_size(const Blocking *k, int64_t lanes) noexcept nogil:
    """Reals of a packed column of so many lanes."""
    return divide_up(lanes, VL) * VL if k.pitch == VL else lanes // k.multiplier


cdef inline int64_t block_lanes(const Blocking *k) noexcept nogil:
    """Lanes of each of so many blocks: whole channels, and whole vectors or groups of them where channels are not repeated."""
    return divide_up(divide_up(k.total, k.unit), k.blocks) * k.unit


cdef inline int64_t ring_height(const Lane *row, const Blocking *k) noexcept nogil:
    """Rows of src that a strip reads."""
    return row.taps + row.z_step * (k.rows - 1)
