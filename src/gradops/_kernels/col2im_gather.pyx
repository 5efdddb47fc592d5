# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""dst[pixel(y, x, tap), j] += sum_k filter[tap, j, k] src[y, x, k]: the gradient of the input, tap by tap of all pixels of src, which takes no product that has no place.

In parallel: blocks of (images, group, channels j, rows of dst). Packed: src [k][pixel] once for a block, the filter [tap, j][k] once, unless it lies so. Rows of a
register tile are taps and channels, its vectors pixels; what it has computed is added to planes of dst, one for each pair of lanes, in which the pixels of a row
of src lie side by side whatever the strides. Few channels k are multiplied as they are added.

*Assumes:* src, filter and dst are contiguous and aligned; the problem is the gradient of an input, whose lanes read every pixel in turn, is not unpadded and not
empty; a channel of a row of dst has at most PLANES numbers.
"""
from libc.stdint cimport int64_t
from _blocks cimport FIRST_FREE, do_both, stage
from _entry cimport DONE, NO_MEMORY, exported
from _gemm cimport NOTHING, Operands, gemm_packed, gemm_tile, operands
from _problem cimport Lane, Problem, row_lanes, col_lanes, clear_dst, divide_up, larger, part, smaller, useful_threads
from _scratch cimport allocate, apart, padded, release
from _storage cimport real, vec, LINE, MOST_STEP, MR, NR, REAL_STORAGE, VL, borrow_blocks, clear, interleave_lines, item_size, keep, lane_mask, load, narrow_block, store, widen_block, zero

cdef enum:
    DEPTH = 128                                         # channels k that are packed and multiplied at a time, at most
    PANEL = 1 << 16                                     # reals of them
    PLANES = 1 << 16                                    # reals of planes, at most, but for what a channel of a row needs
    ROWS = 2 * MR                                       # of a product, at most
    STEP = 128                                          # pixels of a product, about
    MANY = 256                                          # pixels that are multiplied with all taps at once, at most
    FEW = 4                                             # channels k that are multiplied as they are added, at most
    ENOUGH = 64                                         # pixels of src that are enough for a product
    BLOCKS = 4                                          # of a thread: blocks shrink until there are as many
    CROWDED = 2048                                      # multiples of this distance, in bytes, fall on few sets of the first cache
    PAD = 16                                            # reals that keep lines from such


cdef struct Place:                                      # of a row or column of the filter
    int64_t lane, shift                                 # pixel t of that lane reads pixel t + shift of src; -1 if it is in none
    int64_t first, count                                # pixels of src that have a place, of all


cdef struct Gather:
    const Problem *g
    int storage
    const char *src
    const char *filter
    char *dst
    real *rows                                          # of the filter: [tap, j][k] of each group, packed unless it lies so
    int64_t ld, group_rows                              # of them, and distance of groups
    Place *row_places
    Place *col_places
    real *masks                                         # of each column of the filter: the lanes of the last vector of a row
    int64_t least, span                                 # of shifts of rows: the least, and how much larger the most is
    int64_t most                                        # rows of the longest lane
    int64_t images, groups, channels, height            # of a block, at most; channels of a group, and rows of each lane
    int64_t depth, line                                 # channels k at a time, and reals from one to the next of a block's pixels of src, or sums
    bint in_turns                                       # whether dst is planes, whose columns are those of all column lanes in turn, and rows of all row lanes
    int64_t pitch, plane                                # reals from row to row of a plane, and of one, of all pairs of lanes


cdef struct Block:
    int64_t image, images, first_group, end_group, channel, channels
    int64_t group                                       # that is computed
    int64_t begin, end                                  # rows t of each lane
    int64_t low, high                                   # rows of src that they read
    real *planes                                        # [image][group, j][row lane][column lane][t][pitch]
    real *panel                                         # [k][image, y, x]
    real *sums


cdef int64_t place_taps(const Lane *lanes, int64_t count, int64_t size, int64_t taps, Place *places) noexcept nogil:
    """Where rows or columns of the filter go; returns the pixels of the longest lane."""
    cdef int64_t most = 0, i, j
    cdef Place *p
    for i in range(taps):
        places[i].lane = -1
    for i in range(count):
        most = larger(most, lanes[i].count)
        for j in range(lanes[i].taps):
            p = places + lanes[i].filter_start + lanes[i].filter_step * j
            p.lane, p.shift = i, lanes[i].src_start + lanes[i].tap_step * j
            p.first = larger(p.shift, 0)
            p.count = larger(smaller(size, p.shift + lanes[i].count) - p.first, 0)
    return most


cdef int64_t filter_row(const Problem *g) noexcept nogil:
    """Distance of rows of the filter, if they lie as they are multiplied."""
    return g.filter_dst if g.dst_channels > 1 else g.filter_x


cdef bint lies(const Gather *w) noexcept nogil:
    """Whether the filter lies as it is multiplied, and its rows do not crowd a few sets of the first cache."""
    cdef const Problem *g = w.g
    cdef int64_t row = filter_row(g)
    return w.storage == REAL_STORAGE and g.filter_src == 1 and g.filter_x == row * g.dst_channels and row * <int64_t> sizeof(real) % CROWDED != 0


cdef void plan(Gather *w, int threads) noexcept nogil:
    """Places the taps; chooses the blocks, which no sum depends on."""
    cdef const Problem *g = w.g
    cdef int64_t most = 0, i
    w.most = place_taps(row_lanes(g), g.row_lanes, g.src_rows, g.filter_rows, w.row_places)
    w.pitch = padded(place_taps(col_lanes(g), g.col_lanes, g.src_cols, g.filter_cols, w.col_places))
    w.least = 1 << 62
    for i in range(g.filter_rows):
        if w.row_places[i].lane >= 0:
            w.least, most = smaller(w.least, w.row_places[i].shift), larger(most, w.row_places[i].shift)
    for i in range(g.filter_cols):
        lane_mask(0, (w.col_places[i].count + VL - 1) % VL + 1, w.masks + i * VL)
    w.span = larger(most - w.least, 0)
    w.in_turns = g.dst_x == 1 and 1 < g.col_lanes <= MOST_STEP and col_lanes(g).out_step == g.col_lanes and lane_of(w, 0) >= 0
    for i in range(g.filter_cols if w.in_turns else 0):
        w.col_places[i].lane = col_lanes(g)[w.col_places[i].lane].out_start
    w.depth = smaller(g.src_channels, larger(smaller(PANEL // (smaller(1 + w.span, g.src_rows) * g.src_cols), DEPTH), 1))
    plan_blocks(w)
    share_blocks(w, threads)
    w.line = padded(w.images * rows_of_src(w) * g.src_cols) + PAD
    w.plane = g.row_lanes * g.col_lanes * w.height * w.pitch


cdef void plan_blocks(Gather *w) noexcept nogil:
    """Blocks of whole images, as many as fill a panel, if planes of as many channels as a register tile has rows fit; else of bands of rows. Where groups lie side by
    side in dst, those of a line."""
    cdef const Problem *g = w.g
    cdef int64_t row = larger(g.row_lanes * g.col_lanes * w.pitch, 1), plane = row * larger(w.most, 1), size = g.src_rows * g.src_cols
    w.groups = 1
    if g.dst_c == 1:
        w.groups = larger(smaller(smaller(g.groups, divide_up(LINE, g.dst_channels * item_size(w.storage))), PLANES // (row * g.dst_channels)), 1)
    w.images, w.height, w.channels = 1, larger(w.most, 1), g.dst_channels if w.groups > 1 else smaller(g.dst_channels, MR)
    if plane * w.groups * w.channels <= PLANES and size * w.depth <= PANEL:
        w.images = larger(smaller(smaller(divide_up(NR, size), g.images), PLANES // (plane * w.groups * w.channels)), 1)
        w.channels = smaller(g.dst_channels, PLANES // (plane * w.images * w.groups))
        if w.channels == g.dst_channels:
            w.images = larger(w.images, smaller(smaller(divide_up(ENOUGH, size), g.images), PLANES // (plane * w.groups * w.channels)))
        return
    if w.groups == 1:
        w.channels = larger(smaller(smaller(g.dst_channels, 2 * MR), PLANES // row), 1)
    w.height = larger(smaller(smaller(w.most, PLANES // (row * w.groups * w.channels)), PANEL // (w.depth * g.src_cols) - w.span), 1)


cdef void share_blocks(Gather *w, int threads) noexcept nogil:
    """Shrinks blocks until each thread has some, as far as products are not worse for it; then until each has one."""
    cdef int64_t size = w.g.src_rows * w.g.src_cols
    while blocks(w) < BLOCKS * threads:
        if w.images > 1 and w.images * size > 2 * NR:
            w.images = divide_up(w.images, 2)
        elif w.groups == 1 and w.channels > 2 * MR:
            w.channels = divide_up(w.channels, 2)
        elif w.images == 1 and w.height > 2 * (w.span + 1):
            w.height = divide_up(w.height, 2)
        elif blocks(w) >= threads:
            break
        elif w.images > 1:
            w.images = divide_up(w.images, 2)
        elif w.height > 1:
            w.height = divide_up(w.height, 2)
        elif w.groups > 1:
            w.groups = divide_up(w.groups, 2)
        elif w.channels > 1:
            w.channels = divide_up(w.channels, 2)
        else:
            break


cdef int64_t rows_of_src(const Gather *w) noexcept nogil:
    """That a block reads, at most."""
    return smaller(w.height + w.span, w.g.src_rows)


cdef int64_t blocks(const Gather *w) noexcept nogil:
    return divide_up(w.g.images, w.images) * divide_up(w.g.groups, w.groups) * divide_up(w.g.dst_channels, w.channels) * divide_up(w.most, w.height)


cdef void pack_tap(const void *work, int64_t index, void *_) noexcept nogil:
    """The rows of one tap of a group."""
    cdef const Gather *w = <const Gather *> work
    cdef const Problem *g = w.g
    cdef int64_t taps = g.filter_rows * g.filter_cols, group = index // taps, tap = index % taps
    cdef int64_t at = group * g.filter_group + tap // g.filter_cols * g.filter_y + tap % g.filter_cols * g.filter_x
    widen_block(w.storage, w.filter + at * item_size(w.storage), g.filter_dst, g.filter_src, g.dst_channels, g.src_channels,
                w.rows + group * w.group_rows + tap * g.dst_channels * w.ld, w.ld)


cdef void pack_src(const Gather *w, const Block *b, int64_t k, int64_t depth) noexcept nogil:
    """The block's pixels of src, channels k.."""
    cdef const Problem *g = w.g
    cdef int64_t count = (b.high - b.low) * g.src_cols, i
    cdef const char *src = w.src + (b.image * g.src_n + (b.group * g.src_channels + k) * g.src_c + b.low * g.src_y) * item_size(w.storage)
    for i in range(b.images):
        widen_block(w.storage, src + i * g.src_n * item_size(w.storage), g.src_c, g.src_x, depth, count, b.panel + i * count, w.line)


