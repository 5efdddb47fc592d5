# cython: language_level=3
"""What this CPU, compiler and OpenMP runtime offer. Built once, for the compiler's default target."""

cdef extern from *:
    """
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    static int gradops_supports_v3(void) { __builtin_cpu_init(); return __builtin_cpu_supports("x86-64-v3"); }
    static int gradops_supports_v4(void) { __builtin_cpu_init(); return __builtin_cpu_supports("x86-64-v4"); }
    static int gradops_supports_bf16(void) { return gradops_supports_v4() && __builtin_cpu_supports("avx512bf16"); }
    #else
    static int gradops_supports_v3(void) { return 0; }
    static int gradops_supports_v4(void) { return 0; }
    static int gradops_supports_bf16(void) { return 0; }
    #endif
    """
    bint gradops_supports_v3()
    bint gradops_supports_v4()
    bint gradops_supports_bf16()
    const char *__VERSION__
    const int _OPENMP

cdef extern from "omp.h" nogil:
    int omp_get_max_threads()


def supported_levels():
    """The ISA levels that this CPU and its operating system run, worst first."""
    levels = ["generic"]
    if gradops_supports_v3():
        levels.append("x86_64_v3")
    if gradops_supports_v4():
        levels.append("x86_64_v4")
    if gradops_supports_bf16():
        levels.append("x86_64_v4_bf16")
    return tuple(levels)


def compiler():
    """The compiler that built the kernels."""
    return (<bytes> __VERSION__).decode()


def openmp():
    """The date of the OpenMP standard that the compiler implements, as yyyymm."""
    return _OPENMP


def max_threads():
    """How many threads OpenMP would use by itself."""
    return omp_get_max_threads()
