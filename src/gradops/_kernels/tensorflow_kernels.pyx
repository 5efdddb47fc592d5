# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kernels for TensorFlow's runtime, over its C API: each follows the recipe for its inputs, or has TensorFlow run ops of its own on them.

A kernel knows its node, and lists of `Known` answers, one for each set of shapes and sizes that it has met. An answer that is in a list is
found without the GIL; otherwise Python is asked (`connect`), which plans or declines. Nothing is computed while the GIL is held, and no
lock of gradops is: a thread that waits for the GIL holds none that another one needs.
Built once, for the compiler's default target.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport PyObject, Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset
from _entry cimport ANY_ORDER, NO_MEMORY, Recipe, follow, read_from, recipe_of
from _tensorflow cimport (
    Buffer, Builder, Construction, Context, Eager, EagerOp, Executor, FAILED_PRECONDITION, Handle, INT32, INT64, INTERNAL, INVALID_ARGUMENT, OK,
    RESOURCE_EXHAUSTED, Status, Tensor, TensorFlow,
)

cdef extern from *:
    int Py_IsInitialized() noexcept nogil
    void count_up "__atomic_add_fetch"(int64_t *number, int64_t more, int order) noexcept nogil
    void write_to "__atomic_store_n"(int *number, int value, int order) noexcept nogil
    Known *first_of "__atomic_load_n"(Known **place, int order) noexcept nogil
    void publish "__atomic_store_n"(void *place, void *value, int order) noexcept nogil
    const int ACQUIRE "__ATOMIC_ACQUIRE"
    const int RELEASE "__ATOMIC_RELEASE"

cdef extern from "<fenv.h>" nogil:
    ctypedef struct fenv_t:
        pass
    const fenv_t *FE_DFL_ENV
    int fegetenv(fenv_t *environment)
    int fesetenv(const fenv_t *environment)

cdef enum:                                              # what is asked
    PLANNED = 0                                         # what to do
    NATIVE = 1                                          # what to do where gradops is disabled

cdef enum:
    MOST_INPUTS = 4
    MOST_OPERANDS = 2
    MOST_DIMENSIONS = 8
    MOST_KEY = 40                                       # numbers of a key that is kept: three or four inputs of four dimensions, and four sizes
    MOST_KNOWN = 64                                     # answers of a kind that a kernel keeps
    MOST_COUNTERS = 64

SYMBOLS = (
    "TF_NewStatus", "TF_DeleteStatus", "TF_SetStatus", "TF_GetCode", "TF_Message", "TF_DeleteBuffer",
    "TF_TensorType", "TF_NumDims", "TF_Dim", "TF_TensorData", "TF_DeleteTensor",
    "TF_NewKernelBuilder", "TF_RegisterKernelBuilderWithKernelDef", "TF_OpKernelConstruction_GetNodeDef", "TF_OpKernelConstruction_Failure",
    "TF_NumInputs", "TF_GetInput", "TF_AllocateOutput", "TF_SetOutput", "TF_OpKernelContext_Failure",
    "TFE_NewOp", "TFE_DeleteOp", "TFE_OpSetDevice", "TFE_OpAddInput", "TFE_OpSetAttrValueProto", "TFE_Execute",
    "TFE_NewTensorHandle", "TFE_TensorHandleResolve", "TFE_DeleteTensorHandle",
    "TFE_NewExecutor", "TFE_ContextGetExecutorForThread", "TFE_ContextSetExecutorForThread", "TFE_ExecutorIsAsync", "TFE_DeleteExecutor",
)


cdef struct Native:                                     # an op that TensorFlow runs on some of the inputs
    Native *next
    Eager eager
    const char *op
    int attributes
    const char **names
    const char **values
    size_t *sizes
    int inputs[MOST_INPUTS]
    int input_count
    int output                                          # which output of the kernel its result is


cdef struct Known:                                      # the answer for one set of shapes and sizes
    Known *next
    int64_t key_size
    int64_t key[MOST_KEY]
    PyObject *owner                                     # of the recipe, if this answer is not kept
    const Recipe *recipe                                # of the first output; NULL: it comes from TensorFlow
    int operands[MOST_OPERANDS]                         # which inputs the recipe reads
    int operand_count
    int dtype, rank
    int64_t shape[MOST_DIMENSIONS]
    int64_t size                                        # of the result, in bytes
    Native *natives
    int counter


