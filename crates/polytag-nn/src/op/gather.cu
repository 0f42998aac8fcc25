// Rows of a weight, and their gradients' way back. A number a thread; no row is named twice.

// rows[i] = weight's row ids[i / width], number i % width.
extern "C" __global__ void gather(const float* weight, const unsigned* ids, float* rows, long long length, int width) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < length) rows[i] = weight[(long long)ids[i / width] * width + i % width];
}

// The weight's row ids[i / width] += gradient[i].
extern "C" __global__ void gather_gradient(const float* gradient, const unsigned* ids, float* towards, long long length,
                                           int width) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < length) towards[(long long)ids[i / width] * width + i % width] += gradient[i];
}
