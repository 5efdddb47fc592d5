/* 16-bit numbers: to and from float32, alone and in vectors. */
#pragma once

/* 16-bit floating point: exact to float32, rounded to nearest even from float32; NaN stays NaN, overflow becomes infinity. */

static inline float float_of_bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t bits_of_float(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

static inline float widen_bfloat16(uint16_t h) { return float_of_bits((uint32_t)h << 16); }

static inline uint16_t narrow_bfloat16(float f) {
    uint32_t u = bits_of_float(f);
    uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16, quiet = (u >> 16) | 0x40;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

static inline float widen_float16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t normal = magnitude + ((127u - 15u) << 23), special = magnitude | 0x7f800000;
    float tiny = (float)(h & 0x3ff) * 0x1p-24f;
    uint32_t u = magnitude >= 0x0f800000 ? special : magnitude < 0x00800000 ? bits_of_float(tiny) : normal;
    return float_of_bits(u | sign);
}

static inline uint16_t narrow_float16(float f) {
    uint32_t u = bits_of_float(f), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff, h;
    if (magnitude > 0x7f800000) h = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    else if (magnitude >= 0x477ff000) h = 0x7c00;
    else if (magnitude >= 0x38800000) h = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    else h = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000;
    return (uint16_t)(sign | h);
}

/* bfloat16 in vectors of as many as there are floats in a register. */
enum { FLOATS = VECTOR_BYTES / 4 };
typedef uint32_t float_bits __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef int32_t float_mask __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t half_bits __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));

static inline void widen_bfloat16_vector(const uint16_t *src, float *dst) {
    *(float_bits *)dst = __builtin_convertvector(*(const half_bits *)src, float_bits) << 16;
}

/* Numbers whose upper halves are v's, rounded: of any v, or of sums of products of 16-bit numbers, whose NaN have no bits that carry. */
static inline float_bits rounded_sum(vec v) {
#if defined(__AVX512F__)
    const __m512i one = _mm512_set1_epi32(0x10000), below = _mm512_add_epi32((__m512i)v, _mm512_set1_epi32(0x7fff));
    return (float_bits)_mm512_mask_add_epi32(below, _mm512_test_epi32_mask((__m512i)v, one), below, _mm512_set1_epi32(1));
#else
    const float_bits u = (float_bits)v;
    return u + 0x7fff + ((u >> 16) & 1);
#endif
}

static inline float_bits rounded_bfloat16(vec v) {
#if defined(__AVX512F__)
    return (float_bits)_mm512_mask_or_epi32((__m512i)rounded_sum(v), _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q), (__m512i)v, _mm512_set1_epi32(0x400000));
#else
    const float_bits u = (float_bits)v, is_nan = (float_bits)((float_mask)(u & 0x7fffffff) > 0x7f800000);
    return ((u | 0x400000) & is_nan) | (rounded_sum(v) & ~is_nan);
#endif
}

static inline half_bits upper_halves(float_bits words) {
#if defined(__AVX512BW__)                                       /* one shuffle in place of a shift and a conversion */
    uint16_t upper __attribute__((vector_size(VECTOR_BYTES)));
    for (int i = 0; i < 2 * FLOATS; i++) upper[i] = (2 * i + 1) % (2 * FLOATS);
    return (half_bits)_mm512_castsi512_si256(_mm512_permutexvar_epi16((__m512i)upper, (__m512i)words));
#else
    return __builtin_convertvector(words >> 16, half_bits);
#endif
}

#if defined(__AVX512BF16__)
enum { SUBNORMAL = 0x20 };                                      /* of _mm512_fpclass_ps_mask */
#endif

static inline half_bits narrowed_bfloat16(float_bits u) {
#if defined(__AVX512BF16__)                                     /* one instruction, which takes subnormal numbers for zero */
    if (!_mm512_fpclass_ps_mask((__m512)u, SUBNORMAL)) return (half_bits)_mm512_cvtneps_pbh((__m512)u);
#endif
    return upper_halves(rounded_bfloat16((vec)u));
}

static inline void narrow_bfloat16_vector(const float *src, uint16_t *dst) { *(half_bits *)dst = narrowed_bfloat16(*(const float_bits *)src); }

