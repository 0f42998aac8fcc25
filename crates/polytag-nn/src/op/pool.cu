// From a row a token to a row a sequence. A block has one sequence and 256 columns: eight warps take every
// eighth token, a lane takes eight columns.

// The mean of a sequence's tokens or, if `first_only`, the first of them.
extern "C" __global__ void __launch_bounds__(256)
pool(const bf16* x, float* out, const u32* offsets, int hidden, int first_only) {
    __shared__ __align__(16) float sums[8][256];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int column = blockIdx.y * 256 + lane * 8;
    u32 first = offsets[blockIdx.x], last = first_only ? first + 1 : offsets[blockIdx.x + 1];
    Eight sum = {};
    if (column < hidden) {
#pragma unroll 4
        for (u32 token = first + warp; token < last; token += 8) {
            Eight value = load8(x + (size_t)token * hidden + column);
            for (int i = 0; i < 8; i++) sum.v[i] += value.v[i];
        }
    }
    store8(&sums[warp][lane * 8], sum);
    __syncthreads();
    int own = blockIdx.y * 256 + threadIdx.x, warps = min(8u, last - first);
    if (own < hidden) {
        float total = 0.0f;
        for (int w = 0; w < warps; w++) total += sums[w][threadIdx.x];
        out[(size_t)blockIdx.x * hidden + own] = total / (last - first);
    }
}

// The gradient of every token, put in its place or, if `accumulate`, added to what is there.
extern "C" __global__ void __launch_bounds__(256)
pool_gradient(const float* gradient, bf16* out, const u32* offsets, int hidden, int first_only, int accumulate) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int column = blockIdx.y * 256 + lane * 8;
    if (column >= hidden) return;
    u32 first = offsets[blockIdx.x], last = offsets[blockIdx.x + 1];
    Eight share = load8(gradient + (size_t)blockIdx.x * hidden + column);
    if (!first_only)
        for (int i = 0; i < 8; i++) share.v[i] /= last - first;
    for (u32 token = first + warp; token < last; token += 8) {
        bf16* place = out + (size_t)token * hidden + column;
        bool given = !first_only || token == first;
        if (accumulate) {
            if (!given) break;
            Eight sum = load8(place);
            for (int i = 0; i < 8; i++) sum.v[i] += share.v[i];
            store8(place, sum);
        } else {
            Eight none = {};
            store8(place, given ? share : none);
        }
    }
}
