# cython: language_level=3, cdivision=True
"""What the depthwise kernels share that read images where they lie: the tiles of a strip, and which of its rows and columns are inside.

A vector is a register full of numbers as they are stored: VL real ones or, of 16 bits, WIDE VL, which are computed with as WIDE registers; or two
registers of real ones. Where WIDE is 1, or there are too few channels for such a vector, 16-bit numbers are *staged*: VL of them a vector, widened into
a window in the first cache, from which a tile is then computed in the same way.

A tile of some pixels walks either *down* a few rows, for one vector of channels after the other, or *across* all vectors of channels, for one row
after the other. Down, rows share what they read while it is in the first cache; across, memory is read and written in its order, and may be fetched so.
Or tiles go *along* a few rows, for one vector of channels after the other, while the next rows are fetched in the order of memory. *Tall* tiles walk down
and read each row once. Lanes of dilated rows and columns share no pixels: a pair of them is an image of its own, computed in its *turn*, as are segments of long rows.
"""
from libc.stdint cimport int64_t
from _problem cimport Lane, Problem, row_lanes, col_lanes, copy_problem, divide_up, image_size, larger, part, problem_size, smaller
from _scratch cimport padded
from _storage cimport real, LINE, MR, VL, WIDE, BFLOAT16, FLOAT16, REAL_PAIR, REAL_STORAGE, copy, copy_every, fetch_lines, interleave, is_intel, item_size, narrow, prefetch_soon, unknown, widen

cdef enum:
    TAPS = 7                                            # of a row that tiles are made for, at most (TILE_TAPS of gradops._algorithms.inplace)
    PIXELS = 8                                          # of a register tile, at most
    MANY_VECTORS = 7                                    # of channels, so many that one which is computed twice takes little
    ROWS = 8                                            # of a strip: at most, if it is staged or written beyond the caches, else at least
    PAGE = 4096                                         # bytes
    WAY = 4096                                          # of a cache's way: what lies at multiples of it falls on one set
    CROWDED = WAY // 2                                  # pixels at multiples of this distance, in bytes, fall on two sets
    CROWDED_TILES = CROWDED // 2                        # and crowd the sets of larger tiles
    TALL_TAPS = 3                                       # taps in a row, and rows of them, of tiles that read each row once
    FEW_CHANNELS = 256                                  # of a pixel, in bytes, that few cache lines hold anyway
    NOWHERE = 30 << 20                                  # bytes of images that no last cache holds, about
    MOST_RUN = 1024                                     # of a pixel, in bytes, whose tiles stay in the first cache beside the next ones
    SWEPT_WAYS = 12                                     # of the smallest first cache that keeps them
    CROWDED_RUN = 512                                   # pixels of multiples of this, in bytes, crowd it
    MOST_TAPS = 25                                      # of a filter, beyond which a tile computes longer than it takes to be fetched in any order
    FEW_TAPS = 9                                        # of a filter, for which reading rows again from the second cache costs little
    AHEAD = 192 << 10                                   # bytes of a strip, or a tile of it, whose like is fetched ahead, about, where vectors are cache lines,
    NARROW_AHEAD = 96 << 10                             # and where they are narrower: such CPUs have smaller caches. Of 32 channels that takes 0.7 of the time (Zen 2)
    ALONG_AHEAD = 160 << 10                             # bytes of rows of src, at most, of a strip along which tiles go, so that the second cache holds it, its
    WHOLE_ROW = 176 << 10                               # bytes of the longest row of src along which they go from end to end,
    SEGMENT = 64 << 10                                  # and of the segments, about, that they go along down all longer rows
    ALONG_ROWS = 4                                      # results and the next one; and as many rows, at most
    PAIR_AHEAD = 128 << 10                              # bytes of a strip of a pair of lanes, about, whose like is fetched ahead


cdef enum:                                              # ways of tiles
    DOWN, ACROSS, SWEEP, ALONG, TALL                    # SWEEP: across, each tile fetching the next one in the order of memory


cdef struct Lanes:                                      # that are computed together
    const Lane *row
    const Lane *col
    int64_t rows, cols                                  # how many of each


