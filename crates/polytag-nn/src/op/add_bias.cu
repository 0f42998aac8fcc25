// A row added to every row of a matrix. A number a thread.

// sum[i] = input[i] + bias[i % columns].
extern "C" __global__ void add_bias(const float* input, const float* bias, float* sum, long long length, int columns) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < length) sum[i] = input[i] + bias[i % columns];
}

// sum[i] = input[i] + bias[ids[i % columns]].
extern "C" __global__ void add_chosen_bias(const float* input, const float* bias, const unsigned* ids, float* sum,
                                           long long length, int columns) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < length) sum[i] = input[i] + bias[ids[i % columns]];
}

// towards[ids[column]] += the sum of a column of the gradient; a column a thread, its rows in order.
extern "C" __global__ void add_chosen_bias_gradient(const float* gradient, const unsigned* ids, float* towards, int rows,
                                                    int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float sum = 0.0f;
    for (int row = 0; row < rows; row++) sum += gradient[(long long)row * columns + column];
    towards[ids[column]] += sum;
}