/* Sums of pairs as they are stored, by that instruction alone: what adds them up takes subnormal numbers for zero, too. */
#if defined(GRADOPS_REAL_bf16)
static inline void store_narrowed(char *dst, vec v) {
    _mm256_storeu_si256((__m256i *)dst, (__m256i)_mm512_cvtneps_pbh((__m512)v));
}
static inline void store_narrowed_pair(char *dst, vec low, vec high) { _mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low)); }
static inline int infinities(vec v) { return _mm512_fpclass_ps_mask((__m512)v, 0x99); }     /* of either sign, or NaN of either kind */

/* dst[r] = src[r ld + j] for rows of so many sums of tiles, NR at most, `row` bytes apart in dst. */
static inline void narrow_rows(const real *src, int64_t ld, int64_t rows, int64_t cols, char *dst, int64_t row) {
    const __mmask32 some = cols < NR ? (1u << cols) - 1 : ~0u;
    for (int64_t r = 0; r < rows; r++, src += ld, dst += row) {
        const __m512 low = _mm512_maskz_loadu_ps((__mmask16)some, src), high = _mm512_maskz_loadu_ps((__mmask16)(some >> VL), src + VL);
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        if (cols == NR) _mm512_storeu_si512(dst, both);
        else _mm512_mask_storeu_epi16(dst, some, both);
    }
}
#else
static inline void store_narrowed(char *dst, vec v) { (void)dst, (void)v; }
static inline void store_narrowed_pair(char *dst, vec low, vec high) { (void)dst, (void)low, (void)high; }
static inline int infinities(vec v) { return (void)v, 0; }
static inline void narrow_rows(const real *src, int64_t ld, int64_t rows, int64_t cols, char *dst, int64_t row) { (void)src, (void)ld, (void)rows, (void)cols, (void)dst, (void)row; }
#endif

/* Two vectors. */
static inline void narrow_bfloat16_vectors(const float *src, uint16_t *dst) {
#if defined(__AVX512BF16__)
    __m512 low = _mm512_loadu_ps(src), high = _mm512_loadu_ps(src + FLOATS);
    if (!(_mm512_fpclass_ps_mask(low, SUBNORMAL) | _mm512_fpclass_ps_mask(high, SUBNORMAL))) {
        _mm512_storeu_si512(dst, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        return;
    }
#endif
    narrow_bfloat16_vector(src, dst);
    narrow_bfloat16_vector(src + FLOATS, dst + FLOATS);
}

/* The same for float16: one instruction, or one number after the other. */
#if defined(__AVX512F__)
static inline void widen_float16_vector(const uint16_t *src, float *dst) { _mm512_storeu_ps(dst, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)src))); }
static inline void narrow_float16_vector(const float *src, uint16_t *dst) { _mm256_storeu_si256((__m256i *)dst, _mm512_cvtps_ph(_mm512_loadu_ps(src), 0)); }
#elif defined(__F16C__)
static inline void widen_float16_vector(const uint16_t *src, float *dst) { _mm256_storeu_ps(dst, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src))); }
static inline void narrow_float16_vector(const float *src, uint16_t *dst) { _mm_storeu_si128((__m128i *)dst, _mm256_cvtps_ph(_mm256_loadu_ps(src), 0)); }
#else
static inline void widen_float16_vector(const uint16_t *src, float *dst) { for (int i = 0; i < FLOATS; i++) dst[i] = widen_float16(src[i]); }
static inline void narrow_float16_vector(const float *src, uint16_t *dst) { for (int i = 0; i < FLOATS; i++) dst[i] = narrow_float16(src[i]); }
#endif

