# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Blocks of numbers from how they are stored to what is computed with, and back: rows are copied, columns transposed in registers.

No kernel: built once for each level and precision, and lent to each of its kernels (`widen_block` and `narrow_block` of `_storage.pxd`). Inlined in their
callers, it took a quarter longer to build all kernels, compiled by each of them an eighth, linked into each a seventh of the wheel, and none was faster.

*Assumes:* what is written overlaps nothing that is read.
"""
from libc.stdint cimport int64_t
from _problem cimport divide_up, larger, smaller
from _storage cimport real, vec, VL, WIDE, BFLOAT16, FLOAT16, clear, copy, copy_halves, copy_rows_every, has_halves, is_float16, item_size, lent, load, load_stored, narrow, narrow_strided, pair_narrowed, store, transpose, transpose_some, widen, widen_pair, widen_strided


cdef inline void widen_rows_strided(int storage, const char *src, int64_t src_row, int64_t step, int64_t rows, int64_t n, real *dst, int64_t ld) noexcept nogil:
    """widen_strided for rows."""
    cdef int64_t r
    if has_halves(storage) or not 2 <= step <= 4:
        for r in range(rows):
            widen_strided(storage, src + r * src_row * item_size(storage), step, n, dst + r * ld)
    elif step == 2:
        copy_rows_every(2, <const real *> src, src_row, rows, n, dst, ld)
    elif step == 3:
        copy_rows_every(3, <const real *> src, src_row, rows, n, dst, ld)
    else:
        copy_rows_every(4, <const real *> src, src_row, rows, n, dst, ld)


cdef inline int64_t block_start(int64_t index, int64_t size, int64_t block) noexcept nogil:
    """Of blocks that cover `size`; the last one of several begins early enough to be full."""
    return larger(smaller(index * block, size - block), 0)


cdef inline int64_t turned_rows(int storage) noexcept nogil:
    """Rows that are transposed at once, at most: of numbers, or of words of two 16-bit ones."""
    return VL if not has_halves(storage) else 2 * VL


cdef inline void widen_turned(int storage, const char *src, int64_t src_col, int64_t rows, int64_t cols, real *dst, int64_t ld) noexcept nogil:
    """dst[r ld + c] = src[r + c src_col] for r < rows <= turned_rows, c < cols <= VL: transposed in registers, unless columns are few."""
    cdef real[256] block, turned
    cdef int64_t i, j
    if has_halves(storage):
        for i in range(cols):
            copy_halves(src + i * src_col * 2, rows, block + i * VL)
        transpose(block, VL, turned, VL)
        for i in range(divide_up(rows, 2)):
            widen_words(not is_float16(storage), load(turned + i * VL), rows - 2 * i, cols, dst + 2 * i * ld, ld)
    elif rows == VL and cols == VL:
        transpose(<const real *> src, src_col, dst, ld)
    elif 2 * cols < VL:
        for i in range(cols):
            for j in range(rows):
                dst[j * ld + i] = (<const real *> src)[i * src_col + j]
    else:
        transpose_some(<const real *> src, src_col, cols, rows, dst, ld)


cdef inline void widen_words(bint bfloat, vec words, int64_t rows, int64_t cols, real *dst, int64_t ld) noexcept nogil:
    """The lower halves become a row of dst, and the upper ones the next, if there are two."""
    cdef real[2 * 16] block
    if rows > 1 and cols == VL:
        widen_pair(bfloat, words, dst, dst + ld)
        return
    widen_pair(bfloat, words, block, block + VL)
    copy(block, cols, dst)
    if rows > 1:
        copy(block + VL, cols, dst + ld)


cdef inline void narrow_turned(int storage, const real *src, int64_t ld, int64_t rows, int64_t cols, char *dst, int64_t dst_col) noexcept nogil:
    """dst[r + c dst_col] = src[r ld + c], the inverse of widen_turned."""
    cdef real[256] block, turned
    cdef int64_t i
    if has_halves(storage):
        for i in range(divide_up(rows, 2)):
            store(block + i * VL, narrow_words(not is_float16(storage), src + 2 * i * ld, rows - 2 * i, cols, ld))
        transpose(block, VL, turned, VL)
        for i in range(cols):
            copy_halves(turned + i * VL, rows, dst + i * dst_col * 2)
    elif rows == VL and cols == VL:
        transpose(src, ld, <real *> dst, dst_col)
    else:
        transpose_some(src, ld, rows, cols, <real *> dst, dst_col)


cdef inline vec narrow_words(bint bfloat, const real *src, int64_t rows, int64_t cols, int64_t ld) noexcept nogil:
    """Two rows, or one beside zeros, as words."""
    cdef real[2 * 16] block
    if rows > 1 and cols == VL:
        return pair_narrowed(bfloat, load(src), load(src + ld))
    clear(block, 2 * VL)
    copy(src, cols, block)
    if rows > 1:
        copy(src + ld, cols, block + VL)
    return pair_narrowed(bfloat, load(block), load(block + VL))


cdef inline void widen_vectors(int storage, const char *src, int64_t src_row, int64_t rows, int64_t vectors, real *dst, int64_t ld) noexcept nogil:
    """Rows of so many whole vectors of 16-bit numbers. *Assumes:* storage is a compile-time constant of the caller."""
    cdef int64_t r, i
    for r in range(rows):
        for i in range(vectors):
            store(dst + r * ld + i * VL, load_stored(storage, src + (r * src_row + i * VL) * 2))


cdef void widen_any_block(int storage, const char *src, int64_t src_row, int64_t src_col, int64_t rows, int64_t cols, real *dst, int64_t ld) noexcept nogil:
    """dst[r ld + c] = src[r src_row + c src_col]."""
    cdef int64_t size = item_size(storage), r, c, i, j, most, height, width
    if src_col == 1 and cols == VL:                     # a constant: vectors without a call for each
        for r in range(rows):
            widen(storage, src + r * src_row * size, VL, dst + r * ld)
    elif WIDE > 1 and src_col == 1 and cols % VL == 0 and storage == FLOAT16:
        widen_vectors(FLOAT16, src, src_row, rows, cols // VL, dst, ld)
    elif WIDE > 1 and src_col == 1 and cols % VL == 0 and storage == BFLOAT16:
        widen_vectors(BFLOAT16, src, src_row, rows, cols // VL, dst, ld)
    elif src_col == 1:
        for r in range(rows):
            widen(storage, src + r * src_row * size, cols, dst + r * ld)
    elif src_row != 1 or rows < 4:
        widen_rows_strided(storage, src, src_row, src_col, rows, cols, dst, ld)
    else:
        most = turned_rows(storage)
        height, width = smaller(rows, most), smaller(cols, VL)
        for i in range(divide_up(rows, most)):
            r = block_start(i, rows, most)
            for j in range(divide_up(cols, VL)):
                c = block_start(j, cols, VL)
                widen_turned(storage, src + (r + c * src_col) * size, src_col, height, width, dst + r * ld + c, ld)


cdef void narrow_any_block(int storage, const real *src, int64_t ld, int64_t rows, int64_t cols, char *dst, int64_t dst_row, int64_t dst_col) noexcept nogil:
    """dst[r dst_row + c dst_col] = src[r ld + c]."""
    cdef int64_t size = item_size(storage), r, c, i, j, most, height, width
    if dst_col == 1 and cols == VL:
        for r in range(rows):
            narrow(storage, src + r * ld, VL, dst + r * dst_row * size)
    elif dst_col == 1:
        for r in range(rows):
            narrow(storage, src + r * ld, cols, dst + r * dst_row * size)
    elif dst_row != 1 or rows < 4:
        for r in range(rows):
            narrow_strided(storage, src + r * ld, cols, dst + r * dst_row * size, dst_col)
    else:
        most = turned_rows(storage)
        height, width = smaller(rows, most), smaller(cols, VL)
        for i in range(divide_up(rows, most)):
            r = block_start(i, rows, most)
            for j in range(divide_up(cols, VL)):
                c = block_start(j, cols, VL)
                narrow_turned(storage, src + r * ld + c, ld, height, width, dst + (r + c * dst_col) * size, dst_col)


widen_blocks = lent(<void *> widen_any_block)
narrow_blocks = lent(<void *> narrow_any_block)
