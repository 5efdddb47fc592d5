"""Part of `conv_gather`: pixel rows, whose vectors are channels. The rows of a register tile are pixels, read where they lie or packed, its columns channels of dst,
of which the filter is packed by panels."""
from libc.stdint cimport int64_t
from _gemm cimport KC, LD, Stream, at_result, stream
from _patches cimport Patches, Pixel, Rows, dst_in_rows, lie_in_pairs, pixel, pixels, pack_pairs, pack_pixels, slots, src_in_rows, src_index
from _problem cimport Problem, divide_up, is_far, larger, part, smaller
from _storage cimport real, LINE, MR, NR, PACKED_STORAGE, PAIR, REAL_STORAGE, TILE, VL, item_size, fetch_lines, pair_columns

cdef enum:
    DEEP = 2304                                         # slots of a pass over a band of pairs that is kept: 256 channels times 3x3 taps are one
    SLOTS_AT_ONCE = 64 + PAIR // 2 * (TILE == 1) * 192  # so few that a tile takes less time than to plan what it fetches
    BURST = 2                                           # cache lines of dst for each step, beyond which all are fetched at once, before: fewer are left out
    NEAR_BURST = 8                                      # the same of images that are likely to be found in a cache
    LEAST_CROWDED = 256                                 # channels of dst that are worth packing crowded rows for on Intel's CPUs


cdef int64_t pass_slots(const Gather *w, const Patches *p) noexcept nogil:
    """Slots that are multiplied at a time: where they lie, twice as many take 0.96 to 1.0 of the time, since sums are kept half as often (Zen 5). Of a band of
    pairs that is kept, 3x3 taps, DEEP ones take 0.9 to 0.96 of the time of KC, which are half as many steps then (64 to 512 channels, 2 threads of a Zen 4)."""
    if rows_in_place(p):
        return 2 * KC
    return DEEP if PAIR > 1 and TILE == 1 and p.row.taps * p.col.taps <= MOST_TAPS and keeps_band(w, p) else KC


cdef void multiply_pixels(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k, Pixel *at) noexcept nogil:
    """c[pixel][channel] (+)= patch filter for the slots of pass k, a register tile of pixels after the other. Whole vectors of dst are computed where they lie
    if its pixels are rows, or the tile's are a step apart. If all channels end within a vector, it may spill into the next pixel of rows as long as that is
    computed afterwards: the last panel comes first. A tile leaves out passes that would add zeros: 1024 channels of 14x14 and 30x30 pixels, 3x3 taps, take 0.95 to
    0.98 of the time (bfloat16, 2 threads of a Zen 4)."""
    cdef const Problem *g = w.g
    cdef int64_t depth = slots(p), slot = k * pass_slots(w, p), kc = smaller(pass_slots(w, p), depth - slot), most = tile_pixels(p), tiles = divide_up(b.count, most), t, i, end
    cdef int64_t ldc = w.channels + PAD, whole
    cdef int64_t dst_row = g.dst_x * item_size(w.storage), src_row = g.src_x * item_size(w.storage)
    cdef bint in_rows = dst_in_rows(p), last = slot + kc == depth, dst_follows = in_rows and b.channels == g.dst_x, src_follows = src_in_rows(p) and k == 0
    cdef bint writes = writes_results(w, p)
    cdef int64_t vectors = b.channels // VL * VL if writes else 0
    cdef int64_t distance = panel_distance(w, p), ld = g.dst_x * p.col.out_step
    cdef const real *filter = packed_filter(w, pair, b)
    cdef Rows src = pixel_rows(p, b, slot, kc)
    cdef Block rest = b[0]
    cdef Stream read, write
    cdef Stream next_src = sweep(p.src, most * src_row, divide_up(b.channels, NR), kc), next_dst = sweep(w.dst, most * dst_row, divide_up(b.channels, NR), kc)
    cdef bint spills = dst_follows and writes and vectors < b.channels and kc == depth
    cdef int64_t begun = (b.channels - 1) // NR * NR, steps = divide_up(kc, PAIR), burst = (BURST if is_far(g, item_size(w.storage)) else NEAR_BURST) * LINE
    cdef bint fetches
    cdef const real *a
    cdef real *dst = at_result(PAIR > 1, <real *> w.dst, b.first * g.dst_x + b.group * g.dst_channels + b.channel)
    for t in range(tiles):
        i, end = part(b.count, t, tiles), part(b.count, t + 1, tiles)
        if k > 0 and not last and miss_image(p, b.first + i, b.first + end - 1, slot, kc):
            continue
        whole = vectors
        if not in_rows:
            at[0] = pixel(p, b.first + i)
            whole = vectors if at.v + end - i <= p.col.count else 0
            dst = at_result(PAIR > 1, <real *> dst_pixel(w, p, b, at), -i * ld)
        read = following(&next_src, src_row, b.first + (end if src.in_place else b.count + i), src_follows, b)
        write = following(&next_dst, dst_row, b.first + end, dst_follows and (k == 0 if whole else last), b)
        a, fetches = src.at + i * src.ld, src.in_place or read.step or write.step
        if TILE == 1 and whole and write.step > burst:  # more cache lines than steps: all at once takes down to a quarter of the time (Zen 5)
            fetch_lines(write.at, most * dst_row, True)
        if spills and b.first + end + spilled_pixels(w) <= b.end:
            multiply(fetches, end - i, b.channels - begun, steps, a, src.ld, src.end, w, panels(filter, distance, 0, begun), NR, distance, at_result(PAIR > 1, dst, i * ld + begun), ld, False, PAIR > 1, read, write)
            multiply(fetches, end - i, begun, steps, a, src.ld, src.end, w, filter, NR, distance, at_result(PAIR > 1, dst, i * ld), ld, False, PAIR > 1, read, write)
            continue
        if whole:
            multiply(fetches, end - i, whole, steps, a, src.ld, src.end, w, panels(filter, distance, slot, b.channel), NR, distance, at_result(PAIR > 1, dst, i * ld), ld, k > 0, PAIR > 1, read, write)
        if whole < b.channels:
            rest.channel, rest.channels = b.channel + whole, b.channels - whole
            rest.c = b.c + (0 if kc == depth else i * ldc)
            multiply(fetches, end - i, rest.channels, steps, a, src.ld, src.end, w, panels(filter, distance, slot, rest.channel), NR, distance, rest.c, ldc, k > 0, False, read, write)
            if spills:
                at[0] = pixel(p, b.first + i)           # those before were not stored one by one
            if last:
                store_pixels(w, p, &rest, at, end - i)


