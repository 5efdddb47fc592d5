/* Vectors and register tiles of an ISA level, hints to its caches, and transpositions. */
#pragma once

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

/* Hints that the cache line at p, which need not exist, is wanted in the first cache, in the second one, or is to be written in the next moment.
 * What is written later is wanted in the second one, too: in the first it takes the place of what is read meanwhile. Were they functions for even one pass of a
 * compiler, it might leave out some calls, as of what changes nothing. */
static inline __attribute__((always_inline)) void prefetch_now(const void *p) { __builtin_prefetch(p, 0, 3); }
static inline __attribute__((always_inline)) void prefetch_soon(const void *p) { __builtin_prefetch(p, 0, 2); }
static inline __attribute__((always_inline)) void prefetch_to_write(const void *p) { __builtin_prefetch(p, 1, 3); }

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

/* The number at p in all lanes. */
static inline vec spread(const real *p) { return *p - (vec){0}; }

/* For vectors with several uses: load, and spread. */
static inline vec load_once(const real *p) { return in_register(load(p)); }
static inline vec spread_once(const real *p) { return in_register(spread(p)); }

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
