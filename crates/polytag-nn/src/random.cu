// Random numbers as in random.rs: the same bits for the same key and place.

typedef unsigned int u32;

struct Dropout { u32 low, high, threshold; float scale; };

__device__ __forceinline__ u32 random_bits(u32 low, u32 high, u32 row, u32 column) {
    u32 x = row * 0x9e3779b1u + low;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= column * 0x85ebca6bu + high;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    x *= 0x7feb352du;
    return x ^ (x >> 15);
}

// What the value at a place is multiplied by. A threshold of zero drops nothing.
__device__ __forceinline__ float dropout_factor(Dropout dropout, u32 row, u32 column) {
    if (dropout.threshold == 0) return 1.0f;
    return random_bits(dropout.low, dropout.high, row, column) < dropout.threshold ? 0.0f : dropout.scale;
}
