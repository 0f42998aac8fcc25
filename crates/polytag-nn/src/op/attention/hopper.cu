// Attention over long sequences on Hopper: the way forward, and the way back in one pass. Compiled after tiles.cu
// and hopper_instructions.cu, for heads of 64 columns without a bias and for compute capability 9.0 with its own
// instructions (sm_90a). What lies where is in the header of tiles.cu, the formulas are in that of backward.cu.
//
// A multiprocessor has one block, of groups of four warps. The first group brings tiles; the others multiply
// them, and while products are under way for one thing they make powers of two of another. Barriers in shared memory
// say which tiles are there and which are read. Every sum has one owner and one order: the same bits each run.
// Both ways are in one text, as they share what lies where and how results are written.

constexpr int KEYS = 128;    // that a block takes at a time on the way back
constexpr int STAGES = 3;    // pairs of tiles, of which one or two are being copied
constexpr int STAGE_BYTES = 2 * TILE_BYTES;
static_assert(HEAD_DIM == 64, "operands are laid out for rows of 128 bytes");

// Registers a thread, of those that bring tiles and of those that multiply, on either way. A block has no more to share
// out than it began with: 65,536 divided by its threads, in eights, for each of them.
constexpr int FORWARD_BRINGS = 56, FORWARD_MULTIPLIES = 152, BACKWARD_BRINGS = 88, BACKWARD_MULTIPLIES = 208;
static_assert(128 * FORWARD_BRINGS + 384 * FORWARD_MULTIPLIES <= 512 * 128, "a group would wait for registers for ever");
static_assert(128 * BACKWARD_BRINGS + 256 * BACKWARD_MULTIPLIES <= 384 * 168, "a group would wait for registers for ever");

// Where an operand lies in shared memory: rows of 128 bytes whose 16-byte chunks are permuted as `place` does, in
// groups of eight rows.
__device__ __forceinline__ u64 operand_of_128(u32 address) {
    return (u64)(address >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// --- results

// Writes the first `valid` of a warp's 16 rows of sums, times a factor for either eight of them, by way
// of eight rows of shared memory.
__device__ __forceinline__ void give_rows(
    bf16* target, int stride, const float (&sums)[8][4], float upper, float lower,
    u32 place_of_rows, int valid
) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float factor = half ? lower : upper;
        u32 words[8];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            words[n] = pack(sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor);
        }
#pragma unroll
        for (int n = 0; n < 8; n += 4) {
            store_matrices(place_of_rows + place(lane & 7, n + (lane >> 3)), words[n], words[n + 1], words[n + 2],
                           words[n + 3]);
        }
        __syncwarp();
#pragma unroll
        for (int row = lane >> 3; row < 8; row += 4) {
            if (row + 8 * half < valid) {
                *(uint4*)(target + (row + 8 * half) * stride + (lane & 7) * 8) =
                    load_chunk(place_of_rows + place(row, lane & 7));
            }
        }
        __syncwarp();
    }
}

// --- forward

constexpr int READERS = 3;         // groups of four warps with 64 queries each
constexpr int PARTS = 3;           // blocks of queries that the longest sequence has
constexpr int FORWARD_STAGES = 8;  // tiles of keys with their values
constexpr int BEHIND = 2;          // stages that are being copied before one of them is waited for

// What is where in shared memory: queries, stages, eight rows for each warp to write results through, and barriers.
constexpr u32 STAGE_PLACE = READERS * TILE_BYTES;
constexpr u32 OUT_PLACE = STAGE_PLACE + FORWARD_STAGES * STAGE_BYTES;
constexpr u32 FORWARD_BARRIERS = OUT_PLACE + READERS * 4 * 8 * ROW;
static_assert(FORWARD_BARRIERS == 167936, "who launches this asks for so much and 17 barriers");
// The barriers: a stage is full (and if it is a block's first one, so are its queries), a stage is empty, queries are
// in registers.
constexpr u32 KEYS_FULL = 0, KEYS_EMPTY = 8 * FORWARD_STAGES, QUERIES_READ = 16 * FORWARD_STAGES;

// 192 queries of a long sequence and a head.
struct QueryBlock { int head, start, length, first; };

