// Random numbers as in random.rs: the same bits for the same key and place.

typedef unsigned int u32;

struct Dropout { u32 low, high, threshold; float scale; };

// As random.rs has it; the threshold, of fifteen bits, is in both halves of a word.
struct PairedDropout { u32 low, high, thresholds; float scale; };

// What the row and the column each give, for kernels that stay in one of them: the bits are `random_mix` of
// their xor, because x ^ (x >> 15) of two numbers' xor is the xor of theirs.
__device__ __forceinline__ u32 random_row(u32 low, u32 row) {
    u32 x = row * 0x9e3779b1u + low;
    x ^= x >> 16;
    x *= 0x7feb352du;
    return x ^ (x >> 15);
}

__device__ __forceinline__ u32 random_column(u32 high, u32 column) {
    u32 x = column * 0x85ebca6bu + high;
    return x ^ (x >> 15);
}

__device__ __forceinline__ u32 random_mix(u32 x) {
    x *= 0x846ca68bu;
    x ^= x >> 16;
    x *= 0x7feb352du;
    return x ^ (x >> 15);
}

__device__ __forceinline__ u32 random_bits(u32 low, u32 high, u32 row, u32 column) {
    return random_mix(random_row(low, row) ^ random_column(high, column));
}

// What the value at a place is multiplied by. A threshold of zero drops nothing.
__device__ __forceinline__ float dropout_factor(Dropout dropout, u32 row, u32 column) {
    if (dropout.threshold == 0) return 1.0f;
    return random_bits(dropout.low, dropout.high, row, column) < dropout.threshold ? 0.0f : dropout.scale;
}
