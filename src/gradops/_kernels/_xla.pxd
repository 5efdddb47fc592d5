# cython: language_level=3, cdivision=True
"""As much of XLA's C interface for custom calls as `xla` uses: xla/ffi/api/c_api.h, whose names begin with XLA_FFI_.

`tests/test_adapter_jax.py` holds sizes, offsets and numbers against the header of the installed jaxlib.
"""
from libc.stdint cimport int32_t, int64_t


cdef enum:
    API_MAJOR = 0
    API_MINOR = 3
    Extension_Metadata = 1
    Error_Code_INVALID_ARGUMENT = 3
    Error_Code_RESOURCE_EXHAUSTED = 8
    Error_Code_FAILED_PRECONDITION = 9
    AttrType_ARRAY = 1
    ArgType_BUFFER = 1
    RetType_BUFFER = 1
    DataType_S64 = 5


cdef struct Extension_Base:
    size_t struct_size
    int type
    Extension_Base *next


cdef struct Api_Version:
    size_t struct_size
    Extension_Base *extension_start
    int major_version
    int minor_version


cdef struct Metadata:
    size_t struct_size
    Api_Version api_version


cdef struct Metadata_Extension:
    Extension_Base extension_base
    Metadata *metadata


cdef struct Error_Create_Args:
    size_t struct_size
    Extension_Base *extension_start
    const char *message
    int errc


cdef struct Api:
    size_t struct_size
    Extension_Base *extension_start
    Api_Version api_version
    const void *internal_api
    void *(*Error_Create)(Error_Create_Args *) noexcept nogil


cdef struct ByteSpan:
    const char *ptr
    size_t len


cdef struct Buffer:
    size_t struct_size
    Extension_Base *extension_start
    int dtype
    void *data
    int64_t rank
    int64_t *dims


cdef struct Array:
    int dtype
    size_t size
    void *data


cdef struct Args:
    size_t struct_size
    Extension_Base *extension_start
    int64_t size
    int *types
    void **args


cdef struct Rets:
    size_t struct_size
    Extension_Base *extension_start
    int64_t size
    int *types
    void **rets


cdef struct Attrs:
    size_t struct_size
    Extension_Base *extension_start
    int64_t size
    int *types
    ByteSpan **names
    void **attrs


cdef struct CallFrame:
    size_t struct_size
    Extension_Base *extension_start
    const Api *api
    void *ctx
    int stage
    Args args
    Rets rets
    Attrs attrs
