// y = norm(dropout(input + bias) + residual) · gamma + beta, where norm makes a row's mean zero and its
// variance one. One warp a row; a lane has every 32nd group of eight columns, CHUNKS of them, and keeps them
// in registers.

struct Statistics { float mean, inverse; };

// `bias` and `residual` may be null; so may `sum` and `statistics`, which only the way back needs.
extern "C" __global__ void __launch_bounds__(256)
add_norm(const bf16* input, const float* bias, const bf16* residual, const float* gamma, const float* beta,
         bf16* out, bf16* sum, Statistics* statistics, int rows, int hidden, float epsilon, Dropout dropout) {
    int lane = threadIdx.x & 31, row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= rows) return;
    size_t start = (size_t)row * hidden;

    // All loads before the first use, so that they are under way together.
    uint4 taken[CHUNKS], beside[CHUNKS];
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int column = 8 * (32 * k + lane);
        taken[k] = beside[k] = make_uint4(0, 0, 0, 0);
        if (column < hidden) {
            taken[k] = packed8(input + start + column);
            if (residual) beside[k] = packed8(residual + start + column);
        }
    }
    Eight x[CHUNKS];
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int column = 8 * (32 * k + lane);
        x[k] = unpacked(taken[k]);
        if (column < hidden) {
            if (bias) {
                Eight b = load8(bias + column);
                for (int i = 0; i < 8; i++) x[k].v[i] += b.v[i];
            }
            if (dropout.threshold)
                for (int i = 0; i < 8; i++) x[k].v[i] *= dropout_factor(dropout, row, column + i);
            Eight r = unpacked(beside[k]);
            for (int i = 0; i < 8; i++) x[k].v[i] += r.v[i];
            if (sum) store8(sum + start + column, x[k]);
        }
        for (int i = 0; i < 8; i++) total += x[k].v[i];
    }
    float mean = warp_sum(total) / hidden;
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
        if (8 * (32 * k + lane) < hidden)
            for (int i = 0; i < 8; i++) squares += (x[k].v[i] - mean) * (x[k].v[i] - mean);
    float inverse = rsqrtf(warp_sum(squares) / hidden + epsilon);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int column = 8 * (32 * k + lane);
        if (column < hidden) {
            Eight g = load8(gamma + column), b = load8(beta + column);
            for (int i = 0; i < 8; i++) g.v[i] = (x[k].v[i] - mean) * inverse * g.v[i] + b.v[i];
            store8(out + start + column, g);
        }
    }
    if (statistics && lane == 0) statistics[row] = {mean, inverse};
}

// Adds up what eight warps have of a row of sums, always in the same order.
__device__ __forceinline__ void add_warps(const Eight* own, float* out, int hidden) {
    __shared__ __align__(16) float sums[8][256 * CHUNKS];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) store8(&sums[warp][8 * (32 * k + lane)], own[k]);
    __syncthreads();
    for (int column = threadIdx.x; column < hidden; column += 256) {
        float total = 0.0f;
        for (int w = 0; w < 8; w++) total += sums[w][column];
        out[column] = total;
    }
}

// The way back. `whole` takes the gradient of the sum that was normalised, which is also that of the residual;
// `dropped` takes the same behind the dropout, which is that of the input. Either may be null. `partial` takes
// this block's sums for gamma, beta and bias, blocks × hidden numbers each; it is null if none is wanted.
extern "C" __global__ void __launch_bounds__(256, 2)
add_norm_gradient(const bf16* gradient, const bf16* sum, const Statistics* statistics, const float* gamma,
                  bf16* whole, bf16* dropped, float* partial, int rows, int hidden, Dropout dropout) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    Eight for_gamma[CHUNKS] = {}, for_beta[CHUNKS] = {}, for_bias[CHUNKS] = {};
    for (int row = blockIdx.x * 8 + warp; row < rows; row += gridDim.x * 8) {
        size_t start = (size_t)row * hidden;
        uint4 given[CHUNKS], summed[CHUNKS];
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            int column = 8 * (32 * k + lane);
            given[k] = summed[k] = make_uint4(0, 0, 0, 0);
            if (column < hidden) {
                given[k] = packed8(gradient + start + column);
                summed[k] = packed8(sum + start + column);
            }
        }
        Statistics of_row = statistics[row];
        // With n = (sum − mean) · inverse and d = gradient · gamma, the gradient of the sum is
        // inverse · (d − mean of d − n · mean of n · d).
        float first = 0.0f, second = 0.0f;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            int column = 8 * (32 * k + lane);
            if (column < hidden) {
                Eight d = unpacked(given[k]), n = unpacked(summed[k]), g = load8(gamma + column);
                for (int i = 0; i < 8; i++) {
                    float normal = (n.v[i] - of_row.mean) * of_row.inverse;
                    for_beta[k].v[i] += d.v[i];
                    for_gamma[k].v[i] += d.v[i] * normal;
                    first += d.v[i] * g.v[i];
                    second += d.v[i] * g.v[i] * normal;
                }
            }
        }
        first = warp_sum(first) / hidden;
        second = warp_sum(second) / hidden;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            int column = 8 * (32 * k + lane);
            if (column < hidden) {
                Eight d = unpacked(given[k]), n = unpacked(summed[k]), g = load8(gamma + column);
                for (int i = 0; i < 8; i++) {
                    float normal = (n.v[i] - of_row.mean) * of_row.inverse;
                    d.v[i] = of_row.inverse * (d.v[i] * g.v[i] - first - normal * second);
                }
                if (whole) store8(whole + start + column, d);
                if (dropout.threshold) {
                    for (int i = 0; i < 8; i++) d.v[i] *= dropout_factor(dropout, row, column + i);
                    if (dropped) store8(dropped + start + column, d);
                }
                for (int i = 0; i < 8; i++) for_bias[k].v[i] += d.v[i];
            }
        }
    }
    if (partial) {
        size_t block = (size_t)blockIdx.x * hidden, all = (size_t)gridDim.x * hidden;
        add_warps(for_gamma, partial + block, hidden);
        add_warps(for_beta, partial + all + block, hidden);
        add_warps(for_bias, partial + 2 * all + block, hidden);
    }
}
