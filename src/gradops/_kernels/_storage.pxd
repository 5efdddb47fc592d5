# cython: language_level=3, cdivision=True
"""Storage dtypes: the one place that knows them. `widen` reads any of them into `real`, `narrow` rounds once on the way out."""
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t, uint16_t, uint32_t
from _problem cimport divide_up, larger, smaller


cdef extern from "kernels.h" nogil:
    ctypedef double real
    ctypedef double vec
    ctypedef long lane_index
    bint is_intel()
    int64_t cache_ways()
    const int VL, NV, NR, MR, TILE, LINE, LANE, PAIR, PACKED_STORAGE, REAL_STORAGE, REAL_PAIR, WIDE, FUSED, MOST_STEP
    vec load(const real *p)
    vec load_once(const real *p)
    vec spread(const real *p)
    vec spread_once(const real *p)
    vec load_stored(int storage, const char *p)
    vec load_stored_twins(int storage, const char *a, const char *b)
    void load_stored_both(int storage, const char *a, const char *b, vec *both)
    vec every_stored(int storage, bint odd, const vec *both)
    void store_stored(int storage, char *dst, int64_t n, vec v)
    void store_stored_twins(int storage, char *a, char *b, int64_t n, vec v)
    void store_stored_pairs(int storage, char *dst, int64_t n, vec even, vec odd)
    void store_stored_twin_pairs(int storage, char *a, char *b, int64_t n, vec even, vec odd)
    void load_wide(int held, const char *p, vec *v)
    void store_wide(int held, char *p, const vec *v)
    const real *unknown(const real *p)
    void store(real *p, vec v)
    vec zero()
    void lane_mask(int64_t low, int64_t high, real *mask)
    vec keep(vec v, vec mask)
    vec exchange(vec v, int distance)
    vec multiply_add(real a, vec b, vec sum)
    vec multiply_add_lanes(vec a, vec b, vec sum)
    void add_lanes(const vec *v, bint accumulate, real *dst, uint32_t lanes)
    void pair_columns(real *block, int64_t rows, int64_t cols, int64_t ld)
    void pair_rows(real *block, int64_t rows, int64_t cols, int64_t ld)
    void pair_lines(const char *src, int64_t row, int64_t rows, int64_t cols, real *dst, int64_t ld)
    void pair_before(const real *src, int64_t rows, int64_t ld, real *dst)
    bint pairs_finite(const real *src, int64_t n)
    void pair_ahead(real *row, int64_t n, int64_t distance)
    void place_pairs(const char *one, int64_t low, int64_t high, const char *two, int64_t two_low, int64_t two_high, int64_t row, int64_t rows, int step, int64_t n, real *dst, int64_t ld)
    void place_halves(const char *src, int64_t row, int64_t rows, int step, int64_t low, int64_t high, int64_t n, char *dst, int64_t ld)
    void clear_halves(int64_t rows, int64_t n, char *dst, int64_t ld)
    ctypedef struct Sums:
        real *at
    void begin_tiles(int rows, int steps)
    void end_tiles()
    void zero_sums()
    void add_product(bint high, bint wide, int64_t rows, const real *a, int64_t lda, const real *b, int64_t ldb)
    void resume_sums(bint high, bint wide, int64_t rows, const real *c, int64_t ldc)
    void take_sums(bint high, bint wide, int64_t rows, real *c, int64_t ldc)
    void edge_of_rows(const real *a, int64_t lda, int rows, int64_t steps, real *edge)
    void edge_of_steps(const real *b, int64_t ldb, bint wide, int64_t steps, real *edge)
    void prefetch_now(const void *p)
    void prefetch_soon(const void *p)
    void prefetch_to_write(const void *p)
    void settle()
    void settle_past()
    void store_past(real *p, vec v)
    void store_wide_past(int held, char *p, const vec *v)
    void transpose(const real *src, int64_t src_ld, real *dst, int64_t dst_ld)
    void transpose_some(const real *src, int64_t src_ld, int64_t rows, int64_t cols, real *dst, int64_t dst_ld)
    void pick(const real *channels, const lane_index *first, const lane_index *offset, int64_t vectors, real *dst, int64_t plane)
    void copy(const real *src, int64_t n, real *dst)
    void copy_every(int step, const real *src, int64_t n, real *dst)
    void copy_rows_every(int step, const real *src, int64_t src_ld, int64_t rows, int64_t n, real *dst, int64_t ld)
    vec even_lanes(vec a, vec b)
    vec odd_lanes(vec a, vec b)
    vec twin_lanes(vec a, vec b)
    vec upper_half(vec v)
    vec load_twins(const real *a, const real *b)
    vec spread_twins(const real *a, const real *b)
    vec pair_lanes(vec even, vec odd, int begin)
    vec load_some(const real *src, int64_t n)
    void store_some(real *dst, int64_t n, vec v)
    void store_pair(real *dst, vec even, vec odd)
    void store_some_pairs(real *dst, int64_t n, vec even, vec odd)
    void store_narrowed(char *dst, vec v)
    void store_narrowed_pair(char *dst, vec low, vec high)
    int infinities(vec v)
    void narrow_rows(const real *src, int64_t ld, int64_t rows, int64_t cols, char *dst, int64_t row)
    void store_every(int step, const real *src, int64_t n, real *dst)
    void store_even_halves(const uint16_t *src, int64_t n, uint16_t *dst)
    void interleave_lines(int step, const real *src, int64_t distance, int64_t n, real *dst)
    void store_woven(int step, real *dst, int64_t n, const vec *lines)
    vec every_lane(int step, int first, const vec *cells)
    void interleave(const real *even, const real *odd, int64_t n, real *dst)
    void clear(real *dst, int64_t n)
    bint rows_finite(const real *src, int64_t ld, int64_t rows, int64_t n)
    bint all_finite(const real *src, int64_t n)
    void widen_float16s(const uint16_t *src, int64_t n, float *dst)
    void narrow_float16s(const float *src, int64_t n, uint16_t *dst)
    void widen_bfloat16s(const uint16_t *src, int64_t n, float *dst)
    void widen_every(bint bfloat, int step, const char *src, int64_t n, real *dst)
    void narrow_bfloat16s(const float *src, int64_t n, uint16_t *dst)
    vec pair_narrowed(bint bfloat, vec low, vec high)
    void widen_pair(bint bfloat, vec both, real *low, real *high)
    void copy_halves(const void *src, int64_t n, void *dst)


