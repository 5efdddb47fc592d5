# cython: language_level=3, cdivision=True
"""The register tile and the loops around it: c += a b on packed panels. Knows nothing of storage, convolution or threads.

Depths and distances along the sum count what `multiply_add` multiplies at once, numbers or pairs of them.
"""
from libc.stdint cimport int64_t
from _problem cimport divide_up, larger, smaller
from _storage cimport real, vec, LINE, VL, NV, NR, MR, PAIR, TILE, Sums, add_product, clear, edge_of_rows, edge_of_steps, fetch_lines, infinities, load, multiply_add, narrow_rows, resume_sums, store, store_narrowed, store_narrowed_pair, take_sums, zero, zero_sums, prefetch_now, prefetch_soon, prefetch_to_write, unknown

cdef enum:
    KC = 512 + TILE // 2 * 16                           # depth of one pass over packed panels; of tiles 640, so that 64 channels times 3x3 taps are one
    LD = KC + 16                                        # distance of packed rows; not a power of two, so rows spread over the cache sets
    SOON = 12                                           # steps that a tile fetches its own rows ahead
    UPPER = (MR + 1) // 2                               # rows of a tile that are read from one address: their distances stay in registers

cdef enum Fetch:                                        # what a product fetches while it computes, a cache line of each stream in each step
    NOTHING = 0
    READS = 1                                           # two streams that are going to be read
    READ_WRITE = 2                                      # one that is going to be read, one that is going to be written
    ROWS = 4                                            # its own rows of a, by column, into the first cache; alone or with READS:
    ROWS_READS = ROWS | READS
    TAPS = 8                                            # some lines of one stream with each tap, not in each step


cdef struct Stream:                                     # memory that is needed next: tile t's step k fetches the line at at + t tile + k step (bytes)
    const char *at
    int64_t tile, step
    int64_t tiles                                       # after so many, another round begins `far` bytes further on;
    int64_t rounds, far                                 # beyond all of them, the last one is fetched again


cdef inline Stream stream(const void *at, int64_t tile, int64_t step, int64_t tiles) noexcept nogil:
    cdef Stream s
    s.at, s.tile, s.step, s.tiles, s.rounds, s.far = <const char *> at, tile, step, tiles, 1, 0
    return s


cdef inline Stream rows_stream(const char *at, int64_t width, int64_t row, int64_t rows, int64_t steps) noexcept nogil:
    """So many bytes of each of some rows, a distance of `row` bytes apart, by tiles of so many steps: column by column of cache lines, of as many rows a round."""
    cdef Stream s = stream(at, LINE, row, divide_up(width, LINE))
    s.rounds = divide_up(rows, steps)
    s.far = divide_up(larger(rows - steps, 0), larger(s.rounds - 1, 1)) * row
    return s


cdef inline int64_t fetching_tiles(const Stream *s) noexcept nogil:
    """How many tiles have something to fetch."""
    return s.tiles * s.rounds if s.step else 0


cdef inline const char *begin_of(const Stream *s, int64_t t) noexcept nogil:
    """What tile t fetches first."""
    t = smaller(t, s.tiles * s.rounds - 1)
    return s.at + t % s.tiles * s.tile + t // s.tiles * s.far


cdef enum:
    OF_B = 2                                            # has_taps: it is b that does not lie in one piece, not a


cdef struct Taps:                                       # where a lies, or b, if it does not lie in one piece
    int64_t count
    const int64_t *at                                   # of each: its first element, and in `depth` how many steps it has
    const int64_t *depth


cdef struct Operands:                                   # what all register tiles of a product have in common
    int64_t depth, lda, ldb, ldc
    const Taps *taps
    bint accumulate, ahead                              # ahead: each tile first fetches the c that it is going to write
    bint narrow                                         # of PAIR: c is bfloat16, which sums are rounded to
    const real *before                                  # of tiles that are narrowed: sums to go on from, rows `before_ld` apart, if they accumulate
    int64_t before_ld
    bint *finite                                        # of tiles: cleared if a sum is an infinity or NaN; NULL if no one asks
    const real *end                                     # of tiles: what a must not be read beyond; NULL if a lies in scratch
    bint trails                                         # of tiles: after b come finite numbers, as many steps as a tile has
    int64_t rows, steps                                 # of a tile (TILE), at most TILE
    int64_t tile                                        # distance of a from tile to tile, if each is packed by itself; else 0
    int64_t one, two                                    # bytes from step to step of two streams; of TAPS, from line to line, and how many lines


