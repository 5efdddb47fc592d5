# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Doors into the cellar: every function hands its arguments to the inline one of the same name. Arrays are passed by address, unchecked."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uintptr_t
cimport _band
cimport _blocks
cimport _bundle
cimport _cells
cimport _dots
cimport _families
cimport _gemm
cimport _groups
cimport _inplace
cimport _lines
cimport _partials
cimport _patches
cimport _planes
cimport _problem
cimport _ring
cimport _scratch
cimport _sheet
cimport _storage
cimport _window
cimport _winograd
from _storage cimport load, load_wide, real, store, store_wide, vec

SIZES = {"VL": _storage.VL, "PAIR": _storage.PAIR, "MR": _storage.MR, "NR": _storage.NR, "KC": _gemm.KC, "LD": _gemm.LD, "WIDE": _storage.WIDE, "TILE": _storage.TILE, "DOUBLES": _cells.DOUBLES,
         "DOT_ROWS": _dots.DOT_ROWS, "DOT_COLUMNS": _dots.DOT_COLUMNS}


cdef extern from *:
    """
    typedef struct { _Alignas(64) char bytes[64]; } Line;
    """
    ctypedef struct Line:
        char[64] bytes


cdef char *bytes_of(array) except NULL:
    return <char *> <uintptr_t> array.ctypes.data


cdef real *reals_of(array) except NULL:
    return <real *> bytes_of(array)


def part_ways(rows, int64_t ld, int64_t ways, int64_t wide, vectors):
    _groups.part_ways(reals_of(rows), ld, ways, wide, reals_of(vectors))


def join_ways(vectors, int64_t ways, int64_t wide, rows, int64_t ld):
    _groups.join_ways(reals_of(vectors), ways, wide, reals_of(rows), ld)


def widen(int storage, src, int64_t n, dst):
    _storage.widen(storage, bytes_of(src), n, reals_of(dst))


def narrow(int storage, src, int64_t n, dst):
    _storage.narrow(storage, reals_of(src), n, bytes_of(dst))


def store_wide_past(int storage, src, int64_t vectors, int64_t size, dst):
    """Of vectors of so many bytes that `load_wide` reads."""
    cdef int64_t i
    cdef vec[2] v
    for i in range(vectors):
        load_wide(storage, bytes_of(src) + i * size, v)
        _storage.store_wide_past(storage, bytes_of(dst) + i * size, v)
    _storage.settle_past()


