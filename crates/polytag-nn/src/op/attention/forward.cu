// Attention, the way forward: 64 queries and a head a block. Compiled after tiles.cu, whose header says what
// lies where.

extern "C" __global__ void __launch_bounds__(128, BLOCKS) attention_forward(
    const bf16* __restrict__ qkv, const int* __restrict__ offsets, const int2* __restrict__ tiles,
    const float* __restrict__ bias, bf16* __restrict__ out, float* __restrict__ log_sums,
    int tokens, int heads, float scale, PairedDropout dropout
) {
    const int2 tile = tiles[blockIdx.x];
    const int head = blockIdx.y, warp = threadIdx.x >> 5;
    const int group = (threadIdx.x & 31) >> 2, pair = threadIdx.x & 3;
    const int start = offsets[tile.x], length = offsets[tile.x + 1] - start;
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const bf16* queries = qkv + (size_t)start * stride + head * HEAD_DIM;
    const bf16* keys = queries + hidden;
    const bf16* values = keys + hidden;

    const u32 query_tile = shared_address(memory);
    const u32 own_rows = query_tile + warp * 16 * ROW;
    float* distances = (float*)(memory + 5 * TILE_BYTES);
    load_tile(query_tile, queries + tile.y * stride, stride, length - tile.y);
    load_tile(query_tile + TILE_BYTES, keys, stride, length);
    load_tile(query_tile + 2 * TILE_BYTES, values, stride, length);
    if (BIAS) load_bias<128>(distances, bias, head);
    wait_for_copies();
    __syncthreads();

    Fragment query[STEPS];
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        query[step] = load_matrices(step_to(own_rows + lane_by_row(), 0, step));
    }

    const int row = tile.y + warp * 16 + group;
    const u32 mask_row = (u32)(start + row) * heads + head;
    const u32 row_bits[2] = {random_row(dropout.low, mask_row),
                             random_row(dropout.low, mask_row + 8 * heads)};
    float sums[COLUMNS][4] = {};
    PassingSoftmax softmax(BIAS ? 1.0f : scale * LOG2_E);
    for (int first = 0, odd = 0; first < length; first += TILE, odd ^= 1) {
        const u32 key_tile = query_tile + (1 + 2 * odd) * TILE_BYTES;
        if (first > 0) {
            wait_for_copies();
            __syncthreads();
        }
        if (first + TILE < length) {
            const int next = first + TILE;
            const u32 other = query_tile + (3 - 2 * odd) * TILE_BYTES;
            load_tile(other, keys + next * stride, stride, length - next);
            load_tile(other + TILE_BYTES, values + next * stride, stride, length - next);
        }
        // A warp without rows copies for the others.
        if (__all_sync(~0u, tile.y + warp * 16 >= length)) continue;

        float scores[8][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const Fragment key = load_matrices(step_to(key_tile + lane_by_column(), n, step));
                multiply_add(scores[2 * n], query[step], key.part[0], key.part[1]);
                multiply_add(scores[2 * n + 1], query[step], key.part[2], key.part[3]);
            }
        }

        const int column = first + 2 * pair;
        if (BIAS) {
            const float* nearest = distances + (column - row + 511);
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    // The test is for the compiler's sake: it reads fewer values ahead and spills none.
                    const bool exists = row + (e >> 1) * 8 < length;
                    const float by = exists ? nearest[n * 8 + (e & 1) - (e >> 1) * 8] : 0.0f;
                    scores[n][e] = fmaf(scores[n][e], scale * LOG2_E, by);
                }
            }
        }
        if (first + TILE > length) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    if (column + n * 8 + (e & 1) >= length) scores[n][e] = -infinity();
                }
            }
        }

        softmax.take(scores, sums);
        if (DROPOUT) drop_pairs(scores, row_bits, column, dropout);

#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Fragment weights = operand_of(scores[2 * k], scores[2 * k + 1]);
#pragma unroll
            for (int n = 0; n < COLUMNS / 2; n++) {
                const Fragment value = load_transposed(step_to(key_tile + TILE_BYTES + lane_by_row(), k, n));
                multiply_add(sums[2 * n], weights, value.part[0], value.part[1]);
                multiply_add(sums[2 * n + 1], weights, value.part[2], value.part[3]);
            }
        }
    }

    const int first_row = tile.y + warp * 16;
    softmax.finish(log_sums + (size_t)head * tokens + start + first_row, length - first_row);
    put_rows(own_rows, sums, dropout.scale / softmax.total[0], dropout.scale / softmax.total[1]);
    __syncwarp();
    bf16* target = out + (size_t)(start + first_row) * hidden + head * HEAD_DIM;
    store_rows<32>(target, hidden, own_rows, min(16, length - first_row));
}
