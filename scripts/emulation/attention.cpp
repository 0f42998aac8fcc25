// The kernels of attention against plain loops in double: forward.cu, bias.cu, backward.cu and long.cu, or with
// HOPPER=1 hopper.cu beside them.

#ifndef HOPPER
#define HOPPER 0
#endif

using emulation::Late;
using emulation::Order;

static std::mt19937 chance(17);

static float widened(bf16 value) { return __uint_as_float((u32)value << 16); }

static std::vector<bf16> normal(size_t count) {
    std::vector<bf16> values(count);
    std::normal_distribution<float> distribution;
    for (bf16& value : values) value = (bf16)emulation::rounded(distribution(chance));
    return values;
}

struct Batch {
    int heads, tokens;
    std::vector<int> offsets, short_sequences, long_sequences;
    std::vector<int2> tiles;  // of long sequences first
    int long_tiles;

    Batch(const std::vector<int>& lengths, int heads) : heads(heads), tokens(0), offsets{0} {
        std::vector<int2> of_short;
        for (int i = 0; i < (int)lengths.size(); i++) {
            const bool is_long = lengths[i] > SHORT;
            (is_long ? long_sequences : short_sequences).push_back(i);
            for (int row = 0; row < lengths[i]; row += TILE) (is_long ? tiles : of_short).push_back({i, row});
            offsets.push_back(tokens += lengths[i]);
        }
        long_tiles = (int)tiles.size();
        tiles.insert(tiles.end(), of_short.begin(), of_short.end());
        std::stable_sort(long_sequences.begin(), long_sequences.end(),
                         [&](int a, int b) { return lengths[a] > lengths[b]; });
    }
};

struct Values {
    std::vector<bf16> out, d_qkv;
    std::vector<float> log_sums, d_bias;
};

struct Inputs {
    std::vector<bf16> qkv, d_out;
    std::vector<float> bias;
    float scale;
    PairedDropout dropout;
};

static float factor(const PairedDropout& dropout, u32 row, u32 column) {
    const u32 bits = random_bits(dropout.low, dropout.high, row, column & ~8u) >> (column & 8 ? 16 : 0);
    return (bits & 0x7fff) < (dropout.thresholds & 0xffff) ? 0.0f : dropout.scale;
}

struct Expected { std::vector<double> out, log_sums, d_qkv, d_bias; };

static Expected by_hand(const Batch& batch, const Inputs& in) {
    const int hidden = batch.heads * HEAD_DIM;
    Expected to = {std::vector<double>((size_t)batch.tokens * hidden), std::vector<double>((size_t)batch.heads * batch.tokens),
                   std::vector<double>((size_t)batch.tokens * 3 * hidden), std::vector<double>((size_t)batch.heads * DISTANCES)};
    for (int sequence = 0; sequence + 1 < (int)batch.offsets.size(); sequence++) {
        const int start = batch.offsets[sequence], length = batch.offsets[sequence + 1] - start;
        for (int head = 0; head < batch.heads; head++) {
            const auto place = [&](int part, int row) {
                return ((size_t)(start + row) * 3 + part) * hidden + head * HEAD_DIM;
            };
            const auto dot = [&](const bf16* a, const bf16* b) {
                double sum = 0;
                for (int i = 0; i < HEAD_DIM; i++) sum += (double)widened(a[i]) * widened(b[i]);
                return sum;
            };
            for (int i = 0; i < length; i++) {
                std::vector<double> share(length), kept(length), gradient(length);
                double highest = -INFINITY, total = 0, delta = 0;
                for (int j = 0; j < length; j++) {
                    share[j] = in.scale * dot(&in.qkv[place(0, i)], &in.qkv[place(1, j)]);
                    if (BIAS) share[j] += in.bias[head * DISTANCES + j - i + 511];
                    highest = std::max(highest, share[j]);
                }
                for (double& value : share) total += value = std::exp(value - highest);
                to.log_sums[(size_t)head * batch.tokens + start + i] = highest + std::log(total);
                const size_t at = (size_t)(start + i) * hidden + head * HEAD_DIM;
                for (int j = 0; j < length; j++) {
                    kept[j] = DROPOUT ? factor(in.dropout, (u32)(start + i) * batch.heads + head, j) : 1.0;
                    share[j] /= total;
                    gradient[j] = kept[j] * dot(&in.d_out[at], &in.qkv[place(2, j)]);
                    delta += share[j] * gradient[j];
                    for (int c = 0; c < HEAD_DIM; c++) {
                        to.out[at + c] += share[j] * kept[j] * widened(in.qkv[place(2, j) + c]);
                        to.d_qkv[place(2, j) + c] += share[j] * kept[j] * widened(in.d_out[at + c]);
                    }
                }
                for (int j = 0; j < length; j++) {
                    const double d_score = share[j] * (gradient[j] - delta);
                    to.d_bias[head * DISTANCES + j - i + 511] += d_score;
                    for (int c = 0; c < HEAD_DIM; c++) {
                        to.d_qkv[place(0, i) + c] += in.scale * d_score * widened(in.qkv[place(1, j) + c]);
                        to.d_qkv[place(1, j) + c] += in.scale * d_score * widened(in.qkv[place(0, i) + c]);
                    }
                }
            }
        }
    }
    return to;
}

