# cython: language_level=3, cdivision=True
"""The virtual patch matrix (im2col, never formed whole): one row per dst pixel of a lane pair, one column ("slot") per (tap row, tap column,
src channel). Packing a block of it is where storage is widened, layout is dealt with and taps outside the image become zeros.
"""
from libc.stdint cimport int64_t
from _problem cimport Problem, Lane, larger, smaller, divide_up
from _storage cimport real, FLOAT32, MOST_STEP, item_size, clear, clear_halves, place_halves, place_pairs, widen, widen_block


cdef struct Patches:
    const Problem *g
    const Lane *row
    const Lane *col
    const char *src                                     # at the first channel of the group
    int64_t present                                     # channels of it that lie there; only bands take zeros for the others
    int storage
    bint runs                                           # whether the taps of a filter row read one contiguous run of src
    bint by_channel                                     # whether slots are all taps of a channel, then those of the next: only by slot or half


cdef inline Patches patches(const Problem *g, const Lane *row, const Lane *col, const char *src, int storage, int64_t group) noexcept nogil:
    cdef Patches p
    p.g, p.row, p.col, p.storage, p.present, p.by_channel = g, row, col, storage, g.src_channels, False
    p.src = src + group * g.src_channels * g.src_c * item_size(storage)
    p.runs = reads_runs(&p)
    return p


cdef inline bint reads_runs(const Patches *p) noexcept nogil:
    cdef const Problem *g = p.g
    return (g.src_c == 1 or g.src_channels == 1) and g.src_x == g.src_channels and p.col.src_unit * p.col.tap_step == 1


cdef inline void take_channels(Patches *p, int64_t first, int64_t count, Problem *some) noexcept nogil:
    """Leaves p only some channels of src, with `some` as its problem."""
    some[0] = p.g[0]
    some.src_channels = p.present = count
    p.src += first * p.g.src_c * item_size(p.storage)
    p.g = some
    p.runs = reads_runs(p)


cdef inline int64_t pixels(const Patches *p) noexcept nogil:
    return p.g.images * p.row.count * p.col.count


cdef inline int64_t slots(const Patches *p) noexcept nogil:
    return p.row.taps * p.col.taps * p.g.src_channels


cdef inline bint src_in_rows(const Patches *p) noexcept nogil:
    """Whether the patches of successive pixels are rows of src as it lies, src_x apart: one tap, which reads every pixel."""
    cdef const Problem *g = p.g
    return g.src_c == 1 and g.src_x == g.groups * g.src_channels and reads_all(p.row, g.src_rows) and reads_all(p.col, g.src_cols)


cdef inline bint reads_all(const Lane *lane, int64_t size) noexcept nogil:
    return lane.taps == 1 and lane.count == size and lane.src_start == 0 and lane.src_unit * lane.z_step == 1


cdef inline bint dst_in_rows(const Patches *p) noexcept nogil:
    """Whether successive pixels of dst are rows as they lie, dst_x apart."""
    cdef const Problem *g = p.g
    return g.dst_c == 1 and g.dst_x == g.groups * g.dst_channels and has_all(p.row, g.dst_rows) and has_all(p.col, g.dst_cols)


cdef inline bint has_all(const Lane *lane, int64_t size) noexcept nogil:
    return lane.count == size and lane.out_start == 0 and lane.out_step == 1


cdef inline bint src_in_planes(const Patches *p) noexcept nogil:
    """Whether one tap reads every pixel, and the pixels of a channel of src are contiguous."""
    cdef const Problem *g = p.g
    return g.src_x == 1 and g.src_y == g.src_cols and reads_all(p.row, g.src_rows) and reads_all(p.col, g.src_cols)


cdef inline bint dst_in_planes(const Patches *p) noexcept nogil:
    """Whether successive pixels of a channel of dst are contiguous."""
    cdef const Problem *g = p.g
    return g.dst_x == 1 and g.dst_y == g.dst_cols and has_all(p.row, g.dst_rows) and has_all(p.col, g.dst_cols)


