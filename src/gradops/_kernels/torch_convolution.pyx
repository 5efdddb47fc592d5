# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""`aten::convolution_backward` of PyTorch on the CPU, over its stable C interface: gradients by recipe, or by PyTorch's own kernel.

Calls that are alike have one `Known` answer, which is found without the GIL in a table; otherwise Python is asked (`connect`), which plans or
declines. Nothing is computed while the GIL is held, and no lock of gradops is: who holds the GIL adds answers, and tables that are too full are
freed when no call can be reading them. So threads may call at any time, and forked children find everything as it was.
Built once, for the compiler's default target.
"""
from cpython.ref cimport PyObject, Py_INCREF, Py_DECREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset
from _entry cimport ANY_ORDER, NO_MEMORY, Recipe, follow, read_from, recipe_of
from _torch cimport Library, List, Tensor, Torch, Value

cdef extern from *:
    int Py_IsInitialized() noexcept nogil
    int64_t count_up "__atomic_add_fetch"(int64_t *number, int64_t more, int order) noexcept nogil
    int64_t count_of "__atomic_load_n"(const int64_t *number, int order) noexcept nogil
    void write_to "__atomic_store_n"(int *number, int value, int order) noexcept nogil
    Table *table_at "__atomic_load_n"(Table **place, int order) noexcept nogil
    Known *known_at "__atomic_load_n"(Known **place, int order) noexcept nogil
    void publish "__atomic_store_n"(void *place, void *value, int order) noexcept nogil
    const int IN_ORDER "__ATOMIC_SEQ_CST"

cdef enum:
    RANK = 4
    MOST_SIZES = 8                                      # of a list that is an argument
    X_SIZES = 1                                         # where in a key the sizes of tensors are
    W_SIZES = X_SIZES + 1 + 2 * RANK
    DY_SIZES = W_SIZES + 1 + 2 * RANK
    KEY = DY_SIZES + 2 * RANK + 9                       # numbers that tell calls apart
    PLACES = 8192                                       # of a table, a power of two,
    MOST_KNOWN = PLACES // 2                            # and answers in it
    MOST_COUNTERS = 256


cdef enum:                                              # counters of what is left to PyTorch without a question
    NOT_2D = 0
    NOT_DENSE = 1

cdef uint64_t VERSION = 2 << 56 | 13 << 48              # the PyTorch whose declarations these are

SYMBOLS = (
    "aoti_torch_device_type_cpu", "aoti_torch_layout_strided", "aoti_torch_dtype_float32", "aoti_torch_dtype_float64", "aoti_torch_get_dim", "aoti_torch_get_sizes", "aoti_torch_get_strides",
    "aoti_torch_get_dtype", "aoti_torch_get_device_type", "aoti_torch_get_layout", "torch_get_const_data_ptr", "torch_get_mutable_data_ptr",
    "aoti_torch_empty_strided", "torch_from_blob", "aoti_torch_copy_", "aoti_torch_new_uninitialized_tensor", "aoti_torch_new_tensor_handle",
    "aoti_torch_delete_tensor_object", "torch_new_list_reserve_size", "torch_list_push_back", "torch_list_size", "torch_list_get_item",
    "torch_delete_list", "torch_new_stable_ivalue", "torch_delete_stable_ivalue", "torch_get_num_threads", "torch_call_dispatcher",
    "aoti_torch_cpu_convolution_backward", "aoti_torch_library_init_impl", "torch_library_impl", "aoti_torch_delete_library_object",
    "torch_exception_get_what_without_backtrace", "_ZN3c106detail14torchCheckFailEPKcS2_jS2_",
)


cdef struct Order:                                      # how a tensor lies
    int64_t strides[RANK]


cdef struct Known:                                      # the answer for calls that are alike
    int64_t key[KEY]
    PyObject *recipes                                   # which it keeps alive
    const Recipe *input                                 # NULL: it comes from PyTorch, or is not asked for
    const Recipe *filter
    const Recipe *sums                                  # of the bias, over ones; NULL: PyTorch sums
    Order x, dy, w, dw                                  # in which the recipes read and write them; dx lies as x,
    Order last                                          # the filter's gradient so at last
    bint copies_x, copies_dy, copies_w, copies_dw       # what lies otherwise, and is copied
    bint transposed
    uint16_t one                                        # as it lies in 16 bits
    int32_t dtype
    int counter


cdef struct Table:
    Table *former                                       # one that may still be read
    int64_t count
    Known *places[PLACES]


cdef struct Sizes:
    int64_t count
    int64_t at[MOST_SIZES]


cdef struct Call:
    Tensor dy, x, w
    Sizes bias, stride, padding, dilation, output_padding
    bint has_bias, transposed
    int64_t groups
    int32_t mask[3]
    int64_t key[KEY]
    Tensor dx, dw, db
    const char *error                                   # what gradops has to say if a call failed; NULL: PyTorch's own error


cdef Torch torch
cdef Library library = NULL
cdef Table *table = NULL                                # NULL: disabled
cdef int64_t in_flight = 0                              # calls
cdef int64_t counters[MOST_COUNTERS]
cdef int most_used = 0                                  # threads of a call
cdef int only_one = 0
cdef object planner = None
cdef object allocator = None
cdef int64_t kept_from = 0                             # bytes of a tensor whose memory the allocator gives


# Calls from Python

def connect(tuple addresses not None, plan not None, allocate not None, int64_t kept):
    """Where the symbols lie, in the order of SYMBOLS, and what is asked.

    ``plan(key)`` returns (recipes of input, filter and sums, or None for each, strides of x, dy, w, dw, and dw in the end, what is copied for
    that of x, dy, w and dw, one, counter); ``allocate(bytes)``, asked for `kept` bytes and more, an array whose memory a tensor has, and its address.
    """
    global planner, allocator, kept_from
    cdef void **pointers = <void **> &torch
    cdef Py_ssize_t i
    if len(addresses) != len(SYMBOLS) or sizeof(Torch) != len(SYMBOLS) * sizeof(void *):
        raise ValueError(f"PyTorch's C interface is called by {len(SYMBOLS)} symbols, got {len(addresses)}")
    for i in range(len(SYMBOLS)):
        pointers[i] = <void *> <uintptr_t> addresses[i]
    planner, allocator, kept_from = plan, allocate, kept


def register():
    """Takes the op over, with nothing known and nothing counted."""
    global library
    cdef Table *new = <Table *> calloc(1, sizeof(Table))
    if planner is None:
        raise RuntimeError("connect comes before register")
    if new == NULL:
        raise MemoryError("no memory for a table")
    memset(counters, 0, sizeof(counters))
    retire(new, 0)
    if torch.aoti_torch_library_init_impl("aten", "CPU", "gradops", 0, &library) or torch.torch_library_impl(library, "convolution_backward", convolution_backward, VERSION):
        unregister()
        raise RuntimeError(f"PyTorch refuses the kernel: {(<bytes> torch.torch_exception_get_what_without_backtrace()).decode()}")


def unregister():
    """Gives the op back."""
    global library
    cdef Library former = library
    library = NULL
    if former != NULL:
        torch.aoti_torch_delete_library_object(former)
    retire(NULL, 0)


def counts():
    """How often each answer was given, by the number of its counter."""
    return [count_of(&counters[i], ANY_ORDER) for i in range(MOST_COUNTERS)]


def most_threads():
    """The most threads that a call had."""
    return read_from(&most_used, ANY_ORDER)


def limit_threads(bint value):
    """Whether calls have one thread, whatever PyTorch says."""
    write_to(&only_one, value, ANY_ORDER)


cdef void retire(Table *new, int64_t own) noexcept:
    """Puts a table, or none, in place of the last one, which is freed with those before it as soon as no call but `own` ones reads any. The GIL is held."""
    cdef Table *former = table
    publish(&table, new, IN_ORDER)
    if former == NULL:
        return
    if count_of(&in_flight, IN_ORDER) == own:
        free_tables(former)
    elif new != NULL:
        new.former = former                             # freed with the next one


cdef void free_tables(Table *old) noexcept:
    cdef Table *next
    cdef int i
    while old != NULL:
        for i in range(PLACES):
            if old.places[i] != NULL:
                forget(old.places[i])
        next = old.former
        free(old)
        old = next


cdef void forget(Known *known) noexcept:
    Py_XDECREF(known.recipes)
    free(known)


# Calls from PyTorch

cdef void convolution_backward(Value *stack, uint64_t inputs, uint64_t outputs) noexcept nogil:
    """The kernel: owns what is on the stack, and leaves what it returns there."""
    cdef Call c
    cdef bint done
    memset(&c, 0, sizeof(Call))
    count_up(&in_flight, 1, IN_ORDER)
    done = take_arguments(&c, stack) and answer(&c)
    count_up(&in_flight, -1, IN_ORDER)
    drop(c.dy)
    drop(c.x)
    drop(c.w)
    done = done and fill_result(&c.dx) and fill_result(&c.dw) and fill_result(&c.db)
    if not done:
        drop(c.dx)
        drop(c.dw)
        drop(c.db)
        torch.throw_error("convolution_backward", "gradops", 0, what_failed(&c))
    stack[0], stack[1], stack[2] = <Value> c.dx, <Value> c.dw, <Value> c.db


cdef const char *what_failed(const Call *c) noexcept nogil:
    cdef const char *message = c.error if c.error != NULL else torch.torch_exception_get_what_without_backtrace()
    if message == NULL:
        return "gradops: a gradient of a convolution failed"
    return message


cdef void drop(Tensor tensor) noexcept nogil:
    if tensor != NULL:
        torch.aoti_torch_delete_tensor_object(tensor)


cdef bint fill_result(Tensor *tensor) noexcept nogil:
    """What is not asked for is an undefined tensor."""
    return tensor[0] != NULL or torch.aoti_torch_new_uninitialized_tensor(tensor) == 0


cdef bint take_arguments(Call *c, Value *stack) noexcept nogil:
    """All of them are taken, even after an error."""
    cdef Sizes mask
    cdef Value *bias = <Value *> stack[3]
    cdef bint read = True
    cdef int i
    c.dy, c.x, c.w = <Tensor> stack[0], <Tensor> stack[1], <Tensor> stack[2]
    c.has_bias = bias != NULL
    if bias != NULL:
        read = take_list(c, bias[0], &c.bias)
        torch.torch_delete_stable_ivalue(bias)
    read &= take_list(c, stack[4], &c.stride)
    read &= take_list(c, stack[5], &c.padding)
    read &= take_list(c, stack[6], &c.dilation)
    c.transposed = stack[7] & 0xff
    read &= take_list(c, stack[8], &c.output_padding)
    c.groups = <int64_t> stack[9]
    read &= take_list(c, stack[10], &mask)
    for i in range(3):
        c.mask[i] = read and mask.at[i] & 0xff
    return read


cdef bint take_list(Call *c, Value value, Sizes *sizes) noexcept nogil:
    cdef List list = <List> value
    cdef size_t count = 0, i
    cdef bint read = torch.torch_list_size(list, &count) == 0
    sizes.count = <int64_t> count
    if read and count > MOST_SIZES:
        c.error, read = "gradops: a list of more sizes than a convolution has", False
    for i in range(count if read else 0):
        read &= torch.torch_list_get_item(list, i, <Value *> &sizes.at[i]) == 0
    torch.torch_delete_list(list)
    return read


cdef bint answer(Call *c) noexcept nogil:
    cdef Known *known
    cdef int64_t rank = 0
    cdef bint kept = True, done
    if not (torch.aoti_torch_get_dim(c.x, &rank) == 0 and rank == RANK and torch.aoti_torch_get_dim(c.w, &rank) == 0 and rank == RANK
            and torch.aoti_torch_get_dim(c.dy, &rank) == 0 and rank == RANK and c.stride.count == c.padding.count == c.dilation.count == 2):
        return leave(c, NOT_2D)
    if not (is_dense(c.x) and is_dense(c.w) and is_dense(c.dy)):
        return leave(c, NOT_DENSE)
    if not make_key(c):
        return False
    known = find(c)
    if known == NULL:
        known = ask(c, &kept) if Py_IsInitialized() else NULL
    if known == NULL:
        return call_native(c, c.mask[0], c.mask[1], c.mask[2])
    count_up(&counters[known.counter], 1, ANY_ORDER)
    done = follow_known(c, known)
    if not kept:
        drop_known(known)
    return done


cdef bint leave(Call *c, int counter) noexcept nogil:
    """Has PyTorch compute all, and counts the gradients."""
    count_up(&counters[counter], c.mask[0] + c.mask[1], ANY_ORDER)
    return call_native(c, c.mask[0], c.mask[1], c.mask[2])


cdef bint is_dense(Tensor tensor) noexcept nogil:
    """Whether a tensor lies on the CPU, with strides."""
    cdef int32_t device = -1, layout = -1
    return (torch.aoti_torch_get_device_type(tensor, &device) == 0 and device == torch.aoti_torch_device_type_cpu()
            and torch.aoti_torch_get_layout(tensor, &layout) == 0 and layout == torch.aoti_torch_layout_strided())


cdef bint make_key(Call *c) noexcept nogil:
    """The key: of x, w and dy the dtype, the sizes and the strides; then what else tells calls apart."""
    cdef int64_t *next = add_tensor(add_tensor(add_tensor(c.key, c.x), c.w), c.dy)
    if next == NULL:
        return False
    next[0], next[1], next[2], next[3], next[4], next[5] = c.stride.at[0], c.stride.at[1], c.padding.at[0], c.padding.at[1], c.dilation.at[0], c.dilation.at[1]
    next[6], next[7], next[8] = c.transposed, c.groups, c.mask[0] + 2 * c.mask[1] + 4 * c.mask[2]
    return True


cdef int64_t *add_tensor(int64_t *next, Tensor tensor) noexcept nogil:
    """Where the key goes on; NULL after an error."""
    cdef int64_t *sizes
    cdef int64_t *strides
    cdef int32_t dtype
    if next == NULL or torch.aoti_torch_get_dtype(tensor, &dtype) or torch.aoti_torch_get_sizes(tensor, &sizes) or torch.aoti_torch_get_strides(tensor, &strides):
        return NULL
    next[0] = dtype
    memcpy(next + 1, sizes, RANK * sizeof(int64_t))
    memcpy(next + 1 + RANK, strides, RANK * sizeof(int64_t))
    return next + 1 + 2 * RANK


cdef uint64_t first_place(const int64_t *key) noexcept nogil:
    """Where in a table a key's answer is looked for first."""
    cdef uint64_t mixed = 0
    cdef int i
    for i in range(KEY):
        mixed = (mixed ^ <uint64_t> key[i]) * 0x9e3779b97f4a7c15ULL
        mixed ^= mixed >> 29
    return mixed % PLACES


