// The backward pass of attention for long sequences, in two passes: over the queries, then over the keys.
// Compiled after backward.cu, whose header has the formulas.

// A tile of queries and one of d_out and, once they are in registers, the sums of four warps by distance.
constexpr int QUERY_BYTES = 2 * TILE_BYTES + 512;
static_assert(4 * SPAN * sizeof(float) <= QUERY_BYTES, "the sums do not fit where the tiles lay");

// What a warp with 16 queries needs to know of them.
struct QueryWork {
    Fragment query[STEPS], d_output[STEPS];
    u32 by_row, by_column;      // where the lane points in the keys
    float log_sum[2], delta[2]; // of the lane's two rows; log sums are infinite past the end
    u32 row_bits[2];            // what `random_row` gives for them
    int row, length;            // the lane's upper row, and all rows of the sequence
    const float* distances;     // if there is a bias
    float scale;                // of scores that are exponents of two, as the log sums are
};

// 32 keys in shared memory, values a tile after them.
struct Block {
    u32 rows;
    int first;             // of the keys, in the sequence
    bool sums;             // whether the bias's gradient is wanted
    Diagonals& diagonals;  // which take it
};

// Adds what 32 keys, the LAST of which may lie past the end, give to the gradient of the warp's queries.
template <bool LAST>
__device__ __forceinline__ void add_keys(
    const QueryWork& work, const PairedDropout& dropout, const Block& block, float (&d_queries)[COLUMNS][4]
) {
    float scores[4][4] = {}, d_scores[4][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const u32 at = step_to(block.rows + work.by_column, n, step);
            const Fragment key = load_matrices(at);
            multiply_add(scores[2 * n], work.query[step], key.part[0], key.part[1]);
            multiply_add(scores[2 * n + 1], work.query[step], key.part[2], key.part[3]);
            const Fragment value = load_matrices(at + TILE_BYTES);
            multiply_add(d_scores[2 * n], work.d_output[step], value.part[0], value.part[1]);
            multiply_add(d_scores[2 * n + 1], work.d_output[step], value.part[2], value.part[3]);
        }
    }
    const int column = block.first + 2 * (threadIdx.x & 3);
    if (DROPOUT) drop_pairs(d_scores, work.row_bits, column, dropout);
    const float* nearest = work.distances + (column - work.row + 511);
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            scores[n][e] = fmaf(scores[n][e], work.scale, -work.log_sum[e >> 1]);
            if (BIAS) scores[n][e] += nearest[n * 8 + (e & 1) - (e >> 1) * 8];
            if (LAST && column + n * 8 + (e & 1) >= work.length) scores[n][e] = -infinity();
            d_scores[n][e] = power_of_two(scores[n][e]) * (d_scores[n][e] - work.delta[e >> 1]);
        }
    }
    if (BIAS && block.sums) block.diagonals.add_keys(d_scores);
#pragma unroll
    for (int k = 0; k < 2; k++) {
        Fragment d_score;
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const int n = 2 * k + (part >> 1), e = (part & 1) * 2;
            d_score.part[part] = pack(d_scores[n][e], d_scores[n][e + 1]);
        }
#pragma unroll
        for (int n = 0; n < COLUMNS / 2; n++) {
            const Fragment key = load_transposed(step_to(block.rows + work.by_row, k, n));
            multiply_add(d_queries[2 * n], d_score, key.part[0], key.part[1]);
            multiply_add(d_queries[2 * n + 1], d_score, key.part[2], key.part[3]);
        }
    }
}

