/* Numbers moved: some of a vector, every other one, rows side by side; and sums of lanes. */
#pragma once

enum { MOST_STEP = 4 };                                      /* from one number to the next one taken, or stored */

/* Shuffles that take every step-th number of so many vectors, from number `first` < step on: of those before and of vector k. And those that weave so many lines,
 * whose numbers take turns: of lines before l and line l, into vector k. Tables: compilers that have to find
 * these constants in loops leave the loops (4 to 10 times as slow). */
#define GRADOPS_LANES(at, ...) \
    { at(0, __VA_ARGS__), at(1, __VA_ARGS__), at(2, __VA_ARGS__), at(3, __VA_ARGS__), at(4, __VA_ARGS__), at(5, __VA_ARGS__), at(6, __VA_ARGS__), at(7, __VA_ARGS__), \
      at(8, __VA_ARGS__), at(9, __VA_ARGS__), at(10, __VA_ARGS__), at(11, __VA_ARGS__), at(12, __VA_ARGS__), at(13, __VA_ARGS__), at(14, __VA_ARGS__), at(15, __VA_ARGS__) }
#define GRADOPS_TABLE(at) { GRADOPS_BY(at, 2), GRADOPS_BY(at, 3), GRADOPS_BY(at, 4) }
#define GRADOPS_BY(at, step) { GRADOPS_FROM(at, step, 0), GRADOPS_FROM(at, step, 1), GRADOPS_FROM(at, step, 2), GRADOPS_FROM(at, step, 3) }
#define GRADOPS_FROM(at, step, k) { GRADOPS_LANES(at, step, k, 1), GRADOPS_LANES(at, step, k, 2), GRADOPS_LANES(at, step, k, 3) }
#define GRADOPS_PICK(j, step, first, k) \
    (first + step * j) / VL == k ? first + step * j - (k - 1) * VL : k == 1 && first + step * j < VL ? first + step * j : j
#define GRADOPS_WEAVE(j, step, k, l) (k * VL + j) % step == l ? VL + (k * VL + j) / step : l == 1 ? (k * VL + j) / step : j
static const lane_index PICKED[MOST_STEP - 1][MOST_STEP][MOST_STEP - 1][16] = GRADOPS_TABLE(GRADOPS_PICK);
static const lane_index WOVEN[MOST_STEP - 1][MOST_STEP][MOST_STEP - 1][16] = GRADOPS_TABLE(GRADOPS_WEAVE);

static inline __attribute__((always_inline)) vec every_lane(const int step, const int first, const vec *cells) {
    vec picked = cells[0];
    for (int k = 1; k < step; k++) picked = __builtin_shuffle(picked, cells[k], *(const lane_indices_u *)PICKED[step - 2][first][k - 1]);
    return picked;
}
static inline __attribute__((always_inline)) vec woven_lanes(const int step, const int k, const vec *lines) {
    vec woven = lines[0];
    for (int l = 1; l < step; l++) woven = __builtin_shuffle(woven, lines[l], *(const lane_indices_u *)WOVEN[step - 2][k][l - 1]);
    return woven;
}

#if defined(__AVX512F__)
/* src[i] for those i < VL that `lanes` has as bits, or for i < n, else zeros. */
static inline vec load_lanes(const real *src, uint32_t lanes) {
#if defined(GRADOPS_REAL_f64)
    return (vec)_mm512_maskz_loadu_pd((__mmask8)lanes, src);
#else
    return (vec)_mm512_maskz_loadu_ps((__mmask16)lanes, src);
#endif
}
static inline vec load_some(const real *src, int64_t n) { return load_lanes(src, (1u << n) - 1); }

/* dst[i] = v[i] for those i. */
static inline void store_lanes(real *dst, uint32_t lanes, vec v) {
#if defined(GRADOPS_REAL_f64)
    _mm512_mask_storeu_pd(dst, (__mmask8)lanes, (__m512d)v);
#else
    _mm512_mask_storeu_ps(dst, (__mmask16)lanes, (__m512)v);
#endif
}
static inline void store_some(real *dst, int64_t n, vec v) { store_lanes(dst, (1u << n) - 1, v); }

