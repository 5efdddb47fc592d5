/* The only C of gradops: vector types and register-tile sizes of each ISA level, and 16-bit floating point conversion.
 *
 * GRADOPS_REAL_f64 selects the precision that a module computes in, GRADOPS_REAL_bf16 that it multiplies bfloat16 and adds in float32;
 * the compiler's target selects everything else, and whether the CPU has tiles (AMX), which multiply nothing else here.
 */
#ifndef GRADOPS_KERNELS_H
#define GRADOPS_KERNELS_H

#include <stdint.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif
#if defined(__F16C__) || defined(__AVX512BF16__)
#include <immintrin.h>
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

/* Vectors: `vec` is one register of `real`; `vecu` the same at any address. MR x NV accumulators leave registers for operands. */

#ifdef GRADOPS_REAL_f64
typedef double real;
typedef int64_t lane_index;
#else
typedef float real;
typedef int32_t lane_index;
#endif

#if defined(GRADOPS_REAL_bf16) && defined(__AMX_BF16__)
enum { VECTOR_BYTES = 64, MR = 32, TILE = 16 };
#elif defined(__AVX512F__)
enum { VECTOR_BYTES = 64, MR = 14, TILE = 1 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, MR = 6, TILE = 1 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, MR = 14, TILE = 1 };
#else
enum { VECTOR_BYTES = 16, MR = 6, TILE = 1 };
#endif

enum { REAL_STORAGE = sizeof(real) / 4 + 1 };                /* FLOAT32 or FLOAT64 of _storage.pxd */
enum { VL = VECTOR_BYTES / sizeof(real), NV = 2, NR = NV * VL };
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
enum { FUSED = 1 };                                          /* whether fma() is an instruction */
#else
enum { FUSED = 0 };
#endif
enum { LINE = 64 };                                          /* bytes of a cache */

typedef real vec __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef real vecu __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
typedef lane_index lane_indices __attribute__((vector_size(VECTOR_BYTES)));
typedef lane_index lane_indices_u __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(lane_index)), may_alias));

static inline vec load(const real *p) { return *(const vecu *)p; }
static inline void store(real *p, vec v) { *(vecu *)p = v; }

/* A vector that is an aligned cache line, past all caches: memory is not read for the rest of the line then. Other threads see it after `settle_past`. */
#if defined(__AVX512F__)
static inline void store_past(real *p, vec v) { _mm512_stream_si512((void *)p, (__m512i)v); }
static inline void settle_past(void) { _mm_sfence(); }
#else
static inline void store_past(real *p, vec v) { store(p, v); }
static inline void settle_past(void) { }
#endif
static inline vec zero(void) { return (vec){0}; }

/* How many lines of one set the first data cache holds; the 8 that most have, where the system does not say. */
static inline int64_t cache_ways(void) {
#ifdef _SC_LEVEL1_DCACHE_ASSOC
    int64_t ways = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
    return ways > 0 ? ways : 8;
#else
    return 8;
#endif
}

/* Whether the CPU is one of Intel's, whose second cache delivers half as many lines as AMD's. */
static inline int is_intel(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    unsigned level, ebx, ecx, edx;
    return __get_cpuid(0, &level, &ebx, &ecx, &edx) && ebx == signature_INTEL_ebx && ecx == signature_INTEL_ecx && edx == signature_INTEL_edx;
#else
    return 0;
#endif
}

/* Whether the CPU is one of Intel's that have AVX512-FP16, all since Sapphire Rapids: a dot product of pairs of bfloat16 takes them four times as long as a
   multiply-add of a vector of float32, and does the work of two. */
static inline int has_slow_dots(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    unsigned eax, ebx, ecx, edx;
    enum { AVX512_FP16 = 1 << 23 };
    return is_intel() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & AVX512_FP16);
#else
    return 0;
#endif
}

/* Blocks of work that threads take from each other: see _blocks.pxd. A cache line each. */
enum { SHARES = 64 };
typedef struct { int64_t next, end; char apart[64 - 2 * sizeof(int64_t)]; } Share;
static inline int64_t take_block(Share *share) { return __atomic_fetch_add(&share->next, 1, __ATOMIC_RELAXED); }

