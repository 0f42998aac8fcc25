// The backward pass of attention: short sequences, and the keys of long ones. Compiled after attention.cu,
// whose header says what lies where, and before attention_backward_queries.cu.
//
// With P the probabilities, F the dropout factors and S the scaled scores:
//   d_values  = (P * F)^T d_out          dS     = P * (F * (d_out values^T) - delta)
//   d_keys    = scale * dS^T queries     delta  = row sums of d_out * out
//   d_queries = scale * dS keys          d_bias = sums of dS by distance

// Half of a row's delta is a thread's: two threads a row, neighbours on alternate chunks.
__device__ __forceinline__ void load_output(
    uint4 (&output)[CHUNKS / 2], const bf16* out, int stride, int row, int valid
) {
#pragma unroll
    for (int i = 0; i < CHUNKS / 2; i++) {
        output[i] = row < valid ? *(const uint4*)(out + row * stride + (2 * i + (threadIdx.x & 1)) * 8)
                                : make_uint4(0, 0, 0, 0);
    }
}

__device__ __forceinline__ float dot_pair(u32 a, u32 b, float sum) {
    sum = fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), sum);
    return fmaf(__uint_as_float(a & 0xffff0000), __uint_as_float(b & 0xffff0000), sum);
}

// The delta of a row, in both of its threads.
__device__ __forceinline__ float row_delta(const uint4 (&output)[CHUNKS / 2], u32 d_out_tile, int row) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNKS / 2; i++) {
        const uint4 d = load_chunk(d_out_tile + place(row, 2 * i + (threadIdx.x & 1)));
        sum = dot_pair(output[i].x, d.x, dot_pair(output[i].y, d.y, sum));
        sum = dot_pair(output[i].z, d.z, dot_pair(output[i].w, d.w, sum));
    }
    return sum + __shfl_xor_sync(0xffffffff, sum, 1);
}

// The sum of the values at (row, row - shift) of a tile of bf16, over its first rows and columns.
template <int BYTES>
__device__ __forceinline__ float diagonal_sum(u32 tile, int rows, int columns, int shift) {
    float sum = 0.0f;
    for (int row = 0; row < rows; row++) {
        const int column = row - shift;
        if ((u32)column < (u32)columns) {
            sum += load_bf16(tile + place<BYTES>(row, column >> 3) + (column & 7) * 2);
        }
    }
    return sum;
}

__device__ __forceinline__ void add_to_bias(long long* bias_sums, int head, int distance, float sum) {
    atomicAdd((unsigned long long*)bias_sums + head * DISTANCES + distance,
              (unsigned long long)__float2ll_rn(sum * FIXED_POINT));
}

// What a warp with strips of 16 keys needs to know of them and of a tile of queries.
struct KeyWork {
    u32 queries, d_out;      // tiles
    u32 d_scores;            // the warp's rows of a tile [keys, SHORT queries]; for a warp of one strip
    const float* log_sums;   // of the tile's queries, in shared memory
    const float* deltas;
    const float* distances;  // or null
    int key;                 // the lane's upper row of the first strip, in the sequence
    int query;               // the tile's first row, in the sequence
    int start, length, head, heads;
    float scale;             // of scores that are exponents of two
};

// 16 keys with their values, as left operands, and the gradients of both.
struct KeyStrip {
    Fragment keys[STEPS], values[STEPS];
    float d_keys[COLUMNS][4], d_values[COLUMNS][4];
};

// Reads a warp's keys and values, which lie from `own` on in their tiles.
template <int COUNT>
__device__ __forceinline__ void load_strips(
    KeyStrip (&strips)[COUNT], u32 key_tile, u32 value_tile, int own
) {
#pragma unroll
    for (int strip = 0; strip < COUNT; strip++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const u32 at = step_to(lane_by_row() + own * ROW, strip, step);
            strips[strip].keys[step] = load_matrices(key_tile + at);
            strips[strip].values[step] = load_matrices(value_tile + at);
        }
    }
}

