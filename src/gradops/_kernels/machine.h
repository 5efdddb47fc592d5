/* What the CPU and the system are asked for, and threads among each other. */
#pragma once

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

/* Asks for huge pages, as NumPy does for its arrays. A hint: what fails is ignored. */
static inline void use_huge_pages(void *memory, size_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    (void)madvise(memory, size, MADV_HUGEPAGE);
#endif
}

/* The slab that is kept, NULL if none is, replaced by another one; for any number of threads. */
static void *kept_slab;
static inline void *swap_kept(void *slab) { return __atomic_exchange_n(&kept_slab, slab, __ATOMIC_ACQ_REL); }