/* Until all threads of a parallel region are here. */
static inline void wait_for_team(void) {
#if defined(_OPENMP)
#pragma omp barrier
#endif
}

/* Hints that the cache line at p, which need not exist, is wanted in the first cache, in the second one, or is to be written in the next moment.
 * What is written later is wanted in the second one, too: in the first it takes the place of what is read meanwhile. */
static inline void prefetch_now(const void *p) { __builtin_prefetch(p, 0, 3); }
static inline void prefetch_soon(const void *p) { __builtin_prefetch(p, 0, 2); }
static inline void prefetch_to_write(const void *p) { __builtin_prefetch(p, 1, 3); }

/* What is written is in memory then: before a tile is loaded from it, and after one is stored, which the intrinsics do not tell. A function that does nothing else than
 * fetch has to say so, too, or compilers leave out its calls. */
static inline void settle(void) { __asm__ volatile("" ::: "memory"); }

/* v, in a register, where the compiler would rather read memory for each use. */
static inline vec in_register(vec v) {
#if defined(__x86_64__)
    __asm__("" : "+v"(v));
#elif defined(__aarch64__)
    __asm__("" : "+w"(v));
#endif
    return v;
}

/* For vectors with several uses: load, and the number at p in all lanes. */
static inline vec load_once(const real *p) { return in_register(load(p)); }
static inline vec spread_once(const real *p) { return in_register(*p - (vec){0}); }

/* A mask holds all bits of a number where low <= l < high, and none elsewhere; `keep` v there, and zero elsewhere. */
static inline void lane_mask(int64_t low, int64_t high, real *mask) {
    lane_indices bits;
    for (int l = 0; l < VL; l++) bits[l] = low <= l && l < high ? -1 : 0;
    store(mask, (vec)bits);
}
static inline vec keep(vec v, vec mask) { return (vec)((lane_indices)v & (lane_indices)mask); }

/* v with every two lanes that are `distance` apart, a power of two, in each other's place. */
static inline vec exchange(vec v, int distance) {
    lane_indices at;
    for (int i = 0; i < VL; i++) at[i] = (i ^ distance) % VL;
    return __builtin_shuffle(v, at);
}

/* p, of which the compiler knows nothing: so that it adds offsets when they are needed instead of keeping the sums in memory. */
static inline const real *unknown(const real *p) {
#if defined(__GNUC__)
    __asm__("" : "+r"(p));
#endif
    return p;
}

/* The function f, of which the compiler knows nothing: so that its one body is called, where each caller would have a copy of it. */
static inline void *called(void *f) {
#if defined(__GNUC__)
    __asm__("" : "+r"(f));
#endif
    return f;
}

/* rows[r][c] and rows[c][r] change places for r, c < VL. First the 16-byte lanes of each group of LANE rows are transposed by interleaving
 * elements, then the lanes of rows that are LANE apart by parting even from odd ones: shuffles within lanes and of lanes are the cheapest. */
enum { LANE = 16 / sizeof(real), LANES = VL / LANE };

static inline void turn(vec *rows) {
    lane_indices low, high, even, odd;
    vec next[VL];
    for (int i = 0; i < VL; i++) {
        low[i] = i / LANE * LANE + i % LANE / 2 + i % 2 * VL;
        high[i] = low[i] + LANE / 2;
        even[i] = i / LANE * 2 * LANE + i % LANE;
        odd[i] = even[i] + LANE;
    }
    for (int round = 1; round < LANE; round *= 2) {
        for (int i = 0; i < VL; i += LANE) {
            for (int k = 0; k < LANE / 2; k++) {
                next[i + 2 * k] = __builtin_shuffle(rows[i + k], rows[i + k + LANE / 2], low);
                next[i + 2 * k + 1] = __builtin_shuffle(rows[i + k], rows[i + k + LANE / 2], high);
            }
        }
        for (int i = 0; i < VL; i++) rows[i] = next[i];
    }
    for (int round = 1; round < LANES; round *= 2) {
        for (int k = 0; k < LANE; k++) {
            for (int i = 0; i < LANES / 2; i++) {
                next[i * LANE + k] = __builtin_shuffle(rows[2 * i * LANE + k], rows[(2 * i + 1) * LANE + k], even);
                next[(i + LANES / 2) * LANE + k] = __builtin_shuffle(rows[2 * i * LANE + k], rows[(2 * i + 1) * LANE + k], odd);
            }
        }
        for (int i = 0; i < VL; i++) rows[i] = next[i];
    }
}

