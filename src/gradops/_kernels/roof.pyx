# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""acc = acc x + y in registers (acc + x y of pairs where operands are bfloat16), sum of src, dst = src: the machine's roof of arithmetic and of memory, no op's kernel.

In parallel: one chain of arithmetic per thread; blocks of the arrays. MR x NV accumulators, as in the GEMM, outnumber the latency of a
multiply-add times the units of every CPU that has so many registers. They start from different numbers, so that none can be left out.

*Assumes:* src and dst are contiguous, aligned and of `real`, a multiple of BLOCK long; dst has an element for every block and thread.
"""
from cython.parallel cimport prange
from libc.stdint cimport int64_t
from _entry cimport DONE, exported
from _storage cimport real, vec, VL, NR, NV, MR, PAIR, TILE, Sums, add_product, begin_tiles, end_tiles, load, multiply_add, store, take_sums, zero, zero_sums

cdef enum:
    PEAK = 0                                            # what is measured, as in gradops._bench.roof
    READ = 1
    COPY = 2
    BLOCK = 8192                                        # reals
    SUMS = 8                                            # accumulators of a block that is read


cdef struct Work:                                       # what `compute` is told
    int64_t what, rounds, blocks


cdef void multiply(const real *start, int64_t rounds, real *out) noexcept nogil:
    """A round is MR x NV multiply-adds; `out` gets the sum, so that it has to be computed."""
    cdef vec acc[14][2]
    cdef vec x = load(start), y = load(start + VL), sum = zero()
    cdef int64_t _k
    cdef int i, j
    for i in range(MR):
        for j in range(NV):
            acc[i][j] = load(start + (i * NV + j) * VL)
    for _k in range(rounds):
        for i in range(MR):
            for j in range(NV):
                acc[i][j] = acc[i][j] * x + y if PAIR == 1 else multiply_add(start[0], y, acc[i][j])
    for i in range(MR):
        for j in range(NV):
            sum += acc[i][j]
    for i in range(VL):
        out[0] += (<real *> &sum)[i]


cdef void multiply_tiles(const real *start, int64_t rounds, real *out) noexcept nogil:
    """A round is what four sums of tiles add for TILE steps."""
    cdef Sums sums
    cdef int64_t _k
    for _k in range(MR * NR):                           # operands, where lines of a cache begin
        sums.at[_k] = start[0]
    begin_tiles(TILE, TILE)
    zero_sums()
    for _k in range(rounds):
        add_product(True, True, TILE, sums.at, TILE, sums.at, NR)
    take_sums(True, True, TILE, sums.at, NR)
    end_tiles()
    out[0] = sums.at[0]


cdef void read_block(const real *src, real *out) noexcept nogil:
    cdef vec acc[SUMS]
    cdef int64_t at = 0
    cdef int i
    for i in range(SUMS):
        acc[i] = zero()
    while at < BLOCK:
        for i in range(SUMS):
            acc[i] += load(src + at + i * VL)
        at += SUMS * VL
    for i in range(1, SUMS):
        acc[0] += acc[i]
    out[0] = (<real *> acc)[0]


cdef void copy_block(const real *src, real *dst) noexcept nogil:
    cdef int64_t i
    for i in range(BLOCK // VL):
        store(dst + i * VL, load(src + i * VL))


cdef void multiply_all(const real *start, int64_t rounds, real *out, int threads) noexcept nogil:
    cdef int thread
    for thread in prange(threads, num_threads=threads, schedule="static", chunksize=1, use_threads_if=threads > 1):
        if TILE > 1:
            multiply_tiles(start, rounds, out + thread * 64)
        else:
            multiply(start, rounds, out + thread * 64)


cdef void read_all(const real *src, int64_t blocks, real *out, int threads) noexcept nogil:
    cdef int64_t block
    for block in prange(blocks, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        read_block(src + block * BLOCK, out + block)


cdef void copy_all(const real *src, int64_t blocks, real *dst, int threads) noexcept nogil:
    cdef int64_t block
    for block in prange(blocks, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        copy_block(src + block * BLOCK, dst + block * BLOCK)


cdef int compute(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Does the work once; for PEAK `rounds` rounds on every thread."""
    cdef const Work *w = <const Work *> problem
    cdef const real *src = <const real *> inputs[0]
    if w.what == PEAK:
        multiply_all(src, w.rounds, <real *> out, num_threads)
    elif w.what == READ:
        read_all(src, w.blocks, <real *> out, num_threads)
    else:
        copy_all(src, w.blocks, <real *> out, num_threads)
    return DONE


entry = exported(compute)
OPERATIONS = 2 * MR * NV * VL * PAIR * TILE             # of a round
