# cython: language_level=3, cdivision=True
"""The register tile and the loops around it: c += a b on packed panels. Knows nothing of storage, convolution or threads.

Depths and distances along the sum count what `multiply_add` multiplies at once, numbers or pairs of them.
"""
from libc.stdint cimport int64_t
from _problem cimport divide_up, larger, part, smaller
from _storage cimport real, vec, VL, NV, NR, MR, LINE, PAIR, clear, load, multiply_add, store, zero, prefetch_soon, prefetch_to_write, unknown

cdef enum:
    KC = 512                                            # depth of one pass over packed panels
    HALF = 7                                            # rows of a register tile that are read from one address: distances stay in registers
    LD = KC + 16                                        # distance of packed rows; not a power of two, so rows spread over the cache sets

cdef enum Fetch:                                        # what a product fetches while it computes, a cache line of each stream in each step
    NOTHING = 0
    READS = 1                                           # two streams that are going to be read
    READ_WRITE = 2                                      # one that is going to be read, one that is going to be written


cdef struct Stream:                                     # memory that is needed next: tile t's step k fetches the line at at + t tile + k step (bytes)
    const char *at
    int64_t tile, step
    int64_t tiles                                       # beyond, the last is fetched again
    int64_t far                                         # of pairs: the tiles after these fetch what lies so many bytes beyond, unless it is 0


cdef inline Stream stream(const void *at, int64_t tile, int64_t step, int64_t tiles) noexcept nogil:
    cdef Stream s
    s.at, s.tile, s.step, s.tiles, s.far = <const char *> at, tile, step, tiles, 0
    return s


cdef inline const char *begin_of(const Stream *s, int64_t t) noexcept nogil:
    """What tile t fetches first."""
    cdef int64_t far = 0
    if PAIR > 1 and s.far and t >= s.tiles:
        t, far = t - s.tiles, s.far
    return s.at + smaller(t, s.tiles - 1) * s.tile + far


cdef struct Taps:                                       # where a lies, if it does not lie in one piece
    int64_t count
    const int64_t *at                                   # of each: its first element, and in `depth` how many steps it has
    const int64_t *depth


cdef inline void gemm_ukr(int m, int nv, int64_t row, int64_t step, int64_t depth, const Taps *taps, const real *a, const real *b, int64_t ldb, real *c, int64_t ldc, bint accumulate, Fetch fetch, Stream one, Stream two) noexcept nogil:
    """c[i, j] (+)= sum_k a[i row + k step] b[k ldb + j] for i < m, j < nv VL, in m x nv registers.

    Loops are left at their ends: were they tested before, compilers would keep the sums of no step at all in memory, and all others beside them.

    *Assumes:* m, nv and fetch are compile-time constants of the caller, row or step is 1, and depths are positive.
    """
    cdef vec acc[14][2]
    cdef vec operand[2]
    cdef const real *begin = a
    cdef const real *end
    cdef const real *half
    cdef int64_t tap = 1
    cdef int i, j
    if taps != NULL:
        a, depth = a + taps.at[0], taps.depth[0]
    end, half = b + depth * ldb, unknown(a + HALF * row)
    for i in range(m):
        for j in range(nv):
            acc[i][j] = zero()
    if fetch != NOTHING and (accumulate or two.step == 0):
        for i in range(m):
            for j in range(nv):
                prefetch_to_write(c + i * ldc + j * VL)
    while True:
        if fetch != NOTHING:
            prefetch_soon(one.at)
            one.at += one.step
            if fetch == READS:
                prefetch_soon(two.at)
            else:
                prefetch_to_write(two.at)
            two.at += two.step
        for j in range(nv):
            operand[j] = load(b + j * VL)
        for i in range(m):
            for j in range(nv):
                acc[i][j] = multiply_add(a[i * row] if i < HALF else half[(i - HALF) * row], operand[j], acc[i][j])
        a += step
        half += step
        b += ldb
        if b == end:
            if taps == NULL or tap == taps.count:
                break
            a = begin + taps.at[tap]
            half = unknown(a + HALF * row)
            end += taps.depth[tap] * ldb
            tap += 1
    for i in range(m):
        for j in range(nv):
            store(c + i * ldc + j * VL, load(c + i * ldc + j * VL) + acc[i][j] if accumulate else acc[i][j])