/* dst[c dst_ld + r] = src[r src_ld + c] for r, c < VL. */
static __attribute__((noinline)) void transpose(const real *src, int64_t src_ld, real *dst, int64_t dst_ld) {
    vec rows[VL];
    for (int i = 0; i < VL; i++, src += src_ld) rows[i] = load(src);
    turn(rows);
    for (int i = 0; i < VL; i++, dst += dst_ld) store(dst, rows[i]);
}

/* dst[v plane + l] = channels[first[v] + offset[v VL + l]] for l < VL, and 0 where offset is negative. Reads VL channels from first[v] on. */
static inline void pick(const real *channels, const lane_index *first, const lane_index *offset, int64_t vectors, real *dst, int64_t plane) {
    for (int64_t v = 0; v < vectors; v++, dst += plane) {
        lane_indices at = *(const lane_indices_u *)(offset + v * VL);
        store(dst, (vec)((lane_indices)__builtin_shuffle(load(channels + first[v]), at) & (at >= 0)));
    }
}

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
    narrow_doubles f = {0};
    if (n >= DOUBLES) f = *(const narrow_doubles_u *)p;
    else memcpy(&f, p, n * sizeof(float));
#if defined(__AVX512F__)
    return (doubles)_mm512_cvtps_pd((__m256)f);
#elif defined(__AVX__)
    return (doubles)_mm256_cvtps_pd((__m128)f);
#else
    return __builtin_convertvector(f, doubles);
#endif
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

