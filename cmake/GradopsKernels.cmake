# The functions behind the table in CMakeLists.txt. One .pyx becomes one extension module per ISA level (and per precision):
# gradops._kernels.<stem>[_<real>]_<level>. Each is transpiled by itself, so that its module name and tracebacks are right.

find_package(Python REQUIRED COMPONENTS Interpreter Development.Module NumPy)
find_package(OpenMP REQUIRED COMPONENTS C)
include(UseCython)

set(GRADOPS_KERNELS_DIR "${CMAKE_CURRENT_SOURCE_DIR}/src/gradops/_kernels")
set(GRADOPS_LEVELS "")

# -ffp-contract=fast: an ISO -std= would silently give no FMA at all. -fno-math-errno: inline square roots and conversions.
# -fno-tree-loop-distribute-patterns: short copies and clears stay loops instead of becoming calls of memcpy and memset.
set(GRADOPS_FLAGS -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fno-tree-loop-distribute-patterns
    -fvisibility=hidden -Wall -Wno-psabi -Wno-unused-function)

macro(gradops_level name)
  list(APPEND GRADOPS_LEVELS ${name})
  set(GRADOPS_FLAGS_${name} ${ARGN})
endmacro()

function(gradops_module stem module)
  cython_transpile("${GRADOPS_KERNELS_DIR}/${stem}.pyx" LANGUAGE C MODULE_NAME gradops._kernels.${module}
    OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${module}.c" OUTPUT_VARIABLE source
    INCLUDE_DIRECTORIES "${GRADOPS_KERNELS_DIR}" CYTHON_ARGS -3)
  python_add_library(${module} MODULE "${source}" WITH_SOABI)
  target_include_directories(${module} PRIVATE "${GRADOPS_KERNELS_DIR}")
  target_link_libraries(${module} PRIVATE Python::NumPy OpenMP::OpenMP_C)
  # Register tiles are inline functions with constant arguments: without always_inline GCC makes one clone with loops and spills.
  target_compile_definitions(${module} PRIVATE NPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION CYTHON_WITHOUT_ASSERTIONS
    "CYTHON_INLINE=inline __attribute__((always_inline))")
  target_compile_options(${module} PRIVATE ${GRADOPS_FLAGS} ${ARGN})
  install(TARGETS ${module} DESTINATION gradops/_kernels)
endfunction()

function(gradops_runtime stem)
  gradops_module(${stem} ${stem})
endfunction()

function(gradops_build level flags real)
  foreach(stem IN LISTS ARGN)
    gradops_module(${stem} ${stem}_${real}_${level} ${flags} -DGRADOPS_REAL_${real})
  endforeach()
endfunction()

function(gradops_kernel stem)
  foreach(level IN LISTS GRADOPS_LEVELS)
    if(ARGN)
      foreach(real IN LISTS ARGN)
        gradops_module(${stem} ${stem}_${real}_${level} ${GRADOPS_FLAGS_${level}} -DGRADOPS_REAL_${real})
      endforeach()
    else()
      gradops_module(${stem} ${stem}_${level} ${GRADOPS_FLAGS_${level}})
    endif()
  endforeach()
endfunction()
