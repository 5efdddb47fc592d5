# cython: language_level=3, cdivision=True
"""Fractional pooling: the problem that the Python layer packs (`gradops._pooling.Problem`, field for field), cut into strips.

Layout has died into `planes` and `depth`: an NCHW array is an NHWC array of images x channels planes with one channel. A `Cut` may turn it
round: then planes are channels of one image, so that a strip has some.
"""
from libc.stdint cimport int64_t
from _problem cimport divide_up, larger, smaller
from _storage cimport FLOAT32, real, vec


cdef extern from "kernels.h" nogil:
    const int DOUBLES
    ctypedef double doubles
    doubles no_doubles()
    doubles load_doubles(const double *p)
    doubles load_floats(const float *p, int64_t n)
    void store_doubles(double *p, doubles v)
    void store_some_doubles(double *p, int64_t n, doubles v)
    void store_floats(float *p, doubles v)
    doubles next_doubles(doubles a, doubles after)
    doubles keep_doubles(doubles v, const void *mask)
    doubles odd_doubles(doubles v)
    doubles quotients(doubles a, doubles b, doubles inverse)
    vec pick_reals(vec a, vec b, const void *words)
    doubles pick_doubles(doubles a, doubles b, const void *words)
    void set_pick(void *words, int64_t size, int64_t lane, int64_t number, bint second)


cdef enum:
    INT32 = 4                                           # as in gradops._arrays.STORAGE
    INT64 = 5


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
    STRIPS = 8                                          # of a thread: strips get lower until there are as many
    NEAR = 16 << 20                                     # bytes of input and output that are likely to be found in a cache


cdef inline const Cell *row_cells(const Pool *g) noexcept nogil:
    return <const Cell *> (g + 1)


cdef inline const Cell *col_cells(const Pool *g) noexcept nogil:
    return row_cells(g) + g.cell_rows


cdef inline int64_t largest(const Cell *cells, int64_t count) noexcept nogil:
    """Pixels of the largest cell."""
    cdef int64_t most = 0, i
    for i in range(count):
        most = larger(most, cells[i].size)
    return most


cdef inline bint is_power(int64_t n) noexcept nogil:
    """Whether n is a power of two."""
    return n & (n - 1) == 0


cdef struct Cut:                                        # how strips are cut
    int64_t planes, depth
    int64_t channels, width, height                     # of a strip, at most
    int64_t rows, cols                                  # of whatever is cut, input or output


cdef inline Cut cut(int64_t planes, int64_t depth, int64_t most_channels, int64_t values, int64_t rows, int64_t cols, int threads) noexcept nogil:
    """Strips of all channels, or of an even share of them if they are too many, with so many values in a row; lower than BAND if there would be few."""
    cdef Cut s
    s.planes, s.depth, s.rows, s.cols = planes, depth, rows, cols
    s.channels = divide_up(depth, divide_up(depth, most_channels))
    s.width = larger(values // s.channels, 1)
    s.height = larger(2, smaller(BAND, rows * columns(&s) // (STRIPS * threads)))
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


cdef struct Runs:                                       # how a row of a strip lies: so many runs of `size` bytes, `step` bytes apart
    int64_t count, step, size


cdef inline Runs runs(const Cut *s, const Strip *t, int64_t width, int64_t pixel, int64_t item) noexcept nogil:
    """Those of `width` pixels, from pixel to pixel, in items of so many bytes."""
    if t.channels == s.depth:
        return Runs(1, 0, width * t.channels * item)
    return Runs(width, pixel * item, t.channels * item)


cdef inline bint is_far(const Pool *g, int64_t item) noexcept nogil:
    """Whether rows have to be fetched ahead: large images take 1.4 to 2 times as long without, those in a cache 1.1 to 1.2 times as long with it."""
    return g.planes * g.depth * (g.rows * g.cols + g.cell_rows * g.cell_cols) * item > NEAR


cdef inline int64_t item_size(int storage) noexcept nogil:
    return 2 if storage < FLOAT32 else 4 if storage == FLOAT32 or storage == INT32 else 8
