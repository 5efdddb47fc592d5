# cython: language_level=3, cdivision=True
"""The signature that all kernels share, and the recipes by which a call finds its kernel without Python.

Every kernel ends with a `compute` and exports it as the capsule `entry`. A framework's C code is given a capsule of a `Recipe`, made once
per shape by `gradops._call.recipe`, and calls `follow`.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t
from libc.string cimport memset


ctypedef int (*compute_t)(const void *problem, int storage, const void *const *inputs, void *out, int num_threads) noexcept nogil

cdef extern from *:
    int add_to "__atomic_add_fetch"(int *number, int more, int order) noexcept nogil
    int read_from "__atomic_load_n"(const int *number, int order) noexcept nogil
    const int ANY_ORDER "__ATOMIC_RELAXED"


cdef enum:                                              # what `compute` and `follow` return
    DONE = 0
    MIXED = 1                                           # infinities or NaN met zeros or neighbours that are not theirs: take the exact kernel
    NO_MEMORY = -1


cdef struct Threads:                                    # of all calls without Python: one for the process
    int chosen                                          # how many threads they may use together
    int calls                                           # how many are computing


cdef struct Step:
    compute_t compute                                   # NULL: the result is zeros
    const void *problem


cdef struct Recipe:
    Step preferred, exact
    int storage
    int64_t size                                        # of the result, in bytes
    Threads *threads


cdef inline object exported(compute_t compute):
    return PyCapsule_New(<void *> compute, "gradops.compute", NULL)


cdef inline compute_t imported(object entry) except NULL:
    return <compute_t> PyCapsule_GetPointer(entry, "gradops.compute")


cdef inline const Recipe *recipe_of(object capsule) except NULL:
    return <const Recipe *> PyCapsule_GetPointer(capsule, "gradops.recipe")


cdef inline Threads *threads_of(object capsule) except NULL:
    return <Threads *> PyCapsule_GetPointer(capsule, "gradops.threads")


cdef inline int outcome(int failed, const bint *finite) noexcept nogil:
    """What a kernel returns, by address what it finds out meanwhile."""
    return NO_MEMORY if failed else DONE if finite[0] else MIXED


cdef inline int follow_steps(const Recipe *recipe, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    cdef int found
    if recipe.preferred.compute == NULL:
        memset(out, 0, recipe.size)
        return DONE
    found = recipe.preferred.compute(recipe.preferred.problem, recipe.storage, inputs, out, num_threads)
    if found == MIXED:
        found = recipe.exact.compute(recipe.exact.problem, recipe.storage, inputs, out, num_threads)
    return NO_MEMORY if found == NO_MEMORY else DONE


cdef inline int follow(const Recipe *recipe, const void *const *inputs, void *out, int num_threads) noexcept nogil:
    """Computes `out`; DONE or NO_MEMORY. With 0 threads, calls that compute at the same time share those that the process has chosen.

    *Assumes:* arrays are contiguous, aligned to their elements, of the shapes that the recipe was made for.
    """
    cdef Threads *shared = recipe.threads
    cdef int calls, found
    if num_threads > 0:
        return follow_steps(recipe, inputs, out, num_threads)
    calls = add_to(&shared.calls, 1, ANY_ORDER)
    num_threads = read_from(&shared.chosen, ANY_ORDER) // calls
    found = follow_steps(recipe, inputs, out, num_threads if num_threads > 1 else 1)
    add_to(&shared.calls, -1, ANY_ORDER)
    return found
