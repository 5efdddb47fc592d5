# The functions behind the table in CMakeLists.txt. One .pyx becomes one extension module per ISA level (and per precision):
# gradops._kernels.<stem>[_<real>]_<level>.

find_package(Python REQUIRED COMPONENTS Interpreter Development.Module NumPy)
find_package(OpenMP REQUIRED COMPONENTS C)

set(GRADOPS_KERNELS_DIR "${CMAKE_CURRENT_SOURCE_DIR}/src/gradops/_kernels")
set(GRADOPS_LEVELS "")

# -ffp-contract=fast: an ISO -std= would silently give no FMA at all. -fno-math-errno: inline square roots and conversions.
# -fno-tree-loop-distribute-patterns: short copies and clears stay loops instead of becoming calls of memcpy and memset.
# -fno-asynchronous-unwind-tables: nothing is thrown through kernels, and the tables are some percent of the wheel.
set(GRADOPS_FLAGS -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fno-tree-loop-distribute-patterns -fno-asynchronous-unwind-tables
    -fvisibility=hidden)
# What to warn of, which is mostly Cython's code, takes 6 % of the time to find.
option(GRADOPS_WARNINGS "Have the compiler warn" OFF)
if(GRADOPS_WARNINGS)
  list(APPEND GRADOPS_FLAGS -Wall -Wno-psabi -Wno-unused-function)
else()
  list(APPEND GRADOPS_FLAGS -w)
endif()
# What GCC copies loops for, a third of the time to compile, and what it searches whole functions for, a tenth: no kernel is faster.
foreach(search gcse gcse-after-reload split-loops tree-slp-vectorize unswitch-loops)
  list(APPEND GRADOPS_FLAGS $<$<C_COMPILER_ID:GNU>:-fno-${search}>)
endforeach()

# Register tiles are unrolled as a whole, beyond what GCC would do by itself: loops that it leaves have their sums in memory. What
# GCC then searches them for, up to half of the time to compile, makes none faster (transforms of Winograd's it does: 5 to 15 %),
# nor do copies of loops for the strides they may have (packing they do: up to 1.5 times).
set(GRADOPS_UNSEARCHED "")
set(GRADOPS_UNROLLED --param=max-completely-peeled-insns=2000 --param=max-completely-peel-times=32 --param=max-peel-branches=1000)
foreach(search tree-ccp tree-vrp tree-dominator-opts tree-pre split-paths)
  list(APPEND GRADOPS_UNSEARCHED -fno-${search})
endforeach()
set(GRADOPS_FLAGS_OF_torch_convolution -fexceptions)           # through which PyTorch's errors are thrown
set(GRADOPS_FLAGS_OF_gemv_gather $<$<C_COMPILER_ID:GNU>:${GRADOPS_UNROLLED}>)
foreach(stem col2im_gather winograd_gather winograd_reduce)               # whose tiles GCC would otherwise copy for each caller
  set(GRADOPS_FLAGS_OF_${stem} $<$<C_COMPILER_ID:GNU>:${GRADOPS_UNROLLED};-fno-ipa-cp-clone>)
endforeach()
foreach(stem conv_gather conv_reduce)
  set(GRADOPS_FLAGS_OF_${stem} $<$<C_COMPILER_ID:GNU>:${GRADOPS_UNROLLED};${GRADOPS_UNSEARCHED}>)
endforeach()
foreach(stem inplace_gather inplace_reduce planes_gather planes_reduce)
  set(GRADOPS_FLAGS_OF_${stem} $<$<C_COMPILER_ID:GNU>:${GRADOPS_UNROLLED};${GRADOPS_UNSEARCHED};-fno-version-loops-for-strides>)
endforeach()
# What is computed before a tile's loop takes registers that its sums need: without, 3 to 6 % less code, tiles of 16 bits 1.0 to 1.06 times as fast.
list(APPEND GRADOPS_FLAGS_OF_inplace_reduce $<$<C_COMPILER_ID:GNU>:-fno-tree-loop-im>)

macro(gradops_level name)
  list(APPEND GRADOPS_LEVELS ${name})
  set(GRADOPS_FLAGS_${name} ${ARGN})
endmacro()

