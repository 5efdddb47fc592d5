# cython: language_level=3, cdivision=True
"""Winograd's F(2x2, 3x3): 2x2 pixels of a correlation with 3x3 taps, in 16 products a channel pair instead of 36.

    dst = A' [(G w G') * (B' src B)] A        dw = sum over tiles of G' [(B' src B) * (A dst A')] G

where src is a tile of 4x4 pixels, dst one of 2x2, * multiplies elements, and

    A' = 1 1  1  0      G = 1   0   0      B' = 1  0 -1  0
         0 1 -1 -1          1/2 1/2 1/2         0  1  1  0
                            1/2 -1/2 1/2        0 -1  1  0
                            0   0   1           0  1  0 -1

All factors are powers of two, so that small integers stay exact. The 16 elements of a transformed tile are its *planes*.
"""
from libc.stdint cimport int64_t
from _patches cimport BY_PIXEL, pack_line
from _problem cimport Problem, Lane, divide_up, smaller
from _storage cimport real, vec, NR, NV, VL, clear, item_size, load, store

cdef enum:
    PLANES = 16
    RUN = 14                                            # tiles of one row that are transformed together, at most
    LINE = 2 * RUN + 2                                  # pixels of a row that they read


cdef struct Tiles:                                      # the 2x2 tiles of the dst pixels of a lane pair
    const Problem *g
    const Lane *row
    const Lane *col
    int64_t down, across                                # in an image


cdef inline Tiles tiles(const Problem *g, const Lane *row, const Lane *col) noexcept nogil:
    cdef Tiles t
    t.g, t.row, t.col = g, row, col
    t.down, t.across = divide_up(row.count, 2), divide_up(col.count, 2)
    return t


cdef inline int64_t tile_count(const Tiles *t) noexcept nogil:
    return t.g.images * t.down * t.across


cdef struct Run:                                        # `count` neighbouring tiles: (i, j), (i, j + 1), ... of image n
    int64_t n, i, j, count


cdef inline Run run_at(const Tiles *t, int64_t index, int64_t most) noexcept nogil:
    """The run that begins with tile `index`."""
    cdef Run r
    r.j = index % t.across
    r.i = index // t.across % t.down
    r.n = index // t.across // t.down
    r.count = smaller(smaller(most, RUN), t.across - r.j)
    return r


cdef inline void transform_src(const real *src, int64_t line, int64_t pixel, real *dst, int64_t plane) noexcept nogil:
    """dst[p plane] = B' d B, where d[i][j] is the vector at src[i line + j pixel]."""
    cdef vec d[4][4]
    cdef vec t[4][4]
    cdef int i, j
    for i in range(4):
        for j in range(4):
            d[i][j] = load(src + i * line + j * pixel)
    for j in range(4):
        t[0][j] = d[0][j] - d[2][j]
        t[1][j] = d[1][j] + d[2][j]
        t[2][j] = d[2][j] - d[1][j]
        t[3][j] = d[1][j] - d[3][j]
    for i in range(4):
        store(dst + (4 * i) * plane, t[i][0] - t[i][2])
        store(dst + (4 * i + 1) * plane, t[i][1] + t[i][2])
        store(dst + (4 * i + 2) * plane, t[i][2] - t[i][1])
        store(dst + (4 * i + 3) * plane, t[i][1] - t[i][3])


cdef inline void transform_dst(const real *src, int64_t line, int64_t pixel, real *dst, int64_t plane) noexcept nogil:
    """dst[p plane] = A d A', where d[i][j] is the vector at src[i line + j pixel]."""
    cdef vec d[2][2]
    cdef vec t[4][2]
    cdef int i, j
    for i in range(2):
        for j in range(2):
            d[i][j] = load(src + i * line + j * pixel)
    for j in range(2):
        t[0][j] = d[0][j]
        t[1][j] = d[0][j] + d[1][j]
        t[2][j] = d[0][j] - d[1][j]
        t[3][j] = -d[1][j]
    for i in range(4):
        store(dst + (4 * i) * plane, t[i][0])
        store(dst + (4 * i + 1) * plane, t[i][0] + t[i][1])
        store(dst + (4 * i + 2) * plane, t[i][0] - t[i][1])
        store(dst + (4 * i + 3) * plane, -t[i][1])