// Makes of a strip's products, keys by queries and values by d_out, the weights of d_out and dS^T.
// `at` is the lane's upper key in the sequence and its first query in the tile.
__device__ __forceinline__ void finish_scores(
    const KeyWork& work, const Dropout& dropout, int2 at, float (&weights)[2][4], float (&d_scores)[2][4]
) {
    const int key = at.x, column = at.y;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const float2 log_sum = *(const float2*)(work.log_sums + column + n * 8);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            weights[n][e] = fmaf(weights[n][e], work.scale, -LOG2_E * (e & 1 ? log_sum.y : log_sum.x));
        }
    }
    if (work.distances) {
        const int query = work.query + column;
        const float* nearest = work.distances + (key - query + 511);
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                // A high bias alone, of a query past the end, might be infinite as a power.
                const bool exists = query + n * 8 + (e & 1) < work.length;
                if (exists) weights[n][e] += nearest[(e >> 1) * 8 - n * 8 - (e & 1)];
            }
        }
    }
    // Keys past the end: an infinity might meet their zeros where all true scores are far below zero.
    const bool upper = key < work.length, lower = key + 8 < work.length;
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            weights[n][e] = (e < 2 ? upper : lower) ? power_of_two(weights[n][e]) : 0.0f;
        }
    }
    float factors[2][4] = {{1.0f, 1.0f, 1.0f, 1.0f}, {1.0f, 1.0f, 1.0f, 1.0f}};
    if (dropout.threshold) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const u32 token = work.start + work.query + column + n * 8 + (e & 1);
                factors[n][e] = dropout_factor(dropout, token * work.heads + work.head, key + (e >> 1) * 8);
            }
        }
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const float2 delta = *(const float2*)(work.deltas + column + n * 8);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float d_weight = fmaf(d_scores[n][e], factors[n][e], -(e & 1 ? delta.y : delta.x));
            d_scores[n][e] = weights[n][e] * d_weight;
            weights[n][e] *= factors[n][e];
        }
    }
}

// Adds what 16 queries, from the tile's row `from` on, give to the gradients of the warp's keys and values:
// no more at a time, since the keys and values that stay in registers save more reads than a wider step.
// A warp of one strip leaves dS^T in shared memory too.
template <int COUNT>
__device__ __forceinline__ void add_queries(
    const KeyWork& work, const Dropout& dropout, int from, KeyStrip (&strips)[COUNT]
) {
    const int group = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
    float weights[COUNT][2][4] = {}, d_scores[COUNT][2][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const u32 at = step_to(lane_by_column() + from * ROW, 0, step);
        const Fragment query = load_matrices(work.queries + at);
        const Fragment d_out = load_matrices(work.d_out + at);
#pragma unroll
        for (int strip = 0; strip < COUNT; strip++) {
            const Fragment &key = strips[strip].keys[step], &value = strips[strip].values[step];
            multiply_add(weights[strip][0], key, query.part[0], query.part[1]);
            multiply_add(weights[strip][1], key, query.part[2], query.part[3]);
            multiply_add(d_scores[strip][0], value, d_out.part[0], d_out.part[1]);
            multiply_add(d_scores[strip][1], value, d_out.part[2], d_out.part[3]);
        }
    }
    Fragment weight[COUNT], d_score[COUNT];
#pragma unroll
    for (int strip = 0; strip < COUNT; strip++) {
        const int2 at = {work.key + strip * 16, from + 2 * pair};
        finish_scores(work, dropout, at, weights[strip], d_scores[strip]);
        weight[strip] = left_operand(weights[strip][0], weights[strip][1]);
        d_score[strip] = left_operand(d_scores[strip][0], d_scores[strip][1]);
    }
    if (COUNT == 1) {
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const int chunk = from / 8 + (part >> 1);
            const u32 at = (work.d_scores + place<SHORT * 2>(group, 0) + pair * 4) ^ chunk << 4;
            store_word(at + (part & 1) * 8 * SHORT * 2, d_score[0].part[part]);
        }
    }
#pragma unroll
    for (int n = 0; n < COLUMNS / 2; n++) {
        const u32 at = step_to(lane_by_row() + from * ROW, 0, n);
        const Fragment d_out = load_transposed(work.d_out + at);
        const Fragment query = load_transposed(work.queries + at);
#pragma unroll
        for (int strip = 0; strip < COUNT; strip++) {
            KeyStrip& sums = strips[strip];
            multiply_add(sums.d_values[2 * n], weight[strip], d_out.part[0], d_out.part[1]);
            multiply_add(sums.d_values[2 * n + 1], weight[strip], d_out.part[2], d_out.part[3]);
            multiply_add(sums.d_keys[2 * n], d_score[strip], query.part[0], query.part[1]);
            multiply_add(sums.d_keys[2 * n + 1], d_score[strip], query.part[2], query.part[3]);
        }
    }
}