# All .pyx become C code at once, in which Ninja finds what has changed.
file(GLOB GRADOPS_SOURCES CONFIGURE_DEPENDS "${GRADOPS_KERNELS_DIR}/*.pyx" "${GRADOPS_KERNELS_DIR}/*.px[di]" "${GRADOPS_KERNELS_DIR}/*.h")
file(GLOB GRADOPS_STEMS CONFIGURE_DEPENDS RELATIVE "${GRADOPS_KERNELS_DIR}" "${GRADOPS_KERNELS_DIR}/*.pyx")
list(TRANSFORM GRADOPS_STEMS REPLACE "\\.pyx$" "")
set(GRADOPS_TRANSPILED ${GRADOPS_STEMS})
list(TRANSFORM GRADOPS_TRANSPILED REPLACE "(.+)" "${CMAKE_CURRENT_BINARY_DIR}/\\1.c")
set(GRADOPS_TRANSPILER "${CMAKE_CURRENT_SOURCE_DIR}/cmake/transpile.py")
add_custom_command(OUTPUT ${GRADOPS_TRANSPILED} DEPENDS ${GRADOPS_SOURCES} "${GRADOPS_TRANSPILER}" VERBATIM
  COMMAND Python::Interpreter "${GRADOPS_TRANSPILER}" "${GRADOPS_KERNELS_DIR}" "${CMAKE_CURRENT_BINARY_DIR}" ${GRADOPS_STEMS})
add_custom_target(gradops_transpiled DEPENDS ${GRADOPS_TRANSPILED})

# The C code of a module that is named otherwise than its .pyx: a copy that has been told so.
function(gradops_source stem module)
  if(NOT module STREQUAL stem)
    set(transpiled "${CMAKE_CURRENT_BINARY_DIR}/${stem}.c")
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${module}.c")
    set(script "${CMAKE_CURRENT_SOURCE_DIR}/cmake/RenameModule.cmake")
    add_custom_command(OUTPUT "${source}" DEPENDS "${transpiled}" "${script}" VERBATIM
      COMMAND ${CMAKE_COMMAND} "-DFROM=${transpiled}" "-DTO=${source}" -P "${script}")
  endif()
endfunction()

function(gradops_options stem target)
  add_dependencies(${target} gradops_transpiled)  # once, also where make runs
  target_include_directories(${target} PRIVATE "${GRADOPS_KERNELS_DIR}")
  target_link_libraries(${target} PRIVATE Python::NumPy OpenMP::OpenMP_C)
  # Register tiles are inline functions with constant arguments: without always_inline GCC makes one clone with loops and spills.
  target_compile_definitions(${target} PRIVATE NPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION CYTHON_WITHOUT_ASSERTIONS
    "CYTHON_INLINE=inline __attribute__((always_inline))")
  target_compile_options(${target} PRIVATE ${GRADOPS_FLAGS} ${GRADOPS_FLAGS_OF_${stem}} ${ARGN})
endfunction()

# A module that Python imports.
function(gradops_module stem module)
  gradops_source(${stem} ${module})
  python_add_library(${module} MODULE "${CMAKE_CURRENT_BINARY_DIR}/${module}.c" WITH_SOABI)
  gradops_options(${stem} ${module} ${ARGN})
  install(TARGETS ${module} DESTINATION gradops/_kernels)
endfunction()

# One build of a kernel, which borrows functions of the `storage_blocks` of its level and precision.
function(gradops_build_one stem real level)
  gradops_module(${stem} ${stem}_${real}_${level} ${ARGN} -DGRADOPS_REAL_${real} -DGRADOPS_STORAGE=storage_blocks_${real}_${level})
endfunction()

function(gradops_runtime stem)
  gradops_module(${stem} ${stem})
endfunction()

function(gradops_build level flags real)
  foreach(stem IN LISTS ARGN)
    gradops_build_one(${stem} ${real} ${level} ${flags})
  endforeach()
endfunction()

function(gradops_kernel stem)
  foreach(level IN LISTS GRADOPS_LEVELS)
    foreach(real IN LISTS ARGN)
      gradops_build_one(${stem} ${real} ${level} ${GRADOPS_FLAGS_${level}})
    endforeach()
    if(NOT ARGN)
      gradops_module(${stem} ${stem}_${level} ${GRADOPS_FLAGS_${level}})
    endif()
  endforeach()
endfunction()