__device__ __forceinline__ QueryBlock query_block(int index, const int* offsets, const int* sequences, int heads) {
    const int sequence = sequences[index / (heads * PARTS)], rest = index % (heads * PARTS);
    const int start = offsets[sequence];
    return {rest % heads, start, offsets[sequence + 1] - start, rest / heads * READERS * TILE};
}

// Blocks of queries one after the other. The first group of four warps brings queries, keys and values, ahead of the
// others also past a block's end; each of these has 64 of the queries, to which keys pass by. The scores of the next
// keys are under way while probabilities are made of the present ones.
extern "C" __global__ void __launch_bounds__(128 * (READERS + 1), 1) attention_forward_long(
    const bf16* __restrict__ qkv, const int* __restrict__ offsets, const int* __restrict__ sequences, int count,
    bf16* __restrict__ out, float* __restrict__ log_sums, int tokens, int heads, float scale, PairedDropout dropout
) {
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const u32 base = shared_address(memory), barriers = base + FORWARD_BARRIERS;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < FORWARD_STAGES; stage++) {
            begin_barrier(barriers + KEYS_FULL + 8 * stage, 128);
            begin_barrier(barriers + KEYS_EMPTY + 8 * stage, 4 * READERS);
        }
        begin_barrier(barriers + QUERIES_READ, 4 * READERS);
    }
    __syncthreads();
    const int blocks = count * heads * PARTS;

    if (threadIdx.x < 128) {
        fewer_registers<FORWARD_BRINGS>();
        int brought = 0, turn = 0; // stages and blocks so far
        const auto give = [&](int stage) {
            publish();
            arrive(barriers + KEYS_FULL + 8 * (stage % FORWARD_STAGES));
        };
        for (int index = blockIdx.x; index < blocks; index += gridDim.x) {
            const QueryBlock block = query_block(index, offsets, sequences, heads);
            if (block.first >= block.length) continue;
            const bf16* queries = qkv + (size_t)block.start * stride + block.head * HEAD_DIM;
            if (turn > 0) wait_for(barriers + QUERIES_READ, (turn - 1) & 1);
            turn++;
#pragma unroll 1
            for (int reader = 0; reader < READERS; reader++) {
                const int row = block.first + reader * TILE;
                load_tile(base + reader * TILE_BYTES, queries + (size_t)row * stride, stride, block.length - row);
            }
#pragma unroll 1
            for (int row = 0; row < block.length; row += TILE, brought++) {
                if (brought >= FORWARD_STAGES) {
                    wait_for(barriers + KEYS_EMPTY + 8 * (brought % FORWARD_STAGES),
                             (brought / FORWARD_STAGES - 1) & 1);
                }
                const u32 stage = base + STAGE_PLACE + brought % FORWARD_STAGES * STAGE_BYTES;
                const bf16* keys = queries + hidden + (size_t)row * stride;
                load_tile(stage, keys, stride, block.length - row);
                load_tile(stage + TILE_BYTES, keys + hidden, stride, block.length - row);
                commit_copies();
                if (brought >= BEHIND) {
                    wait_for_copies_but<BEHIND>();
                    give(brought - BEHIND);
                }
            }
        }
        wait_for_copies_but<0>();
        for (int stage = max(0, brought - BEHIND); stage < brought; stage++) give(stage);
    } else {
        more_registers<FORWARD_MULTIPLIES>();
        const int warp = (int)(threadIdx.x >> 5) - 4, lane = threadIdx.x & 31, pair = lane & 3;
        const bool leads = lane == 0; // its warp
        int read = 0; // stages so far
        const auto stage_of = [&](int stage) { return base + STAGE_PLACE + stage % FORWARD_STAGES * STAGE_BYTES; };
        const auto wait_for_stage = [&](int stage) {
            wait_for(barriers + KEYS_FULL + 8 * (stage % FORWARD_STAGES), stage / FORWARD_STAGES & 1);
        };
        const auto let_go = [&](u32 barrier) {
            __syncwarp();
            if (leads) arrive(barriers + barrier);
        };
        for (int index = blockIdx.x; index < blocks; index += gridDim.x) {
            const QueryBlock block = query_block(index, offsets, sequences, heads);
            const int length = block.length, own = block.first + warp * 16; // the warp's first row
            if (block.first >= length) continue;
            const int tiles = (length + TILE - 1) / TILE;
            wait_for_stage(read);
            Fragment query[STEPS];
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                query[step] = load_matrices(step_to(base + warp * 16 * ROW + lane_by_row(), 0, step));
            }
            let_go(QUERIES_READ);
            if (block.first + (warp >> 2) * TILE >= length) {
                // A group without queries.
                for (const int last = read + tiles; read < last; read++) {
                    wait_for_stage(read);
                    let_go(KEYS_EMPTY + 8 * (read % FORWARD_STAGES));
                }
                continue;
            }
            const u32 mask_row = (u32)(block.start + own + (lane >> 2)) * heads + block.head;
            const u32 row_bits[2] = {random_row(dropout.low, mask_row),
                                     random_row(dropout.low, mask_row + 8 * heads)};
            float sums[8][4] = {}, even[8][4] = {}, odd[8][4] = {};
            PassingSoftmax softmax(scale * LOG2_E);
            const auto ask_for_scores = [&](float (&scores)[8][4], int stage) {
                const u64 key = operand_of_128(stage_of(stage));
                begin_products();
                product<false, false>(scores, query[0], key);
#pragma unroll
                for (int step = 1; step < STEPS; step++) product<true, false>(scores, query[step], key + 2 * step);
                commit_products();
            };
            const auto take = [&](int tile, float (&scores)[8][4], float (&next)[8][4], bool more) {
                if (more) {
                    wait_for_stage(read + 1);
                    ask_for_scores(next, read + 1);
                }
                const int column = tile * TILE + 2 * pair;
                if (!more && length % TILE) {
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
                Fragment weights[4];
#pragma unroll
                for (int k = 0; k < 4; k++) weights[k] = operand_of(scores[2 * k], scores[2 * k + 1]);
                const u64 value = operand_of_128(stage_of(read) + TILE_BYTES);
                begin_products();
#pragma unroll
                for (int k = 0; k < 4; k++) product<true, true>(sums, weights[k], value + 128 * k);
                commit_products();
                wait_for_products<0>();
                settle(next);
                settle(sums);
                let_go(KEYS_EMPTY + 8 * (read % FORWARD_STAGES));
                read++;
            };
            ask_for_scores(even, read);
            wait_for_products<0>();
            settle(even);
            int tile = 0;
#pragma unroll 1
            for (; tile + 2 < tiles; tile += 2) {
                take(tile, even, odd, true);
                take(tile + 1, odd, even, true);
            }
            if (tile + 1 < tiles) {
                take(tile, even, odd, true);
                take(tile + 1, odd, even, false);
            } else {
                take(tile, even, odd, false);
            }
            softmax.finish(log_sums + (size_t)block.head * tokens + block.start + own, length - own);
            bf16* target = out + (size_t)(block.start + own) * hidden + block.head * HEAD_DIM;
            give_rows(target, hidden, sums, dropout.scale / softmax.total[0], dropout.scale / softmax.total[1],
                      base + OUT_PLACE + warp * 8 * ROW, length - own);
        }
    }
}

