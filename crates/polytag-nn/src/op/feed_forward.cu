// GELU by the error function, and its way back.

// The share of the standard normal distribution below x, and e^(-x^2/2). The tail is a polynomial in
// 1 / (1 + p |x|) times that exponential (Abramowitz and Stegun 7.1.26, off by at most 8e-8): two special
// functions, where erff and expf would make these kernels wait for arithmetic instead of memory.
__device__ __forceinline__ float normal_share(float x, float& bell) {
    float t = __fdividef(1.0f, fmaf(fabsf(x), 0.23164189f, 1.0f));
    bell = __expf(-0.5f * x * x);
    float series = fmaf(fmaf(fmaf(fmaf(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t,
                        0.254829592f);
    float tail = 0.5f * series * t * bell;
    return x < 0.0f ? tail : 1.0f - tail;
}

// out = gelu(x), eight numbers a thread; both may be the same memory.
extern "C" __global__ void __launch_bounds__(256) gelu(const bf16* x, bf16* out, long long length) {
    long long first = 8 * ((long long)blockIdx.x * 256 + threadIdx.x);
    if (first >= length) return;
    Eight value = load8(x + first);
    for (int i = 0; i < 8; i++) {
        float bell;
        value.v[i] *= normal_share(value.v[i], bell);
    }
    store8(out + first, value);
}

// Turns the gradient of gelu(x) into that of x, and x into gelu(x), both in place; puts this block's column
// sums of the gradient in `partial`, if it is not null. A block of 256 threads has 256 columns and its share
// of the rows: eight warps take every eighth row, a lane takes eight columns.
extern "C" __global__ void __launch_bounds__(256)
gelu_gradient(bf16* gradient, bf16* x, float* partial, int rows, int columns) {
    __shared__ __align__(16) float sums[8][256];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int column = blockIdx.x * 256 + lane * 8;
    int share = (rows + gridDim.y - 1) / gridDim.y;
    int first = blockIdx.y * share, last = min(rows, first + share);
    Eight sum = {};
    if (column < columns) {
        // Two rows at a time, so that four loads are under way together.
        for (int row = first + warp; row < last; row += 16) {
            bool both = row + 8 < last;
            size_t places[2] = {(size_t)row * columns + column, (size_t)(row + 8) * columns + column};
            uint4 given[2], taken[2];
            given[0] = packed8(gradient + places[0]);
            taken[0] = packed8(x + places[0]);
            if (both) {
                given[1] = packed8(gradient + places[1]);
                taken[1] = packed8(x + places[1]);
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if (r == 1 && !both) break;
                Eight d = unpacked(given[r]), value = unpacked(taken[r]);
                for (int i = 0; i < 8; i++) {
                    float bell, v = value.v[i], below = normal_share(v, bell);
                    value.v[i] = v * below;
                    d.v[i] *= fmaf(0.39894228f * v, bell, below);
                    sum.v[i] += d.v[i];
                }
                store8(gradient + places[r], d);
                store8(x + places[r], value);
            }
        }
    }
    if (!partial) return;
    store8(&sums[warp][lane * 8], sum);
    __syncthreads();
    int own = blockIdx.x * 256 + threadIdx.x;
    if (own < columns) {
        float total = 0.0f;
        for (int w = 0; w < 8; w++) total += sums[w][threadIdx.x];
        partial[(size_t)blockIdx.y * columns + own] = total;
    }
}
