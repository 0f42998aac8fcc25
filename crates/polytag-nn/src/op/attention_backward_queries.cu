// The backward pass of attention: the queries of long sequences. Compiled after attention_backward.cu.

constexpr u32 NOWHERE = 0xffffffff;

// 16 queries with their d_out, as left operands, the gradient of the queries, and what belongs to either of
// a lane's rows: the logarithm of its sum, to base two, and its delta.
struct GradientStrip {
    Fragment queries[STEPS], d_outs[STEPS];
    float d_queries[COLUMNS][4], log_sum[2], delta[2];
};

// Makes dS of a strip's products, queries by keys and d_out by values; it is left where d_out by values
// was. `at` is the lane's upper row and its first key, in the sequence.
__device__ __forceinline__ void finish_d_scores(
    const QueryWork& work, const Dropout& dropout, int2 at, const GradientStrip& strip,
    float (&scores)[4][4], float (&d_scores)[4][4]
) {
    const int row = at.x, column = at.y;
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) scores[n][e] = fmaf(scores[n][e], work.scale, -strip.log_sum[e >> 1]);
    }
    if (work.distances) {
        const float* nearest = work.distances + (column - row + 511);
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) scores[n][e] += nearest[n * 8 + (e & 1) - (e >> 1) * 8];
        }
    }
    if (column - 2 * (int)(threadIdx.x & 3) + 32 > work.length) {
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (column + n * 8 + (e & 1) >= work.length) scores[n][e] = -infinity();
            }
        }
    }
    if (dropout.threshold) {
        const u32 upper = (u32)(work.start + row) * work.heads + work.head, lower = upper + 8 * work.heads;
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                d_scores[n][e] *= dropout_factor(dropout, e < 2 ? upper : lower, column + n * 8 + (e & 1));
            }
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            d_scores[n][e] = power_of_two(scores[n][e]) * (d_scores[n][e] - strip.delta[e >> 1]);
        }
    }
}

// Adds what 32 keys, from the tile's row `from` on, give to the gradients of the warp's queries. The warp's
// rows of a tile [queries, TILE keys] take dS, unless they are nowhere.
__device__ __forceinline__ void add_key_gradients(
    const QueryWork& work, const Dropout& dropout, int from, GradientStrip (&strips)[STRIPS],
    u32 d_score_rows
) {
    const int group = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
    const u32 keys = work.keys + from * ROW, values = work.values + from * ROW;
    float scores[STRIPS][4][4] = {}, d_scores[STRIPS][4][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const u32 at = step_to(lane_by_column(), n, step);
            const Fragment key = load_matrices(keys + at);
            const Fragment value = load_matrices(values + at);
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) {
                const Fragment &query = strips[strip].queries[step], &d_out = strips[strip].d_outs[step];
                multiply_add(scores[strip][2 * n], query, key.part[0], key.part[1]);
                multiply_add(scores[strip][2 * n + 1], query, key.part[2], key.part[3]);
                multiply_add(d_scores[strip][2 * n], d_out, value.part[0], value.part[1]);
                multiply_add(d_scores[strip][2 * n + 1], d_out, value.part[2], value.part[3]);
            }
        }
    }
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        const int2 at = {work.row + strip * 16, work.key + from + 2 * pair};
        finish_d_scores(work, dropout, at, strips[strip], scores[strip], d_scores[strip]);
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
        Fragment d_score[STRIPS];
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++) {
            d_score[strip] = left_operand(d_scores[strip][2 * k], d_scores[strip][2 * k + 1]);
            if (d_score_rows != NOWHERE) {
#pragma unroll
                for (int part = 0; part < 4; part++) {
                    const int row = strip * 16 + group + (part & 1) * 8;
                    const u32 at = place<TILE * 2>(row, from / 8 + 2 * k + (part >> 1));
                    store_word(d_score_rows + at + pair * 4, d_score[strip].part[part]);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < COLUMNS / 2; n++) {
            const Fragment key = load_transposed(keys + step_to(lane_by_row(), k, n));
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) {
                float (&sums)[COLUMNS][4] = strips[strip].d_queries;
                multiply_add(sums[2 * n], d_score[strip], key.part[0], key.part[1]);
                multiply_add(sums[2 * n + 1], d_score[strip], key.part[2], key.part[3]);
            }
        }
    }
}