/* Words of 16-bit numbers, `bfloat` or float16, in a register of floats: one in its lower half, the other in its upper half; and both of them, widened. */
static inline vec pair_narrowed(int bfloat, vec low, vec high) {
    uint16_t first[FLOATS], second[FLOATS];
    if (bfloat) {
#if defined(__AVX512BF16__)
        if (!(_mm512_fpclass_ps_mask((__m512)low, SUBNORMAL) | _mm512_fpclass_ps_mask((__m512)high, SUBNORMAL))) {
            uint16_t words __attribute__((vector_size(VECTOR_BYTES)));
            for (int i = 0; i < 2 * FLOATS; i++) words[i] = i / 2 + i % 2 * FLOATS;
            return (vec)_mm512_permutexvar_epi16((__m512i)words, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
        }
#endif
        return (vec)(rounded_bfloat16(low) >> 16 | (rounded_bfloat16(high) & 0xffff0000u));
    }
    narrow_float16_vector((const float *)&low, first);
    narrow_float16_vector((const float *)&high, second);
    return (vec)(__builtin_convertvector(*(const half_bits *)first, float_bits) | __builtin_convertvector(*(const half_bits *)second, float_bits) << 16);
}

/* The same of sums of products of such numbers. */
static inline vec pair_of_sums(int bfloat, vec low, vec high) {
    return bfloat ? (vec)(rounded_sum(low) >> 16 | (rounded_sum(high) & 0xffff0000u)) : pair_narrowed(0, low, high);
}

static inline void widen_pair(int bfloat, vec both, real *low, real *high) {
    const float_bits words = (float_bits)both;
    uint16_t first[FLOATS], second[FLOATS];
    if (bfloat) {
        store(low, (vec)(words << 16));
        store(high, (vec)(words & 0xffff0000u));
        return;
    }
    *(half_bits *)first = __builtin_convertvector(words & 0xffff, half_bits);
    *(half_bits *)second = __builtin_convertvector(words >> 16, half_bits);
    widen_float16_vector(first, (float *)low);
    widen_float16_vector(second, (float *)high);
}

/* dst[0:n] = src[0:n], 16-bit numbers, up to a register full of them. */
static inline void copy_halves(const void *src, int64_t n, void *dst) {
#if defined(__AVX512BW__)
    const __mmask32 some = n < 2 * FLOATS ? (1u << n) - 1 : ~0u;
    _mm512_mask_storeu_epi16(dst, some, _mm512_maskz_loadu_epi16(some, src));
#else
    if (n == 2 * FLOATS) memcpy(dst, src, VECTOR_BYTES);
    else memcpy(dst, src, 2 * n);
#endif
}

/* A register full of 16-bit numbers is computed with as WIDE registers, in an order of its own: of bfloat16 those at even places come first,
 * which takes no shuffle. Where WIDE is 1, 16-bit numbers are widened in memory. Real numbers may be held as two registers; no storage is
 * called so. */
enum { REAL_PAIR = -1 };

static inline __attribute__((always_inline)) void load_reals(int held, const real *p, vec *v) {
    v[0] = load_once(p);
    if (held == REAL_PAIR) v[1] = load_once(p + VL);
}

static inline __attribute__((always_inline)) void store_reals(int held, real *p, const vec *v) {
    store(p, v[0]);
    if (held == REAL_PAIR) store(p + VL, v[1]);
}

#if defined(__AVX512F__) && !defined(GRADOPS_REAL_f64)
enum { WIDE = 2 };

/* v[0:WIDE] = the numbers at p, in their order; of real ones v[0] alone, or v[0:2]. What is held is a compile-time constant. */
static inline __attribute__((always_inline)) void load_wide(int held, const char *p, vec *v) {
    if (held == 0) {
        v[0] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
        v[1] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p + 1));
    } else if (held == 1) {
        float_bits both = *(const float_bits *)p;
        v[0] = (vec)(both << 16);
        v[1] = (vec)(both & 0xffff0000u);
    } else {
        load_reals(held, (const real *)p, v);
    }
}

static inline __attribute__((always_inline)) void store_wide(int held, char *p, const vec *v) {
    if (held == 0) {
        _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v[0], 0));
        _mm256_storeu_si256((__m256i *)p + 1, _mm512_cvtps_ph((__m512)v[1], 0));
    } else if (held == 1) {
        store((real *)p, pair_of_sums(1, v[0], v[1]));
    } else {
        store_reals(held, (real *)p, v);
    }
}