/* dst[0:n] = src[0:n]; of several pieces, the last one may overlap the one before. */
static inline void copy(const real *src, int64_t n, real *dst) {
    int64_t i = 0;
    if (n < VL) {
        if (n) store_some(dst, n, load_some(src, n));
        return;
    }
    for (; i + VL <= n; i += VL) store(dst + i, load(src + i));
    if (i < n) store(dst + n - VL, load(src + n - VL));
}

/* Every step-th of so many vectors, of which `lanes` has the numbers to be read as bits. */
static inline __attribute__((always_inline)) vec load_every(const int step, const real *src, uint64_t lanes) {
    vec cells[MOST_STEP];
    for (int k = 0; k < step; k++) cells[k] = load_lanes(src + k * VL, lanes >> k * VL & ((1u << VL) - 1));
    return every_lane(step, 0, cells);
}

/* dst[r ld + i] = src[r src_ld + step i] for i < n; reads nothing beyond. The step is a constant, 2 to 4. */
static inline __attribute__((always_inline)) void copy_rows_every(const int step, const real *src, int64_t src_ld, int64_t rows, int64_t n, real *dst, int64_t ld) {
    const int64_t whole = n > 0 ? (n - 1) / VL * VL : 0, left = n - whole;
    if (left <= 0) return;
    const uint64_t lanes = (2ull << step * (left - 1)) - 1;
    for (int64_t r = 0; r < rows; r++, src += src_ld, dst += ld) {
        for (int64_t i = 0; i < whole; i += VL) store(dst + i, load_every(step, src + step * i, ~0ull));
        store_some(dst + whole, left, load_every(step, src + step * whole, lanes));
    }
}
static inline __attribute__((always_inline)) void copy_every(const int step, const real *src, int64_t n, real *dst) {
    copy_rows_every(step, src, 0, 1, n, dst, 0);
}

/* dst[step i] = src[i] for i < n, the inverse. What lies between may belong to other threads, so it is not even rewritten. */
static inline __attribute__((always_inline)) void store_every(const int step, const real *src, int64_t n, real *dst) {
    for (; n > 0; n -= VL, src += VL, dst += step * VL) {
        const vec v = load_some(src, n < VL ? n : VL);
        const uint64_t lanes = n < VL ? (1ull << step * n) - 1 : ~0ull;
        for (int k = 0; k < step; k++) {
            uint32_t every = 0;
            lane_indices at;
            for (int j = 0; j < VL; j++) {
                at[j] = (k * VL + j) / step;
                every |= (uint32_t)((k * VL + j) % step == 0) << j;
            }
            if (lanes >> k * VL) store_lanes(dst + k * VL, lanes >> k * VL & every, __builtin_shuffle(v, at));
        }
    }
}
#else
/* dst[0:n] = src[0:n] by pieces of fixed size, the last of which may overlap the one before. */
static inline void copy(const real *src, int64_t n, real *dst) {
    int64_t i = 0;
    if (n >= VL) {
        for (; i + VL <= n; i += VL) store(dst + i, load(src + i));
        if (i < n) store(dst + n - VL, load(src + n - VL));
        return;
    }
#define GRADOPS_COPY_BY(piece) \
    if (VL > piece && n >= piece) { \
        memcpy(dst, src, piece * sizeof(real)); \
        memcpy(dst + n - piece, src + n - piece, piece * sizeof(real)); \
        return; \
    }
    GRADOPS_COPY_BY(8)
    GRADOPS_COPY_BY(4)
    GRADOPS_COPY_BY(2)
    if (n) *dst = *src;
}

/* dst[i] = v[i] for i < n <= VL. */
static inline void store_some(real *dst, int64_t n, vec v) {
    real block[VL];
    store(block, v);
    copy(block, n, dst);
}

/* src[i] for i < n <= VL, then zeros. */
static inline vec load_some(const real *src, int64_t n) {
    real block[VL] = {0};
    copy(src, n, block);
    return load(block);
}