cdef Known *find(const Call *c) noexcept nogil:
    cdef Table *now = table_at(&table, IN_ORDER)
    cdef uint64_t place = first_place(c.key)
    cdef Known *known = known_at(&now.places[place], IN_ORDER) if now != NULL else NULL
    while known != NULL and memcmp(known.key, c.key, sizeof(c.key)):
        place = (place + 1) % PLACES
        known = known_at(&now.places[place], IN_ORDER)
    return known


cdef bint call_native(Call *c, bint input, bint filter, bint bias) noexcept nogil:
    """Some of the gradients by PyTorch's own kernel."""
    cdef const int64_t *bias_sizes = c.bias.at
    cdef int32_t mask[3]
    cdef Tensor dx = NULL, dw = NULL, db = NULL
    mask[0], mask[1], mask[2] = input, filter, bias
    if torch.aoti_torch_cpu_convolution_backward(c.dy, c.x, c.w, &bias_sizes if c.has_bias else NULL, c.bias.count, c.stride.at, c.stride.count, c.padding.at, c.padding.count,
                                                 c.dilation.at, c.dilation.count, c.transposed, c.output_padding.at, c.output_padding.count, c.groups, mask, 3, &dx, &dw, &db):
        return False
    put(&c.dx, dx, input)
    put(&c.dw, dw, filter)
    put(&c.db, db, bias)
    return True


