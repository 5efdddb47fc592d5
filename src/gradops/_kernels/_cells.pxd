# cython: language_level=3, cdivision=True
"""Fractional pooling: the problem that the Python layer packs (`gradops._pooling.Problem`, field for field), cut into strips.

Layout has died into `planes` and `depth`: an NCHW array is an NHWC array of images x channels planes with one channel. A `Cut` may turn it
round: then planes are channels of one image, a plane apart, and vectors are full whatever the layout.
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


cdef struct Cut:                                        # how strips are cut
    int64_t planes, depth
    int64_t channels, width, height                     # of a strip, at most
    int64_t rows, cols                                  # of whatever is cut, input or output


cdef inline Cut cut(int64_t planes, int64_t depth, int64_t most_channels, int64_t rows, int64_t cols) noexcept nogil:
    """Strips of all channels, or of an even share of them if they are too many, lower than BAND if there would be few."""
    cdef Cut s
    s.planes, s.depth, s.rows, s.cols = planes, depth, rows, cols
    s.channels = divide_up(depth, divide_up(depth, most_channels))
    s.width = TILE // s.channels
    s.height = larger(2, smaller(BAND, rows * columns(&s) // MIN_STRIPS))
    return s


cdef inline int64_t columns(const Cut *s) noexcept nogil:
    """Columns of strips: those side by side in all planes."""
    return s.planes * divide_up(s.depth, s.channels) * divide_up(s.cols, s.width)


cdef inline int64_t strips(const Cut *s) noexcept nogil:
    return columns(s) * divide_up(s.rows, s.height)


cdef inline Strip strip(const Cut *s, int64_t index) noexcept nogil:
    """Strip `index`; the next one lies below."""
    cdef Strip t
    cdef int64_t column = index // divide_up(s.rows, s.height), row = index % divide_up(s.rows, s.height)
    t.top = row * s.height
    t.bottom = smaller(t.top + s.height, s.rows)
    t.x = column % divide_up(s.cols, s.width) * s.width
    t.width = smaller(s.width, s.cols - t.x)
    column = column // divide_up(s.cols, s.width)
    t.channel = column % divide_up(s.depth, s.channels) * s.channels
    t.channels = smaller(s.channels, s.depth - t.channel)
    t.plane = column // divide_up(s.depth, s.channels)
    return t