cdef int64_t planes(const Block *b) noexcept nogil:
    """Of an image."""
    return (b.end_group - b.first_group) * b.channels


cdef inline vec products(int terms, const vec *weights, const real *src, int64_t line) noexcept nogil:
    """A vector of products: as it lies, or of so many channels k, `line` reals apart."""
    cdef vec sum = load(src)
    cdef int k
    if terms:
        sum *= weights[0]
    for k in range(1, terms):
        sum += weights[k] * load(src + k * line)
    return sum


cdef inline void add_runs(int terms, int64_t vectors, int64_t rows, const vec *weights, const real *src, int64_t line, int64_t cols, vec mask, real *dst, int64_t ld) noexcept nogil:
    """dst[r ld + i] += products[r cols + i] for so many vectors of rows, the last of which is masked. *Assumes:* terms is a compile-time constant of the caller."""
    cdef int64_t v, last = (vectors - 1) * VL, _
    for _ in range(rows):
        for v in range(vectors - 1):
            store(dst + v * VL, load(dst + v * VL) + products(terms, weights, src + v * VL, line))
        store(dst + last, load(dst + last) + keep(products(terms, weights, src + last, line), mask))
        src += cols
        dst += ld


cdef inline void add_terms(int terms, int64_t vectors, int64_t rows, const vec *weights, const real *src, int64_t line, int64_t cols, vec mask, real *dst, int64_t ld) noexcept nogil:
    """add_runs for any number of vectors."""
    if vectors == 1:
        add_runs(terms, 1, rows, weights, src, line, cols, mask, dst, ld)
    elif vectors == 2:
        add_runs(terms, 2, rows, weights, src, line, cols, mask, dst, ld)
    else:
        add_runs(terms, vectors, rows, weights, src, line, cols, mask, dst, ld)