/* A vector of reals or doubles, each of which is one of a vector at a or of one at b, as `words` say, of which `set_pick` fills that of a lane: `size` bytes. */
#if defined(__AVX512F__) || defined(__aarch64__)
static inline vec pick_reals(const real *a, const real *b, const void *words) {
    return __builtin_shuffle(load(a), load(b), *(const lane_indices *)words);
}
static inline doubles pick_doubles(const double *a, const double *b, const void *words) {
    return __builtin_shuffle(load_doubles(a), load_doubles(b), *(const double_words *)words);
}
static inline void set_pick(void *words, int64_t size, int64_t lane, int64_t number, int second) {
    if (size == 4) ((int32_t *)words)[lane] = (int32_t)(number + second * (VECTOR_BYTES / 4));
    else ((int64_t *)words)[lane] = number + second * DOUBLES;
}
#elif defined(__AVX2__)
static inline vec pick_reals(const real *a, const real *b, const void *words) {
    const __m256i at = _mm256_load_si256((const __m256i *)words);
    const __m256 first = _mm256_permutevar8x32_ps(_mm256_loadu_ps((const float *)a), at), second = _mm256_permutevar8x32_ps(_mm256_loadu_ps((const float *)b), at);
    return (vec)_mm256_blendv_ps(first, second, (__m256)at);
}
static inline doubles pick_doubles(const double *a, const double *b, const void *words) {
    return (doubles)pick_reals((const real *)a, (const real *)b, words);
}
static inline void set_pick(void *words, int64_t size, int64_t lane, int64_t number, int second) {
    for (int64_t i = 0, n = size / 4; i < n; i++) ((uint32_t *)words)[lane * n + i] = (uint32_t)(number * n + i) | (uint32_t)second << 31;
}
#else
static inline vec pick_reals(const real *a, const real *b, const void *words) {
    const lane_index *at = (const lane_index *)words;
    vec v;
    for (int l = 0; l < VL; l++) v[l] = at[l] < 0 ? b[~at[l]] : a[at[l]];
    return v;
}
static inline doubles pick_doubles(const double *a, const double *b, const void *words) {
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

/* Asks for huge pages, as NumPy does for its arrays. A hint: what fails is ignored. */
static inline void use_huge_pages(void *memory, size_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    (void)madvise(memory, size, MADV_HUGEPAGE);
#endif
}

/* The slab that is kept, NULL if none is, replaced by another one; for any number of threads. */
static void *kept_slab;
static inline void *swap_kept(void *slab) { return __atomic_exchange_n(&kept_slab, slab, __ATOMIC_ACQ_REL); }

/* sum + a b, of one number a or of as many as b has. Where operands are bfloat16, each lane of a and b is a pair of them, neighbours along the sum, whose two
 * products are added, subnormal numbers counting as zero; PAIR is how many. A packed block of reals becomes one of pairs in its own memory, row by row; an odd one out gets a zero beside it. */
#ifdef GRADOPS_REAL_bf16

enum { PAIR = 2, PACKED_STORAGE = 1 };                       /* what packed operands are as they lie: BFLOAT16 of _storage.pxd */
typedef uint16_t halves __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
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

/* src[i step] for i < 2 VL where `some` has i, else 0, of bfloat16; step is 1 or 2. */
static inline halves take_halves(const char *src, int step, __mmask32 some) {
    if (step == 1) return (halves)_mm512_maskz_loadu_epi16(some, src);
    const uint64_t every = _pdep_u64(some, 0x5555555555555555u);
    halves even;
    for (int i = 0; i < 2 * VL; i++) even[i] = 2 * i;
    return __builtin_shuffle((halves)_mm512_maskz_loadu_epi16((__mmask32)every, src), (halves)_mm512_maskz_loadu_epi16((__mmask32)(every >> 2 * VL), src + sizeof(halves)), even);
}

/* Which i + j of 2 VL lie in low <= i + j < high. */
static inline __mmask32 inside(int64_t i, int64_t low, int64_t high) {
    const uint32_t below = high - i >= 2 * VL ? ~0u : high > i ? (1u << (high - i)) - 1 : 0;
    return below & (low <= i ? ~0u : low - i < 2 * VL ? ~0u << (low - i) : 0);
}

/* dst[r ld + i / 2] = src[r][i step] for low <= i < high, else 0, for i < n: rows of bfloat16, `row` bytes apart, of which each two become a pair. */
static inline void place_halves(const char *src, int64_t row, int64_t rows, int step, int64_t low, int64_t high, int64_t n, char *dst, int64_t ld) {
    for (int64_t i = 0; i < n; i += 2 * VL) {
        const __mmask32 to = inside(i, 0, n), from = inside(i, low, high);
        const char *lies = src + 2 * i * step;
        char *at = dst + 2 * i;
        if (step == 1)
            for (int64_t r = 0; r < rows; r++, lies += row, at += ld * sizeof(real)) _mm512_mask_storeu_epi16(at, to, (__m512i)take_halves(lies, 1, from));
        else
            for (int64_t r = 0; r < rows; r++, lies += row, at += ld * sizeof(real)) _mm512_mask_storeu_epi16(at, to, (__m512i)take_halves(lies, 2, from));
    }
}

enum { LONG = 4 };                                           /* strips of 2 VL numbers, at least */

/* place_pairs for one strip: i.. of n for all rows. */
static inline void place_some_pairs(const char *one, int64_t low, int64_t high, const char *two, int64_t two_low, int64_t two_high, int64_t row, int64_t rows, int step, int64_t i, int64_t n, real *dst, int64_t ld) {
    const __mmask32 to = inside(i, 0, n), from = inside(i, low, high), two_from = inside(i, two_low, two_high);
    const int64_t at = 2 * i * step;
    if (step == 1)
        for (int64_t r = 0; r < rows; r++) store_pairs(take_halves(one + r * row + at, 1, from), take_halves(two + r * row + at, 1, two_from), to, dst + r * ld + i);
    else
        for (int64_t r = 0; r < rows; r++) store_pairs(take_halves(one + r * row + at, 2, from), take_halves(two + r * row + at, 2, two_from), to, dst + r * ld + i);
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
    for (int64_t i = first; i < n; i += 2 * VL) place_some_pairs(one, low, high, two, two_low, two_high, row, rows, step, i, n, dst, ld);
}

#else

enum { PAIR = 1, PACKED_STORAGE = REAL_STORAGE };
static inline void place_halves(const char *src, int64_t row, int64_t rows, int step, int64_t low, int64_t high, int64_t n, char *dst, int64_t ld) {}
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

/* Tiles: registers of TILE rows of 64 bytes. Two of them have the pairs of TILE rows of a and of TILE rows of b, which one instruction multiplies; MR x NR sums are
 * four. TILE is 1 where there are none. A product's rows of a that fill no tile, and the steps along the sum that do not, go through an *edge*. */
typedef struct { real at[MR * NR] __attribute__((aligned(64))); } Sums;

#if defined(GRADOPS_REAL_bf16) && defined(__AMX_BF16__)

/* Of sums and a so many rows, of which those of a have so many steps. */
static inline void begin_tiles(int rows, int steps) {
    struct { uint8_t palette, row, unused[14]; uint16_t bytes[16]; uint8_t rows[16]; } shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.bytes[i] = i / 2 == 2 ? steps * sizeof(real) : 64;
        shapes.rows[i] = i < 6 ? rows : steps;
    }
    settle();
    _tile_loadconfig(&shapes);
}
static inline void end_tiles(void) { _tile_release(); }

