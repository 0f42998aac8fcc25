// Rows to unit length, one warp a row. A row no longer than TINY is divided by TINY, so that zero stays zero.

#define TINY 1e-12f

extern "C" __global__ void __launch_bounds__(256)
normalise(const float* x, float* out, float* lengths, int rows, int columns) {
    int lane = threadIdx.x & 31, row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= rows) return;
    x += (size_t)row * columns;
    out += (size_t)row * columns;
    float squares = 0.0f;
    for (int column = lane; column < columns; column += 32) squares += x[column] * x[column];
    float length = fmaxf(sqrtf(warp_sum(squares)), TINY);
    for (int column = lane; column < columns; column += 32) out[column] = x[column] / length;
    if (lane == 0) lengths[row] = length;
}

// The part of the gradient that is across the row, over its length; nothing for a row that has none.
extern "C" __global__ void __launch_bounds__(256)
normalise_gradient(const float* gradient, const float* unit, const float* lengths, float* out, int rows,
                   int columns, int accumulate) {
    int lane = threadIdx.x & 31, row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= rows) return;
    size_t start = (size_t)row * columns;
    float along = 0.0f;
    for (int column = lane; column < columns; column += 32)
        along += gradient[start + column] * unit[start + column];
    along = warp_sum(along);
    float length = lengths[row], factor = length > TINY ? 1.0f / length : 0.0f;
    for (int column = lane; column < columns; column += 32) {
        float value = factor * (gradient[start + column] - along * unit[start + column]);
        out[start + column] = accumulate ? out[start + column] + value : value;
    }
}
