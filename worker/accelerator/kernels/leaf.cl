// Counting the disjoint pairs of leaves: every pair, or bit-sliced with tables in local memory.
//
// A row of a table holds 1024 keys, one bit each: 32 columns of a word. Of 128 threads, thread (column c, byte g)
// transposes byte g of the 32 keys of its column and writes the 64 rows of table g. The ones of a probe's OR of four
// rows and of the mask of its bucket are its conflicts.

// A test compiles a wrong one, which the planted leaf has to reveal.
#ifndef WEIGHT_OF_FOURS
#define WEIGHT_OF_FOURS 4
#endif

#define MAX_PROBES 2048
#define MAX_NZ 4
#define PROBE_WORDS (MAX_PROBES + 8 * BUCKETS)
// Keys of the longer list that are gathered and sorted at a time, in the room of the tables.
#define PORTION 3072
// Portions of a list sorted at a time.
#define MAX_PARTS 256

// Layout of the local memory of a group, in words.
#define TABLE_WORDS (4 * 64 * 32)
#define AT_COUNTERS (2 * PORTION)
#define AT_PROBES TABLE_WORDS
#define AT_PLANES (AT_PROBES + PROBE_WORDS)
#define AT_STARTS (AT_PLANES + MAX_NZ * 32)
#define AT_LENGTHS (AT_STARTS + BUCKETS)
#define AT_LIVE (AT_LENGTHS + BUCKETS)
#define AT_PART (AT_LIVE + BUCKETS)
#define AT_SCAN (AT_PART + BUCKETS)
#define TABLES_WORDS (AT_SCAN + LEAF_THREADS)

// `byte_perm` picks four of the eight bytes of b and a. ROW_OFFSET: bytes from `lane` (below 256) and row number g of a
// probe, in rows of 256 bytes. Both are one instruction on NVIDIA.
#ifdef NVIDIA
FN u32 byte_perm(u32 a, u32 b, u32 s) {
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(s));
    return r;
}
#define ROW_OFFSET(p, lane, g) byte_perm(p, lane, 0x5504 | (g) << 4)
#else
FN u32 byte_perm(u32 a, u32 b, u32 s) {
    u64 ab = ((u64)b << 32) | a;
    u32 r = 0;
    for (int i = 0; i < 4; i++) r |= (u32)((ab >> (8 * ((s >> (4 * i)) & 7))) & 255) << (8 * i);
    return r;
}
#define ROW_OFFSET(p, lane, g) ((((p) >> 8 * (g)) & 63) << 8 | (lane))
#endif

// Sorts a list by bucket. If `align` is 8, buckets begin at multiples of eight; their starts and lengths go to
// `starts` and `lengths`. `counters` has a word per thread and bucket, which only its thread changes at first;
// `scan` has a word per thread.
FN void sort_by_bucket(L const u32 *from, u32 number, L u32 *to, u32 nz, u32 align, u32 mask, L u32 *starts,
                       L u32 *lengths, L u32 *counters, L u32 *scan) {
    u32 buckets = 1u << nz;
    for (u32 z = 0; z < buckets; z++) counters[z * LEAF_THREADS + TID] = 0;
    for (u32 i = TID; i < number; i += LEAF_THREADS) counters[bucket_of(from[i], nz) * LEAF_THREADS + TID]++;
    SYNC();
    u32 sum = 0;
    for (u32 j = 0; j < buckets; j++) sum += counters[TID * buckets + j];
    scan[TID] = sum;
    add_up_words(scan, LEAF_THREADS);
    u32 at = scan[TID] - sum, each = LEAF_THREADS / buckets, own = TID / each, before = 0;
    for (u32 z = 0; z < own; z++) {
        u32 end = scan[(z + 1) * each - 1];
        at += (align - (end - before) % align) % align;
        before = end;
    }
    if (TID % each == 0) {
        starts[own] = at;
        lengths[own] = scan[(own + 1) * each - 1] - before;
    }
    for (u32 j = 0; j < buckets; j++) {
        u32 n = counters[TID * buckets + j];
        counters[TID * buckets + j] = at;
        at += n;
    }
    SYNC();
    for (u32 i = TID; i < number; i += LEAF_THREADS) {
        u32 key = from[i];
        to[counters[bucket_of(key, nz) * LEAF_THREADS + TID]++] = key & mask;
    }
    SYNC();
}

