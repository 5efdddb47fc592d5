# cython: language_level=3, cdivision=True
"""Scratch: one aligned slab for a call, cut by offset.

What several threads write lies GAP bytes apart. CPUs fetch what seems to come next, also what another thread is about to write, and both then take the lines from each
other: depthwise filter gradients of large images, whose sums are written tile by tile, took 1.1 to 1.8 times as long without a gap, 5x5 taps 2.2 times if tiles
sweep, other layers 1.0 to 1.4 times (2 threads of a Zen 5, when lines take long from one to the other; else 1.0 to 1.06). Gaps of 8 KiB saved some of that,
of 16 KiB half, of 64 KiB all.

A dead slab is kept for the next call of the same kernel, the largest one, since new memory has to be cleared by the system page by page: where other
memory comes and goes, as in steps of training, that took longer than many a gradient (3x3 taps, 512 channels of 7x7 pixels, bfloat16: 3.9 ms
instead of 1.8, Granite Rapids). Its size lies in the line before it.
"""
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free
from _storage cimport real, LINE

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **out, size_t alignment, size_t size)

cdef extern from "kernels.h" nogil:
    void use_huge_pages(void *memory, size_t size)
    void *swap_kept(void *slab)

cdef extern from "Python.h" nogil:
    int PyTraceMalloc_Track(unsigned int domain, uintptr_t pointer, size_t size)
    int PyTraceMalloc_Untrack(unsigned int domain, uintptr_t pointer)

cdef enum:
    HUGE_PAGE = 1 << 21                                 # bytes
    DOMAIN = 0x67726164                                 # of tracemalloc, where scratch is told apart from Python's memory
    LARGE = 1 << 22                                     # bytes of a slab from which on it gets huge pages, 512 times fewer to fault in
    LEAST_KEPT = 1 << 17                                # bytes of a slab that is kept: smaller ones no allocator gives back to the system,
    MOST_KEPT = 1 << 26                                 # larger ones take more memory than they are worth
    GAP = 1 << 16                                       # bytes between what different threads write
    TIMES = 8                                           # as large as what is asked for, at most, is what is taken


cdef inline size_t *size_of(void *slab) noexcept nogil:
    return <size_t *> (<char *> slab - LINE)


cdef inline void keep_slab(void *slab) noexcept nogil:
    """Keeps the larger one of a slab and that which is kept; the other is freed."""
    cdef void *other = swap_kept(slab)
    if other != NULL and size_of(other)[0] > size_of(slab)[0]:
        other = swap_kept(other)
    if other != NULL:
        free(size_of(other))


cdef inline void *take_kept(size_t size) noexcept nogil:
    """The slab that is kept, if it fits, else NULL."""
    cdef void *slab = swap_kept(NULL)
    if slab == NULL or size <= size_of(slab)[0] <= TIMES * size:
        return slab
    keep_slab(slab)
    return NULL


cdef inline void *new_slab(size_t size) noexcept nogil:
    """NULL if there is no memory, even without what is kept."""
    cdef void *memory = NULL
    cdef void *other
    while posix_memalign(&memory, HUGE_PAGE if size >= LARGE else LINE, size + LINE):
        other = swap_kept(NULL)
        if other == NULL:
            return NULL
        free(size_of(other))
    if size >= LARGE:
        use_huge_pages(memory, size + LINE)
    (<size_t *> memory)[0] = size
    return <char *> memory + LINE


cdef inline void *allocate_bytes(size_t size) noexcept nogil:
    """`size` bytes at a multiple of 64, or NULL, that tracemalloc sees if it is on; give them back with release."""
    cdef void *slab = take_kept(size) if size >= LEAST_KEPT else NULL
    if slab == NULL:
        slab = new_slab(size)
    if slab != NULL:
        PyTraceMalloc_Track(DOMAIN, <uintptr_t> slab, size)
    return slab


cdef inline real *allocate(int64_t count) noexcept nogil:
    """allocate_bytes for `count` reals."""
    return <real *> allocate_bytes(count * sizeof(real) + LINE)


cdef inline void release(void *slab) noexcept nogil:
    PyTraceMalloc_Untrack(DOMAIN, <uintptr_t> slab)
    if LEAST_KEPT <= size_of(slab)[0] <= MOST_KEPT:
        keep_slab(slab)
    else:
        free(size_of(slab))


cdef inline int64_t padded(int64_t count) noexcept nogil:
    """count rounded up, so that what follows is 64-byte aligned."""
    return (count + 15) // 16 * 16


cdef inline int64_t bytes_apart(int64_t size, int threads) noexcept nogil:
    """From one thread's scratch of so many bytes to the next one's, of so many threads: a gap, if there are several, and the scratch behind it."""
    return (size + LINE - 1) // LINE * LINE + (GAP if threads > 1 else 0)


cdef inline int64_t apart(int64_t count, int threads) noexcept nogil:
    """The same in reals."""
    return bytes_apart(count * <int64_t> sizeof(real), threads) // <int64_t> sizeof(real)


cdef inline char *own_scratch(char *scratch, int64_t size, int thread, int threads) noexcept nogil:
    """Of one of so many threads, `size` bytes apart; NULL if they have none."""
    return scratch + thread * size + (GAP if threads > 1 else 0) if scratch != NULL else NULL
