// Losses over labels: sums over the scores of a chunk, and their gradient. Scores lie document by document,
// `stride` apart. A block of 256 threads takes 4096 labels of a document, sixteen a thread; what it finds
// goes to a place of its own, and the places are added up in order.

#define SEGMENT 4096
#define THREADS 256

enum Kind { SIGMOID, SOFTMAX, DECOUPLED };

// The labels that stand among the positives: those of a document are in order.
struct Entries { const u32* offsets; const u32* labels; const float* weights; };

__device__ __forceinline__ u32 first_not_below(const u32* labels, u32 low, u32 high, u32 label) {
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (labels[middle] < label) low = middle + 1; else high = middle;
    }
    return low;
}

// A segment of a document's scores, as a block sees it.
struct Segment {
    float* scores;
    const float* bias;
    float constant;
    int bias_step, count;
    u32 first, low, high;

    __device__ float bias_at(int column) const {
        return bias ? bias[(size_t)(first + column) * bias_step] : constant;
    }
};

__device__ __forceinline__ Segment segment(float* chunk, int stride, int columns, u32 first_label, Entries entries,
                                           const float* bias, int bias_step, float constant) {
    int start = blockIdx.x * SEGMENT;
    Segment own;
    own.scores = chunk + (size_t)blockIdx.y * stride + start;
    own.bias = bias;
    own.constant = constant;
    own.bias_step = bias_step;
    own.count = min(SEGMENT, columns - start);
    own.first = first_label + start;
    u32 low = entries.offsets[blockIdx.y], high = entries.offsets[blockIdx.y + 1];
    own.low = first_not_below(entries.labels, low, high, own.first);
    own.high = first_not_below(entries.labels, own.low, high, own.first + own.count);
    return own;
}

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(__expf(-fabsf(x))); }

__device__ __forceinline__ float sigmoid(float x) {
    float small = __expf(-fabsf(x));
    return (x < 0.0f ? small : 1.0f) / (1.0f + small);
}

__device__ __forceinline__ bool is_set(const u32* bits, int place) { return bits[place >> 5] >> (place & 31) & 1; }

// The score at a column, minus infinity where there is none or it is not to be summed up.
__device__ __forceinline__ float score_at(const Segment& own, const u32* masked, int column) {
    if (column >= own.count || is_set(masked, column)) return -__int_as_float(0x7f800000);
    return own.scores[column] + own.bias_at(column);
}

// For each document and segment the greatest score and the sum of exponentials beyond it, or the sum of
// softplus; and the score of every label among the positives.
extern "C" __global__ void reduce_scores(float* chunk, int stride, int columns, int first_label, const u32* offsets,
                                         const u32* labels, const float* weights, const float* bias, int bias_step,
                                         float constant, float* entry_scores, float2* partial, int segments,
                                         int first_segment, int kind) {
    __shared__ u32 masked[SEGMENT / 32];
    __shared__ float scratch[32];
    Entries entries = {offsets, labels, weights};
    Segment own = segment(chunk, stride, columns, first_label, entries, bias, bias_step, constant);
    if (threadIdx.x < SEGMENT / 32) masked[threadIdx.x] = 0;
    __syncthreads();
    for (u32 entry = own.low + threadIdx.x; entry < own.high; entry += THREADS) {
        int column = labels[entry] - own.first;
        entry_scores[entry] = own.scores[column] + own.bias_at(column);
        if (kind == DECOUPLED || weights[entry] == 0.0f) atomicOr(&masked[column >> 5], 1u << (column & 31));
    }
    __syncthreads();
    float values[SEGMENT / THREADS];
    float greatest = -3.0e38f, sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < SEGMENT / THREADS; i++) {
        values[i] = score_at(own, masked, i * THREADS + threadIdx.x);
        greatest = fmaxf(greatest, values[i]);
    }
    if (kind == SIGMOID) {
        #pragma unroll
        for (int i = 0; i < SEGMENT / THREADS; i++) sum += softplus(values[i]);
    } else {
        greatest = block_max(greatest, scratch);
        #pragma unroll
        for (int i = 0; i < SEGMENT / THREADS; i++) sum += __expf(values[i] - greatest);
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0)
        partial[(size_t)blockIdx.y * segments + first_segment + blockIdx.x] = make_float2(greatest, sum);
}