cdef struct Rows:                                       # an operand of a product, packed or in place
    const real *at
    const real *end                                     # what must not be read beyond, if it is in place
    int64_t ld, panel
    bint in_place
    const char *lies                                    # its first row as it lies, `row` bytes apart; NULL if it lies in no rows
    int64_t row


cdef inline int64_t src_index(const Lane *lane, int64_t t, int64_t tap) noexcept nogil:
    return lane.src_start + lane.src_unit * (lane.z_step * t + lane.tap_step * tap)


cdef inline bint reads_row(const Patches *p, int64_t u, int64_t tap_row) noexcept nogil:
    """Whether pixels of row u read a row of src with a row of taps: it lies inside."""
    return 0 <= src_index(p.row, u, tap_row) < p.g.src_rows


cdef inline void pack_run(int storage, const char *line, int64_t begin, int64_t count, int64_t limit, real *dst) noexcept nogil:
    """dst[i] = line[begin + i] where 0 <= begin + i < limit, else 0."""
    cdef int64_t low = smaller(larger(-begin, 0), count), high = larger(smaller(limit - begin, count), low)
    clear(dst, low)
    widen(storage, line + (begin + low) * item_size(storage), high - low, dst + low)
    clear(dst + high, count - high)


cdef struct Pixel:                                      # a dst pixel of a lane pair; v moves fastest
    int64_t n, u, v


cdef inline Pixel pixel(const Patches *p, int64_t index) noexcept nogil:
    cdef Pixel at
    at.v = index % p.col.count
    at.u = index // p.col.count % p.row.count
    at.n = index // p.col.count // p.row.count
    return at


cdef inline void advance(const Patches *p, Pixel *at, int64_t count) noexcept nogil:
    """Moves on by `count` pixels, not beyond the end of the row."""
    at.v += count
    if at.v == p.col.count:
        at.u, at.v = at.u + 1, 0
    if at.u == p.row.count:
        at.n, at.u = at.n + 1, 0


cdef inline void clear_block(int64_t rows, int64_t cols, real *dst, int64_t ld) noexcept nogil:
    cdef int64_t r
    if cols:
        for r in range(rows):
            clear(dst + r * ld, cols)


cdef enum Form:                                         # of a packed block:
    BY_PIXEL = 0                                        # dst[pixel ld + slot]
    BY_SLOT = 1                                         # dst[slot ld + pixel]
    BY_HALF = 2                                         # of planes of bfloat16, as they lie: halves of dst[slot ld + pixel / 2]
    BY_PAIR = 3                                         # of pixels of bfloat16, as they lie: halves of dst[pixel ld + slot / 2]


cdef struct Line:                                       # of an image, a step from pixel to pixel
    const char *at                                      # its first pixel
    int64_t low, high                                   # those of its pixels that lie inside are low <= i < high


cdef inline Line line_of(const Problem *g, int storage, const char *src, int64_t y, int64_t x, int64_t step, int64_t pixels) noexcept nogil:
    """Pixels (y, x), (y, x + step), ... of the image and channel at src."""
    cdef Line line
    line.at, line.low, line.high = src + (y * g.src_y + x * g.src_x) * item_size(storage), 0, pixels
    if x < 0:
        line.low = smaller(divide_up(-x, step), pixels)
    if x + (pixels - 1) * step >= g.src_cols:
        line.high = larger(divide_up(g.src_cols - x, step), line.low) if x < g.src_cols else line.low
    if not 0 <= y < g.src_rows:
        line.low = line.high = pixels
    return line