static Values by_kernels(const Batch& batch, const Inputs& in, Order order) {
    const int hidden = batch.heads * HEAD_DIM, tokens = batch.tokens, heads = batch.heads;
    const unsigned all_heads = (unsigned)heads;
    // What a kernel does not write shows.
    const auto garbage = [](size_t count) { return std::vector<bf16>(count, 0x7fc0); };
    Values to = {garbage((size_t)tokens * hidden), garbage((size_t)tokens * 3 * hidden),
                 std::vector<float>((size_t)heads * tokens, NAN), std::vector<float>((size_t)heads * DISTANCES)};
    const size_t tile = 128 * HEAD_DIM, distances = BIAS ? 4096 : 0;
    const int2* tiles = batch.tiles.data() + (HOPPER ? batch.long_tiles : 0);
    const unsigned count = (unsigned)batch.tiles.size() - (HOPPER ? (unsigned)batch.long_tiles : 0);
    const int* offsets = batch.offsets.data();
#if HOPPER
    // Blocks take several parts in turn, as they do on a GPU, and more tiles than there are stages.
    const unsigned parts = (unsigned)batch.long_sequences.size() * all_heads * PARTS;
    emulation::launch({std::min(2u, parts), 1, 1}, 512, 167936 + 8 * 17, order, [&] {
        attention_forward_long(in.qkv.data(), offsets, batch.long_sequences.data(), (int)batch.long_sequences.size(),
                               to.out.data(), to.log_sums.data(), tokens, heads, in.scale, in.dropout);
    });
#endif
    emulation::launch({count, all_heads, 1}, 128, 5 * tile + distances, order, [&] {
        attention_forward(in.qkv.data(), offsets, tiles, in.bias.data(), to.out.data(), to.log_sums.data(), tokens, heads,
                          in.scale, in.dropout);
    });
    std::vector<long long> bias_sums((size_t)heads * DISTANCES);
    emulation::launch({(unsigned)batch.short_sequences.size(), all_heads, 1}, 256, 8 * tile + 35328 + distances, order, [&] {
        attention_backward_short(in.qkv.data(), to.out.data(), in.d_out.data(), offsets, batch.short_sequences.data(),
                                 in.bias.data(), to.log_sums.data(), to.d_qkv.data(), bias_sums.data(), tokens, heads,
                                 in.scale, in.dropout);
    });
#if HOPPER
    emulation::launch({all_heads, (unsigned)batch.long_sequences.size(), 1}, 384, 231424 + 8 * 8, order, [&] {
        attention_backward_whole(in.qkv.data(), to.out.data(), in.d_out.data(), offsets, batch.long_sequences.data(),
                                 to.log_sums.data(), to.d_qkv.data(), tokens, heads, in.scale, in.dropout);
    });
#else
    std::vector<float> starts((size_t)2 * heads * tokens, NAN);
    emulation::launch({(unsigned)batch.long_tiles, all_heads, 1}, 128, 6 * tile + 512 + distances, order, [&] {
        attention_backward_queries(in.qkv.data(), to.out.data(), in.d_out.data(), offsets, tiles, in.bias.data(),
                                   to.log_sums.data(), starts.data(), to.d_qkv.data(), bias_sums.data(), tokens, heads,
                                   in.scale, in.dropout);
    });
    emulation::launch({(unsigned)batch.long_tiles, all_heads, 1}, 128, 6 * tile + 2560 + distances, order, [&] {
        attention_backward_keys(in.qkv.data(), in.d_out.data(), offsets, tiles, in.bias.data(), starts.data(),
                                to.d_qkv.data(), tokens, heads, in.scale, in.dropout);
    });
#endif
    emulation::launch({4, 1, 1}, 256, 0, order, [&] {
        attention_bias_gradient(bias_sums.data(), to.d_bias.data(), heads * DISTANCES);
    });
    return to;
}

