# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dw[slot, k] = sum_pixel patches(x)[pixel, slot] dy[pixel, k]: conv2d_backprop_filter, an implicit GEMM that reduces over pixels.

In parallel: blocks of (span of pixels, group, slots, channels k). Few blocks get more spans: each span sums into its own partial dw, and
the partials are added in order. Packed: patches and dy, KC pixels at a time; patches pixel by pixel where the channels of x are contiguous,
else slot by slot.

*Assumes:* x, dy and dw are contiguous and aligned; the problem is that of the forward op and not empty; dw is [slots][groups][k].
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
from libc.stdlib cimport free
cimport numpy as cnp
from _gemm cimport KC, LD, gemm_block
from _partials cimport ADDED, add_partials
from _patches cimport Patches, patches, pixels, slots, pack_pixels, pack_slots
from _problem cimport Problem, row_lanes, col_lanes, divide_up, smaller, larger, part, useful_threads
from _scratch cimport allocate, padded
from _storage cimport real, NR, REAL_STORAGE, item_size, clear, widen_block, narrow_block

cnp.import_array()

cdef enum:
    SLOTS = 128                                         # of a block, at most
    CHANNELS = 256                                      # of a block, at most
    MIN_BLOCKS = 32                                     # pixels are split into spans until there are as many blocks
    MIN_SPAN = 4 * KC                                   # pixels of a span, at least
    SCRATCH = KC * LD + KC * CHANNELS + SLOTS * CHANNELS


cdef struct Reduce:
    const Problem *g
    int storage
    const char *x
    const char *dy
    char *dw
    Patches p                                           # of group 0
    int64_t slot_blocks, channel_blocks, spans
    real *partials                                      # [span][slot][group][k], where there are several spans


cdef void plan(Reduce *w) noexcept nogil:
    """Chooses blocks and spans; by the problem alone, never by the number of threads."""
    cdef int64_t blocks
    w.p = patches(w.g, row_lanes(w.g), col_lanes(w.g), w.x, w.storage, 0)
    w.slot_blocks = divide_up(slots(&w.p), SLOTS)
    w.channel_blocks = divide_up(w.g.dst_channels, CHANNELS)
    blocks = w.g.groups * w.slot_blocks * w.channel_blocks
    w.spans = larger(smaller(divide_up(MIN_BLOCKS, blocks), pixels(&w.p) // MIN_SPAN), 1)


cdef int64_t filter_size(const Reduce *w) noexcept nogil:
    return slots(&w.p) * w.g.groups * w.g.dst_channels


cdef void pack_dy(const Reduce *w, int64_t channel, int64_t channels, int64_t first, int64_t count, real *dst) noexcept nogil:
    """dst[panel][i][j] = dy[pixel first + i, channel + panel NR + j], zero beyond the channels."""
    cdef const Problem *g = w.g
    cdef int64_t image = g.dst_rows * g.dst_cols, done = 0, take, index, panel, width
    for panel in range(divide_up(channels, NR)):
        width = smaller(channels - panel * NR, NR)
        if width < NR:
            clear(dst + panel * KC * NR, count * NR)
        done = 0
        while done < count:
            index = first + done
            take = smaller(image - index % image, count - done)
            widen_block(w.storage, w.dy + (index // image * g.dst_n + index % image * g.dst_x + (channel + panel * NR) * g.dst_c) * item_size(w.storage),
                        g.dst_x, g.dst_c, take, width, dst + (panel * KC + done) * NR, NR)
            done += take


cdef void reduce_block(const Reduce *w, int64_t block, real *scratch) noexcept nogil:
    """One block of dw, summed over one span of pixels, KC at a time."""
    cdef const Problem *g = w.g
    cdef int64_t slot_block = block % w.slot_blocks, channel = block // w.slot_blocks % w.channel_blocks * CHANNELS
    cdef int64_t group = block // w.slot_blocks // w.channel_blocks % g.groups
    cdef int64_t span = block // w.slot_blocks // w.channel_blocks // g.groups
    cdef int64_t slot = part(slots(&w.p), slot_block, w.slot_blocks), count = part(slots(&w.p), slot_block + 1, w.slot_blocks) - slot
    cdef int64_t channels = smaller(CHANNELS, g.dst_channels - channel)
    cdef int64_t begin = part(pixels(&w.p), span, w.spans), end = part(pixels(&w.p), span + 1, w.spans), first, depth
    cdef int64_t row = g.groups * g.dst_channels, at = slot * row + group * g.dst_channels + channel
    cdef bint by_column = g.src_c == 1
    cdef real *patch = scratch
    cdef real *panels = patch + KC * LD
    cdef real *c = panels + KC * CHANNELS
    cdef Patches p = patches(g, w.p.row, w.p.col, w.x, w.storage, group)
    first = begin
    while first < end:
        depth = smaller(KC, end - first)
        pack_dy(w, group * g.dst_channels + channel, channels, first, depth, panels)
        if by_column:
            pack_pixels(&p, first, depth, slot, count, patch, LD)
            gemm_block(True, count, channels, depth, patch, panels, NR, KC * NR, c, CHANNELS, first > begin)
        else:
            pack_slots(&p, first, depth, slot, count, patch, LD)
            gemm_block(False, count, channels, depth, patch, panels, NR, KC * NR, c, CHANNELS, first > begin)
        first += depth
    if w.spans == 1:
        narrow_block(w.storage, c, CHANNELS, count, channels, w.dw + at * item_size(w.storage), row, 1)
    else:
        narrow_block(REAL_STORAGE, c, CHANNELS, count, channels, <char *> (w.partials + span * filter_size(w) + at), row, 1)


cdef void reduce_blocks(const Reduce *w, int threads, real *scratch) noexcept nogil:
    cdef int64_t block
    for block in prange(w.spans * w.g.groups * w.slot_blocks * w.channel_blocks, num_threads=threads, schedule="dynamic", use_threads_if=threads > 1):
        reduce_block(w, block, scratch + threadid() * SCRATCH)


cdef void add_all(const Reduce *w, int threads) noexcept nogil:
    cdef int64_t i
    for i in prange(divide_up(filter_size(w), ADDED), num_threads=threads, schedule="static", use_threads_if=threads > 1):
        add_partials(w.partials, w.spans, filter_size(w), i * ADDED, smaller(ADDED, filter_size(w) - i * ADDED), w.storage, w.dw)


cdef int drive(Reduce *w, int threads) noexcept nogil:
    """Plans, allocates, computes; returns nonzero if memory ran out."""
    cdef int64_t partials
    plan(w)
    threads = useful_threads(w.g, w.spans * w.g.groups * w.slot_blocks * w.channel_blocks, threads)
    partials = padded(w.spans * filter_size(w)) if w.spans > 1 else 0
    w.partials = allocate(partials + threads * SCRATCH)
    if w.partials == NULL:
        return 1
    reduce_blocks(w, threads, w.partials + partials)
    if w.spans > 1:
        add_all(w, threads)
    free(w.partials)
    return 0


def run(bytes problem not None, int storage, cnp.ndarray x not None, cnp.ndarray dy not None, cnp.ndarray dw not None, int num_threads):
    """Computes dw; see the module's docstring."""
    cdef Reduce w
    cdef int failed
    w.g = <const Problem *> PyBytes_AS_STRING(problem)
    w.storage = storage
    w.x = <const char *> cnp.PyArray_DATA(x)
    w.dy = <const char *> cnp.PyArray_DATA(dy)
    w.dw = <char *> cnp.PyArray_DATA(dw)
    with nogil:
        failed = drive(&w, num_threads)
    if failed:
        raise MemoryError("no memory for packed panels and scratch")
