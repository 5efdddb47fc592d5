# cython: language_level=3, cdivision=True
"""A ring of packed rows: what the depthwise stencils read instead of the image.

Lanes are (channel, multiplier) pairs in memory order; a block of them is `vectors` vectors wide. Each row that a stencil needs is packed
once: widened, channels brought into vectors, repeated for each multiplier, zero beyond the image. A row is [vector][column][VL].
"""
from libc.stdint cimport int64_t
from _problem cimport Problem, Lane, divide_up, larger, smaller
from _storage cimport real, VL, REAL_STORAGE, item_size, clear, copy, widen_block

cdef enum:
    LANES = 64                                          # of a block, at most
    WIDTH = 512                                         # packed columns of a row, unless one pixel's taps span more
    RING = 64 * 1024                                    # reals of a ring: blocks get narrower, down to one vector, to fit


cdef struct Block:
    const Problem *g
    const Lane *row
    const Lane *col
    int storage
    const char *src                                     # at the image and the first lane's channel
    int64_t lanes, vectors, repeat


cdef struct Ring:
    real *rows
    int64_t width                                       # columns of a row
    int64_t next                                        # the first row that has not been packed


cdef inline void pack_line(int storage, const char *src, int64_t step, int64_t channel_step, int64_t count, int64_t lanes, int64_t repeat, real *dst, int64_t plane) noexcept nogil:
    """dst[lane // VL][i][lane % VL] = src[i step + lane // repeat channel_step] for i < count, zero beyond the lanes."""
    cdef int64_t size = item_size(storage), v, n, i, c, m
    cdef real[LANES] channels
    cdef real[LANES] repeated
    if repeat == 1:
        for v in range(divide_up(lanes, VL)):
            n = smaller(lanes - v * VL, VL)
            if n < VL:
                clear(dst + v * plane, count * VL)
            widen_block(storage, src + v * VL * channel_step * size, step, channel_step, count, n, dst + v * plane, VL)
        return
    clear(repeated, LANES)
    for i in range(count):
        widen_block(storage, src + i * step * size, 0, channel_step, 1, lanes // repeat, channels, 0)
        for c in range(lanes // repeat):
            for m in range(repeat):
                repeated[c * repeat + m] = channels[c]
        for v in range(divide_up(lanes, VL)):
            copy(repeated + v * VL, VL, dst + v * plane + i * VL)


cdef inline void pack_row(const Block *b, int64_t z, int64_t first, int64_t width, real *dst) noexcept nogil:
    """Packs columns first.. of row z, both counted in the lanes' steps of src_unit."""
    cdef const Problem *g = b.g
    cdef int64_t y = b.row.src_start + b.row.src_unit * z, x = b.col.src_start + b.col.src_unit * first, unit = b.col.src_unit, v
    cdef int64_t low = smaller(larger(divide_up(-x, unit), 0), width) if x < 0 else 0
    cdef int64_t high = larger(smaller(divide_up(g.src_cols - x, unit), width), low) if x < g.src_cols else low
    if not 0 <= y < g.src_rows:
        low = high = width
    for v in range(b.vectors):
        clear(dst + v * width * VL, low * VL)
        clear(dst + (v * width + high) * VL, (width - high) * VL)
    pack_line(b.storage, b.src + (y * g.src_y + (x + low * unit) * g.src_x) * item_size(b.storage), unit * g.src_x, g.src_c,
              high - low, b.lanes, b.repeat, dst + low * VL, width * VL)


cdef inline real *ring_row(const Block *b, const Ring *ring, int64_t z) noexcept nogil:
    return ring.rows + z % b.row.taps * b.vectors * ring.width * VL


cdef inline const real *next_row(const Block *b, const Ring *ring, const real *row) noexcept nogil:
    """The row after `row`, both at the same vector and column."""
    cdef int64_t size = b.vectors * ring.width * VL
    return row + size if row + size < ring.rows + b.row.taps * size else row + size - b.row.taps * size


cdef inline void fill_ring(const Block *b, Ring *ring, int64_t t, int64_t first) noexcept nogil:
    """Packs those rows of pixel row t that the ring does not hold yet. *Assumes:* t never falls while the ring is in use."""
    cdef int64_t z
    for z in range(larger(ring.next, b.row.z_step * t), b.row.z_step * t + b.row.taps):
        pack_row(b, z, first, ring.width, ring_row(b, ring, z))
    ring.next = b.row.z_step * t + b.row.taps


cdef inline int64_t chunk_width(const Lane *col, int64_t pixels) noexcept nogil:
    """Packed columns that `pixels` neighbours read."""
    return col.z_step * (pixels - 1) + col.tap_step * (col.taps - 1) + 1


cdef inline int64_t chunk_pixels(const Problem *g, const Lane *col) noexcept nogil:
    """Pixels of a row that are computed at a time: as many as WIDTH columns serve, or fewer under a high filter; at least one."""
    cdef int64_t width = smaller(WIDTH, RING // (g.filter_rows * VL)) - chunk_width(col, 1)
    return smaller(width // col.z_step + 1 if width > 0 else 1, col.count)


cdef inline bint is_direct(const Problem *g, int storage, int64_t lanes) noexcept nogil:
    """Whether vectors of lanes lie in dst as they lie in registers."""
    return storage == REAL_STORAGE and g.dst_c == 1 and lanes % VL == 0


cdef struct Blocking:                                   # how lanes fall into blocks and what a thread needs for one
    int64_t multiplier                                  # lanes of a channel
    int64_t total                                       # lanes altogether
    int64_t lanes, vectors                              # of a block
    int64_t pixels                                      # of a chunk, at most
    int64_t ring                                        # reals


cdef inline Blocking blocking(const Problem *g, const Lane *rows, const Lane *cols) noexcept nogil:
    """Blocks of whole channels: LANES lanes, fewer where the ring would outgrow the cache."""
    cdef Blocking k
    cdef int64_t i, taps = 0, width = 0
    k.pixels = 0
    for i in range(g.row_lanes):
        taps = larger(taps, rows[i].taps)
    for i in range(g.col_lanes):
        k.pixels = larger(k.pixels, chunk_pixels(g, cols + i))
        width = larger(width, chunk_width(cols + i, chunk_pixels(g, cols + i)))
    k.multiplier = g.src_channels * g.dst_channels
    k.total = g.groups * k.multiplier
    k.lanes = LANES
    while k.lanes > VL and (k.lanes >= k.total + VL or taps * width * k.lanes > RING) and k.lanes // 2 >= k.multiplier:
        k.lanes = k.lanes // 2
    k.vectors = divide_up(k.lanes, VL)
    k.lanes = k.lanes // k.multiplier * k.multiplier
    k.ring = taps * width * k.vectors * VL
    return k
