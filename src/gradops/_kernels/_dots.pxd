# cython: language_level=3, cdivision=True
"""Register tiles of dots: both operands are rows along the sum, and each sum is a vector of partial ones, whose lanes are added at the end.

So neither operand has to be turned, and no lane is left empty, however few rows they have. *Rows* have whole vectors; what these leave is a *tail*
of one vector, beside zeros.
"""
from libc.stdint cimport int64_t
from _gemm cimport Stream
from _problem cimport larger
from _storage cimport real, vec, LANE, MR, TILE, VL, add_lanes, load, multiply_add_lanes, prefetch_soon, unknown, zero

cdef enum:
    DOT_ROWS = 3 + MR // 8                              # of a: with the rows of b, 24 sums, or 12 where there are 16 registers
    DOT_COLUMNS = 4 + MR // 8 * 2                       # rows of b
    UPPER = DOT_COLUMNS // 2                            # of them that are read from one address: their distances stay in registers
    SUMS = (DOT_ROWS + LANE - 1) // LANE * LANE         # of a row of b, whose lanes are added


cdef struct Vectors:                                    # an operand
    const real *at
    int64_t ld
    const real *tail
    int64_t tail_ld
    bint in_place                                       # whether its whole vectors are read where they lie


cdef struct Dots:                                       # what all register tiles of a product have in common
    Vectors a, b
    int64_t whole                                       # reals of whole vectors of each row
    bint tail                                           # whether there is one
    bint accumulate
    Stream one, two                                     # rows that are going to be read, those of `two` two at a time


cdef struct Walk:                                       # what a tile's next step reads, and what it fetches
    const real *a
    const real *b
    const real *upper                                   # of b, from row UPPER on
    int64_t lda, ldb
    const char *one
    const char *two


cdef inline void walk(Walk *s, const real *a, int64_t lda, const real *b, int64_t ldb) noexcept nogil:
    """On from here."""
    s.a, s.lda, s.b, s.ldb = a, lda, b, ldb
    s.upper = unknown(b + UPPER * ldb)


cdef inline void walk_tail(Walk *s, const Dots *t, int64_t column) noexcept nogil:
    walk(s, t.a.tail, t.a.tail_ld, t.b.tail + column * t.b.tail_ld, t.b.tail_ld)


cdef inline void dot_step(int columns, int64_t next_one, int64_t next_two, int64_t second, Walk *s, vec *acc) noexcept nogil:
    """acc[j][i] += a[i] b[j], a vector of each."""
    cdef vec[DOT_ROWS] operand
    cdef vec other
    cdef int i, j
    prefetch_soon(s.one)
    prefetch_soon(s.two)
    prefetch_soon(s.two + second)
    for i in range(DOT_ROWS):
        operand[i] = load(s.a + i * s.lda)
    for j in range(columns):
        other = load(s.b + j * s.ldb if j < UPPER else s.upper + (j - UPPER) * s.ldb)
        for i in range(DOT_ROWS):
            acc[j * SUMS + i] = multiply_add_lanes(operand[i], other, acc[j * SUMS + i])
    s.a += VL
    s.b += VL
    s.upper += VL
    s.one += next_one
    s.two += next_two


cdef inline void dot_ukr(int columns, const Dots *t, int64_t column, int skip, real *c, int64_t ldc, const char *one, const char *two) noexcept nogil:
    """c[j ldc + i] (+)= sum_k a[i, k] b[column + j, k] for skip <= i < DOT_ROWS and j < columns. Loops are left at their end, as in `_gemm.gemm_ukr`.

    *Assumes:* columns is a compile-time constant of the caller.
    """
    cdef vec[DOT_COLUMNS * SUMS] acc
    cdef Walk s
    cdef int64_t left = larger(t.whole, VL), next_one = t.one.step, next_two = t.two.step, second = t.b.ld * sizeof(real)
    cdef bint tail = t.tail and t.whole
    cdef int i, j
    for i in range(columns * SUMS):
        acc[i] = zero()
    s.one, s.two = one, two
    if t.whole:
        walk(&s, t.a.at, t.a.ld, t.b.at + column * t.b.ld, t.b.ld)
    else:
        walk_tail(&s, t, column)
    while True:
        dot_step(columns, next_one, next_two, second, &s, acc)
        left -= VL
        if left == 0:
            if not tail:
                break
            tail, left = False, VL
            walk_tail(&s, t, column)
    for j in range(columns):
        for i in range(SUMS // LANE):
            add_lanes(acc + j * SUMS + i * LANE, t.accumulate, c + j * ldc + i * LANE, ((1 << DOT_ROWS) - (1 << skip)) >> i * LANE)


cdef inline void dot_columns(int64_t columns, const Dots *t, int64_t column, int skip, real *c, int64_t ldc, const char *one, const char *two) noexcept nogil:
    """dot_ukr for any columns <= DOT_COLUMNS."""
    if TILE > 1: return
    elif MR > 6 and columns == 6: dot_ukr(6, t, column, skip, c, ldc, one, two)
    elif MR > 6 and columns == 5: dot_ukr(5, t, column, skip, c, ldc, one, two)
    elif columns == 4: dot_ukr(4, t, column, skip, c, ldc, one, two)
    elif columns == 3: dot_ukr(3, t, column, skip, c, ldc, one, two)
    elif columns == 2: dot_ukr(2, t, column, skip, c, ldc, one, two)
    elif columns == 1: dot_ukr(1, t, column, skip, c, ldc, one, two)
