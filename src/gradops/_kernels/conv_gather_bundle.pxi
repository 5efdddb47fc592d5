"""Part of `conv_gather`: groups of few channels, several of which become one for tiles (TILE), with zeros in the filter between them.

Zeros would spread infinities of one group to others: sums
that are not finite are told, and a problem that is computed as such (`unpadded`) has no bundles.
"""
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset
from _blocks cimport FIRST_FREE, do_blocks
from _bundle cimport MOST_BUNDLED, bundle_groups, bundled_groups, problem_size
from _gemm cimport KC
from _problem cimport Problem
from _scratch cimport allocate_bytes, release
from _storage cimport item_size

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


cdef int64_t dense_size(const Problem *g, int64_t groups) noexcept nogil:
    """Elements of the filter of all bundles of so many groups."""
    return g.groups * groups * g.src_channels * g.dst_channels * g.filter_rows * g.filter_cols


cdef void bundle(const Problem *g, int64_t groups, Problem *whole) noexcept nogil:
    """The problem of bundles, whose filter lies [group][taps] with what lies side by side in the filter innermost."""
    bundle_groups(g, groups, whole)
    if g.filter_src == 1:
        whole.filter_src, whole.filter_dst = 1, whole.src_channels
    else:
        whole.filter_src, whole.filter_dst = whole.dst_channels, 1
    whole.filter_x = whole.src_channels * whole.dst_channels
    whole.filter_y = g.filter_cols * whole.filter_x
    whole.filter_group = g.filter_rows * whole.filter_y


cdef void fill_bundle(const void *work, int64_t index, void *_) noexcept nogil:
    """Writes the filter of one bundle, group by group: rows of what lies side by side in the filter, src channels or, if those do not, dst channels."""
    cdef const Bundles *w = <const Bundles *> work
    cdef const Problem *g = w.g
    cdef const Problem *to = w.whole
    cdef bint by_src = g.filter_src == 1
    cdef int64_t rows = g.dst_channels if by_src else g.src_channels, columns = g.src_channels if by_src else g.dst_channels
    cdef int64_t row = g.filter_dst if by_src else g.filter_src, to_row = to.filter_dst if by_src else to.filter_src, part, y, x, i, src, dst
    memset(w.dense + index * to.filter_group * w.size, 0, to.filter_group * w.size)
    for part in range(w.groups):
        for y in range(g.filter_rows):
            for x in range(g.filter_cols):
                src = (index * w.groups + part) * g.filter_group + y * g.filter_y + x * g.filter_x
                dst = index * to.filter_group + y * to.filter_y + x * to.filter_x + part * (rows * to_row + columns)
                for i in range(rows):
                    memcpy(w.dense + (dst + i * to_row) * w.size, w.filter + (src + i * row) * w.size, columns * w.size)


cdef int drive_bundles(Gather *w, int64_t groups, int threads) noexcept nogil:
    """drive with so many groups as one."""
    cdef const Problem *g = w.g
    cdef size_t head = problem_size(g)
    cdef char *memory = <char *> allocate_bytes(head + dense_size(g, groups) * item_size(w.storage))
    cdef Bundles bundles
    cdef int failed
    if memory == NULL:
        return 1
    bundle(g, groups, <Problem *> memory)
    bundles.g, bundles.whole, bundles.groups, bundles.size = g, <Problem *> memory, groups, item_size(w.storage)
    bundles.filter, bundles.dense = w.filter, memory + head
    do_blocks(fill_bundle, &bundles, bundles.whole.groups, threads, FIRST_FREE, NULL, 0)
    w.g, w.filter, w.sparse = bundles.whole, bundles.dense, True
    failed = drive(w, threads)
    release(memory)
    return failed
