/* Vectors of doubles beside those of floats: pooling divides, and picks columns, in them. */
#pragma once

/* Doubles, as many as fill a vector, at any address; or floats as doubles: of these, n, or DOUBLES if there are more. */
enum { DOUBLES = VECTOR_BYTES / sizeof(double) };
typedef double doubles __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef double doubles_u __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(double)), may_alias));
typedef int64_t double_words __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef float narrow_doubles __attribute__((vector_size(VECTOR_BYTES / 2), may_alias));
typedef float narrow_doubles_u __attribute__((vector_size(VECTOR_BYTES / 2), aligned(sizeof(float)), may_alias));

static inline doubles no_doubles(void) { return (doubles){0}; }
static inline doubles load_doubles(const double *p) { return *(const doubles_u *)p; }
static inline void store_doubles(double *p, doubles v) { *(doubles_u *)p = v; }
static inline void store_some_doubles(double *p, int64_t n, doubles v) { memcpy(p, &v, n * sizeof(double)); }
static inline void store_floats(float *p, doubles v) { *(narrow_doubles_u *)p = __builtin_convertvector(v, narrow_doubles); }
static inline doubles load_floats(const float *p, int64_t n) {
#if defined(__AVX512F__)
    return (doubles)_mm512_cvtps_pd(n >= DOUBLES ? _mm256_loadu_ps(p) : _mm256_maskz_loadu_ps((__mmask8)((1u << n) - 1), p));
#elif defined(__AVX2__)
    const __m128i kept = _mm_cmpgt_epi32(_mm_set1_epi32((int)n), _mm_setr_epi32(0, 1, 2, 3));
    return (doubles)_mm256_cvtps_pd(n >= DOUBLES ? _mm_loadu_ps(p) : _mm_maskload_ps(p, kept));
#else
    narrow_doubles f = {0};
    if (n >= DOUBLES) f = *(const narrow_doubles_u *)p;
    else memcpy(&f, p, n * sizeof(float));
    return __builtin_convertvector(f, doubles);
#endif
}

/* Those of a but the first, then the first of those after. */
static inline doubles next_doubles(doubles a, doubles after) {
    double_words at;
    for (int l = 0; l < DOUBLES; l++) at[l] = l + 1;
    return __builtin_shuffle(a, after, at);
}

static inline doubles keep_doubles(doubles v, const void *mask) { return (doubles)((double_words)v & *(const double_words *)mask); }

/* Cut to what a float has, its last bit set if anything was lost: rounding that to 16 bits rounds once. */
static inline doubles odd_doubles(doubles v) {
    const double_words lost = (double_words){0} + ((1 << 29) - 1), bits = (double_words)v;
    return (doubles)((((bits & lost) + lost) | bits) & ~lost);
}

/* a / b, of floats and whole numbers b, to be rounded to a float or less: `quotient` of pool_spread.pyx. */
static inline doubles quotients(doubles a, doubles b, doubles inverse) {
#if defined(__AVX512F__)
    const __m512d rough = (__m512d)(a * inverse), left = _mm512_fnmadd_pd(rough, (__m512d)b, (__m512d)a);
    return (doubles)_mm512_mask3_fmadd_pd(left, (__m512d)inverse, rough, _mm512_cmp_pd_mask(left, left, _CMP_ORD_Q));
#elif defined(__FMA__)
    const __m256d rough = (__m256d)(a * inverse), left = _mm256_fnmadd_pd(rough, (__m256d)b, (__m256d)a);
    return (doubles)_mm256_blendv_pd(rough, _mm256_fmadd_pd(left, (__m256d)inverse, rough), _mm256_cmp_pd(left, left, _CMP_ORD_Q));
#else
    (void)inverse;
    return a / b;
#endif
}

/* A vector of reals or doubles, each of which is one of a vector a or of b, as `words` say, of which `set_pick` fills that of a lane: `size` bytes. */
#if defined(__AVX512F__) || defined(__aarch64__)
static inline vec pick_reals(vec a, vec b, const void *words) { return __builtin_shuffle(a, b, *(const lane_indices *)words); }
static inline doubles pick_doubles(doubles a, doubles b, const void *words) { return __builtin_shuffle(a, b, *(const double_words *)words); }
static inline void set_pick(void *words, int64_t size, int64_t lane, int64_t number, int second) {
    if (size == 4) ((int32_t *)words)[lane] = (int32_t)(number + second * (VECTOR_BYTES / 4));
    else ((int64_t *)words)[lane] = number + second * DOUBLES;
}
#elif defined(__AVX2__)
static inline vec pick_reals(vec a, vec b, const void *words) {
    const __m256i at = _mm256_load_si256((const __m256i *)words);
    return (vec)_mm256_blendv_ps(_mm256_permutevar8x32_ps((__m256)a, at), _mm256_permutevar8x32_ps((__m256)b, at), (__m256)at);
}
static inline doubles pick_doubles(doubles a, doubles b, const void *words) { return (doubles)pick_reals((vec)a, (vec)b, words); }
static inline void set_pick(void *words, int64_t size, int64_t lane, int64_t number, int second) {
    for (int64_t i = 0, n = size / 4; i < n; i++) ((uint32_t *)words)[lane * n + i] = (uint32_t)(number * n + i) | (uint32_t)second << 31;
}
#else
static inline vec pick_reals(vec a, vec b, const void *words) {
    const lane_index *at = (const lane_index *)words;
    vec v;
    for (int l = 0; l < VL; l++) v[l] = at[l] < 0 ? b[~at[l]] : a[at[l]];
    return v;
}
static inline doubles pick_doubles(doubles a, doubles b, const void *words) {
    const int64_t *at = (const int64_t *)words;
    doubles v;
    for (int l = 0; l < DOUBLES; l++) v[l] = at[l] < 0 ? b[~at[l]] : a[at[l]];
    return v;
}
static inline void set_pick(void *words, int64_t size, int64_t lane, int64_t number, int second) {
    if (size == 4) ((int32_t *)words)[lane] = (int32_t)(second ? ~number : number);
    else ((int64_t *)words)[lane] = second ? ~number : number;
}
#endif