cdef struct Kernel:
    char *node                                          # its serialised NodeDef
    size_t node_size
    Known *known[2]                                     # by what was asked
    int count[2]


cdef struct Call:                                       # of a kernel
    Kernel *kernel
    Context context
    Status status
    int count
    Tensor inputs[MOST_INPUTS]
    int64_t key_size
    int64_t *key
    int64_t room[MOST_KEY]


cdef TensorFlow tf
cdef int enabled = 0
cdef int most_threads = 0
cdef int64_t counters[MOST_COUNTERS]
cdef object planner = None


# Calls from Python

def connect(tuple addresses not None, plan not None):
    """Where the symbols lie, in the order of SYMBOLS, and what is asked: ``plan(node, key, native)``.

    It returns (recipe or None, operands, dtype, shape, bytes, ops, counter, keep), with (context, name, ((attribute, value), ...), inputs, output)
    for each op.
    """
    global planner
    cdef void **pointers = <void **> &tf
    cdef Py_ssize_t i
    if len(addresses) != len(SYMBOLS) or sizeof(TensorFlow) != len(SYMBOLS) * sizeof(void *):
        raise ValueError(f"TensorFlow's C API is called by {len(SYMBOLS)} symbols, got {len(addresses)}")
    for i in range(len(SYMBOLS)):
        pointers[i] = <void *> <uintptr_t> addresses[i]
    planner = plan


def register(bytes definition not None, bytes op not None, bytes name not None):
    """Registers a kernel by its serialised KernelDef."""
    cdef Status status
    cdef Builder builder
    if planner is None:
        raise RuntimeError("connect comes before register")
    if b"\0" in definition:
        raise ValueError("TensorFlow takes the definition of a kernel as a C string, got one with a zero in it")
    status = tf.TF_NewStatus()
    builder = tf.TF_NewKernelBuilder(op, b"CPU", create, compute, delete)
    tf.TF_RegisterKernelBuilderWithKernelDef(definition, name, builder, status)
    message = None if tf.TF_GetCode(status) == OK else (<bytes> tf.TF_Message(status)).decode()
    tf.TF_DeleteStatus(status)
    if message is not None:
        raise RuntimeError(f"TensorFlow refuses the kernel {name.decode()}: {message}")


def set_enabled(bint value):
    """Whether the kernels compute, or have TensorFlow do it where they can."""
    write_to(&enabled, value, ANY_ORDER)


def set_most_threads(int n):
    """The most threads that a kernel takes; 0 for as many as the process gives them."""
    write_to(&most_threads, n, ANY_ORDER)


def counts():
    """How often each answer was given, by the number of its counter."""
    return [counters[i] for i in range(MOST_COUNTERS)]


# Calls from TensorFlow

cdef void *create(Construction construction) noexcept nogil:
    cdef Status status = tf.TF_NewStatus()
    cdef Buffer *node = tf.TF_OpKernelConstruction_GetNodeDef(construction, status)
    cdef Kernel *k = NULL
    if tf.TF_GetCode(status) == OK:
        k = <Kernel *> calloc(1, sizeof(Kernel))
        if k != NULL:
            k.node = <char *> malloc(node.length)
        if k == NULL or k.node == NULL:
            free(k)
            k = NULL
            tf.TF_SetStatus(status, RESOURCE_EXHAUSTED, "gradops: no memory for a kernel")
        else:
            memcpy(k.node, node.data, node.length)
            k.node_size = node.length
    if node != NULL:
        tf.TF_DeleteBuffer(node)
    if k == NULL:
        tf.TF_OpKernelConstruction_Failure(construction, status)
    tf.TF_DeleteStatus(status)
    return k


cdef void delete(void *kernel) noexcept nogil:
    cdef Kernel *k = <Kernel *> kernel
    cdef Known *known
    cdef int what
    if k == NULL:
        return
    for what in range(2):
        while k.known[what] != NULL:
            known = k.known[what]
            k.known[what] = known.next
            release(known)
    free(k.node)
    free(k)


