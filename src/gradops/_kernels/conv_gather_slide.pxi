"""Part of `conv_gather`: bands that slide down an image. Of a block of few rows, most rows of a band are those of the last block, which stay where they are."""
from libc.stdint cimport int64_t
from libc.string cimport memmove
from _band cimport Band, image_rows, lowest, pack_band
from _gemm cimport LD
from _patches cimport Patches
from _problem cimport smaller
from _storage cimport real, PAIR, TILE

cdef enum:
    MOST_ROWS = 4                                       # of a block, of whose band more than a third are those of the last one
    MOST_SLIDING = 8                                    # chunks, each with a band of its own


cdef struct Slide:                                      # the band of the last block
    int64_t n, begin, end                               # its image, and the rows that it has; none if begin == end
    int64_t left, width
    real *at


cdef bint slides(const Gather *w, const Patches *p) noexcept nogil:
    """Whether blocks are few whole rows of pixels, whose bands all fit, one for each chunk."""
    cdef int64_t columns = p.col.count
    if TILE == 1 or w.unit != columns or w.fold.pixels // columns > MOST_ROWS or w.groups > 1 or w.chunks > MOST_SLIDING:
        return False
    return w.chunks * longest_band(p.row, p.col, w.fold.pixels) * (w.g.src_channels // PAIR) <= PIXELS * LD


cdef real *slide_band(const Gather *w, const Patches *p, const Band *band, const Block *b) noexcept nogil:
    """Packs what rows of a band the last block of the chunk had not. Returns where it lies: behind the last one, or at the beginning again."""
    cdef Slide *last = b.slides + b.chunk
    cdef int64_t room = PIXELS * LD // w.chunks, size = band.width * band.pixel, first = band.first.u * p.row.z_step + lowest(p.row, 0, p.row.taps), rows = image_rows(p, band, band.first.n), ready = 0
    cdef real *begin = b.patch + b.chunk * room
    cdef real *at = begin
    if band.first.n == band.last.n == last.n and band.left == last.left and band.width == last.width and last.begin <= first < last.end:
        ready = smaller(last.end - first, rows)
        at = last.at + (first - last.begin) * size
        if at + (rows + 1) * size > begin + room:       # pairs of planes are made beyond the last row
            memmove(begin, at, ready * size * sizeof(real))
            at = begin
    pack_band(p, band, ready, at)
    last.n, last.begin, last.end, last.left, last.width, last.at = band.first.n, first, first + rows if band.first.n == band.last.n else first, band.left, band.width, at
    return at
