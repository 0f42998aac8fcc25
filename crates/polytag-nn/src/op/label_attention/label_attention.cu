// Label attention, but for its products. The sequences of a group are padded to `padded` tokens, a multiple
// of eight; `places` says of each its first token, its length and its row among the scores. Matrices of a
// chunk have a row a label. Everything is stored in bf16 and computed in f32.

#define THREADS 256
#define WARPS 8
#define TINY 1e-12f
#define LOWEST -3.0e38f

struct Place { u32 first, length, row, unused; };

// Rounds the queries, eight a thread.
extern "C" __global__ void __launch_bounds__(THREADS)
round_queries(const float* queries, bf16* rounded, long long eights) {
    long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < eights) store8(rounded + 8 * i, load8(queries + 8 * i));
}

// The tokens of a group, zeros where a sequence is shorter. A warp a row.
extern "C" __global__ void __launch_bounds__(THREADS)
pad_tokens(const bf16* tokens, bf16* out, const Place* places, int rows, int padded, int columns) {
    int lane = threadIdx.x & 31, row = blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (row >= rows) return;
    Place place = places[row / padded];
    int token = row % padded;
    const bf16* from = tokens + (size_t)(place.first + token) * columns;
    uint4 zeros = make_uint4(0, 0, 0, 0);
    for (int column = 8 * lane; column < columns; column += 256)
        *(uint4*)(out + (size_t)row * columns + column) = token < place.length ? packed8(from + column) : zeros;
}

// The gradients of a group's tokens, put in their places or, if `accumulate`, added to what is there.
extern "C" __global__ void __launch_bounds__(THREADS)
unpad_gradients(const float* gradients, bf16* out, const Place* places, int rows, int padded, int columns,
                int accumulate) {
    int lane = threadIdx.x & 31, row = blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (row >= rows) return;
    Place place = places[row / padded];
    int token = row % padded;
    if (token >= place.length) return;
    bf16* to = out + (size_t)(place.first + token) * columns;
    for (int column = 8 * lane; column < columns; column += 256) {
        Eight value = load8(gradients + (size_t)row * columns + column);
        if (accumulate) {
            Eight before = load8(to + column);
            for (int i = 0; i < 8; i++) value.v[i] += before.v[i];
        }
        store8(to + column, value);
    }
}

// Replaces products of labels and tokens by the softmax of `scale` times them over each sequence; zeros where
// a sequence is shorter than its group. `width` lanes, a power of two, take a label and a sequence: eight
// tokens each, sixteen where there are more than 256.
extern "C" __global__ void __launch_bounds__(THREADS)
soften(bf16* products, const Place* places, int pairs, int sequences, int padded, int width, float scale) {
    int lane = threadIdx.x % width, pair = blockIdx.x * (THREADS / width) + threadIdx.x / width;
    // All lanes of a warp go all the way: they speak to each other.
    int length = pair < pairs ? places[pair % sequences].length : 0;
    bf16* row = products + (size_t)pair * padded;
    Eight values[2];
    float greatest = LOWEST, sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        int column = 8 * (i * width + lane);
        if (column < length) values[i] = load8(row + column);
        #pragma unroll
        for (int j = 0; j < 8; j++) {
            if (column + j >= length) values[i].v[j] = LOWEST;
            greatest = fmaxf(greatest, values[i].v[j]);
        }
    }
    for (int distance = width / 2; distance; distance >>= 1)
        greatest = fmaxf(greatest, __shfl_xor_sync(~0u, greatest, distance));
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        int column = 8 * (i * width + lane);
        #pragma unroll
        for (int j = 0; j < 8; j++) {
            values[i].v[j] = column + j < length ? __expf(scale * (values[i].v[j] - greatest)) : 0.0f;
            sum += values[i].v[j];
        }
    }
    for (int distance = width / 2; distance; distance >>= 1) sum += __shfl_xor_sync(~0u, sum, distance);
    float share = 1.0f / sum;
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        int column = 8 * (i * width + lane);
        if (pair >= pairs || column >= padded) continue;
        for (int j = 0; j < 8; j++) values[i].v[j] *= share;
        store8(row + column, values[i]);
    }
}

// What a label found beside what it expects, by a warp.
struct Compared { float cosine, length; };

