"""Part of `conv_gather`: groups of few channels, several of which become one for tiles (TILE), with zeros in the filter between them, and odd numbers of channels, which
become even by zeros.

Between groups, zeros would spread infinities of one group to others: sums
that are not finite are told, and a problem that is computed as such (`unpadded`) has no bundles.
"""
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
from _blocks cimport FIRST_FREE, do_blocks
from _bundle cimport MOST_BUNDLED, bundle_groups, bundled_groups
from _gemm cimport KC
from _patches cimport Patches, patches
from _problem cimport Problem, col_lanes, problem_size, row_lanes
from _scratch cimport allocate_bytes, release
from _storage cimport PACKED_STORAGE, PAIR, TILE, item_size

cdef struct Bundles:                                    # where a filter goes
    const Problem *g                                    # of groups,
    const Problem *whole                                # of bundles
    int64_t groups                                      # of a bundle
    int64_t size                                        # bytes of an element
    const char *filter
    char *dense


cdef int64_t bundled(const Problem *g) noexcept nogil:
    """How many groups a bundle has: 1 if there are none, or their sums would meet those of other passes."""
    return bundled_groups(g) if g.filter_rows * g.filter_cols * MOST_BUNDLED <= KC else 1


cdef bint has_odd_channels(const Problem *g) noexcept nogil:
    """Whether channels of src, which come last, are odd, so that pixels are no pairs, and several taps may read a band of them, in place of patches. Without tiles
    those of a row of taps, if they lie side by side, are copied at once, and rows of pixels need not end with a tile: a band takes 0.75 to 1.25 of the time then, with
    dilations 0.8, of groups of 17 to 19 0.6, of gradients of strides 0.55 to 0.75 (2 threads of a Zen 4)."""
    if PAIR == 1 or g.src_channels % PAIR == 0 or g.src_c != 1 or g.dst_c != 1 or g.filter_rows * g.filter_cols == 1:
        return False
    if TILE == 1 and reads_runs(g):
        return False
    return g.dst_channels >= MANY_CHANNELS and g.images * g.dst_rows * g.dst_cols >= FEW_PIXELS


cdef bint reads_runs(const Problem *g) noexcept nogil:
    """Whether the taps of a filter row of the only lane pair read one contiguous run of src."""
    return g.row_lanes * g.col_lanes == 1 and patches(g, row_lanes(g), col_lanes(g), NULL, PACKED_STORAGE, 0).runs


cdef int64_t dense_size(const Problem *g, int64_t groups, int64_t missing) noexcept nogil:
    """Elements of the filter of all bundles of so many groups and missing channels."""
    return g.groups * (groups * g.src_channels + missing) * g.dst_channels * g.filter_rows * g.filter_cols


cdef void bundle(const Problem *g, int64_t groups, int64_t missing, Problem *whole) noexcept nogil:
    """The problem of bundles, whose filter lies [group][taps] with what lies side by side in the filter innermost."""
    bundle_groups(g, groups, whole)
    whole.src_channels += missing
    if g.filter_src == 1:
        whole.filter_src, whole.filter_dst = 1, whole.src_channels
    else:
        whole.filter_src, whole.filter_dst = whole.dst_channels, 1
    whole.filter_x = whole.src_channels * whole.dst_channels
    whole.filter_y = g.filter_cols * whole.filter_x
    whole.filter_group = g.filter_rows * whole.filter_y


cdef void fill_bundle(const void *work, int64_t index, void *_) noexcept nogil:
    """Writes a row of taps of one bundle's filter, group by group: rows of what lies side by side in the filter, src channels or, if those do not, dst channels.
    Where taps lie innermost, one number after the other."""
    cdef const Bundles *w = <const Bundles *> work
    cdef const Problem *g = w.g
    cdef const Problem *to = w.whole
    cdef bint by_src = g.filter_src == 1
    cdef int64_t rows = g.dst_channels if by_src else g.src_channels, columns = g.src_channels if by_src else g.dst_channels
    cdef int64_t row = g.filter_dst if by_src else g.filter_src, step = g.filter_src if by_src else g.filter_dst, to_row = to.filter_dst if by_src else to.filter_src
    cdef int64_t run = columns if step == 1 else 1, y = index % g.filter_rows, part, x, i, j, src, dst
    index = index // g.filter_rows
    memset(w.dense + (index * to.filter_group + y * to.filter_y) * w.size, 0, to.filter_y * w.size)
    for part in range(w.groups):
        for x in range(g.filter_cols):
            src = (index * w.groups + part) * g.filter_group + y * g.filter_y + x * g.filter_x
            dst = index * to.filter_group + y * to.filter_y + x * to.filter_x + part * (rows * to_row + columns)
            for i in range(rows):
                for j in range(columns // run):
                    memcpy(w.dense + (dst + i * to_row + j) * w.size, w.filter + (src + i * row + j * step) * w.size, run * w.size)


cdef bint reads_bands(Gather *w) noexcept nogil:
    """Whether nothing but bands is read of src."""
    cdef Patches p
    if w.g.row_lanes * w.g.col_lanes != 1:
        return shares_band(w)
    p = pair_patches(w, 0, 0)
    return keeps_band(w, &p)


cdef int drive_bundles(Gather *w, int64_t groups, int64_t missing, int threads) noexcept nogil:
    """drive with so many groups as one, or so many channels more, if these are read as bands."""
    cdef const Problem *g = w.g
    cdef const char *filter = w.filter
    cdef size_t head = problem_size(g)
    cdef char *memory = <char *> allocate_bytes(head + dense_size(g, groups, missing) * item_size(w.storage))
    cdef Bundles bundles
    cdef int failed
    if memory == NULL:
        return 1
    bundle(g, groups, missing, <Problem *> memory)
    bundles.g, bundles.whole, bundles.groups, bundles.size = g, <Problem *> memory, groups, item_size(w.storage)
    bundles.filter, bundles.dense = filter, memory + head
    w.g, w.filter, w.missing, w.sparse = bundles.whole, bundles.dense, missing, groups > 1
    if missing and not reads_bands(w):
        w.g, w.filter, w.missing = g, filter, 0
    else:
        do_blocks(fill_bundle, &bundles, bundles.whole.groups * g.filter_rows, threads, FIRST_FREE, NULL, 0)
    failed = drive(w, threads)
    release(memory)
    return failed