cdef inline void pack_line(const Problem *g, int storage, const char *src, int64_t y, int64_t x, int64_t step, int64_t pixels, int64_t channels, Form form, real *dst, int64_t ld) noexcept nogil:
    """A line of so many channels, which are slots. The step of halves is MOST_STEP at most."""
    cdef Line line = line_of(g, storage, src, y, x, step, pixels)
    cdef int64_t low = line.low, inner = line.high - low, left = pixels - line.high
    src = line.at + low * step * g.src_x * item_size(storage)
    if form == BY_HALF:
        place_halves(line.at, g.src_c * item_size(storage), channels, <int> step, low, line.high, pixels, <char *> dst, ld)
    elif form == BY_SLOT:
        clear_block(channels, low, dst, ld)
        widen_block(storage, src, g.src_c, step * g.src_x, channels, inner, dst + low, ld)
        clear_block(channels, left, dst + line.high, ld)
    elif form == BY_PAIR:
        clear_halves(low, channels, <char *> dst, ld)
        place_halves(src, step * g.src_x * 2, inner, 1, 0, channels, channels, <char *> (dst + low * ld), ld)
        clear_halves(left, channels, <char *> (dst + line.high * ld), ld)
    else:
        clear_block(low, channels, dst, ld)
        widen_block(storage, src, step * g.src_x, g.src_c, inner, channels, dst + low * ld, ld)
        clear_block(left, channels, dst + line.high * ld, ld)


cdef inline void pack_tap(const Patches *p, const Pixel *at, int64_t pixels, int64_t i, int64_t j, int64_t c, int64_t channels, Form form, real *dst, int64_t ld) noexcept nogil:
    """Channels c.. of tap (i, j) for `pixels` pixels of one row."""
    cdef const char *src = p.src + (at.n * p.g.src_n + c * p.g.src_c) * item_size(p.storage)
    pack_line(p.g, p.storage, src, src_index(p.row, at.u, i), src_index(p.col, at.v, j), p.col.src_unit * p.col.z_step, pixels, channels,
              form, dst, ld)


cdef inline real *packed(Form form, real *dst, int64_t ld, int64_t slot, int64_t pixel) noexcept nogil:
    """Where a slot of a pixel lies in a packed block."""
    if form == BY_PIXEL:
        return dst + pixel * ld + slot
    if form == BY_PAIR:
        return <real *> (<char *> (dst + pixel * ld) + 2 * slot)
    return dst + slot * ld + pixel if form == BY_SLOT else <real *> (<char *> (dst + slot * ld) + 2 * pixel)


