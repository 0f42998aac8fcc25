// Attention over packed sequences, forward and backward, without scores in device memory.
//
// Compiled once a head dimension (HEAD_DIM 32 or 64), after random.cu and before attention_backward*.cu, for
// compute capability 8.0 and later. Needs no header: bf16 values travel as 16-bit integers, the tensor cores
// are called by name.
//
// In:  qkv    bf16 [tokens, 3 * hidden]: queries, keys and values side by side, heads side by side in each
//      offsets [sequences + 1]: where the sequences, of at most 512 tokens, begin and end
//      tiles  (sequence, first row): every 64 rows of every sequence; those of long sequences first, so
//             that the largest blocks start first and a prefix serves the kernels for long sequences
//      bias   f32 [heads, 1023] or null: added to the scaled score of query i and key j at j - i + 511
// Out: out    bf16 [tokens, hidden]; log_sums f32 [heads, tokens]: log of the sum of the exponentials of
//             the scaled scores, from which the backward pass makes the probabilities again
//      d_qkv  bf16, as qkv; bias_sums i64 [heads, 1023]: the bias gradient in fixed point
//
// kernel                      grid                     threads  bytes of shared memory, T = 128 * HEAD_DIM
// attention_forward           tiles, heads             128      6 T,                +4096 with a bias
// attention_backward_short    short sequences, heads   256      8 T + 33792,        +4096 with a bias
// attention_backward_queries  long tiles, heads        128      8 T + 512,          +8192 with a bias
// attention_backward_keys     long tiles, heads        128      8 T + 1024,         +4096 with a bias
// attention_bias_gradient     any                      any      0
// The blocks a multiprocessor holds are counted on the whole of its shared memory: the host asks for the
// largest share (preferred carve-out 100).
//
// A sequence of at most 128 tokens is short: one block holds all of it and a head, so the scores and their
// gradient are computed once and everything is read and written once. A long one takes two passes, the
// queries' first since it leaves the deltas that the keys' pass reads; each computes the scores anew,
// because a sum over key tiles across blocks would need atomics or a buffer of partial sums.
//
// The same bits come out each run: every sum of floats has one owner and one order, and the one sum across
// blocks, the bias gradient, adds integers.
//
// A warp owns strips of 16 rows (queries, or keys in the passes that sum over queries) and all columns: an
// accumulator of scores then has the very layout of the next product's left operand, and probabilities
// never leave the registers. Two strips share each operand read from shared memory, which halves the reads,
// and four warps cover 128 rows, which halves the copies to it: the block of every other tile takes the next
// tile too, and that one's own block ends at once. Tiles lie in shared memory as rows of HEAD_DIM values,
// their 16-byte chunks permuted within 128 bytes (`place`) so that the eight rows an ldmatrix reads lie in
// distinct banks. Rows past a sequence's end are zero: they add nothing to a product, so only keys need a
// mask.

typedef unsigned short bf16;

constexpr int TILE = 64;
constexpr int SHORT = 128;
constexpr int DISTANCES = 1023; // j - i + 511 for i and j below 512, where rows past the end lie too
constexpr int ROW = HEAD_DIM * 2;
constexpr int CHUNKS = ROW / 16;
constexpr int TILE_BYTES = TILE * ROW;
constexpr int STEPS = HEAD_DIM / 16;   // products of depth 16 over a head
constexpr int COLUMNS = HEAD_DIM / 8;  // accumulators of width 8 over a head
constexpr int STRIPS = 2;              // of 16 rows a warp, where four warps cover a block's rows
constexpr int WARP_ROWS = STRIPS * 16;
constexpr int BLOCK_ROWS = 4 * WARP_ROWS;
constexpr int BLOCKS = HEAD_DIM == 64 ? 2 : 3; // of 128 threads a multiprocessor: what registers allow
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;
constexpr float FIXED_POINT = 1099511627776.0f; // 2^40: sums up to 2^23 in steps of 1e-12

extern __shared__ __align__(1024) unsigned char memory[];

// --- instructions

// A lane's part of a 16 x 16 left operand, or of two 16 x 8 right operands.
struct Fragment { u32 part[4]; };

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