cdef void put(Tensor *place, Tensor tensor, bint wanted) noexcept nogil:
    if wanted:
        place[0] = tensor
    else:
        drop(tensor)


cdef bint follow_known(Call *c, const Known *known) noexcept nogil:
    """The gradients that are asked for. With that of the filter comes that of the bias if PyTorch computes it."""
    cdef bint input = c.mask[0] and known.input == NULL, filter = c.mask[1] and known.filter == NULL
    cdef bint all_native = known.input == NULL and known.filter == NULL, bias = c.mask[2] and (filter or all_native)
    cdef Tensor x = NULL, dy = NULL, w = NULL
    cdef bint done = True
    if input or filter or all_native:
        done = call_native(c, input, filter, bias)
    if all_native:
        return done
    done = done and lay(c.dy, known.copies_dy, &c.key[DY_SIZES], &known.dy, known.dtype, &dy)
    if known.input != NULL:
        done = done and lay(c.w, known.copies_w, &c.key[W_SIZES], &known.w, known.dtype, &w) and differentiate_input(c, known, dy, w)
    if known.filter != NULL:
        done = done and lay(c.x, known.copies_x, &c.key[X_SIZES], &known.x, known.dtype, &x) and differentiate_filter(c, known, dy, x)
    if c.mask[2] and not bias:
        done = done and (sum_by_torch(c) if known.sums == NULL else sum_over_ones(c, known, dy))
    drop(x)
    drop(dy)
    drop(w)
    return done


