"""The cellar: compiled loops, one .pyx per algorithm, one extension module per algorithm, precision and ISA level.

What all share:

kernels.h           the only C, in parts:
    machine.h       what the CPU and the system are asked for
    vectors.h       vector types and register-tile sizes per ISA level, hints to caches, transpositions
    doubles.h       vectors of doubles beside those of floats, for pooling
    pairs.h         pairs of bfloat16, multiplied two at once
    tiles.h         tiles of them (AMX)
    copies.h        numbers moved, by vectors
    halves.h        float16 and bfloat16: to and from float32
_problem.pxd        the struct that `gradops._geometry` packs: tensors, strides and the lanes that map pixels to pixels
_storage.pxd        widen and narrow: the one place that knows storage dtypes
storage_blocks.pyx  the same for blocks, transposed if need be: no kernel, but lent to each of its level and precision
_entry.pxd          the signature of kernels, and recipes as C sees them
_blocks.pxd         blocks of work, shared among threads
_partials.pxd       adds the partial sums of a reduction in order
_scratch.pxd        one aligned slab for a call

Dense convolutions, *gather* for outputs and input gradients, *reduce* for filter gradients:

conv_gather.pyx, conv_reduce.pyx              implicit GEMM: patches(src) . filter, patches(x)^T . dy; serve every problem
_gemm.pxd           the register tile and the loops around it
_patches.pxd        packs patches (the virtual im2col matrix) into panels, pixel-major or slot-major
_band.pxd           packs rows that the taps of some pixels read, once for all taps
_window.pxd         tiles that read once what a row of taps shares
_bundle.pxd         several groups of few channels as one
_lines.pxd          cache lines of what is needed next
winograd_gather.pyx, winograd_reduce.pyx, _winograd.pxd    up to 7x7 taps in fewer products
_families.pxd       pixels that read the same tiles, and taps that are added to the same
gemv_gather.pyx     few pixels
col2im_gather.pyx   products of each tap with all pixels, added to where they belong
stem_gather.pyx, stem_reduce.pyx              few channels, channels first

Depthwise convolutions and small groups:

depthwise_gather.pyx, depthwise_reduce.pyx    stencils over packed rows; serve every problem
_ring.pxd           packs rows of one channel block into a ring of rows
_groups.pxd         lanes that change places within a group
inplace_gather.pyx, inplace_reduce.pyx, _inplace.pxd       images read where they lie, channels last
planes_gather.pyx, planes_reduce.pyx, _planes.pxd          the same, channels first

Fractional average pooling:

pool_gather.pyx, pool_spread.pyx              forward and gradient
_cells.pxd          the cells of a pooling, and how images are cut into strips

What serves no op, or those who call:

roof.pyx            what the machine permits, measured for `gradops bench`
entry.pyx           how Python calls a kernel, and makes recipes for those who call from C
xla.pyx, _xla.pxd   XLA's custom call, for JAX, and as much of XLA's C interface as it uses
tensorflow_kernels.pyx, _tensorflow.pxd       kernels for TensorFlow's runtime, which follow recipes, and what they call of its C API
torch_convolution.pyx, _torch.pxd             the same for PyTorch's backward convolution, over its stable C interface
runtime.pyx         what this CPU, compiler and OpenMP offer

Nothing here is imported but by `gradops._dispatch`.
"""
