"""Part of `conv_gather`: channel rows, whose vectors are pixels. The rows of a register tile are channels of dst, with the filter of all of them side by side for each slot;
its columns are pixels, of patches packed by slot or of planes as they lie."""
from _gemm cimport KC, LD, Operands, Stream, begin_of, fetching_tiles, operands, rows_stream, stream, at_result, gemm_block
from _patches cimport Patches, Pixel, advance, dst_in_planes, has_pairs, pack_slot_pairs, pack_slots, pixel, pixels, slots, src_in_planes
from _problem cimport Problem, col_lanes, divide_up, part, smaller, image_size, is_far
from _storage cimport real, LINE, MR, NR, NV, PAIR, REAL_STORAGE, TILE, VL, clear, fetch_lines, item_size, narrow_block, narrow_in_turns, narrow_rows, pair_rows

cdef enum:
    LEAST_PLANE = 64                                    # pixels of a plane that is used in place, at least
    MANY_PLANES = 256                                   # that are packed on Intel's CPUs, at least, if with the channels of dst they are twice as many
    FAR = 64 << 20                                      # bytes of images, beyond which they are packed there, too,
    FAR_PLANES = 24 << 20                               # and of those that have as many channels in all
    LARGE_PLANE = 1 << 16                               # bytes of a plane, beyond which those of half as many channels in all are packed
    FEW_WAYS = 8                                        # of a first cache, at most, where planes that begin within a line are packed for as many channels
    LEAST_SLOTS = 512                                   # of dst, and so many slots, at least
    RESULT_PARTS = 4                                    # of what a block writes of a channel, each of which a tile fetches
    COLUMNS = 256                                       # of a block, at most: SPAN PIXELS, of which a register tile has at least 4


cdef struct Column:                                     # the pixels of a register tile
    real *c                                             # where in dst their sums are written, or NULL if they are first written to the block's
    char *lies                                          # what is fetched of dst


cdef bint reads_planes(const Gather *w, const Patches *p) noexcept nogil:
    """Whether channels' planes are an operand as they lie: not if they are small, since what whole vectors leave is packed, or cannot be. Of 9x9 to 17x17
    pixels they take 0.86 to 1.0 of the time, of 7x7 1.0 to 1.1; of 32x32 to 128x128 pixels, whose rows share a set of the first cache, 0.6 to 0.95, but
    with narrow tiles 1.15 to 1.3 (float32 and float64, Zen 5)."""
    cdef int64_t size = w.g.src_c
    if not w.channel_rows or w.storage != REAL_STORAGE or not src_in_planes(p):
        return False
    if (MR <= 6 and size * <int64_t> sizeof(real) % (2 * CROWDED) == 0) or (INTEL and lie_far_apart(w, p)) or cross_lines(w, p):
        return False
    return size >= LEAST_PLANE and (size % VL == 0 or (w.g.dst_rows == 1 and dst_in_planes(p)))


