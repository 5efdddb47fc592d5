# cython: language_level=3, cdivision=True
"""What the depthwise kernels share that read images where they lie: which rows and columns of a tile are inside, and how far a tile walks."""
from libc.stdint cimport int64_t
from _problem cimport Lane, Problem, row_lanes, divide_up, larger, smaller
from _storage cimport real, VL

cdef enum:
    TAPS = 7                                            # of a row of the filter, at most (MOST_TAPS of gradops._algorithms)
    PIXELS = 8                                          # of a register tile, at most
    ROWS = 8                                            # of a strip, at most: neighbouring rows share what they read while it is in the first cache
    AHEAD = 256 << 10                                   # bytes of a strip whose like is fetched ahead, about
    NEAR = 16 << 20                                     # bytes of images that are likely to be found in a cache


cdef struct Walk:                                       # some rows of a lane of rows, and a lane of columns
    int64_t rows, y                                     # the first one's first tap reads row y
    int64_t step, unit, taps                            # from row to row, from tap to tap, how many
    int64_t fresh                                       # rows of src that a row reads and the one before did not, about
    int64_t limit                                       # rows of src
    int64_t src_y, src_x, dst_y, dst_x                  # distances of rows of src, columns of src, rows and pixels of dst
    int64_t filter_row, filter_col
    int64_t src_ahead, dst_ahead                        # to what the next strip reads and writes
    bint far                                            # whether to fetch that
    const real *zeros


cdef inline int64_t first_channel(const Problem *g, int64_t v) noexcept nogil:
    """Of a vector of channels. The last one begins early enough to be full."""
    return smaller(v * VL, g.groups - VL)


cdef inline bint is_far(const Problem *g) noexcept nogil:
    return g.images * g.groups * (g.src_rows * g.src_cols + g.dst_rows * g.dst_cols) * <int64_t> sizeof(real) > NEAR


cdef inline int64_t rows_of_strip(const Problem *g) noexcept nogil:
    """Rows of a lane that a tile walks down: few enough for what is fetched for the next strip to stay in the second cache until then."""
    cdef int64_t steps = larger(smaller(row_lanes(g)[0].count, g.dst_rows), 1)
    cdef int64_t size = (g.src_rows * g.src_cols + g.dst_rows * g.dst_cols) * g.groups // steps * <int64_t> sizeof(real)
    return larger(smaller(AHEAD // larger(size, 1), ROWS), 1) if is_far(g) else ROWS


cdef inline void taps_inside(const Walk *s, int64_t y, int64_t *begin, int64_t *end) noexcept nogil:
    """The taps begin <= i < end whose row y + i unit lies inside the image."""
    begin[0], end[0] = 0, s.taps
    while y < 0 and begin[0] < s.taps:
        begin[0] += 1
        y += s.unit
    y += (end[0] - begin[0] - 1) * s.unit
    while y >= s.limit and end[0] > begin[0]:
        end[0] -= 1
        y -= s.unit


cdef inline void columns_inside(const Problem *g, const Lane *col, int64_t x, int64_t *low, int64_t *high) noexcept nogil:
    """The columns low <= c < high of a tile whose column x + c unit lies inside the image, x being that of the first pixel's first tap."""
    low[0] = divide_up(-x, col.src_unit) if x < 0 else 0
    high[0] = divide_up(g.src_cols - x, col.src_unit)


cdef inline int64_t tile_pixels(const Lane *col, int64_t most) noexcept nogil:
    """Pixels of the register tiles that cover a lane of columns: 8, 7, 4, 2 or 1. The last tile begins early enough to be full."""
    cdef int64_t count = col.count
    if col.z_step == 1 and count >= 7 and most == PIXELS:
        return 8 if count >= 8 and divide_up(count, 8) * 8 <= divide_up(count, 7) * 7 else 7
    return 4 if count >= 4 else 2 if count >= 2 else 1
