// The backward pass of attention: what all sequences share, and the kernel for short ones. Compiled after
// tiles.cu, whose header says what lies where, and bias.cu, before long.cu.
//
// With P the probabilities, M the dropout mask of zeros and ones, F the factor of what is kept and S the
// scaled scores:
//   d_values  = F * (P * M)^T d_out          dS     = P * (M * (d_out values^T) - delta)
//   d_keys    = F * scale * dS^T queries     delta  = row sums of d_out * out, divided by F
//   d_queries = F * scale * dS keys          d_bias = F * sums of dS by distance
// The factor is applied once a row, not once a score: what is called dS here is a score's gradient over F.

// The products that make scores start at minus a query's log sum, over the scale, and those that make the
// gradients of probabilities at minus its delta: the tensor cores subtract for nothing. Where queries are the
// columns, a lane starts with the values of two neighbours, twice; so that is how they lie in shared memory.
__device__ __forceinline__ int start_place(int query) { return (query >> 1) * 4 + (query & 1); }

__device__ __forceinline__ void load_start(float (&sums)[4], const float* starts, int query) {
    const float4 start = *(const float4*)(starts + 2 * query);
    sums[0] = start.x;
    sums[1] = start.y;
    sums[2] = start.z;
    sums[3] = start.w;
}

// What a warp with 16 keys needs to know of them and of a tile of queries.
struct KeyWork {
    u32 keys, values;        // the lane's addresses in the warp's rows
    u32 queries, d_out;      // tiles
    const float* starts;     // where sums of the tile's queries start, in shared memory: see `load_start`
    const float* d_starts;
    const u32* row_bits;     // what `random_row` gives for them
    const float* distances;  // if there is a bias
    int key;                 // the lane's upper row, in the sequence
    u32 key_bits;            // what `random_column` gives for it; eight rows on, the number is the same
    int query;               // the tile's first row, in the sequence
    int length;
    float scale;             // of scores that are exponents of two
};

// Adds what 32 queries, from the tile's row `from` on, give to the gradients of the warp's keys and values.
// With D_SCORES, dS^T goes to a tile [keys, SHORT queries] too, at the warp's rows.
template <bool D_SCORES>
__device__ __forceinline__ void add_queries(
    const KeyWork& work, const PairedDropout& dropout, int from, float (&d_keys)[COLUMNS][4],
    float (&d_values)[COLUMNS][4], u32 d_score_rows
) {
    const int group = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
    const int column = from + 2 * pair;
    // Made anew every time, or the compiler keeps eight addresses for which it has no registers.
    const u32 keys = opaque(work.keys), values = opaque(work.values);
    float weights[4][4], d_scores[4][4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        load_start(weights[n], work.starts, column + n * 8);
        load_start(d_scores[n], work.d_starts, column + n * 8);
    }
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const Fragment key = load_matrices(step_to(keys, 0, step));
        const Fragment value = load_matrices(step_to(values, 0, step));
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const u32 at = step_to(lane_by_column() + from * ROW, n, step);
            const Fragment query = load_matrices(work.queries + at);
            multiply_add(weights[2 * n], key, query.part[0], query.part[1]);
            multiply_add(weights[2 * n + 1], key, query.part[2], query.part[3]);
            const Fragment d_out = load_matrices(work.d_out + at);
            multiply_add(d_scores[2 * n], value, d_out.part[0], d_out.part[1]);
            multiply_add(d_scores[2 * n + 1], value, d_out.part[2], d_out.part[3]);
        }
    }
    const float* nearest = work.distances + (work.key - work.query - column + 511);
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float by = BIAS ? nearest[(e >> 1) * 8 - n * 8 - (e & 1)] : 0.0f;
            weights[n][e] = fmaf(weights[n][e], work.scale, by);
        }
    }
    if (D_SCORES && work.key + 8 >= work.length) {
        // Keys past the end, of which dS is read by others: an infinity might meet their zeros where all true
        // scores are far below zero. Elsewhere what becomes of them stays in rows that nobody reads.
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (work.key + (e >> 1) * 8 >= work.length) weights[n][e] = -infinity();
            }
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) weights[n][e] = power_of_two(weights[n][e]);
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
        bool keep[4] = {true, true, true, true};
        float2 start = {0.0f, 0.0f};
        if (DROPOUT) {
            start = *(const float2*)(work.d_starts + 2 * (column + n * 8));
            const uint2 row_bits = *(const uint2*)(work.row_bits + column + n * 8);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const u32 bits = random_mix((e ? row_bits.y : row_bits.x) ^ work.key_bits);
                const Kept both = kept(bits, dropout.thresholds);
                keep[e] = both.low;
                keep[e + 2] = both.high;
            }
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            d_scores[n][e] = weights[n][e] * (keep[e] ? d_scores[n][e] : e & 1 ? start.y : start.x);
            if (!keep[e]) weights[n][e] = 0.0f;
        }
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        Fragment weight, d_score;
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const int n = 2 * k + (part >> 1), e = (part & 1) * 2;
            weight.part[part] = pack(weights[n][e], weights[n][e + 1]);
            d_score.part[part] = pack(d_scores[n][e], d_scores[n][e + 1]);
            if (D_SCORES) {
                const u32 at = (d_score_rows + place<SHORT * 2>(group, 0) + pair * 4) ^ (from / 8 + n) << 4;
                store_word(at + (part & 1) * 8 * SHORT * 2, d_score.part[part]);
            }
        }