/* The same past all caches (store_past), of what fills a cache line. */
static inline __attribute__((always_inline)) void store_wide_past(int held, char *p, const vec *v) {
    if (held == 0) {
        __m512i low = _mm512_castsi256_si512(_mm512_cvtps_ph((__m512)v[0], 0));
        store_past((real *)p, (vec)_mm512_inserti64x4(low, _mm512_cvtps_ph((__m512)v[1], 0), 1));
    } else if (held == 1) {
        store_past((real *)p, pair_of_sums(1, v[0], v[1]));
    } else {
        store_past((real *)p, v[0]);
    }
}
#else
enum { WIDE = 1 };
static inline __attribute__((always_inline)) void store_wide_past(int held, char *p, const vec *v) { (void)held; store_past((real *)p, v[0]); }
static inline __attribute__((always_inline)) void load_wide(int held, const char *p, vec *v) { load_reals(held, (const real *)p, v); }
static inline __attribute__((always_inline)) void store_wide(int held, char *p, const vec *v) { store_reals(held, (real *)p, v); }
#endif

/* Of numbers as they are stored where WIDE is 2, else of real ones: `storage`, a compile-time constant, is 0 for float16, 1 for bfloat16. A vector of
 * them; of twins, half as many at a and at b; both, as many at a and at b, and every other one of these, from the first or the second one on. */
#if defined(__AVX512F__) && !defined(GRADOPS_REAL_f64)
#define GRADOPS_HALVES(storage, ...) if ((storage) < 2) { __VA_ARGS__ }
static inline vec widened(int storage, __m256i halves) {
    uint16_t place __attribute__((vector_size(VECTOR_BYTES)));
    for (int i = 0; i < 2 * FLOATS; i++) place[i] = i / 2;
    return storage == 0 ? (vec)_mm512_cvtph_ps(halves) : (vec)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, (__m512i)place, _mm512_castsi256_si512(halves));
}
static inline __m256i narrowed(int storage, vec v) {
    return storage == 0 ? _mm512_cvtps_ph((__m512)v, 0) : (__m256i)upper_halves(rounded_sum(v));
}
#else
#define GRADOPS_HALVES(storage, ...)
#endif

static inline vec load_stored(int storage, const char *p) {
    GRADOPS_HALVES(storage, return widened(storage, _mm256_loadu_si256((const __m256i *)p));)
    return load((const real *)p);
}
static inline vec load_stored_twins(int storage, const char *a, const char *b) {
    GRADOPS_HALVES(storage, return widened(storage, _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)), _mm_loadu_si128((const __m128i *)b), 1));)
    return load_twins((const real *)a, (const real *)b);
}
static inline void load_stored_both(int storage, const char *a, const char *b, vec *both) {
    GRADOPS_HALVES(storage,
        both[0] = in_register((vec)_mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a)), _mm256_loadu_si256((const __m256i *)b), 1));
        return;
    )
    both[0] = load_once((const real *)a);
    both[1] = load_once((const real *)b);
}
static inline vec every_stored(int storage, int odd, const vec *both) {
    GRADOPS_HALVES(storage,
        const __m512i words = (__m512i)both[0];
        if (storage == 0) return widened(0, _mm512_cvtepi32_epi16(odd ? _mm512_srli_epi32(words, 16) : words));
        return odd ? (vec)_mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000u)) : (vec)_mm512_slli_epi32(words, 16);
    )
    return odd ? odd_lanes(both[0], both[1]) : even_lanes(both[0], both[1]);
}

/* dst[i] = v[i] for i < n <= VL; the two halves of v to a and b, n <= VL / 2 numbers each; both[i] of pair_lanes(even, odd) for i < n <= 2 VL, or, of twins,
 * n <= VL of each of its halves to a and b. */
