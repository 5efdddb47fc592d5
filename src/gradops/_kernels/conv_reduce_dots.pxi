"""Part of `conv_reduce`: channels first, dots: both operands have a row of pixels for each channel or slot, so that neither is turned."""
from libc.stdint cimport int64_t
from _dots cimport DOT_COLUMNS, DOT_ROWS, Dots, Vectors, dot_columns
from _gemm cimport Stream, begin_of, stream
from _patches cimport Patches, dst_in_planes, has_pairs, pack_pixel_pairs, pack_slots, pixels, src_in_planes
from _problem cimport divide_up, larger, part, smaller
from _storage cimport real, MR, PACKED_STORAGE, PAIR, TILE, VL, clear, item_size, place_halves, widen_block

cdef enum:
    ROW = 4096                                          # bytes of a row of a pass, at most: those of some columns stay in the first cache,
    LEAST_ROW = 1536 + PAIR // 2 * 512                  # and at least, so that adding lanes takes less time than turning an operand
    NEAR_ROWS = 448 << 10                               # bytes of rows that stay in the second cache
    FEW = 128                                           # columns of which turning takes long; slots of a block that are copied,
    MANY = 2 * CHANNELS                                 # beside so many channels
    DOT_ROOM = SCRATCH - MANY * (FEW + PAD)             # reals of what is copied, beside the sums
    PASSES = 4                                          # of a span, at least, if there are SHORT_BLOCKS then: the rows of the next pass are fetched


cdef struct Pass:                                       # so many pixels of an image, from `first` on,
    int64_t image, first, count
    int64_t whole                                       # of which so many are whole vectors


cdef bint are_dots(const Reduce *w) noexcept nogil:
    """Whether blocks are dots: where turning an operand takes long beside multiplying it, since the other one is narrow, or leaves lanes empty, and rows are long.

    Time without over that with it, 2 threads of a Zen 4 (float32; bfloat16 in pairs): 1x1 taps, 24 to 144 and 144 to 24 channels of 56x56 pixels 1.3 to 1.4; 1.3,
    32 to 16 of 112x112 1.15; 1.4, 64 to 64 and 64 to 256 of 56x56 1.05 to 1.1, 512 to 128 of 28x28 1.05; 0.93 to 1.04, 256 to 256 of 65x65 0.96, with strides,
    128 and 256 channels of x 1.0 to 1.08; first layers, 32x32 pixels, 5x5 taps 1.13; 1.12, patches of 4x4 1.08 to 1.16; 1.0, 3x3 taps 1.15 to 1.3 in pairs;
    3x3 taps, 64 to 36 channels with stride 2 1.25; 1.33, 40 to 20 1.15; 1.5. float64 1.0 to 1.1, but 0.9 to 1.03 where planes are read as they lie; float16,
    which is copied for both, 1.0 to 1.16. With narrow tiles (AVX2) 1.04 to 1.5, float64 1.1 to 1.8, without fused multiply-adds 1.2 to 1.5. Of 14x14 pixels
    and less, several images a row, it would be 0.7 to 0.95.
    """
    cdef const Problem *g = w.g
    cdef Patches p = first_patches(w)
    cdef int64_t few = smaller(w.slots, g.dst_channels), many = larger(w.slots, g.dst_channels)
    if TILE > 1 or g.src_c == 1 or not whole(g) or not dst_in_planes(&p) or w.packed or pixels(&p) <= DEPTH or by_band(&p) or reads_windows(&p):
        return False
    if many < DOT_ROWS or few > (SLOTS if packs_x(w) else FEW) or (packs_dy(w) and many > FEW):
        return False
    if packs_x(w) and ((PAIR > 1 and not has_pairs(&p)) or (w.slots > FEW and fills_lanes(g.dst_channels) and g.filter_rows * g.filter_cols > 1)):
        return False
    if sizeof(real) == 8 and MR > 6 and not packs_x(w):
        return False
    return smaller(pass_pixels(w), g.dst_c) * <int64_t> sizeof(real) // PAIR >= LEAST_ROW


cdef bint fills_lanes(int64_t columns) noexcept nogil:
    """Whether vectors of so many columns have few empty lanes."""
    return columns > VL and 5 * columns >= 4 * divide_up(columns, VL) * VL


cdef bint packs_x(const Reduce *w) noexcept nogil:
    cdef Patches p = first_patches(w)
    return w.storage != PACKED_STORAGE or not src_in_planes(&p) or w.g.src_c % PAIR != 0


cdef bint packs_dy(const Reduce *w) noexcept nogil:
    return w.storage != PACKED_STORAGE or w.g.dst_c % PAIR != 0