// Two tables share rows of 256 bytes, so that a byte permutation finds the row.
FN u32 table_word(u32 g, u32 row, u32 c) { return ((g >> 1) * 64 + row) * 64 + (g & 1) * 32 + c; }

// Writes the tables of the keys start .. start + 1024 of a list; bit i of column c is key start + 32 i + c.
FN void build(L u32 *smem, G const u32 *keys, u32 start, u32 length, u32 nz) {
    u32 c = TID % 32, g = TID / 32;
    u32 y[8];
    UNROLL for (u32 j = 0; j < 8; j++) {
        u32 k[4];
        UNROLL for (u32 q = 0; q < 4; q++) {
            u32 at = start + (j + 8 * q) * 32 + c;
            k[q] = at < length ? keys[at] : 0;
        }
        u32 low = byte_perm(k[0], k[1], g | (g + 4) << 4), high = byte_perm(k[2], k[3], g | (g + 4) << 4);
        y[j] = byte_perm(low, high, 0x5410);
    }
    UNROLL for (u32 j = 0; j < 4; j++) {
        u32 t = ((y[j] >> 4) ^ y[j + 4]) & 0x0f0f0f0f;
        y[j + 4] ^= t;
        y[j] ^= t << 4;
    }
    UNROLL for (u32 j = 0; j < 8; j++) if (!(j & 2)) {
        u32 t = ((y[j] >> 2) ^ y[j + 2]) & 0x33333333;
        y[j + 2] ^= t;
        y[j] ^= t << 2;
    }
    UNROLL for (u32 j = 0; j < 8; j += 2) {
        u32 t = ((y[j] >> 1) ^ y[j + 1]) & 0x55555555;
        y[j + 1] ^= t;
        y[j] ^= t << 1;
    }
    u32 low[8];
    low[0] = 0;
    UNROLL for (u32 r = 1; r < 8; r++) low[r] = (r & 1 ? y[0] : 0) | (r & 2 ? y[1] : 0) | (r & 4 ? y[2] : 0);
    UNROLL for (u32 h = 0; h < 8; h++) {
        u32 high = (h & 1 ? y[3] : 0) | (h & 2 ? y[4] : 0) | (h & 4 ? y[5] : 0);
        UNROLL for (u32 r = 0; r < 8; r++) smem[table_word(g, 8 * h + r, c)] = low[r] | high;
    }
    if (g < nz) smem[AT_PLANES + g * 32 + c] = y[6];
}

// Returns ones for the keys of column c that conflict with bucket z, or are past the end of the list.
FN u32 mask_of(L u32 *smem, u32 z, u32 c, u32 start, u32 length) {
    u32 first = start + c, valid = first < length ? (length - first + 31) / 32 : 0;
    u32 mask = valid >= 32 ? 0 : ~0u << valid;
    for (u32 b = 0; z >> b; b++) if (z >> b & 1) mask |= smem[AT_PLANES + b * 32 + c];
    return mask;
}

// Pairs so far: `zeros` less the ones of the carry-save counters.
typedef struct { u32 ones, twos, fours, eights; i64 zeros; } Tally;

FN i64 total(const Tally *t) {
    return t->zeros - ((i64)t->eights * 8 + WEIGHT_OF_FOURS * popcount(t->fours) + 2 * popcount(t->twos) + popcount(t->ones));
}

#define ADD3(high, low, a, b, c)                       \
    {                                                  \
        u32 a_ = (a), b_ = (b), c_ = (c);              \
        low = a_ ^ b_ ^ c_;                            \
        high = (a_ & b_) | (a_ & c_) | (b_ & c_);      \
    }

