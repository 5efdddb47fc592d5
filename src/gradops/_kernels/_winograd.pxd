# cython: language_level=3, cdivision=True
"""Winograd's F(2x2, 3x3): 2x2 pixels of a correlation with up to 3x3 taps, in 16 products a channel pair instead of 36.

    dst = A' [(G w G') * (B' src B)] A        dw = sum over tiles of G' [(B' src B) * (A dst A')] G

where src is a tile of 4x4 pixels, dst one of 2x2, * multiplies elements, and

    A' = 1 1  1  0      G = 1   0   0      B' = 1  0 -1  0
         0 1 -1 -1          1/2 1/2 1/2         0  1  1  0
                            1/2 -1/2 1/2        0 -1  1  0
                            0   0   1           0  1  0 -1

All factors are powers of two, so that small integers stay exact. The 16 elements of a transformed tile are its *planes*: along each axis there are four
*points*. The first tap of three has factors for all but the last point, the middle one for the second and third, the last one for all but the first: two taps
take three points, one in the middle takes two.

A stride of 2 makes four correlations of up to 6x6 taps, which read, or are added to, the same pixels, with 2x2 to 3x3 taps each: 25 products instead of
36 for 3x3 taps, 36 for 64, 49 for 100, 64 for 144. Larger filters, to 7x7, are up to nine such correlations, which are added: 49 for 100, 100 for 196.
"""
from libc.stdint cimport int64_t
from _families cimport LINE, RUN, Family, Points, Run, Tiles, has, packed_cols, points, run_at
from _patches cimport BY_PIXEL, pack_line
from _problem cimport Problem, divide_up, smaller
from _storage cimport fetch_lines, real, vec, NR, VL, item_size, load, store, zero

cdef enum:
    PLANES = 16
    NEAREST = 4 << 20                                   # bytes of images that are nearer than the last cache


cdef inline void store_points(real *dst, int64_t plane, Points p, vec a, vec b, vec c, vec d) noexcept nogil:
    """Those of one row, of all four."""
    if has(p, 0):
        store(dst, a)
        dst += plane
    store(dst, b)
    store(dst + plane, c)
    if has(p, 3):
        store(dst + 2 * plane, d)


cdef inline void store_taps(real *dst, int64_t tap, Points p, vec a, vec b, vec c) noexcept nogil:
    """Those of one row, of all three."""
    if has(p, 0):
        store(dst, a)
        dst += tap
    store(dst, b)
    if has(p, 3):
        store(dst + tap, c)


cdef inline void load_points(const real *src, int64_t plane, Points row, Points col, vec[4] *m) noexcept nogil:
    """m[i][j] = the vector of point (i, j), of which only these have one."""
    cdef int i, j
    for i in range(4):
        for j in range(4):
            m[i][j] = zero()
        if has(row, i):
            for j in range(4):
                if has(col, j):
                    m[i][j] = load(src)
                    src += plane


cdef inline void transform_src(const real *src, int64_t line, int64_t pixel, real *dst, int64_t plane, int64_t width, Points row, Points col) noexcept nogil:
    """dst[(width i + j) plane] = (B' d B)[i][j], where d[i][j] is the vector at src[i line + j pixel]: like those that follow for these points alone, counted
    from the first one."""
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
        if has(row, i):
            store_points(dst + (i - row.first) * width * plane, plane, col, t[i][0] - t[i][2], t[i][1] + t[i][2], t[i][2] - t[i][1], t[i][1] - t[i][3])


cdef inline void transform_dst(const real *src, int64_t line, int64_t pixel, real *dst, int64_t plane, Points row, Points col) noexcept nogil:
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
        if has(row, i):
            store_points(dst + (i - row.first) * points(col) * plane, plane, col, t[i][0], t[i][0] + t[i][1], t[i][0] - t[i][1], -t[i][1])


cdef inline void transform_filter(const real *src, int64_t tap, real *dst, int64_t plane, Points row, Points col) noexcept nogil:
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
        if has(row, i):
            outer = t[i][0] + t[i][2]
            store_points(dst + (i - row.first) * points(col) * plane, plane, col, t[i][0], half * (outer + t[i][1]), half * (outer - t[i][1]), t[i][2])


cdef inline void restore_dst(const real *src, int64_t plane, Points row, Points col, real *dst, int64_t line, int64_t pixel) noexcept nogil:
    """dst[i line + j pixel] = (A' m A)[i][j], where m is the vectors at src[p plane]."""
    cdef vec m[4][4]
    cdef vec t[2][4]
    cdef int i, j
    load_points(src, plane, row, col, m)
    for j in range(4):
        t[0][j] = m[0][j] + m[1][j] + m[2][j]
        t[1][j] = m[1][j] - m[2][j] - m[3][j]
    for i in range(2):
        store(dst + i * line, t[i][0] + t[i][1] + t[i][2])
        store(dst + i * line + pixel, t[i][1] - t[i][2] - t[i][3])


