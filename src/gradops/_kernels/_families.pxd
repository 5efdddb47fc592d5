# cython: language_level=3, cdivision=True
"""What Winograd's kernels compute together: lane pairs that read the same tiles of src, as all pixels of the gradient of an input with strides do, or whose
products are added to the same tiles of dst, as those of a large filter are; else each lane pair by itself.
"""
from libc.stdint cimport int64_t
from _problem cimport Problem, Lane, col_lanes, divide_up, larger, row_lanes, smaller

cdef enum:
    RUN = 14                                            # tiles of one row that are transformed together, at most
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
    Side row, col


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
    const Problem *g
    Tiles pairs[9]
    Tiles hull                                          # with all their points
    int64_t rows, cols                                  # lanes of either axis
    int64_t tile_rows, tile_cols                        # in an image
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
    f.g = g
    f.shares_src = read_alike(row, g.row_lanes) or read_alike(col, g.col_lanes)
    f.shares_dst = are_summed(row, g.row_lanes) or are_summed(col, g.col_lanes)
    f.rows, f.cols = g.row_lanes, g.col_lanes
    if not f.shares_src and not f.shares_dst:
        row, col, f.rows, f.cols = row + index // g.col_lanes, col + index % g.col_lanes, 1, 1
    for i in range(f.rows):
        for j in range(f.cols):
            t = &f.pairs[i * f.cols + j]
            t.row = side(row + i, window_start(row, f.rows) if f.shares_src else window_start(row + i, 1))
            t.col = side(col + j, window_start(col, f.cols) if f.shares_src else window_start(col + j, 1))
    f.hull = f.pairs[0]
    for i in range(f.rows * f.cols):
        extend(&f.hull.row, &f.pairs[i].row)
        extend(&f.hull.col, &f.pairs[i].col)
    f.tile_rows, f.tile_cols = divide_up(f.hull.row.lane.count, 2), divide_up(f.hull.col.lane.count, 2)
    f.sums[0] = 0
    for i in range(f.rows * f.cols):
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


cdef inline int64_t tile_count(const Family *f) noexcept nogil:
    return f.g.images * f.tile_rows * f.tile_cols


cdef struct Run:                                        # `count` neighbouring tiles: (i, j), (i, j + 1), ... of image n
    int64_t n, i, j, count


cdef inline Run run_at(const Family *f, int64_t index, int64_t most) noexcept nogil:
    """The run that begins with tile `index`."""
    cdef Run r
    r.j = index % f.tile_cols
    r.i = index // f.tile_cols % f.tile_rows
    r.n = index // f.tile_cols // f.tile_rows
    r.count = smaller(smaller(most, f.run), f.tile_cols - r.j)
    return r