cdef struct Walk:                                       # down some rows of a lane of rows or across some vectors, by a tile of a lane of columns
    int64_t rows, y                                     # the first one's first tap reads row y
    int64_t step, unit, taps                            # from row to row, from tap to tap, how many
    int64_t fresh                                       # rows of src that a row reads and the one before did not, about
    int64_t limit                                       # rows of src
    int64_t src_y, src_x, dst_y, dst_x                  # distances of rows of src, columns of src, rows and pixels of dst, in bytes
    int64_t filter_row, filter_col                      # in reals
    int64_t src, dst                                    # the tile's first pixel: its first column in row 0 of src, and dst, in bytes
    int64_t weights                                     # its first tap, in reals
    int64_t low, high                                   # the columns that lie inside the image
    int64_t skip                                        # pixels that the tile before has
    int64_t vectors                                     # of channels, one after the other, `vector` bytes and `panel` reals of the filter apart
    int64_t vector, panel
    int64_t src_ahead, dst_ahead                        # to what is fetched, in bytes
    bint fetch                                          # whether to fetch that
    bint strips                                         # whether that is the same tile of the next strip, rather than the next tile
    int64_t lines                                       # of a pixel's vectors, if that is fetched in the order of memory, else 0
    int64_t tiles, reach                                # along a row, and pixels from the first one to the last, if they follow each other,
    int64_t from_vector                                 # for all vectors from this one on,
    const char *next_src                                # and where the rows begin that they fetch,
    const char *next_dst
    bint whole                                          # and whether those rows are one piece of memory
    bint past                                           # whether results are written past all caches
    bint staged
    int storage                                         # of what is read, before it is staged
    int64_t lanes                                       # numbers of a vector
    const char *zeros                                   # a vector of them


cdef inline bint comes_first(const Problem *g) noexcept nogil:
    """Whether channels come before pixels, which then have to be turned. Those of an image of one pixel lie side by side in any layout."""
    return g.src_c != 1 or g.dst_c != 1


cdef inline int64_t copy_size(const Problem *g) noexcept nogil:
    """Reals of a copy of a problem with its lanes, where one is needed."""
    return padded(divide_up(problem_size(g), sizeof(real))) if comes_first(g) else 0


cdef inline const Problem *turned(const Problem *g, real *memory) noexcept nogil:
    """The same problem for one image and a vector of channels, that of each pixel beside those of its neighbours, in the memory of a copy."""
    cdef Problem *near = copy_problem(g, memory)
    near.images, near.groups = 1, VL
    near.src_n, near.src_y, near.src_x, near.src_c = 0, g.src_cols * VL, VL, 1
    near.dst_n, near.dst_y, near.dst_x, near.dst_c = 0, g.dst_cols * VL, VL, 1
    return near


cdef inline int64_t turned_size(const Problem *g) noexcept nogil:
    """Reals of the scratch in which an image's vectors of src and then of dst lie, if they have to be turned."""
    return padded(g.src_rows * g.src_cols * VL) + padded(g.dst_rows * g.dst_cols * VL) if comes_first(g) else 0


cdef inline bint share_nothing(const Problem *g) noexcept nogil:
    """Whether there are several pairs of lanes, which share no pixels: those of dilated rows and columns."""
    return g.row_lanes * g.col_lanes > 1 and row_lanes(g).src_unit > 1 and col_lanes(g).src_unit > 1