cdef inline void restore_filter(const real *src, int64_t plane, Points row, Points col, real *dst, int64_t line, int64_t tap) noexcept nogil:
    """dst[i line + j tap] = (G' m G)[i][j], where m is the vectors at src[p plane]: taps that have all of their points, counted from the first one."""
    cdef vec m[4][4]
    cdef vec t[3][4]
    cdef vec inner
    cdef real half = 0.5
    cdef int i, j
    load_points(src, plane, row, col, m)
    for j in range(4):
        inner = half * (m[1][j] + m[2][j])
        t[0][j] = m[0][j] + inner
        t[1][j] = half * (m[1][j] - m[2][j])
        t[2][j] = inner + m[3][j]
    for i in range(3):
        if i == 1 or has(row, 3 * i // 2):
            inner = half * (t[i][1] + t[i][2])
            store_taps(dst, tap, col, t[i][0] + inner, half * (t[i][1] - t[i][2]), inner + t[i][3])
            dst += line


cdef inline bint is_fetched(const Problem *g, int storage) noexcept nogil:
    """Whether runs are fetched while those before them are transformed, at a cost of 1 to 4 % if they are found nearby: 0.93 to 0.97 of the time of 6 to 13 MB."""
    return g.src_c == 1 and g.images * g.src_n * item_size(storage) > NEAREST


cdef inline void fetch_columns(const Family *f, int64_t unit, int64_t pixels, const char *at, int64_t size, int64_t channels) noexcept nogil:
    """Some columns of the two rows, a unit apart, that are new to the tiles."""
    cdef int64_t i
    for i in range(pixels):
        fetch_lines(at + i * f.step * f.g.src_x * size, channels * size, False)
        fetch_lines(at + (i * f.step * f.g.src_x + unit * f.g.src_y) * size, channels * size, False)


cdef inline void pack_run(const Family *f, int64_t row, int storage, const char *src, const Run *r, const Run *after, int64_t channels, real *stage, real *dst, int64_t ld, int64_t plane) noexcept nogil:
    """Transforms up to NR channels of a run, for a lane of rows, and fetches those of the one after it. Columns of several lanes are read at once."""
    cdef const Tiles *t = &f.hull if f.shares_src else &f.pairs[row * f.cols]
    cdef const Problem *g = f.g
    cdef bint fetches = is_fetched(g, storage)
    cdef int64_t unit = t.row.lane.src_unit, apart = t.col.lane.src_unit // f.step, size = item_size(storage), i, j, v
    cdef int64_t y = t.row.start + 2 * unit * r.i, x = f.start + 2 * t.col.lane.src_unit * r.j
    cdef int64_t y_after = t.row.start + 2 * unit * (after.i + 1), x_after = f.start + 2 * t.col.lane.src_unit * after.j
    cdef const char *ahead = src + (after.n * g.src_n + y_after * g.src_y + x_after * g.src_x) * size
    cdef const real *first
    for i in range(t.row.points.first, t.row.points.end):   # the outer lines are those of the outer points
        pack_line(g, storage, src + r.n * g.src_n * size, y + i * unit, x, f.step, apart * (2 * r.count + 1) + f.reach, channels, BY_PIXEL, stage + i * LINE * NR, NR)
    for j in range(packed_cols(f)):
        first = stage + (t[j].col.start - f.start) // f.step * NR
        for i in range(r.count):
            if fetches and j == 0:
                fetch_columns(f, unit, 2 * apart, ahead + 2 * apart * i * f.step * g.src_x * size, size, channels)
            for v in range(divide_up(channels, VL)):
                transform_src(first + 2 * apart * i * NR + v * VL, LINE * NR, apart * NR, dst + f.across[j] * plane + i * ld + v * VL, plane, f.across[packed_cols(f)],
                              t.row.points, t[j].col.points)


cdef inline void pack_src(const Family *f, int64_t row, int storage, const char *src, int64_t first, int64_t count, int64_t channels, real *stage, real *dst, int64_t ld, int64_t plane) noexcept nogil:
    """Transforms channels of tiles first.. for a lane of rows, vector by vector: dst[packed_plane plane + tile ld + channel].

    src is at the first of the channels in the first image; stage has room for 4 lines.
    """
    cdef int64_t done = 0, i
    cdef const char *at
    cdef Run r, after
    while done < count:
        r = run_at(f, first + done, count - done)
        after = run_at(f, first + done + r.count, RUN)
        for i in range(divide_up(channels, NR)):
            at = src + i * NR * f.g.src_c * item_size(storage)
            pack_run(f, row, storage, at, &r, &after, smaller(NR, channels - i * NR), stage, dst + done * ld + i * NR, ld, plane)
        done += r.count