// A document's loss, shift and factor from its segments, and the gradients of its positives' scores in the
// place of the scores. `rows` holds shifts, factors and losses. A block a document.
extern "C" __global__ void finish_documents(const float2* partial, int segments, const u32* offsets,
                                            const float* weights, float* entries, float* rows, int documents,
                                            float share, int kind) {
    __shared__ float scratch[32];
    int document = blockIdx.x;
    const float2* own = partial + (size_t)document * segments;
    float greatest = -3.0e38f, sum = 0.0f;
    if (kind != SIGMOID) {
        for (int i = threadIdx.x; i < segments; i += THREADS) greatest = fmaxf(greatest, own[i].x);
        greatest = block_max(greatest, scratch);
    }
    for (int i = threadIdx.x; i < segments; i += THREADS)
        sum += own[i].y * (kind == SIGMOID ? 1.0f : __expf(own[i].x - greatest));
    sum = block_sum(sum, scratch);
    float shift = kind == SIGMOID ? 0.0f : greatest + logf(sum);
    float loss = 0.0f, behind = 0.0f, mass = 0.0f;
    for (u32 entry = offsets[document] + threadIdx.x; entry < offsets[document + 1]; entry += THREADS) {
        float weight = weights[entry], score = entries[entry], gradient = 0.0f;
        mass += weight;
        if (weight > 0.0f) {
            if (kind == SIGMOID) {
                loss -= score;
                gradient = -sigmoid(-score);
            } else if (kind == SOFTMAX) {
                // Beside the shift, so that numbers of like size are taken from each other.
                loss += weight * (shift - score);
                gradient = __expf(score - shift) - weight;
            } else {
                float part = weight * sigmoid(shift - score);
                loss += weight * softplus(shift - score);
                behind += part;
                gradient = -part;
            }
        }
        entries[entry] = share * gradient;
    }
    loss = block_sum(loss, scratch);
    behind = block_sum(behind, scratch);
    mass = block_sum(mass, scratch);
    if (threadIdx.x == 0) {
        float factor = kind == SIGMOID ? 1.0f : kind == DECOUPLED ? behind : mass > 0.0f ? 1.0f : 0.0f;
        rows[document] = shift;
        rows[documents + document] = share * factor;
        rows[2 * documents + document] = share * (kind == SIGMOID ? sum + loss : loss);
    }
}

// Turns the scores of a chunk into their gradient, and sums it up by document and segment.
extern "C" __global__ void differentiate_scores(float* chunk, int stride, int columns, int first_label,
                                                const u32* offsets, const u32* labels, const float* bias,
                                                int bias_step, float constant, const float* entry_gradients,
                                                const float* rows, const float* upstream, float* partial,
                                                int segments, int first_segment, int kind) {
    __shared__ u32 masked[SEGMENT / 32];
    __shared__ float scratch[32];
    Entries entries = {offsets, labels, nullptr};
    Segment own = segment(chunk, stride, columns, first_label, entries, bias, bias_step, constant);
    if (threadIdx.x < SEGMENT / 32) masked[threadIdx.x] = 0;
    __syncthreads();
    for (u32 entry = own.low + threadIdx.x; entry < own.high; entry += THREADS) {
        int column = labels[entry] - own.first;
        atomicOr(&masked[column >> 5], 1u << (column & 31));
    }
    __syncthreads();
    float gradient_of_loss = *upstream, sum = 0.0f;
    float shift = rows[blockIdx.y], factor = rows[gridDim.y + blockIdx.y] * gradient_of_loss;
    #pragma unroll
    for (int i = 0; i < SEGMENT / THREADS; i++) {
        int column = i * THREADS + threadIdx.x;
        if (column < own.count && !is_set(masked, column)) {
            float score = own.scores[column] + own.bias_at(column);
            float gradient = factor * (kind == SIGMOID ? sigmoid(score) : __expf(score - shift));
            own.scores[column] = gradient;
            sum += gradient;
        }
    }
    for (u32 entry = own.low + threadIdx.x; entry < own.high; entry += THREADS) {
        float gradient = entry_gradients[entry] * gradient_of_loss;
        own.scores[labels[entry] - own.first] = gradient;
        sum += gradient;
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[(size_t)blockIdx.y * segments + first_segment + blockIdx.x] = sum;
}

// The sums over documents of a chunk's gradient: what a bias of one number a label has as its gradient.
extern "C" __global__ void sum_by_label(const float* chunk, int stride, int columns, int documents, float* out,
                                        int accumulate) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float sum = accumulate ? out[column] : 0.0f;
    for (int document = 0; document < documents; document++) sum += chunk[(size_t)document * stride + column];
    out[column] = sum;
}

// The sums by document and segment of a chunk's gradient times the scores that were given.
extern "C" __global__ void sum_products(const float* chunk, int stride, int columns, const float* values,
                                        int values_stride, float* partial, int segments, int first_segment) {
    __shared__ float scratch[32];
    const float* gradients = chunk + (size_t)blockIdx.y * stride;
    const float* own = values + (size_t)blockIdx.y * values_stride;
    int last = min(columns, (int)(blockIdx.x + 1) * SEGMENT);
    float sum = 0.0f;
    for (int column = blockIdx.x * SEGMENT + threadIdx.x; column < last; column += THREADS)
        sum += gradients[column] * own[column];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) partial[(size_t)blockIdx.y * segments + first_segment + blockIdx.x] = sum;
}

// out (+)= scale * values, row by row; the scale is learned where it has an address.
extern "C" __global__ void scale_values(const float* values, int values_stride, float* out, int out_stride,
                                        int columns, const float* learned, float constant, int accumulate) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float value = (learned ? *learned : constant) * values[(size_t)blockIdx.y * values_stride + column];
    float* to = out + (size_t)blockIdx.y * out_stride + column;
    *to = accumulate ? *to + value : value;
}

// out (+)= left · right, by one block.
extern "C" __global__ void dot_product(const float* left, const float* right, long long length, float* out,
                                       int accumulate) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < length; i += blockDim.x) sum += left[i] * right[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *out = accumulate ? *out + sum : sum;
}