#pragma unroll
        for (int n = 0; n < COLUMNS / 2; n++) {
            const u32 at = step_to(lane_by_row() + from * ROW, k, n);
            const Fragment d_out = load_transposed(work.d_out + at);
            multiply_add(d_values[2 * n], weight, d_out.part[0], d_out.part[1]);
            multiply_add(d_values[2 * n + 1], weight, d_out.part[2], d_out.part[3]);
            const Fragment query = load_transposed(work.queries + at);
            multiply_add(d_keys[2 * n], d_score, query.part[0], query.part[1]);
            multiply_add(d_keys[2 * n + 1], d_score, query.part[2], query.part[3]);
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
    int tokens, int heads, float scale, PairedDropout dropout
) {
    const int sequence = sequences[blockIdx.x], head = blockIdx.y, warp = threadIdx.x >> 5;
    const int start = offsets[sequence], length = offsets[sequence + 1] - start;
    const int rows = (length + 31) / 32 * 32;
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const size_t from = (size_t)start * stride + head * HEAD_DIM;
    const size_t out_from = (size_t)start * hidden + head * HEAD_DIM;

    const u32 query_tile = shared_address(memory);
    const u32 key_tile = query_tile + 2 * TILE_BYTES;
    const u32 value_tile = query_tile + 4 * TILE_BYTES;
    const u32 d_out_tile = query_tile + 6 * TILE_BYTES;
    const u32 d_score_tile = query_tile + 8 * TILE_BYTES;
    float* starts = (float*)(memory + 8 * TILE_BYTES + SHORT * SHORT * 2);
    float* d_starts = starts + 2 * SHORT;
    u32* row_bits = (u32*)d_starts + 2 * SHORT;
    float* distances = d_starts + 3 * SHORT;
    load_rows<256>(d_out_tile, d_out + out_from, hidden, rows, length);
    load_rows<256>(query_tile, qkv + from, stride, rows, length);
    load_rows<256>(key_tile, qkv + from + hidden, stride, rows, length);
    load_rows<256>(value_tile, qkv + from + 2 * hidden, stride, rows, length);
    if ((int)threadIdx.x < rows) {
        float* at = starts + start_place(threadIdx.x);
        const size_t row = (size_t)head * tokens + start + threadIdx.x;
        at[0] = at[2] = (int)threadIdx.x < length ? log_sums[row] / -scale : -infinity();
        row_bits[threadIdx.x] = random_row(dropout.low, (start + threadIdx.x) * heads + head);
    }
    if (BIAS) load_bias<256>(distances, bias, head);
    uint4 output[CHUNKS / 2];
    load_output(output, out + out_from, hidden, length);
    wait_for_copies();
    __syncthreads();
    const float delta = row_delta(output, d_out_tile) / dropout.scale;
    // Either of a row's threads writes one of the two copies.
    d_starts[start_place(threadIdx.x >> 1) + (threadIdx.x & 1) * 2] =
        (int)(threadIdx.x >> 1) < length ? -delta : 0.0f;
    __syncthreads();

    const int own = warp * 16;
    float d_keys[COLUMNS][4] = {}, d_values[COLUMNS][4] = {};
    if (own < length) {
        const int key = own + (int)((threadIdx.x & 31) >> 2);
        const KeyWork work = {
            key_tile + own * ROW + lane_by_row(), value_tile + own * ROW + lane_by_row(),
            query_tile, d_out_tile, starts, d_starts, row_bits, distances,
            key, random_column(dropout.high, key), 0, length, scale * LOG2_E,
        };
#pragma unroll 1
        for (int query = 0; query < length; query += 32) {
            add_queries<true>(work, dropout, query, d_keys, d_values, d_score_tile + own * SHORT * 2);
        }
    }
    __syncthreads();
    if (own < length) {
        put_rows(value_tile + own * ROW, d_values, dropout.scale, dropout.scale);
        put_rows(d_out_tile + own * ROW, d_keys, scale * dropout.scale, scale * dropout.scale);
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
        put_rows(query_tile + own * ROW, d_queries, scale * dropout.scale, scale * dropout.scale);
    }
    __syncthreads();
    store_rows<256>(d_qkv + from, stride, query_tile, length);
    store_rows<256>(d_qkv + from + hidden, stride, d_out_tile, length);
    store_rows<256>(d_qkv + from + 2 * hidden, stride, value_tile, length);
    if (BIAS && bias_sums) {
        const int distance = (int)threadIdx.x - (SHORT - 1); // of a key from its query
        if (abs(distance) < length) {
            const float sum = diagonal_sum<SHORT * 2>(d_score_tile, length, length, distance);
            add_to_bias(bias_sums, head, distance + 511, sum * dropout.scale);
        }
    }
}
