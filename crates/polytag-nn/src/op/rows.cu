// Numbers copied, and added, one a thread.

extern "C" __global__ void copy_numbers(const float* from, float* to, long long count) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = from[i];
}

extern "C" __global__ void add_numbers(const float* from, float* to, long long count) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] += from[i];
}