static inline void zero_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* sums += a b for as many steps as tiles have, a having more than a tile's rows if it is high, and b two vectors if it is wide. */
static inline void add_product(int high, int wide, int64_t rows, const real *a, int64_t lda, const real *b, int64_t ldb) {
    lda *= sizeof(real);
    ldb *= sizeof(real);
    settle();
    _tile_loadd(4, a, lda);
    _tile_loadd(6, b, ldb);
    _tile_dpbf16ps(0, 4, 6);
    if (wide) {
        _tile_loadd(7, b + VL, ldb);
        _tile_dpbf16ps(1, 4, 7);
    }
    if (high) {
        _tile_loadd(5, (const char *)a + rows * lda, lda);
        _tile_dpbf16ps(2, 5, 6);
        if (wide) _tile_dpbf16ps(3, 5, 7);
    }
}

/* Sums of whole tiles in memory: to go on from, and as they have become. */
static inline void resume_sums(int high, int wide, int64_t rows, const real *c, int64_t ldc) {
    const char *lower = (const char *)(c + rows * ldc);
    ldc *= sizeof(real);
    settle();
    _tile_loadd(0, c, ldc);
    if (wide) _tile_loadd(1, c + VL, ldc);
    if (high) {
        _tile_loadd(2, lower, ldc);
        if (wide) _tile_loadd(3, lower + sizeof(vec), ldc);
    }
}

static inline void take_sums(int high, int wide, int64_t rows, real *c, int64_t ldc) {
    char *lower = (char *)(c + rows * ldc);
    ldc *= sizeof(real);
    _tile_stored(0, c, ldc);
    if (wide) _tile_stored(1, c + VL, ldc);
    if (high) {
        _tile_stored(2, lower, ldc);
        if (wide) _tile_stored(3, lower + sizeof(vec), ldc);
    }
    settle();
}

/* edge[i TILE + k] = a[i lda + k] for i < rows, k < steps, else 0. */
static inline void edge_of_rows(const real *a, int64_t lda, int rows, int64_t steps, real *edge) {
    const __mmask16 some = (__mmask16)((1u << steps) - 1);
    for (int i = 0; i < rows; i++) _mm512_store_ps(edge + i * TILE, _mm512_maskz_loadu_ps(some, a + i * lda));
}