cdef bint lay(Tensor tensor, bint copied, const int64_t *sizes, const Order *order, int32_t dtype, Tensor *result) noexcept nogil:
    """A new reference to a tensor, or to a copy of it in this order."""
    if not copied:
        return torch.aoti_torch_new_tensor_handle(tensor, result) == 0
    return new_tensor(sizes, order, dtype, True, result) and torch.aoti_torch_copy_(result[0], tensor, 0) == 0


cdef int item_bytes(int32_t dtype) noexcept nogil:
    """Of the dtypes that are computed."""
    return 4 if dtype == torch.aoti_torch_dtype_float32() else 8 if dtype == torch.aoti_torch_dtype_float64() else 2


cdef bint new_tensor(const int64_t *sizes, const Order *order, int32_t dtype, bint dies, Tensor *result) noexcept nogil:
    """Large ones that die soon have memory that gradops keeps for the next one, since the system clears new pages slowly."""
    cdef int64_t size = item_bytes(dtype), i
    for i in range(RANK):
        size *= sizes[i]
    if dies and size >= kept_from and Py_IsInitialized():
        return new_large_tensor(size, sizes, order, dtype, result)
    return torch.aoti_torch_empty_strided(RANK, sizes, order.strides, dtype, torch.aoti_torch_device_type_cpu(), 0, result) == 0