def widen_in_registers(int storage, src, int64_t n, dst):
    """`load_wide` and what brings its numbers back into order; the last vector overlaps the one before, so there has to be one."""
    cdef int64_t lanes = _storage.WIDE * _storage.VL, i, k
    cdef vec[2] v
    cdef int r
    if _storage.WIDE == 1:
        _storage.widen(storage, bytes_of(src), n, reals_of(dst))
        return
    for i in range((n + lanes - 1) // lanes):
        k = min(i * lanes, n - lanes)
        load_wide(storage, bytes_of(src) + 2 * k, v)
        for r in range(2):
            store(reals_of(dst) + k + r * _storage.VL, v[r])
        _inplace.from_registers(storage, reals_of(dst) + k)


def narrow_in_registers(int storage, src, int64_t n, dst):
    """The inverse."""
    cdef int64_t lanes = _storage.WIDE * _storage.VL, i, k
    cdef vec[2] v
    cdef real[2 * 16] block
    cdef int r
    if _storage.WIDE == 1:
        _storage.narrow(storage, reals_of(src), n, bytes_of(dst))
        return
    for i in range((n + lanes - 1) // lanes):
        k = min(i * lanes, n - lanes)
        _storage.copy(reals_of(src) + k, lanes, block)
        _inplace.into_registers(storage, block)
        for r in range(2):
            v[r] = load(block + r * _storage.VL)
        store_wide(storage, bytes_of(dst) + 2 * k, v)


def widen_strided(int storage, src, int64_t step, int64_t n, dst):
    _storage.widen_strided(storage, bytes_of(src), step, n, reals_of(dst))


def narrow_strided(int storage, src, int64_t n, dst, int64_t step):
    _storage.narrow_strided(storage, reals_of(src), n, bytes_of(dst), step)


_storage.borrow_blocks()


def interleave_lines(int step, src, int64_t distance, int64_t n, dst):
    if step == 2:
        _storage.interleave_lines(2, reals_of(src), distance, n, reals_of(dst))
    elif step == 3:
        _storage.interleave_lines(3, reals_of(src), distance, n, reals_of(dst))
    else:
        _storage.interleave_lines(4, reals_of(src), distance, n, reals_of(dst))


def store_woven(int step, lines, int64_t n, dst):
    cdef _storage.vec[_storage.MOST_STEP] v
    cdef int i
    for i in range(step):
        v[i] = load(reals_of(lines) + i * _storage.VL)
    if step == 2:
        _storage.store_woven(2, reals_of(dst), n, v)
    elif step == 3:
        _storage.store_woven(3, reals_of(dst), n, v)
    else:
        _storage.store_woven(4, reals_of(dst), n, v)


def every_lane(int step, int first, cells, dst):
    cdef _storage.vec[_storage.MOST_STEP] v
    cdef int i
    for i in range(step):
        v[i] = load(reals_of(cells) + i * _storage.VL)
    store(reals_of(dst), _storage.every_lane(step, first, v))


def widen_block(int storage, src, int64_t src_row, int64_t src_col, int64_t rows, int64_t cols, dst, int64_t ld):
    _storage.widen_block(storage, bytes_of(src), src_row, src_col, rows, cols, reals_of(dst), ld)


def narrow_block(int storage, src, int64_t ld, int64_t rows, int64_t cols, dst, int64_t dst_row, int64_t dst_col):
    _storage.narrow_block(storage, reals_of(src), ld, rows, cols, bytes_of(dst), dst_row, dst_col)


def narrow_rows(src, int64_t ld, int64_t rows, int64_t cols, dst, int64_t row):
    _storage.narrow_rows(reals_of(src), ld, rows, cols, <char *> bytes_of(dst), row)


def narrow_in_turns(int storage, even, odd, int64_t n, dst):
    _storage.narrow_in_turns(storage, reals_of(even), reals_of(odd), n, bytes_of(dst))


def copy(src, int64_t n, dst):
    _storage.copy(reals_of(src), n, reals_of(dst))


def store_some(v, int64_t n, dst):
    _storage.store_some(reals_of(dst), n, load(reals_of(v)))


def store_some_pairs(even, odd, int64_t n, dst):
    _storage.store_some_pairs(reals_of(dst), n, load(reals_of(even)), load(reals_of(odd)))


def part_lanes(src, even, odd):
    cdef vec low = load(reals_of(src)), high = load(reals_of(src) + _storage.VL)
    store(reals_of(even), _storage.even_lanes(low, high))
    store(reals_of(odd), _storage.odd_lanes(low, high))


def spread_once(number, dst):
    store(reals_of(dst), _storage.spread_once(reals_of(number)))


def twins(one, other, dst):
    """Of vectors in memory, of their first numbers, and the upper halves of both."""
    store(reals_of(dst), _storage.load_twins(reals_of(one), reals_of(other)))
    store(reals_of(dst) + _storage.VL, _storage.spread_twins(reals_of(one), reals_of(other)))
    store(reals_of(dst) + 2 * _storage.VL, _storage.twin_lanes(_storage.upper_half(load(reals_of(one))), _storage.upper_half(load(reals_of(other)))))


def load_stored(int storage, src, other, dst):
    """A vector at src, twins, every other one of two vectors, from the first and from the second one on."""
    cdef const char *a = bytes_of(src)
    cdef const char *b = bytes_of(other)
    cdef vec[2] both
    store(reals_of(dst), _storage.load_stored(storage, a))
    store(reals_of(dst) + _storage.VL, _storage.load_stored_twins(storage, a, b))
    _storage.load_stored_both(storage, a, b, both)
    store(reals_of(dst) + 2 * _storage.VL, _storage.every_stored(storage, False, both))
    store(reals_of(dst) + 3 * _storage.VL, _storage.every_stored(storage, True, both))


def store_stored(int storage, v, int64_t n, dst):
    _storage.store_stored(storage, bytes_of(dst), n, load(reals_of(v)))


def store_stored_pairs(int storage, even, odd, int64_t n, dst):
    _storage.store_stored_pairs(storage, bytes_of(dst), n, load(reals_of(even)), load(reals_of(odd)))


def store_stored_twins(int storage, even, odd, int64_t n, one, other):
    """Halves of `even`, or, if there is an odd one, of pairs of both."""
    if odd is None:
        _storage.store_stored_twins(storage, bytes_of(one), bytes_of(other), n, load(reals_of(even)))
    else:
        _storage.store_stored_twin_pairs(storage, bytes_of(one), bytes_of(other), n, load(reals_of(even)), load(reals_of(odd)))


def alike(int64_t low, int64_t high, int64_t first, int64_t reads, int64_t t):
    cdef _planes.View v
    v.low, v.high = low, high
    return _planes.alike(&v, first, reads, t)


def copy_every(int step, src, int64_t n, dst):
    if step == 2:
        _storage.copy_every(2, reals_of(src), n, reals_of(dst))
    elif step == 3:
        _storage.copy_every(3, reals_of(src), n, reals_of(dst))
    else:
        _storage.copy_every(4, reals_of(src), n, reals_of(dst))


def copy_rows_every(int step, src, int64_t src_ld, int64_t rows, int64_t n, dst, int64_t ld):
    if step == 2:
        _storage.copy_rows_every(2, reals_of(src), src_ld, rows, n, reals_of(dst), ld)
    elif step == 3:
        _storage.copy_rows_every(3, reals_of(src), src_ld, rows, n, reals_of(dst), ld)
    else:
        _storage.copy_rows_every(4, reals_of(src), src_ld, rows, n, reals_of(dst), ld)


def store_every(int step, src, int64_t n, dst):
    if step == 2:
        _storage.store_every(2, reals_of(src), n, reals_of(dst))
    else:
        _storage.store_every(3, reals_of(src), n, reals_of(dst))


def clear(dst, int64_t n):
    _storage.clear(reals_of(dst), n)


def transpose(src, int64_t src_ld, dst, int64_t dst_ld):
    _storage.transpose(reals_of(src), src_ld, reals_of(dst), dst_ld)


def all_finite(src, int64_t n):
    return _storage.all_finite(reals_of(src), n)


cdef _dots.Vectors vectors_of(rows, tails):
    cdef _dots.Vectors v
    v.at, v.ld, v.in_place = reals_of(rows), rows.strides[0] // sizeof(real), True
    v.tail, v.tail_ld = reals_of(tails), tails.strides[0] // sizeof(real)
    return v


def dot_columns(int64_t columns, a, a_tails, b, b_tails, int64_t whole, bint tail, int64_t column, int skip, bint accumulate, c):
    cdef _dots.Dots t
    t.a, t.b = vectors_of(a, a_tails), vectors_of(b, b_tails)
    t.whole, t.tail, t.accumulate = whole, tail, accumulate
    t.one = t.two = _gemm.stream(t.a.at, 0, 0, 1)
    _dots.dot_columns(columns, &t, column, skip, reals_of(c), c.strides[0] // sizeof(real), t.one.at, t.two.at)


def rows_finite(src, int64_t ld, int64_t rows, int64_t n):
    return _storage.rows_finite(reals_of(src), ld, rows, n)


def part(int64_t total, int64_t index, int64_t parts):
    return _problem.part(total, index, parts)


def divide_up(int64_t a, int64_t b):
    return _problem.divide_up(a, b)


def padded(int64_t count):
    return _scratch.padded(count)


def scratch_places(int64_t count, int threads):
    """Where the scratch of so many reals of each thread begins in a slab, in bytes, and the size of that."""
    cdef int64_t each = _scratch.apart(count, threads) * sizeof(real), thread
    cdef char *slab = <char *> _scratch.allocate_bytes(threads * each)
    places = [_scratch.own_scratch(slab, each, thread, threads) - slab for thread in range(threads)]
    _scratch.release(slab)
    return places, threads * each


cdef void column_tile(int m, int nv, const _gemm.Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    _gemm.gemm_tile(True, True, _gemm.NOTHING, m, nv, p, a, b, c, one, two)


cdef void row_tile(int m, int nv, const _gemm.Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    _gemm.gemm_tile(False, False, _gemm.NOTHING, m, nv, p, a, b, c, one, two)


def gemm_block(bint by_column, int64_t m, int64_t n, int64_t depth, a, b, int64_t ldb, int64_t panel, c, int64_t ldc, bint accumulate, int64_t steps=_storage.TILE):
    cdef _gemm.Operands p = _gemm.operands(depth, NULL, _gemm.LD, ldb, ldc, accumulate)
    p.end, p.steps = reals_of(a) + <int64_t> a.size, steps
    _storage.begin_tiles(_storage.TILE, <int> steps)
    _gemm.gemm_packed(column_tile if by_column else row_tile, by_column, m, n, &p, reals_of(a), reals_of(b), panel, reals_of(c))
    _storage.end_tiles()


def gather_windows(int taps, int m, at, depth, a, int64_t lda, b, c, int64_t ldc, bint accumulate):
    cdef _gemm.Taps rows
    cdef _gemm.Operands p = _gemm.operands(0, &rows, lda, _storage.NR, ldc, accumulate)
    rows.count, rows.at, rows.depth = at.size, <const int64_t *> bytes_of(at), <const int64_t *> bytes_of(depth)
    _window.gather_windows(taps, m, &p, reals_of(a), reals_of(b), reals_of(c), bytes_of(a))


def sum_channels(int step, int channels, at, depth, low, high, x, int64_t pixel, dy, int64_t ldb, c, int64_t row, int64_t ldc, bint accumulate):
    cdef _window.Windows w
    w.count, w.at, w.depth = at.size, <const int64_t *> bytes_of(at), <const int64_t *> bytes_of(depth)
    w.low, w.high, w.pixel, w.ldb = <const int64_t *> bytes_of(low), <const int64_t *> bytes_of(high), pixel, ldb
    if step == 1:
        _window.sum_channels(1, channels, &w, reals_of(x), reals_of(dy), reals_of(c), row, ldc, accumulate, bytes_of(x), bytes_of(x), 0, 0)
    else:
        _window.sum_channels(2, channels, &w, reals_of(x), reals_of(dy), reals_of(c), row, ldc, accumulate, bytes_of(x), bytes_of(x), 0, 0)


def pair_columns(block, int64_t rows, int64_t cols, int64_t ld):
    _storage.pair_columns(reals_of(block), rows, cols, ld)


def pairs_finite(pairs, int64_t n):
    return _storage.pairs_finite(reals_of(pairs), n)


def bundle(bytes problem):
    """How many groups are one, and the problem of as many."""
    cdef const _problem.Problem *g = <const _problem.Problem *> PyBytes_AS_STRING(problem)
    cdef bytes whole = bytes(_problem.problem_size(g))
    cdef int64_t count = _bundle.bundled_groups(g)
    _bundle.bundle_groups(g, count, <_problem.Problem *> PyBytes_AS_STRING(whole))
    return count, whole


def pair_before(src, int64_t rows, int64_t ld, dst):
    _storage.pair_before(reals_of(src), rows, ld, reals_of(dst))


def pair_ahead(row, int64_t n, int64_t distance):
    _storage.pair_ahead(reals_of(row), n, distance)


def place_halves(src, int64_t row, int64_t rows, int step, int64_t low, int64_t high, int64_t n, dst, int64_t ld):
    _storage.place_halves(bytes_of(src), row, rows, step, low, high, n, bytes_of(dst), ld)


def clear_halves(int64_t rows, int64_t n, dst, int64_t ld):
    _storage.clear_halves(rows, n, bytes_of(dst), ld)


def place_pairs(one, int64_t low, int64_t high, two, int64_t two_low, int64_t two_high, int64_t row, int64_t rows, int step, int64_t n, dst, int64_t ld):
    _storage.place_pairs(bytes_of(one), low, high, bytes_of(two), two_low, two_high, row, rows, step, n, reals_of(dst), ld)


def pair_rows(block, int64_t rows, int64_t cols, int64_t ld):
    _storage.pair_rows(reals_of(block), rows, cols, ld)


cdef void count_block(const void *work, int64_t index, void *_) noexcept nogil:
    (<int64_t *> work)[index] += 1


def do_blocks(int order, int threads, counts):
    """Adds 1 to the count of each block when it is done."""
    _blocks.do_blocks(count_block, bytes_of(counts), counts.size, threads, <_blocks.Order> order, NULL, 0)


cdef struct Given:
    _partials.Total total
    int64_t blocks
    const real *sums                                    # [span][element]


cdef void store_given(const void *work, int64_t index, void *_) noexcept nogil:
    cdef const Given *w = <const Given *> work
    cdef int64_t span = w.total.wave.first + index // w.blocks, block = index % w.blocks
    cdef int64_t first = _problem.part(w.total.size, block, w.blocks), count = _problem.part(w.total.size, block + 1, w.blocks) - first
    _partials.store_block(&w.total, span, w.sums + span * w.total.size + first, count, 1, count, first, count, 1)


def sum_spans(sums, int storage, out, int64_t blocks, int threads):
    """Adds up what is given for each span, block by block. Whether the total is finite, how many spans a wave has, for how many there is memory."""
    cdef Given w
    cdef bint finite = True
    _partials.aim_total(&w.total, storage, bytes_of(out), &finite)
    w.blocks, w.sums = blocks, reals_of(sums)
    w.total.spans, w.total.size = sums.shape
    wave = _partials.first_wave(&w.total, threads)
    if _partials.sum_spans(&w.total, store_given, &w, blocks, threads, _blocks.FIRST_FREE, 16):
        raise MemoryError
    return finite, wave.count, wave.slots


def pack_line(int storage, src, int64_t step, int64_t channel_step, int64_t count, int64_t lanes, int64_t repeat, dst, int64_t plane):
    _ring.pack_line(storage, bytes_of(src), step, channel_step, count, lanes, repeat, step, reals_of(dst), plane)


def pool_strips(int64_t planes, int64_t depth, int64_t most_channels, int64_t values, int64_t rows, int64_t cols, int threads):
    """(plane, top, bottom, x, width, channel, channels) of each strip."""
    cdef _cells.Cut s = _cells.cut(planes, depth, most_channels, values, rows, cols, threads)
    cdef _cells.Strip t
    found = []
    for index in range(_cells.strips(&s)):
        t = _cells.strip(&s, index)
        found.append((t.plane, t.top, t.bottom, t.x, t.width, t.channel, t.channels))
    return found


def picked(a, b, numbers, seconds, dst):
    """dst[i] = a[numbers[i]] or, where seconds[i], b[numbers[i]]: a vector of reals or of doubles."""
    cdef Line words
    cdef int64_t size = a.dtype.itemsize, i
    for i in range(len(numbers)):
        _cells.set_pick(words.bytes, size, i, numbers[i], seconds[i])
    if size == sizeof(real):
        store(reals_of(dst), _cells.pick_reals(load(reals_of(a)), load(reals_of(b)), words.bytes))
    else:
        _cells.store_doubles(<double *> bytes_of(dst), _cells.pick_doubles(_cells.load_doubles(<double *> bytes_of(a)), _cells.load_doubles(<double *> bytes_of(b)), words.bytes))


def next_doubles(values, dst):
    """dst = two vectors of values from the second one on."""
    cdef double *src = <double *> bytes_of(values)
    _cells.store_doubles(<double *> bytes_of(dst), _cells.next_doubles(_cells.load_doubles(src), _cells.load_doubles(src + _cells.DOUBLES)))


def load_some(src, int64_t n, dst):
    """dst = a vector of src[0:n] and zeros."""
    store(reals_of(dst), _storage.load_some(reals_of(src), n))


def quotients(a, divisors, int64_t n, dst):
    """A vector of doubles, of which n are a / divisors."""
    cdef double *b = <double *> bytes_of(divisors)
    cdef double *inverses = b + _cells.DOUBLES
    _cells.store_doubles(<double *> bytes_of(dst), _cells.quotients(_cells.load_floats(<float *> bytes_of(a), n), _cells.load_doubles(b), _cells.load_doubles(inverses)))


def hull(bytes lanes):
    """(src_start, count, taps) of the lane that reaches whatever those of these lanes do, or None."""
    cdef const _problem.Lane *first = <const _problem.Lane *> PyBytes_AS_STRING(lanes)
    cdef _problem.Lane h
    if not _problem.hull(first, len(lanes) // sizeof(_problem.Lane), &h):
        return None
    return h.src_start, h.count, h.taps


def sheet(bytes row, bytes col, int64_t rows, int64_t cols, int64_t plane):
    """The axes of a sheet of rows by columns of src, and where each tap begins in its phases."""
    cdef const _problem.Lane *down = <const _problem.Lane *> PyBytes_AS_STRING(row)
    cdef const _problem.Lane *across = <const _problem.Lane *> PyBytes_AS_STRING(col)
    cdef _sheet.Axis one = _sheet.axis_of(down, rows), two = _sheet.axis_of(across, cols)
    cdef int64_t tap
    places = []
    for tap in range(down.taps * across.taps):
        places.append(_sheet.tap_place(down, across, &two, plane, tap))
    return one, two, places


def takes_turns(bytes problem):
    return _problem.takes_turns(<const _problem.Problem *> PyBytes_AS_STRING(problem))


def pack_rows(bytes problem, int64_t row_lane, int64_t col_lane, int storage, src, int64_t channels, bint spread, int64_t strip, dst):
    """Packs a whole image strip by strip of so many rows, in a ring that holds all, of vectors or of numbers that are going to be spread over vectors; returns its
    height, its width, and the vectors or channels of a row."""
    cdef const _problem.Problem *g = <const _problem.Problem *> PyBytes_AS_STRING(problem)
    cdef _ring.Block b
    cdef _ring.Ring ring
    cdef int64_t t
    b.g, b.storage, b.src = g, storage, bytes_of(src)
    if spread:
        _ring.set_lanes(&b, channels * _storage.VL, channels, _storage.VL, 1)
    else:
        _ring.set_lanes(&b, channels, (channels + _storage.VL - 1) // _storage.VL, 1, _storage.VL)
    b.row, b.col = _problem.row_lanes(g) + row_lane, _problem.col_lanes(g) + col_lane
    ring.rows = reals_of(dst)
    _ring.open_ring(&b, &ring, b.row.z_step * (b.row.count - 1) + b.row.taps, _ring.ring_width(b.col, b.col.count))
    for t in range(0, b.row.count, strip):
        _ring.fill_ring(&b, &ring, t, min(strip, b.row.count - t), 0, 0)
    return ring.height, ring.width, b.planes


cdef _patches.Patches patches(bytes problem, int64_t row_lane, int64_t col_lane, src, int storage, int64_t group):
    cdef const _problem.Problem *g = <const _problem.Problem *> PyBytes_AS_STRING(problem)
    return _patches.patches(g, _problem.row_lanes(g) + row_lane, _problem.col_lanes(g) + col_lane, bytes_of(src), storage, group)


def pack_pixels(bytes problem, int64_t row_lane, int64_t col_lane, int storage, src, int64_t group, int64_t first, int64_t count, int64_t slot, int64_t slots, dst, int64_t ld):
    cdef _patches.Patches p = patches(problem, row_lane, col_lane, src, storage, group)
    _patches.pack_pixels(&p, first, count, slot, slots, reals_of(dst), ld)


def pack_slots(bytes problem, int64_t row_lane, int64_t col_lane, int storage, src, int64_t group, int64_t first, int64_t count, int64_t slot, int64_t slots, dst, int64_t ld):
    cdef _patches.Patches p = patches(problem, row_lane, col_lane, src, storage, group)
    _patches.pack_slots(&p, first, count, slot, slots, reals_of(dst), ld)


def pack_slot_pairs(bytes problem, int64_t row_lane, int64_t col_lane, int storage, src, int64_t group, int64_t first, int64_t count, int64_t slot, int64_t slots, dst, int64_t ld):
    cdef _patches.Patches p = patches(problem, row_lane, col_lane, src, storage, group)
    assert _patches.has_pairs(&p)
    _patches.pack_slot_pairs(&p, first, count, slot, slots, reals_of(dst), ld)


def pack_pixel_pairs(bytes problem, int64_t row_lane, int64_t col_lane, int storage, src, int64_t group, int64_t first, int64_t count, int64_t slot, int64_t slots, dst, int64_t ld):
    cdef _patches.Patches p = patches(problem, row_lane, col_lane, src, storage, group)
    assert _patches.has_pairs(&p)
    _patches.pack_pixel_pairs(&p, first, count, slot, slots, reals_of(dst), ld)


def pack_pairs(bytes problem, int64_t row_lane, int64_t col_lane, int storage, src, int64_t group, int64_t first, int64_t count, int64_t slot, int64_t slots, dst, int64_t ld):
    cdef _patches.Patches p = patches(problem, row_lane, col_lane, src, storage, group)
    assert _patches.lie_in_pairs(&p)
    _patches.pack_pairs(&p, first, count, slot, slots, reals_of(dst), ld)


def band_lines(bytes problem, int64_t row_lane, int64_t col_lane, src, int storage, int64_t group, int64_t first, int64_t count, int64_t burst):
    """Where the cache lines of the band of some pixels begin, from src on, taken so many at a time."""
    cdef _patches.Patches p = patches(problem, row_lane, col_lane, src, storage, group)
    cdef _band.Band band
    cdef _lines.Lines lines
    cdef const char *at
    _band.place_band(&p, first, count, 0, _patches.slots(&p), _storage.PAIR, &band)
    lines = _band.band_lines(&p, &band, p.src)
    found = []
    while lines.left:
        left, before = lines.left, _lines.lines_left(&lines)
        at = _lines.take_lines(&lines, burst)
        taken = before - _lines.lines_left(&lines)
        assert taken == min(burst, left)
        found += [at - bytes_of(src) + i * lines.step for i in range(taken)]
    return found


def tap_run(bytes problem, int64_t row_lane, int64_t col_lane, int storage, src):
    cdef _patches.Patches p = patches(problem, row_lane, col_lane, src, storage, 0)
    return _band.tap_run(&p)


def taps_inside(bytes problem, int64_t row_lane, int64_t col_lane, int storage, src, int64_t row, int64_t slot, int64_t slots):
    """Of the taps of some slots, those whose row lies inside for pixels of a row: how many slots each has, and where the first one's begin."""
    cdef _patches.Patches p = patches(problem, row_lane, col_lane, src, storage, 0)
    cdef _band.Band band
    cdef int64_t[_band.MOST_TAPS] at, depth
    cdef _gemm.Taps taps, some
    cdef int64_t begin
    _band.place_band(&p, row * p.col.count, 1, slot, slots, _storage.PAIR, &band)
    taps.at, taps.depth = at, depth
    taps.count = _band.place_taps(&p, &band, slot, slots, at, depth)
    some = _band.taps_inside(&p, &taps, slot, row, &begin)
    return begin, [some.depth[i] * _storage.PAIR for i in range(some.count)]


cdef _families.Points points(int first, int end):
    cdef _families.Points p
    p.first, p.end = first, end
    return p


def transform_src(src, int64_t line, int64_t pixel, ends, dst, int64_t plane, int64_t width):
    _winograd.transform_src(reals_of(src), line, pixel, reals_of(dst), plane, width, points(ends[0], ends[1]), points(ends[2], ends[3]))


def transform_dst(src, int64_t line, int64_t pixel, ends, dst, int64_t plane):
    _winograd.transform_dst(reals_of(src), line, pixel, reals_of(dst), plane, points(ends[0], ends[1]), points(ends[2], ends[3]))


def transform_filter(src, int64_t tap, ends, dst, int64_t plane):
    _winograd.transform_filter(reals_of(src), tap, reals_of(dst), plane, points(ends[0], ends[1]), points(ends[2], ends[3]))


def restore_dst(src, int64_t plane, ends, dst, int64_t line, int64_t pixel):
    _winograd.restore_dst(reals_of(src), plane, points(ends[0], ends[1]), points(ends[2], ends[3]), reals_of(dst), line, pixel)


def restore_filter(src, int64_t plane, ends, dst, int64_t line, int64_t tap):
    _winograd.restore_filter(reals_of(src), plane, points(ends[0], ends[1]), points(ends[2], ends[3]), reals_of(dst), line, tap)


def allocate_bytes(size_t size):
    return <uintptr_t> _scratch.allocate_bytes(size)


def release(uintptr_t slab):
    _scratch.release(<void *> slab)


GAP, LEAST_KEPT, MOST_KEPT, TIMES = _scratch.GAP, _scratch.LEAST_KEPT, _scratch.MOST_KEPT, _scratch.TIMES
