// The squared distance of two matrices, by blocks, and its gradient.

extern "C" __global__ void squared_distance(const float* left, const float* right, long long length, float* partial) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < length; i += step) {
        float difference = left[i] - right[i];
        sum += difference * difference;
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// place (+)= factor * upstream * (left - right)
extern "C" __global__ void distance_gradient(const float* left, const float* right, float* place, long long length,
                                             const float* upstream, float factor, int accumulate) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= length) return;
    float gradient = factor * *upstream * (left[i] - right[i]);
    place[i] = accumulate ? place[i] + gradient : gradient;
}