// Starts a copy of 16 bytes to shared memory; zeros, and nothing read, where there is no source.
__device__ __forceinline__ void copy_chunk(u32 to, const void* from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

__device__ __forceinline__ void copy_float(u32 to, const float* from, bool exists) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(to), "l"(from), "r"(exists ? 4 : 0) : "memory");
}

// Copies started since the last call become a group.
__device__ __forceinline__ void group_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups but the last.
__device__ __forceinline__ void wait_for_earlier_copies() {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ Fragment load_matrices(u32 address) {
    Fragment f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.part[0]), "=r"(f.part[1]), "=r"(f.part[2]), "=r"(f.part[3])
                 : "r"(address) : "memory");
    return f;
}

__device__ __forceinline__ Fragment load_transposed(u32 address) {
    Fragment f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.part[0]), "=r"(f.part[1]), "=r"(f.part[2]), "=r"(f.part[3])
                 : "r"(address) : "memory");
    return f;
}

// sum += left (16 x 16) * right (16 x 8), the right operand in two parts.
__device__ __forceinline__ void multiply_add(float (&sum)[4], const Fragment& left, u32 right0, u32 right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left.part[0]), "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]),
          "r"(right0), "r"(right1));
}

// Two values rounded to bf16, the first in the low half.
__device__ __forceinline__ u32 pack(float first, float second) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
    return packed;
}

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

__device__ __forceinline__ void store_word(u32 address, u32 word) {
    asm volatile("st.shared.u32 [%0], %1;" :: "r"(address), "r"(word) : "memory");
}

__device__ __forceinline__ uint4 load_chunk(u32 address) {
    uint4 c;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c.x), "=r"(c.y), "=r"(c.z), "=r"(c.w) : "r"(address) : "memory");
    return c;
}

__device__ __forceinline__ float load_bf16(u32 address) {
    unsigned short half;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(address) : "memory");
    return __uint_as_float((u32)half << 16);
}

// --- tiles

// Where a tile with rows of BYTES keeps a chunk.
template <int BYTES = ROW>
__device__ __forceinline__ u32 place(int row, int chunk) {
    return row * BYTES + ((chunk ^ (BYTES == 64 ? (row >> 1) & 3 : row & 7)) << 4);
}

// Where in a tile a lane points to load four 8 x 8 matrices: as the left operand of a tile that lies
// [rows, depth] and, transposed, as the right operand of one that lies [depth, columns] ...
template <int BYTES = ROW>
__device__ __forceinline__ u32 lane_by_row() {
    return place<BYTES>(threadIdx.x & 15, threadIdx.x >> 4 & 1);
}

// ... and as the right operand of one that lies [columns, depth] and, transposed, as the left operand of
// one that lies [depth, rows].
template <int BYTES = ROW>
__device__ __forceinline__ u32 lane_by_column() {
    return place<BYTES>((threadIdx.x & 7) + (threadIdx.x >> 4 & 1) * 8, threadIdx.x >> 3 & 1);
}

// Where the same lane points for the 16 x 16 values at (16 * row, 16 * column). The permutation flips bits
// that a chunk's number sets and is the same 16 rows on, so that no lane permutes again.
template <int BYTES = ROW>
__device__ __forceinline__ u32 step_to(u32 lane_address, int row, int column) {
    return (lane_address ^ (column << 5)) + row * 16 * BYTES;
}

// Starts copying `rows` rows of a head; those from `valid` on become zero.
template <int THREADS>
__device__ __forceinline__ void load_rows(u32 tile, const bf16* source, int stride, int rows, int valid) {
#pragma unroll 4
    for (int i = threadIdx.x; i < rows * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        const bool exists = row < valid;
        copy_chunk(tile + place(row, chunk), source + (exists ? row * stride : 0) + chunk * 8, exists);
    }
}

// The left operand, 16 columns deep, that two accumulators of a strip make.
__device__ __forceinline__ Fragment left_operand(const float (&first)[4], const float (&second)[4]) {
    return {{pack(first[0], first[1]), pack(first[2], first[3]),
             pack(second[0], second[1]), pack(second[2], second[3])}};
}