cdef bint miss_image(const Patches *p, int64_t first, int64_t last, int64_t slot, int64_t slots) noexcept nogil:
    """Whether pixels of one image read rows above it alone, or below it, with so many slots: zeros."""
    cdef int64_t tap_row = p.col.taps * p.g.src_channels, one = slot // tap_row, other = (slot + slots - 1) // tap_row
    cdef Pixel high = pixel(p, first), low = pixel(p, last)
    if high.n != low.n:
        return False
    return larger(src_index(p.row, low.u, one), src_index(p.row, low.u, other)) < 0 or smaller(src_index(p.row, high.u, one), src_index(p.row, high.u, other)) >= p.g.src_rows


cdef bint at_once(const Gather *w, const Patches *p) noexcept nogil:
    """Whether a block's pixels are one product: one panel holds all channels, and images are likely to be in a cache or a pixel is one line, since results of
    several are not fetched as evenly."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), depth = slots(p)
    if w.channels > NR or depth > SLOTS_AT_ONCE or depth > g.src_channels or not dst_in_rows(p):
        return False
    return not is_far(g, size) or larger(g.src_x, g.dst_x) * size <= LINE


cdef bint writes_results(const Gather *w, const Patches *p) noexcept nogil:
    """Whether whole vectors of results are written where they belong as soon as they are computed: real ones or, of pairs, rounded ones that are no partial sums."""
    return w.g.dst_c == 1 and w.fold.rows == 0 and w.chunks == 1 and (w.storage == REAL_STORAGE or (PAIR > 1 and slots(p) <= pass_slots(w, p)))


cdef int64_t spilled_pixels(const Gather *w) noexcept nogil:
    """Into how many next pixels the last vector of one spills, where results are rows."""
    return (divide_up(w.g.dst_channels, VL) * VL - w.g.dst_channels + w.g.dst_x - 1) // w.g.dst_x


cdef int64_t count_in_place(const Gather *w, const Patches *p, const Block *b) noexcept nogil:
    """How many of a block's pixels can be computed where dst lies, from the first on: unless vectors are whole, each spills into the next ones, which
    have to be computed afterwards, by the same thread."""
    if not writes_results(w, p) or (b.channels % VL and b.channels < w.g.dst_x):
        return 0
    return larger(smaller(b.count, b.end - b.first - spilled_pixels(w)), 0)


cdef bint is_in_place(const Gather *w, const Patches *p) noexcept nogil:
    """Whether a block's pixels are read, and all but some of its last ones written, where they lie."""
    cdef const Problem *g = w.g
    return writes_results(w, p) and rows_in_place(p) and (g.dst_channels % VL == 0 or g.dst_x == g.dst_channels <= w.channels)


