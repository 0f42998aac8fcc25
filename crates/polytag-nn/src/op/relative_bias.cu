// A table of buckets spread out over all distances, and its gradient gathered again.

// out[head, distance] = weight[bucket of the distance, head]
extern "C" __global__ void spread_buckets(const float* weight, const u32* buckets, float* out, int distances) {
    int distance = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y, heads = gridDim.y;
    if (distance < distances) out[head * distances + distance] = weight[buckets[distance] * heads + head];
}

// gradient[bucket, head] (+)= the sum over the bucket's distances. A warp a bucket and head.
extern "C" __global__ void gather_buckets(
    const float* spread, const u32* buckets, float* gradient, int distances, int accumulate
) {
    int bucket = blockIdx.x, head = blockIdx.y, heads = gridDim.y;
    float sum = 0.0f;
    for (int distance = threadIdx.x; distance < distances; distance += 32)
        if (buckets[distance] == (u32)bucket) sum += spread[head * distances + distance];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) {
        float* place = gradient + bucket * heads + head;
        *place = accumulate ? *place + sum : sum;
    }
}