// Rounds a strip's accumulators to bf16 into its 16 rows of a tile.
__device__ __forceinline__ void put_rows(
    u32 tile, const float (&sums)[COLUMNS][4], float upper, float lower
) {
    const int row = (threadIdx.x & 31) >> 2, word = (threadIdx.x & 3) * 4;
#pragma unroll
    for (int n = 0; n < COLUMNS; n++) {
        store_word(tile + place(row, n) + word, pack(sums[n][0] * upper, sums[n][1] * upper));
        store_word(tile + place(row + 8, n) + word, pack(sums[n][2] * lower, sums[n][3] * lower));
    }
}

// Writes the first `valid` rows of a tile to device memory, 16 bytes a thread.
template <int THREADS>
__device__ __forceinline__ void store_rows(bf16* target, int stride, u32 tile, int valid) {
    for (int i = threadIdx.x % THREADS; i < valid * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, chunk = i % CHUNKS;
        *(uint4*)(target + row * stride + chunk * 8) = load_chunk(tile + place(row, chunk));
    }
}

// A head's bias by distance, for scores that are exponents of two.
template <int THREADS>
__device__ __forceinline__ void load_bias(float* distances, const float* bias, int head) {
    for (int i = threadIdx.x; i < DISTANCES; i += THREADS) distances[i] = bias[head * DISTANCES + i] * LOG2_E;
}

// --- forward

// What a warp with strips of 16 queries needs to know of them and of a tile of keys.
struct QueryWork {
    u32 keys, values;        // tiles
    const float* distances;  // or null
    int row;                 // the lane's upper row of the first strip, in the sequence
    int key;                 // the tile's first row, in the sequence
    int start, length, head, heads;
    float scale;             // of scores that are exponents of two
};

// 16 queries as left operands, the sums of weighted values, and of either of a lane's rows the highest score
// and the sum of the powers of all below it.
struct QueryStrip {
    Fragment queries[STEPS];
    float sums[COLUMNS][4], highest[2], total[2];
};

// Makes of a strip's scores the weights of the values, and makes its sums so far relative to a new maximum.
template <int COUNT>
__device__ __forceinline__ void weigh(
    const QueryWork& work, const Dropout& dropout, int row, QueryStrip& strip, float (&scores)[COUNT][4]
) {
    const int column = work.key + 2 * (threadIdx.x & 3);
    if (work.distances) {
        const float* nearest = work.distances + (column - row + 511);
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                // The test is for the compiler's sake: it reads fewer values ahead and spills none.
                const bool exists = row + (e >> 1) * 8 < work.length;
                const float by = exists ? nearest[n * 8 + (e & 1) - (e >> 1) * 8] : 0.0f;
                scores[n][e] = fmaf(scores[n][e], work.scale, by);
            }
        }
    }
    if (work.key + COUNT * 8 > work.length) {
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (column + n * 8 + (e & 1) >= work.length) scores[n][e] = -infinity();
            }
        }
    }
    const float factor = work.distances ? 1.0f : work.scale; // makes exponents of two of scores
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float highest = strip.highest[half];
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            highest = fmaxf(highest, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 2));
        const float correction = power_of_two((strip.highest[half] - highest) * factor);
        strip.highest[half] = highest;
        strip.total[half] *= correction;
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) {
            strip.sums[n][2 * half] *= correction;
            strip.sums[n][2 * half + 1] *= correction;
        }
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                scores[n][e] = power_of_two(fmaf(scores[n][e], factor, -highest * factor));
                strip.total[half] += scores[n][e];
            }
        }
    }
    if (dropout.threshold) {
        const u32 upper = (u32)(work.start + row) * work.heads + work.head, lower = upper + 8 * work.heads;
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                scores[n][e] *= dropout_factor(dropout, e < 2 ? upper : lower, column + n * 8 + (e & 1));
            }
        }
    }
}

// Adds the first KEYS keys of a tile to what the warp's queries attend to.
template <int KEYS>
__device__ __forceinline__ void add_keys(
    const QueryWork& work, const Dropout& dropout, QueryStrip (&strips)[STRIPS]
) {
    float scores[STRIPS][KEYS / 8][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            const Fragment key = load_matrices(step_to(work.keys + lane_by_column(), n, step));
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) {
                const Fragment& query = strips[strip].queries[step];
                multiply_add(scores[strip][2 * n], query, key.part[0], key.part[1]);
                multiply_add(scores[strip][2 * n + 1], query, key.part[2], key.part[3]);
            }
        }
    }
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        weigh(work, dropout, work.row + strip * 16, strips[strip], scores[strip]);
    }
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        Fragment weights[STRIPS];
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++) {
            weights[strip] = left_operand(scores[strip][2 * k], scores[strip][2 * k + 1]);
        }