template <class Found>
static void expect(const std::vector<Found>& found, const std::vector<double>& wanted, double tolerance, const char* what) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < wanted.size(); i++) {
        double value;
        if constexpr (sizeof(Found) == 2) value = widened(found[i]);
        else value = found[i];
        error += (value - wanted[i]) * (value - wanted[i]);
        norm += wanted[i] * wanted[i];
    }
    const double off = std::sqrt(error / std::max(norm, 1e-30));
    if (off <= tolerance) return; // not, where something is no number
    fprintf(stderr, "%s is off by %g\n", what, off);
    exit(1);
}

template <class T> static void expect_same(const std::vector<T>& a, const std::vector<T>& b) {
    if (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0) return;
    fprintf(stderr, "another order of threads gives other bits\n");
    exit(1);
}

static void check(const std::vector<int>& lengths, int heads) {
    const Batch batch(lengths, heads);
    Inputs in = {normal((size_t)batch.tokens * 3 * heads * HEAD_DIM), normal((size_t)batch.tokens * heads * HEAD_DIM),
                 std::vector<float>((size_t)heads * DISTANCES), 1.0f / std::sqrt((float)HEAD_DIM), {0, 0, 0, 1.0f}};
    for (float& value : in.bias) value = std::normal_distribution<float>()(chance);
    if (DROPOUT) in.dropout = {(u32)chance(), (u32)chance(), 3277u << 16 | 3277u, 32768.0f / (32768 - 3277)};
    const Expected expected = by_hand(batch, in);
    Values first;
    bool is_first = true;
    for (auto [order, late] : {std::pair{Order::Last, Late{true, false}}, {Order::Last, Late{false, true}}, {Order::First, Late{false, true}},
                               {Order::Shuffled, Late{true, true}}}) {
        emulation::late = late;
        const Values found = by_kernels(batch, in, order);
        expect(found.out, expected.out, 1e-2, "the output");
        expect(found.log_sums, expected.log_sums, 1e-5, "the logarithm of sums");
        expect(found.d_qkv, expected.d_qkv, 1e-2, "the gradient of queries, keys and values");
        if (BIAS) expect(found.d_bias, expected.d_bias, 1e-2, "the gradient of the bias");
        if (is_first) first = found;
        is_first = false;
        expect_same(first.out, found.out);
        expect_same(first.log_sums, found.log_sums);
        expect_same(first.d_qkv, found.d_qkv);
        expect_same(first.d_bias, found.d_bias);
    }
}

int main() {
    const std::vector<std::vector<int>> cases = {{129, 5}, {1, 200, 64}, {257}};
    for (const auto& lengths : cases) check(lengths, 2);
    printf("attention, heads of %d%s%s%s: %zu batches as by plain loops, in four orders\n", HEAD_DIM, BIAS ? ", bias" : "",
           DROPOUT ? ", dropout" : "", HOPPER ? ", long sequences by wgmma" : "", cases.size());
}
