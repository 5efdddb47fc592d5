# cython: language_level=3, cdivision=True
"""A band: the rows of src that the taps of some successive pixels read, copied once and widened, with zeros outside, instead of once for each tap.

Rows of an image follow each other, and images do; each image's begin with what its first pixels read. Channels come last. Positions along an axis
count steps of src: pixel t reads tap i at z_step t + tap_step i. Where bfloat16 are multiplied in pairs, a number is two channels or, for sums over
pixels, what two neighbouring pixels read of a channel.
"""
from libc.stdint cimport int64_t
from _gemm cimport KC, Taps
from _lines cimport Lines, lines_of, no_lines
from _patches cimport BY_PIXEL, Line, Patches, Pixel, clear_block, line_of, pack_line, pack_run, pixel, reads_row
from _problem cimport Problem, Lane, divide_up, larger, smaller
from _storage cimport real, FLOAT32, PAIR, REAL_STORAGE, TILE, VL, item_size, pair_ahead, pair_columns, place_halves, place_pairs, widen_block

cdef enum:
    LEAST_CHANNELS = 4                                  # with fewer, taps that lie side by side are copied together sooner,
    LEAST_RUN = 8                                       # unless a row of them has so many numbers
    MOST_CHANNELS = KC // 3                             # with more, few taps of a pass read the same
    LEAST_COLUMNS = 6                                   # with fewer, tiles that end with a row are too short: 0.6 of 3 columns, 0.9 of 5, 1.04 of 6
    MOST_TAPS = KC // LEAST_CHANNELS + 2                # of a pass


cdef struct Band:
    Pixel first, last
    int64_t tap_row, tap_rows                           # the rows of taps of a pass
    int64_t left, width                                 # where a row begins, and its length
    int64_t pixel                                       # reals of one
    int64_t pair                                        # channels of a real


cdef inline bint fills_tiles(int64_t columns) noexcept nogil:
    """Whether rows of pixels are long enough for register tiles that end with them, and fill most of the rows of those of TILE."""
    return columns >= LEAST_COLUMNS and (TILE == 1 or 4 * columns >= 3 * divide_up(columns, TILE) * TILE)


