// The nearest centre of each row, and the means of groups of rows.

// Goes through a chunk of scores: `rows` rows, `stride` apart, of `columns` centres each, the first of which is
// `first`. A warp takes a row. What it finds replaces the best of the chunks before if it is greater; of equal
// scores the lowest centre remains. There is at least one column.
extern "C" __global__ void __launch_bounds__(256)
nearest_centres(const float* scores, int rows, int columns, int stride, const float* offsets, int first, float* best,
                u32* nearest) {
    int lane = threadIdx.x & 31, row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= rows) return;
    const float* own = scores + (size_t)row * stride;
    float greatest = -__int_as_float(0x7f800000);
    int place = min(lane, columns - 1);
    for (int column = lane; column < columns; column += 32) {
        float score = own[column] + offsets[column];
        if (score > greatest) {
            greatest = score;
            place = column;
        }
    }
    for (int distance = 16; distance; distance >>= 1) {
        float other = __shfl_xor_sync(~0u, greatest, distance);
        int other_place = __shfl_xor_sync(~0u, place, distance);
        if (other > greatest || (other == greatest && other_place < place)) {
            greatest = other;
            place = other_place;
        }
    }
    if (lane == 0 && (first == 0 || greatest > best[row])) {
        best[row] = greatest;
        nearest[row] = first + place;
    }
}

// Replaces the centre of each group that has members by their mean. A block has one group and 256 columns, a
// thread one column. Sums are in double and in the order of the members, as on the CPU: the bits are the same.
extern "C" __global__ void __launch_bounds__(256)
group_means(const float* rows, int dimension, const u32* starts, const u32* members, float* means) {
    int column = blockIdx.y * 256 + threadIdx.x;
    u32 begin = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    if (column >= dimension || begin == end) return;
    double sum = 0.0;
#pragma unroll 8
    for (u32 i = begin; i < end; i++) sum += rows[(size_t)members[i] * dimension + column];
    means[(size_t)blockIdx.x * dimension + column] = (float)(sum / (end - begin));
}