cdef void compute(void *kernel, Context context) noexcept nogil:
    cdef Call c
    cdef int i
    if kernel == NULL:
        return
    memset(&c, 0, sizeof(Call) - sizeof(c.room))
    c.kernel, c.context, c.key, c.status = <Kernel *> kernel, context, c.room, tf.TF_NewStatus()
    if take_inputs(&c) and make_key(&c):
        answer(&c)
    if tf.TF_GetCode(c.status) != OK:
        tf.TF_OpKernelContext_Failure(context, c.status)
    for i in range(c.count):
        tf.TF_DeleteTensor(c.inputs[i])
    if c.key != c.room:
        free(c.key)
    tf.TF_DeleteStatus(c.status)


cdef bint take_inputs(Call *c) noexcept nogil:
    cdef int i, count = tf.TF_NumInputs(c.context)
    if count > MOST_INPUTS:
        tf.TF_SetStatus(c.status, INTERNAL, "gradops: an op with more inputs than it knows")
        return False
    for i in range(count):
        tf.TF_GetInput(c.context, i, &c.inputs[i], c.status)
        if tf.TF_GetCode(c.status) != OK:
            return False
        c.count += 1
    return True


cdef int64_t length(Tensor tensor) noexcept nogil:
    """How many numbers of a vector of integers belong to the key: all; of others, none."""
    cdef int dtype = tf.TF_TensorType(tensor)
    return tf.TF_Dim(tensor, 0) if (dtype == INT32 or dtype == INT64) and tf.TF_NumDims(tensor) == 1 else 0


cdef bint make_key(Call *c) noexcept nogil:
    """The key: of each input its type, rank and dimensions, and its values if it is a vector of integers, such as sizes."""
    cdef int i, j, rank
    cdef int64_t *next
    cdef void *data
    for i in range(c.count):
        c.key_size += 2 + tf.TF_NumDims(c.inputs[i]) + length(c.inputs[i])
    if c.key_size > MOST_KEY:
        c.key = <int64_t *> malloc(c.key_size * sizeof(int64_t))
        if c.key == NULL:
            c.key = c.room
            tf.TF_SetStatus(c.status, RESOURCE_EXHAUSTED, "gradops: no memory for the sizes of a call")
            return False
    next = c.key
    for i in range(c.count):
        rank = tf.TF_NumDims(c.inputs[i])
        next[0], next[1] = tf.TF_TensorType(c.inputs[i]), rank
        next += 2
        for j in range(rank):
            next[0] = tf.TF_Dim(c.inputs[i], j)
            next += 1
        data = tf.TF_TensorData(c.inputs[i])
        for j in range(length(c.inputs[i])):
            next[0] = (<int32_t *> data)[j] if tf.TF_TensorType(c.inputs[i]) == INT32 else (<int64_t *> data)[j]
            next += 1
    return True


cdef void answer(Call *c) noexcept nogil:
    cdef Known *known = find(c, PLANNED if read_from(&enabled, ANY_ORDER) else NATIVE)
    cdef const Native *native
    if known == NULL:
        return
    count_up(&counters[known.counter], 1, ANY_ORDER)
    if known.recipe != NULL:
        follow_known(c, known)
    native = known.natives
    while native != NULL and tf.TF_GetCode(c.status) == OK:
        call_native(c, native)
        native = native.next
    if known.owner != NULL:
        forget(known)


cdef Known *find(Call *c, int what) noexcept nogil:
    """The answer for these inputs; NULL after an error."""
    cdef Known *known = first_of(&c.kernel.known[what], ACQUIRE)
    while known != NULL:
        if known.key_size == c.key_size and memcmp(known.key, c.key, c.key_size * sizeof(int64_t)) == 0:
            return known
        known = known.next
    return ask(c, what) if can_ask(c) else NULL


cdef bint can_ask(Call *c) noexcept nogil:
    if Py_IsInitialized():
        return True
    tf.TF_SetStatus(c.status, FAILED_PRECONDITION, "gradops: Python is being shut down, and has not yet planned a call of these shapes")
    return False


