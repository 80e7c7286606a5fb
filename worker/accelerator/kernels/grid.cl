// Grids of keys made from quarter boards, and lists gathered from them.
//
// A word of 64 bits is arranged as residual key (32 bits), minor pattern, major pattern, other bits. A residual key
// has 24 table bits, bits 0 to 5 of its bytes, and up to four bucket bits, bit 6 of its bytes.
// After the cells of the patterns, a grid has one more cell: the planted keys.

typedef uint u32;
typedef ulong u64;
typedef long i64;

#define FN static inline
#define G __global
#define L __local
#define TID ((u32)get_local_id(0))
#define THREADS ((u32)get_local_size(0))
#define GROUP ((u32)get_group_id(0))
#define NGROUPS ((u32)get_num_groups(0))
// NVIDIA's compiler ignores its limit of registers in kernels that require a size.
#ifdef NVIDIA
#define KERNEL_OF(threads) __kernel void
#else
#define KERNEL_OF(threads) __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void
#endif
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define ADD_G(p, v) atomic_add((volatile G u32 *)(p), (u32)(v))
#define UNROLL _Pragma("unroll")

#define BUCKETS 16

FN u32 bucket_of(u32 key, u32 nz) {
    u32 z = (key >> 6) & 0x01010101;
    return (z | z >> 7 | z >> 14 | z >> 21) & ((1u << nz) - 1);
}

// Arranges quarter boards in place: bit i moves to moves[i].
__kernel void arrange(G u64 *keys, u32 number, G const u32 *moves) {
    u32 at = (u32)get_global_id(0);
    if (at >= number) return;
    u64 key = keys[at], to = 0;
    for (u32 bit = 0; bit < 64; bit++) to |= (key >> bit & 1) << moves[bit];
    keys[at] = to;
}

// A task is: first and number of left quarter boards, first and number of right ones. `cells` counts the half
// boards of each cell; if `places` is set, it has the place of the next key of each cell instead.
KERNEL_OF(256) half_boards(G const u64 *boards, G const uint4 *tasks, u32 key_mask, u32 cell_mask, G u32 *cells,
                           G u32 *keys, u32 places) {
    uint4 task = tasks[GROUP];
    for (u32 j = TID; j < task.w; j += THREADS) {
        u64 right = boards[task.z + j];
        for (u32 i = 0; i < task.y; i++) {
            u64 left = boards[task.x + i];
            if ((left & right) == 0) {
                u64 key = left | right;
                u32 at = ADD_G(&cells[(u32)(key >> 32) & cell_mask], 1);
                if (places) keys[at] = (u32)key & key_mask;
            }
        }
    }
}

#define SCAN_THREADS 256
#define SCAN_EACH 16

// Replaces a word per thread by the sum of those up to it.
FN void add_up_words(L u32 *scan, u32 threads) {
    SYNC();
    for (u32 by = 1; by < threads; by *= 2) {
        u32 add = TID >= by ? scan[TID - by] : 0;
        SYNC();
        scan[TID] += add;
        SYNC();
    }
}

// Adds up the words of each block of 4096.
KERNEL_OF(SCAN_THREADS) scan_sums(G const u32 *words, u32 length, G u32 *sums) {
    L u32 scan[SCAN_THREADS];
    u32 first = GROUP * SCAN_THREADS * SCAN_EACH;
    u32 sum = 0;
    for (u32 i = 0; i < SCAN_EACH; i++) {
        u32 at = first + i * SCAN_THREADS + TID;
        if (at < length) sum += words[at];
    }
    scan[TID] = sum;
    add_up_words(scan, SCAN_THREADS);
    if (TID == 0) sums[GROUP] = scan[SCAN_THREADS - 1];
}

// Replaces the sums of blocks by the sums of those before, and appends the total.
KERNEL_OF(SCAN_THREADS) scan_blocks(G u32 *sums, u32 number) {
    L u32 scan[SCAN_THREADS];
    u32 total = 0;
    for (u32 first = 0; first < number; first += SCAN_THREADS) {
        u32 at = first + TID, own = at < number ? sums[at] : 0;
        scan[TID] = own;
        add_up_words(scan, SCAN_THREADS);
        if (at < number) sums[at] = total + scan[TID] - own;
        total += scan[SCAN_THREADS - 1];
        SYNC();
    }
    if (TID == 0) sums[number] = total;
}

