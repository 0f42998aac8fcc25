// Attention over packed sequences, forward and backward, without scores in device memory.
//
// Compiled once a head dimension (HEAD_DIM 32 or 64), with and without a bias (BIAS 0 or 1) and dropout
// (DROPOUT 0 or 1), after random.cu, before attention_bias.cu, attention_backward.cu and attention_long.cu,
// for compute capability 8.0 and later. Needs no header: bf16 values travel as 16-bit integers, the tensor
// cores are called by name.
//
// In:  qkv    bf16 [tokens, 3 * hidden]: queries, keys and values side by side, heads side by side in each
//      offsets [sequences + 1]: where the sequences, of at most 512 tokens, begin and end
//      tiles  (sequence, first row): every 64 rows of every sequence; those of long sequences first, so
//             that the largest blocks start first and a prefix serves the kernels for long sequences
//      bias   f32 [heads, 1023], if BIAS: added to the scaled score of query i and key j at j - i + 511
// Out: out    bf16 [tokens, hidden]; log_sums f32 [heads, tokens]: log of the sum of the exponentials of
//             the scaled scores, from which the backward pass makes the probabilities again
//      d_qkv  bf16, as qkv; bias_sums i64 [heads, 1023]: the bias gradient in fixed point
//
// kernel                      grid                     threads  bytes of shared memory, T = 128 * HEAD_DIM
// attention_forward           tiles, heads             128      5 T,                +4096 with a bias
// attention_backward_short    short sequences, heads   256      8 T + 35328,        +4096 with a bias
// attention_backward_queries  long tiles, heads        128      6 T + 512,          +4096 with a bias
// attention_backward_keys     long tiles, heads        128      6 T + 2560,         +4096 with a bias
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
// A warp owns 16 rows (queries, or keys in the passes that sum over queries) and all columns: an
// accumulator of scores then has the very layout of the next product's left operand, and probabilities
// never leave the registers. Tiles lie in shared memory as rows of HEAD_DIM values, their 16-byte chunks
// permuted within 128 bytes (`place`) so that the eight rows an ldmatrix reads lie in distinct banks.
// Rows past a sequence's end are zero: they add nothing to a product, so only keys need a mask, in a
// sequence's last columns.

typedef unsigned short bf16;

constexpr int TILE = 64;
constexpr int SHORT = 128;
constexpr int DISTANCES = 1023; // j - i + 511 for i and j below 512, where rows past the end lie too
constexpr int ROW = HEAD_DIM * 2;
constexpr int CHUNKS = ROW / 16;
constexpr int TILE_BYTES = TILE * ROW;
constexpr int STEPS = HEAD_DIM / 16;   // products of depth 16 over a head
constexpr int COLUMNS = HEAD_DIM / 8;  // accumulators of width 8 over a head
constexpr int BLOCKS = HEAD_DIM == 64 ? 4 : 5; // of 128 threads a multiprocessor: what registers allow
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

__device__ __forceinline__ void copy_float(u32 to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory");
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

// The same number, of which the compiler does not know how to compute it again: it stays in a register.
__device__ __forceinline__ u32 opaque(u32 x) {
    asm volatile("mov.u32 %0, %0;" : "+r"(x));
    return x;
}

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// Whether the values that a random number's halves stand for are kept.
struct Kept { bool low, high; };

// Fifteen bits of either half, as a positive 16-bit float, against the threshold: both in one instruction.
// What is not a number lies above every threshold and is kept.
__device__ __forceinline__ Kept kept(u32 bits, u32 thresholds) {
    u32 low, high;
    asm("{.reg .pred p, q;\n"
        "setp.geu.f16x2 p|q, %2, %3;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "selp.u32 %1, 1, 0, q;}"
        : "=r"(low), "=r"(high) : "r"(bits & 0x7fff7fff), "r"(thresholds));
    return {low != 0, high != 0};
}

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