/* dst[i] = src[2 i] for i < n; reads nothing beyond. What is left of whole vectors is a last one, or two halves, which begin early enough. */
static inline void copy_even(const real *src, int64_t n, real *dst) {
    lane_indices even, last;
    int64_t i = 0;
    for (int j = 0; j < VL; j++) {
        even[j] = 2 * j;
        last[j] = 2 * j + (j >= VL / 2);
    }
    for (; i + VL < n; i += VL) store(dst + i, __builtin_shuffle(load(src + 2 * i), load(src + 2 * i + VL), even));
    if (i) {
        i = n - VL;
        store(dst + i, __builtin_shuffle(load(src + 2 * i), load(src + 2 * i + VL - 1), last));
    } else if (n > VL / 2) {
        vec half = __builtin_shuffle(load(src), load(src + 2 * n - 1 - VL), last);
        memcpy(dst, &half, VL / 2 * sizeof(real));
        memcpy(dst + n - VL / 2, (real *)&half + VL / 2, VL / 2 * sizeof(real));
    } else {
        for (; i < n; i++) dst[i] = src[2 * i];
    }
}

/* dst[i] = src[step i] for i < n, and dst[step i] = src[i]. */
static inline void copy_every(const int step, const real *src, int64_t n, real *dst) {
    if (step == 2) copy_even(src, n, dst);
    else for (int64_t i = 0; i < n; i++) dst[i] = src[step * i];
}
static inline void copy_rows_every(const int step, const real *src, int64_t src_ld, int64_t rows, int64_t n, real *dst, int64_t ld) {
    for (int64_t r = 0; r < rows; r++) copy_every(step, src + r * src_ld, n, dst + r * ld);
}
static inline void store_every(const int step, const real *src, int64_t n, real *dst) {
    for (int64_t i = 0; i < n; i++) dst[step * i] = src[i];
}
#endif

/* dst[step i + l] = src[l distance + i] for step i + l < n, l < step; reads and writes whole vectors, of dst `step` of them. */
static inline __attribute__((always_inline)) void interleave_lines(const int step, const real *src, int64_t distance, int64_t n, real *dst) {
    vec lines[MOST_STEP];
    for (; n > 0; n -= step * VL, src += VL, dst += step * VL) {
        for (int l = 0; l < step; l++) lines[l] = load(src + l * distance);
        for (int k = 0; k < step; k++) store(dst + k * VL, woven_lanes(step, k, lines));
    }
}

/* Vectors of numbers in turns, as many as there are lines: the first n of them. */
static inline __attribute__((always_inline)) void store_woven(const int step, real *dst, int64_t n, const vec *lines) {
    for (int k = 0; k < step; k++) {
        const int64_t some = n - k * VL;
        if (some >= VL) store(dst + k * VL, woven_lanes(step, k, lines));
        else if (some > 0) store_some(dst + k * VL, some, woven_lanes(step, k, lines));
    }
}

/* Every other one of 2 VL numbers, whose halves a and b are, from the first one or the second one on. */
static inline vec even_lanes(vec a, vec b) {
    lane_indices even;
    for (int j = 0; j < VL; j++) even[j] = 2 * j;
    return __builtin_shuffle(a, b, even);
}
static inline vec odd_lanes(vec a, vec b) {
    lane_indices odd;
    for (int j = 0; j < VL; j++) odd[j] = 2 * j + 1;
    return __builtin_shuffle(a, b, odd);
}

/* The sums of lanes of a, and of b, that are LANE / 2 apart in 16 bytes, interleaved. */
static inline __attribute__((always_inline)) vec add_halves(vec a, vec b) {
    lane_indices low, high;
    for (int i = 0; i < VL; i++) {
        low[i] = i / LANE * LANE + i % LANE / 2 + i % 2 * VL;
        high[i] = low[i] + LANE / 2;
    }
    return __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
}

