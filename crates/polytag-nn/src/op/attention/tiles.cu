// Attention over packed sequences, forward and backward, without scores in device memory.
//
// This text is what all of its kernels share: sizes, tiles in shared memory, the softmax. It is compiled after
// instructions.cu, and after it come, once a head dimension (HEAD_DIM 32 or 64), with and without a bias (BIAS
// 0 or 1) and dropout (DROPOUT 0 or 1), forward.cu, bias.cu, backward.cu and long.cu, for compute capability
// 8.0 and later; and hopper.cu for capability 9.0 alone, for heads of 64 without a bias. Needs no header: bf16
// values travel as 16-bit integers.
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

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// Adds the product of two pairs of bf16 values.
__device__ __forceinline__ float dot_pair(u32 a, u32 b, float sum) {
    sum = fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), sum);
    return fmaf(__uint_as_float(a & 0xffff0000), __uint_as_float(b & 0xffff0000), sum);
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

// The delta of a row, the product of its output with that one's gradient, by two threads a row, neighbours on
// alternate chunks.
__device__ __forceinline__ void load_output(
    uint4 (&output)[CHUNKS / 2], const bf16* out, int stride, int valid
) {
    const int row = threadIdx.x >> 1;
#pragma unroll
    for (int i = 0; i < CHUNKS / 2; i++) {
        output[i] = row < valid ? *(const uint4*)(out + row * stride + (2 * i + (threadIdx.x & 1)) * 8)
                                : make_uint4(0, 0, 0, 0);
    }
}

// The delta of row threadIdx.x / 2, in both of its threads.
__device__ __forceinline__ float row_delta(const uint4 (&output)[CHUNKS / 2], u32 d_out_tile) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS / 2; i++) {
        const uint4 d = load_chunk(d_out_tile + place(threadIdx.x >> 1, 2 * i + (threadIdx.x & 1)));
        sum = dot_pair(output[i].x, d.x, dot_pair(output[i].y, d.y, sum));
        sum = dot_pair(output[i].z, d.z, dot_pair(output[i].w, d.w, sum));
    }
    return sum + __shfl_xor_sync(0xffffffff, sum, 1);
}

// --- softmax

// Two values of a lane's rows each, from accumulators side by side, as a left operand of depth 16.
__device__ __forceinline__ Fragment operand_of(const float (&left)[4], const float (&right)[4]) {
    return {{pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]), pack(right[2], right[3])}};
}

// The softmax of a lane's two rows over keys that pass by, 64 at a time.
struct PassingSoftmax {
    float factor; // makes exponents of two of scores
    // What is subtracted from a row's scores: their maximum at some time. It follows the maximum only where
    // powers would pass 2^16, which floats bear, so that sums are rarely corrected.
    float slack;
    float level[2] = {-infinity(), -infinity()};
    float total[2] = {0.0f, 0.0f};

    __device__ __forceinline__ explicit PassingSoftmax(float factor) : factor(factor), slack(16.0f / factor) {}

    // Turns scores into powers, and corrects what was summed up with those before.
    __device__ __forceinline__ void take(float (&scores)[8][4], float (&sums)[COLUMNS][4]) {
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
    }

    // Adds up what the four lanes of a row have; writes the logs of the sums of the rows before `valid`.
    __device__ __forceinline__ void finish(float* log_sums, int valid) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            total[half] += __shfl_xor_sync(0xffffffff, total[half], 1);
            total[half] += __shfl_xor_sync(0xffffffff, total[half], 2);
            const int row = ((threadIdx.x & 31) >> 2) + half * 8;
            if ((threadIdx.x & 3) == 0 && row < valid) {
                log_sums[row] = level[half] * factor * LN_2 + logf(total[half]);
            }
        }
    }
};