// Adds the ones of the ORs of eight probes to the carry-save counters.
FN void eight(L u32 *smem, L const uint4 *probes, u32 mask, Tally *t) {
    uint4 q0 = probes[0], q1 = probes[1];
    u32 p[8] = {q0.x, q0.y, q0.z, q0.w, q1.x, q1.y, q1.z, q1.w};
    u32 x[8];
    u32 lane = TID % 32 * 4;
    L const char *tables = (L const char *)smem;
#define ROW(g) (*(L const u32 *)(tables + (g >> 1) * 16384 + (g & 1) * 128 + ROW_OFFSET(p[k], lane, g)))
    UNROLL for (u32 k = 0; k < 8; k++) x[k] = mask | ROW(0) | ROW(1) | ROW(2) | ROW(3);
#undef ROW
    u32 a, b, c, d, e;
    ADD3(a, t->ones, t->ones, x[0], x[1]);
    ADD3(b, t->ones, t->ones, x[2], x[3]);
    ADD3(c, t->twos, t->twos, a, b);
    ADD3(a, t->ones, t->ones, x[4], x[5]);
    ADD3(b, t->ones, t->ones, x[6], x[7]);
    ADD3(d, t->twos, t->twos, a, b);
    ADD3(e, t->fours, t->fours, c, d);
    t->eights += popcount(e);
}

// Adds the disjoint pairs of the probes in local memory and of a list of keys. 32 threads, a warp, have a row between
// them. Each warp takes its share of the eights of probes.
FN void visit(L u32 *smem, G const u32 *keys, u32 many, u32 nz, Tally *t) {
    u32 lane = TID % 32, warp = TID / 32, warps = LEAF_THREADS / 32;
    u32 buckets = 1u << nz;
    for (u32 start = 0; start < many; start += 1024) {
        build(smem, keys, start, many, nz);
        for (u32 z = TID; z < buckets; z += LEAF_THREADS) smem[AT_LIVE + z] = 0;
        SYNC();
        for (u32 i = TID; i < buckets * 32; i += LEAF_THREADS) {
            if (mask_of(smem, i / 32, i % 32, start, many) != ~0u) smem[AT_LIVE + i / 32] = 1;
        }
        SYNC();
        u32 units = 0;
        for (u32 z = 0; z < buckets; z++) if (smem[AT_LIVE + z]) units += (smem[AT_LENGTHS + z] + 7) / 8;
        u32 first = units * warp / warps, last = units * (warp + 1) / warps, before = 0;
        for (u32 z = 0; z < buckets; z++) {
            if (!smem[AT_LIVE + z]) continue;
            u32 n = smem[AT_LENGTHS + z], own = (n + 7) / 8;
            u32 a = first > before ? first - before : 0, b = last > before ? last - before : 0;
            if (b > own) b = own;
            before += own;
            if (a >= b) continue;
            u32 mask = mask_of(smem, z, lane, start, many);
            L const uint4 *at = (L const uint4 *)&smem[AT_PROBES + smem[AT_STARTS + z]];
            // Every key that the mask leaves is disjoint from a probe that fills up a bucket.
            u32 padding = b == own ? own * 8 - n : 0, blocked = popcount(mask);
            t->zeros += (i64)(b - a) * 256 - (i64)padding * (32 - blocked);
            for (u32 u = a; u < b; u++) eight(smem, at + 2 * u, mask, t);
        }
        SYNC();
    }
}

// Takes the number of the next leaf; the group is done if it is above `number`.
FN u32 next_leaf(G u32 *next, L u32 *at) {
    if (TID == 0) *at = ADD_G(next, 1);
    SYNC();
    u32 taken = *at;
    SYNC();
    return taken;
}

