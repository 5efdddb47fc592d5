"""Part of `conv_reduce`: channels first. The operand with more columns has a row of pixels for each of them, and the other is turned."""
from libc.stdint cimport int64_t
from _gemm cimport Operands, Stream, operands, rows_stream, stream
from _patches cimport Patches, Pixel, Rows, dst_in_planes, has_pairs, pixel, pack_pixel_pairs, pack_runs, pack_slots, src_in_planes
from _problem cimport divide_up, smaller, larger
from _storage cimport real, LINE, MR, NR, PACKED_STORAGE, PAIR, VL, REAL_STORAGE, item_size, clear, clear_halves, widen_block, pair_columns, pair_rows, place_halves, prefetch_soon

cdef enum:
    LONG_DEPTH = 1024                                   # pixels that are packed at a time, at most, if one operand lies in planes and the other has few channels
    LEAST_COLUMNS = 48                                  # that use crowded rows often enough to pack these
    LEAST_PLANE = 128                                   # pixels of a plane that is read by itself, at least
    LEAST_WINDOW = 8                                    # taps of a row that are copied together, at least


cdef Rows planes_of(const char *array, const char *end, int64_t image_step, int64_t size, int64_t plane, int64_t first, int64_t channel, bint in_planes) noexcept nogil:
    """An operand of channels that begins with pixel `first` of all images, neither packed nor used in place yet."""
    cdef Rows rows
    rows.at, rows.ld, rows.panel, rows.in_place = NULL, 0, 0, False
    rows.end = <const real *> end
    rows.lies, rows.row = array + (first // plane * image_step + channel * plane + first % plane) * size if in_planes else NULL, plane * size
    return rows


cdef Rows patch_planes(const Reduce *w, const Patches *p, int64_t first, int64_t slot) noexcept nogil:
    return planes_of(p.src, w.x + w.g.images * w.g.src_n * item_size(w.storage), w.g.src_n, item_size(w.storage), w.g.src_c, first, slot, src_in_planes(p) and planes(w, p))


cdef Rows dy_planes(const Reduce *w, const Patches *p, const Panel *b, int64_t first) noexcept nogil:
    return planes_of(w.dy, w.dy + w.g.images * w.g.dst_n * item_size(w.storage), w.g.dst_n, item_size(w.storage), w.g.dst_c, first, b.group * w.g.dst_channels + b.channel, planes(w, p))


cdef bint planes(const Reduce *w, const Patches *p) noexcept nogil:
    """Whether channels come first, and those of dy are planes large enough to be multiplied by themselves."""
    return w.g.src_c != 1 and dst_in_planes(p) and w.g.dst_c >= LEAST_PLANE


cdef bint planes_in_place(const Reduce *w) noexcept nogil:
    """Whether planes are used where they lie: bfloat16 as the pairs that neighbouring pixels are, of an even number of them."""
    return w.storage == PACKED_STORAGE and MR > 6 and w.g.dst_c % PAIR == 0 and not planes_crowd(w)


cdef bint planes_crowd(const Reduce *w) noexcept nogil:
    """Whether rows of a tile are packed, since they share a set of the first cache, which has too few ways for them: planes of 32x32 0.8 to 0.96 of the time, with
    48 columns and more, which use them often enough; of 16 to 32 1.0 to 1.3, larger planes 0.8 to 1.1, pairs of bfloat16 0.98 to 1.05 (Zen 4). With 12 ways it
    takes longer: 1.0 to 1.7 (Zen 5)."""
    cdef int64_t row = (w.g.dst_c if w.turned else w.g.src_c) * item_size(w.storage), columns = w.slots if w.turned else w.g.dst_channels
    return PAIR == 1 and MR > WAYS + WAYS // 2 and row % CROWDED == 0 and row <= 2 * CROWDED and columns >= LEAST_COLUMNS


cdef bint reads_windows(const Patches *p) noexcept nogil:
    """Whether blocks have the taps of one channel, rows of which lie side by side in x, and dw is turned: rows of taps are then copied for each pixel, instead of
    each tap for a row of pixels, which in patch embeddings has a line of its own for each, and dy stays where it lies. 14x14 and 16x16 taps with as much stride take
    0.8 to 0.95 of the time (float32), 0.3 to 0.7 (16 bits), float64 0.9 to 1.04; 12x12 to 15x15 taps with less stride 0.65 to 1.03, but those with pairs, which
    are copied as they lie, would take up to 1.9 (2 threads of a Zen 4)."""
    return not has_halves(p, False) and p.g.src_x == 1 and p.col.src_unit * p.col.tap_step == 1 and p.col.taps >= LEAST_WINDOW and SLOTS // 2 < p.row.taps * p.col.taps <= SLOTS


cdef int64_t plane_part(const Reduce *w, int64_t first, int64_t most) noexcept nogil:
    """Pixels from `first` to the end of its part of a plane, which falls into even parts."""
    cdef int64_t size = w.g.dst_c, each = divide_up(divide_up(size, divide_up(size, most)), VL) * VL, at = first % size
    return smaller(each - at % each, size - at)


cdef int64_t plane_depth(const Reduce *w, const Patches *p) noexcept nogil:
    """Pixels of a part of a plane, at most, by the problem alone. The longer planes are read where they lie, the better CPUs fetch what comes next by
    themselves; few channels of the other operand are turned for as many. 16 to 96 channels of 112x112 take 0.75 of the time, 64 to 64 of 56x56 0.95, 64 to
    256 1.0 (float32, Zen 5)."""
    cdef int64_t panels = divide_up(w.slots if w.turned else w.g.dst_channels, NR)
    if not planes_in_place(w) or not src_in_planes(p):
        return DEPTH
    return larger(smaller(DEPTH * LD // (panels * NR), LONG_DEPTH) // VL * VL, DEPTH)


cdef void rows_by_channel(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, Rows *rows) noexcept nogil:
    """The operand with more columns, as [column][pixel]."""
    rows.in_place = rows.lies != NULL and planes_in_place(w)
    if rows.in_place:
        rows.at, rows.ld = <const real *> rows.lies, rows.row // <int64_t> sizeof(real)
        return
    rows.ld = LD
    if has_halves(p, w.turned):
        rows.at = b.dy if w.turned else b.patch
        halves_by_column(w, p, b, first, depth, 0 if w.turned else slot, b.channels if w.turned else slots, w.turned, b.dy if w.turned else b.patch)
    elif w.turned:
        rows.at = b.dy
        copy_dy(w, p, b, first, depth)
    else:
        rows.at = b.patch
        pack_slots(p, first, depth, slot, slots, b.patch, LD)
        pair_columns(b.patch, slots, depth, LD)


cdef void turned_panels(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, Rows *rows) noexcept nogil:
    """The operand with fewer columns, as panels [pixel][NR]; no one uses what lies beyond the columns."""
    cdef int64_t panel, columns = slots if w.turned else b.channels
    cdef real *dst = b.patch if w.turned else b.dy
    rows.ld, rows.panel = NR, larger(depth, DEPTH) * NR
    if has_halves(p, not w.turned):
        rows.at = dst
        for panel in range(divide_up(columns, NR)):
            turn_pairs(w, p, b, first, depth, slot, panel * NR, smaller(columns - panel * NR, NR), rows, dst + panel * rows.panel)
        return
    if not w.turned:
        rows.at = b.dy
        pack_dy(w, p, b.group * w.g.dst_channels + b.channel, b.channels, first, depth, False, b.dy, rows.panel)
        return
    rows.at = b.patch
    for panel in range(divide_up(slots, NR)):
        turn_panel(w, p, b, first, depth, slot + panel * NR, smaller(slots - panel * NR, NR), rows.lies + panel * NR * rows.row if rows.lies != NULL else NULL, rows.row, b.patch + panel * rows.panel)


cdef bint has_halves(const Patches *p, bint of_dy) noexcept nogil:
    """Whether pixels of an operand become pairs as they lie in planes, as those of dy always do."""
    return PAIR > 1 and (of_dy or has_pairs(p))


cdef void halves_by_column(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t count, int64_t column, int64_t columns, bint of_dy, real *dst) noexcept nogil:
    """dst[j] = the pairs of pixels of slot column + j or, of dy, of the block's channel column + j, an odd one with a zero beside it."""
    cdef int64_t done = 0, take
    cdef Pixel at = pixel(p, first)
    if not of_dy:
        pack_pixel_pairs(p, first, count, column, columns, dst, LD)
    while of_dy and done < count:
        take = smaller(run_of_dy(p, &at), count - done)
        place_halves(w.dy + dy_index(w, p, &at, b.group * w.g.dst_channels + b.channel + column) * item_size(w.storage), w.g.dst_c * item_size(w.storage), columns,
                     1, 0, take, take, <char *> dst + done * item_size(w.storage), LD)
        done += take
        at = pixel(p, first + done)
    if count % PAIR:
        clear_halves(columns, 1, <char *> dst + count * item_size(w.storage), LD)


cdef void turn_pairs(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t column, int64_t columns, const Rows *rows, real *dst) noexcept nogil:
    """A panel of pairs of pixels, from where they lie in planes or by way of columns of them, which have room for DEPTH."""
    cdef int64_t done = 0, some
    if rows.lies != NULL and planes_in_place(w):
        widen_block(REAL_STORAGE, rows.lies + column * rows.row, 1, rows.row // <int64_t> sizeof(real), depth // PAIR, columns, dst, NR)
        done = depth
    while done < depth:
        some = smaller(depth - done, DEPTH)
        halves_by_column(w, p, b, first + done, some, column + (slot if w.turned else 0), columns, not w.turned, b.turn)
        widen_block(REAL_STORAGE, <const char *> b.turn, 1, LD, divide_up(some, PAIR), columns, dst + done // PAIR * NR, NR)
        done += some


cdef void turn_panel(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, const char *lies, int64_t row, real *dst) noexcept nogil:
    """dst[i][j] = the value of pixel first + i at slot + j < slots, from where it lies in planes or by way of rows of pixels, which have room for DEPTH."""
    cdef int64_t done = 0, some, j
    if lies != NULL and slots >= VL:
        widen_block(w.storage, lies, 1, row // item_size(w.storage), depth, slots, dst, NR)
        done = depth
    elif p.runs and p.col.taps >= LEAST_WINDOW:
        pack_runs(p, first, depth, slot, slots, False, dst, NR)
        done = depth
    while done < depth:
        some = smaller(depth - done, DEPTH)
        pack_slots(p, first + done, some, slot, slots, b.turn, LD)
        for j in range(slots, NR):
            clear(b.turn + j * LD, some)
        widen_block(REAL_STORAGE, <const char *> b.turn, 1, LD, some, NR, dst + done * NR, NR)
        done += some
    pair_rows(dst, depth, NR, NR)


cdef int64_t run_of_dy(const Patches *p, const Pixel *at) noexcept nogil:
    """Pixels of dy that lie side by side from one on."""
    return (p.row.count - at.u) * p.col.count - at.v if dst_in_planes(p) else p.col.count - at.v


cdef void copy_dy(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t count) noexcept nogil:
    """b.dy[k][i] = dy[pixel first + i, k] for the channels k of the block."""
    cdef int64_t done = 0, take
    cdef Pixel at = pixel(p, first)
    while done < count:
        take = smaller(run_of_dy(p, &at), count - done)
        widen_block(w.storage, w.dy + dy_index(w, p, &at, b.group * w.g.dst_channels + b.channel) * item_size(w.storage), w.g.dst_c, w.g.dst_x,
                    b.channels, take, b.dy + done, LD)
        done += take
        at = pixel(p, first + done)


cdef Stream next_plane_rows(const Reduce *w, const Rows *now, const Rows *next, int64_t columns, int64_t depth, bint more, const real *c) noexcept nogil:
    """The pixels that an operand's planes have next. Few planes are fetched at once, since a tile has as many steps as pixels."""
    cdef int64_t width = depth * item_size(w.storage), i, j
    if now.lies == NULL or not more:
        return stream(c, 0, 0, 1)
    if 4 * columns >= 3 * depth:
        return rows_stream(next.lies, width, next.row, columns, divide_up(depth, PAIR))
    if depth > DEPTH:                                   # CPUs fetch long rows by themselves
        return stream(c, 0, 0, 1)
    for i in range(columns):
        for j in range(divide_up(width, LINE)):
            prefetch_soon(next.lies + i * next.row + j * LINE)
    return stream(c, 0, 0, 1)


cdef void multiply_planes(const Reduce *w, const Patches *p, const Panel *b, int64_t first, int64_t depth, int64_t slot, int64_t slots, real *c, bint accumulate, bint more) noexcept nogil:
    """c (+)= x' dy or, turned, dy' x. Fetches the pixels after these, if there are more."""
    cdef Rows x = patch_planes(w, p, first, slot), dy = dy_planes(w, p, b, first), next_x, next_dy
    cdef Rows *tall = &dy if w.turned else &x
    cdef Rows *flat = &x if w.turned else &dy
    cdef Rows *next_tall = &next_dy if w.turned else &next_x
    cdef Rows *next_flat = &next_x if w.turned else &next_dy
    cdef int64_t rows = b.channels if w.turned else slots, columns = slots if w.turned else b.channels
    cdef Operands product
    rows_by_channel(w, p, b, first, depth, slot, slots, tall)
    turned_panels(w, p, b, first, depth, slot, slots, flat)
    next_x, next_dy = patch_planes(w, p, first + depth, slot), dy_planes(w, p, b, first + depth)
    product = operands(divide_up(depth, PAIR), NULL, tall.ld, NR, w.ldc, accumulate)
    product.ahead = w.direct
    product.end = tall.end if tall.in_place else NULL
    multiply(False, rows, columns, &product, tall.at, flat.at, flat.panel, c,
             next_plane_rows(w, tall, next_tall, rows, depth, more, c), next_plane_rows(w, flat, next_flat, columns, depth, more, c))