cdef bint compute(Call *c, const Recipe *recipe, Tensor first, Tensor second, Tensor result) noexcept nogil:
    """Follows a recipe with as many threads as PyTorch has."""
    cdef const void *inputs[2]
    cdef void *out
    cdef int threads
    if (torch.torch_get_const_data_ptr(first, &inputs[0]) or torch.torch_get_const_data_ptr(second, &inputs[1]) or torch.torch_get_mutable_data_ptr(result, &out)
            or not take_threads(&threads)):
        return False
    if follow(recipe, inputs, out, threads) == NO_MEMORY:
        c.error = "gradops: no memory for packed panels and scratch"
        return False
    return True


cdef bint take_threads(int *threads) noexcept nogil:
    """How many threads to use: as many as PyTorch."""
    cdef uint32_t found = 1
    if torch.torch_get_num_threads(&found):
        return False
    threads[0] = 1 if read_from(&only_one, ANY_ORDER) or found == 0 else <int> found
    if threads[0] > read_from(&most_used, ANY_ORDER):
        write_to(&most_used, threads[0], ANY_ORDER)
    return True


cdef bint differentiate_input(Call *c, const Known *known, Tensor dy, Tensor w) noexcept nogil:
    return new_tensor(&c.key[X_SIZES], &known.x, known.dtype, True, &c.dx) and compute(c, known.input, dy, w, c.dx)


cdef bint differentiate_filter(Call *c, const Known *known, Tensor dy, Tensor x) noexcept nogil:
    cdef Tensor dw = NULL
    cdef bint done = new_tensor(&c.key[W_SIZES], &known.dw, known.dtype, known.copies_dw, &dw) and compute(c, known.filter, dy if known.transposed else x, x if known.transposed else dy, dw)
    if not known.copies_dw:
        c.dw = dw
        return done
    done = done and new_tensor(&c.key[W_SIZES], &known.last, known.dtype, False, &c.dw) and torch.aoti_torch_copy_(c.dw, dw, 0) == 0
    drop(dw)
    return done


cdef bint sum_over_ones(Call *c, const Known *known, Tensor dy) noexcept nogil:
    """The bias' gradient as that of a filter."""
    cdef int64_t pixels = c.key[DY_SIZES] * c.key[DY_SIZES + 2] * c.key[DY_SIZES + 3], step = 1, i
    cdef Tensor ones = NULL
    cdef void *data = NULL
    cdef bint done = (torch.aoti_torch_empty_strided(1, &pixels, &step, known.dtype, torch.aoti_torch_device_type_cpu(), 0, &ones) == 0
                      and torch.aoti_torch_empty_strided(1, &c.key[DY_SIZES + 1], &step, known.dtype, torch.aoti_torch_device_type_cpu(), 0, &c.db) == 0
                      and torch.torch_get_mutable_data_ptr(ones, &data) == 0)
    for i in range(pixels if done else 0):
        (<uint16_t *> data)[i] = known.one
    done = done and compute(c, known.sums, ones, dy, c.db)
    drop(ones)
    return done


