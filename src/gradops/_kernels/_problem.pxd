# cython: language_level=3, cdivision=True
"""The problem that the Python layer packs (`gradops._geometry.Problem`, field for field): tensors, strides and lanes.

A *dst* pixel is where a patch is centred, *src* is what the patch reads. Forward and filter gradient: src is the input, dst the output
grid. Input gradient: src is out_backprop, dst the input grid. All strides count elements.
"""
from cython.parallel cimport prange
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset


cdef struct Lane:
    # One arithmetic progression of dst indices along an axis, all of whose pixels use the same taps:
    #   dst(t) = out_start + out_step t, src(t, k) = src_start + src_unit (z_step t + tap_step k), filter(k) = filter_start + filter_step k
    int64_t count, out_start, out_step, src_start, src_unit, z_step, tap_step, taps, filter_start, filter_step


cdef struct Problem:
    int64_t images, groups
    int64_t src_channels, dst_channels                  # of one group
    int64_t src_rows, src_cols, dst_rows, dst_cols
    int64_t src_n, src_y, src_x, src_c
    int64_t dst_n, dst_y, dst_x, dst_c
    int64_t filter_rows, filter_cols
    int64_t filter_y, filter_x, filter_src, filter_dst, filter_group
    int64_t filter_first                                # where the first tap lies
    int64_t mirrored                                    # whether src is dy and dst is x, whose filter lies the other way round: filter_y and filter_x are negative
    int64_t covered                                     # whether every dst pixel lies in a lane
    int64_t unpadded                                    # whether infinities may meet nothing, not even zero, but what they are multiplied with by definition
    int64_t row_lanes, col_lanes                        # that many lanes follow, rows first


cdef inline const Lane *row_lanes(const Problem *g) noexcept nogil:
    return <const Lane *> (g + 1)


cdef inline const Lane *col_lanes(const Problem *g) noexcept nogil:
    return row_lanes(g) + g.row_lanes


cdef inline int64_t divide_up(int64_t a, int64_t b) noexcept nogil:
    return a if b == 1 else (a + b - 1) // b            # a division takes longer than a guess


cdef inline int64_t smaller(int64_t a, int64_t b) noexcept nogil:
    return a if a < b else b


cdef inline int64_t larger(int64_t a, int64_t b) noexcept nogil:
    return a if a > b else b


cdef inline int64_t part(int64_t total, int64_t index, int64_t parts) noexcept nogil:
    """Where part `index` begins when `total` things are split evenly into `parts`."""
    return total // parts * index + smaller(index, total % parts)


cdef inline int64_t even_parts(int64_t parts, int64_t most, int64_t others, int64_t threads) noexcept nogil:
    """So many parts or, up to `most`, as many more as give each thread the same number of blocks, of which there are `others` in each part."""
    while parts < most and parts * others % threads:
        parts += 1
    return parts


cdef inline bint taps_innermost(const Problem *g) noexcept nogil:
    """Whether the taps of an input and an output channel lie side by side in the filter, and not channels of either."""
    return g.filter_src != 1 and g.filter_dst != 1


cdef inline bint takes_turns(const Problem *g) noexcept nogil:
    """Whether columns of dst, side by side, fall into two lanes of as many."""
    cdef const Lane *one = col_lanes(g)
    cdef const Lane *two = one + 1
    if g.dst_x != 1 or g.col_lanes != 2:
        return False
    return one.count == two.count and one.out_step == two.out_step == 2 and one.out_start + two.out_start == 1


cdef inline size_t problem_size(const Problem *g) noexcept nogil:
    """Bytes of a problem and its lanes."""
    return sizeof(Problem) + (g.row_lanes + g.col_lanes) * sizeof(Lane)


cdef inline Problem *copy_problem(const Problem *g, void *memory) noexcept nogil:
    """A copy with its lanes, to be changed."""
    memcpy(memory, g, problem_size(g))
    return <Problem *> memory


cdef inline bint hull(const Lane *lanes, int64_t count, Lane *h) noexcept nogil:
    """A lane whose taps reach whatever those of several lanes do, if these read the same steps; what it reads can be packed for all of them."""
    cdef int64_t i
    if count < 2:
        return False
    h[0] = lanes[0]
    h.tap_step = 1
    for i in range(count):
        if lanes[i].src_unit != 1 or lanes[i].z_step != 1:
            return False
        h.src_start = smaller(h.src_start, lanes[i].src_start)
        h.count = larger(h.count, lanes[i].count)
    h.taps = 0
    for i in range(count):
        h.taps = larger(h.taps, lanes[i].src_start - h.src_start + (lanes[i].taps - 1) * lanes[i].tap_step + 1)
    return True


