// The first rows of a matrix and a weight's rows, added; a row of the weight that is dropped adds nothing. A number
// a thread.

// sum[i] = input[i] + weight[i], where there is a row of the weight and it is kept.
extern "C" __global__ void add_rows(const float* input, const float* weight, float* sum, long long length,
                                    long long weights, int columns, Dropout dropout) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= length) return;
    bool kept = i < weights && dropout_factor(dropout, i / columns, 0) > 0.0f;
    sum[i] = input[i] + (kept ? weight[i] : 0.0f);
}

// towards[i] += gradient[i], where the row is kept.
extern "C" __global__ void add_rows_gradient(const float* gradient, float* towards, long long weights, int columns,
                                             Dropout dropout) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < weights && dropout_factor(dropout, i / columns, 0) > 0.0f) towards[i] += gradient[i];
}