// A whole short sequence and a head: eight warps, 16 keys each, then 16 queries each. A tile that nobody
// reads any more takes the results: d_values where values lay, d_keys where d_out lay, d_queries where
// queries lay.
extern "C" __global__ void __launch_bounds__(256, 2) attention_backward_short(
    const bf16* __restrict__ qkv, const bf16* __restrict__ out, const bf16* __restrict__ d_out,
    const int* __restrict__ offsets, const int* __restrict__ sequences, const float* __restrict__ bias,
    const float* __restrict__ log_sums, bf16* __restrict__ d_qkv, long long* bias_sums,
    int tokens, int heads, float scale, Dropout dropout
) {
    const int sequence = sequences[blockIdx.x], head = blockIdx.y, warp = threadIdx.x >> 5;
    const int start = offsets[sequence], length = offsets[sequence + 1] - start;
    const int rows = (length + 15) / 16 * 16;
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const size_t from = (size_t)start * stride + head * HEAD_DIM;
    const size_t out_from = (size_t)start * hidden + head * HEAD_DIM;

    const u32 query_tile = shared_address(memory);
    const u32 key_tile = query_tile + 2 * TILE_BYTES;
    const u32 value_tile = query_tile + 4 * TILE_BYTES;
    const u32 d_out_tile = query_tile + 6 * TILE_BYTES;
    const u32 d_score_tile = query_tile + 8 * TILE_BYTES;
    float* row_log_sums = (float*)(memory + 8 * TILE_BYTES + SHORT * SHORT * 2);
    float* deltas = row_log_sums + SHORT;
    float* distances = deltas + SHORT;
    load_rows<256>(d_out_tile, d_out + out_from, hidden, rows, length);
    load_rows<256>(query_tile, qkv + from, stride, rows, length);
    load_rows<256>(key_tile, qkv + from + hidden, stride, rows, length);
    load_rows<256>(value_tile, qkv + from + 2 * hidden, stride, rows, length);
    if (threadIdx.x < rows) {
        row_log_sums[threadIdx.x] =
            threadIdx.x < length ? log_sums[(size_t)head * tokens + start + threadIdx.x] : 0.0f;
    }
    if (bias) load_bias<256>(distances, bias, head);
    uint4 output[CHUNKS / 2];
    load_output(output, out + out_from, hidden, threadIdx.x >> 1, length);
    wait_for_copies();
    __syncthreads();
    const float delta = row_delta(output, d_out_tile, threadIdx.x >> 1);
    deltas[threadIdx.x >> 1] = (threadIdx.x >> 1) < length ? delta : 0.0f;
    __syncthreads();

    const int own = warp * 16;
    KeyStrip strips[1] = {};
    if (own < length) {
        load_strips(strips, key_tile, value_tile, own);
        const KeyWork work = {
            query_tile, d_out_tile, d_score_tile + own * SHORT * 2, row_log_sums, deltas,
            bias ? distances : nullptr, own + (int)((threadIdx.x & 31) >> 2), 0,
            start, length, head, heads, scale * LOG2_E,
        };
#pragma unroll 1
        for (int query = 0; query < length; query += 16) add_queries(work, dropout, query, strips);
    }
    __syncthreads();
    if (own < length) {
        put_rows(value_tile + own * ROW, strips[0].d_values, 1.0f, 1.0f);
        put_rows(d_out_tile + own * ROW, strips[0].d_keys, scale, scale);
        float d_queries[COLUMNS][4] = {};
#pragma unroll 2
        for (int k = 0; k < (length + 15) / 16; k++) {
            const Fragment d_score =
                load_transposed(step_to<SHORT * 2>(d_score_tile + lane_by_column<SHORT * 2>(), k, warp));
#pragma unroll
            for (int n = 0; n < COLUMNS / 2; n++) {
                const Fragment key = load_transposed(step_to(key_tile + lane_by_row(), k, n));
                multiply_add(d_queries[2 * n], d_score, key.part[0], key.part[1]);
                multiply_add(d_queries[2 * n + 1], d_score, key.part[2], key.part[3]);
            }
        }
        put_rows(query_tile + own * ROW, d_queries, scale, scale);
    }
    __syncthreads();
    store_rows<256>(d_qkv + from, stride, query_tile, length);
    store_rows<256>(d_qkv + from + hidden, stride, d_out_tile, length);
    store_rows<256>(d_qkv + from + 2 * hidden, stride, value_tile, length);
    if (bias_sums) {
        const int distance = (int)threadIdx.x - (SHORT - 1); // of a key from its query
        if (abs(distance) < length) {
            const float sum = diagonal_sum<SHORT * 2>(d_score_tile, length, length, distance);
            add_to_bias(bias_sums, head, distance + 511, sum);
        }
    }
}

