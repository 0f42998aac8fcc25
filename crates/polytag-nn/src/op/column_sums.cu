// Sums over rows in two steps. A block of 256 threads sums 256 columns over its share of the rows: eight
// warps take every eighth row, a lane takes eight columns.

template <typename T>
__device__ __forceinline__ void partial_sums(const T* x, float* partial, int rows, int columns) {
    __shared__ float sums[8][256];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int column = blockIdx.x * 256 + lane * 8;
    int share = (rows + gridDim.y - 1) / gridDim.y;
    int first = blockIdx.y * share, last = min(rows, first + share);
    Eight sum = {};
    if (column + 8 <= columns && columns % 8 == 0) {
#pragma unroll 4
        for (int row = first + warp; row < last; row += 8) {
            Eight value = load8(x + (size_t)row * columns + column);
            for (int i = 0; i < 8; i++) sum.v[i] += value.v[i];
        }
    } else {
        for (int row = first + warp; row < last; row += 8)
            for (int i = 0; i < 8; i++)
                if (column + i < columns) {
                    T value = x[(size_t)row * columns + column + i];
                    if constexpr (sizeof(T) == 2) sum.v[i] += widen(value);
                    else sum.v[i] += value;
                }
    }
    for (int i = 0; i < 8; i++) sums[warp][lane * 8 + i] = sum.v[i];
    __syncthreads();
    int own = blockIdx.x * 256 + threadIdx.x;
    if (own < columns) {
        float total = 0.0f;
        for (int w = 0; w < 8; w++) total += sums[w][threadIdx.x];
        partial[(size_t)blockIdx.y * columns + own] = total;
    }
}

extern "C" __global__ void partial_sums_bf16(const bf16* x, float* partial, int rows, int columns) {
    partial_sums(x, partial, rows, columns);
}

extern "C" __global__ void partial_sums_f32(const float* x, float* partial, int rows, int columns) {
    partial_sums(x, partial, rows, columns);
}

// out (+)= the sum of `blocks` rows of `partial`, for up to three vectors whose partial sums follow each
// other; one without a place is passed over. A block of 32 warps sums 32 columns of one vector.
extern "C" __global__ void __launch_bounds__(1024)
finish_sums(const float* partial, int blocks, int columns, float* first, int add_first, float* second,
            int add_second, float* third, int add_third) {
    __shared__ float sums[32][33];
    float* out = blockIdx.y == 0 ? first : blockIdx.y == 1 ? second : third;
    int add = blockIdx.y == 0 ? add_first : blockIdx.y == 1 ? add_second : add_third;
    if (!out) return;
    partial += (size_t)blockIdx.y * blocks * columns;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < columns) {
#pragma unroll 4
        for (int block = warp; block < blocks; block += 32) sum += partial[(size_t)block * columns + column];
    }
    sums[warp][lane] = sum;
    __syncthreads();
    // The sum over the warps: each warp now has one column.
    float total = warp_sum(sums[lane][warp]);
    int own = blockIdx.x * 32 + warp;
    if (lane == 0 && own < columns) out[own] = add ? out[own] + total : total;
}
