// out = x · mask, eight numbers a thread; both may be the same memory.

template <typename T>
__device__ __forceinline__ void dropped(const T* x, T* out, long long length, int columns, Dropout dropout) {
    long long first = 8 * ((long long)blockIdx.x * 256 + threadIdx.x);
    if (first >= length) return;
    u32 row = first / columns, column = first % columns;
    if (columns % 8 == 0) {
        Eight value = load8(x + first);
        for (int i = 0; i < 8; i++) value.v[i] *= dropout_factor(dropout, row, column + i);
        store8(out + first, value);
        return;
    }
    long long last = first + 8 < length ? first + 8 : length;
    for (long long i = first; i < last; i++) {
        float factor = dropout_factor(dropout, row, column);
        if constexpr (sizeof(T) == 2) out[i] = narrow(widen(x[i]) * factor);
        else out[i] = x[i] * factor;
        if (++column == columns) row++, column = 0;
    }
}

extern "C" __global__ void __launch_bounds__(256)
dropout_f32(const float* x, float* out, long long length, int columns, Dropout dropout) {
    dropped(x, out, length, columns, dropout);
}

extern "C" __global__ void __launch_bounds__(256)
dropout_bf16(const bf16* x, bf16* out, long long length, int columns, Dropout dropout) {
    dropped(x, out, length, columns, dropout);
}
