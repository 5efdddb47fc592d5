# cython: language_level=3, cdivision=True
"""What gradops calls of PyTorch's stable C interface: torch/csrc/inductor/aoti_torch/c/shim.h, its generated/c_shim_cpu.h and torch/csrc/stable/c/shim.h.

Pointers that are looked up in the PyTorch which the process has loaded, so that gradops is built without one. All return 0 but where nothing is
said; an error's text is kept for the thread.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

ctypedef void *Tensor
ctypedef void *List
ctypedef void *Library
ctypedef uint64_t Value                                 # StableIValue: a number, a handle, or of what may be missing a pointer to one

ctypedef void (*kernel_t)(Value *stack, uint64_t inputs, uint64_t outputs) noexcept nogil


cdef struct Torch:                                      # one pointer a line, in the order of torch_convolution.SYMBOLS
    int32_t (*aoti_torch_device_type_cpu)() noexcept nogil          # returns it, as the next ones do
    int32_t (*aoti_torch_layout_strided)() noexcept nogil
    int32_t (*aoti_torch_dtype_float32)() noexcept nogil
    int32_t (*aoti_torch_dtype_float64)() noexcept nogil
    int (*aoti_torch_get_dim)(Tensor tensor, int64_t *rank) noexcept nogil
    int (*aoti_torch_get_sizes)(Tensor tensor, int64_t **sizes) noexcept nogil
    int (*aoti_torch_get_strides)(Tensor tensor, int64_t **strides) noexcept nogil
    int (*aoti_torch_get_dtype)(Tensor tensor, int32_t *dtype) noexcept nogil
    int (*aoti_torch_get_device_type)(Tensor tensor, int32_t *device) noexcept nogil
    int (*aoti_torch_get_layout)(Tensor tensor, int32_t *layout) noexcept nogil
    int (*torch_get_const_data_ptr)(Tensor tensor, const void **data) noexcept nogil
    int (*torch_get_mutable_data_ptr)(Tensor tensor, void **data) noexcept nogil
    int (*aoti_torch_empty_strided)(int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device, int32_t index, Tensor *tensor) noexcept nogil
    int (*torch_from_blob)(void *data, int64_t rank, const int64_t *sizes, const int64_t *strides, int64_t offset, int32_t dtype, int32_t device, int32_t index, Tensor *tensor, int32_t layout, const void *metadata, int64_t metadata_size, void (*deleter)(void *data, void *owner) noexcept nogil, void *owner) noexcept nogil
    int (*aoti_torch_copy_)(Tensor to, Tensor src, int32_t non_blocking) noexcept nogil
    int (*aoti_torch_new_uninitialized_tensor)(Tensor *tensor) noexcept nogil
    int (*aoti_torch_new_tensor_handle)(Tensor tensor, Tensor *other) noexcept nogil
    int (*aoti_torch_delete_tensor_object)(Tensor tensor) noexcept nogil
    int (*torch_new_list_reserve_size)(size_t size, List *list) noexcept nogil
    int (*torch_list_push_back)(List list, Value value) noexcept nogil
    int (*torch_list_size)(List list, size_t *size) noexcept nogil
    int (*torch_list_get_item)(List list, size_t index, Value *value) noexcept nogil
    int (*torch_delete_list)(List list) noexcept nogil
    int (*torch_new_stable_ivalue)(Value **value) noexcept nogil
    int (*torch_delete_stable_ivalue)(Value *value) noexcept nogil
    int (*torch_get_num_threads)(uint32_t *threads) noexcept nogil
    int (*torch_call_dispatcher)(const char *op, const char *overload, Value *stack, uint64_t version) noexcept nogil
    int (*aoti_torch_cpu_convolution_backward)(Tensor dy, Tensor x, Tensor w, const int64_t **bias, int64_t bias_size, const int64_t *stride, int64_t stride_size, const int64_t *padding, int64_t padding_size, const int64_t *dilation, int64_t dilation_size, int32_t transposed, const int64_t *output_padding, int64_t output_padding_size, int64_t groups, const int32_t *mask, int64_t mask_size, Tensor *dx, Tensor *dw, Tensor *db) noexcept nogil
    int (*aoti_torch_library_init_impl)(const char *name, const char *key, const char *file, uint32_t line, Library *library) noexcept nogil
    int (*torch_library_impl)(Library library, const char *op, kernel_t kernel, uint64_t version) noexcept nogil
    int (*aoti_torch_delete_library_object)(Library library) noexcept nogil
    const char *(*torch_exception_get_what_without_backtrace)() noexcept nogil
    void (*throw_error)(const char *function, const char *file, uint32_t line, const char *message) noexcept nogil    # c10::detail::torchCheckFail, in C++
