# cython: language_level=3, cdivision=True
"""Fractional pooling: the problem that the Python layer packs (`gradops._pooling.Problem`, field for field), cut into strips.

Layout has died into `planes` and `depth`: an NCHW array is an NHWC array of images x channels planes with one channel.
"""
from libc.stdint cimport int64_t
from _problem cimport divide_up, larger, smaller


cdef struct Pool:
    int64_t planes, depth
    int64_t rows, cols                                  # of the input
    int64_t cell_rows, cell_cols                        # of the output; that many cells follow, rows first


cdef struct Cell:
    int64_t start, size                                 # size >= 1; starts and ends never decrease from cell to cell


cdef struct Strip:
    int64_t plane
    int64_t top, bottom                                 # rows [top, bottom) of whatever is cut, input or output
    int64_t x, width                                    # pixels [x, x + width) of each of these rows
    int64_t channel, channels                           # channels [channel, channel + channels) of these pixels


cdef enum:
    TILE = 4096                                         # values of a row of a strip, at most: buffers fit L2, DRAM sees long runs
    BAND = 32                                           # rows of a strip, at most
    MIN_STRIPS = 64                                     # strips get lower until there are as many, so that many threads find work


cdef inline const Cell *row_cells(const Pool *g) noexcept nogil:
    return <const Cell *> (g + 1)


cdef inline const Cell *col_cells(const Pool *g) noexcept nogil:
    return row_cells(g) + g.cell_rows


cdef inline int64_t strip_channels(int64_t depth) noexcept nogil:
    """Channels of a strip: all, or an even share of them if they are too many."""
    return divide_up(depth, divide_up(depth, TILE))


cdef inline int64_t strip_width(int64_t depth) noexcept nogil:
    """Pixels of a strip."""
    return TILE // strip_channels(depth)


cdef inline int64_t strip_height(const Pool *g, int64_t rows, int64_t cols) noexcept nogil:
    """Rows of a strip."""
    return larger(2, smaller(BAND, rows * columns(g, cols) // MIN_STRIPS))


cdef inline int64_t columns(const Pool *g, int64_t cols) noexcept nogil:
    """Columns of strips: those side by side in all planes."""
    return g.planes * divide_up(g.depth, strip_channels(g.depth)) * divide_up(cols, strip_width(g.depth))


cdef inline int64_t strips(const Pool *g, int64_t rows, int64_t cols) noexcept nogil:
    return columns(g, cols) * divide_up(rows, strip_height(g, rows, cols))


cdef inline Strip strip(const Pool *g, int64_t rows, int64_t cols, int64_t index) noexcept nogil:
    """Strip `index` of planes of rows x cols pixels; the next one lies below."""
    cdef Strip s
    cdef int64_t width = strip_width(g.depth), height = strip_height(g, rows, cols), channels = strip_channels(g.depth)
    cdef int64_t column = index // divide_up(rows, height), row = index % divide_up(rows, height)
    s.top = row * height
    s.bottom = smaller(s.top + height, rows)
    s.x = column % divide_up(cols, width) * width
    s.width = smaller(width, cols - s.x)
    column = column // divide_up(cols, width)
    s.channel = column % divide_up(g.depth, channels) * channels
    s.channels = smaller(channels, g.depth - s.channel)
    s.plane = column // divide_up(g.depth, channels)
    return s