#pragma unroll
        for (int n = 0; n < COLUMNS / 2; n++) {
            const Fragment value = load_transposed(step_to(work.values + lane_by_row(), k, n));
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) {
                multiply_add(strips[strip].sums[2 * n], weights[strip], value.part[0], value.part[1]);
                multiply_add(strips[strip].sums[2 * n + 1], weights[strip], value.part[2], value.part[3]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, BLOCKS) attention_forward(
    const bf16* __restrict__ qkv, const int* __restrict__ offsets, const int2* __restrict__ tiles,
    const float* __restrict__ bias, bf16* __restrict__ out, float* __restrict__ log_sums,
    int tokens, int heads, float scale, Dropout dropout
) {
    const int2 tile = tiles[blockIdx.x];
    if (tile.y % BLOCK_ROWS) return;
    const int head = blockIdx.y, own = (threadIdx.x >> 5) * WARP_ROWS;
    const int group = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
    const int start = offsets[tile.x], length = offsets[tile.x + 1] - start;
    const int valid = min(BLOCK_ROWS, length - tile.y);
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const bf16* queries = qkv + (size_t)start * stride + head * HEAD_DIM;
    const bf16* keys = queries + hidden;

    const u32 query_tile = shared_address(memory);
    const u32 own_rows = query_tile + own * ROW;
    float* distances = (float*)(memory + 6 * TILE_BYTES);
    // The keys' and values' tiles number `odd`.
    const auto load_keys = [&](int first, int odd) {
        const u32 key_tile = query_tile + (2 + 2 * odd) * TILE_BYTES;
        load_rows<128>(key_tile, keys + first * stride, stride, TILE, length - first);
        load_rows<128>(key_tile + TILE_BYTES, keys + hidden + first * stride, stride, TILE, length - first);
    };
    load_rows<128>(query_tile, queries + tile.y * stride, stride, BLOCK_ROWS, valid);
    load_keys(0, 0);
    group_copies();
    if (TILE < length) load_keys(TILE, 1);
    group_copies();
    if (bias) load_bias<128>(distances, bias, head);
    wait_for_earlier_copies();
    __syncthreads();

    QueryStrip strips[STRIPS] = {};
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        strips[strip].highest[0] = strips[strip].highest[1] = -infinity();
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            strips[strip].queries[step] = load_matrices(step_to(own_rows + lane_by_row(), strip, step));
        }
    }
    const int row = tile.y + own + group;
    for (int first = 0, odd = 0; first < length; first += TILE, odd ^= 1) {
        if (first > 0) {
            wait_for_copies();
            __syncthreads();
            if (first + TILE < length) load_keys(first + TILE, odd ^ 1);
        }
        const u32 key_tile = query_tile + (2 + 2 * odd) * TILE_BYTES;
        const QueryWork work = {
            key_tile, key_tile + TILE_BYTES, bias ? distances : nullptr, row, first,
            start, length, head, heads, scale * LOG2_E,
        };
        if (own >= valid) continue;
        if (length - first > TILE / 2) {
            add_keys<TILE>(work, dropout, strips);
        } else {
            add_keys<TILE / 2>(work, dropout, strips);
        }
    }

    const float unit = bias ? LN_2 : scale; // of the scores kept, as natural exponents
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        QueryStrip& s = strips[strip];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            s.total[half] += __shfl_xor_sync(0xffffffff, s.total[half], 1);
            s.total[half] += __shfl_xor_sync(0xffffffff, s.total[half], 2);
            const int here = row + strip * 16 + half * 8;
            if (pair == 0 && here < length) {
                log_sums[(size_t)head * tokens + start + here] = s.highest[half] * unit + logf(s.total[half]);
            }
        }
        put_rows(own_rows + strip * 16 * ROW, s.sums, 1.0f / s.total[0], 1.0f / s.total[1]);
    }
    __syncwarp();
    bf16* target = out + (size_t)(start + tile.y + own) * hidden + head * HEAD_DIM;
    store_rows<32>(target, hidden, own_rows, min(WARP_ROWS, valid - own));
}