cdef inline void transform_filter(const real *src, int64_t tap, real *dst, int64_t plane) noexcept nogil:
    """dst[p plane] = G w G', where w[i][j] is the vector at src[(3 i + j) tap]."""
    cdef vec w[3][3]
    cdef vec t[4][3]
    cdef vec outer
    cdef real half = 0.5
    cdef int i, j
    for i in range(3):
        for j in range(3):
            w[i][j] = load(src + (3 * i + j) * tap)
    for j in range(3):
        outer = w[0][j] + w[2][j]
        t[0][j] = w[0][j]
        t[1][j] = half * (outer + w[1][j])
        t[2][j] = half * (outer - w[1][j])
        t[3][j] = w[2][j]
    for i in range(4):
        outer = t[i][0] + t[i][2]
        store(dst + (4 * i) * plane, t[i][0])
        store(dst + (4 * i + 1) * plane, half * (outer + t[i][1]))
        store(dst + (4 * i + 2) * plane, half * (outer - t[i][1]))
        store(dst + (4 * i + 3) * plane, t[i][2])


cdef inline void restore_dst(const real *src, int64_t plane, real *dst, int64_t line, int64_t pixel) noexcept nogil:
    """dst[i line + j pixel] = (A' m A)[i][j], where m is the vectors at src[p plane]."""
    cdef vec m[4][4]
    cdef vec t[2][4]
    cdef int i, j
    for i in range(4):
        for j in range(4):
            m[i][j] = load(src + (4 * i + j) * plane)
    for j in range(4):
        t[0][j] = m[0][j] + m[1][j] + m[2][j]
        t[1][j] = m[1][j] - m[2][j] - m[3][j]
    for i in range(2):
        store(dst + i * line, t[i][0] + t[i][1] + t[i][2])
        store(dst + i * line + pixel, t[i][1] - t[i][2] - t[i][3])


cdef inline void restore_filter(const real *src, int64_t plane, real *dst, int64_t tap) noexcept nogil:
    """dst[(3 i + j) tap] = (G' m G)[i][j], where m is the vectors at src[p plane]."""
    cdef vec m[4][4]
    cdef vec t[3][4]
    cdef vec inner
    cdef real half = 0.5
    cdef int i, j
    for i in range(4):
        for j in range(4):
            m[i][j] = load(src + (4 * i + j) * plane)
    for j in range(4):
        inner = half * (m[1][j] + m[2][j])
        t[0][j] = m[0][j] + inner
        t[1][j] = half * (m[1][j] - m[2][j])
        t[2][j] = inner + m[3][j]
    for i in range(3):
        inner = half * (t[i][1] + t[i][2])
        store(dst + (3 * i) * tap, t[i][0] + inner)
        store(dst + (3 * i + 1) * tap, half * (t[i][1] - t[i][2]))
        store(dst + (3 * i + 2) * tap, inner + t[i][3])


cdef inline void pack_src(const Tiles *t, int storage, const char *src, const Run *r, int64_t channels, real *stage, real *dst, int64_t ld, int64_t plane) noexcept nogil:
    """Transforms NR channels of a run: dst[p plane + tile ld + channel]; those beyond `channels` are those of zeros.

    src is at the first of the channels in the first image; stage has room for 4 lines.
    """
    cdef int64_t i, v
    cdef int64_t y = t.row.src_start + t.row.src_unit * 2 * r.i, x = t.col.src_start + t.col.src_unit * 2 * r.j
    src += r.n * t.g.src_n * item_size(storage)
    if channels < NR:
        clear(stage, 4 * LINE * NR)
    for i in range(4):
        pack_line(t.g, storage, src, y + i * t.row.src_unit, x, t.col.src_unit, 2 * r.count + 2, channels, BY_PIXEL, stage + i * LINE * NR, NR)
    for i in range(r.count):
        for v in range(NV):
            transform_src(stage + 2 * i * NR + v * VL, LINE * NR, NR, dst + i * ld + v * VL, plane)
