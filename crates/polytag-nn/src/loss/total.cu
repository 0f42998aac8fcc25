// out (+)= factor * the sum of the values, by one block: in a fixed order, and in f64, for there are many.
extern "C" __global__ void total(const float* values, float* out, long long count, float factor, int accumulate) {
    __shared__ double sums[1024];
    double sum = 0.0;
    for (long long i = threadIdx.x; i < count; i += blockDim.x) sum += values[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        float value = (float)(factor * sums[0]);
        *out = accumulate ? *out + value : value;
    }
}