// A tile of 64 queries of a long sequence: d_queries, d_bias, and `starts` [2, heads, tokens] for the pass
// over the keys.
extern "C" __global__ void __launch_bounds__(128, BLOCKS) attention_backward_queries(
    const bf16* __restrict__ qkv, const bf16* __restrict__ out, const bf16* __restrict__ d_out,
    const int* __restrict__ offsets, const int2* __restrict__ tiles, const float* __restrict__ bias,
    const float* __restrict__ log_sums, float* __restrict__ starts, bf16* __restrict__ d_qkv,
    long long* bias_sums, int tokens, int heads, float scale, PairedDropout dropout
) {
    const int2 tile = tiles[blockIdx.x];
    const int head = blockIdx.y, warp = threadIdx.x >> 5;
    const int group = (threadIdx.x & 31) >> 2;
    const int start = offsets[tile.x], length = offsets[tile.x + 1] - start;
    const int valid = min(TILE, length - tile.y);
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const size_t from = (size_t)(start + tile.y) * stride + head * HEAD_DIM;
    const size_t out_from = (size_t)(start + tile.y) * hidden + head * HEAD_DIM;
    const bf16* keys = qkv + (size_t)start * stride + head * HEAD_DIM + hidden;
    const bf16* values = keys + hidden;

    const u32 query_tile = shared_address(memory);
    const u32 d_out_tile = query_tile + TILE_BYTES;
    const u32 first_keys = query_tile + QUERY_BYTES;
    const u32 own_rows = query_tile + warp * 16 * ROW;
    float* spans = (float*)memory;
    float* distances = (float*)(memory + QUERY_BYTES + 4 * TILE_BYTES);
    load_tile(d_out_tile, d_out + out_from, hidden, valid);
    load_tile(query_tile, qkv + from, stride, valid);
    load_tile(first_keys, keys, stride, length);
    load_tile(first_keys + TILE_BYTES, values, stride, length);
    if (BIAS) load_bias<128>(distances, bias, head);
    uint4 output[CHUNKS / 2];
    load_output(output, out + out_from, hidden, valid);
    wait_for_copies();
    __syncthreads();
    const float own_delta = row_delta(output, d_out_tile) / dropout.scale;
    if ((int)(threadIdx.x >> 1) < valid) {
        // One of a row's threads writes the start of its scores, the other that of their gradients.
        const size_t at = (size_t)head * tokens + start + tile.y + (threadIdx.x >> 1);
        if (threadIdx.x & 1) starts[(size_t)heads * tokens + at] = -own_delta;
        else starts[at] = log_sums[at] / -scale;
    }
    QueryWork work;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        work.query[step] = load_matrices(step_to(own_rows + lane_by_row(), 0, step));
        work.d_output[step] = load_matrices(step_to(own_rows + TILE_BYTES + lane_by_row(), 0, step));
    }
    __syncthreads();

    work.by_row = opaque(lane_by_row());
    work.by_column = opaque(lane_by_column());
    work.row = tile.y + warp * 16 + group;
    work.length = length;
    work.distances = distances;
    work.scale = scale * LOG2_E;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int here = work.row + half * 8;
        // Past the end a high bias alone might be infinite as a power: infinity makes it zero.
        work.log_sum[half] = here < length ? log_sums[(size_t)head * tokens + start + here] * LOG2_E
                                           : infinity();
        work.delta[half] = __shfl_sync(0xffffffff, own_delta, 2 * group + half * 16);
        if (DROPOUT) work.row_bits[half] = random_row(dropout.low, (u32)(start + here) * heads + head);
    }
    float d_queries[COLUMNS][4] = {};
    Diagonals diagonals(spans + warp * SPAN);
    for (int first = 0, odd = 0; first < length; first += TILE, odd ^= 1) {
        const u32 key_tile = first_keys + 2 * odd * TILE_BYTES;
        if (first > 0) {
            wait_for_copies();
            __syncthreads();
        }
        if (first + TILE < length) {
            const int next = first + TILE;
            const u32 other = first_keys + (2 - 2 * odd) * TILE_BYTES;
            load_tile(other, keys + next * stride, stride, length - next);
            load_tile(other + TILE_BYTES, values + next * stride, stride, length - next);
        }
        // A warp without queries copies for the others.
        if (__all_sync(~0u, tile.y + warp * 16 >= length)) continue;
#pragma unroll 1
        for (int from = 0; from < min(TILE, length - first); from += 32) {
            const u32 key_rows = key_tile + from * ROW;
            const Block block = {key_rows, first + from, bias_sums != nullptr, diagonals};
            if (first + from + 32 <= length) add_keys<false>(work, dropout, block, d_queries);
            else add_keys<true>(work, dropout, block, d_queries);
        }
    }
    if (BIAS && bias_sums) diagonals.finish();
    __syncthreads();
    if (BIAS && bias_sums) add_spans(bias_sums, head, spans, tile.y, length, dropout.scale);
    const u32 result = first_keys + warp * 16 * ROW;
    put_rows(result, d_queries, scale * dropout.scale, scale * dropout.scale);
    __syncwarp();
    store_rows<32>(d_qkv + from + warp * 16 * stride, stride, result, min(16, valid - warp * 16));
}