// The same for the rows of a tile, by 128 threads. The rows that a thread copies are so far apart that their
// chunks are permuted alike: all but the first are at constant distances, and the loops that wait for tiles
// spend few instructions on asking for the next. Where there is no row, nothing is read at its address.
__device__ __forceinline__ void load_tile(u32 tile, const bf16* source, int stride, int valid) {
    constexpr int APART = 128 / CHUNKS;
    static_assert(APART % 8 == 0, "the permutation repeats every eight rows");
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const u32 target = tile + place(row, chunk);
    const bf16* from = source + row * stride + chunk * 8;
#pragma unroll
    for (int i = 0; i < TILE; i += APART) {
        copy_chunk(target + i * ROW, from + i * stride, row + i < valid);
    }
}

// Rounds a warp's accumulators to bf16 into its 16 rows of a tile.
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

// Drops values of a lane's two rows, whose random bits are given, and of its columns from `column` on, a
// multiple of 16 and less than 8. A number is for two columns eight apart: for two accumulators.
template <int WIDTH>
__device__ __forceinline__ void drop_pairs(
    float (&values)[WIDTH][4], const u32 (&row_bits)[2], int column, const PairedDropout& dropout
) {
#pragma unroll
    for (int n = 0; n < WIDTH; n += 2) {
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const u32 column_bits = random_column(dropout.high, column + n * 8 + odd);
#pragma unroll
            for (int e = odd; e < 4; e += 2) {
                const Kept keep = kept(random_mix(row_bits[e >> 1] ^ column_bits), dropout.thresholds);
                if (!keep.low) values[n][e] = 0.0f;
                if (!keep.high) values[n + 1][e] = 0.0f;
            }
        }
    }
}

// --- forward