// Adds the pairs of a thread to those of its group, in two words: not every device adds 64 bits at once.
FN void add_to_group(i64 pairs, G i64 *counts) {
    G u32 *words = (G u32 *)&counts[GROUP];
    u32 low = (u32)pairs, before = ADD_G(&words[0], low);
    ADD_G(&words[1], (u32)(pairs >> 32) + (before + low < low));
}

// Counts the pairs of leaves up to `number`: `counts` has those of each group, then those of each thread in the planted
// leaf. The groups use 2 `room` + MAX_PARTS BUCKETS words of `scratch` each, where `room` is the length of the longest
// list.
KERNEL_OF(LEAF_THREADS) join_by_tables(GRID_PARAMS, G const u32 *leaves, u32 number, u32 nz, u32 sort_from,
                                        G u32 *scratch, u32 room, G u32 *next, G i64 *counts) {
    // Four words at a time, because probes are read so. Its address is a constant: a parameter would take an addition
    // per table.
    L uint4 words[TABLES_WORDS / 4];
    L u32 *smem = (L u32 *)words;
    Tally t = {0, 0, 0, 0, 0};
    i64 sum = 0;
    G u32 *gathered = scratch + (u64)GROUP * (2 * (u64)room + MAX_PARTS * BUCKETS), *sorted = gathered + room;
    G u32 *ends = sorted + room;
    u32 buckets = 1u << nz;
    L u32 *counters = smem + AT_COUNTERS, *starts = smem + AT_STARTS, *lengths = smem + AT_LENGTHS;
    for (;;) {
        u32 at = next_leaf(next, &smem[AT_SCAN]);
        if (at > number) break;
        i64 before = at == number ? sum + total(&t) : 0;
        Leaf leaf = open_leaf(GRIDS, leaves, at, number);
        // For few probes, sorting takes longer than the visits that it saves.
        int sorts = nz > 0 && leaf.more > 1024 && leaf.fewer >= sort_from;
        while (leaf.few.first < leaf.few.cells) {
            u32 count = gather(&leaf.few, smem, MAX_PROBES, counters);
            if (count == 0) continue;
            for (u32 i = TID; i < PROBE_WORDS / 4; i += LEAF_THREADS) ((L uint4 *)(smem + AT_PROBES))[i] = (uint4)(0, 0, 0, 0);
            SYNC();
            sort_by_bucket(smem, count, smem + AT_PROBES, nz, 8, 0x3f3f3f3f, starts, lengths, counters, smem + AT_SCAN);
            List all = leaf.many;
            while (all.first < all.cells) {
                u32 many = 0, parts = 0;
                for (; all.first < all.cells && parts < MAX_PARTS; parts++) {
                    u32 own = gather(&all, smem, PORTION, counters), from = 0;
                    if (sorts) {
                        // The buckets of the probes stay as they are.
                        from = PORTION;
                        sort_by_bucket(smem, own, smem + PORTION, nz, 1, ~0u, smem + AT_LIVE, smem + AT_PART, counters,
                                       smem + AT_SCAN);
                        for (u32 z = TID; z < buckets; z += LEAF_THREADS) {
                            ends[parts * BUCKETS + z] = smem[AT_LIVE + z] + smem[AT_PART + z];
                        }
                    }
                    for (u32 i = TID; i < own; i += LEAF_THREADS) gathered[many + i] = smem[from + i];
                    many += own;
                    SYNC();
                }
                if (sorts && parts > 1) {
                    // Moves the buckets of all portions together: word (p, z) is what to add to a key's place.
                    for (u32 z = TID; z < buckets; z += LEAF_THREADS) {
                        u32 n = 0;
                        for (u32 p = 0; p < parts; p++) {
                            smem[p * BUCKETS + z] = n;
                            n += ends[p * BUCKETS + z] - (z > 0 ? ends[p * BUCKETS + z - 1] : 0);
                        }
                        smem[AT_PART + z] = n;
                    }
                    SYNC();
                    for (u32 i = TID; i < parts * buckets; i += LEAF_THREADS) {
                        u32 p = i / buckets, z = i % buckets, add = 0;
                        for (u32 y = 0; y < z; y++) add += smem[AT_PART + y];
                        smem[p * BUCKETS + z] += add - (z > 0 ? ends[p * BUCKETS + z - 1] : 0);
                    }
                    SYNC();
                    for (u32 p = 0, first = 0; p < parts; p++) {
                        u32 own = ends[p * BUCKETS + buckets - 1];
                        for (u32 i = TID; i < own; i += LEAF_THREADS) {
                            u32 key = gathered[first + i];
                            sorted[smem[p * BUCKETS + bucket_of(key, nz)] + i] = key;
                        }
                        first += own;
                    }
                    SYNC();
                }
                visit(smem, sorts && parts > 1 ? sorted : gathered, many, nz, &t);
            }
        }
        sum -= (i64)t.eights * 8;
        t.eights = 0;
        if (at == number) {
            i64 found = sum + total(&t) - before;
            counts[NGROUPS + TID] += found;
            sum -= found;
        }
    }
    add_to_group(sum + total(&t), counts);
}

