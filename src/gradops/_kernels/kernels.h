/* The only C of gradops: vector types and register-tile sizes of each ISA level, and 16-bit floating point conversion. Each part needs those before it.
 *
 * GRADOPS_REAL_f64 selects the precision that a module computes in, GRADOPS_REAL_bf16 that it multiplies bfloat16 and adds in float32;
 * the compiler's target selects everything else, and whether the CPU has tiles (AMX), which multiply nothing else here.
 */
#ifndef GRADOPS_KERNELS_H
#define GRADOPS_KERNELS_H

#include <stdint.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif
#if defined(__F16C__) || defined(__AVX512BF16__)
#include <immintrin.h>
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

#include "machine.h"
#include "vectors.h"
#include "doubles.h"
#include "copies.h"
#include "pairs.h"
#include "tiles.h"
#include "halves.h"

#endif
