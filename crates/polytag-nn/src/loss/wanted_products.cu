// Products of pairs of rows, how far they are from what is wanted of them, and the gradient of that. A warp takes a pair.

extern "C" __global__ void __launch_bounds__(256)
product_errors(const float* left, const float* right, const float* wanted, float* errors, float* squares, int rows,
               int columns) {
    int lane = threadIdx.x & 31, row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= rows) return;
    size_t start = (size_t)row * columns;
    float product = 0.0f;
    for (int column = lane; column < columns; column += 32) product += left[start + column] * right[start + column];
    float error = warp_sum(product) - wanted[row];
    if (lane == 0) {
        errors[row] = error;
        squares[row] = error * error;
    }
}

// place (+)= factor * upstream * error * other, row by row
extern "C" __global__ void __launch_bounds__(256)
product_gradient(const float* other, const float* errors, float* place, int rows, int columns, const float* upstream,
                 float factor, int accumulate) {
    int lane = threadIdx.x & 31, row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= rows) return;
    size_t start = (size_t)row * columns;
    float share = factor * *upstream * errors[row];
    for (int column = lane; column < columns; column += 32) {
        float value = share * other[start + column];
        place[start + column] = accumulate ? place[start + column] + value : value;
    }
}