__device__ __forceinline__ Compared compared(const bf16* found, const float* output, int columns, int lane) {
    float along = 0.0f, squares = 0.0f;
    for (int column = 8 * lane; column < columns; column += 256) {
        Eight a = load8(found + column), b = load8(output + column);
        for (int i = 0; i < 8; i++) {
            along += a.v[i] * b.v[i];
            squares += a.v[i] * a.v[i];
        }
    }
    float length = fmaxf(sqrtf(warp_sum(squares)), TINY);
    return {warp_sum(along) / length, length};
}

// The scores of a chunk. A block a label, a warp a sequence. `scores` begins at the chunk's first label.
extern "C" __global__ void __launch_bounds__(THREADS)
compare_found(const bf16* found, const float* outputs, const Place* places, int sequences, int columns,
              float* scores, int labels, int cosine) {
    int lane = threadIdx.x & 31, label = blockIdx.x;
    for (int sequence = threadIdx.x >> 5; sequence < sequences; sequence += WARPS) {
        const bf16* own = found + ((size_t)label * sequences + sequence) * columns;
        Compared both = compared(own, outputs + (size_t)label * columns, columns, lane);
        float score = cosine ? both.cosine : both.cosine * both.length;
        if (lane == 0) scores[(size_t)places[sequence].row * labels + label] = score;
    }
}

// Replaces what the labels of a chunk found by the gradients of that, and sums up the gradients of their
// outputs over the sequences. Where scores are products, `products` takes each times its gradient. A block a label, a warp a sequence; a row of sums for each warp is shared.
extern "C" __global__ void __launch_bounds__(THREADS)
differentiate_found(bf16* found, const float* outputs, const Place* places, int sequences, int columns,
                    const float* gradients, int labels, float* towards_outputs, int accumulate, float* products) {
    extern __shared__ __align__(16) float sums[];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, label = blockIdx.x;
    const float* output = outputs + (size_t)label * columns;
    float* own_sums = sums + warp * columns;
    // A lane reads and writes its own columns only, here and below, until all have come together.
    for (int column = 8 * lane; column < columns; column += 256) store8(own_sums + column, Eight{});
    for (int sequence = warp; sequence < sequences; sequence += WARPS) {
        bf16* own = found + ((size_t)label * sequences + sequence) * columns;
        Compared both = compared(own, output, columns, lane);
        float inverse = both.length > TINY ? 1.0f / both.length : 0.0f;
        float gradient = gradients[(size_t)places[sequence].row * labels + label];
        float factor = products ? gradient : gradient * inverse;
        float back = products ? 0.0f : both.cosine * inverse;
        if (products && lane == 0)
            products[(size_t)label * sequences + sequence] = gradient * both.cosine * both.length;
        for (int column = 8 * lane; column < columns; column += 256) {
            Eight value = load8(own + column), expected = load8(output + column), sum = load8(own_sums + column);
            for (int i = 0; i < 8; i++) {
                sum.v[i] += factor * value.v[i];
                value.v[i] = factor * (expected.v[i] - back * value.v[i]);
            }
            store8(own_sums + column, sum);
            store8(own + column, value);
        }
    }
    __syncthreads();
    for (int column = threadIdx.x; column < columns; column += THREADS) {
        float* to = towards_outputs + (size_t)label * columns + column;
        float sum = accumulate ? *to : 0.0f;
        for (int other = 0; other < WARPS; other++) sum += sums[other * columns + column];
        *to = sum;
    }
}

// Gradients of weights become those of products, eight a thread: `slopes = (slopes - sum) * weights * scale`. The
// sums are a label's and a sequence's; those of cosines are zero, and not there.
extern "C" __global__ void __launch_bounds__(THREADS)
differentiate_weights(const bf16* weights, bf16* slopes, float scale, long long eights, const float* sums,
                      int padded) {
    long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= eights) return;
    Eight weight = load8(weights + 8 * i), slope = load8(slopes + 8 * i);
    float sum = sums ? sums[8 * i / padded] : 0.0f;
    for (int j = 0; j < 8; j++) slope.v[j] = (slope.v[j] - sum) * weight.v[j] * scale;
    store8(slopes + 8 * i, slope);
}