// --- backward

// What is where in shared memory: stages, the keys, dS [keys, queries], the sums of d_queries in f32, what belongs to
// the queries' rows, eight rows for each warp to write results through, and barriers.
constexpr u32 KEY_PLACE = STAGES * STAGE_BYTES;
constexpr u32 D_SCORE_PLACE = KEY_PLACE + 2 * TILE_BYTES;
constexpr u32 D_QUERY_PLACE = D_SCORE_PLACE + 2 * TILE_BYTES;
constexpr u32 ROW_PLACE = D_QUERY_PLACE + 512 * HEAD_DIM * 4;
constexpr u32 RESULT_PLACE = ROW_PLACE + 3 * 512 * 4;
constexpr u32 BARRIER_PLACE = RESULT_PLACE + 12 * 8 * ROW;
static_assert(BARRIER_PLACE == 231424, "who launches this asks for so much and 8 barriers");

// The barriers: a stage is full, a stage is empty (one each for every stage), dS is there, dS was read.
constexpr u32 FULL = 0, EMPTY = 8 * STAGES, GIVEN = 16 * STAGES, READ = GIVEN + 8;

// A lane's part of 16 rows of a head, as left operands; rows from `valid` on are zero.
__device__ __forceinline__ void load_operands(
    Fragment (&operands)[STEPS], const bf16* rows, int stride, int valid
) {
    const int row = (threadIdx.x & 31) >> 2;
    const bf16* from = rows + (size_t)row * stride + 2 * (threadIdx.x & 3);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const int below = (part & 1) * 8, after = step * 16 + (part >> 1) * 8;
            operands[step].part[part] = row + below < valid ? *(const u32*)(from + below * stride + after) : 0;
        }
    }
}