cdef bint sum_by_torch(Call *c) noexcept nogil:
    """The bias' gradient: dy.sum((0, 2, 3))."""
    cdef Value stack[4]
    cdef Value *axes = NULL
    cdef List list = NULL
    cdef Tensor dy = NULL
    if torch.torch_new_list_reserve_size(3, &list):
        return False
    if (torch.torch_list_push_back(list, 0) or torch.torch_list_push_back(list, 2) or torch.torch_list_push_back(list, 3) or torch.torch_new_stable_ivalue(&axes)
            or torch.aoti_torch_new_tensor_handle(c.dy, &dy)):
        torch.torch_delete_list(list)
        return False
    axes[0] = <Value> list
    stack[0], stack[1], stack[2], stack[3] = <Value> dy, <Value> axes, 0, 0
    if torch.torch_call_dispatcher("aten::sum", "dim_IntList", stack, VERSION):
        return False
    c.db = <Tensor> stack[0]
    return True


cdef bint new_large_tensor(int64_t size, const int64_t *sizes, const Order *order, int32_t dtype, Tensor *result) noexcept with gil:
    """A tensor of so many bytes in memory that gradops keeps; in PyTorch's, which says what is wrong, if there is none."""
    cdef uintptr_t address
    try:
        owner, address = allocator(size)
    except MemoryError:
        return torch.aoti_torch_empty_strided(RANK, sizes, order.strides, dtype, torch.aoti_torch_device_type_cpu(), 0, result) == 0
    Py_INCREF(owner)
    if torch.torch_from_blob(<void *> address, RANK, sizes, order.strides, 0, dtype, torch.aoti_torch_device_type_cpu(), -1, result,
                             torch.aoti_torch_layout_strided(), NULL, 0, release_memory, <void *> owner):
        Py_DECREF(owner)
        return False
    return True


cdef void release_memory(void *data, void *owner) noexcept nogil:
    """A large tensor has died."""
    if Py_IsInitialized():
        release_owner(<PyObject *> owner)


cdef void release_owner(PyObject *owner) noexcept with gil:
    Py_XDECREF(owner)


# Questions to Python

cdef Known *ask(Call *c, bint *kept) noexcept with gil:
    """Python's answer, put into the table if there is one; NULL after an error, which is reported."""
    cdef Known *known = find(c)
    if known != NULL:
        return known
    known = <Known *> calloc(1, sizeof(Known))
    if known == NULL:
        return NULL
    try:
        fill(known, c, planner(tuple([c.key[i] for i in range(KEY)])))
    except BaseException:
        forget(known)
        raise
    kept[0] = add(known)
    return known


cdef int fill(Known *known, const Call *c, tuple answer) except -1:
    """Writes down what the planner said."""
    cdef Order *orders[5]
    cdef int i, j
    recipes, strides, copies, one, counter = answer
    if not 0 <= counter < MOST_COUNTERS:
        raise RuntimeError(f"there are {MOST_COUNTERS} counters, got number {counter}")
    input, filter, sums = recipes
    Py_INCREF(recipes)
    known.recipes = <PyObject *> recipes
    known.input = NULL if input is None else recipe_of(input)
    known.filter = NULL if filter is None else recipe_of(filter)
    known.sums = NULL if sums is None else recipe_of(sums)
    orders[0], orders[1], orders[2], orders[3], orders[4] = &known.x, &known.dy, &known.w, &known.dw, &known.last
    for i in range(5):
        for j in range(RANK):
            orders[i].strides[j] = strides[i][j]
    known.copies_x, known.copies_dy, known.copies_w, known.copies_dw = copies
    known.one, known.counter = one, counter
    known.transposed, known.dtype = c.transposed, <int32_t> c.key[0]
    memcpy(known.key, c.key, sizeof(c.key))
    return 0


cdef bint add(Known *known) noexcept:
    """Keeps an answer, in a new table if the last one is too full; False if there is no table. The GIL is held."""
    cdef Table *now = table
    cdef uint64_t place = first_place(known.key)
    if now != NULL and now.count >= MOST_KNOWN:
        now = <Table *> calloc(1, sizeof(Table))
        if now != NULL:
            retire(now, 1)
    if now == NULL:
        return False
    while now.places[place] != NULL:
        place = (place + 1) % PLACES
    now.count += 1
    publish(&now.places[place], known, IN_ORDER)
    return True


cdef void drop_known(Known *known) noexcept with gil:
    forget(known)