cdef extern from *:                                     # storage_blocks.pyx, built for the same level and precision
    """
    #define GRADOPS_NAME(module) GRADOPS_TEXT(module)
    #define GRADOPS_TEXT(module) "gradops._kernels." #module
    #define STORAGE_BLOCKS GRADOPS_NAME(GRADOPS_STORAGE)
    static void (*widen_lent)(int, const char *, int64_t, int64_t, int64_t, int64_t, real *, int64_t);
    static void (*narrow_lent)(int, const real *, int64_t, int64_t, int64_t, char *, int64_t, int64_t);
    static void keep_lent(void *widen, void *narrow) { *(void **)&widen_lent = widen, *(void **)&narrow_lent = narrow; }
    """
    const char *STORAGE_BLOCKS
    void widen_lent(int storage, const char *src, int64_t src_row, int64_t src_col, int64_t rows, int64_t cols, real *dst, int64_t ld) noexcept nogil
    void narrow_lent(int storage, const real *src, int64_t ld, int64_t rows, int64_t cols, char *dst, int64_t dst_row, int64_t dst_col) noexcept nogil
    void keep_lent(void *widen, void *narrow)


cdef extern from "Python.h":
    object PyImport_ImportModule(const char *name)


cdef inline object lent(void *function):
    return PyCapsule_New(function, "gradops.lent", NULL)


cdef inline int borrow_blocks() except -1:
    """Finds what widen_block and narrow_block call: every kernel that does has to, once, when it is imported."""
    cdef object lender = PyImport_ImportModule(STORAGE_BLOCKS)
    keep_lent(PyCapsule_GetPointer(lender.widen_blocks, "gradops.lent"), PyCapsule_GetPointer(lender.narrow_blocks, "gradops.lent"))
    return 0


cdef enum Storage:                                      # as in gradops._arrays.STORAGE
    FLOAT16 = 0
    BFLOAT16 = 1
    FLOAT32 = 2
    FLOAT64 = 3


cdef inline bint is_float16(int storage) noexcept nogil:
    """No kernel that multiplies pairs of bfloat16 is given any, nor one of float64."""
    return sizeof(real) == 4 and PAIR == 1 and storage == FLOAT16


cdef inline bint has_halves(int storage) noexcept nogil:
    """Whether numbers have 16 bits: no kernel of float64 is given any, and needs no code for them."""
    return sizeof(real) == 4 and storage < FLOAT32


cdef inline int64_t item_size(int storage) noexcept nogil:
    return 2 if has_halves(storage) else 4 if storage == FLOAT32 else 8


cdef inline void fetch_lines(const char *at, int64_t size, bint write) noexcept nogil:
    """Fetches the cache lines of so many bytes, which are going to be read, or written. `write` is a compile-time constant of the caller."""
    cdef int64_t i
    for i in range(divide_up(size, LINE)):
        if write:
            prefetch_to_write(at + i * LINE)
        else:
            prefetch_soon(at + i * LINE)