cdef inline int64_t turns(const Problem *g, int64_t size, int way) noexcept nogil:
    """Parts of the lanes that are computed one after the other, so that caches keep what one reads again. Pairs of lanes that share nothing: all of them strip by strip
    take 1.0 to 1.6 times as long with dilations of 2 to 8, 1.2 to 3 with larger ones. Segments of long rows along which tiles go: rows from end to end take 1.0
    to 1.6 times as long, but 0.9 to 1.0 of those that are no longer than WHOLE_ROW (Zen 4)."""
    if way == ALONG and g.src_y * size > WHOLE_ROW:
        return larger(smaller((g.src_y * size + SEGMENT // 2) // SEGMENT, col_lanes(g).count // PIXELS), 1)
    return g.row_lanes * g.col_lanes if share_nothing(g) and not comes_first(g) else 1


cdef inline Lanes lanes_of_turn(const Problem *g, int way, int64_t count, int64_t index, Lane *segment) noexcept nogil:
    """One of so many turns; the segment lies in memory of the caller's."""
    cdef Lanes lanes
    cdef int64_t first
    lanes.row, lanes.col, lanes.rows, lanes.cols = row_lanes(g), col_lanes(g), g.row_lanes, g.col_lanes
    if count > 1:
        lanes.rows = lanes.cols = 1
    if way == ALONG:
        segment[0] = col_lanes(g)[0]
        first = part(segment.count, index, count)
        segment.count = part(segment.count, index + 1, count) - first
        segment.out_start += first
        segment.src_start += first
        lanes.col = segment
    elif count > 1:
        lanes.row, lanes.col = row_lanes(g) + index // g.col_lanes, col_lanes(g) + index % g.col_lanes
    return lanes


cdef inline int64_t rows_of_strip(const Problem *g, int storage, int held, int way, bint far, bint strips, int64_t count) noexcept nogil:
    """Rows of a lane that a tile walks down, in so many turns: one across channels, all for tall tiles of images in a cache. Else few enough for what is fetched for
    the next tile to stay in the second cache until then. Of large images, which are best written in their order, few enough for what is fetched for the next
    strip to stay there."""
    cdef int64_t size = item_size(storage), ahead = AHEAD if MR > 6 else NARROW_AHEAD
    cdef const Lane *row = row_lanes(g)
    cdef const Lane *col = col_lanes(g)
    if way == ALONG:
        return along_rows(g, size, count)
    if count > 1 and strips and far:
        return larger(smaller(PAIR_AHEAD * row.count * count // image_size(g, size), ROWS), 1)
    if way == ACROSS or way == SWEEP:
        return 1
    if way == TALL and not far:
        return g.dst_rows
    if strips and far:
        return larger(smaller(ahead * row.count // image_size(g, size), ROWS), 1)
    if is_staged(storage, held):
        return ROWS
    return larger(ahead // (PIXELS // 2 * (row.z_step * col.z_step * col.src_unit * g.src_x + g.dst_x) * size), ROWS)


cdef inline int held_storage(const Problem *g, int storage) noexcept nogil:
    """What tiles are computed from, if not from pairs: numbers as they are stored, unless those have to be widened."""
    return storage if storage == REAL_STORAGE or (WIDE > 1 and g.groups >= WIDE * VL and not comes_first(g)) else REAL_STORAGE


cdef inline bint has_pairs(const Problem *g, int storage, bint far) noexcept nogil:
    """Whether vectors may be two registers: of rows of three taps, which leave enough of them, in images of which nothing has to be fetched."""
    cdef int64_t i
    if storage != REAL_STORAGE or MR <= 6 or g.col_lanes == 0 or comes_first(g) or far:
        return False
    for i in range(g.col_lanes):
        if col_lanes(g)[i].taps != 3 or not has_tiles(col_lanes(g) + i):
            return False
    return g.groups % (2 * VL) == 0 or g.groups >= MANY_VECTORS * VL


cdef inline int registers(int held) noexcept nogil:
    """Of a vector."""
    return 2 if held == REAL_PAIR else 1 if held == REAL_STORAGE else WIDE


cdef inline void into_registers(int held, real *vector) noexcept nogil:
    """Brings a vector's channels, widened, into the order that `load_wide` has."""
    cdef real[2 * 16] channels
    if held == BFLOAT16:
        copy(vector, 2 * VL, channels)
        copy_every(2, channels, VL, vector)
        copy_every(2, channels + 1, VL, vector + VL)


cdef inline void from_registers(int held, real *vector) noexcept nogil:
    """The inverse of into_registers."""
    cdef real[2 * 16] channels
    if held == BFLOAT16:
        copy(vector, 2 * VL, channels)
        interleave(channels, channels + VL, VL, vector)


cdef inline bint begins_line(const Walk *s, const char *vector) noexcept nogil:
    """Whether a vector is the first one of a cache line."""
    return <int64_t> vector % LINE < s.vector


cdef inline int64_t vectors_at_once(const Walk *s, const Problem *g, int64_t v, int64_t end) noexcept nogil:
    """Of the vectors v.., how many follow each other."""
    return 1 if s.staged else larger(smaller(end, g.groups // s.lanes) - v, 1)


cdef inline int64_t first_channel(const Problem *g, int64_t v, int64_t lanes) noexcept nogil:
    """Of a vector of channels. The last one begins early enough to be full."""
    return smaller(v * lanes, g.groups - lanes)


cdef inline bint is_across(const Problem *g, int storage, int held, bint far) noexcept nogil:
    """Whether tiles go across the channels of a row, as results with a stride lie, rather than down some rows, which then find in the first cache what they
    share: where pixels would crowd few sets of it, where a stride leaves gaps in dst, and in src, if that is far and its rows crowd, too."""
    cdef int64_t size = item_size(storage)
    if is_staged(storage, held):
        return False
    if col_lanes(g).src_unit * g.src_x * size % CROWDED == 0:
        return True
    if storage != REAL_STORAGE or g.filter_rows * g.filter_cols > FEW_TAPS or g.groups * size < FEW_CHANNELS or col_lanes(g).src_unit > 1:
        return False
    return g.col_lanes > 1 or (col_lanes(g).z_step > 1 and far and g.src_y * size % WAY == 0)


cdef inline bint has_tiles(const Lane *col) noexcept nogil:
    """Whether there are tiles for the taps and the step of a lane of columns (TILE_TAPS of gradops._algorithms.inplace), rather than those for any."""
    if col.z_step <= 2 and (col.taps == 3 or col.taps == 5 or col.taps == 7):
        return True
    return col.taps == 3 if col.z_step == 3 else col.z_step == 1 and (col.taps <= 2 or col.taps == 4)


cdef inline bint is_short(const Lane *col, bint far) noexcept nogil:
    """Whether rows had better have tiles of three pixels, or two: those of five and six in images that no cache holds, where tiles of four, which compute some twice, read
    more. In a cache tiles of four take 0.6 to 1.0 of the time of three (Zen 4)."""
    return 1 < col.count < (7 if far else 4) and col.count != 4


cdef inline bint is_tall(const Problem *g, int storage, bint far) noexcept nogil:
    """Whether tiles read each row of x once: of three taps in a row, with the same step of rows and columns, where pixels crowd few sets of a cache; of images
    that no cache holds, only without strides. Time of other tiles over that: 1.1 to 1.6, with strides 1.2 to 1.3, with dilations 1.2 to 1.9, of large images
    1.0 to 1.2, of those with strides 0.65 to 0.9; where pixels do not crowd 0.85 to 1.1 (Zen 4)."""
    cdef int64_t i, step, size = item_size(storage)
    if storage != REAL_STORAGE or MR <= 6 or g.row_lanes == 0 or g.col_lanes == 0 or comes_first(g):
        return False
    step = col_lanes(g).z_step
    for i in range(g.col_lanes):
        if col_lanes(g)[i].taps != TALL_TAPS or col_lanes(g)[i].count == 1 or is_short(col_lanes(g) + i, far):
            return False
    if row_lanes(g).z_step != step or (step > 1 and far) or step > 2:
        return False
    return col_lanes(g).src_unit * g.src_x * size % (CROWDED if step > 1 else CROWDED_TILES) == 0


cdef inline bint is_along(const Problem *g, int storage, bint far, int64_t most) noexcept nogil:
    """Whether all tiles along some rows follow each other, for one vector of channels after the other: of images that no cache holds, whose next rows are one
    piece of memory, which is fetched in its order, of 3 to `most` taps in a row, with step 2 at least 5. Of filters, tiles that walk down take 1.1 to 1.9 times as long,
    of rows of 7 pixels 0.7 to 1.1; of 5x5 and 7x7 taps 1.05 to 1.4, with step 2 1.4 to 2.1; in 16 bits 1.0 to 3; of 3x3 taps with step 2 0.55 to 1.1. Of results of more than 3 taps
    or of 16 bits 0.93 to 1.1: memory takes them no faster (1 and 2 threads of a Zen 4)."""
    cdef int64_t taps, step
    if not far or VL * sizeof(real) != LINE or is_staged(storage, held_storage(g, storage)) or comes_first(g) or g.row_lanes != 1 or g.col_lanes != 1:
        return False
    taps, step = col_lanes(g).taps, col_lanes(g).z_step
    if row_lanes(g).src_unit > 1 or col_lanes(g).src_unit > 1 or row_lanes(g).z_step != step or col_lanes(g).count < 2 * PIXELS - 2:
        return False
    if taps % 2 == 0 or not TALL_TAPS <= taps <= most or g.filter_rows > most:
        return False
    return step == 1 or (step == 2 and taps > TALL_TAPS and g.src_y * item_size(storage) <= WHOLE_ROW)


cdef inline int64_t along_rows(const Problem *g, int64_t size, int64_t segments) noexcept nogil:
    """Rows of a strip whose tiles follow each other along it or each of its segments. Of rows of 14 to 32 KiB 4, of 54 to 66 KiB 2, of 96 KiB 1 was best, others took
    up to 1.5 times as long (Zen 4)."""
    return larger(smaller(ALONG_AHEAD * segments // (row_lanes(g).z_step * g.src_y * size), ALONG_ROWS), 1)


cdef inline bint is_swept(const Problem *g, int storage, int64_t ways) noexcept nogil:
    """Whether tiles sweep: go across the channels of a row, each fetching the next one into the first cache in the order of memory, which delivers twice as much then
    as vector by vector of some pixels: of images that no cache holds, where pixels are neither too short for that nor too long for two tiles to stay in that
    cache, and are read with strides or crowd its sets. In a first cache of 8 ways, 32 KiB, no two tiles stay: with stride 2 other tiles take 0.65 to 0.95 of
    the time there (Zen 4).

    Time of other tiles over that, 3x3 taps, 1 and 2 threads: filters' gradients with stride 2 1.4 to 1.65 and 1.2 to 1.4, of 128 and 256 channels 1.2 to 1.8
    and 1.0 to 1.4 (7x7 taps 0.7 to 1.0, other channels 0.85 to 1.0), results 1.2 to 1.4 and 1.2 to 1.4 (5x5 taps 0.8 to 1.0), with dilations 0.95, inputs'
    gradients with stride 2 1.0; images of 24 to 29 MiB 1.15 and 0.8 to 1.1; 16 bits 0.85 to 1.3; narrow vectors, 5x5 taps 0.5 to 0.85 (Zen 5)."""
    cdef int64_t size = item_size(storage), pixel = g.groups * size, taps = g.filter_rows * g.filter_cols
    if ways < SWEPT_WAYS or not can_sweep(g, storage) or not is_nowhere(g, size) or not PIXELS * LINE <= pixel <= MOST_RUN:
        return False
    if col_lanes(g).z_step > 1:
        return taps <= (MOST_TAPS if MR > 6 else FEW_TAPS)
    return taps <= FEW_TAPS and pixel % CROWDED_RUN == 0


cdef inline bint can_sweep(const Problem *g, int storage) noexcept nogil:
    """Whether tiles that sweep are computed from numbers as they are stored, in channels last, along one lane."""
    return storage == REAL_STORAGE and g.col_lanes == 1 and has_tiles(col_lanes(g)) and not comes_first(g)


cdef inline bint fetches_far(int64_t ways) noexcept nogil:
    """Whether fetching pays for all that second caches do not keep: on CPUs whose first caches have many ways, but Intel's (Zen 5)."""
    return ways >= SWEPT_WAYS and not is_intel()


cdef inline bint is_nowhere(const Problem *g, int64_t size) noexcept nogil:
    """Whether no last cache holds the images."""
    return g.images * image_size(g, size) > NOWHERE


cdef inline int64_t pages_apart(const Problem *g, int64_t size) noexcept nogil:
    """How many pages the pixels lie apart that a tile reads."""
    return col_lanes(g).src_unit * g.src_x * size // PAGE if g.col_lanes else 0


cdef inline bint is_staged(int storage, int held) noexcept nogil:
    """Whether numbers have to be widened before they are vectors."""
    return storage != REAL_STORAGE and held == REAL_STORAGE


cdef inline int64_t staging_size(const Problem *g, int storage, int held) noexcept nogil:
    """Reals of the scratch beside a tile: its results or its dy, then the window."""
    return padded(ROWS * PIXELS * VL + window_size(g)) if is_staged(storage, held) else 0


cdef inline int64_t longest_lane(const Problem *g) noexcept nogil:
    """Pixels of the longest lane of rows; none if no column has a tap."""
    cdef int64_t count = 0, i
    for i in range(g.row_lanes if g.col_lanes else 0):
        count = larger(count, row_lanes(g)[i].count)
    return count


cdef inline int64_t window_size(const Problem *g) noexcept nogil:
    """Reals of the largest window that a tile reads."""
    cdef int64_t rows = 0, cols = 0, i
    for i in range(g.row_lanes):
        rows = larger(rows, (ROWS - 1) * row_lanes(g)[i].z_step + row_lanes(g)[i].taps)
    for i in range(g.col_lanes):
        cols = larger(cols, tile_columns(col_lanes(g) + i, PIXELS))
    return rows * cols * VL


cdef inline int64_t tile_columns(const Lane *col, int64_t pixels) noexcept nogil:
    return (pixels - 1) * col.z_step + col.taps


cdef inline Walk walk_down(const Problem *g, int storage, int held, bint fetch, bint strips, const Lane *row, int64_t t, int64_t rows, const char *zeros) noexcept nogil:
    """Rows t.. of a lane. The filter is [tap row][tap column][lane]."""
    cdef int64_t size = item_size(storage)
    cdef Walk s
    s.rows, s.step, s.unit, s.taps, s.limit = rows, row.src_unit * row.z_step, row.src_unit, row.taps, g.src_rows
    s.y, s.fresh = row.src_start + s.step * t, smaller(row.z_step, row.taps)
    s.src_y, s.dst_y = g.src_y * size, row.out_step * g.dst_y * size
    s.storage, s.lanes, s.strips = storage, registers(held) * VL, strips
    s.filter_row = row.filter_step * g.filter_cols * s.lanes
    s.fetch, s.staged, s.zeros = fetch, is_staged(storage, held), zeros
    s.lines, s.past = 0, False
    s.vectors, s.vector, s.panel = 1, s.lanes * size, g.filter_rows * g.filter_cols * s.lanes
    return s


cdef inline int64_t tile_pixels(const Lane *col, int64_t most, bint far) noexcept nogil:
    """Pixels of the register tiles that cover a lane of columns: 8, 7, 4 or 1; with three taps 3 and 2, too, of the short rows that large dilations leave."""
    cdef int64_t count = col.count
    if is_short(col, far) and col.taps == TALL_TAPS and col.z_step == 1:
        return smaller(count, 3)
    if count >= 7 and most == PIXELS:
        return 8 if count >= 8 and divide_up(count, 8) * 8 <= divide_up(count, 7) * 7 else 7
    return 4 if count >= 4 else 1


cdef inline int64_t tall_pixels(const Lane *col) noexcept nogil:
    """Pixels of the tiles that read each row once, for which there are registers."""
    return 7 if col.count >= 7 and divide_up(col.count, 7) * 7 <= divide_up(col.count, 4) * 4 else 4


cdef inline void aim(Walk *s, const Problem *g, const Lane *row, const Lane *col, int64_t n, int64_t t, int64_t pixels, int64_t i) noexcept nogil:
    """At tile i of a lane of columns, in rows t.. of image n. The last tile begins early enough to be full. The last strip of a pair of lanes is followed by the pair
    beside it: fetched, that takes 0.6 to 1.0 of the time of what lies beyond, of filters' gradients (Zen 4)."""
    cdef int64_t last = col.count - pixels, q = smaller(i * pixels, last), x = col.src_start + col.src_unit * col.z_step * q, size = item_size(s.storage)
    s.src_x, s.dst_x, s.filter_col = col.src_unit * g.src_x * size, col.out_step * g.dst_x * size, col.filter_step * s.lanes
    s.src = (n * g.src_n + x * g.src_x) * size
    s.dst = (n * g.dst_n + (row.out_start + row.out_step * t) * g.dst_y + (col.out_start + col.out_step * q) * g.dst_x) * size
    s.low = divide_up(-x, col.src_unit) if x < 0 else 0
    s.high = divide_up(g.src_cols - x, col.src_unit)
    s.skip = i * pixels - q
    s.weights = (row.filter_start * g.filter_cols + col.filter_start) * s.lanes
    if s.strips and share_nothing(g) and t + s.rows >= row.count:
        s.src_ahead, s.dst_ahead = g.src_x * size - (t * s.step + (s.taps // 2 * s.unit if t == 0 else 0)) * s.src_y, g.dst_x * size - t * s.dst_y
    elif s.strips:
        s.src_ahead, s.dst_ahead = s.rows * s.step * s.src_y, s.rows * s.dst_y
    elif q < last:
        s.src_ahead, s.dst_ahead = smaller(pixels, last - q) * col.z_step * s.src_x, smaller(pixels, last - q) * s.dst_x
    else:                                               # the first tile of the next strip
        s.src_ahead, s.dst_ahead = s.rows * s.step * s.src_y - q * col.z_step * s.src_x, s.rows * s.dst_y - q * s.dst_x


cdef inline void go_along(Walk *s, const Problem *g, const Lane *row, const Lane *col, bint whole, int64_t n, int64_t t, int64_t pixels, int64_t v, const char *src, const char *dst) noexcept nogil:
    """All tiles of a row or of a segment, from vector v on, and where the rows begin that they fetch: with each tile of a row as many lines as it reads. Whole rows of the next
    strip are one piece of memory, fetched in its order, which row beside row takes up to 1.1 times as long."""
    cdef int64_t size = item_size(s.storage)
    s.tiles, s.reach, s.from_vector, s.whole = divide_up(col.count, pixels), col.count - pixels, v, whole
    s.next_src = src + (n * g.src_n + (s.y + (s.rows - 1) * s.step + s.taps) * g.src_y + (0 if whole else col.src_start * g.src_x)) * size
    s.next_dst = dst + (n * g.dst_n + (row.out_start + row.out_step * (t + s.rows)) * g.dst_y + col.out_start * g.dst_x) * size


cdef inline int64_t place_tile(const Walk *s, int64_t t, int pixels, int step, Walk *tile) noexcept nogil:
    """Tile t of a row along which tiles go; the last one begins early enough to be full. Returns its first pixel."""
    cdef int64_t first = smaller(t * pixels, s.reach)
    tile.low, tile.high, tile.skip = s.low - first * step, s.high - first * step, t * pixels - first
    return first


cdef inline void taps_inside(const Walk *s, int64_t y, int64_t *begin, int64_t *end) noexcept nogil:
    """The taps begin <= i < end whose row y + i unit lies inside the image."""
    begin[0], end[0] = 0, s.taps
    while y < 0 and begin[0] < s.taps:
        begin[0] += 1
        y += s.unit
    y += (end[0] - begin[0] - 1) * s.unit
    while y >= s.limit and end[0] > begin[0]:
        end[0] -= 1
        y -= s.unit


cdef inline int64_t lines_in_order(const Walk *s, bint in_order) noexcept nogil:
    """Cache lines of a pixel whose vectors are fetched in the order of memory; 0 if they are not, or if a few vectors are left, which the others have fetched."""
    cdef int64_t lines = s.vectors * s.vector // LINE
    return lines if in_order and lines >= PIXELS else 0


cdef inline void fetch_third(const char *at, int64_t size, bint write, int64_t index) noexcept nogil:
    """Fetches one of three shares of so many bytes: between what is done with others, for no CPU takes all at once."""
    cdef int64_t lines = divide_up(size, LINE), first = part(lines, index, 3)
    fetch_lines(at + first * LINE, (part(lines, index + 1, 3) - first) * LINE, write)


cdef inline void fetch_pixels(const char *first, int64_t step, int count) noexcept nogil:
    """Fetches a vector of so many pixels, a step apart."""
    cdef int q
    for q in range(count):
        prefetch_soon(first + q * step)


cdef inline const char *next_lines(const Walk *s, const char *rows, int64_t walk, int count) noexcept nogil:
    """Where the lines begin that a walk along the strip fetches of the next rows, so many for each row of each tile; walks are counted from the first vector on."""
    return rows + walk * s.tiles * (s.rows if s.whole else 1) * count * LINE


cdef inline const char *fetch_next_lines(const Walk *s, const char *at, int count, int64_t row) noexcept nogil:
    """Fetches lines that follow each other. Returns where those for the next row begin."""
    cdef int i
    for i in range(count):
        prefetch_soon(at + i * LINE)
    return at + (count * LINE if s.whole else row)


cdef inline const char *next_tile_lines(const Walk *s, const char *at, int count, int64_t row) noexcept nogil:
    """Where those for the next tile begin, from where those for a row behind the last one would."""
    return at if s.whole else at + count * LINE - s.rows * row


cdef inline void fetch_columns(const Walk *s, const char *src, int64_t y, int count) noexcept nogil:
    """Fetches a vector of so many columns of what the like of a row that reads from row y on will read."""
    cdef int64_t i
    for i in range(s.fresh):
        fetch_pixels(row_ahead(s, src, y, i), s.src_x, count)


cdef inline const char *row_ahead(const Walk *s, const char *src, int64_t y, int64_t i) noexcept nogil:
    """The last row but i that the like of a row that reads from row y on will read."""
    return src + (y + (s.taps - 1 - i) * s.unit) * s.src_y + s.src_ahead


cdef inline bint is_outside(const Walk *s, int c, int taps, int last) noexcept nogil:
    """Whether column c beside a tile, whose last pixel's first tap reads column `last`, lies outside the image."""
    return (c < taps - 1 and c < s.low) or (c > last and c >= s.high)


cdef inline const char *column_at(const Walk *s, const char *x, int c, int taps, int last) noexcept nogil:
    """Column c beside a tile: a vector of zeros outside the image."""
    return s.zeros if is_outside(s, c, taps, last) else x + c * s.src_x


cdef inline const char *next_column(const char *x, int64_t step) noexcept nogil:
    """x + step, computed where it is used: for all columns before the loop, addresses would take more registers than there are."""
    return <const char *> unknown(<const real *> (x + step))


cdef inline void widen_vectors(int storage, const char *src, int64_t step, int64_t count, real *dst) noexcept nogil:
    """dst[i] = src[i step] for i < count, vectors; the storage a compile-time constant of the caller."""
    cdef int64_t i
    for i in range(count):
        widen(storage, src + i * step, VL, dst + i * VL)


cdef inline void narrow_vectors(int storage, const real *src, int64_t count, char *dst, int64_t step) noexcept nogil:
    """The inverse of widen_vectors."""
    cdef int64_t i
    for i in range(count):
        narrow(storage, src + i * VL, VL, dst + i * step)


cdef inline void stage_row(const Walk *s, const char *src, int64_t count, bint fetch, real *dst) noexcept nogil:
    """Widens the vectors of count neighbouring columns, and fetches others ahead."""
    cdef int64_t i
    if s.storage == FLOAT16:
        widen_vectors(FLOAT16, src, s.src_x, count, dst)
    else:
        widen_vectors(BFLOAT16, src, s.src_x, count, dst)
    if fetch:
        for i in range(count):
            prefetch_soon(src + s.src_ahead + i * s.src_x)


cdef inline Walk stage(const Walk *s, const char *src, int64_t cols, real *window) noexcept nogil:
    """Fills the window with what a tile of so many columns reads of a vector at src. Returns how to walk in it."""
    cdef int64_t z = s.step // s.unit, count = (s.rows - 1) * z + s.taps, high = smaller(s.high, cols), k
    cdef int64_t begin = smaller(divide_up(-s.y, s.unit), count) if s.y < 0 else 0
    cdef int64_t end = larger(smaller(divide_up(s.limit - s.y, s.unit), count), begin) if s.y < s.limit else begin
    cdef Walk near = s[0]
    cdef bint fetch = s.fetch and begins_line(s, src)
    for k in range(begin, end):
        stage_row(s, src + (s.y + k * s.unit) * s.src_y + s.low * s.src_x, high - s.low, fetch and k >= s.taps - z, window + ((k - begin) * cols + s.low) * VL)
    near.y, near.unit, near.step, near.limit = -begin, 1, z, end - begin
    near.src_x = VL * sizeof(real)
    near.src_y = cols * near.src_x
    near.fresh = 0                                      # all that is read is there
    return near


cdef inline void unstage(const Walk *s, const real *tile, int64_t pixels, char *dst) noexcept nogil:
    """Narrows a tile of results, [row][pixel][VL], to where it belongs."""
    cdef int64_t r, q
    cdef char *at
    for r in range(s.rows):
        at = dst + r * s.dst_y
        if s.storage == FLOAT16:
            narrow_vectors(FLOAT16, tile + r * pixels * VL, pixels, at, s.dst_x)
        else:
            narrow_vectors(BFLOAT16, tile + r * pixels * VL, pixels, at, s.dst_x)
        if s.fetch and begins_line(s, at):
            for q in range(pixels):
                prefetch_soon(at + s.dst_ahead + q * s.dst_x)