// A whole long sequence and a head, with three groups of four warps. The block goes over the keys, 128 at a time, and
// for each of those over the queries, 64 at a time.
//
// The second and the third group have 64 of the keys each. Scores are computed with keys as rows, so that
// probabilities and dS are left operands out of registers, and d_keys and d_values stay in registers until the next
// keys. The first group brings queries and d_out, computes deltas, and takes dS from the other two for d_queries:
// these are sums over keys, in f32, and wait in shared memory, each thread's share where only that thread looks. All
// of it has one owner and one order: the same bits each run.
extern "C" __global__ void __launch_bounds__(384, 1) attention_backward_whole(
    const bf16* __restrict__ qkv, const bf16* __restrict__ out, const bf16* __restrict__ d_out,
    const int* __restrict__ offsets, const int* __restrict__ sequences, const float* __restrict__ log_sums,
    bf16* __restrict__ d_qkv, int tokens, int heads, float scale, PairedDropout dropout
) {
    const int head = blockIdx.x, sequence = sequences[blockIdx.y];
    const int start = offsets[sequence], length = offsets[sequence + 1] - start;
    const int hidden = heads * HEAD_DIM, stride = 3 * hidden;
    const bf16* queries = qkv + (size_t)start * stride + head * HEAD_DIM;
    const bf16* keys = queries + hidden;
    const bf16* d_outs = d_out + (size_t)start * hidden + head * HEAD_DIM;
    bf16* d_queries = d_qkv + (size_t)start * stride + head * HEAD_DIM;

    const u32 base = shared_address(memory), barriers = base + BARRIER_PLACE;
    const u32 key_tile = base + KEY_PLACE, d_score_tile = base + D_SCORE_PLACE;
    const u32 result_rows = base + RESULT_PLACE + (threadIdx.x >> 5) * 8 * ROW;
    float* log_rows = (float*)(memory + ROW_PLACE);
    float* deltas = log_rows + 512;
    u32* row_bits = (u32*)(deltas + 512);
    const int tiles = (length + TILE - 1) / TILE, steps = tiles * ((length + KEYS - 1) / KEYS);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            begin_barrier(barriers + FULL + 8 * stage, 128);
            begin_barrier(barriers + EMPTY + 8 * stage, 8);
        }
        begin_barrier(barriers + GIVEN, 8);
        begin_barrier(barriers + READ, 4);
    }
    __syncthreads();
    const bool leads = (threadIdx.x & 31) == 0; // its warp

    if (threadIdx.x < 128) {
        fewer_registers<BACKWARD_BRINGS>();
        const auto load_queries = [&](int step) {
            if (step < steps) {
                const int tile = step % tiles;
                const u32 stage = base + step % STAGES * STAGE_BYTES;
                load_tile(stage, queries + (size_t)tile * TILE * stride, stride, length - tile * TILE);
                load_tile(stage + TILE_BYTES, d_outs + (size_t)tile * TILE * hidden, hidden, length - tile * TILE);
            }
            commit_copies();
        };
        const auto load_keys = [&](int first) {
            load_tile(key_tile, keys + (size_t)first * stride, stride, length - first);
            load_tile(key_tile + TILE_BYTES, keys + (size_t)(first + TILE) * stride, stride, length - first - TILE);
        };
        // A stage whose copies have come is for the others to use. What belongs to its rows is made the first time.
        const auto give_queries = [&](int step) {
            if (step >= steps) return;
            if (step < tiles) {
                const int row = step * TILE + (int)(threadIdx.x >> 1);
                uint4 output[CHUNKS / 2];
                load_output(output, out + (size_t)(start + step * TILE) * hidden + head * HEAD_DIM, hidden,
                            length - step * TILE);
                const float log = row < length ? log_sums[(size_t)head * tokens + start + row] : infinity();
                wait_for_copies_but<1>();
                meet_group(1);
                const float delta = row_delta(output, base + step % STAGES * STAGE_BYTES + TILE_BYTES);
                if (threadIdx.x & 1) {
                    deltas[row] = delta * (-1.0f / dropout.scale);
                } else {
                    // Past the end a probability is zero.
                    log_rows[row] = -LOG2_E * log;
                    if (DROPOUT) row_bits[row] = random_row(dropout.low, (u32)(start + row) * heads + head);
                }
            } else {
                wait_for_copies_but<1>();
            }
            publish();
            arrive(barriers + FULL + 8 * (step % STAGES));
        };
        load_keys(0);
        load_queries(0);
        load_queries(1);
        give_queries(0);
        load_queries(2);
        give_queries(1);
        float4* own_sums = (float4*)(memory + D_QUERY_PLACE) + threadIdx.x;
#pragma unroll 1
        for (int step = 0, tile = 0, first = 0; step < steps; step++) {
            if (tile == 0) {
                // The keys have come for everybody.
                wait_for_copies_but<0>();
                publish();
                meet_group(1);
            }
            float sums[8][4] = {};
            if (first > 0) {
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    const float4 before = own_sums[tile * 1024 + n * 128];
                    sums[n][0] = before.x, sums[n][1] = before.y, sums[n][2] = before.z, sums[n][3] = before.w;
                }
            }
            wait_for(barriers + GIVEN, step & 1);
            const u64 d_score = operand_of_128(d_score_tile), key = operand_of_128(key_tile);
            begin_products();
#pragma unroll
            for (int k = 0; k < KEYS / 16; k++) product_by_depth(sums, d_score + 128 * k, key + 128 * k);
            commit_products();
            wait_for_products<0>();
            settle(sums);
            if (leads) arrive(barriers + READ);
            if (first + KEYS < length) {
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    own_sums[tile * 1024 + n * 128] = make_float4(sums[n][0], sums[n][1], sums[n][2], sums[n][3]);
                }
            } else {
                const int row = tile * TILE + (int)(threadIdx.x >> 5) * 16;
                give_rows(d_queries + (size_t)row * stride, stride, sums, scale * dropout.scale,
                          scale * dropout.scale, result_rows,
                          length - row);
            }
            if (step + STAGES < steps) wait_for(barriers + EMPTY + 8 * (step % STAGES), step / STAGES & 1);
            if (++tile == tiles) {
                tile = 0;
                first += KEYS;
                // Everybody's products have read the last ones.
                meet_group(1);
                if (first < length) load_keys(first);
            }
            load_queries(step + STAGES);
            give_queries(step + 2);
        }
    } else {
        more_registers<BACKWARD_MULTIPLIES>();
        const int warp = (int)(threadIdx.x >> 5) - 4, lane = threadIdx.x & 31, pair = lane & 3;
        const float factor = scale * LOG2_E;
        int step = 0;
        for (int first = 0; first < length; first += KEYS) {
            const int key_row = first + warp * 16;
            const bf16* own_keys = keys + (size_t)key_row * stride;
            Fragment key[STEPS], value[STEPS];
            load_operands(key, own_keys, stride, length - key_row);
            load_operands(value, own_keys + hidden, stride, length - key_row);
            const int own = key_row + (lane >> 2); // the upper of the lane's two keys
            const u32 key_bits = random_column(dropout.high, own);

            float d_keys[8][4] = {}, d_values[8][4] = {}, scores[8][4] = {}, d_scores[8][4] = {};
            const auto ask_for_scores = [&](u32 stage) {
                const u64 query = operand_of_128(stage);
                product<false, false>(scores, key[0], query);
#pragma unroll
                for (int k = 1; k < STEPS; k++) product<true, false>(scores, key[k], query + 2 * k);
                commit_products();
            };
            const auto add_tile = [&](int tile, bool more) {
                const u32 stage = base + step % STAGES * STAGE_BYTES;
                wait_for_products<0>();
                settle(scores);
                // While probabilities are made of these, their gradients are under way.
                const u64 d_output = operand_of_128(stage + TILE_BYTES);
                begin_products();
                product<false, false>(d_scores, value[0], d_output);
#pragma unroll
                for (int k = 1; k < STEPS; k++) product<true, false>(d_scores, value[k], d_output + 2 * k);
                commit_products();
                const float* log_row = log_rows + tile * TILE + 2 * pair;
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    const float2 log = *(const float2*)(log_row + n * 8);
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        scores[n][e] = power_of_two(fmaf(scores[n][e], factor, e & 1 ? log.y : log.x));
                    }
                }
                if (first + KEYS > length) {
#pragma unroll
                    for (int n = 0; n < 8; n++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            if (own + (e >> 1) * 8 >= length) scores[n][e] = 0.0f;
                        }
                    }
                }
                u32 keep = ~0u; // a bit for each score: bit 4 n + e
                if (DROPOUT) {
                    keep = 0;
#pragma unroll
                    for (int n = 0; n < 8; n++) {
                        const uint2 bits = *(const uint2*)(row_bits + tile * TILE + 2 * pair + n * 8);
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            const Kept both =
                                kept(random_mix((e ? bits.y : bits.x) ^ key_bits), dropout.thresholds);
                            keep |= (both.low ? 1u << (4 * n + e) : 0u) | (both.high ? 4u << (4 * n + e) : 0u);
                        }
                    }
                }
                const auto is_kept = [&](int n, int e) { return !DROPOUT || keep >> (4 * n + e) & 1; };
                Fragment weights[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float of_kept[2][4];
#pragma unroll
                    for (int n = 0; n < 2; n++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            of_kept[n][e] = is_kept(2 * k + n, e) ? scores[2 * k + n][e] : 0.0f;
                        }
                    }
                    weights[k] = operand_of(of_kept[0], of_kept[1]);
                }
                begin_products();
