// sum += other, eight numbers a thread.

template <typename T> __device__ __forceinline__ void add(T* sum, const T* other, long long length) {
    long long first = 8 * ((long long)blockIdx.x * blockDim.x + threadIdx.x);
    if (first + 8 <= length) {
        Eight a = load8(sum + first), b = load8(other + first);
        for (int i = 0; i < 8; i++) a.v[i] += b.v[i];
        store8(sum + first, a);
    } else {
        for (long long i = first; i < length; i++) {
            if constexpr (sizeof(T) == 2) sum[i] = narrow(widen(sum[i]) + widen(other[i]));
            else sum[i] += other[i];
        }
    }
}

extern "C" __global__ void add_f32(float* sum, const float* other, long long length) { add(sum, other, length); }
extern "C" __global__ void add_bf16(bf16* sum, const bf16* other, long long length) { add(sum, other, length); }