cdef bint lie_far_apart(const Gather *w, const Patches *p) noexcept nogil:
    """Whether planes are better packed on Intel's CPUs. Rows of many channels lie in a page each, which they look up again for each register tile:
    packed, 256 to 2048 channels take 0.75 to 1.0 of the time, where rows are multiples of 4 KiB apart 0.4, fewer 1.0 to 1.2, unless images are in no cache: plane
    by plane, CPUs foresee them, 0.55 to 0.95, of 24 MiB with 256 channels in all 0.75 to 1.0, with fewer, and smaller images, 0.95 to 1.2 (float32, Granite Rapids).
    Of planes beyond 64 KiB, 128 channels in all and more take 0.65 to 1.0, float64 0.75 to 1.05 (Emerald Rapids)."""
    cdef int64_t plane = w.g.src_c * sizeof(real), channels = slots(p) + w.g.dst_channels, bytes = w.g.images * image_size(w.g, sizeof(real))
    if bytes > FAR or (slots(p) >= MANY_PLANES and channels >= 2 * MANY_PLANES):
        return True
    return (bytes > FAR_PLANES and channels >= MANY_PLANES) or (plane > LARGE_PLANE and channels >= MANY_PLANES // 2)


cdef bint cross_lines(const Gather *w, const Patches *p) noexcept nogil:
    """Whether planes are better packed where a first cache has few ways, since many of their vectors lie in two cache lines: from 512 slots and to 256 channels of
    dst on, 14x14 to 65x65 pixels take 0.86 to 1.0 of the time, float64 0.84 to 1.0, fewer 1.0 to 1.1, whole lines 1.02 to 1.3; with narrow tiles half as many
    are enough: 0.73 to 1.0 (Zen 4)."""
    cdef int64_t plane = w.g.src_c, times = 1 if MR > 6 else 2
    if WAYS > FEW_WAYS or plane < PIXELS or plane * <int64_t> sizeof(real) % LINE == 0:
        return False
    return times * slots(p) >= LEAST_SLOTS and times * w.g.dst_channels >= MANY_PLANES


cdef bint planes_in_place(const Gather *w, const Patches *p) noexcept nogil:
    """Whether planes are operand and result as they lie."""
    return reads_planes(w, p) and dst_in_planes(p)


cdef void sum_channels(const Gather *w, const Patches *p, int64_t pair, const Block *b) noexcept nogil:
    """c[channel][pixel] = filter patch."""
    cdef int64_t k
    for k in range(divide_up(slots(p), KC)):
        multiply_channels(w, p, pair, b, k)


cdef void multiply_channels(const Gather *w, const Patches *p, int64_t pair, const Block *b, int64_t k) noexcept nogil:
    """c[channel][pixel] (+)= filter patch for KC slots."""
    cdef int64_t kc = smaller(KC, slots(p) - k * KC), i
    cdef const real *filter = packed_filter(w, pair, b)
    if TILE > 1:
        filter += (k * w.g.dst_channels + b.channel) * LD
    else:
        filter += k * pass_distance(w, p) + b.channel // w.channels * block_panels(w) * panel_distance(w, p)
    if b.in_plane and reads_planes(w, p):
        multiply_planes(w, p, b, k, kc, filter)
        return
    if PAIR > 1 and has_pairs(p):
        pack_slot_pairs(p, b.first, b.count, k * KC, kc, b.patch, w.ldp)
    else:
        pack_slots(p, b.first, b.count, k * KC, kc, b.patch, w.ldp)
        pair_rows(b.patch, kc, b.count, w.ldp)
    for i in range(divide_up(kc, PAIR) if b.count % NR else 0):
        clear(b.patch + i * w.ldp + b.count, NR - b.count % NR)
    if TILE > 1:
        multiply_tiles(w, p, b, k, kc, filter)
    else:
        multiply_packed(w, p, b, k, kc, filter)


cdef void multiply_packed(const Gather *w, const Patches *p, const Block *b, int64_t k, int64_t kc, const real *filter) noexcept nogil:
    """c[channel][pixel] (+)= filter patch of packed operands. Fetches the next pixels of planes, and what is going to be written: one tap, 64 to 256
    channels of 56x56 pixels 1.2 in 16 bits, whatever lies in a cache 1.0 (2 threads of a Zen 4). Of a filter that leaves the first cache a register tile multiplies all
    pixels before the next, which it fetches: 0.9 to 1.0 of the time, of 128 pixels 0.8 to 0.9 (float32, Granite Rapids). So it does of images in no near cache, as Intel's
    CPUs foresee the rest of few rows of dst: 16 to 24 slots 0.4 to 0.7, more 1.0 (float32, Emerald Rapids)."""
    cdef int64_t size = item_size(w.storage), row = w.g.dst_c * size, tiles = divide_up(b.channels, MR), panels = divide_up(b.count, NR), distance = panel_distance(w, p)
    cdef int64_t fewer = b.channels // tiles, more = b.channels % tiles, rows, t = 0, i = 0, j = 0, step, r     # rows of a tile; so many have one more
    cdef Operands product = operands(divide_up(kc, PAIR), NULL, panel_width(w), w.ldp, w.ldp, k > 0)
    cdef bint writes = writes_planes(w, p), last = (k + 1) * KC >= slots(p), far = tiles * distance * <int64_t> sizeof(real) > NEAR or (INTEL and is_far(w.g, size))
    cdef bint fetches = (k == 0 if writes else last) and (dst_in_planes(p) or w.in_turns or w.beside)
    cdef Stream read = next_pixels(w, p, b, k * KC, kc, tiles * panels), write = next_results(w, p, b, kc, last)
    cdef Column[COLUMNS] columns
    cdef const char *one
    cdef const char *two
    cdef real *c
    cdef Block rest = b[0]
    place_columns(w, p, b, writes, columns)
    for step in range(tiles * panels):
        rows = fewer + (t < more)
        for r in range(i, i + rows if fetches else i):
            fetch_lines(columns[j].lies + r * row, NR * size, True)
        one = two = <const char *> b.c
        product.one = product.two = 0
        if step < fetching_tiles(&read):
            product.one, one = read.step, begin_of(&read, step)
        if step < fetching_tiles(&write):
            product.two, two = write.step, begin_of(&write, step)
        if far and j == panels - 1 and t < tiles - 1:
            product.two, two = LINE, <const char *> (filter + (t + 1) * distance)
        c = columns[j].c
        product.ldc = w.g.dst_c if c != NULL else w.ldp
        product.narrow = PAIR > 1 and c != NULL
        c = at_result(product.narrow, c if c != NULL else b.c + j * NR, i * product.ldc)
        (fetching_column_tile if product.one or product.two else column_tile)(<int> rows, NV if b.count - j * NR > VL else 1, &product, filter + t * distance,
                                                                              b.patch + j * NR, c, one, two)
        if far and j < panels - 1:
            j += 1
        elif far or t < tiles - 1:
            t, i, j = t + 1, i + rows, 0 if far else j
        else:
            t, i, j = 0, 0, j + 1
    for j in range(panels if writes and last else 0):
        if columns[j].c == NULL:
            rest.c = b.c + j * NR
            store_panel(w, p, &rest, b.first + j * NR, smaller(NR, b.count - j * NR))


cdef void place_columns(const Gather *w, const Patches *p, const Block *b, bint writes, Column *columns) noexcept nogil:
    """Those of a block. Of lanes of columns that are computed together, each fetches its share of dst."""
    cdef int64_t size = item_size(w.storage), j
    cdef Pixel at = pixel(p, b.first)
    cdef char *dst = dst_pixel(w, p, b, &at)
    for j in range(divide_up(b.count, NR)):
        columns[j].c = panel_in_dst(w, p, b, j) if writes else NULL
        columns[j].lies = dst + j * NR * size
        if w.in_turns or w.beside:
            at = pixel(p, b.first + j * NR)
            columns[j].lies = dst_pixel(w, p, b, &at) + p.col.out_start * NR * size


cdef bint writes_planes(const Gather *w, const Patches *p) noexcept nogil:
    """Whether register tiles write planes of dst, but where a panel has pixels of two. What is copied there takes 1.0 to 1.1 times as long, float64 up to 1.15
    (Granite Rapids), pairs, which are rounded then, 1.03 to 1.13 (Zen 4)."""
    return (w.storage == REAL_STORAGE or (PAIR > 1 and slots(p) <= KC)) and not w.in_turns and dst_in_planes(p) and p.row.count * p.col.count >= 4 * NR


cdef real *panel_in_dst(const Gather *w, const Patches *p, const Block *b, int64_t j) noexcept nogil:
    """Where in dst a panel's sums are written, or NULL if they are first written to c. *Assumes:* writes_planes."""
    cdef const Problem *g = w.g
    cdef int64_t plane = p.row.count * p.col.count, first = b.first + j * NR, n = first // plane, i = first - n * plane, count = smaller(NR, b.count - j * NR)
    if i + count > plane or count % VL:
        return NULL
    return at_result(PAIR > 1, <real *> w.dst, n * g.dst_n + i + (b.group * g.dst_channels + b.channel) * g.dst_c)


cdef void multiply_tiles(const Gather *w, const Patches *p, const Block *b, int64_t k, int64_t kc, const real *filter) noexcept nogil:
    """multiply_packed in tiles (TILE), of the same channels one after the other. Sums are stored while they are in the first cache: of planes, a register tile at a
    time, which takes 0.7 to 0.85 of the time. Nothing is fetched, since loads and stores are what tiles wait for (1.0 to 1.06; Granite Rapids)."""
    cdef int64_t tiles = divide_up(b.channels, MR), j, t, i
    cdef Operands product = operands(divide_up(kc, PAIR), NULL, LD, w.ldp, w.ldp, k > 0)
    cdef Pixel at
    cdef bint ends = (k + 1) * KC >= slots(p) and not w.in_turns, in_planes = ends and dst_in_planes(p)
    cdef Block rest = b[0]
    product.finite, product.steps = told(w), w.tile_steps
    for t in range(tiles):
        i = tile_begin(b.channels, t, tiles, TILE)
        rest.channel, rest.channels = b.channel + i, tile_begin(b.channels, t + 1, tiles, TILE) - i
        for j in range(divide_up(b.count, NR)):
            rest.c = b.c if in_planes and k == 0 else b.c + i * w.ldp + j * NR
            packed_tile(<int> rest.channels, NV if b.count - j * NR > VL else 1, &product, filter + i * LD, b.patch + j * NR, rest.c, NULL, NULL)
            if in_planes:
                store_panel(w, p, &rest, b.first + j * NR, smaller(NR, b.count - j * NR))
        if ends and not in_planes:
            rest.c, at = b.c + i * w.ldp, pixel(p, b.first)
            store_pixels(w, p, &rest, &at, b.count)


cdef void multiply_planes(const Gather *w, const Patches *p, const Block *b, int64_t k, int64_t kc, const real *filter) noexcept nogil:
    """multiply_channels for pixels of an image of src as they lie, a register tile of channels after the other; in dst itself, if its planes lie so, too.
    Fetches the next pixels of src."""
    cdef const Problem *g = w.g
    cdef int64_t n = b.first // g.src_c, start = b.first % g.src_c, tiles = divide_up(b.channels, MR), panels = divide_up(b.count, NR), distance = panel_distance(w, p), ldc = w.ldp, t, i, end
    cdef const real *src = <const real *> p.src + n * g.src_n + start + k * KC * g.src_c
    cdef real *c = b.c
    cdef Stream read, none = stream(c, 0, 0, 1)
    cdef Operands product
    if planes_in_place(w, p):
        c, ldc = <real *> w.dst + n * g.dst_n + start + (b.group * g.dst_channels + b.channel) * g.dst_c, g.dst_c
    for t in range(tiles):
        i, end = part(b.channels, t, tiles), part(b.channels, t + 1, tiles)
        read = none
        if t * panels * LINE < b.count * <int64_t> sizeof(real):
            read = stream(<const char *> (src + b.count) + t * panels * LINE, LINE, g.src_c * <int64_t> sizeof(real), panels)
        product = operands(kc, NULL, panel_width(w), g.src_c, ldc, k > 0)
        product.ahead = True
        gemm_block(fetching_column_tile, column_tile, True, False, end - i, b.count, &product, filter + t * distance, src, NR, c + i * ldc, read, none)


cdef Stream next_pixels(const Gather *w, const Patches *p, const Block *b, int64_t slot, int64_t count, int64_t tiles) noexcept nogil:
    """Those of planes after a block's, for so many slots from `slot` on, column by column of lines; in no near cache row by row, if there are tiles enough, as Intel's CPUs
    foresee the rest of a row: 64 to 128 slots 0.93 to 1.0 of the time (float32, Emerald Rapids)."""
    cdef const Problem *g = w.g
    cdef int64_t size = item_size(w.storage), next = b.first + b.count, plane = g.src_c, width = smaller(smaller(b.count, b.end - next), plane - next % plane) * size + LINE
    cdef const char *src = p.src + (next // plane * g.src_n + slot * plane + next % plane) * size
    if not src_in_planes(p) or next >= b.end:
        return stream(b.c, 0, 0, 1)
    if INTEL and count <= tiles and is_far(g, size):
        return stream(src, plane * size, divide_up(width, divide_up(count, PAIR)), count)
    return rows_stream(src, width, plane * size, count, divide_up(count, PAIR))


cdef Stream next_results(const Gather *w, const Patches *p, const Block *b, int64_t kc, bint last) noexcept nogil:
    """What the last pass of patches is going to write, part by part of each channel: where that is in no near cache, 0.72 to 0.99 of the time (float32, Emerald Rapids)."""
    cdef int64_t size = item_size(w.storage), width = b.count * w.fold.rows * w.fold.cols * size // RESULT_PARTS
    cdef Pixel at = pixel(p, b.first)
    cdef Stream write = stream(b.c, 0, 0, 1)
    if w.fold.rows and last and is_far(w.g, size):
        write = stream(dst_of(w, &at, 0, 0), width, divide_up(width, divide_up(kc, PAIR)), RESULT_PARTS)
        write.rounds, write.far = w.fold.g.dst_channels, w.fold.g.dst_c * size
    return write


cdef void store_panel(const Gather *w, const Patches *p, const Block *b, int64_t first, int64_t count) noexcept nogil:
    """store_pixels for as many as a register tile has. *Assumes:* dst_in_planes."""
    cdef const Problem *g = w.g
    cdef int64_t plane = p.row.count * p.col.count, n = first // plane, i = first - n * plane, done = 0, take
    cdef char *dst
    while done < count:
        dst, take = w.dst + (n * g.dst_n + i + (b.group * g.dst_channels + b.channel) * g.dst_c) * item_size(w.storage), smaller(count - done, plane - i)
        if TILE == 1:
            narrow_block(w.storage, b.c + done, w.ldp, b.channels, take, dst, g.dst_c, 1)
        else:
            narrow_rows(b.c + done, w.ldp, b.channels, take, dst, g.dst_c * item_size(w.storage))
        n, i, done = n + 1, 0, done + take


cdef void gather_in_turns(const Gather *w, const Patches *p, int64_t pair, const Block *b, Pixel *at) noexcept nogil:
    """A lane of columns and the next one, or zeros."""
    cdef Patches next
    cdef Block other = b[0]
    other.c += result_size(w) // 2
    sum_channels(w, p, pair, b)
    if w.g.col_lanes == 1:
        clear(other.c, w.ldp)
        store_in_turns(w, p, b, at, other.c, 0)
        return
    next = pair_patches(w, pair + 1, b.group)
    sum_channels(w, &next, pair + 1, &other)
    if p.col.out_start == 0:
        store_in_turns(w, p, b, at, other.c, w.ldp)
    else:
        store_in_turns(w, &next, &other, at, b.c, w.ldp)


cdef void store_in_turns(const Gather *w, const Patches *p, const Block *b, Pixel *at, const real *odd, int64_t odd_ld) noexcept nogil:
    """store_pixels for the columns of two lanes, p being that of even ones, so that lines are written once: with 2x2 taps 0.7 to 0.9 of the time, with 4x4
    0.95, with 3x3 1.0 (float32, Zen 5) and 0.7 to 0.75 (bfloat16, Zen 4)."""
    cdef int64_t take, done = 0, r
    cdef char *dst
    while done < b.count:
        take = smaller(p.col.count - at.v, b.count - done)
        dst = dst_pixel(w, p, b, at)
        for r in range(b.channels):
            narrow_in_turns(w.storage, b.c + r * w.ldp + done, odd + r * odd_ld + done, take, dst + r * w.g.dst_c * item_size(w.storage))
        advance(p, at, take)
        done += take


cdef int64_t widest_lane(const Gather *w) noexcept nogil:
    """The lane of columns that has the most."""
    cdef int64_t lane = 0, i
    for i in range(w.g.col_lanes):
        if col_lanes(w.g)[i].count > col_lanes(w.g)[lane].count:
            lane = i
    return lane


cdef void gather_beside(const Gather *w, int64_t pair, int64_t index, int64_t parts, int64_t units, Block *b) noexcept nogil:
    """One of some spans, as even parts of each lane of columns, the widest of which has so many units: a step's pixels of one lane after those of another, since they
    share cache lines, which two threads would take from each other: 3x3 taps with stride 3 take 0.85 of the time (float32, 2 threads of a Granite Rapids). Pixels
    are those of several planes, even if each lane reads whole ones."""
    cdef int64_t steps = divide_up(divide_up(units, parts), w.step // w.unit), lane, i, count
    cdef Patches p
    b.in_plane = False
    for i in range(index * steps, (index + 1) * steps):
        for lane in range(w.g.col_lanes):
            p = pair_patches(w, pair + lane, 0)
            count = pixels(&p)
            b.first, b.end = cut(w, count, i, parts * steps), cut(w, count, (index + 1) * steps, parts * steps)
            b.count = cut(w, count, i + 1, parts * steps) - b.first
            if b.count:
                gather_groups(w, &p, pair + lane, b)
