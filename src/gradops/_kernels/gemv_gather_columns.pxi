"""Part of `gemv_gather`: columns, vectors of pixels, of patches packed by slot. The rows of a register tile are channels j, whose filter is read where it lies."""
from libc.stdint cimport int64_t
from _gemm cimport Operands, gemm_packed, operands
from _patches cimport Patches, pack_slots, pixels as all_pixels, slots
from _problem cimport divide_up, part, smaller
from _storage cimport real, MR, NR, REAL_STORAGE, VL, clear, item_size, widen_block

cdef enum:
    FEW = 8                                             # pixels that are dots, at most, and of those that are left of whole vectors
    FEW_LEFT = 4
    APART = 7                                           # rows of a register tile that share a set of the first cache, at most


cdef int64_t columns(const Gather *w, int64_t pixels) noexcept nogil:
    """How many of so many pixels are columns, and zeros beyond them if they fill the last vector enough."""
    cdef int64_t left = pixels % VL
    if w.rows or pixels <= FEW:
        return 0
    return pixels - left if left <= FEW_LEFT else pixels - left + VL


cdef inline int64_t column_ld(int64_t columns) noexcept nogil:
    """Reals from a slot to the next, or from a channel: no power of two."""
    return columns + 16 if columns else 0


cdef int64_t columns_size(const Gather *w, const Patches *p) noexcept nogil:
    """Reals of a lane pair's columns in one group."""
    return slots(p) * column_ld(columns(w, all_pixels(p)))


cdef void pack_columns(const Gather *w, const Patches *p, int64_t slot, int64_t depth, real *dst) noexcept nogil:
    """dst[slot][column_ld()], zero beyond the pixels, for `depth` slots."""
    cdef int64_t count = columns(w, all_pixels(p)), ld = column_ld(count)
    if count == 0:
        return
    if count > all_pixels(p):
        clear(dst + slot * ld, depth * ld)
    pack_slots(p, 0, smaller(count, all_pixels(p)), slot, depth, dst + slot * ld, ld)


cdef void add_columns(const Gather *w, const Patches *p, const Block *b, int64_t tap, int64_t slot, int64_t depth) noexcept nogil:
    """sums[j][pixel] (+)= filter[j] patch for `depth` slots of a tap, a register tile's j after the other."""
    cdef const Problem *g = w.g
    cdef int64_t ld = column_ld(b.columns), row = g.filter_dst, t, j, end
    cdef int64_t most = smaller(MR, APART) if row * <int64_t> sizeof(real) % CROWDED == 0 else MR, tiles = divide_up(b.channels, most) if b.columns else 0
    cdef const real *patch = b.column + (tap * g.src_channels + slot) * ld
    cdef const char *line
    cdef Operands product
    for t in range(tiles):
        j, end = part(b.channels, t, tiles), part(b.channels, t + 1, tiles)
        line = filter_at(w, p, b, tap, slot, j)
        if w.storage != REAL_STORAGE:
            widen_block(w.storage, line, g.filter_dst, 1, end - j, depth, b.rows, rows_ld(w))
            line, row = <const char *> b.rows, rows_ld(w)
        product = operands(depth, NULL, row, ld, ld, tap + slot > 0)
        gemm_packed(packed_tile, False, end - j, b.columns, &product, <const real *> line, patch, NR, b.column_sums + j * ld)
