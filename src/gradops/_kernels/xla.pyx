# cython: language_level=3, cdivision=True
"""XLA's custom call: follows the recipe in its only attribute, without Python and the GIL. Built once, for the compiler's default target.

The attribute is an array of 64-bit integers, `Packed` and then both problems. It names kernels by their place in a table, since XLA stores
compiled programs and addresses do not outlive a process. A key says which gradops made it: another one may number and pack differently.
"""
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t, uintptr_t
from _entry cimport NO_MEMORY, Recipe, Threads, compute_t, follow, imported, threads_of
from _xla cimport (
    API_MAJOR, API_MINOR, ArgType_BUFFER, AttrType_ARRAY, DataType_S64, Error_Code_FAILED_PRECONDITION, Error_Code_INVALID_ARGUMENT,
    Error_Code_RESOURCE_EXHAUSTED, Extension_Metadata, RetType_BUFFER, Api, Array, Buffer, CallFrame, Error_Create_Args, Metadata_Extension,
)

cdef enum:
    MOST_KERNELS = 64
    MOST_INPUTS = 2
    PAGE = 4096
    LARGE = 1 << 22                                     # bytes of a result from which on it gets huge pages

cdef extern from "kernels.h" nogil:
    void use_huge_pages(void *memory, size_t size)


cdef struct Packed:                                     # as `gradops._xla.packed` makes it
    int64_t key, storage, size
    int64_t preferred, exact                            # places of kernels in the table, or -1: the result is zeros
    int64_t preferred_length, exact_length              # of the problems that follow, in integers


cdef compute_t[MOST_KERNELS] kernels
cdef int64_t known_kernels = 0
cdef int64_t known_key = 0
cdef Threads *threads = NULL


def handler(int64_t key, list entries not None, shared not None):
    """The custom call as a capsule. From now on recipes with `key` find kernels by their place in `entries`, and threads in `shared`."""
    global known_key, known_kernels, threads
    if len(entries) > MOST_KERNELS:
        raise ValueError(f"the table has room for {MOST_KERNELS} kernels, got {len(entries)}")
    for i, entry in enumerate(entries):
        kernels[i] = imported(entry)
    known_key, known_kernels, threads = key, len(entries), threads_of(shared)
    return PyCapsule_New(<void *> compute, NULL, NULL)


cdef void *failed(const Api *api, int code, const char *message) noexcept nogil:
    cdef Error_Create_Args args = [sizeof(Error_Create_Args), NULL, message, code]
    return api.Error_Create(&args)


cdef bint is_known(int64_t kernel) noexcept nogil:
    return 0 <= kernel < known_kernels


cdef void prepare(const Buffer *result, int64_t size) noexcept nogil:
    """Huge pages for a large result: XLA maps new memory for each run, and to fault it in by small pages takes as long as to fill it."""
    cdef uintptr_t start = (<uintptr_t> result.data + PAGE - 1) // PAGE * PAGE
    if size >= LARGE:
        use_huge_pages(<void *> start, (<uintptr_t> result.data + size - start) // PAGE * PAGE)


cdef void *compute(CallFrame *frame) noexcept nogil:
    """Handles a call, or the question which version of the interface this is written for."""
    cdef Metadata_Extension *asked = <Metadata_Extension *> frame.extension_start
    cdef const void *inputs[MOST_INPUTS]
    cdef const Packed *packed
    cdef const Array *attribute
    cdef Recipe recipe
    cdef int64_t i
    if asked != NULL and asked.extension_base.type == Extension_Metadata:
        asked.metadata.api_version.major_version, asked.metadata.api_version.minor_version = API_MAJOR, API_MINOR
        return NULL
    if frame.attrs.size != 1 or frame.attrs.types[0] != AttrType_ARRAY:
        return failed(frame.api, Error_Code_INVALID_ARGUMENT, "gradops: the custom call takes one attribute, an array")
    attribute, packed = <const Array *> frame.attrs.attrs[0], <const Packed *> (<const Array *> frame.attrs.attrs[0]).data
    if attribute.dtype != DataType_S64 or attribute.size * sizeof(int64_t) < sizeof(Packed) or packed.key != known_key:
        return failed(frame.api, Error_Code_FAILED_PRECONDITION, "gradops: this program was compiled or exported with another version of gradops; trace it again")
    recipe.preferred.compute = NULL
    if packed.preferred >= 0:
        if not is_known(packed.preferred) or not is_known(packed.exact):
            return failed(frame.api, Error_Code_INVALID_ARGUMENT, "gradops: the recipe names a kernel that does not exist")
        recipe.preferred.compute, recipe.preferred.problem = kernels[packed.preferred], <const int64_t *> (packed + 1)
        recipe.exact.compute, recipe.exact.problem = kernels[packed.exact], <const int64_t *> (packed + 1) + packed.preferred_length
    if frame.args.size > MOST_INPUTS or frame.rets.size != 1 or frame.rets.types[0] != RetType_BUFFER:
        return failed(frame.api, Error_Code_INVALID_ARGUMENT, "gradops: the custom call takes one or two arrays and returns one")
    for i in range(frame.args.size):
        if frame.args.types[i] != ArgType_BUFFER:
            return failed(frame.api, Error_Code_INVALID_ARGUMENT, "gradops: the custom call takes arrays")
        inputs[i] = (<const Buffer *> frame.args.args[i]).data
    prepare(<const Buffer *> frame.rets.rets[0], packed.size)
    recipe.storage, recipe.size, recipe.threads = <int> packed.storage, packed.size, threads
    if follow(&recipe, inputs, (<Buffer *> frame.rets.rets[0]).data, 0) == NO_MEMORY:
        return failed(frame.api, Error_Code_RESOURCE_EXHAUSTED, "gradops: no memory for packed panels and scratch")
    return NULL