cdef inline void gemm_tile(int m, int nv, bint by_column, int64_t depth, const Taps *taps, const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc, bint accumulate, Fetch fetch, Stream one, Stream two) noexcept nogil:
    """gemm_ukr for any m <= MR; a is [m][lda] or, by column, [depth][lda]."""
    cdef int64_t row = 1 if by_column else lda, step = lda if by_column else 1
    if MR > 6:
        if m == 14: gemm_ukr(14, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
        elif m == 13: gemm_ukr(13, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
        elif m == 12: gemm_ukr(12, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
        elif m == 11: gemm_ukr(11, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
        elif m == 10: gemm_ukr(10, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
        elif m == 9: gemm_ukr(9, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
        elif m == 8: gemm_ukr(8, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
        elif m == 7: gemm_ukr(7, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
    if m == 6: gemm_ukr(6, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
    elif m == 5: gemm_ukr(5, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
    elif m == 4: gemm_ukr(4, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
    elif m == 3: gemm_ukr(3, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
    elif m == 2: gemm_ukr(2, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)
    elif m == 1: gemm_ukr(1, nv, row, step, depth, taps, a, b, ldb, c, ldc, accumulate, fetch, one, two)


cdef inline void gemm_block(bint by_column, int64_t m, int64_t n, int64_t depth, const Taps *taps, const real *a, int64_t lda, const real *b, int64_t ldb, int64_t panel, real *c, int64_t ldc, bint accumulate, Fetch fetch, Stream one, Stream two) noexcept nogil:
    """c[0:m, 0:n] (+)= a b, panel after panel of NR columns, the last of which may be half as wide; rows are split evenly into register tiles.

    Loads of memory that is in no cache would stall a tile, so each tile fetches some of what is needed next, evenly spread over its steps. Of two
    streams to be read, the second follows the first one: both at once are more than memory delivers (1.0 to 1.2 of the time, Zen 5).

    *Assumes:* by_column and fetch are compile-time constants; b holds panels of NR columns, `panel` elements apart, zero beyond n or followed by
    readable memory; c has ldc >= n rounded up to VL.
    """
    cdef int64_t tiles = (m + MR - 1) // MR, panels = (n + NR - 1) // NR, j, t, i, left, later = 0
    cdef Stream first = one, second = two
    cdef int rows
    if depth == 0:
        for i in range(0 if accumulate else m):
            clear(c + i * ldc, divide_up(n, VL) * VL)
        return
    if fetch == READS:
        later = larger(smaller(one.tiles * PAIR, tiles * panels - two.tiles * PAIR), 0)
    for j in range(panels):
        left = n - j * NR
        for t in range(tiles):
            i = part(m, t, tiles)
            rows = <int> (part(m, t + 1, tiles) - i)
            if fetch != NOTHING:
                first.at = begin_of(&one, j * tiles + t)
                second.at = begin_of(&two, larger(j * tiles + t - later, 0))
            if left > VL:
                gemm_tile(rows, NV, by_column, depth, taps, a + (i if by_column else i * lda), lda, b + j * panel, ldb, c + i * ldc + j * NR, ldc, accumulate, fetch, first, second)
            else:
                gemm_tile(rows, 1, by_column, depth, taps, a + (i if by_column else i * lda), lda, b + j * panel, ldb, c + i * ldc + j * NR, ldc, accumulate, fetch, first, second)


cdef inline void gemm_packed(bint by_column, int64_t m, int64_t n, int64_t depth, const real *a, int64_t lda, const real *b, int64_t ldb, int64_t panel, real *c, int64_t ldc, bint accumulate) noexcept nogil:
    """gemm_block of operands that are in a cache."""
    cdef Stream none = stream(c, 0, 0, 1)
    gemm_block(by_column, m, n, depth, NULL, a, lda, b, ldb, panel, c, ldc, accumulate, NOTHING, none, none)


cdef inline void gemm_taps(int64_t m, int64_t n, const Taps *taps, const real *a, int64_t lda, const real *b, int64_t ldb, int64_t panel, real *c, int64_t ldc, bint accumulate) noexcept nogil:
    """gemm_packed of at most MR rows of a, each of which lies in pieces. gemm_block, which counts tiles, takes up to 1.09 of the time (bfloat16, 16 channels)."""
    cdef Stream none = stream(c, 0, 0, 1)
    cdef int64_t j
    for j in range(divide_up(n, NR)):
        if n - j * NR > VL:
            gemm_tile(<int> m, NV, False, 0, taps, a, lda, b + j * panel, ldb, c + j * NR, ldc, accumulate, NOTHING, none, none)
        else:
            gemm_tile(<int> m, 1, False, 0, taps, a, lda, b + j * panel, ldb, c + j * NR, ldc, accumulate, NOTHING, none, none)
