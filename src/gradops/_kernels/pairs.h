/* Pairs of bfloat16, which are multiplied two at once. */
#pragma once

/* sum + a b, of one number a or of as many as b has. Where operands are bfloat16, each lane of a and b is a pair of them, neighbours along the sum, whose two
 * products are added, subnormal numbers counting as zero; PAIR is how many. A packed block of reals becomes one of pairs in its own memory, row by row; an odd one out gets a zero beside it. */
#ifdef GRADOPS_REAL_bf16

enum { PAIR = 2, PACKED_STORAGE = 1 };                       /* what packed operands are as they lie: BFLOAT16 of _storage.pxd */
typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

static inline vec multiply_add_lanes(vec a, vec b, vec sum) { return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b); }
static inline vec multiply_add(real a, vec b, vec sum) { return multiply_add_lanes((vec)_mm512_set1_ps(a), b, sum); }

/* block[r ld + c] = the pair of columns 2c and 2c + 1 of row r. Reads and writes up to a multiple of NR columns. */
static inline void pair_columns(real *block, int64_t rows, int64_t cols, int64_t ld) {
    halves upper;
    for (int i = 0; i < 2 * VL; i++) upper[i] = 2 * i + 1;
    for (int64_t r = 0; r < rows; r++, block += ld) {
        if (cols % 2) block[cols] = 0;
        for (int64_t c = 0; c < cols; c += NR) {
            halves first = *(halves *)(block + c), second = *(halves *)(block + c + VL);
            *(halves *)(block + c / 2) = __builtin_shuffle(first, second, upper);
        }
    }
}

/* block[r ld + c] = the pair of rows 2r and 2r + 1 of column c. Reads and writes up to a multiple of VL columns. */
static inline void pair_rows(real *block, int64_t rows, int64_t cols, int64_t ld) {
    for (int64_t r = 0; r < rows; r += 2) {
        const real *src = block + r * ld;
        real *dst = block + r / 2 * ld;
        for (int64_t c = 0; c < cols; c += VL) {
            words first = *(const words *)(src + c) >> 16;
            if (r + 1 < rows) first |= *(const words *)(src + ld + c) & 0xffff0000u;
            *(words *)(dst + c) = first;
        }
    }
}

/* dst[c] = the pair of one[c] and two[c], for those c < 2 VL that `some` has. */
static inline void store_pairs(halves one, halves two, __mmask32 some, real *dst) {
    halves low, high;
    for (int i = 0; i < 2 * VL; i++) {
        low[i] = i / 2 + i % 2 * 2 * VL;
        high[i] = low[i] + VL;
    }
    _mm512_mask_storeu_ps(dst, (__mmask16)some, (__m512)__builtin_shuffle(one, two, low));
    if (some >> VL) _mm512_mask_storeu_ps(dst + VL, (__mmask16)(some >> VL), (__m512)__builtin_shuffle(one, two, high));
}

/* dst[r ld + c] = the pair of rows 2r and 2r + 1 of column c, which lie as bfloat16, `row` bytes apart. */
static inline void pair_lines(const char *src, int64_t row, int64_t rows, int64_t cols, real *dst, int64_t ld) {
    const int64_t last = cols - 2 * VL;
    const __mmask32 some = last < 0 ? (1u << cols) - 1 : ~0u;
    for (int64_t r = 0; r < rows; r += 2, src += 2 * row, dst += ld) {
        for (int64_t i = 0; i < cols; i += 2 * VL) {
            const int64_t c = last < 0 || i < last ? i : last;
            store_pairs((halves)_mm512_maskz_loadu_epi16(some, src + 2 * c), (halves)_mm512_maskz_loadu_epi16(r + 1 < rows ? some : 0, src + row + 2 * c), some, dst + c);
        }
    }
}

/* dst[r ld] = the upper halves of row r of src, beside the lower ones of row r + 1: rows of NR pairs, ld apart. */
static inline void pair_before(const real *src, int64_t rows, int64_t ld, real *dst) {
    for (int64_t r = 0; r < rows; r++, src += ld, dst += ld)
        for (int j = 0; j < NR; j += VL) *(words *)(dst + j) = *(const words *)(src + j) >> 16 | *(const words *)(src + ld + j) << 16;
}

/* Whether no half of n pairs is an infinity or NaN. */
static inline int pairs_finite(const real *src, int64_t n) {
    const __m512i exponents = _mm512_set1_epi16(0x7f80);
    __mmask32 found = 0;
    for (int64_t i = 0; i < n; i += VL) {
        const __m512i pairs = _mm512_maskz_loadu_epi32(n - i < VL ? (1u << (n - i)) - 1 : 0xffff, src + i);
        found |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(pairs, exponents), exponents);
    }
    return !found;
}

/* row[i] = the pair of row[i] and row[i + distance] for i < n, beyond which there are zeros. */
static inline void pair_ahead(real *row, int64_t n, int64_t distance) {
    for (int64_t i = 0; i < n; i += VL) {
        const int64_t left = n - i, other = left - distance;
        const __mmask16 some = left < VL ? (1u << left) - 1 : 0xffff, both = other >= VL ? 0xffff : other > 0 ? (1u << other) - 1 : 0;
        const __m512i low = _mm512_srli_epi32(_mm512_maskz_loadu_epi32(some, row + i), 16);
        const __m512i high = _mm512_and_si512(_mm512_maskz_loadu_epi32(both, row + i + distance), _mm512_set1_epi32((int)0xffff0000u));
        _mm512_mask_storeu_epi32(row + i, some, _mm512_or_si512(low, high));
    }
}

