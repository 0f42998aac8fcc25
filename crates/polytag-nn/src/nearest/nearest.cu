// The best of many scores of each query, kept from chunk to chunk of vectors; and vectors in 16 bits, widened.

// The keys of a block: those kept, then those that are new.
extern __shared__ u64 keys[];

// A score and a position as one number: greater for the greater score, then for the lower position. No two positions
// share one, so that there is one order whatever the order of arrival. A score above minus infinity never gives zero,
// which is an empty place.
__device__ __forceinline__ u64 key_of(float score, u32 position) {
    u32 bits = __float_as_uint(score + 0.0f);  // zero has one sign
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (u64)bits << 32 | (u32)~position;
}

// Sorts all keys of a block, the greatest first; the next free place is behind the first `most`. What lies there may stay
// until it is written over: it is below all that are kept, and never comes before them again. Every thread comes here,
// after a barrier, and leaves after one. `size` is a power of two.
__device__ __forceinline__ void cut(int most, int size, int* next) {
    for (int width = 2; width <= size; width <<= 1) {
        for (int step = width >> 1; step; step >>= 1) {
            for (int pair = threadIdx.x; pair < size >> 1; pair += 256) {
                int low = 2 * pair - (pair & (step - 1)), high = low + step;
                u64 first = keys[low], second = keys[high];
                // Stretches of `width` fall and rise in turn; the last one, which is all, falls.
                if ((first < second) == ((low & width) == 0)) {
                    keys[low] = second;
                    keys[high] = first;
                }
            }
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) *next = most;
    __syncthreads();
}

// Goes through a chunk of products, `columns` of each query, `stride` apart; the first is of position `first`. Their
// scores, with the offsets of the positions, are merged into the `most` best keys of the query in `kept`, sorted, zero
// where there are fewer. A score that is no number or minus infinity is passed over.
//
// A block takes a query. The kept keys lie in shared memory, and what is above the worst of them is put behind; when
// there is no more room, all are sorted and cut. `size` keys have room there, at least 256 more than `most`. Which
// thread comes first is not to be seen in the result, as it is sorted.
extern "C" __global__ void __launch_bounds__(256)
keep_best(const float* products, int columns, int stride, const float* offsets, int first, u64* kept, int most, int size) {
    __shared__ int next;
    const float* own = products + (size_t)blockIdx.x * stride;
    u64* list = kept + (size_t)blockIdx.x * most;
    for (int i = threadIdx.x; i < size; i += 256) keys[i] = i < most ? list[i] : 0;
    if (threadIdx.x == 0) next = most;
    __syncthreads();
    u64 worst = keys[most - 1];
    int taken = most;  // what `next` is when all threads have come by
    bool is_changed = false;
    for (int begin = 0; begin < columns; begin += 4 * 256) {
        u64 found[4];
        bool any = false;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = begin + i * 256 + (int)threadIdx.x;
            found[i] = 0;
            if (column < columns) {
                float score = own[column] + offsets[column];
                if (score > -__int_as_float(0x7f800000)) found[i] = key_of(score, (u32)(first + column));
            }
            any |= found[i] > worst;
        }
        // After the first chunk nearly always nothing is.
        if (!__syncthreads_or(any)) continue;
        is_changed = true;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            bool is_better = found[i] > worst;
            int more = __syncthreads_count(is_better);
            if (taken + more > size) {
                cut(most, size, &next);
                taken = most;
                worst = keys[most - 1];
            }
            if (is_better) keys[atomicAdd(&next, 1)] = found[i];
            taken += more;
        }
    }
    if (!is_changed) return;
    __syncthreads();
    cut(most, size, &next);
    for (int i = threadIdx.x; i < most; i += 256) list[i] = keys[i];
}

// A number of 16 bits (IEEE's half), exactly.
__device__ __forceinline__ float widen_half(u32 bits) {
    u32 sign = (bits & 0x8000u) << 16, rest = (bits & 0x7fffu) << 13;
    // Infinities and what is no number keep the highest exponent; all others, small ones too, are off by a power of two.
    if (rest >= 0x0f800000u) return __uint_as_float(sign | rest | 0x7f800000u);
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest) * __uint_as_float(0x77800000u)));
}

// Widens `count` numbers of 16 bits, two a thread.
extern "C" __global__ void __launch_bounds__(256)
widen_halves(const unsigned short* from, float* to, long long count) {
    long long place = 2 * ((long long)blockIdx.x * 256 + threadIdx.x);
    if (place < count) to[place] = widen_half(from[place]);
    if (place + 1 < count) to[place + 1] = widen_half(from[place + 1]);
}
