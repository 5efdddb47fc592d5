# cython: language_level=3, cdivision=True
"""Cache lines of pixels side by side, as rows of an image and images follow each other: the first line of all of them, then the second, and so on.

What is read and written next is fetched some lines at a time, evenly spread over what is computed until then.
"""
from libc.stdint cimport int64_t
from _problem cimport divide_up, smaller
from _storage cimport LINE

cdef struct Lines:
    const char *at                                      # the next one
    int64_t step, pixels                                # bytes from pixel to pixel, how many
    int64_t left, lines                                 # pixels whose line is left, further lines of all pixels


cdef inline Lines lines_of(const char *at, int64_t step, int64_t pixels, int64_t size) noexcept nogil:
    """Of so many pixels, `step` bytes apart, the first of which has `size` bytes at `at`."""
    cdef Lines s
    s.at, s.step, s.pixels, s.left, s.lines = at, step, pixels, pixels, divide_up(size, LINE) - 1
    return s


cdef inline Lines no_lines() noexcept nogil:
    return lines_of(NULL, 0, 0, 0)


cdef inline int64_t lines_left(const Lines *s) noexcept nogil:
    return s.left + s.lines * s.pixels if s.left else 0


cdef inline const char *take_lines(Lines *s, int64_t count) noexcept nogil:
    """Where the next `count` lines begin, `step` bytes apart: fewer, if that many are not left of all pixels."""
    cdef const char *at = s.at
    count = smaller(count, s.left)
    s.at, s.left = at + count * s.step, s.left - count
    if s.left == 0 and s.lines > 0:
        s.at, s.left, s.lines = s.at - s.pixels * s.step + LINE, s.pixels, s.lines - 1
    return at