cdef inline void widen(int storage, const char *src, int64_t n, real *dst) noexcept nogil:
    """dst[0:n] = src[0:n], both contiguous."""
    if is_float16(storage):
        widen_float16s(<const uint16_t *> src, n, <float *> dst)
    elif has_halves(storage):
        widen_bfloat16s(<const uint16_t *> src, n, <float *> dst)
    else:
        copy(<const real *> src, n, dst)


cdef inline void narrow(int storage, const real *src, int64_t n, char *dst) noexcept nogil:
    """dst[0:n] = src[0:n], both contiguous, rounded to nearest even."""
    if is_float16(storage):
        narrow_float16s(<const float *> src, n, <uint16_t *> dst)
    elif has_halves(storage):
        narrow_bfloat16s(<const float *> src, n, <uint16_t *> dst)
    else:
        copy(src, n, <real *> dst)


cdef inline void widen_every_stored(int storage, int step, const char *src, int64_t n, real *dst) noexcept nogil:
    """widen_strided where the step is a constant, 2 to 4."""
    if has_halves(storage):
        widen_every(not is_float16(storage), step, src, n, dst)
    else:
        copy_every(step, <const real *> src, n, dst)


cdef inline void widen_strided(int storage, const char *src, int64_t step, int64_t n, real *dst) noexcept nogil:
    """dst[i] = src[i step] for i < n. What is not far apart is read with what lies between."""
    cdef int64_t i
    if step == 1:
        widen(storage, src, n, dst)
    elif step == 2:
        widen_every_stored(storage, 2, src, n, dst)
    elif step == 3:
        widen_every_stored(storage, 3, src, n, dst)
    elif step == 4:
        widen_every_stored(storage, 4, src, n, dst)
    elif has_halves(storage):
        for i in range(n):
            widen(storage, src + i * step * 2, 1, dst + i)
    else:
        for i in range(n):
            dst[i] = (<const real *> src)[i * step]


cdef inline void narrow_strided(int storage, const real *src, int64_t n, char *dst, int64_t step) noexcept nogil:
    """dst[i step] = src[i] for i < n."""
    cdef int64_t i, some
    cdef uint16_t[64] block
    if not has_halves(storage) and step == 2:
        store_every(2, src, n, <real *> dst)
        return
    if not has_halves(storage) and step == 3:
        store_every(3, src, n, <real *> dst)
        return
    if not has_halves(storage):
        for i in range(n):
            (<real *> dst)[i * step] = src[i]
        return
    while n > 0:
        some = smaller(n, 64)
        narrow(storage, src, some, <char *> block)
        if step == 2:
            store_even_halves(block, some, <uint16_t *> dst)
        else:
            for i in range(some):
                (<uint16_t *> dst)[i * step] = block[i]
        src, dst, n = src + some, dst + some * step * 2, n - some


cdef inline void narrow_in_turns(int storage, const real *even, const real *odd, int64_t n, char *dst) noexcept nogil:
    """dst[2 i] = even[i] and dst[2 i + 1] = odd[i] for i < n. Reads up to a multiple of VL."""
    cdef int64_t whole = n // VL * VL, i
    cdef bint bfloat = not is_float16(storage)
    if not has_halves(storage):
        interleave(even, odd, n, <real *> dst)
        return
    for i in range(n // VL):
        store(<real *> dst + i * VL, pair_narrowed(bfloat, load(even + i * VL), load(odd + i * VL)))
    if whole < n:
        store_some(<real *> dst + whole, n - whole, pair_narrowed(bfloat, load(even + whole), load(odd + whole)))


cdef inline void widen_block(int storage, const char *src, int64_t src_row, int64_t src_col, int64_t rows, int64_t cols, real *dst, int64_t ld) noexcept nogil:
    """dst[r ld + c] = src[r src_row + c src_col]: contiguous rows are copied, contiguous columns transposed in registers."""
    cdef int64_t r
    if src_col == 1 and cols == VL and storage == REAL_STORAGE:
        for r in range(rows):
            store(dst + r * ld, load(<const real *> src + r * src_row))
    else:
        widen_lent(storage, src, src_row, src_col, rows, cols, dst, ld)


cdef inline void narrow_block(int storage, const real *src, int64_t ld, int64_t rows, int64_t cols, char *dst, int64_t dst_row, int64_t dst_col) noexcept nogil:
    """dst[r dst_row + c dst_col] = src[r ld + c], the inverse of widen_block."""
    narrow_lent(storage, src, ld, rows, cols, dst, dst_row, dst_col)
