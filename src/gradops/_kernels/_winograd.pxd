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
36 for 3x3 taps, 36 for 64, 49 for 100, 64 for 144.
"""
from libc.stdint cimport int64_t
from _patches cimport BY_PIXEL, pack_line
from _problem cimport Problem, Lane, col_lanes, divide_up, larger, row_lanes, smaller
from _storage cimport fetch_lines, real, vec, NR, VL, item_size, load, store, zero

cdef enum:
    PLANES = 16
    RUN = 14                                            # tiles of one row that are transformed together, at most
    NEAREST = 4 << 20                                   # bytes of images that are nearer than the last cache
    LINE = 2 * RUN + 5                                  # pixels of a row that they read, at most, and one, so that lines do not lie a page apart


cdef struct Points:                                     # of an axis, those that taps have factors for: first <= point < end
    int first, end


cdef inline bint has(Points p, int point) noexcept nogil:
    return p.first <= point < p.end


cdef inline int64_t points(Points p) noexcept nogil:
    return p.end - p.first


cdef struct Side:                                       # a lane, and the window of three neighbouring taps in which its own lie
    const Lane *lane
    int64_t start                                       # of the window of the first tile, in src
    int64_t at                                          # the place of its first tap in the window
    Points points


cdef inline Side side(const Lane *lane, int64_t start) noexcept nogil:
    cdef Side s
    s.lane, s.start, s.at = lane, start, (lane.src_start - start) // lane.src_unit
    s.points.first, s.points.end = s.at > 0, 3 + (s.at + lane.taps == 3)
    return s


cdef inline int64_t window_start(const Lane *lanes, int64_t count) noexcept nogil:
    """Where the windows of lanes begin that read the same tiles: a single tap is in the middle."""
    cdef int64_t start = lanes[0].src_start, i
    for i in range(count):
        start = smaller(start, lanes[i].src_start - (lanes[i].taps == 1) * lanes[i].src_unit)
    return start


cdef struct Tiles:                                      # the 2x2 tiles of the dst pixels of a lane pair
    const Problem *g
    Side row, col
    int64_t down, across                                # in an image


cdef inline int64_t planes(const Tiles *t) noexcept nogil:
    """That products have."""
    return points(t.row.points) * points(t.col.points)


cdef inline int64_t plane_of(const Tiles *t, int i, int j) noexcept nogil:
    """Which of them point (i, j) has."""
    return (i - t.row.points.first) * points(t.col.points) + j - t.col.points.first


cdef inline void extend(Side *s, const Side *other) noexcept nogil:
    """To the points and pixels of both."""
    s.points.first = <int> smaller(s.points.first, other.points.first)
    s.points.end = <int> larger(s.points.end, other.points.end)
    if s.lane.count < other.lane.count:
        s.lane = other.lane


cdef struct Family:                                     # lane pairs that are computed together: up to three lanes of either axis
    Tiles pairs[9]
    Tiles hull                                          # with all their points
    int64_t rows, cols                                  # lanes of either axis
    bint shares_src                                     # whether all read the tiles of the hull,
    bint shares_dst                                     # or all are added to them
    int64_t sums[10]                                    # how many planes of products lie before those of a pair; then all
    int64_t across[4]                                   # points of columns that lie before those of a lane, if tiles are its own; then all
    int64_t start, step, reach, run                     # of columns that are packed together: the first, to the next, how many more than of one lane; tiles at most


cdef inline bint are_summed(const Lane *lanes, int64_t count) noexcept nogil:
    """Whether lanes are the same pixels, with some taps each."""
    return count > 1 and lanes[0].out_step == 1


cdef inline bint read_alike(const Lane *lanes, int64_t count) noexcept nogil:
    """Whether lanes are neighbouring pixels, which read the same ones."""
    return count > 1 and lanes[0].src_unit == 1 and lanes[0].out_step > 1


cdef inline int64_t families(const Problem *g) noexcept nogil:
    """How many there are: one, or each lane pair by itself."""
    return 1 if belong_together(row_lanes(g), g.row_lanes) or belong_together(col_lanes(g), g.col_lanes) else g.row_lanes * g.col_lanes


cdef inline bint belong_together(const Lane *lanes, int64_t count) noexcept nogil:
    return are_summed(lanes, count) or read_alike(lanes, count)


cdef inline Family family(const Problem *g, int64_t index) noexcept nogil:
    cdef Family f
    cdef const Lane *row = row_lanes(g)
    cdef const Lane *col = col_lanes(g)
    cdef int64_t i, j
    cdef Tiles *t
    f.shares_src = read_alike(row, g.row_lanes) or read_alike(col, g.col_lanes)
    f.shares_dst = are_summed(row, g.row_lanes) or are_summed(col, g.col_lanes)
    f.rows, f.cols = g.row_lanes, g.col_lanes
    if not f.shares_src and not f.shares_dst:
        row, col, f.rows, f.cols = row + index // g.col_lanes, col + index % g.col_lanes, 1, 1
    for i in range(f.rows):
        for j in range(f.cols):
            t = &f.pairs[i * f.cols + j]
            t.g = g
            t.row = side(row + i, window_start(row, f.rows) if f.shares_src else window_start(row + i, 1))
            t.col = side(col + j, window_start(col, f.cols) if f.shares_src else window_start(col + j, 1))
    f.hull = f.pairs[0]
    for i in range(f.rows * f.cols):
        extend(&f.hull.row, &f.pairs[i].row)
        extend(&f.hull.col, &f.pairs[i].col)
    f.hull.down, f.hull.across = divide_up(f.hull.row.lane.count, 2), divide_up(f.hull.col.lane.count, 2)
    f.sums[0] = 0
    for i in range(f.rows * f.cols):
        f.pairs[i].down, f.pairs[i].across = f.hull.down, f.hull.across
        f.sums[i + 1] = f.sums[i] + planes(&f.pairs[i])
    join_columns(&f)
    return f


cdef inline int64_t packed_cols(const Family *f) noexcept nogil:
    """Lanes of columns whose tiles are packed together."""
    return 1 if f.shares_src else f.cols


cdef inline void join_columns(Family *f) noexcept nogil:
    """Plans how columns are packed."""
    cdef int64_t cols = packed_cols(f), unit = f.hull.col.lane.src_unit, end = f.hull.col.start, j
    f.start, f.across[0], f.across[1] = end, 0, points(f.hull.col.points)
    for j in range(0 if f.shares_src else cols):
        f.start, end = smaller(f.start, f.pairs[j].col.start), larger(end, f.pairs[j].col.start)
        f.across[j + 1] = f.across[j] + points(f.pairs[j].col.points)
    f.step = unit if cols == 1 else 1
    f.reach = (end - f.start) // f.step + 1
    f.run = smaller(RUN, ((LINE - 1 - f.reach) * f.step // unit - 1) // 2)


cdef inline int64_t packed_planes(const Family *f) noexcept nogil:
    """Planes of tiles that are packed together, at most."""
    cdef int64_t i, rows = points(f.hull.row.points) if f.shares_src else 0
    for i in range(f.rows):
        rows = larger(rows, points(f.pairs[i * f.cols].row.points))
    return rows * f.across[packed_cols(f)]


cdef inline int64_t packed_plane(const Family *f, int64_t row, int64_t col, int i, int j) noexcept nogil:
    """Which of them is point (i, j) of a pair."""
    cdef const Tiles *t = &f.hull if f.shares_src else &f.pairs[row * f.cols + col]
    return (i - t.row.points.first) * f.across[packed_cols(f)] + (0 if f.shares_src else f.across[col]) + j - t.col.points.first


cdef inline int64_t tile_count(const Tiles *t) noexcept nogil:
    return t.g.images * t.down * t.across


cdef struct Run:                                        # `count` neighbouring tiles: (i, j), (i, j + 1), ... of image n
    int64_t n, i, j, count


cdef inline Run run_at(const Family *f, int64_t index, int64_t most) noexcept nogil:
    """The run that begins with tile `index`."""
    cdef const Tiles *t = &f.hull
    cdef Run r
    r.j = index % t.across
    r.i = index // t.across % t.down
    r.n = index // t.across // t.down
    r.count = smaller(smaller(most, f.run), t.across - r.j)
    return r


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


cdef inline void fetch_columns(const Side *row, const Family *f, int64_t pixels, const char *at, int64_t size, int64_t channels) noexcept nogil:
    """Some columns of the two rows that are new to the tiles."""
    cdef int64_t i
    for i in range(pixels):
        fetch_lines(at + i * f.step * f.hull.g.src_x * size, channels * size, False)
        fetch_lines(at + (i * f.step * f.hull.g.src_x + row.lane.src_unit * f.hull.g.src_y) * size, channels * size, False)


cdef inline void pack_run(const Family *f, int64_t row, int storage, const char *src, const Run *r, const Run *after, int64_t channels, real *stage, real *dst, int64_t ld, int64_t plane) noexcept nogil:
    """Transforms up to NR channels of a run, for a lane of rows, and fetches those of the one after it. Columns of several lanes are read at once."""
    cdef const Tiles *t = &f.hull if f.shares_src else &f.pairs[row * f.cols]
    cdef const Problem *g = t.g
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
                fetch_columns(&t.row, f, 2 * apart, ahead + 2 * apart * i * f.step * g.src_x * size, size, channels)
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
            at = src + i * NR * f.hull.g.src_c * item_size(storage)
            pack_run(f, row, storage, at, &r, &after, smaller(NR, channels - i * NR), stage, dst + done * ld + i * NR, ld, plane)
        done += r.count