static inline void store_stored(int storage, char *dst, int64_t n, vec v) {
    GRADOPS_HALVES(storage, _mm256_mask_storeu_epi16(dst, (__mmask16)((1u << n) - 1), narrowed(storage, v)); return;)
    if (n < VL) store_some((real *)dst, n, v);
    else store((real *)dst, v);
}
static inline void store_stored_twins(int storage, char *a, char *b, int64_t n, vec v) {
    GRADOPS_HALVES(storage,
        const __m256i halves = narrowed(storage, v);
        _mm_mask_storeu_epi16(a, (__mmask8)((1u << n) - 1), _mm256_castsi256_si128(halves));
        _mm_mask_storeu_epi16(b, (__mmask8)((1u << n) - 1), _mm256_extracti128_si256(halves, 1));
        return;
    )
    store_some((real *)a, n, v);
    store_some((real *)b, n, upper_half(v));
}
static inline void store_stored_pairs(int storage, char *dst, int64_t n, vec even, vec odd) {
    GRADOPS_HALVES(storage, _mm512_mask_storeu_epi16(dst, n < 2 * VL ? (1u << n) - 1 : ~0u, (__m512i)pair_of_sums(storage, even, odd)); return;)
    if (n < 2 * VL) store_some_pairs((real *)dst, n, even, odd);
    else store_pair((real *)dst, even, odd);
}
static inline void store_stored_twin_pairs(int storage, char *a, char *b, int64_t n, vec even, vec odd) {
    GRADOPS_HALVES(storage,
        const __m512i words = (__m512i)pair_of_sums(storage, even, odd);
        _mm256_mask_storeu_epi16(a, (__mmask16)((1u << n) - 1), _mm512_castsi512_si256(words));
        _mm256_mask_storeu_epi16(b, (__mmask16)((1u << n) - 1), _mm512_extracti64x4_epi64(words, 1));
        return;
    )
    store_some((real *)a, n, pair_lanes(even, odd, 0));
    store_some((real *)b, n, pair_lanes(even, odd, VL / 2));
}

#define GRADOPS_TWO(what, from, to) \
    static inline void what##_vectors(const from *src, to *dst) { what##_vector(src, dst); what##_vector(src + FLOATS, dst + FLOATS); }
GRADOPS_TWO(widen_bfloat16, uint16_t, float)
GRADOPS_TWO(widen_float16, uint16_t, float)
GRADOPS_TWO(narrow_float16, float, uint16_t)

/* dst[0:n] = src[0:n] for fewer numbers than a vector has: under a mask, or beside zeros, or one after the other. */
#if defined(__AVX512BW__)
static inline __mmask16 first_lanes(int64_t n) { return (__mmask16)((1u << n) - 1); }

static inline void widen_bfloat16_part(const uint16_t *src, int64_t n, float *dst) {
    _mm512_mask_storeu_ps(dst, first_lanes(n), (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), src)), 16));
}

static inline void widen_float16_part(const uint16_t *src, int64_t n, float *dst) {
    _mm512_mask_storeu_ps(dst, first_lanes(n), _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), src)));
}

static inline void narrow_float16_part(const float *src, int64_t n, uint16_t *dst) {
    _mm256_mask_storeu_epi16(dst, first_lanes(n), _mm512_cvtps_ph(_mm512_maskz_loadu_ps(first_lanes(n), src), 0));
}

static inline void narrow_bfloat16_part(const float *src, int64_t n, uint16_t *dst) {
    _mm256_mask_storeu_epi16(dst, first_lanes(n), (__m256i)narrowed_bfloat16((float_bits)_mm512_maskz_loadu_ps(first_lanes(n), src)));
}
#else
#define GRADOPS_PART(what, from, to) \
    static inline void what##_part(const from *src, int64_t n, to *dst) { \
        from before[FLOATS] = {0}; \
        to after[FLOATS]; \
        if (n > FLOATS / 4) { \
            for (int64_t i = 0; i < n; i++) before[i] = src[i]; \
            what##_vector(before, after); \
            for (int64_t i = 0; i < n; i++) dst[i] = after[i]; \
        } else { \
            for (int64_t i = 0; i < n; i++) dst[i] = what(src[i]); \
        } \
    }
GRADOPS_PART(widen_bfloat16, uint16_t, float)
GRADOPS_PART(narrow_bfloat16, float, uint16_t)
GRADOPS_PART(widen_float16, uint16_t, float)
GRADOPS_PART(narrow_float16, float, uint16_t)
#endif