/* place_halves for the numbers of a strip, `from` src `to` dst. */
static inline __attribute__((always_inline)) void place_some_halves(const char *src, int64_t row, int64_t rows, int step, __mmask32 from, __mmask32 to, char *dst, int64_t ld) {
    for (int64_t r = 0; r < rows; r++, src += row, dst += ld * sizeof(real)) _mm512_mask_storeu_epi16(dst, to, (__m512i)take_halves(src, step, from));
}

/* dst[r ld + i / 2] = src[r][i step] for low <= i < high, else 0, for i < n: rows of bfloat16, `row` bytes apart, of which each two become a pair. */
static inline void place_halves(const char *src, int64_t row, int64_t rows, int step, int64_t low, int64_t high, int64_t n, char *dst, int64_t ld) {
    for (int64_t i = 0; i < n; i += 2 * VL) {
        const __mmask32 to = inside(i, 0, n), from = inside(i, low, high);
        const char *lies = src + 2 * i * step;
        char *at = dst + 2 * i;
        if (step == 1) place_some_halves(lies, row, rows, 1, from, to, at, ld);
        else if (step == 2) place_some_halves(lies, row, rows, 2, from, to, at, ld);
        else if (step == 3) place_some_halves(lies, row, rows, 3, from, to, at, ld);
        else place_some_halves(lies, row, rows, 4, from, to, at, ld);
    }
}

/* dst[r ld + i / 2] = 0 for i < n: what place_halves writes beyond what there is. */
static inline void clear_halves(int64_t rows, int64_t n, char *dst, int64_t ld) {
    for (int64_t i = 0; i < n; i += 2 * VL)
        for (int64_t r = 0; r < rows; r++) _mm512_mask_storeu_epi16(dst + 2 * i + r * ld * sizeof(real), inside(i, 0, n), _mm512_setzero_si512());
}

enum { LONG = 4 };                                           /* strips of 2 VL numbers, at least */

/* place_pairs for the numbers of a strip, `from` one and two `to` dst. */
static inline __attribute__((always_inline)) void place_some_pairs(const char *one, const char *two, int64_t row, int64_t rows, int step, __mmask32 from, __mmask32 two_from, __mmask32 to, real *dst, int64_t ld) {
    for (int64_t r = 0; r < rows; r++, one += row, two += row, dst += ld) store_pairs(take_halves(one, step, from), take_halves(two, step, two_from), to, dst);
}

/* dst[r ld + i] = the pair of one[r][i step] and two[r][i step], each of them 0 unless it lies from its `low` to its `high`, for i < n; rows, bfloat16, are
 * `row` bytes apart. Long rows that lie inside are read one after the other, as CPUs foresee, and the next ones fetched. */
static inline void place_pairs(const char *one, int64_t low, int64_t high, const char *two, int64_t two_low, int64_t two_high, int64_t row, int64_t rows, int step, int64_t n, real *dst, int64_t ld) {
    const int64_t strips = step == 1 && low <= 0 && two_low <= 0 && high >= n && two_high >= n ? n / (2 * VL) : 0, first = strips < LONG ? 0 : strips * 2 * VL;
    for (int64_t r = 0; r < (first ? rows : 0); r++)
        for (int64_t i = 0; i < first; i += 2 * VL) {
            const char *p = one + r * row + 2 * i, *q = two + r * row + 2 * i;
            prefetch_now(p + row);
            prefetch_now(q + row);
            store_pairs(take_halves(p, 1, ~0u), take_halves(q, 1, ~0u), ~0u, dst + r * ld + i);
        }
    for (int64_t i = first; i < n; i += 2 * VL) {
        const __mmask32 to = inside(i, 0, n), from = inside(i, low, high), two_from = inside(i, two_low, two_high);
        const char *p = one + 2 * i * step, *q = two + 2 * i * step;
        if (step == 1) place_some_pairs(p, q, row, rows, 1, from, two_from, to, dst + i, ld);
        else if (step == 2) place_some_pairs(p, q, row, rows, 2, from, two_from, to, dst + i, ld);
        else if (step == 3) place_some_pairs(p, q, row, rows, 3, from, two_from, to, dst + i, ld);
        else place_some_pairs(p, q, row, rows, 4, from, two_from, to, dst + i, ld);
    }
}

#else

enum { PAIR = 1, PACKED_STORAGE = REAL_STORAGE };
static inline void place_halves(const char *src, int64_t row, int64_t rows, int step, int64_t low, int64_t high, int64_t n, char *dst, int64_t ld) {}
static inline void clear_halves(int64_t rows, int64_t n, char *dst, int64_t ld) {}
static inline void place_pairs(const char *one, int64_t low, int64_t high, const char *two, int64_t two_low, int64_t two_high, int64_t row, int64_t rows, int step, int64_t n, real *dst, int64_t ld) {}
static inline void pair_ahead(real *row, int64_t n, int64_t distance) {}
static inline int pairs_finite(const real *src, int64_t n) { return 1; }
static inline void pair_before(const real *src, int64_t rows, int64_t ld, real *dst) {}
static inline void pair_lines(const char *src, int64_t row, int64_t rows, int64_t cols, real *dst, int64_t ld) {}
static inline vec multiply_add_lanes(vec a, vec b, vec sum) { return sum + a * b; }
static inline vec multiply_add(real a, vec b, vec sum) { return sum + a * b; }
static inline void pair_columns(real *block, int64_t rows, int64_t cols, int64_t ld) {}
static inline void pair_rows(real *block, int64_t rows, int64_t cols, int64_t ld) {}

#endif