cdef void follow_known(Call *c, const Known *known) noexcept nogil:
    """Computes in the default floating-point environment: TensorFlow's threads flush denormals, those of OpenMP do not."""
    cdef Tensor out = tf.TF_AllocateOutput(c.context, 0, known.dtype, known.shape, known.rank, known.size, c.status)
    cdef const void *operands[MOST_OPERANDS]
    cdef fenv_t before
    cdef int i
    if tf.TF_GetCode(c.status) == OK and known.size > 0:
        for i in range(known.operand_count):
            operands[i] = tf.TF_TensorData(c.inputs[known.operands[i]])
        fegetenv(&before)
        fesetenv(FE_DFL_ENV)
        if follow(known.recipe, operands, tf.TF_TensorData(out), threads_of_call(known.recipe)) == NO_MEMORY:
            tf.TF_SetStatus(c.status, RESOURCE_EXHAUSTED, "gradops: no memory for packed panels and scratch")
        fesetenv(&before)
    if out != NULL:
        tf.TF_DeleteTensor(out)


cdef int threads_of_call(const Recipe *recipe) noexcept nogil:
    """0, that is what the process gives, unless TensorFlow may use fewer threads itself."""
    cdef int most = read_from(&most_threads, ANY_ORDER)
    return most if most > 0 and most < read_from(&recipe.threads.chosen, ANY_ORDER) else 0


cdef void call_native(Call *c, const Native *native) noexcept nogil:
    """Runs an op eagerly; where this thread would queue it, which might then wait for this very call, in a queue of its own."""
    cdef Executor former = tf.TFE_ContextGetExecutorForThread(native.eager), own = NULL
    cdef EagerOp op
    if tf.TFE_ExecutorIsAsync(former):
        own = tf.TFE_NewExecutor(False, False, 0)
        tf.TFE_ContextSetExecutorForThread(native.eager, own)
    op = tf.TFE_NewOp(native.eager, native.op, c.status)
    if op != NULL and set_up(c, native, op):
        execute(c, op, native.output)
    if op != NULL:
        tf.TFE_DeleteOp(op)
    if own != NULL:
        tf.TFE_ContextSetExecutorForThread(native.eager, former)
        tf.TFE_DeleteExecutor(own)
    tf.TFE_DeleteExecutor(former)


cdef bint set_up(Call *c, const Native *native, EagerOp op) noexcept nogil:
    cdef int i
    cdef Handle handle
    tf.TFE_OpSetDevice(op, "/device:CPU:0", c.status)
    for i in range(native.attributes):
        if tf.TF_GetCode(c.status) == OK:
            tf.TFE_OpSetAttrValueProto(op, native.names[i], native.values[i], native.sizes[i], c.status)
    for i in range(native.input_count):
        if tf.TF_GetCode(c.status) == OK:
            handle = tf.TFE_NewTensorHandle(c.inputs[native.inputs[i]], c.status)
            if handle != NULL:
                tf.TFE_OpAddInput(op, handle, c.status)
                tf.TFE_DeleteTensorHandle(handle)
    return tf.TF_GetCode(c.status) == OK


cdef void execute(Call *c, EagerOp op, int output) noexcept nogil:
    cdef Handle result = NULL
    cdef Tensor tensor = NULL
    cdef int count = 1
    tf.TFE_Execute(op, &result, &count, c.status)
    if tf.TF_GetCode(c.status) == OK:
        tensor = tf.TFE_TensorHandleResolve(result, c.status)
    if tf.TF_GetCode(c.status) == OK:
        tf.TF_SetOutput(c.context, output, tensor, c.status)
    if tensor != NULL:
        tf.TF_DeleteTensor(tensor)
    if result != NULL:
        tf.TFE_DeleteTensorHandle(result)


# Questions to Python

cdef object node_of(const Kernel *k):
    return PyBytes_FromStringAndSize(k.node, k.node_size)


cdef void fail(Call *c, object error):
    """A Python exception as TensorFlow's status."""
    cdef int code = INTERNAL
    if isinstance(error, (TypeError, ValueError)):
        code = INVALID_ARGUMENT
    elif isinstance(error, MemoryError):
        code = RESOURCE_EXHAUSTED
    text = str(error) if code != INTERNAL else f"{type(error).__name__}: {error}"
    tf.TF_SetStatus(c.status, code, f"gradops: {text}".encode())