extern "C" __global__ void __launch_bounds__(128, BLOCKS) attention_forward(
    const bf16* __restrict__ qkv, const int* __restrict__ offsets, const int2* __restrict__ tiles,
    const float* __restrict__ bias, bf16* __restrict__ out, float* __restrict__ log_sums,
    int tokens, int heads, float scale, PairedDropout dropout
) {
    const int2 tile = tiles[blockIdx.x];
    const int head = blockIdx.y, warp = threadIdx.x >> 5;
    const int group = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
    const int start = offsets[tile.x], length = offsets[tile.x + 1] - start;
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const bf16* queries = qkv + (size_t)start * stride + head * HEAD_DIM;
    const bf16* keys = queries + hidden;
    const bf16* values = keys + hidden;

    const u32 query_tile = shared_address(memory);
    const u32 own_rows = query_tile + warp * 16 * ROW;
    float* distances = (float*)(memory + 5 * TILE_BYTES);
    load_tile(query_tile, queries + tile.y * stride, stride, length - tile.y);
    load_tile(query_tile + TILE_BYTES, keys, stride, length);
    load_tile(query_tile + 2 * TILE_BYTES, values, stride, length);
    if (BIAS) load_bias<128>(distances, bias, head);
    wait_for_copies();
    __syncthreads();

    Fragment query[STEPS];
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        query[step] = load_matrices(step_to(own_rows + lane_by_row(), 0, step));
    }

    const float factor = BIAS ? 1.0f : scale * LOG2_E; // makes exponents of two of scores
    const int row = tile.y + warp * 16 + group;
    const u32 mask_row = (u32)(start + row) * heads + head;
    const u32 row_bits[2] = {random_row(dropout.low, mask_row),
                             random_row(dropout.low, mask_row + 8 * heads)};
    float sums[COLUMNS][4] = {};
    // What is subtracted from a row's scores: their maximum at some time. It follows the maximum only where
    // powers would pass 2^16, which floats bear, so that sums are rarely corrected.
    const float slack = 16.0f / factor;
    float level[2] = {-infinity(), -infinity()};
    float total[2] = {0.0f, 0.0f};
    for (int first = 0, odd = 0; first < length; first += TILE, odd ^= 1) {
        const u32 key_tile = query_tile + (1 + 2 * odd) * TILE_BYTES;
        if (first > 0) {
            wait_for_copies();
            __syncthreads();
        }
        if (first + TILE < length) {
            const int next = first + TILE;
            const u32 other = query_tile + (3 - 2 * odd) * TILE_BYTES;
            load_tile(other, keys + next * stride, stride, length - next);
            load_tile(other + TILE_BYTES, values + next * stride, stride, length - next);
        }
        // A warp without rows copies for the others.
        if (__all_sync(~0u, tile.y + warp * 16 >= length)) continue;

        float scores[8][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const Fragment key = load_matrices(step_to(key_tile + lane_by_column(), n, step));
                multiply_add(scores[2 * n], query[step], key.part[0], key.part[1]);
                multiply_add(scores[2 * n + 1], query[step], key.part[2], key.part[3]);
            }
        }

        const int column = first + 2 * pair;
        if (BIAS) {
            const float* nearest = distances + (column - row + 511);
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    // The test is for the compiler's sake: it reads fewer values ahead and spills none.
                    const bool exists = row + (e >> 1) * 8 < length;
                    const float by = exists ? nearest[n * 8 + (e & 1) - (e >> 1) * 8] : 0.0f;
                    scores[n][e] = fmaf(scores[n][e], scale * LOG2_E, by);
                }
            }
        }
        if (first + TILE > length) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    if (column + n * 8 + (e & 1) >= length) scores[n][e] = -infinity();
                }
            }
        }

        float highest[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            highest[half] = fmaxf(scores[0][2 * half], scores[0][2 * half + 1]);
#pragma unroll
            for (int n = 1; n < 8; n++) {
                highest[half] = fmaxf(highest[half], fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
            }
        }
        if (__any_sync(~0u, highest[0] > level[0] + slack || highest[1] > level[1] + slack)) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float reached = fmaxf(level[half], highest[half]);
                reached = fmaxf(reached, __shfl_xor_sync(0xffffffff, reached, 1));
                reached = fmaxf(reached, __shfl_xor_sync(0xffffffff, reached, 2));
                const float correction = power_of_two((level[half] - reached) * factor);
                level[half] = reached;
                total[half] *= correction;
#pragma unroll
                for (int n = 0; n < COLUMNS; n++) {
                    sums[n][2 * half] *= correction;
                    sums[n][2 * half + 1] *= correction;
                }
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    scores[n][e] = power_of_two(fmaf(scores[n][e], factor, -level[half] * factor));
                    total[half] += scores[n][e];
                }
            }
        }
        if (DROPOUT) drop_pairs(scores, row_bits, column, dropout);

#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float (&left)[4] = scores[2 * k], (&right)[4] = scores[2 * k + 1];
            const Fragment weights = {{pack(left[0], left[1]), pack(left[2], left[3]),
                                       pack(right[0], right[1]), pack(right[2], right[3])}};
#pragma unroll
            for (int n = 0; n < COLUMNS / 2; n++) {
                const Fragment value = load_transposed(step_to(key_tile + TILE_BYTES + lane_by_row(), k, n));
                multiply_add(sums[2 * n], weights, value.part[0], value.part[1]);
                multiply_add(sums[2 * n + 1], weights, value.part[2], value.part[3]);
            }
        }
    }

#pragma unroll
    for (int half = 0; half < 2; half++) {
        total[half] += __shfl_xor_sync(0xffffffff, total[half], 1);
        total[half] += __shfl_xor_sync(0xffffffff, total[half], 2);
        if (pair == 0 && row + half * 8 < length) {
            log_sums[(size_t)head * tokens + start + row + half * 8] =
                level[half] * factor * LN_2 + logf(total[half]);
        }
    }
    put_rows(own_rows, sums, dropout.scale / total[0], dropout.scale / total[1]);
    __syncwarp();
    const int first_row = tile.y + warp * 16;
    bf16* target = out + (size_t)(start + first_row) * hidden + head * HEAD_DIM;
    store_rows<32>(target, hidden, own_rows, min(16, length - first_row));
}
