"""Part of `conv_gather`: channels of src chunk by chunk, for tiles (TILE). Each pass has all taps of as many channels as fill it, instead of all channels of some taps:
its band and a panel of its filter then stay in the first cache, where taps read the same again.
"""
from libc.stdint cimport int64_t
from _gemm cimport KC
from _patches cimport Patches
from _problem cimport Problem, row_lanes, col_lanes
from _storage cimport NR, PAIR, TILE, item_size

cdef enum:
    LEAST_CHUNKS = 8                                    # that have fewer channels than a pass has room for: more than these


cdef int64_t chunk_channels(const Problem *g) noexcept nogil:
    """Channels of a chunk: as many whole steps of tiles as a pass has room for all taps of, or fewer where that leaves no rest; 0 if there are no chunks. Of 128 to 512
    channels, 3x3 taps take 0.77 to 1.0 of the time, in 3 to 7 chunks of 32 1.0 to 1.2 (Granite Rapids)."""
    cdef int64_t taps = g.filter_rows * g.filter_cols, most, channels
    if TILE == 1 or g.row_lanes * g.col_lanes != 1 or taps == 1 or g.dst_channels <= NR or g.images * g.dst_rows * g.dst_cols < FEW_PIXELS:
        return 0
    most = channels = KC // taps // (PAIR * TILE) * PAIR * TILE
    while channels and g.src_channels % channels:
        channels -= PAIR * TILE
    return channels if channels < g.src_channels and (channels == most or g.src_channels > LEAST_CHUNKS * channels) else 0


cdef int64_t chunk_step(const Gather *w) noexcept nogil:
    """Bytes of src from chunk to chunk."""
    return w.g.src_channels * w.g.src_c * item_size(w.storage)


cdef void multiply_chunks(const Gather *w, const Patches *p, int64_t pair, const Block *b) noexcept nogil:
    """multiply_band, chunk by chunk."""
    cdef Patches some = p[0]
    cdef Block block = b[0]
    for block.chunk in range(w.chunks):
        multiply_band(w, &some, pair, &block, 0)
        some.src += chunk_step(w)


cdef int drive_chunks(Gather *w, int threads) noexcept nogil:
    """drive with chunks, if their bands are kept."""
    cdef const Problem *g = w.g
    cdef OnePair chunk
    cdef Patches p
    chunk.problem, chunk.row, chunk.col = g[0], row_lanes(g)[0], col_lanes(g)[0]
    chunk.problem.src_channels = chunk_channels(g)
    w.g, w.chunks = &chunk.problem, g.src_channels // chunk.problem.src_channels
    p = pair_patches(w, 0, 0)
    if not keeps_band(w, &p) or (g.dst_c != 1 and not bands_planes(w)):
        w.g, w.chunks = g, 1
    return drive(w, threads)