/* dst[i] (+)= the sum of all lanes of v[i] for those i < LANE that `lanes` has as bits. */
static inline __attribute__((always_inline)) void add_lanes(const vec *v, int accumulate, real *dst, uint32_t lanes) {
    vec sum = LANE == 2 ? add_halves(v[0], v[1]) : add_halves(add_halves(v[0], v[2 % LANE]), add_halves(v[1], v[3 % LANE]));
    if (VL / 2 >= LANE) sum += exchange(sum, VL / 2);
    if (VL / 4 >= LANE) sum += exchange(sum, VL / 4);
    lanes &= (1u << LANE) - 1;
#if defined(__AVX512F__)
    if (accumulate) sum += load_lanes(dst, lanes);
    store_lanes(dst, lanes, sum);
#else
    real sums[VL];
    store(sums, sum);
    for (int i = 0; i < LANE; i++)
        if (lanes >> i & 1) dst[i] = accumulate ? dst[i] + sums[i] : sums[i];
#endif
}

/* Twins: the lower halves of two vectors, or as many of two numbers. */
static inline vec twin_lanes(vec a, vec b) {
    lane_indices at;
    for (int j = 0; j < VL; j++) at[j] = j < VL / 2 ? j : j + VL / 2;
    return __builtin_shuffle(a, b, at);
}
static inline vec upper_half(vec v) { return exchange(v, VL / 2); }
static inline vec load_twins(const real *a, const real *b) {
#if defined(__AVX512F__)
    return (vec)_mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd((const double *)a)), _mm256_loadu_pd((const double *)b), 1);
#else
    return twin_lanes(load(a), load(b));
#endif
}
static inline vec spread_twins(const real *a, const real *b) { return in_register(twin_lanes(*a - (vec){0}, *b - (vec){0})); }

/* transpose for r < rows, c < cols. */
static __attribute__((noinline)) void transpose_some(const real *src, int64_t src_ld, int64_t rows, int64_t cols, real *dst, int64_t dst_ld) {
#if defined(__AVX512F__)
    vec some[VL];
    for (int i = 0; i < VL; i++, src += src_ld) some[i] = i < rows ? load_some(src, cols) : (vec){0};
    turn(some);
    for (int i = 0; i < VL; i++, dst += dst_ld)
        if (i < cols) store_some(dst, rows, some[i]);
#else
    real block[VL * VL], turned[VL * VL];
    for (int64_t i = 0; i < rows; i++) copy(src + i * src_ld, cols, block + i * VL);
    transpose(block, VL, turned, VL);
    for (int64_t i = 0; i < cols; i++) copy(turned + i * VL, rows, dst + i * dst_ld);
#endif
}

/* dst[2 i] = even[i] and dst[2 i + 1] = odd[i] for i < VL, or the first n <= 2 VL of these. */
static inline vec pair_lanes(vec even, vec odd, int begin) {
    lane_indices at;
    for (int j = 0; j < VL; j++) at[j] = begin + j / 2 + j % 2 * VL;
    return __builtin_shuffle(even, odd, at);
}
static inline void store_pair(real *dst, vec even, vec odd) {
    store(dst, pair_lanes(even, odd, 0));
    store(dst + VL, pair_lanes(even, odd, VL / 2));
}
static inline void store_some_pairs(real *dst, int64_t n, vec even, vec odd) {
    if (n > VL) {
        store(dst, pair_lanes(even, odd, 0));
        store_some(dst + VL, n - VL, pair_lanes(even, odd, VL / 2));
    } else {
        store_some(dst, n, pair_lanes(even, odd, 0));
    }
}

/* dst[2 i] = even[i] and dst[2 i + 1] = odd[i] for i < n. Of less than VL, VL are read. What is left of whole vectors is a last one that begins early enough. */
static inline void interleave(const real *even, const real *odd, int64_t n, real *dst) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) store_pair(dst + 2 * i, load(even + i), load(odd + i));
    if (i && i < n) store_pair(dst + 2 * (n - VL), load(even + n - VL), load(odd + n - VL));
    else if (i < n) store_some_pairs(dst, 2 * n, load(even), load(odd));
}