/* edge[k NR + j] = b[k ldb + j] for k < steps, else 0; j < VL, or NR if it is wide. */
static inline void edge_of_steps(const real *b, int64_t ldb, int wide, int64_t steps, real *edge) {
    for (int k = 0; k < TILE; k++) {
        store(edge + k * NR, k < steps ? load(b + k * ldb) : zero());
        if (wide) store(edge + k * NR + VL, k < steps ? load(b + k * ldb + VL) : zero());
    }
}

#else

static inline void begin_tiles(int rows, int steps) {}
static inline void end_tiles(void) {}
static inline void zero_sums(void) {}
static inline void add_product(int high, int wide, int64_t rows, const real *a, int64_t lda, const real *b, int64_t ldb) {}
static inline void resume_sums(int high, int wide, int64_t rows, const real *c, int64_t ldc) {}
static inline void take_sums(int high, int wide, int64_t rows, real *c, int64_t ldc) {}
static inline void edge_of_rows(const real *a, int64_t lda, int rows, int64_t steps, real *edge) {}
static inline void edge_of_steps(const real *b, int64_t ldb, int wide, int64_t steps, real *edge) {}

#endif

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
    vec picked = load_lanes(src, lanes & ((1u << VL) - 1));
    for (int k = 1; k < step; k++) {
        lane_indices at;
        for (int j = 0; j < VL; j++) at[j] = step * j / VL == k ? step * j - (k - 1) * VL : k == 1 && step * j < VL ? step * j : j;
        picked = __builtin_shuffle(picked, load_lanes(src + k * VL, lanes >> k * VL & ((1u << VL) - 1)), at);
    }
    return picked;
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

/* Numbers whose upper halves are v's, rounded. */
static inline float_bits rounded_bfloat16(vec v) {
#if defined(__AVX512F__)
    const __m512i u = (__m512i)v, odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7fff));
    return (float_bits)_mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
#else
    float_bits u = (float_bits)v, is_nan = (float_bits)((float_mask)(u & 0x7fffffff) > 0x7f800000);
    return ((u | 0x400000) & is_nan) | ((u + 0x7fff + ((u >> 16) & 1)) & ~is_nan);
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

static inline void narrow_bfloat16_vector(const float *src, uint16_t *dst) {
    float_bits u = *(const float_bits *)src;
#if defined(__AVX512BF16__)                                     /* one instruction, which takes subnormal numbers for zero */
    if (!_mm512_fpclass_ps_mask((__m512)u, SUBNORMAL)) {
        _mm256_storeu_si256((__m256i *)dst, (__m256i)_mm512_cvtneps_pbh((__m512)u));
        return;
    }
#endif
    *(half_bits *)dst = upper_halves(rounded_bfloat16((vec)u));
}

/* Results of pairs as they are stored, by that instruction alone; which of them it may take for zero. */
#if defined(GRADOPS_REAL_bf16)
static inline void store_narrowed(char *dst, vec v) {
    _mm256_storeu_si256((__m256i *)dst, (__m256i)_mm512_cvtneps_pbh((__m512)v));
}
static inline int subnormals(vec v) { return _mm512_fpclass_ps_mask((__m512)v, SUBNORMAL); }
static inline int infinities(vec v) { return _mm512_fpclass_ps_mask((__m512)v, 0x99); }     /* of either sign, or NaN of either kind */

/* dst[r] = src[r ld + j] for rows of so many sums of tiles, NR at most, `row` bytes apart in dst. No tile adds up to a subnormal number, which would become zero. */
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
static inline int subnormals(vec v) { return (void)v, 0; }
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
            const __m512i after = (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
            return (vec)_mm512_or_si512(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(after)), _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(after, 1)), 16));
        }
#endif
        return (vec)(rounded_bfloat16(low) >> 16 | (rounded_bfloat16(high) & 0xffff0000u));
    }
    narrow_float16_vector((const float *)&low, first);
    narrow_float16_vector((const float *)&high, second);
    return (vec)(__builtin_convertvector(*(const half_bits *)first, float_bits) | __builtin_convertvector(*(const half_bits *)second, float_bits) << 16);
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
        store((real *)p, pair_narrowed(1, v[0], v[1]));
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
        store_past((real *)p, pair_narrowed(1, v[0], v[1]));
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
    return storage == 0 ? (vec)_mm512_cvtph_ps(halves) : (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}
