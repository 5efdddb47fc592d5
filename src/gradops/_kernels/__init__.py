"""The cellar: compiled loops, one .pyx per algorithm, one extension module per algorithm, precision and ISA level.

kernels.h           the only C: vector types and register-tile sizes per ISA level, float16 and bfloat16 conversion
_problem.pxd        the struct that `gradops._geometry` packs: tensors, strides and the lanes that map pixels to pixels
_storage.pxd        widen and narrow: the one place that knows storage dtypes
_patches.pxd        packs patches (the virtual im2col matrix) into panels, pixel-major or slot-major
_gemm.pxd           the register tile and the loops around it
conv_gather.pyx     dst = patches(src) . filter: conv2d and conv2d_backprop_input
conv_reduce.pyx     dw = patches(x)^T . dy: conv2d_backprop_filter
_partials.pxd       adds the partial sums of a reduction in order
_scratch.pxd        one aligned slab for a call
_ring.pxd           packs rows of one channel block into a ring of rows
depthwise_gather.pyx, depthwise_reduce.pyx    the stencils behind the depthwise ops
_cells.pxd          the cells of a pooling, and how images are cut into strips
pool_gather.pyx, pool_spread.pyx              fractional average pooling and its gradient
roof.pyx            what the machine permits, measured for `gradops bench`; serves no op
entry.pyx           how Python calls a kernel, and makes recipes for those who call from C
_entry.pxd          the signature of kernels, and recipes as C sees them
xla.pyx             XLA's custom call, for JAX
_xla.pxd            as much of XLA's C interface as it uses
tensorflow_kernels.pyx   kernels for TensorFlow's runtime, which follow recipes
_tensorflow.pxd     what they call of TensorFlow's C API
runtime.pyx         what this CPU, compiler and OpenMP offer

Nothing here is imported but by `gradops._dispatch`.
"""