#define PAIR_PROBES 1024
#define PAIR_KEYS 2048
// Keys of the longer list that a thread holds; probes are read by all threads at once.
#define KEYS 4

// Tests every pair of leaves up to `number`; `counts` as above.
KERNEL_OF(LEAF_THREADS) join_every_pair(GRID_PARAMS, G const u32 *leaves, u32 number, G u32 *next, G i64 *counts) {
    L uint4 words[(PAIR_PROBES + PAIR_KEYS + 2 * LEAF_THREADS) / 4];
    L u32 *smem = (L u32 *)words, *held = smem + PAIR_PROBES, *scan = held + PAIR_KEYS;
    i64 sum = 0;
    for (;;) {
        u32 at = next_leaf(next, scan);
        if (at > number) break;
        i64 before = sum;
        Leaf leaf = open_leaf(GRIDS, leaves, at, number);
        while (leaf.few.first < leaf.few.cells) {
            u32 count = gather(&leaf.few, smem, PAIR_PROBES, scan);
            // Bit 31 makes every probe conflict with the keys past the end.
            for (u32 i = TID; i < count; i += LEAF_THREADS) smem[i] |= 0x80000000u;
            SYNC();
            List all = leaf.many;
            while (count > 0 && all.first < all.cells) {
                u32 many = gather(&all, held, PAIR_KEYS, scan);
                for (u32 start = 0; start < many; start += KEYS * LEAF_THREADS) {
                    u32 key[KEYS];
                    float n[KEYS];
                    UNROLL for (u32 k = 0; k < KEYS; k++) {
                        u32 at = start + k * LEAF_THREADS + TID;
                        key[k] = at < many ? held[at] : 0x80000000u;
                        n[k] = 0;
                    }
                    if (start + TID < many) {
                        L const uint4 *four = (L const uint4 *)smem;
                        for (u32 i = 0; i < count / 4; i++) {
                            uint4 p = four[i];
                            UNROLL for (u32 k = 0; k < KEYS; k++) {
                                if ((p.x & key[k]) == 0) n[k] += 1;
                                if ((p.y & key[k]) == 0) n[k] += 1;
                                if ((p.z & key[k]) == 0) n[k] += 1;
                                if ((p.w & key[k]) == 0) n[k] += 1;
                            }
                        }
                        for (u32 i = count & ~3u; i < count; i++) {
                            UNROLL for (u32 k = 0; k < KEYS; k++) if ((smem[i] & key[k]) == 0) n[k] += 1;
                        }
                        UNROLL for (u32 k = 0; k < KEYS; k++) sum += (u32)n[k];
                    }
                }
                SYNC();
            }
        }
        if (at == number) {
            counts[NGROUPS + TID] += sum - before;
            sum = before;
        }
    }
    add_to_group(sum, counts);
}