cdef void multiply_at_once(const Gather *w, const Patches *p, int64_t pair, const Block *b) noexcept nogil:
    """multiply_pixels for a block's pixels at once, which saves planning each tile. Fetches as many of the next ones. 16 to 16 channels take 0.7 of the time,
    24 to 24 and 16 to 32 0.9, 144 to 24 1.0, whether they lie in a cache or not (float32, Zen 5),
    72 to 144 to 24 0.85 to 0.93, 96 to 16 0.95, 256 to 24 1.0 in a cache (bfloat16, Zen 4)."""
    cdef int64_t depth = divide_up(slots(p), PAIR), whole = count_in_place(w, p, b), row = w.g.dst_x, tiles = divide_up(whole, MR)
    cdef const real *filter = panels(packed_filter(w, pair, b), panel_distance(w, p), 0, b.channel)
    cdef Rows src = pixel_rows(p, b, 0, slots(p))
    cdef Pixel at = pixel(p, b.first)
    cdef real *dst = <real *> dst_pixel(w, p, b, &at)
    cdef Stream read = stream(b.c, 0, 0, 1), write = read
    if whole:
        if b.first + b.count < b.end:
            write = sweep(<const char *> at_result(PAIR > 1, dst, b.count * row), b.count * row * item_size(w.storage), tiles, slots(p))
            if src.in_place:
                read = sweep(<const char *> (src.at + b.count * src.ld), b.count * src.ld * sizeof(real), tiles, slots(p))
        multiply(True, whole, b.channels, depth, src.at, src.ld, src.end, w, filter, NR, 0, dst, row, False, PAIR > 1, read, write)
    if whole < b.count:
        at = pixel(p, b.first + whole)
        multiply(False, b.count - whole, b.channels, depth, src.at + whole * src.ld, src.ld, src.end, w, filter, NR, 0, b.c, w.channels + PAD, False, False, read, write)
        store_pixels(w, p, b, &at, b.count - whole)


cdef Stream following(const Stream *rows, int64_t row, int64_t first, bint wanted, const Block *b) noexcept nogil:
    """The stream of the next rows, from pixel `first` on, if they are wanted and the thread's."""
    if not wanted or first >= b.end:
        return stream(b.c, 0, 0, 1)
    return stream(rows.at + first * row, rows.tile, rows.step, rows.tiles)


cdef Stream sweep(const char *at, int64_t size, int64_t tiles, int64_t kc) noexcept nogil:
    """All of `size` successive bytes, fetched evenly over the steps of all tiles."""
    return stream(at, size // tiles, divide_up(size, tiles * divide_up(kc, PAIR)), tiles)


cdef bint crowded(const Problem *g, int64_t distance) noexcept nogil:
    """Whether a tile's rows, so many bytes apart, are better packed, since more share a set of the first cache than it has ways. At multiples of 4 KiB those of
    float32 and float64 take 0.75 to 0.8 of the time then with 8 ways (Zen 4), but 1.0 to 1.2 with 12, pairs of bfloat16 at multiples of 2 KiB 1.0 to 1.3 (Zen 5);
    on Intel's CPUs, with 12, 0.7 to 1.0 of 256 channels of dst and more, of fewer 1.0 to 1.2 (Granite Rapids)."""
    if distance % (CROWDED if PAIR > 1 else 2 * CROWDED) or TILE > 1:
        return False
    return MR > WAYS + WAYS // 2 or (INTEL and MR > WAYS and PAIR == 1 and g.dst_channels >= LEAST_CROWDED)


cdef int64_t tile_pixels(const Patches *p) noexcept nogil:
    """Of a register tile, at most: of rows that share a set of the first cache, and are read where they lie, one fewer than it has ways. Gradients of 1x1
    layers from 1024 and 2048 channels take 0.93 to 0.98 of the time (float32, Zen 5)."""
    return smaller(MR, larger(WAYS - 1, 1)) if TILE == 1 and rows_in_place(p) and p.g.src_x * item_size(p.storage) % (2 * CROWDED) == 0 else MR


cdef bint rows_in_place(const Patches *p) noexcept nogil:
    """Whether patches are rows that lie as they are multiplied, and are not better packed."""
    cdef const Problem *g = p.g
    return src_in_rows(p) and p.storage == PACKED_STORAGE and g.src_channels % PAIR == 0 and not crowded(g, g.src_x * item_size(p.storage))


cdef Rows pixel_rows(const Patches *p, const Block *b, int64_t slot, int64_t count) noexcept nogil:
    """Patches [pixel][slot] of the pixels at hand, packed if need be."""
    cdef const Problem *g = p.g
    cdef int64_t size = item_size(p.storage)
    cdef Rows rows
    rows.lies, rows.row, rows.panel, rows.end = NULL, 0, 0, NULL
    rows.in_place = rows_in_place(p)
    if rows.in_place:
        rows.at, rows.ld = <const real *> (p.src + (b.first * g.src_x + slot) * size), g.src_x // PAIR
        rows.end = <const real *> (p.src + pixels(p) * g.src_x * size)
    else:
        rows.at, rows.ld = b.patch, LD
        if PAIR > 1 and lie_in_pairs(p):
            pack_pairs(p, b.first, b.count, slot, count, b.patch, LD)
        else:
            pack_pixels(p, b.first, b.count, slot, count, b.patch, LD)
            pair_columns(b.patch, b.count, count, LD)
    return rows