ctypedef void (*tile_t)(int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil


cdef inline Operands operands(int64_t depth, const Taps *taps, int64_t lda, int64_t ldb, int64_t ldc, bint accumulate) noexcept nogil:
    """Without streams."""
    cdef Operands p
    p.depth, p.taps, p.lda, p.ldb, p.ldc, p.accumulate, p.ahead, p.narrow, p.before, p.before_ld, p.finite, p.end, p.trails, p.rows, p.steps, p.tile, p.one, p.two = depth, taps, lda, ldb, ldc, accumulate, False, False, NULL, 0, NULL, NULL, False, TILE, TILE, 0, 0, 0
    return p


cdef inline int64_t tile_rows(int64_t m, int64_t t) noexcept nogil:
    """Rows of register tile t of m rows, which are split evenly."""
    cdef int64_t tiles = divide_up(m, MR), units = divide_up(m, TILE)
    return (units // tiles + (t < units % tiles)) * TILE


cdef inline real *at_result(bint narrow, real *c, int64_t index) noexcept nogil:
    """Element `index` of what results are written to: bfloat16 if narrow."""
    return <real *> (<char *> c + 2 * index) if PAIR > 1 and narrow else c + index


cdef inline const char *fetch_some(const char *at, int64_t step, int64_t count) noexcept nogil:
    """Fetches so many lines; returns where the next one lies."""
    cdef int64_t i
    for i in range(count):
        prefetch_soon(at + i * step)
    return at + count * step


cdef inline void store_tile(int m, int nv, const Operands *p, vec[2] *acc, real *c) noexcept nogil:
    """c[i, j] (+)= acc[i, j].

    *Assumes:* m and nv are compile-time constants of the caller.
    """
    cdef int64_t ldc = p.ldc                            # read now, not in each store: for all that compilers know, p lies in c
    cdef int i, j
    if PAIR > 1 and p.narrow:
        for i in range(m):
            if nv == 2:
                store_narrowed_pair(<char *> at_result(True, c, i * ldc), acc[i][0], acc[i][1])
            else:
                store_narrowed(<char *> at_result(True, c, i * ldc), acc[i][0])
    elif p.accumulate:
        for i in range(m):
            for j in range(nv):
                store(c + i * ldc + j * VL, load(c + i * ldc + j * VL) + acc[i][j])
    else:
        for i in range(m):
            for j in range(nv):
                store(c + i * ldc + j * VL, acc[i][j])


cdef struct Steps:                                      # what a tile's next step reads, and what it fetches
    const real *a
    const real *half                                    # from row UPPER on
    const real *b
    const char *one
    const char *two
    int64_t row, step, ldb, next_one, next_two          # distances: of rows of a, and from step to step


cdef inline void add_step(int m, int nv, bint by_column, Fetch fetch, Steps *s, vec[2] *acc) noexcept nogil:
    """acc[i, j] += a[i] b[j] of one step."""
    cdef vec[2] operand
    cdef int i, j
    if fetch & ROWS:
        prefetch_now(s.a + SOON * s.step)
        prefetch_now(s.a + SOON * s.step + m - 1)
    if fetch & (READS | READ_WRITE):
        prefetch_soon(s.one)
        s.one += s.next_one
        if fetch & READS:
            prefetch_soon(s.two)
        else:
            prefetch_to_write(s.two)
        s.two += s.next_two
    for j in range(nv):
        operand[j] = load(s.b + j * VL)
    for i in range(m):
        for j in range(nv):
            acc[i][j] = multiply_add(s.a[i * s.row] if by_column or i < UPPER else s.half[(i - UPPER) * s.row], operand[j], acc[i][j])
    s.a += s.step
    s.half += s.step
    s.b += s.ldb


cdef inline void gemm_ukr(int m, int nv, bint by_column, int has_taps, Fetch fetch, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    """c[i, j] (+)= sum_k a[i, k] b[k ldb + j] for i < m, j < nv VL, in m x nv registers; a is [m][lda] or, by column, [depth][lda].

    Loops are left at their ends: were they tested before, compilers would keep the sums of no step at all in memory, and all others beside them. Two steps a round of
    the two largest tiles take 0.94 to 1.0 of the time (float32 and float64, AVX-512 and AVX2), of all others no less (Granite Rapids).

    *Assumes:* m, nv, by_column, has_taps and fetch are compile-time constants of the caller, ROWS are fetched by column only, TAPS of packed panels,
    whose ldb is NR, unless they are taps of b; p.taps is NULL unless has_taps, and depths are positive.
    """
    cdef vec acc[14][2]
    cdef Steps s
    cdef const real *end
    cdef const Taps *taps = p.taps
    cdef int64_t tap = 1, depth = p.depth, first = 0
    cdef int i, j
    s.row, s.step, s.ldb, s.next_one, s.next_two = 1 if by_column else p.lda, p.lda if by_column else 1, NR if fetch & TAPS and has_taps != OF_B else p.ldb, p.one, p.two
    s.one, s.two = one, two
    if has_taps and taps != NULL:
        first, depth = taps.at[0], taps.depth[0]
    s.a, s.b = a + (0 if has_taps == OF_B else first), b + (first if has_taps == OF_B else 0)
    end = s.b + depth * s.ldb
    s.half = unknown(s.a + UPPER * s.row)
    for i in range(m):
        for j in range(nv):
            acc[i][j] = zero()
    if fetch & TAPS:
        s.one = fetch_some(s.one, s.next_one, p.two)
    while True:
        add_step(m, nv, by_column, fetch, &s, acc)
        if m + 1 >= MR and s.b != end:
            add_step(m, nv, by_column, fetch, &s, acc)
        if s.b == end:
            if not has_taps or taps == NULL or tap == taps.count:
                break
            if has_taps == OF_B:
                s.b = end = b + taps.at[tap]
            else:
                s.a = a + taps.at[tap]
                s.half = unknown(s.a + UPPER * s.row)
            end += taps.depth[tap] * s.ldb
            tap += 1
            if fetch & TAPS:
                s.one = fetch_some(s.one, s.next_one, p.two)
    store_tile(m, nv, p, acc, c)


cdef inline void store_sums(int m, int nv, const Operands *p, const real *sums, real *c) noexcept nogil:
    """store_tile of sums [m][NR] in memory, which c has been added to."""
    cdef int i, j, doubtful = 0
    if p.finite != NULL:
        for i in range(m):
            for j in range(nv):
                doubtful |= infinities(load(sums + i * NR + j * VL))
        if doubtful:
            p.finite[0] = False
    if p.narrow:
        narrow_rows(sums, NR, m, nv * VL, <char *> c, 2 * p.ldc)
    else:
        copy_sums(m, nv, sums, NR, c, p.ldc)


cdef inline void copy_sums(int m, int nv, const real *src, int64_t src_ld, real *dst, int64_t dst_ld) noexcept nogil:
    cdef int i, j
    for i in range(m):
        for j in range(nv):
            store(dst + i * dst_ld + j * VL, load(src + i * src_ld + j * VL))


cdef inline int64_t lines_of(int64_t steps, int64_t step) noexcept nogil:
    """How many cache lines so many steps of a stream are, so many bytes each."""
    return steps if step >= LINE else divide_up(steps * step, LINE)


cdef inline void add_products(bint high, bint wide, int64_t rows, Fetch fetch, const Operands *p, const real *a, const real *b, int64_t ldb, int64_t tiles, const char **one, const char **two) noexcept nogil:
    """The sums of so many tiles of steps. Fetches no line twice, and none that is written, since loads are what tiles wait for."""
    cdef int64_t ones = lines_of(p.steps, p.one) if fetch & (READS | READ_WRITE) else 0, twos = lines_of(p.steps, p.two) if fetch & READS else 0
    cdef int64_t next_one = larger(p.one, LINE), next_two = larger(p.two, LINE), i, _
    cdef const char *first = one[0]
    cdef const char *second = two[0]
    for _ in range(tiles):
        for i in range(ones):
            prefetch_soon(first + i * next_one)
        for i in range(twos):
            prefetch_soon(second + i * next_two)
        if fetch & (READS | READ_WRITE):
            first += p.steps * p.one
            second += p.steps * p.two
        add_product(high, wide, rows, a, p.lda, b, ldb)
        a += p.steps
        b += p.steps * ldb
    one[0], two[0] = first, second


cdef inline void tile_ukr(int m, int nv, int has_taps, Fetch fetch, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    """gemm_ukr for m <= MR and nv <= NV in tiles, whose rows of a may be followed by others; what fills no tile goes through edges, zeros on both sides, or of a alone.

    *Assumes:* has_taps and fetch are compile-time constants of the caller; what follows on the rows of a is readable as far as p.end, and tiles have begun.
    """
    cdef Sums sums, edge
    cdef const Taps *taps = p.taps
    cdef const real *at = a
    cdef int64_t tap = 0, depth = p.depth, ldb = NR if fetch & TAPS else p.ldb, tiles, some
    cdef int64_t rows = p.rows, before_ld = p.before_ld if p.narrow else p.ldc
    cdef const real *before = p.before if p.narrow else c
    cdef bint high = m > rows, wide = nv > 1, whole = m % rows == 0 and not p.narrow and p.finite == NULL, beyond = p.end != NULL and a + (2 if high else 1) * rows * p.lda > p.end
    if p.accumulate and m % rows == 0:
        resume_sums(high, wide, rows, before, before_ld)
    elif p.accumulate:                                  # as well, for the same bits
        copy_sums(m, nv, before, before_ld, sums.at, NR)
        resume_sums(high, wide, rows, sums.at, NR)
    else:
        zero_sums()
    while True:
        if has_taps and taps != NULL:
            at, depth = a + taps.at[tap], taps.depth[tap]
        if fetch & TAPS:
            one = fetch_some(one, p.one, p.two)
        tiles = 0 if beyond else depth // p.steps
        if high and wide:
            add_products(True, True, rows, fetch, p, at, b, ldb, tiles, &one, &two)
        else:
            add_products(high, wide, rows, fetch, p, at, b, ldb, tiles, &one, &two)
        at += tiles * p.steps
        b += tiles * p.steps * ldb
        depth -= tiles * p.steps
        while depth > 0:
            some = smaller(depth, p.steps)
            edge_of_rows(at, p.lda, m, some, edge.at)
            if some < p.steps and not p.trails:
                edge_of_steps(b, ldb, wide, some, sums.at)
                add_product(high, wide, rows, edge.at, TILE, sums.at, NR)
            else:
                add_product(high, wide, rows, edge.at, TILE, b, ldb)
            at += some
            b += some * ldb
            depth -= some
        tap += 1
        if not has_taps or taps == NULL or tap == taps.count:
            break
    if whole:
        take_sums(high, wide, rows, c, p.ldc)
        return
    take_sums(high, wide, rows, sums.at, NR)
    store_sums(m, nv, p, sums.at, c)


cdef inline void gemm_rows(int nv, bint by_column, int has_taps, Fetch fetch, int m, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    """gemm_ukr for any m <= MR."""
    if MR > 6:
        if m == 14: gemm_ukr(14, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
        elif m == 13: gemm_ukr(13, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
        elif m == 12: gemm_ukr(12, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
        elif m == 11: gemm_ukr(11, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
        elif m == 10: gemm_ukr(10, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
        elif m == 9: gemm_ukr(9, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
        elif m == 8: gemm_ukr(8, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
        elif m == 7: gemm_ukr(7, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
    if m == 6: gemm_ukr(6, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
    elif m == 5: gemm_ukr(5, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
    elif m == 4: gemm_ukr(4, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
    elif m == 3: gemm_ukr(3, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
    elif m == 2: gemm_ukr(2, nv, by_column, has_taps, fetch, p, a, b, c, one, two)
    elif m == 1: gemm_ukr(1, nv, by_column, has_taps, fetch, p, a, b, c, one, two)


cdef inline void gemm_tile(bint by_column, int has_taps, Fetch fetch, int m, int nv, const Operands *p, const real *a, const real *b, real *c, const char *one, const char *two) noexcept nogil:
    """gemm_ukr for any m <= MR and nv <= NV: what a kernel's `tile_t` is. Those are functions of their own, whose loops have all registers to themselves.

    *Assumes:* by_column, has_taps and fetch are compile-time constants of the caller, and p.taps is NULL unless has_taps; no tiles (TILE) are by column.
    """
    if TILE > 1:
        tile_ukr(m, nv, has_taps, fetch, p, a, b, c, one, two)
    elif nv == NV:
        gemm_rows(NV, by_column, has_taps, fetch, m, p, a, b, c, one, two)
    else:
        gemm_rows(1, by_column, has_taps, fetch, m, p, a, b, c, one, two)


cdef inline void gemm_block(tile_t fetching, tile_t packed, bint by_column, bint follows, int64_t m, int64_t n, Operands *p, const real *a, const real *b, int64_t panel, real *c, Stream one, Stream two) noexcept nogil:
    """c[0:m, 0:n] (+)= a b, panel after panel of NR columns, the last of which may be half as wide; rows are split evenly into register tiles.

    Loads of memory that is in no cache would stall a tile, so each tile fetches some of what is needed next, evenly spread over its steps. Of two
    streams to be read, the second follows the first one: both at once are more than memory delivers (1.0 to 1.2 of the time, Zen 5).

    *Assumes:* by_column and fetch are those of the tile; b holds panels of NR columns, `panel` elements apart, zero beyond n or followed by readable memory; c has
    ldc >= n rounded up to VL.
    """
    cdef int64_t tiles = (m + MR - 1) // MR, panels = (n + NR - 1) // NR, row = 1 if by_column else p.lda, j, t, i, r, left
    cdef int64_t units = divide_up(m, TILE), fewer = units // larger(tiles, 1), more = units - tiles * fewer    # rows of a tile, by TILE; so many have one more
    cdef int64_t all_tiles = tiles * panels, ones = fetching_tiles(&one), twos = fetching_tiles(&two), fetched = 0, due = 0
    cdef int64_t later = larger(smaller(ones, all_tiles - twos), 0) if follows else 0, some = smaller(larger(ones, later + twos), all_tiles)
    cdef int rows
    p.one, p.two = one.step, two.step
    if p.depth == 0:
        for i in range(0 if p.accumulate else m):
            clear(c + i * p.ldc, divide_up(n, VL) * VL)
        return
    for j in range(panels):
        left, i = n - j * NR, 0
        for t in range(tiles):
            rows = <int> smaller((fewer + (t < more)) * TILE, m - i)
            for r in range(rows if p.ahead else 0):
                fetch_lines(<const char *> at_result(p.narrow, c, (i + r) * p.ldc + j * NR), (NR if left > VL else VL) * (2 if p.narrow else sizeof(real)), True)
            due += some
            if due >= all_tiles:
                fetching(rows, NV if left > VL else 1, p, a + (t * p.tile if p.tile else i * row), b + j * panel, at_result(p.narrow, c, i * p.ldc + j * NR),
                         begin_of(&one, fetched), begin_of(&two, larger(fetched - later, 0)))
                due, fetched = due - all_tiles, fetched + 1
            else:
                packed(rows, NV if left > VL else 1, p, a + (t * p.tile if p.tile else i * row), b + j * panel, at_result(p.narrow, c, i * p.ldc + j * NR), NULL, NULL)
            i += rows


cdef inline void gemm_packed(tile_t tile, bint by_column, int64_t m, int64_t n, Operands *p, const real *a, const real *b, int64_t panel, real *c) noexcept nogil:
    """gemm_block of operands that are in a cache."""
    cdef Stream none = stream(c, 0, 0, 1)
    gemm_block(tile, tile, by_column, False, m, n, p, a, b, panel, c, none, none)
