// Rows of tables added up, and the gradients of those rows.

// A thread makes eight numbers of a token. `types` may be null.
extern "C" __global__ void __launch_bounds__(256)
embedding(const float* words, const float* positions, const float* types, const u32* ids, const u32* places,
          bf16* out, int tokens, int hidden) {
    u32 groups = hidden / 8;
    u64 index = (u64)blockIdx.x * 256 + threadIdx.x;
    u32 token = index / groups, column = 8 * (u32)(index % groups);
    if (token >= tokens) return;
    Eight sum = load8(words + (size_t)ids[token] * hidden + column);
    Eight position = load8(positions + (size_t)places[token] * hidden + column);
    for (int i = 0; i < 8; i++) sum.v[i] += position.v[i];
    if (types) {
        Eight type = load8(types + column);
        for (int i = 0; i < 8; i++) sum.v[i] += type.v[i];
    }
    store8(out + (size_t)token * hidden + column, sum);
}

// Adds to a table's gradient, for each value that occurs, the sum over its tokens. A block has one value
// and 256 columns: eight warps take every eighth of the tokens, a lane takes eight columns. Each row of the
// table belongs to one value, so that no two blocks add to the same place.
extern "C" __global__ void __launch_bounds__(256)
embedding_gradient(const bf16* gradient, float* table, const u32* values, const u32* starts, const u32* tokens,
                   int hidden) {
    __shared__ __align__(16) float sums[8][256];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int column = blockIdx.y * 256 + lane * 8;
    u32 first = starts[blockIdx.x], last = starts[blockIdx.x + 1];
    Eight sum = {};
    if (column < hidden) {
#pragma unroll 4
        for (u32 i = first + warp; i < last; i += 8) {
            Eight value = load8(gradient + (size_t)tokens[i] * hidden + column);
            for (int j = 0; j < 8; j++) sum.v[j] += value.v[j];
        }
    }
    store8(&sums[warp][lane * 8], sum);
    __syncthreads();
    int own = blockIdx.y * 256 + threadIdx.x, warps = min(8u, last - first);
    if (own < hidden) {
        float* place = table + (size_t)values[blockIdx.x] * hidden + own;
        float total = *place;
        for (int w = 0; w < warps; w++) total += sums[w][threadIdx.x];
        *place = total;
    }
}