cdef void add_row(const Gather *w, const Block *b, const Place *row, int64_t s, int64_t channel, int64_t first, int64_t end, const real *src, const real *filter) noexcept nogil:
    """Adds the products of one tap and channel, of rows first <= y < end of src of each image: of few channels k without having been computed before."""
    cdef const Place *col = w.col_places + s
    cdef vec mask = load(w.masks + s * VL)
    cdef vec[FEW] weights
    cdef int64_t cols = w.g.src_cols, vectors = divide_up(col.count, VL), i, _, low = larger(first, b.begin + row.shift), high = smaller(end, smaller(b.end, row_lanes(w.g)[row.lane].count) + row.shift)
    cdef real *dst = b.planes + ((b.group - b.first_group) * b.channels + channel) * w.plane
    dst += ((row.lane * w.g.col_lanes + col.lane) * w.height + low - row.shift - b.begin) * w.pitch + col.first - col.shift
    src += (low - first) * cols + col.first
    for i in range(terms_of(w)):
        weights[i] = zero() + filter[i]
    for _ in range(b.images):
        if terms_of(w) == 1:
            add_terms(1, vectors, high - low, weights, src, w.line, cols, mask, dst, w.pitch)
        elif terms_of(w) == 2:
            add_terms(2, vectors, high - low, weights, src, w.line, cols, mask, dst, w.pitch)
        elif terms_of(w) == 3:
            add_terms(3, vectors, high - low, weights, src, w.line, cols, mask, dst, w.pitch)
        elif terms_of(w) == 4:
            add_terms(4, vectors, high - low, weights, src, w.line, cols, mask, dst, w.pitch)
        else:
            add_terms(0, vectors, high - low, weights, src, w.line, cols, mask, dst, w.pitch)
        src += (end - first) * cols
        dst += planes(b) * w.plane