cdef Known *ask(Call *c, int what) noexcept with gil:
    """Python's answer, put into the kernel's list if there is room; NULL after an error."""
    cdef Known *known = <Known *> calloc(1, sizeof(Known))
    try:
        if known == NULL:
            raise MemoryError("no memory for a plan")
        key = tuple([c.key[i] for i in range(c.key_size)])
        keep = fill(known, planner(node_of(c.kernel), key, what == NATIVE))
        if keep and c.key_size <= MOST_KEY and c.kernel.count[what] < MOST_KNOWN:
            add(c, what, known)
        return known
    except BaseException as error:
        fail(c, error)
        if known != NULL:
            Py_XDECREF(known.owner)
            release(known)
        return NULL


cdef void add(Call *c, int what, Known *known) noexcept:
    """Keeps an answer. Only who holds the GIL adds one; who looks for one needs no lock."""
    Py_XDECREF(known.owner)
    known.owner = NULL
    known.key_size = c.key_size
    memcpy(known.key, c.key, c.key_size * sizeof(int64_t))
    known.next = c.kernel.known[what]
    c.kernel.count[what] += 1
    publish(&c.kernel.known[what], known, RELEASE)


cdef void forget(Known *known) noexcept with gil:
    Py_XDECREF(known.owner)
    release(known)


cdef void release(Known *known) noexcept nogil:
    cdef Native *native
    while known.natives != NULL:
        native = known.natives
        known.natives = native.next
        free(native)
    free(known)


cdef bint fill(Known *known, tuple answer) except -1:
    """Writes down what the planner said; returns whether it keeps the recipe for good."""
    cdef int i
    recipe, operands, dtype, shape, size, ops, counter, keep = answer
    if len(operands) > MOST_OPERANDS or len(shape) > MOST_DIMENSIONS or not 0 <= counter < MOST_COUNTERS:
        raise RuntimeError(f"no kernel reads {len(operands)} arrays and writes {len(shape)} dimensions, counted at {counter}")
    Py_INCREF(recipe)
    known.owner = <PyObject *> recipe
    if recipe is not None:
        known.recipe = recipe_of(recipe)
    known.dtype, known.size, known.counter = dtype, size, counter
    known.operand_count, known.rank = len(operands), len(shape)
    for i in range(known.operand_count):
        known.operands[i] = operands[i]
    for i in range(known.rank):
        known.shape[i] = shape[i]
    for eager, name, attributes, inputs, output in ops:
        add_native(known, eager, name, attributes, inputs, output)
    return keep


cdef int add_native(Known *known, eager, bytes op, tuple attributes, tuple inputs, int output) except -1:
    """Adds an op to an answer, all that is known of it in one piece of memory."""
    cdef Native *native
    cdef char *next
    cdef size_t size = sizeof(Native) + len(attributes) * (2 * sizeof(char *) + sizeof(size_t))
    cdef int i
    if len(inputs) > MOST_INPUTS:
        raise RuntimeError(f"an op reads at most {MOST_INPUTS} inputs, got {len(inputs)}")
    texts = [op, *[text for pair in attributes for text in pair]]
    native = <Native *> malloc(size + sum([PyBytes_GET_SIZE(text) + 1 for text in texts]))
    if native == NULL:
        raise MemoryError("no memory for an op")
    native.next, known.natives = known.natives, native
    native.eager, native.output = PyCapsule_GetPointer(eager, NULL), output
    native.attributes, native.input_count = len(attributes), len(inputs)
    native.names = <const char **> (native + 1)
    native.values = native.names + native.attributes
    native.sizes = <size_t *> (native.values + native.attributes)
    next = <char *> native + size
    native.op = placed(&next, op)
    for i in range(native.attributes):
        native.names[i] = placed(&next, attributes[i][0])
        native.values[i] = placed(&next, attributes[i][1])
        native.sizes[i] = PyBytes_GET_SIZE(attributes[i][1])
    for i in range(native.input_count):
        native.inputs[i] = inputs[i]
    return 0


cdef const char *placed(char **next, bytes text):
    """A copy of `text` where `next` points, which moves behind it."""
    cdef char *place = next[0]
    memcpy(place, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text) + 1)
    next[0] += PyBytes_GET_SIZE(text) + 1
    return place