// Writes the sums of the words before each, twice, and their total to `offsets`.
KERNEL_OF(SCAN_THREADS) scan_write(G const u32 *words, u32 length, G const u32 *sums, G u32 *offsets, G u32 *copy) {
    L u32 scan[SCAN_THREADS];
    u32 first = (GROUP * SCAN_THREADS + TID) * SCAN_EACH;
    u32 own[SCAN_EACH], sum = 0;
    for (u32 i = 0; i < SCAN_EACH; i++) {
        own[i] = first + i < length ? words[first + i] : 0;
        sum += own[i];
    }
    scan[TID] = sum;
    add_up_words(scan, SCAN_THREADS);
    u32 at = sums[GROUP] + scan[TID] - sum;
    for (u32 i = 0; i < SCAN_EACH && first + i < length; i++) {
        offsets[first + i] = copy[first + i] = at;
        at += own[i];
        if (first + i + 1 == length) offsets[length] = at;
    }
}

// Rows of up to 2^LENGTH_BITS cells are held in local memory at once: 16 KB.
#define LENGTH_BITS 12

// Writes the lengths of gathered lists: for each row, a group, and pattern g, the keys in cells disjoint from g.
KERNEL_OF(256) list_lengths(G const u32 *offsets, u32 minor_bits, G u32 *lengths) {
    L u32 sums[1 << LENGTH_BITS];
    u32 low_bits = minor_bits < LENGTH_BITS ? minor_bits : LENGTH_BITS, cells = 1u << low_bits;
    u32 pieces = 1u << (minor_bits - low_bits);
    u64 row = (u64)GROUP << minor_bits;
    for (u32 g = 0; g < pieces; g++) {
        for (u32 i = TID; i < cells; i += THREADS) {
            u32 sum = 0;
            for (u32 p = 0; p < pieces; p++) {
                u64 at = row + ((u64)p << low_bits) + i;
                if ((p & g) == 0) sum += offsets[at + 1] - offsets[at];
            }
            sums[i] = sum;
        }
        SYNC();
        for (u32 bit = 1; bit < cells; bit *= 2) {
            for (u32 i = TID; i < cells; i += THREADS) if (i & bit) sums[i] += sums[i ^ bit];
            SYNC();
        }
        for (u32 i = TID; i < cells; i += THREADS) lengths[row + ((u64)g << low_bits) + i] = sums[cells - 1 - i];
        SYNC();
    }
}

// Sorts leaves by kind: every pair, or tables. `numbers`: leaves of each kind, then the length of the longest list.
// Neighbors in both patterns come one after the other, for the cache.
KERNEL_OF(256) choose_kinds(G const u32 *above, G const u32 *below, u32 x1, u32 x2, u32 build, G u32 *numbers,
                            G u32 *every_pair, G u32 *by_tables) {
    u64 all = (u64)1 << (x1 + x2);
    u32 near1 = x1 < 4 ? x1 : 4, near2 = x2 < 4 ? x2 : 4, longest = 0;
    for (u64 i = (u64)GROUP * THREADS + TID; i < all; i += (u64)NGROUPS * THREADS) {
        u32 low2 = (u32)i & ((1u << near2) - 1), low1 = (u32)(i >> near2) & ((1u << near1) - 1);
        u32 high2 = (u32)(i >> (near1 + near2)) & ((1u << (x2 - near2)) - 1), high1 = (u32)(i >> (near1 + x2));
        u32 g1 = high1 << near1 | low1, g2 = high2 << near2 | low2, leaf = g1 << x2 | g2;
        u32 a = above[leaf], b = below[((u64)g2 << x1) | g1];
        if (a == 0 || b == 0) continue;
        u32 few = a < b ? a : b, many = a < b ? b : a;
        // Clock cycles of a multiprocessor: 58 pairs per cycle one by one; tables take `build` and 17/4 per probe.
        u64 one_by_one = (u64)few * many / 58;
        u64 tables = (u64)((many + 1023) / 1024) * (build + (u64)few * 17 / 4);
        // A `build` of 0 makes tables of every leaf, for tests.
        if (build && one_by_one < tables) every_pair[ADD_G(&numbers[0], 1)] = leaf;
        else by_tables[ADD_G(&numbers[1], 1)] = leaf;
        longest = longest > many ? longest : many;
    }
    atomic_max((volatile G u32 *)&numbers[2], longest);
}