// A tile of 64 keys of a long sequence: d_keys and d_values.
extern "C" __global__ void __launch_bounds__(128, BLOCKS) attention_backward_keys(
    const bf16* __restrict__ qkv, const bf16* __restrict__ d_out, const int* __restrict__ offsets,
    const int2* __restrict__ tiles, const float* __restrict__ bias, const float* __restrict__ starts,
    bf16* __restrict__ d_qkv, int tokens, int heads, float scale, PairedDropout dropout
) {
    const int2 tile = tiles[blockIdx.x];
    const int head = blockIdx.y, own = (threadIdx.x >> 5) * 16;
    const int start = offsets[tile.x], length = offsets[tile.x + 1] - start;
    const int valid = min(TILE, length - tile.y);
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const size_t from = (size_t)(start + tile.y) * stride + head * HEAD_DIM + hidden;
    const bf16* queries = qkv + (size_t)start * stride + head * HEAD_DIM;
    const bf16* d_outs = d_out + (size_t)start * hidden + head * HEAD_DIM;
    const size_t row_from = (size_t)head * tokens + start;

    const u32 key_tile = shared_address(memory);
    const u32 value_tile = key_tile + TILE_BYTES;
    // Starts, d_starts and random bits, of either pair of tiles.
    float* rows = (float*)(memory + 6 * TILE_BYTES);
    float* distances = rows + 10 * TILE;
    // The queries' and d_out's tiles number `odd`, with what belongs to their rows.
    const auto load_queries = [&](int first, int odd) {
        const u32 query_tile = key_tile + (2 + 2 * odd) * TILE_BYTES;
        load_tile(query_tile, queries + first * stride, stride, length - first);
        load_tile(query_tile + TILE_BYTES, d_outs + first * hidden, hidden, length - first);
        const int row = threadIdx.x % TILE;
        const bool second = threadIdx.x >= TILE;
        const float* source = starts + (second ? heads * tokens : 0) + row_from + first + row;
        float* row_values = rows + odd * 5 * TILE;
        float* target = row_values + (second ? 2 * TILE : 0) + start_place(row);
        if (first + row < length) {
            copy_float(shared_address(target), source);
            copy_float(shared_address(target + 2), source);
        } else {
            // Past the end a high bias alone might be infinite as a power: infinity makes it zero.
            target[0] = target[2] = second ? 0.0f : -infinity();
        }
        if (DROPOUT && !second) {
            const u32 mask_row = (start + first + row) * heads + head;
            ((u32*)row_values)[4 * TILE + row] = random_row(dropout.low, mask_row);
        }
    };
    load_tile(key_tile, qkv + from, stride, valid);
    load_tile(value_tile, qkv + from + hidden, stride, valid);
    load_queries(0, 0);
    if (BIAS) load_bias<128>(distances, bias, head);

    const int key = tile.y + own + (int)((threadIdx.x & 31) >> 2);
    float d_keys[COLUMNS][4] = {}, d_values[COLUMNS][4] = {};
    for (int first = 0, odd = 0; first < length; first += TILE, odd ^= 1) {
        wait_for_copies();
        __syncthreads();
        if (first + TILE < length) load_queries(first + TILE, odd ^ 1);
        const u32 query_tile = key_tile + (2 + 2 * odd) * TILE_BYTES;
        const float* row_values = rows + odd * 5 * TILE;
        const KeyWork work = {
            key_tile + own * ROW + lane_by_row(), value_tile + own * ROW + lane_by_row(), query_tile,
            query_tile + TILE_BYTES, row_values, row_values + 2 * TILE, (const u32*)row_values + 4 * TILE,
            distances, key, random_column(dropout.high, key), first, length, scale * LOG2_E,
        };
        // A warp without keys copies for the others.
        if (__all_sync(~0u, tile.y + own >= length)) continue;
#pragma unroll 1
        for (int query = 0; query < min(TILE, length - first); query += 32) {
            add_queries<false>(work, dropout, query, d_keys, d_values, 0);
        }
    }
    // A warp alone reads its keys and values, so their rows can take the results.
    __syncwarp();
    put_rows(key_tile + own * ROW, d_keys, scale * dropout.scale, scale * dropout.scale);
    put_rows(value_tile + own * ROW, d_values, dropout.scale, dropout.scale);
    __syncwarp();
    bf16* target = d_qkv + from + own * stride;
    store_rows<32>(target, stride, key_tile + own * ROW, min(16, valid - own));
    store_rows<32>(target + hidden, stride, value_tile + own * ROW, min(16, valid - own));
}
