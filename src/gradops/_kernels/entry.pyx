# cython: language_level=3, cdivision=True
"""The way from Python into the kernels, and the recipes of calls without Python. Built once, for the compiler's default target."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
cimport numpy as cnp
from _entry cimport ANY_ORDER, MIXED, NO_MEMORY, Recipe, Step, Threads, compute_t, follow, imported, read_from, recipe_of

cnp.import_array()

cdef enum:
    MOST_INPUTS = 4

cdef extern from *:
    void write_to "__atomic_store_n"(int *number, int value, int order) noexcept nogil

cdef Threads of_process = [1, 0]
threads = PyCapsule_New(&of_process, "gradops.threads", NULL)


def set_threads(int n):
    """How many threads calls without Python use together from now on."""
    write_to(&of_process.chosen, n, ANY_ORDER)


def get_threads():
    """How many that are."""
    return read_from(&of_process.chosen, ANY_ORDER)


def run(kernel not None, bytes problem not None, int storage, list inputs not None, cnp.ndarray out not None, int num_threads):
    """Calls a kernel by its entry. Returns False if infinities or NaN met zeros or neighbours that are not theirs, else True."""
    cdef compute_t compute = imported(kernel)
    cdef const void *packed = PyBytes_AS_STRING(problem)
    cdef const void *data[MOST_INPUTS]
    cdef void *result = cnp.PyArray_DATA(out)
    cdef cnp.ndarray array
    cdef int found, count = 0
    check_count(len(inputs))
    for array in inputs:
        data[count] = cnp.PyArray_DATA(array)
        count += 1
    with nogil:
        found = compute(packed, storage, data, result, num_threads)
    check_memory(found)
    return found != MIXED


def make_recipe(list steps not None, int storage, int64_t size):
    """A capsule of a `Recipe` for C code: of a kernel's entry and a problem, preferred and exact; of none for zeros in `size` bytes."""
    cdef Recipe *recipe
    cdef Step *places[2]
    cdef bytes problem
    cdef char *place
    if len(steps) not in (0, 2):
        raise ValueError(f"a recipe has two steps or none, got {len(steps)}")
    recipe = <Recipe *> calloc(1, sizeof(Recipe) + sum([len(packed) for _, packed in steps]))
    if recipe == NULL:
        raise MemoryError("no memory for a recipe")
    capsule = PyCapsule_New(recipe, "gradops.recipe", release_recipe)
    recipe.storage, recipe.size, recipe.threads = storage, size, &of_process
    place = <char *> (recipe + 1)
    places[0], places[1] = &recipe.preferred, &recipe.exact
    for i, (kernel, packed) in enumerate(steps):
        problem = packed
        places[i].compute, places[i].problem = imported(kernel), place
        place = <char *> memcpy(place, PyBytes_AS_STRING(problem), PyBytes_GET_SIZE(problem)) + PyBytes_GET_SIZE(problem)
    return capsule


def follow_recipe(recipe not None, tuple addresses not None, uintptr_t out, int num_threads=0):
    """`follow` for arrays at addresses, unchecked; 0 threads are those that `set_threads` chose."""
    cdef const Recipe *found = recipe_of(recipe)
    cdef const void *inputs[MOST_INPUTS]
    cdef int status, i
    check_count(len(addresses))
    for i in range(len(addresses)):
        inputs[i] = <const void *> <uintptr_t> addresses[i]
    with nogil:
        status = follow(found, inputs, <void *> out, num_threads)
    check_memory(status)


cdef void release_recipe(object capsule) noexcept:
    free(<void *> recipe_of(capsule))


cdef int check_count(Py_ssize_t count) except -1:
    if count > MOST_INPUTS:
        raise ValueError(f"a kernel reads at most {MOST_INPUTS} arrays, got {count}")
    return 0


cdef int check_memory(int status) except -1:
    if status == NO_MEMORY:
        raise MemoryError("no memory for packed panels and scratch")
    return 0