cdef inline void pack_taps(const Patches *p, int64_t first, int64_t count, int64_t slot, int64_t slots, Form form, real *dst, int64_t ld) noexcept nogil:
    """The block of pixels first.. and slots slot..: row by row of pixels, tap by tap."""
    cdef Pixel at = pixel(p, first)
    cdef int64_t cs = p.g.src_channels, taps = p.row.taps * p.col.taps, done = 0, pixels, s, c, tap, channels
    while done < count:
        pixels = smaller(p.col.count - at.v, count - done)
        s = 0
        while s < (smaller(slots, taps) if p.by_channel else slots):
            if p.by_channel:
                tap, c, channels = (slot + s) % taps, (slot + s) // taps, divide_up(slots - s, taps)
            else:
                tap, c = (slot + s) // cs, (slot + s) % cs
                channels = smaller(cs - c, slots - s)
            pack_tap(p, &at, pixels, tap // p.col.taps, tap % p.col.taps, c, channels, form, packed(form, dst, ld, s, done), taps * ld if p.by_channel else ld)
            s += 1 if p.by_channel else channels
        advance(p, &at, pixels)
        done += pixels


cdef inline void copy_run(const Patches *p, const char *line, int64_t begin, int64_t count, int64_t limit, bint halves, real *dst) noexcept nogil:
    """pack_run, or the same of halves as they lie."""
    if halves:
        place_halves(line + begin * item_size(p.storage), 0, 1, 1, larger(-begin, 0), limit - begin, count, <char *> dst, 0)
    else:
        pack_run(p.storage, line, begin, count, limit, dst)


cdef inline void pack_windows(const Patches *p, const Pixel *at, int64_t pixels, int64_t i, int64_t begin, int64_t count, bint halves, real *dst, int64_t ld) noexcept nogil:
    """dst[q ld + s] = slot begin + s of filter row i, for s < count, of `pixels` pixels of one row, or halves of it. *Assumes:* p.runs."""
    cdef const Problem *g = p.g
    cdef int64_t size = item_size(p.storage), cs = g.src_channels, limit = g.src_cols * cs, q
    cdef int64_t y = src_index(p.row, at.u, i), x = src_index(p.col, at.v, 0) * cs + begin, step = p.col.src_unit * p.col.z_step * cs
    cdef int64_t low = smaller(divide_up(-x, step), pixels) if x < 0 else 0
    cdef int64_t high = larger(smaller((limit - count - x) // step + 1, pixels), low) if x + count <= limit else low
    cdef const char *line = p.src + (at.n * g.src_n + y * g.src_y) * size
    if not 0 <= y < g.src_rows:
        if halves:
            clear_halves(pixels, count, <char *> dst, ld)
        else:
            clear_block(pixels, count, dst, ld)
        return
    for q in range(low):
        copy_run(p, line, x + q * step, count, limit, halves, dst + q * ld)
    if halves:
        place_halves(line + (x + low * step) * size, step * size, high - low, 1, 0, count, count, <char *> (dst + low * ld), ld)
    else:
        widen_block(p.storage, line + (x + low * step) * size, step, 1, high - low, count, dst + low * ld, ld)
    for q in range(high, pixels):
        copy_run(p, line, x + q * step, count, limit, halves, dst + q * ld)


cdef inline void pack_runs(const Patches *p, int64_t first, int64_t count, int64_t slot, int64_t slots, bint halves, real *dst, int64_t ld) noexcept nogil:
    """The block of pixels first.. and slots slot..: window by window, a row of taps at once. *Assumes:* p.runs."""
    cdef Pixel at = pixel(p, first)
    cdef int64_t width = p.col.taps * p.g.src_channels, done = 0, pixels, s, begin, take
    while done < count:
        pixels = smaller(p.col.count - at.v, count - done)
        s = 0
        while s < slots:
            begin = (slot + s) % width
            take = smaller(width - begin, slots - s)
            pack_windows(p, &at, pixels, (slot + s) // width, begin, take, halves, <real *> (<char *> (dst + done * ld) + 2 * s) if halves else dst + done * ld + s, ld)
            s += take
        advance(p, &at, pixels)
        done += pixels


cdef inline void pack_pixels(const Patches *p, int64_t first, int64_t count, int64_t slot, int64_t slots, real *dst, int64_t ld) noexcept nogil:
    """dst[i ld + s] = the value of pixel first + i at slot + s."""
    if p.runs:
        pack_runs(p, first, count, slot, slots, False, dst, ld)
    else:
        pack_taps(p, first, count, slot, slots, BY_PIXEL, dst, ld)


cdef inline bint has_channel_pairs(const Patches *p, int64_t slot, int64_t slots) noexcept nogil:
    """Whether so many slots are pairs of neighbouring channels that come last."""
    return p.g.src_c == 1 and p.g.src_channels % 2 == 0 and slot % 2 == 0 and slots % 2 == 0


cdef inline bint lie_in_pairs(const Patches *p) noexcept nogil:
    """Whether slots of a pixel of bfloat16 become pairs as they lie: channels that come last, or a row of taps that reads one run."""
    return p.g.src_c == 1 or p.runs


cdef inline void pack_pairs(const Patches *p, int64_t first, int64_t count, int64_t slot, int64_t slots, real *dst, int64_t ld) noexcept nogil:
    """dst[i ld + s] = the pair of the values of pixel first + i at slot + 2s and slot + 2s + 1, an odd one with a zero beside it. Channels are copied as if two
    were one float32. *Assumes:* lie_in_pairs."""
    cdef Problem halved
    cdef Patches whole
    if has_channel_pairs(p, slot, slots):
        halved, whole = p.g[0], p[0]
        halved.src_channels, halved.src_n, halved.src_y, halved.src_x = halved.src_channels // 2, halved.src_n // 2, halved.src_y // 2, halved.src_x // 2
        whole.g, whole.storage = &halved, FLOAT32
        pack_pixels(&whole, first, count, slot // 2, slots // 2, dst, ld)
        return
    if p.runs:
        pack_runs(p, first, count, slot, slots, True, dst, ld)
    else:
        pack_taps(p, first, count, slot, slots, BY_PAIR, dst, ld)
    if slots % 2:
        clear_halves(count, 1, <char *> dst + 2 * slots, ld)


cdef inline void pack_slots(const Patches *p, int64_t first, int64_t count, int64_t slot, int64_t slots, real *dst, int64_t ld) noexcept nogil:
    """dst[s ld + i] = the value of pixel first + i at slot + s."""
    pack_taps(p, first, count, slot, slots, BY_SLOT, dst, ld)


cdef inline bint has_pairs(const Patches *p) noexcept nogil:
    """Whether patches can be packed as pairs: what neighbouring pixels read lies side by side in planes, or a few numbers apart."""
    return p.g.src_x == 1 and 1 <= p.col.src_unit * p.col.z_step <= MOST_STEP


cdef inline void pack_pixel_pairs(const Patches *p, int64_t first, int64_t count, int64_t slot, int64_t slots, real *dst, int64_t ld) noexcept nogil:
    """dst[s ld + i] = the pair of the values of pixels first + 2i and first + 2i + 1 at slot + s, as far as there are pixels. *Assumes:* has_pairs."""
    pack_taps(p, first, count, slot, slots, BY_HALF, dst, ld)


cdef inline void pair_slots(const Patches *p, const Pixel *at, int64_t pixels, int64_t slot, int64_t slots, real *dst, int64_t ld) noexcept nogil:
    """pack_slot_pairs for pixels of one row, tap by tap: the last channel of a tap may have the first one of the next beside it."""
    cdef int64_t cs = p.g.src_channels, size = item_size(p.storage), row = p.g.src_c * size, tap = slot // cs, c = slot % cs, end = slot + slots, i, j, pairs
    cdef int step = <int> (p.col.src_unit * p.col.z_step)
    cdef bint left = False
    cdef Line line, before
    i, j = tap // p.col.taps, tap % p.col.taps
    before.at, before.low, before.high = NULL, 0, 0
    while slot < end:
        line = line_of(p.g, p.storage, p.src + (at.n * p.g.src_n + c * p.g.src_c) * size, src_index(p.row, at.u, i), src_index(p.col, at.v, j), step, pixels)
        if left:
            place_pairs(before.at, before.low, before.high, line.at, line.low, line.high, 0, 1, step, pixels, dst, ld)
            slot, c, line.at, dst = slot + 1, c + 1, line.at + row, dst + ld
        pairs = smaller(cs - c, end - slot) // 2
        place_pairs(line.at, line.low, line.high, line.at + row, line.low, line.high, 2 * row, pairs, step, pixels, dst, ld)
        slot, c, line.at, dst = slot + 2 * pairs, c + 2 * pairs, line.at + 2 * pairs * row, dst + pairs * ld
        left = slot < end and c < cs
        if left:
            before, slot = line, slot + 1
        c, j = 0, j + 1
        if j == p.col.taps:
            i, j = i + 1, 0
    if left:
        place_pairs(before.at, before.low, before.high, before.at, 0, 0, 0, 1, step, pixels, dst, ld)


cdef inline void pack_slot_pairs(const Patches *p, int64_t first, int64_t count, int64_t slot, int64_t slots, real *dst, int64_t ld) noexcept nogil:
    """dst[s ld + i] = the pair of the values of pixel first + i at slot + 2s and slot + 2s + 1, an odd one with a zero beside it. *Assumes:* has_pairs."""
    cdef int64_t done = 0, run
    cdef Pixel at = pixel(p, first)
    while done < count:
        run = smaller(p.col.count - at.v, count - done)
        pair_slots(p, &at, run, slot, slots, dst + done, ld)
        advance(p, &at, run)
        done += run