// 128 keys of a long sequence: d_keys and d_values.
extern "C" __global__ void __launch_bounds__(128, BLOCKS) attention_backward_keys(
    const bf16* __restrict__ qkv, const bf16* __restrict__ d_out, const int* __restrict__ offsets,
    const int2* __restrict__ tiles, const float* __restrict__ bias, const float* __restrict__ log_sums,
    const float* __restrict__ deltas, bf16* __restrict__ d_qkv,
    int tokens, int heads, float scale, Dropout dropout
) {
    const int2 tile = tiles[blockIdx.x];
    if (tile.y % BLOCK_ROWS) return;
    const int head = blockIdx.y, own = (threadIdx.x >> 5) * WARP_ROWS;
    const int start = offsets[tile.x], length = offsets[tile.x + 1] - start;
    const int valid = min(BLOCK_ROWS, length - tile.y);
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const size_t from = (size_t)(start + tile.y) * stride + head * HEAD_DIM + hidden;
    const bf16* queries = qkv + (size_t)start * stride + head * HEAD_DIM;
    const bf16* d_outs = d_out + (size_t)start * hidden + head * HEAD_DIM;
    const size_t row_from = (size_t)head * tokens + start;

    const u32 key_tile = shared_address(memory);
    const u32 value_tile = key_tile + 2 * TILE_BYTES;
    float* rows = (float*)(memory + 8 * TILE_BYTES); // log sums and deltas, of either pair of tiles
    float* distances = rows + 4 * TILE;
    // The queries' and d_out's tiles number `odd`, with what belongs to their rows.
    const auto load_queries = [&](int first, int odd) {
        const u32 query_tile = key_tile + (4 + 2 * odd) * TILE_BYTES;
        load_rows<128>(query_tile, queries + first * stride, stride, TILE, length - first);
        load_rows<128>(query_tile + TILE_BYTES, d_outs + first * hidden, hidden, TILE, length - first);
        const int row = threadIdx.x % TILE;
        const bool exists = first + row < length;
        const float* source = (threadIdx.x < TILE ? log_sums : deltas) + row_from;
        if (exists) source += first + row;
        copy_float(shared_address(rows + odd * 2 * TILE + threadIdx.x), source, exists);
    };
    load_rows<128>(key_tile, qkv + from, stride, BLOCK_ROWS, valid);
    load_rows<128>(value_tile, qkv + from + hidden, stride, BLOCK_ROWS, valid);
    load_queries(0, 0);
    group_copies();
    load_queries(TILE, 1); // there is one: the sequence is long
    group_copies();
    if (bias) load_bias<128>(distances, bias, head);
    wait_for_earlier_copies();
    __syncthreads();

    KeyStrip strips[STRIPS] = {};
    load_strips(strips, key_tile, value_tile, own);
    for (int first = 0, odd = 0; first < length; first += TILE, odd ^= 1) {
        if (first > 0) {
            wait_for_copies();
            __syncthreads();
            if (first + TILE < length) load_queries(first + TILE, odd ^ 1);
        }
        const u32 query_tile = key_tile + (4 + 2 * odd) * TILE_BYTES;
        const KeyWork work = {
            query_tile, query_tile + TILE_BYTES, 0, rows + odd * 2 * TILE, rows + odd * 2 * TILE + TILE,
            bias ? distances : nullptr, tile.y + own + (int)((threadIdx.x & 31) >> 2), first,
            start, length, head, heads, scale * LOG2_E,
        };
        const int columns = own < valid ? min(TILE, length - first) : 0;
#pragma unroll 1
        for (int query = 0; query < columns; query += 16) add_queries(work, dropout, query, strips);
    }
    // A warp alone reads its keys and values, so their rows can take the results.
    __syncwarp();
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        put_rows(key_tile + (own + strip * 16) * ROW, strips[strip].d_keys, scale, scale);
        put_rows(value_tile + (own + strip * 16) * ROW, strips[strip].d_values, 1.0f, 1.0f);
    }
    __syncwarp();
    bf16* target = d_qkv + from + own * stride;
    store_rows<32>(target, stride, key_tile + own * ROW, min(WARP_ROWS, valid - own));
    store_rows<32>(target + hidden, stride, value_tile + own * ROW, min(WARP_ROWS, valid - own));
}

// Adds the fixed-point sums to the bias's gradient, and leaves them at zero for the next step.
extern "C" __global__ void attention_bias_gradient(long long* bias_sums, float* gradient, int count) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        gradient[i] += (float)((double)bias_sums[i] * (1.0 / (double)FIXED_POINT));
        bias_sums[i] = 0;
    }
}