// Threads of a group that joins leaves: a constant is 7 to 17 % faster than the size that the device reports.
#define LEAF_THREADS 128

// Two grids with X1 of x1 bits and X2 of x2; `above` and `below` are the lengths of gathered lists.
#define GRID_PARAMS                                                                                              \
    G const u32 *top_offsets, G const u32 *top_keys, G const u32 *bottom_offsets, G const u32 *bottom_keys, u32 x1, \
        u32 x2, G const u32 *above, G const u32 *below

// A list being gathered: the cells of a row whose minor pattern is disjoint from another pattern.
typedef struct {
    G const u32 *offsets, *keys;
    u32 open, cells;
    // First cell of the current round, and keys of the round that were taken already.
    u32 first, skip;
    // Places of the thread's number and of the round.
    u32 own, high, high_mask;
} List;

// Returns the bits of `bits`, lowest first, moved to the places of `mask`.
FN u32 deposit(u32 bits, u32 mask) {
    u32 to = 0;
    for (; bits; bits >>= 1) {
        u32 low = mask & (0 - mask);
        if (bits & 1) to |= low;
        mask ^= low;
    }
    return to;
}

FN List start_list(G const u32 *offsets, G const u32 *keys, u32 major, u32 exclude, u32 minor_bits) {
    List l;
    l.offsets = offsets + ((u64)major << minor_bits);
    l.keys = keys;
    l.open = ~exclude & ((1u << minor_bits) - 1);
    l.cells = 1u << popcount(l.open);
    l.first = l.skip = l.high = 0;
    l.own = deposit(TID, l.open);
    l.high_mask = l.open & ~deposit(LEAF_THREADS - 1, l.open);
    return l;
}

// Copies the next keys of a list, at most `most`; returns their number. Each thread finds a cell; then the threads
// copy neighboring keys. `scan` has two words per thread.
FN u32 gather(List *l, L u32 *to, u32 most, L u32 *scan) {
    L u32 *base = scan + LEAF_THREADS;
    u32 filled = 0;
    while (l->first < l->cells && filled < most) {
        u32 start = 0, length = 0;
        if (l->first + TID < l->cells) {
            start = l->offsets[l->own | l->high];
            length = l->offsets[(l->own | l->high) + 1] - start;
        }
        SYNC();
        scan[TID] = length;
        add_up_words(scan, LEAF_THREADS);
        base[TID] = start - (scan[TID] - length);
        SYNC();
        u32 all = scan[LEAF_THREADS - 1] - l->skip, take = all < most - filled ? all : most - filled;
        for (u32 k = TID; k < take; k += LEAF_THREADS) {
            u32 at = l->skip + k, cell = 0;
            for (u32 step = LEAF_THREADS / 2; step > 0; step /= 2) if (scan[cell + step - 1] <= at) cell += step;
            to[filled + k] = l->keys[base[cell] + at];
        }
        filled += take;
        l->skip += take;
        if (take == all) {
            l->first += LEAF_THREADS;
            l->skip = 0;
            l->high = (l->high - l->high_mask) & l->high_mask;
        }
    }
    SYNC();
    return filled;
}

// The lists of a leaf: the shorter one first.
typedef struct {
    List few, many;
    u32 fewer, more;
} Leaf;

// Opens leaf number `at`; number `number` is the planted one.
FN Leaf open_leaf(GRID_PARAMS, G const u32 *leaves, u32 at, u32 number) {
    int planted = at == number;
    u32 leaf = planted ? 1u << (x1 + x2) : leaves[at];
    u32 g1 = leaf >> x2, g2 = planted ? 1u << x2 : leaf & ((1u << x2) - 1);
    List top = start_list(top_offsets, top_keys, g1, planted ? ~0u : g2, x2);
    List bottom = start_list(bottom_offsets, bottom_keys, g2, planted ? ~0u : g1, x1);
    u32 tops = above[leaf], bottoms = below[planted ? leaf : (g2 << x1) | g1];
    Leaf found;
    int top_is_few = tops <= bottoms;
    found.few = top_is_few ? top : bottom;
    found.many = top_is_few ? bottom : top;
    found.fewer = top_is_few ? tops : bottoms;
    found.more = top_is_few ? bottoms : tops;
    return found;
}
#define GRIDS top_offsets, top_keys, bottom_offsets, bottom_keys, x1, x2, above, below