cdef int terms_of(const Gather *w) noexcept nogil:
    """Channels k that are so few that a register tile would have more to store than to multiply; else none."""
    return <int> w.g.src_channels if w.g.src_channels <= FEW else 0


cdef void product_tile(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    gemm_tile(False, False, NOTHING, m, nv, p, a, b, c, one, two)


cdef void multiply_rows(const Gather *w, const Block *b, int64_t begin, int64_t end, int64_t first, int64_t last, int64_t k, int64_t depth) noexcept nogil:
    """The products of rows begin <= i < end of the filter, of rows first <= y < last of src, and adds them."""
    cdef Operands p = operands(depth, NULL, w.ld, w.line, w.line, False)
    cdef int64_t parts = divide_up(end - begin, ROWS), row, after, i
    cdef const real *filter = w.rows + b.group * w.group_rows + k
    cdef const real *src = b.panel + (first - b.low) * w.g.src_cols
    if terms_of(w):
        add_rows(w, b, begin, end, first, last, src, 0, filter)
        return
    for i in range(parts):
        row, after = begin + part(end - begin, i, parts), begin + part(end - begin, i + 1, parts)
        gemm_packed(product_tile, False, after - row, b.images * (last - first) * w.g.src_cols, &p, filter + row * w.ld, src, NR, b.sums)
        add_rows(w, b, row, after, first, last, b.sums, w.line, filter)


cdef void multiply_steps(const Gather *w, const Block *b, int64_t begin, int64_t end, int64_t first, int64_t last, int64_t k, int64_t depth) noexcept nogil:
    """The same of one row of taps, as many rows of src at a time as a first cache holds: a pixel of dst reads one of them."""
    cdef int64_t steps = smaller(divide_up((last - first) * w.g.src_cols, STEP), last - first) if b.images == 1 else 1, i
    for i in range(steps):
        multiply_rows(w, b, begin, end, first + part(last - first, i, steps), first + part(last - first, i + 1, steps), k, depth)


cdef void add_rows(const Gather *w, const Block *b, int64_t begin, int64_t end, int64_t first, int64_t last, const real *src, int64_t next, const real *filter) noexcept nogil:
    """Adds the products of rows of the filter: as they lie, each `next` reals beyond the one before, or of src, the same for all."""
    cdef const Problem *g = w.g
    cdef const Place *row
    cdef int64_t channels = g.dst_channels, channel = begin % channels, tap = begin // channels, i
    for i in range(begin, end):
        row = w.row_places + tap // g.filter_cols
        if row.lane >= 0 and w.col_places[tap % g.filter_cols].lane >= 0 and w.col_places[tap % g.filter_cols].count > 0:
            add_row(w, b, row, tap % g.filter_cols, channel - b.channel, first, last, src, filter + i * w.ld)
        src += next
        channel += 1
        if channel == channels:
            channel, tap = 0, tap + 1


cdef void multiply_taps(const Gather *w, const Block *b, int64_t k, int64_t depth) noexcept nogil:
    """All taps in turn, for the same bits however blocks are cut: together if src is small and all of it is there, else row by row of the filter."""
    cdef const Problem *g = w.g
    cdef int64_t row = g.filter_cols * g.dst_channels, r, s, first, last
    cdef bint whole = b.channels == g.dst_channels
    if whole and w.height == w.most and b.images * (b.high - b.low) * g.src_cols <= MANY:
        multiply_rows(w, b, 0, g.filter_rows * row, b.low, b.high, k, depth)
        return
    for r in range(g.filter_rows):
        first, last = b.low, b.high
        if w.height < w.most:
            first, last = larger(b.low, b.begin + w.row_places[r].shift), smaller(b.high, b.end + w.row_places[r].shift)
        if w.row_places[r].lane < 0 or first >= last:
            continue
        if whole:
            multiply_steps(w, b, r * row, (r + 1) * row, first, last, k, depth)
            continue
        for s in range(g.filter_cols):
            if w.col_places[s].lane >= 0:
                multiply_steps(w, b, r * row + s * g.dst_channels + b.channel, r * row + s * g.dst_channels + b.channel + b.channels, first, last, k, depth)


cdef char *dst_of(const Gather *w, const Block *b, int64_t image, int64_t channel) noexcept nogil:
    """A channel of an image of the block."""
    cdef const Problem *g = w.g
    return w.dst + ((b.image + image) * g.dst_n + (b.first_group * g.dst_channels + b.channel + channel) * g.dst_c) * item_size(w.storage)


cdef int64_t row_at(const Gather *w, const Lane *row, int64_t t) noexcept nogil:
    """Where row t of a lane lies, in bytes."""
    return (row.out_start + row.out_step * t) * w.g.dst_y * item_size(w.storage)


cdef void store_rows(const Gather *w, const Block *b, const Lane *row, const real *sums, char *dst) noexcept nogil:
    """Rows of a lane, pixel by pixel, where channels are side by side."""
    cdef const Problem *g = w.g
    cdef const Lane *col
    cdef int64_t t, s
    for t in range(b.begin, smaller(b.end, row.count)):
        for s in range(g.col_lanes):
            col = col_lanes(g) + s
            narrow_block(w.storage, sums + (s * w.height + t - b.begin) * w.pitch, w.plane, planes(b), col.count,
                         dst + row_at(w, row, t) + col.out_start * g.dst_x * item_size(w.storage), 1, col.out_step * g.dst_x)


cdef void store_plane(const Gather *w, const Block *b, const Lane *row, const real *sums, char *dst) noexcept nogil:
    """Rows of a lane of one channel."""
    cdef const Problem *g = w.g
    cdef const Lane *col
    cdef int64_t rows = smaller(b.end, row.count) - b.begin, s
    for s in range(g.col_lanes if rows > 0 else 0):
        col = col_lanes(g) + s
        narrow_block(w.storage, sums + s * w.height * w.pitch, w.pitch, rows, col.count,
                     dst + row_at(w, row, b.begin) + col.out_start * g.dst_x * item_size(w.storage), row.out_step * g.dst_y, col.out_step * g.dst_x)


cdef int64_t lane_of(const Gather *w, int64_t row) noexcept nogil:
    """The lane of a row of dst, which are those of all row lanes in turn; -1 if they are not."""
    cdef const Lane *lanes = row_lanes(w.g)
    cdef int64_t i
    for i in range(w.g.row_lanes):
        if lanes[i].out_step == w.g.row_lanes and lanes[i].out_start == row % w.g.row_lanes:
            return i
    return -1


cdef void store_turns(const Gather *w, const Block *b, const real *sums, char *dst, real *line) noexcept nogil:
    """A channel in which all lanes of columns meet, and all lanes of rows: some rows at a time through a line, as the one piece of memory that they are."""
    cdef const Problem *g = w.g
    cdef int64_t lanes = g.row_lanes, row = b.begin * lanes, end = smaller(b.end * lanes, g.dst_rows), some, i
    while row < end:
        some = smaller(larger(ROWS * w.line // g.dst_cols, 1), end - row)
        for i in range(row, row + some):
            weave(<int> g.col_lanes, sums + (lane_of(w, i) * g.col_lanes * w.height + i // lanes - b.begin) * w.pitch, w.height * w.pitch, g.dst_cols, line + (i - row) * g.dst_cols)
        narrow_block(w.storage, line, 0, 1, some * g.dst_cols, dst + row * g.dst_y * item_size(w.storage), 0, 1)
        row += some


cdef void store_block(const Gather *w, const Block *b, real *line) noexcept nogil:
    """Writes a block of dst."""
    cdef const Problem *g = w.g
    cdef const real *sums
    cdef int64_t plane = g.col_lanes * w.height * w.pitch, i, c, r
    for i in range(b.images):
        sums = b.planes + i * planes(b) * w.plane
        if w.in_turns:
            for c in range(planes(b)):
                store_turns(w, b, sums + c * w.plane, dst_of(w, b, i, c), line)
        elif g.dst_c == 1:
            for r in range(g.row_lanes):
                store_rows(w, b, row_lanes(g) + r, sums + r * plane, dst_of(w, b, i, 0))
        else:
            for c in range(planes(b)):
                for r in range(g.row_lanes):
                    store_plane(w, b, row_lanes(g) + r, sums + c * w.plane + r * plane, dst_of(w, b, i, c))


cdef void weave(int step, const real *src, int64_t distance, int64_t n, real *dst) noexcept nogil:
    """interleave_lines of 2 to MOST_STEP lines."""
    if step == 2:
        interleave_lines(2, src, distance, n, dst)
    elif step == 3:
        interleave_lines(3, src, distance, n, dst)
    else:
        interleave_lines(4, src, distance, n, dst)


cdef void gather_group(const Gather *w, const Block *b) noexcept nogil:
    """The sums of one group."""
    cdef int64_t k = 0, depth
    while k < w.g.src_channels:
        depth = smaller(w.depth, w.g.src_channels - k)
        pack_src(w, b, k, depth)
        multiply_taps(w, b, k, depth)
        k += depth


cdef void gather_block(const void *work, int64_t index, void *slab) noexcept nogil:
    """One block."""
    cdef const Gather *w = <const Gather *> work
    cdef const Problem *g = w.g
    cdef int64_t bands = divide_up(w.most, w.height), parts = divide_up(g.dst_channels, w.channels), bundles = divide_up(g.groups, w.groups), times = divide_up(g.images, w.images)
    cdef Block b
    b.begin, b.end = part(w.most, index % bands, bands), part(w.most, index % bands + 1, bands)
    index = index // bands
    b.channel = part(g.dst_channels, index % parts, parts)
    b.channels = part(g.dst_channels, index % parts + 1, parts) - b.channel
    index = index // parts
    b.first_group, b.end_group = part(g.groups, index % bundles, bundles), part(g.groups, index % bundles + 1, bundles)
    index = index // bundles
    b.image = part(g.images, index, times)
    b.images = part(g.images, index + 1, times) - b.image
    b.low, b.high = larger(b.begin + w.least, 0), smaller(b.end + w.least + w.span, g.src_rows)
    b.planes = <real *> slab
    b.panel = b.planes + planes_size(w)
    b.sums = b.panel + w.depth * w.line + PAD
    clear(b.planes, b.images * planes(&b) * w.plane)
    if b.low < b.high:
        for b.group in range(b.first_group, b.end_group):
            gather_group(w, &b)
    store_block(w, &b, b.sums)


cdef int64_t planes_size(const Gather *w) noexcept nogil:
    return padded(w.images * w.groups * w.channels * w.plane) + PAD


cdef int drive(Gather *w, int threads) noexcept nogil:
    """Plans, allocates, packs the filter, computes; returns nonzero if memory ran out."""
    cdef const Problem *g = w.g
    cdef int64_t taps = g.filter_rows * g.filter_cols, tables = padded((g.filter_rows + g.filter_cols) * 8) + padded(g.filter_cols * VL), filter = 0, scratch
    cdef real *slab
    cdef bint packs = not lies(w)
    w.row_places = <Place *> allocate(tables)
    if w.row_places == NULL:
        return 1
    w.col_places = w.row_places + g.filter_rows
    w.masks = <real *> w.row_places + tables - padded(g.filter_cols * VL)
    plan(w, useful_threads(g, threads, threads))
    threads = useful_threads(g, blocks(w), threads)
    w.rows, w.ld, w.group_rows = <real *> w.filter, filter_row(g), g.filter_group
    if packs:
        w.ld = padded(g.src_channels) + PAD
        w.group_rows = taps * g.dst_channels * w.ld
        filter = g.groups * w.group_rows
    scratch = planes_size(w) + w.depth * w.line + PAD + larger(ROWS * w.line, g.dst_cols) + MOST_STEP * VL
    scratch = apart(scratch, threads)
    slab = allocate(padded(filter) + threads * scratch)
    if slab == NULL:
        release(w.row_places)
        return 1
    if packs:
        w.rows = slab
    if not g.covered:
        clear_dst(g, w.dst, item_size(w.storage), threads)
    do_both(stage(pack_tap, w, taps * g.groups if packs else 0, FIRST_FREE, NULL, 0),
            stage(gather_block, w, blocks(w), FIRST_FREE, slab + padded(filter), scratch * sizeof(real)), threads)
    release(slab)
    release(w.row_places)
    return 0


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes dst."""
    cdef Gather w
    w.g = <const Problem *> problem
    w.storage = storage
    w.src = <const char *> inputs[0]
    w.filter = <const char *> inputs[1]
    w.dst = <char *> out
    return NO_MEMORY if drive(&w, num_threads) else DONE


borrow_blocks()
entry = exported(compute)