#pragma unroll
                for (int k = 0; k < 4; k++) product<true, true>(d_values, weights[k], d_output + 128 * k);
                commit_products();

                wait_for_products<1>();
                settle(d_scores);
                const float* delta = deltas + tile * TILE + 2 * pair;
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    const float2 minus = *(const float2*)(delta + n * 8);
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const float by = e & 1 ? minus.y : minus.x;
                        d_scores[n][e] = scores[n][e] * (is_kept(n, e) ? d_scores[n][e] + by : by);
                    }
                }
                Fragment gradients[4];
#pragma unroll
                for (int k = 0; k < 4; k++) gradients[k] = operand_of(d_scores[2 * k], d_scores[2 * k + 1]);
                // The last dS was read, and the next queries have come.
                if (step > 0) wait_for(barriers + READ, (step - 1) & 1);
                if (more) wait_for(barriers + FULL + 8 * ((step + 1) % STAGES), (step + 1) / STAGES & 1);
                const u32 own_d_scores = d_score_tile + warp * 16 * ROW;
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    store_matrices(step_to(own_d_scores + lane_by_row(), 0, k), gradients[k].part[0],
                                   gradients[k].part[1], gradients[k].part[2], gradients[k].part[3]);
                }
                publish();
                __syncwarp();
                if (leads) arrive(barriers + GIVEN);
                const u64 query = operand_of_128(stage);
                begin_products();
#pragma unroll
                for (int k = 0; k < 4; k++) product<true, true>(d_keys, gradients[k], query + 128 * k);
                commit_products();
                if (more) {
                    ask_for_scores(base + (step + 1) % STAGES * STAGE_BYTES);
                    wait_for_products<1>();
                } else {
                    wait_for_products<0>();
                }
                __syncwarp();
                if (leads) arrive(barriers + EMPTY + 8 * (step % STAGES));
                step++;
            };
            wait_for(barriers + FULL + 8 * (step % STAGES), step / STAGES & 1);
            begin_products();
            ask_for_scores(base + step % STAGES * STAGE_BYTES);
#pragma unroll 1
            for (int tile = 0; tile + 1 < tiles; tile++) add_tile(tile, true);
            add_tile(tiles - 1, false);
            settle(d_keys);
            settle(d_values);
            bf16* target = d_queries + hidden + (size_t)key_row * stride;
            const float last = scale * dropout.scale;
            give_rows(target, stride, d_keys, last, last, result_rows, length - key_row);
            give_rows(target + hidden, stride, d_values, dropout.scale, dropout.scale, result_rows, length - key_row);
        }
    }
}