cdef enum:
    PAGE = 4096                                         # bytes of memory that a thread clears at least
    FEW = 1 << 20                                       # multiply-adds that one thread does sooner than it wakes another: 20 us on Zen 4
    NUMBER = 4                                          # of them take as long as a number of an array takes to arrive
    WOKEN = 4                                           # threads that are worth waking for as many as FEW


cdef inline int useful_threads(const Problem *g, int64_t blocks, int threads) noexcept nogil:
    """No more threads than blocks, and few where there is little to do. A depthwise layer of one image, or a filter for one pixel, with as much to read as to multiply
    takes 0.55 to 0.9 of the time with two threads that it takes with one (Zen 4), of 56x56 pixels 0.2 to 0.4 with 12, and of 16 threads, 1 to 2 million multiply-adds
    0.75 with 8 (an Intel Xeon with tiles)."""
    cdef int64_t pixels = g.images * smaller(g.dst_rows * g.dst_cols, g.src_rows * g.src_cols)
    cdef int64_t terms = g.filter_rows * g.filter_cols * g.src_channels * g.dst_channels * g.groups
    cdef int64_t work = pixels * terms + NUMBER * (g.images * (g.src_n + g.dst_n) + terms)
    if work < FEW:
        return 1
    return <int> larger(smaller(smaller(threads, WOKEN * work // FEW), blocks), 1)


cdef inline void clear_dst(const Problem *g, char *dst, int64_t item_size, int threads) noexcept nogil:
    """Zeros in all of dst, of which each thread writes as many pages."""
    cdef int64_t size = g.images * g.dst_rows * g.dst_cols * g.groups * g.dst_channels * item_size, pages = divide_up(size, PAGE), i, begin
    if threads == 1:
        memset(dst, 0, size)
        return
    for i in prange(threads, num_threads=threads, schedule="static"):
        begin = part(pages, i, threads) * PAGE
        memset(dst + begin, 0, larger(smaller(part(pages, i + 1, threads) * PAGE, size) - begin, 0))


cdef enum:
    NEAR = 20 << 20                                     # bytes of images that are likely to be found in a last cache,
    SHARED = 13 << 20                                   # in one that others share, of CPUs whose first caches have few ways,
    SHARED_STRIDES = 16 << 20                           # and of those that are read or written with strides
    MANY_WAYS = 12                                      # of others
    SMALL_PLANE = 4096                                  # bytes of a plane that ends before a CPU has foreseen what comes next, at most


cdef inline int64_t image_size(const Problem *g, int64_t size) noexcept nogil:
    """Bytes of one image of src and dst."""
    return (g.src_n + g.dst_n) * size


cdef inline bint is_far(const Problem *g, int64_t size) noexcept nogil:
    """Whether images are too large to be found in a cache, so that what is read and written next has to be fetched: where they are found, depthwise
    kernels that fetch take 1.1 to 1.4 times as long (Zen 5)."""
    return g.images * image_size(g, size) > NEAR


cdef inline bint is_distant(const Problem *g, int64_t size, int64_t ways) noexcept nogil:
    """Whether images are found in no cache, so that what comes next has to be fetched. Where first caches have 8 ways, images of 14 to 20 MiB take 1.1 to 2.5 times as
    long otherwise, with 5x5 taps 1.0 to 1.5, in 16 bits 1.2 to 3.4; those of 8 to 12 MiB 0.65 to 1.15, with strides 0.5 to 1.0, and of 15 MiB 0.65 to 1.15 (2 threads of a
    Zen 4, in whose last cache of 32 MiB others work, too)."""
    cdef int64_t most = SHARED_STRIDES if g.col_lanes != 1 or col_lanes(g).z_step > 1 else SHARED
    return is_far(g, size) or (ways < MANY_WAYS and g.images * image_size(g, size) > most)


cdef inline bint fetches_planes(const Problem *g, int64_t size, int64_t ways) noexcept nogil:
    """Whether kernels that compute plane by plane, channels first, fetch later ones: small ones of distant images. Filters, and outputs with strides, take 0.45 to 0.9
    of the time; planes of 56x56 pixels would take 1.0 to 1.1 (Zen 4)."""
    return larger(g.src_rows * g.src_cols, g.dst_rows * g.dst_cols) * size <= SMALL_PLANE and is_distant(g, size, ways)