static inline __m256i narrowed(int storage, vec v) {
    return storage == 0 ? _mm512_cvtps_ph((__m512)v, 0) : (__m256i)upper_halves(rounded_bfloat16(v));
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
    GRADOPS_HALVES(storage, _mm512_mask_storeu_epi16(dst, n < 2 * VL ? (1u << n) - 1 : ~0u, (__m512i)pair_narrowed(storage, even, odd)); return;)
    if (n < 2 * VL) store_some_pairs((real *)dst, n, even, odd);
    else store_pair((real *)dst, even, odd);
}
static inline void store_stored_twin_pairs(int storage, char *a, char *b, int64_t n, vec even, vec odd) {
    GRADOPS_HALVES(storage,
        const __m512i words = (__m512i)pair_narrowed(storage, even, odd);
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
    float before[FLOATS];
    uint16_t after[FLOATS];
    _mm512_storeu_ps(before, _mm512_maskz_loadu_ps(first_lanes(n), src));
    narrow_bfloat16_vector(before, after);
    _mm256_mask_storeu_epi16(dst, first_lanes(n), _mm256_loadu_si256((const __m256i *)after));
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

/* dst[i] = src[2 i] for i < n: eight 32-bit words at a time, whose low halves are meant; of the last ones, that begin at an odd place, the high halves;
 * fewer under a mask of halves, or one after the other. */
typedef uint32_t eight_words __attribute__((vector_size(32)));
typedef uint16_t eight_halves __attribute__((vector_size(16)));

static inline void widen_bfloat16_halves(const uint16_t *src, int high, float *dst) {
    eight_words words;
    memcpy(&words, src, sizeof words);
    if (high) words &= 0xffff0000u;
    else words <<= 16;
    memcpy(dst, &words, sizeof words);
}

static inline void widen_float16_halves(const uint16_t *src, int high, float *dst) {
#ifdef __F16C__
    eight_words words;
    memcpy(&words, src, sizeof words);
    if (high) words >>= 16;
    _mm256_storeu_ps(dst, _mm256_cvtph_ps((__m128i)__builtin_convertvector(words & 0xffff, eight_halves)));
#else
    for (int i = 0; i < 8; i++) dst[i] = widen_float16(src[2 * i + high]);
#endif
}

#if defined(__AVX512BW__)
#define GRADOPS_EVEN_PART(what) \
    static inline void what##_even_part(const uint16_t *src, int64_t n, float *dst) { \
        uint16_t before[16]; \
        float after[8]; \
        _mm256_storeu_si256((__m256i *)before, _mm256_maskz_loadu_epi16((__mmask16)((1u << (2 * n - 1)) - 1), src)); \
        what##_halves(before, 0, after); \
        _mm256_mask_storeu_ps(dst, (__mmask8)((1u << n) - 1), _mm256_loadu_ps(after)); \
    }
#else
#define GRADOPS_EVEN_PART(what) \
    static inline void what##_even_part(const uint16_t *src, int64_t n, float *dst) { for (int64_t i = 0; i < n; i++) dst[i] = what(src[2 * i]); }
#endif

#define GRADOPS_CONVERT_EVEN(what) \
    GRADOPS_EVEN_PART(what) \
    static inline void what##_even(const uint16_t *src, int64_t n, float *dst) { \
        for (int64_t i = 0; i + 8 < n; i += 8) what##_halves(src + 2 * i, 0, dst + i); \
        if (n > 8) what##_halves(src + 2 * n - 17, 1, dst + n - 8); \
        else if (n > 0) what##_even_part(src, n, dst); \
    }
GRADOPS_CONVERT_EVEN(widen_bfloat16)
GRADOPS_CONVERT_EVEN(widen_float16)

#endif