cdef inline bint has_few_taps(const Patches *p) noexcept nogil:
    """Whether no pass has more taps than are kept."""
    return smaller(p.row.taps * p.col.taps, KC // p.g.src_channels + 2) <= MOST_TAPS


cdef inline int64_t band_run(const Patches *p) noexcept nogil:
    """Slots that lie side by side in a band, at most."""
    return (p.col.taps if p.col.tap_step == 1 else 1) * p.g.src_channels


cdef inline bint joins_taps(const Patches *p) noexcept nogil:
    """Whether the taps of a row, which lie side by side, are multiplied as one, of channels that are too few by themselves. Time with patches over that, 44 random
    problems of 1 to 3 channels, 2 threads of a Zen 4 (float32, float16, float64, AVX2): 8 numbers and more 1.35, 1.24, 1.3 and 1.1, fewer 1.05 to 0.95."""
    return PAIR == 1 and p.g.src_c == 1 and p.g.src_channels < LEAST_CHANNELS and band_run(p) >= LEAST_RUN


cdef inline bint has_band(const Patches *p) noexcept nogil:
    """Whether several taps read channels that come last, not too many of them, and not too few or rows of taps at once, for rows that are not too short."""
    cdef int64_t channels = p.g.src_channels
    cdef bint some = LEAST_CHANNELS <= channels <= MOST_CHANNELS or joins_taps(p)
    return some and fills_tiles(p.col.count) and p.row.taps * p.col.taps > 1 and channels % PAIR == 0


cdef inline int64_t lowest(const Lane *lane, int64_t tap, int64_t taps) noexcept nogil:
    """The lowest position of so many taps, from a pixel on."""
    return smaller(lane.tap_step * tap, lane.tap_step * (tap + taps - 1))


cdef inline int64_t extent(const Lane *lane, int64_t count, int64_t taps) noexcept nogil:
    """How many positions so many pixels and taps reach over."""
    return (count - 1) * lane.z_step + (taps - 1) * larger(lane.tap_step, -lane.tap_step) + 1


cdef inline int64_t image_rows(const Patches *p, const Band *band, int64_t n) noexcept nogil:
    """Rows of the band that belong to image n."""
    cdef int64_t begin = band.first.u if n == band.first.n else 0, end = band.last.u + 1 if n == band.last.n else p.row.count
    return extent(p.row, end - begin, band.tap_rows)


cdef inline int64_t band_size(const Patches *p, int64_t rows, int64_t columns, int64_t pair) noexcept nogil:
    """Reals of a band of so many rows and columns of an image's pixels, and of all slots."""
    return extent(p.row, rows, p.row.taps) * extent(p.col, columns, p.col.taps) * (p.g.src_channels // pair)


cdef inline bint fits_band(const Patches *p, int64_t most, int64_t columns, int64_t pair) noexcept nogil:
    """Whether a band of so many pixels of a row, and of all slots, has at most `most` reals."""
    return extent(p.row, 1, p.row.taps) <= most and extent(p.col, columns, p.col.taps) <= most and band_size(p, 1, columns, pair) <= most


cdef inline int64_t band_rows(const Patches *p, int64_t most, int64_t pair) noexcept nogil:
    """Rows of pixels, at least one, of a band of all slots that surely has at most `most` reals, wherever it begins."""
    cdef int64_t reach = extent(p.row, 1, p.row.taps), rows = most // (extent(p.col, p.col.count, p.col.taps) * (p.g.src_channels // pair))
    return larger((rows - 2 * reach) // (p.row.z_step + divide_up(reach, p.row.count)), 1)


cdef inline void place_band(const Patches *p, int64_t first, int64_t count, int64_t slot, int64_t slots, int64_t pair, Band *band) noexcept nogil:
    """Describes the band of so many pixels and slots."""
    cdef int64_t tap_row = p.col.taps * p.g.src_channels, columns = p.col.count, begin = 0
    band.first, band.last = pixel(p, first), pixel(p, first + count - 1)
    if band.first.n == band.last.n and band.first.u == band.last.u:
        begin, columns = band.first.v, count
    band.left = begin * p.col.z_step + lowest(p.col, 0, p.col.taps)
    band.width = extent(p.col, columns, p.col.taps)
    band.pixel, band.pair = p.g.src_channels // pair, pair
    band.tap_row = slot // tap_row
    band.tap_rows = (slot + slots - 1) // tap_row + 1 - band.tap_row


cdef inline bint within(const Patches *p, const Band *band, int64_t most) noexcept nogil:
    """Whether the band of all slots of these pixels has at most `most` reals: passes over the same pixels, whose sums meet, are of one kind."""
    cdef Band whole = band[0]
    cdef int64_t rows
    whole.tap_rows = p.row.taps
    rows = image_rows(p, &whole, whole.first.n)
    if whole.last.n > whole.first.n:
        if extent(p.row, p.row.count, whole.tap_rows) > most:
            return False
        rows += (whole.last.n - whole.first.n - 1) * extent(p.row, p.row.count, whole.tap_rows) + image_rows(p, &whole, whole.last.n)
    return rows <= most and whole.width <= most and rows * whole.width * whole.pixel <= most


cdef inline void pack_present(const Patches *p, const char *image, int64_t y, int64_t x, int64_t pixels, real *dst) noexcept nogil:
    """pack_line of pairs of channels that come last, some of which are missing."""
    cdef int64_t channels = p.g.src_channels // PAIR, step = p.g.src_x * item_size(p.storage) * p.col.src_unit
    cdef Line line = line_of(p.g, p.storage, image, y, x, p.col.src_unit, pixels)
    clear_block(line.low, channels, dst, channels)
    place_halves(line.at + line.low * step, step, line.high - line.low, 1, 0, p.present, p.g.src_channels, <char *> (dst + line.low * channels), channels)
    clear_block(pixels - line.high, channels, dst + line.high * channels, channels)


cdef inline void pack_band(const Patches *p, const Band *band, int64_t ready, real *dst) noexcept nogil:
    """Copies all rows but so many first ones of the first image, which are there already, each of them at once if its pixels lie side by side. Pairs that lie as
    such are copied as if they were float32; those of planes are made beyond the row that they are turned into, or widened first, which takes twice the room of
    the last row. What becomes pairs of pixels is widened in any layout."""
    cdef Problem g = p.g[0]
    cdef int64_t n, u, i, y, x = p.col.src_start + p.col.src_unit * band.left, size = band.width * band.pixel, channels = band.pixel
    cdef int storage = p.storage
    cdef bint last = g.src_c == 1, paired = band.pair > 1, whole = p.present == g.src_channels, at_once
    cdef const char *image
    cdef Line line
    if paired and last and whole:
        g.src_n, g.src_y, g.src_x, storage = g.src_n // 2, g.src_y // 2, g.src_x // 2, FLOAT32
    elif paired:
        channels = g.src_channels
    at_once = last and p.col.src_unit == 1 and g.src_x == channels
    for n in range(band.first.n, band.last.n + 1):
        u = (band.first.u if n == band.first.n else 0) * p.row.z_step + lowest(p.row, band.tap_row, band.tap_rows)
        image = p.src + n * g.src_n * item_size(storage)
        dst += ready * size
        for i in range(ready, image_rows(p, band, n)):
            y = p.row.src_start + p.row.src_unit * (u + i)
            if not whole:
                pack_present(p, image, y, x, band.width, dst)
            elif at_once and 0 <= y < g.src_rows:
                pack_run(storage, image + y * g.src_y * item_size(storage), x * channels, size, g.src_cols * channels, dst)
            elif paired and g.src_x == 1 and p.col.src_unit == 1 and band.pixel >= VL:
                line = line_of(&g, storage, image, y, x, 1, band.width)
                place_pairs(line.at, line.low, line.high, line.at + g.src_c * item_size(storage), line.low, line.high, 2 * g.src_c * item_size(storage), band.pixel,
                            1, band.width, dst + size, band.width)
                widen_block(REAL_STORAGE, <const char *> (dst + size), 1, band.width, band.width, band.pixel, dst, band.pixel)
            else:
                pack_line(&g, storage, image, y, x, p.col.src_unit, band.width, channels, BY_PIXEL, dst, channels)
                if paired and not last:
                    pair_columns(dst, 1, band.width * channels, 0)
            if not paired:
                pair_ahead(dst, size, p.col.z_step * band.pixel)
            dst += size
        ready = 0


cdef inline Lines band_lines(const Patches *p, const Band *band, const char *src) noexcept nogil:
    """Those of the rows that are copied of a group at src; none if rows or columns between are left out."""
    cdef const Problem *g = p.g
    cdef int64_t size = item_size(p.storage), low = p.row.src_start + lowest(p.row, band.tap_row, band.tap_rows)
    cdef int64_t first = band.first.n * g.src_rows + larger(low + band.first.u * p.row.z_step, 0)
    cdef int64_t end = band.last.n * g.src_rows + smaller(low + band.last.u * p.row.z_step + extent(p.row, 1, band.tap_rows), g.src_rows)
    if g.src_c != 1 or p.row.src_unit > 1 or p.col.src_unit > 1 or end <= first:
        return no_lines()
    return lines_of(src + first * g.src_y * size, g.src_x * size, (end - first) * g.src_cols, g.src_channels * size)


cdef inline int64_t band_index(const Patches *p, const Band *band, const Pixel *at) noexcept nogil:
    """Where a pixel's taps are counted from."""
    cdef int64_t row = (at.u - (band.first.u if at.n == band.first.n else 0)) * p.row.z_step
    if at.n > band.first.n:
        row += image_rows(p, band, band.first.n) + (at.n - band.first.n - 1) * extent(p.row, p.row.count, band.tap_rows)
    return (row * band.width + at.v * p.col.z_step - band.left) * band.pixel


cdef inline int64_t slot_index(const Patches *p, const Band *band, int64_t slot) noexcept nogil:
    """Where a slot lies from there."""
    cdef int64_t tap = slot // p.g.src_channels
    return ((p.row.tap_step * (tap // p.col.taps) - lowest(p.row, band.tap_row, band.tap_rows)) * band.width
            + p.col.tap_step * (tap % p.col.taps)) * band.pixel + slot % p.g.src_channels // band.pair


cdef inline int64_t tap_run(const Patches *p) noexcept nogil:
    """Slots that are multiplied as one tap: those of a row that lie side by side if tiles had steps that they do not fill."""
    return band_run(p) if joins_taps(p) or (p.g.src_channels % (PAIR * TILE) and TILE > 1) else p.g.src_channels


cdef inline int64_t place_taps(const Patches *p, const Band *band, int64_t slot, int64_t slots, int64_t *at, int64_t *depth) noexcept nogil:
    """Where from there each tap of these slots, or row of taps, lies, and how many steps it has; the first and the last may be cut. Returns how many there are."""
    cdef int64_t run = tap_run(p), end = slot + slots, count = 0, take
    while slot < end:
        take = smaller(run - slot % run, end - slot)
        at[count], depth[count] = slot_index(p, band, slot), take // PAIR
        slot, count = slot + take, count + 1
    return count


cdef inline Taps taps_inside(const Patches *p, const Taps *taps, int64_t slot, int64_t u, int64_t *first) noexcept nogil:
    """Those of some taps, the first of which has `slot`, whose row of src lies inside for pixels of row u; a single row of taps, which are multiplied by zeros, if none
    does. Where their slots begin."""
    cdef int64_t begin = 0, end = p.row.taps, run = tap_run(p), tap = slot // run, row = p.col.taps * p.g.src_channels // run, i
    cdef Taps some
    while begin < end and not reads_row(p, u, begin):
        begin += 1
    while begin < end and not reads_row(p, u, end - 1):
        end -= 1
    begin, end = larger(begin * row - tap, 0), smaller(end * row - tap, taps.count)
    first[0] = slot
    if begin >= end:
        begin, end = 0, smaller(row, taps.count)
    some.at, some.depth, some.count = taps.at + begin, taps.depth + begin, end - begin
    for i in range(begin):
        first[0] += taps.depth[i] * PAIR
    return some
