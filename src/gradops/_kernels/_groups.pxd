# cython: language_level=3, cdivision=True
"""Groups of as many outputs as inputs, both few: a stencil over lanes that may change places within a group.

    dst[l] = sum_s src[l ^ s] filter[l ^ s -> l], 0 <= s < channels of a group

so that a vector of lanes of src is multiplied by `exchanges` vectors of the filter, one for each s; their sums stay apart, and change places once, at
the end. A group that is wider than a vector takes several for each vector of dst, whose lanes change places alike.

*Assumes:* the channels of a group are a power of two, at most WIDEST.
"""
from libc.stdint cimport int64_t
from _problem cimport Problem, larger, smaller
from _storage cimport real, VL

cdef enum:
    WIDEST = 16                                         # channels of a group, at most


cdef inline bint is_grouped(const Problem *g) noexcept nogil:
    """Whether lanes are channels of groups instead of (channel, multiplier) pairs."""
    return g.src_channels > 1 and g.dst_channels > 1


cdef inline int64_t group_lanes(const Problem *g) noexcept nogil:
    """Lanes that share their sums."""
    return g.src_channels if is_grouped(g) else 1


cdef inline int64_t exchanges(const Problem *g) noexcept nogil:
    """Sums of a vector of dst, one for each way in which lanes change places."""
    return smaller(group_lanes(g), VL)


cdef inline int64_t group_vectors(const Problem *g) noexcept nogil:
    """Vectors of src that a vector of dst needs."""
    return larger(group_lanes(g) // VL, 1)


cdef inline int64_t tap_vectors(const Problem *g, int64_t vectors) noexcept nogil:
    """Vectors of a tap of so many vectors of lanes: [vector of dst][vector of src][exchange]."""
    return vectors * group_lanes(g)


cdef inline void part_ways(const real *rows, int64_t ld, int64_t ways, int64_t wide, real *vectors) noexcept nogil:
    """vectors[u][s][l] = rows[(u VL + l % ways) ld + (l ^ s)]: a tap of one vector of dst lanes, whose rows are the channels of a group of src."""
    cdef int64_t u, s, lane
    for u in range(wide):
        for s in range(ways):
            for lane in range(VL):
                vectors[lane] = rows[(u * VL + (lane & (ways - 1))) * ld + (lane ^ s)]
            vectors += VL


cdef inline void join_ways(const real *vectors, int64_t ways, int64_t wide, real *rows, int64_t ld) noexcept nogil:
    """The inverse of part_ways."""
    cdef int64_t u, s, lane
    for u in range(wide):
        for s in range(ways):
            for lane in range(VL):
                rows[(u * VL + (lane & (ways - 1))) * ld + (lane ^ s)] = vectors[lane]
            vectors += VL
