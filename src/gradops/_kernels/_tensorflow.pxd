# cython: language_level=3, cdivision=True
"""What gradops calls of TensorFlow's C API: tensorflow/c/{tf_status,tf_buffer,tf_tensor,kernels}.h and tensorflow/c/eager/{c_api,c_api_experimental}.h.

Pointers that are looked up in the TensorFlow which the process has loaded, so that gradops is built without one.
"""
from libc.stdint cimport int32_t, int64_t

ctypedef void *Status
ctypedef void *Tensor
ctypedef void *Builder
ctypedef void *Construction
ctypedef void *Context
ctypedef void *Eager
ctypedef void *EagerOp
ctypedef void *Handle
ctypedef void *Executor

ctypedef void *(*create_t)(Construction context) noexcept nogil
ctypedef void (*compute_t)(void *kernel, Context context) noexcept nogil
ctypedef void (*delete_t)(void *kernel) noexcept nogil


cdef enum:                                              # TF_Code
    OK = 0
    INVALID_ARGUMENT = 3
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    INTERNAL = 13


cdef enum:                                              # TF_DataType
    INT32 = 3
    INT64 = 9


cdef struct Buffer:                                     # TF_Buffer
    const void *data
    size_t length
    void (*release)(void *data, size_t length) noexcept nogil


cdef struct TensorFlow:                                 # one pointer a line, in the order of tensorflow_kernels.SYMBOLS
    Status (*TF_NewStatus)() noexcept nogil
    void (*TF_DeleteStatus)(Status status) noexcept nogil
    void (*TF_SetStatus)(Status status, int code, const char *message) noexcept nogil
    int (*TF_GetCode)(Status status) noexcept nogil
    const char *(*TF_Message)(Status status) noexcept nogil
    void (*TF_DeleteBuffer)(Buffer *buffer) noexcept nogil
    int (*TF_TensorType)(Tensor tensor) noexcept nogil
    int (*TF_NumDims)(Tensor tensor) noexcept nogil
    int64_t (*TF_Dim)(Tensor tensor, int index) noexcept nogil
    void *(*TF_TensorData)(Tensor tensor) noexcept nogil
    void (*TF_DeleteTensor)(Tensor tensor) noexcept nogil
    Builder (*TF_NewKernelBuilder)(const char *op, const char *device, create_t create, compute_t compute, delete_t delete) noexcept nogil
    void (*TF_RegisterKernelBuilderWithKernelDef)(const char *definition, const char *name, Builder builder, Status status) noexcept nogil
    Buffer *(*TF_OpKernelConstruction_GetNodeDef)(Construction context, Status status) noexcept nogil
    void (*TF_OpKernelConstruction_Failure)(Construction context, Status status) noexcept nogil
    int (*TF_NumInputs)(Context context) noexcept nogil
    void (*TF_GetInput)(Context context, int index, Tensor *tensor, Status status) noexcept nogil
    Tensor (*TF_AllocateOutput)(Context context, int index, int dtype, const int64_t *dims, int rank, size_t size, Status status) noexcept nogil
    void (*TF_SetOutput)(Context context, int index, Tensor tensor, Status status) noexcept nogil
    void (*TF_OpKernelContext_Failure)(Context context, Status status) noexcept nogil
    EagerOp (*TFE_NewOp)(Eager eager, const char *name, Status status) noexcept nogil
    void (*TFE_DeleteOp)(EagerOp op) noexcept nogil
    void (*TFE_OpSetDevice)(EagerOp op, const char *device, Status status) noexcept nogil
    void (*TFE_OpAddInput)(EagerOp op, Handle handle, Status status) noexcept nogil
    void (*TFE_OpSetAttrValueProto)(EagerOp op, const char *name, const void *value, size_t size, Status status) noexcept nogil
    void (*TFE_Execute)(EagerOp op, Handle *results, int *count, Status status) noexcept nogil
    Handle (*TFE_NewTensorHandle)(Tensor tensor, Status status) noexcept nogil
    Tensor (*TFE_TensorHandleResolve)(Handle handle, Status status) noexcept nogil
    void (*TFE_DeleteTensorHandle)(Handle handle) noexcept nogil
    Executor (*TFE_NewExecutor)(unsigned char is_async, unsigned char streaming, int limit) noexcept nogil
    Executor (*TFE_ContextGetExecutorForThread)(Eager eager) noexcept nogil
    void (*TFE_ContextSetExecutorForThread)(Eager eager, Executor executor) noexcept nogil
    unsigned char (*TFE_ExecutorIsAsync)(Executor executor) noexcept nogil
    void (*TFE_DeleteExecutor)(Executor executor) noexcept nogil
