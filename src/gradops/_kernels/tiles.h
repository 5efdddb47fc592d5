/* Tiles of pairs, which a single instruction multiplies (AMX). */
#pragma once

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