/* 16-bit numbers, as many as a register holds. */
#if defined(__AVX512BW__)
enum { HALVES = VECTOR_BYTES / 2 };
typedef uint16_t halves __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

/* Every step-th bit. */
static inline uint32_t every(int step) { return step == 1 ? ~0u : step == 2 ? 0x55555555u : step == 3 ? 0x49249249u : 0x11111111u; }

/* Those of src[i step] for i < HALVES that lie in vector k of `step` vectors, where `some` has i, else 0. */
static inline halves take_part(const char *src, int step, int k, __mmask32 some) {
    const int first = (HALVES * k + step - 1) / step;        /* which lies there */
    return (halves)_mm512_maskz_loadu_epi16(_pdep_u32(some >> first, every(step) << (first * step - HALVES * k)), src + k * sizeof(halves));
}

/* src[i step] for i < HALVES where `some` has i, else 0. *Assumes:* step <= MOST_STEP is a constant. */
static inline __attribute__((always_inline)) halves take_halves(const char *src, int step, __mmask32 some) {
    if (step == 1) return (halves)_mm512_maskz_loadu_epi16(some, src);
    halves taken = take_part(src, step, 0, some);
#pragma GCC unroll 4
    for (int k = 1; k < step; k++) {
        halves from;                                         /* taken so far, as they are, or the vector after it */
        for (int i = 0; i < HALVES; i++) from[i] = k > 1 && i * step < HALVES * k ? i : i * step - HALVES * (k - 1);
        taken = __builtin_shuffle(taken, take_part(src, step, k, some), from);
    }
    return taken;
}

/* Which i + j of HALVES lie in low <= i + j < high. */
static inline __mmask32 inside(int64_t i, int64_t low, int64_t high) {
    const uint32_t below = high - i >= HALVES ? ~0u : high > i ? (1u << (high - i)) - 1 : 0;
    return below & (low <= i ? ~0u : low - i < HALVES ? ~0u << (low - i) : 0);
}
#endif

/* dst[2 i] = src[i] for i < n. What lies between belongs to other threads, so it is not even rewritten. */
#ifdef __AVX512BW__
static inline void store_even_halves(const uint16_t *src, int64_t n, uint16_t *dst) {
    for (int64_t i = 0; i < n; i += 16) {
        const uint32_t every = 0x55555555u, some = n - i < 16 ? every & ((1u << 2 * (n - i)) - 1) : every;
        _mm512_mask_storeu_epi16(dst + 2 * i, some, _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff, src + i)));
    }
}
#else
static inline void store_even_halves(const uint16_t *src, int64_t n, uint16_t *dst) {
    for (int64_t i = 0; i < n; i++) dst[2 * i] = src[i];
}
#endif

/* dst[0:n] = 0 */
static inline void clear(real *dst, int64_t n) {
    for (; n >= VL; n -= VL, dst += VL) store(dst, zero());
    if (n) store_some(dst, n, zero());
}

/* Whether src[r ld] to src[r ld + n - 1], for r < rows, hold neither infinity nor NaN: zero times anything else is zero. What is left of whole vectors is a last
   one that begins early enough. */
static inline int rows_finite(const real *src, int64_t ld, int64_t rows, int64_t n) {
    vec sum = zero(), other = zero();
    real rest = 0;
    for (int64_t r = 0; r < rows; r++, src += ld) {
        int64_t i = 0;
        for (; i + 2 * VL <= n; i += 2 * VL) {
            sum += load(src + i) * 0;
            other += load(src + i + VL) * 0;
        }
        if (i + VL <= n) sum += load(src + i) * 0;
        if (n < VL) for (; i < n; i++) rest += src[i] * 0;
        else other += load(src + n - VL) * 0;
    }
    sum += other;
    for (int i = 0; i < VL; i++) rest += sum[i];
    return rest == 0;
}
static inline int all_finite(const real *src, int64_t n) { return rows_finite(src, 0, 1, n); }
