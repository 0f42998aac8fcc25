// The gradient of attention's bias: sums of dS by distance. Compiled after tiles.cu, before
// backward.cu, whose kernels give dS and hand the sums of a block to `add_to_bias`.

__device__ __forceinline__ void add_to_bias(long long* bias_sums, int head, int distance, float sum) {
    atomicAdd((unsigned long long*)bias_sums + head * DISTANCES + distance,
              (unsigned long long)__float2ll_rn(sum * FIXED_POINT));
}

// The sum of the values at (row, row - shift) of a tile of bf16, over its first rows and columns.
template <int BYTES>
__device__ __forceinline__ float diagonal_sum(u32 tile, int rows, int columns, int shift) {
    float sum = 0.0f;
    for (int row = 0; row < rows; row++) {
        const int column = row - shift;
        if ((u32)column < (u32)columns) {
            sum += load_bf16(tile + place<BYTES>(row, column >> 3) + (column & 7) * 2);
        }
    }
    return sum;
}

// Floats in which a warp keeps the sums of its 16 rows, 32 written at a time: 512 keys have 527 distances.
constexpr int SPAN = 512 + 32;

// Sums the diagonals of 16 rows of dS in a warp's registers, while their keys come 32 at a time.
//
// Of every 8 keys a lane holds those at 2 * pair and 2 * pair + 1, in the rows group and group + 8. The lower
// row's values continue the diagonals of the upper row's 8 keys before, so the two rows add up to one. In the
// 8 x 8 values that are left the key x is on diagonal (x - group) mod 8: of these 8 keys or, if x < group,
// of the 8 before. Where x >= group sums wait for the next 8 keys; all eight values of a diagonal are then in
// eight lanes at the same time, as if it wrapped around.
// 32 keys have 32 diagonals, and each lane ends with one of them. In three exchanges it gives away half of
// the sums that it still has and gets, for the other half, what its partner has: 7 shuffles and one store.
struct Diagonals {
    float* span;      // where the lane's next sum goes
    float upper[2];   // the upper row's last keys, for the lower row's next
    float waiting[2]; // sums of both rows that wait for the next keys

    // Into SPAN floats from `start` on: the keys at a distance d from the first of the rows at d + 16.
    __device__ __forceinline__ explicit Diagonals(float* start) : upper{}, waiting{} {
        const int group = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
        span = start + (group & 2) * 8 + (group & 4) * 2 + ((2 * pair - group) & 7);
    }

    // The lane of a group and of a pair that is counted around the four.
    __device__ __forceinline__ static int lane(int group, int pair) { return group << 2 | (pair & 3); }

    __device__ __forceinline__ void add_keys(const float (&d_scores)[4][4]) {
        const int group = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
        float sums[2][4];
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const bool waits = 2 * pair + odd >= group;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float both = upper[odd] + d_scores[n][2 + odd];
                sums[odd][n] = waits ? waiting[odd] : both;
                upper[odd] = d_scores[n][odd];
                waiting[odd] = both;
            }
        }
        // A row on, a diagonal is a key on: at an even key in one of the rows group and group ^ 1, at an odd
        // one in the other. All keep the even keys' sums.
        float rest[4];
#pragma unroll
        for (int n = 0; n < 4; n++) {
            rest[n] = sums[0][n] + __shfl_sync(~0u, sums[1][n], lane(group ^ 1, pair - (group & 1)));
        }
        // Two rows on, it is a pair on; four rows on, two pairs.
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float given = group & 2 ? rest[n] : rest[n + 2];
            if (group & 2) rest[n] = rest[n + 2];
            rest[n] += __shfl_sync(~0u, given, lane(group ^ 2, pair + 1 - (group & 2)));
        }
        const float given = group & 4 ? rest[0] : rest[1];
        *span = (group & 4 ? rest[1] : rest[0]) + __shfl_xor_sync(~0u, given, 4 * 4 + 2);
        span += 32;
    }

    // Sums what still waits for keys.
    __device__ __forceinline__ void finish() {
        const float none[4][4] = {};
        add_keys(none);
    }
};

// Adds up what four warps, those that had queries, have found for the tile that begins at `row`, times a
// factor.
__device__ __forceinline__ void add_spans(
    long long* bias_sums, int head, const float* spans, int row, int length, float factor
) {
    const int keys = (length + 31) / 32 * 32;
    for (int i = threadIdx.x; i < keys + TILE; i += 128) {
        float sum = 0.0f;
#pragma unroll
        for (int warp = 0; warp < 4; warp++) {
            const int at = i - TILE + (warp + 1) * 16;
            if (row + warp * 16 < length && (u32)at < (u32)(keys + 16)) sum += spans[warp * SPAN + at];
        }
        // Before the first distance a sum is zero, and has no place where the tile is the last of 512 rows.
        if (sum != 0.0f) add_to_bias(bias_sums, head, i - TILE - row + 511, sum * factor);
    }
}

// Adds the fixed-point sums to the bias's gradient, and leaves them at zero for the next step.
extern "C" __global__ void attention_bias_gradient(long long* bias_sums, float* gradient, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        gradient[i] += (float)((double)bias_sums[i] * (1.0 / (double)FIXED_POINT));
        bias_sums[i] = 0;
    }
}
