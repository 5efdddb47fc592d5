# cython: language_level=3, cdivision=True
"""A sheet: some rows of planes of src, copied once for all taps, row after row, with zeros between that the end of one and the beginning of the next share.

So each tap reads the same pixels in one piece from another place on. Of pixels a stride apart, the *phases* of rows and columns, which no tap mixes, are sheets by
themselves, one after the other.
"""
from libc.stdint cimport int64_t
from _band cimport extent, lowest
from _problem cimport Lane, divide_up, larger, smaller


cdef struct Axis:                                       # rows or columns of a sheet
    int64_t phases                                      # into which a stride splits what is read
    int64_t start                                       # where the first phase begins in src
    int64_t reach                                       # what taps read beyond a pixel, in pixels
    int64_t pitch                                       # pixels from one row to the next or, of rows, from one image to the next


cdef inline Axis axis_of(const Lane *lane, int64_t size) noexcept nogil:
    """That of a lane whose src has so many rows or columns. Zeros are shared as far as all phases have them on both sides. *Assumes:* src_unit is 1."""
    cdef int64_t span = extent(lane, 1, lane.taps), f, width, before, after
    cdef Axis a
    a.phases, a.start, a.reach, a.pitch = smaller(lane.z_step, span), lane.src_start + lowest(lane, 0, lane.taps), (span - 1) // lane.z_step, lane.count
    for f in range(a.phases):
        width = lane.count + (span - 1 - f) // lane.z_step
        before = larger(divide_up(-a.start - f, lane.z_step), 0)
        after = width - larger(divide_up(size - a.start - f, lane.z_step), 0)
        a.pitch = larger(a.pitch, width - larger(smaller(before, after), 0))
    return a


cdef inline int64_t tap_place(const Lane *row, const Lane *col, const Axis *cols, int64_t plane, int64_t tap) noexcept nogil:
    """Where what a tap reads begins, from its pixel on, in phases of so many numbers each; taps are counted row by row."""
    cdef int64_t y = row.tap_step * (tap // col.taps) - lowest(row, 0, row.taps), x = col.tap_step * (tap % col.taps) - lowest(col, 0, col.taps)
    return (y % row.z_step * cols.phases + x % col.z_step) * plane + y // row.z_step * cols.pitch + x // col.z_step