cdef bint turns_dots(const Reduce *w) noexcept nogil:
    """Whether dw is summed as [k][slot]: the narrower operand is a, unless it has too few rows for a tile."""
    return (w.slots <= w.g.dst_channels) != (smaller(w.slots, w.g.dst_channels) < DOT_ROWS)


cdef int64_t pass_pixels(const Reduce *w) noexcept nogil:
    """Of a pass: planes fall into even parts, for which there is room if they are copied."""
    cdef int64_t most = ROW // <int64_t> sizeof(real), size = w.g.dst_c, rows = 0
    if packs_x(w):
        rows += smaller(w.slots, FEW)
    if packs_dy(w):
        rows += w.g.dst_channels
    if rows:
        most = smaller(most, (DOT_ROOM - MANY * (VL + PAD)) // rows // VL * VL - VL - PAD)
    return divide_up(divide_up(size, divide_up(size, most * PAIR)), VL * PAIR) * VL * PAIR


cdef int64_t passes(const Reduce *w) noexcept nogil:
    return w.g.images * divide_up(w.g.dst_c, w.pass_pixels)


cdef Pass pass_of(const Reduce *w, int64_t index) noexcept nogil:
    cdef int64_t parts = divide_up(w.g.dst_c, w.pass_pixels)
    cdef Pass s
    s.image, s.first = index // parts, index % parts * w.pass_pixels
    s.count = smaller(w.pass_pixels, w.g.dst_c - s.first)
    s.whole = s.count // (VL * PAIR) * VL * PAIR
    return s


cdef int64_t row_size(const Pass *s, bint packs) noexcept nogil:
    """Reals that are copied of a row, and some more."""
    return (s.whole // PAIR if packs else 0) + (VL if s.whole < s.count else 0) + PAD


cdef Vectors vectors_of(const Pass *s, bint packs, const char *lies, int64_t distance, real *room) noexcept nogil:
    """Rows as they lie, or as they are going to be copied."""
    cdef Vectors v
    v.in_place, v.tail_ld = not packs, row_size(s, packs)
    if packs:
        v.at, v.ld, v.tail = room, v.tail_ld, room + s.whole // PAIR
    else:
        v.at, v.ld, v.tail = <const real *> lies, distance // PAIR, room
    return v


cdef Vectors x_vectors(const Reduce *w, const Patches *p, const Pass *s, int64_t slot, real *room) noexcept nogil:
    """Patches, as [slot][pixel]."""
    return vectors_of(s, packs_x(w), p.src + (s.image * w.g.src_n + slot * w.g.src_c + s.first) * item_size(w.storage), w.g.src_c, room)


cdef Vectors dy_vectors(const Reduce *w, const Panel *b, const Pass *s, real *room) noexcept nogil:
    """Those of the block's channels, as [channel][pixel]."""
    return vectors_of(s, packs_dy(w), dy_of(w, b, s.image, s.first), w.g.dst_c, room)


cdef const char *dy_of(const Reduce *w, const Panel *b, int64_t image, int64_t pixel) noexcept nogil:
    return w.dy + (image * w.g.dst_n + (b.group * w.g.dst_channels + b.channel) * w.g.dst_c + pixel) * item_size(w.storage)


cdef void pack_vectors(const Reduce *w, const Patches *p, const Panel *b, const Pass *s, bint of_dy, const Vectors *v) noexcept nogil:
    """Copies an operand's rows, unless they are in place, and its tail."""
    cdef int64_t i
    if not v.in_place:
        copy_pixels(w, p, b, s.image, s.first, s.whole, of_dy, <real *> v.at, v.ld)
    if s.whole < s.count:
        for i in range(b.channels if of_dy else b.slots):
            clear(<real *> v.tail + i * v.tail_ld, VL)
        copy_pixels(w, p, b, s.image, s.first + s.whole, s.count - s.whole, of_dy, <real *> v.tail, v.tail_ld)


cdef void copy_pixels(const Reduce *w, const Patches *p, const Panel *b, int64_t image, int64_t pixel, int64_t count, bint of_dy, real *dst, int64_t ld) noexcept nogil:
    """Some pixels of an image, of all rows of an operand."""
    cdef int64_t at = image * w.g.dst_c + pixel
    if not of_dy and PAIR > 1:
        pack_pixel_pairs(p, at, count, b.slot, b.slots, dst, ld)
    elif not of_dy:
        pack_slots(p, at, count, b.slot, b.slots, dst, ld)
    elif PAIR > 1:
        place_halves(dy_of(w, b, image, pixel), w.g.dst_c * item_size(w.storage), b.channels, 1, 0, count, count, <char *> dst, ld)
    else:
        widen_block(w.storage, dy_of(w, b, image, pixel), w.g.dst_c, 1, b.channels, count, dst, ld)


cdef void dot_tile(int64_t columns, const Dots *t, int64_t column, int skip, real *c, int64_t ldc, const char *one, const char *two) noexcept nogil:
    dot_columns(columns, t, column, skip, c, ldc, one, two)


cdef Stream rows_ahead(const Vectors *v, int64_t row, int64_t rows, int64_t whole, int64_t at_once, int64_t tiles) noexcept nogil:
    """Some rows of an operand that lie in place, so many at a time, in as many pieces as tiles fetch."""
    cdef int64_t rounds = divide_up(rows, at_once), pieces = larger(tiles // larger(rounds, 1), 1), size = divide_up(whole * sizeof(real), pieces)
    cdef Stream s = stream(v.at, 0, 0, 1)
    if rows > 0 and whole > 0 and v.in_place:
        s = stream(v.at + row * v.ld, size, divide_up(size, whole // VL), pieces)
        s.rounds, s.far = rounds, at_once * v.ld * sizeof(real)
    return s


cdef void multiply_rows_of(const Pass *s, const Vectors *a, int64_t m, const Vectors *b, int64_t n, const Vectors *next_a, bint accumulate, real *c, int64_t ldc) noexcept nogil:
    """c[j ldc + i] (+)= the product of row i of a and row j of b. Those of b that a tile has stay in the first cache, while it goes through rows of a that stay in the second."""
    cdef int64_t most = larger(NEAR_ROWS // (larger(s.whole // PAIR, VL) * <int64_t> sizeof(real)), 1), step = DOT_ROWS if m >= DOT_ROWS else 1
    cdef int64_t near = divide_up(divide_up(m, divide_up(m, most)), step) * step, panels = divide_up(n, DOT_COLUMNS), first = 0, rows, row, next, tiles, i, j
    cdef Dots t
    t.a, t.b, t.whole, t.tail, t.accumulate = a[0], b[0], s.whole // PAIR, s.whole < s.count, accumulate
    if step == 1:                                       # a tile has the same row several times
        t.a.ld, t.a.tail_ld = 0, 0
    while first < m:
        rows = smaller(near, m - first)
        tiles = divide_up(rows, step)
        t.one = rows_ahead(a, first + near, smaller(near, m - first - near), t.whole, 1, tiles * panels)
        if first + near >= m:
            t.one = rows_ahead(next_a, 0, smaller(near, m), t.whole, 1, tiles * panels)
        for j in range(panels):
            next = (j + 1) % panels * DOT_COLUMNS
            t.two = rows_ahead(b, next, smaller(DOT_COLUMNS, n - next), t.whole, 2, tiles)
            for i in range(tiles):
                row = smaller(first + i * step, m - step)
                t.a.at, t.a.tail = a.at + row * a.ld, a.tail + row * a.tail_ld
                row += step - DOT_ROWS
                dot_tile(smaller(DOT_COLUMNS, n - j * DOT_COLUMNS), &t, j * DOT_COLUMNS, <int> (first + i * step - row), c + j * DOT_COLUMNS * ldc + row, ldc,
                         begin_of(&t.one, j * tiles + i), begin_of(&t.two, i))
        first += near


cdef void reduce_dots(const Reduce *w, const Patches *p, const Panel *b) noexcept nogil:
    """c = dy x' or, unless they are turned, x dy' over the passes of the block's span."""
    cdef int64_t first = part(passes(w), b.span, w.dw.spans), end = part(passes(w), b.span + 1, w.dw.spans), i
    cdef Vectors x, dy, next_x, next_dy
    cdef Pass s, next
    cdef real *room
    for i in range(first, end):
        s, next = pass_of(w, i), pass_of(w, smaller(i + 1, end - 1))
        room = b.patch + b.slots * row_size(&s, packs_x(w))
        x, dy = x_vectors(w, p, &s, b.slot, b.patch), dy_vectors(w, b, &s, room)
        next_x, next_dy = x_vectors(w, p, &next, b.slot, b.patch), dy_vectors(w, b, &next, room)
        pack_vectors(w, p, b, &s, False, &x)
        pack_vectors(w, p, b, &s, True, &dy)
        if w.turned:
            multiply_rows_of(&s, &x, b.slots, &dy, b.channels, &next_x, i > first, b.c, w.ldc)
        else:
            multiply_rows_of(&s, &dy, b.channels, &x, b.slots, &next_dy, i > first, b.c, w.ldc)