/* dst[0:n] = src[0:n] by vectors, the last of which may overlap the one before. Only a single vector is inlined. */
#define GRADOPS_CONVERT(what, from, to) \
    static __attribute__((noinline)) void what##_run(const from *src, int64_t n, to *dst) { \
        int64_t i = 0; \
        for (; i + 2 * FLOATS <= n; i += 2 * FLOATS) what##_vectors(src + i, dst + i); \
        for (; i + FLOATS <= n; i += FLOATS) what##_vector(src + i, dst + i); \
        if (i && i < n) what##_vector(src + n - FLOATS, dst + n - FLOATS); \
        else if (i < n) what##_part(src, n, dst); \
    } \
    static inline void what##s(const from *src, int64_t n, to *dst) { \
        if (__builtin_constant_p(n) && n == FLOATS) what##_vector(src, dst); \
        else what##_run(src, n, dst); \
    }
GRADOPS_CONVERT(widen_bfloat16, uint16_t, float)
GRADOPS_CONVERT(narrow_bfloat16, float, uint16_t)
GRADOPS_CONVERT(widen_float16, uint16_t, float)
GRADOPS_CONVERT(narrow_float16, float, uint16_t)

/* dst[i] = src[step i] for i < n, of 16-bit numbers, `bfloat` or float16. The step is a constant, 2 to MOST_STEP. */
#if defined(__AVX512BW__) && !defined(GRADOPS_REAL_f64)
static inline __attribute__((always_inline)) void widen_every(int bfloat, const int step, const char *src, int64_t n, real *dst) {
    for (int64_t i = 0; i < n; i += HALVES) {
        const __mmask32 some = inside(i, 0, n);
        const __m512i taken = (__m512i)take_halves(src + 2 * i * step, step, some);
        _mm512_mask_storeu_ps(dst + i, (__mmask16)some, (__m512)widened(bfloat, _mm512_castsi512_si256(taken)));
        if (some >> VL) _mm512_mask_storeu_ps(dst + i + VL, (__mmask16)(some >> VL), (__m512)widened(bfloat, _mm512_extracti64x4_epi64(taken, 1)));
    }
}
#else
/* Every second one: eight 32-bit words at a time, whose low halves are meant; of the last ones, that begin at an odd place, the high halves; fewer one after
 * the other. */
typedef uint32_t eight_words __attribute__((vector_size(32)));
typedef uint16_t eight_halves __attribute__((vector_size(16)));

static inline void widen_eight(int bfloat, const uint16_t *src, int high, float *dst) {
    eight_words words;
    memcpy(&words, src, sizeof words);
    if (bfloat) words = high ? words & 0xffff0000u : words << 16;
    else if (high) words >>= 16;
#if defined(__F16C__)
    if (!bfloat) words = (eight_words)_mm256_cvtph_ps((__m128i)__builtin_convertvector(words & 0xffff, eight_halves));
#else
    for (int i = 0; i < (bfloat ? 0 : 8); i++) words[i] = bits_of_float(widen_float16((uint16_t)words[i]));
#endif
    memcpy(dst, &words, sizeof words);
}

static inline void widen_even(int bfloat, const uint16_t *src, int64_t n, float *dst) {
    for (int64_t i = 0; i + 8 < n; i += 8) widen_eight(bfloat, src + 2 * i, 0, dst + i);
    if (n > 8) widen_eight(bfloat, src + 2 * n - 17, 1, dst + n - 8);
    else for (int64_t i = 0; i < n; i++) dst[i] = bfloat ? widen_bfloat16(src[2 * i]) : widen_float16(src[2 * i]);
}

/* Every third and fourth one: with what lies between, or every second one of every second one. */
static inline void widen_every(int bfloat, const int step, const char *src, int64_t n, real *dst) {
    real block[256];
    if (step == 2) {
        widen_even(bfloat, (const uint16_t *)src, n, (float *)dst);
        return;
    }
    for (int64_t some; n > 0; n -= some, src += 2 * step * some, dst += some) {
        some = n < 64 ? n : 64;
        if (step == 4) widen_even(bfloat, (const uint16_t *)src, 2 * some - 1, (float *)block);
        else if (bfloat) widen_bfloat16s((const uint16_t *)src, 3 * some - 2, (float *)block);
        else widen_float16s((const uint16_t *)src, 3 * some - 2, (float *)block);
        copy_every(step == 4 ? 2 : step, block, some, dst);
    }
}
#endif
