# cython: language_level=3, cdivision=True
"""Groups of few channels as fewer groups, bundles, of more: tiles multiply 2 TILE channels, and have as many sums, whether a group fills them or not."""
from libc.stdint cimport int64_t
from _problem cimport Problem, copy_problem, larger
from _storage cimport TILE

cdef enum:
    MOST_BUNDLED = 32                                   # channels of src or dst of a bundle, at most


cdef inline int64_t bundled_groups(const Problem *g) noexcept nogil:
    """How many groups a bundle has, at most; 1 if there are none, as where infinities may meet no zeros between groups."""
    cdef int64_t count = MOST_BUNDLED // larger(larger(g.src_channels, g.dst_channels), 1)
    if TILE == 1 or g.unpadded or g.groups == 1 or count < 2:
        return 1
    while g.groups % count:
        count -= 1
    return count


cdef inline void bundle_groups(const Problem *g, int64_t count, Problem *whole) noexcept nogil:
    """The same problem with so many groups as one; its filter is still the one of groups."""
    copy_problem(g, whole)
    whole.groups, whole.src_channels, whole.dst_channels = g.groups // count, g.src_channels * count, g.dst_channels * count
