// How differently two experts judge the labels that documents carry.

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// What a label's divergence is multiplied by; zero where the label is left out.
__device__ __forceinline__ float attention(float p, float q, float count, float weight) {
    return weight > 0.0f ? (1.0f - fmaxf(p, q)) / fmaxf(count, 1.0f) : 0.0f;
}

// The loss of each document, by a block each.
extern "C" __global__ void divergence(const float* left, const float* right, const float* counts, int columns,
                                      const u32* offsets, const u32* labels, const float* weights, float* losses) {
    __shared__ float scratch[32];
    float sum = 0.0f;
    for (u32 entry = offsets[blockIdx.x] + threadIdx.x; entry < offsets[blockIdx.x + 1]; entry += blockDim.x) {
        u32 label = labels[entry];
        size_t place = (size_t)blockIdx.x * columns + label;
        float a = left[place], b = right[place], p = sigmoid(a), q = sigmoid(b);
        float kl = p * (softplus(-b) - softplus(-a)) + (1.0f - p) * (softplus(b) - softplus(a));
        sum -= attention(p, q, counts[label], weights[entry]) * kl;
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) losses[blockIdx.x] = sum;
}

// Adds the gradient of the left or of the right side at the labels that documents carry. A block a document.
extern "C" __global__ void divergence_gradient(const float* left, const float* right, const float* counts,
                                               int columns, const u32* offsets, const u32* labels,
                                               const float* weights, float* place, const float* upstream,
                                               float share, int of_right) {
    float factor = -share * *upstream;
    for (u32 entry = offsets[blockIdx.x] + threadIdx.x; entry < offsets[blockIdx.x + 1]; entry += blockDim.x) {
        u32 label = labels[entry];
        size_t at = (size_t)blockIdx.x * columns + label;
        float a = left[at], b = right[at], p = sigmoid(a), q = sigmoid(b);
        float slope = of_right ? q - p : p * (1.0f - p) * (a - b);
        place[at] += factor * attention(p, q, counts[label], weights[entry]) * slope;
    }
}
