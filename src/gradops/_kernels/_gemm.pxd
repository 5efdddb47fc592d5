# cython: language_level=3, cdivision=True
"""The register tile and the loops around it: c += a b on packed panels. Knows nothing of storage, convolution or threads."""
from libc.stdint cimport int64_t
from _problem cimport part, smaller
from _storage cimport real, vec, VL, NV, NR, MR, LINE, load, store, zero, prefetch, prefetch_soon

cdef enum:
    KC = 512                                            # depth of one pass over packed panels
    LD = KC + 16                                        # distance of packed rows; not a power of two, so rows spread over the cache sets


cdef inline void gemm_ukr(int m, int nv, int64_t row, int64_t step, int64_t depth, const real *a, const real *b, int64_t ldb, real *c, int64_t ldc, bint accumulate, bint fetch, const real *ahead, int64_t stride) noexcept nogil:
    """c[i, j] (+)= sum_k a[i row + k step] b[k ldb + j] for i < m, j < nv VL, in m x nv registers; fetches a cache line of each ahead[k stride].

    *Assumes:* m, nv, row and fetch are compile-time constants of the caller; without by_column, step as well.
    """
    cdef vec acc[14][2]
    cdef vec operand[2]
    cdef int64_t _k
    cdef int i, j
    for i in range(m):
        for j in range(nv):
            acc[i][j] = zero()
    if fetch and accumulate:
        for i in range(m):
            for j in range(nv):
                prefetch(c + i * ldc + j * VL)
    for _k in range(depth):
        if fetch:
            prefetch_soon(ahead)
            ahead += stride
        for j in range(nv):
            operand[j] = load(b + j * VL)
        for i in range(m):
            for j in range(nv):
                acc[i][j] += a[i * row] * operand[j]
        a += step
        b += ldb
    for i in range(m):
        for j in range(nv):
            store(c + i * ldc + j * VL, load(c + i * ldc + j * VL) + acc[i][j] if accumulate else acc[i][j])


cdef inline void gemm_tile(int m, int nv, bint by_column, int64_t depth, const real *a, int64_t lda, const real *b, int64_t ldb, real *c, int64_t ldc, bint accumulate, bint fetch, const real *ahead, int64_t stride) noexcept nogil:
    """gemm_ukr for any m <= MR; a is [m][lda] or, by column, [depth][lda]."""
    cdef int64_t row = 1 if by_column else lda, step = lda if by_column else 1
    if MR > 6:
        if m == 14: gemm_ukr(14, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
        elif m == 13: gemm_ukr(13, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
        elif m == 12: gemm_ukr(12, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
        elif m == 11: gemm_ukr(11, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
        elif m == 10: gemm_ukr(10, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
        elif m == 9: gemm_ukr(9, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
        elif m == 8: gemm_ukr(8, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
        elif m == 7: gemm_ukr(7, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
    if m == 6: gemm_ukr(6, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
    elif m == 5: gemm_ukr(5, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
    elif m == 4: gemm_ukr(4, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
    elif m == 3: gemm_ukr(3, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
    elif m == 2: gemm_ukr(2, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)
    elif m == 1: gemm_ukr(1, nv, row, step, depth, a, b, ldb, c, ldc, accumulate, fetch, ahead, stride)


cdef struct Next:                                       # where the operands of the next call begin if they are read where they lie, else NULL
    const real *a
    const real *b


cdef inline void gemm_block(bint by_column, int64_t m, int64_t n, int64_t depth, const real *a, int64_t lda, const real *b, int64_t ldb, int64_t panel, real *c, int64_t ldc, bint accumulate, bint fetch, const Next *next) noexcept nogil:
    """c[0:m, 0:n] (+)= a b, panel after panel of NR columns, the last of which may be half as wide; rows are split evenly into register tiles.

    Each tile fetches a column of cache lines of the next operands, a's first: their loads would stall a call that begins with them.

    *Assumes:* by_column and fetch are compile-time constants and, without by_column, lda as well, so that rows are at constant offsets; b holds
    panels of NR columns, `panel` elements apart, zero beyond n; c has ldc >= n rounded up to VL; fetch only by column, next otherwise NULL.
    """
    cdef int64_t tiles = (m + MR - 1) // MR, j, t, i, left, stride, line
    cdef const real *ahead
    cdef int rows
    for j in range((n + NR - 1) // NR):
        left = n - j * NR
        for t in range(tiles):
            i = part(m, t, tiles)
            rows = <int> (part(m, t + 1, tiles) - i)
            ahead, stride = c, 0
            if fetch:
                line = (j * tiles + t) * LINE
                if next.a != NULL and line < m:
                    ahead, stride = next.a + line, lda
                elif next.b != NULL:
                    line -= (m + LINE - 1) // LINE * LINE if next.a != NULL else 0
                    if line < n:
                        ahead, stride = next.b + line, ldb
            if left > VL:
                gemm_tile(rows, NV, by_column, depth, a + (i if by_column else i * lda), lda, b + j * panel, ldb, c + i * ldc + j * NR, ldc, accumulate, fetch, ahead, stride)
            else:
                gemm_tile(rows, 1, by_column, depth, a + (i if by_column else i * lda), lda, b + j * panel, ldb, c + i * ldc + j * NR, ldc, accumulate, fetch, ahead, stride)
