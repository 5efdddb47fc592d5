"""Part of `conv_reduce`: pairs of neighbouring pixels of bfloat16, from where they lie in rows of x."""
from libc.stdint cimport int64_t
from _patches cimport Line, Patches, Pixel, clear_block, line_of, pixel, src_index
from _problem cimport smaller, larger
from _storage cimport real, VL, clear, item_size, pair_lines


cdef bint pairs_lines(const Patches *p) noexcept nogil:
    """Whether pairs are made tap by tap from where their pixels lie, since channels fill registers: 3x3 taps, 64 to 512 channels, take 0.95 to 0.98 of the time of
    copying patches first (2 threads of a Zen 4)."""
    return p.g.src_c == 1 and p.g.src_channels >= 2 * VL


cdef void pair_patches(const Patches *p, int64_t first, int64_t depth, int64_t slot, int64_t slots, real *zeros, real *dst) noexcept nogil:
    """dst[i LD + s] = the pair of what pixels first + 2i and first + 2i + 1 have at slot + s: those of a row at once, or the last of one and the first of the next.
    `zeros` has room for the slots. *Assumes:* pairs_lines."""
    cdef int64_t channels = p.g.src_channels, done = 0, run, s, tap, c, some
    cdef const char *none = <const char *> zeros
    cdef Pixel at, next
    cdef real *pairs
    clear(zeros, slots)
    while done < depth:
        at, next = pixel(p, first + done), pixel(p, first + done + 1)
        run, s = smaller(p.col.count - at.v, depth - done) // 2 * 2, 0
        while s < slots:
            tap, c, pairs = (slot + s) // channels, (slot + s) % channels, dst + done // 2 * LD + s
            some = smaller(channels - c, slots - s)
            if run:
                pair_line(p, &at, tap, c, run, some, none, pairs)
            else:
                pair_two(one_pixel(p, &at, tap, c, none), one_pixel(p, &next, tap, c, none) if done + 1 < depth else none, some, pairs)
            s += some
        done += larger(run, 2)


cdef Line tap_line(const Patches *p, const Pixel *at, int64_t tap, int64_t channel, int64_t pixels) noexcept nogil:
    """What so many pixels of a row read with a tap."""
    cdef const char *src = p.src + (at.n * p.g.src_n + channel) * item_size(p.storage)
    return line_of(p.g, p.storage, src, src_index(p.row, at.u, tap // p.col.taps), src_index(p.col, at.v, tap % p.col.taps), p.col.src_unit * p.col.z_step, pixels)


cdef const char *one_pixel(const Patches *p, const Pixel *at, int64_t tap, int64_t channel, const char *zeros) noexcept nogil:
    """What a pixel reads with a tap."""
    cdef Line line = tap_line(p, at, tap, channel, 1)
    return line.at if line.low < line.high else zeros


cdef void pair_two(const char *one, const char *two, int64_t channels, real *dst) noexcept nogil:
    pair_lines(one, two - one, 2, channels, dst, LD)


cdef void pair_line(const Patches *p, const Pixel *at, int64_t tap, int64_t channel, int64_t pixels, int64_t channels, const char *zeros, real *dst) noexcept nogil:
    """The pairs of so many pixels of a row, an even number."""
    cdef Line line = tap_line(p, at, tap, channel, pixels)
    cdef int64_t step = p.col.src_unit * p.col.z_step * p.g.src_x * item_size(p.storage), q = line.low // 2 * 2 if line.low < line.high else pixels, inner
    clear_block(q // 2, channels, dst, LD)
    if q < line.low and q < pixels:
        pair_two(zeros, line.at + line.low * step, channels, dst + q // 2 * LD)
        q += 2
    inner = larger(line.high - q, 0) // 2 * 2
    pair_lines(line.at + q * step, step, inner, channels, dst + q // 2 * LD, LD)
    q += inner
    if q < line.high and q < pixels:
        pair_two(line.at + q * step, zeros, channels, dst + q // 2 * LD)
        q += 2
    clear_block((pixels - q) // 2, channels, dst + q // 2 * LD, LD)
