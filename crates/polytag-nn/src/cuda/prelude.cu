// What every kernel may use: bf16 in memory, f32 in registers, and sums over a warp or a block.

typedef unsigned short bf16;
typedef unsigned long long u64;

// Two bf16 values of a word.
__device__ __forceinline__ float low_half(u32 word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high_half(u32 word) { return __uint_as_float(word & 0xffff0000u); }
__device__ __forceinline__ float widen(bf16 value) { return __uint_as_float((u32)value << 16); }

__device__ __forceinline__ bf16 narrow(float value) {
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
    return result;
}

// Both values of a word, the first one low.
__device__ __forceinline__ u32 narrow_pair(float low, float high) {
    u32 result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

// Eight values at a time: sixteen bytes of bf16.
struct Eight { float v[8]; };

// The same still packed, for kernels that keep many of them in registers.
__device__ __forceinline__ uint4 packed8(const bf16* from) { return *(const uint4*)from; }

__device__ __forceinline__ Eight unpacked(uint4 words) {
    return {low_half(words.x), high_half(words.x), low_half(words.y), high_half(words.y),
            low_half(words.z), high_half(words.z), low_half(words.w), high_half(words.w)};
}

__device__ __forceinline__ Eight load8(const bf16* from) { return unpacked(packed8(from)); }

__device__ __forceinline__ Eight load8(const float* from) {
    float4 a = ((const float4*)from)[0], b = ((const float4*)from)[1];
    return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
}

__device__ __forceinline__ void store8(bf16* to, const Eight& values) {
    uint4 words;
    words.x = narrow_pair(values.v[0], values.v[1]);
    words.y = narrow_pair(values.v[2], values.v[3]);
    words.z = narrow_pair(values.v[4], values.v[5]);
    words.w = narrow_pair(values.v[6], values.v[7]);
    *(uint4*)to = words;
}

__device__ __forceinline__ void store8(float* to, const Eight& values) {
    ((float4*)to)[0] = make_float4(values.v[0], values.v[1], values.v[2], values.v[3]);
    ((float4*)to)[1] = make_float4(values.v[4], values.v[5], values.v[6], values.v[7]);
}

// The sum over a warp, in every lane. The order is fixed.
__device__ __forceinline__ float warp_sum(float value) {
    for (int distance = 16; distance; distance >>= 1) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
    for (int distance = 16; distance; distance >>= 1) value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
    return value;
}

// The sum over a block of at most 1024 threads, in every thread. `scratch` holds 32 floats.
__device__ __forceinline__ float block_sum(float value, float* scratch) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    value = warp_sum(value);
    __syncthreads();
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    value = lane < warps ? scratch[lane] : 0.0f;
    return warp_sum(value);
}

__device__ __forceinline__ float block_max(float value, float* scratch) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    value = warp_max(value);
    __syncthreads();
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    value = lane < warps ? scratch[lane] : -3.0e38f;
    return warp_max(value);
}