// 128 queries of a long sequence: d_queries, d_bias, and the deltas for the pass over the keys.
extern "C" __global__ void __launch_bounds__(128, BLOCKS) attention_backward_queries(
    const bf16* __restrict__ qkv, const bf16* __restrict__ out, const bf16* __restrict__ d_out,
    const int* __restrict__ offsets, const int2* __restrict__ tiles, const float* __restrict__ bias,
    const float* __restrict__ log_sums, float* __restrict__ deltas, bf16* __restrict__ d_qkv,
    long long* bias_sums, int tokens, int heads, float scale, Dropout dropout
) {
    const int2 tile = tiles[blockIdx.x];
    if (tile.y % BLOCK_ROWS) return;
    const int head = blockIdx.y, own = (threadIdx.x >> 5) * WARP_ROWS;
    const int start = offsets[tile.x], length = offsets[tile.x + 1] - start;
    const int valid = min(BLOCK_ROWS, length - tile.y);
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const size_t from = (size_t)(start + tile.y) * stride + head * HEAD_DIM;
    const size_t out_from = (size_t)(start + tile.y) * hidden + head * HEAD_DIM;
    const size_t row_from = (size_t)head * tokens + start;
    const bf16* keys = qkv + (size_t)start * stride + head * HEAD_DIM + hidden;

    const u32 query_tile = shared_address(memory);
    const u32 d_out_tile = query_tile + 2 * TILE_BYTES;
    const u32 d_score_tile = query_tile; // over both, once they are in registers
    const u32 d_score_rows = bias_sums ? d_score_tile + own * TILE * 2 : NOWHERE;
    const u32 own_rows = query_tile + own * ROW;
    float* row_deltas = (float*)(memory + 8 * TILE_BYTES);
    float* distances = row_deltas + BLOCK_ROWS;
    float* distance_sums = distances + 1024;
    // The keys' and values' tiles number `odd`.
    const auto load_keys = [&](int first, int odd) {
        const u32 key_tile = query_tile + (4 + 2 * odd) * TILE_BYTES;
        load_rows<128>(key_tile, keys + first * stride, stride, TILE, length - first);
        load_rows<128>(key_tile + TILE_BYTES, keys + hidden + first * stride, stride, TILE, length - first);
    };
    load_rows<128>(d_out_tile, d_out + out_from, hidden, BLOCK_ROWS, valid);
    load_rows<128>(query_tile, qkv + from, stride, BLOCK_ROWS, valid);
    load_keys(0, 0);
    group_copies();
    load_keys(TILE, 1); // there is one: the sequence is long
    group_copies();
    if (bias) load_bias<128>(distances, bias, head);
    if (bias_sums) {
        for (int i = threadIdx.x; i < DISTANCES; i += 128) distance_sums[i] = 0.0f;
    }
    uint4 output[2][CHUNKS / 2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        load_output(output[half], out + out_from, hidden, half * TILE + (threadIdx.x >> 1), valid);
    }
    wait_for_earlier_copies();
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = half * TILE + (threadIdx.x >> 1);
        const float delta = row_delta(output[half], d_out_tile, row);
        if ((threadIdx.x & 1) == 0) {
            row_deltas[row] = row < valid ? delta : 0.0f;
            if (row < valid) deltas[row_from + tile.y + row] = delta;
        }
    }
    GradientStrip strips[STRIPS] = {};
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const u32 at = step_to(own_rows + lane_by_row(), strip, step);
            strips[strip].queries[step] = load_matrices(at);
            strips[strip].d_outs[step] = load_matrices(at + 2 * TILE_BYTES);
        }
    }
    __syncthreads();

    const int row = tile.y + own + (int)((threadIdx.x & 31) >> 2);
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int here = row + strip * 16 + half * 8;
            strips[strip].log_sum[half] = here < length ? log_sums[row_from + here] * LOG2_E : 0.0f;
            strips[strip].delta[half] = row_deltas[here - tile.y];
        }
    }
    for (int first = 0, odd = 0; first < length; first += TILE, odd ^= 1) {
        const u32 key_tile = query_tile + (4 + 2 * odd) * TILE_BYTES;
        if (first > 0) {
            wait_for_copies();
            __syncthreads();
            if (first + TILE < length) load_keys(first + TILE, odd ^ 1);
        }
        const QueryWork work = {
            key_tile, key_tile + TILE_BYTES, bias ? distances : nullptr, row, first,
            start, length, head, heads, scale * LOG2_E,
        };
        const int columns = own < valid ? min(TILE, length - first) : 0;
#pragma unroll 1
        for (int key = 0; key < columns; key += 32) {
            add_key_gradients(work, dropout, key, strips, d_score_rows);
        }
        if (bias_sums) {
            // Two threads meet a distance, one in either half of the rows: hence the turns.
            for (int above = 0; above < BLOCK_ROWS; above += TILE) {
                __syncthreads();
                const int distance = (int)threadIdx.x - (TILE - 1);
                if (distance < TILE && above < valid) {
                    distance_sums[first - tile.y - above + distance + 511] += diagonal_sum<TILE * 2>(
                        d_score_tile + above * TILE * 2, min(TILE, valid - above), min(TILE, length - first),
                        -distance);
                }
            }
        }
    }
    __syncthreads();
    if (bias_sums) {
        for (int i = threadIdx.x; i < DISTANCES; i += 128) {
            if (distance_sums[i] != 0.0f) add_to_bias(bias_sums, head, i, distance_sums[i]);
        }
    }
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        put_rows(own_rows + strip * 16 * ROW, strips[strip].d_queries, scale, scale);
    }
    __syncwarp();
    store_rows<32>(d_qkv + from + own * stride, stride, own_rows, min(WARP_ROWS, valid - own));
}
