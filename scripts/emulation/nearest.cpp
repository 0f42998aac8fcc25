// The kernels of nearest.cu against plain sorts: ties, equal scores, NaN, infinities, empty places, chunks of any length.

using emulation::Order;

static std::mt19937 chance(7);

static float random_number() { return std::uniform_real_distribution<float>(-1, 1)(chance); }

enum class Kind { Random, Ties, Equal, Rising, Falling, NotFinite, Hidden, AllHidden, Zeros, Tiny, Offsets, Kinds };

static float product(Kind kind, int column) {
    float infinity = INFINITY, odd[] = {NAN, infinity, -infinity, 0.5f, -NAN, 3.4e38f, -3.4e38f};
    switch (kind) {
        case Kind::Ties: return (float)((int)(chance() % 5) - 2);
        case Kind::Equal: return 0.25f;
        case Kind::Rising: return (float)column;
        case Kind::Falling: return (float)-column;
        case Kind::NotFinite: return chance() % 3 ? random_number() : odd[chance() % 7];
        case Kind::Zeros: return chance() % 2 ? 0.0f : -0.0f;
        case Kind::Tiny: return random_number() * 1e-39f;
        default: return random_number();
    }
}

static float offset(Kind kind) {
    switch (kind) {
        case Kind::Hidden: return chance() % 10 ? -INFINITY : 0.0f;
        case Kind::AllHidden: return -INFINITY;
        case Kind::Zeros: return chance() % 2 ? 0.0f : -0.0f;
        case Kind::Offsets: return random_number();
        default: return 0.0f;
    }
}

// As cuda.rs has it.
static int keys_in_shared_memory(int most) {
    int size = 512;
    while (size < 2 * most) size *= 2;
    return size;
}

struct Shape { int rows, columns, chunk, most; };

static void check(Shape shape, Kind kind, Order order) {
    auto [rows, columns, chunk, most] = shape;
    std::vector<float> products((size_t)rows * columns), offsets(columns);
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) products[(size_t)row * columns + column] = product(kind, column);
    for (float& number : offsets) number = offset(kind);

    // Memory of just the right size, so that a step beside it is seen.
    std::unique_ptr<u64[]> kept(new u64[(size_t)rows * most]());
    int stride = chunk + (int)(chance() % 7), size = keys_in_shared_memory(most);
    for (int first = 0; first < columns; first += chunk) {
        int width = std::min(chunk, columns - first);
        std::unique_ptr<float[]> scores(new float[(size_t)(rows - 1) * stride + width]);
        std::fill_n(scores.get(), (size_t)(rows - 1) * stride + width, 1e30f);  // what lies between rows wins, if it is read
        for (int row = 0; row < rows; row++)
            std::copy_n(&products[(size_t)row * columns + first], width, &scores[(size_t)row * stride]);
        emulation::launch({(unsigned)rows, 1, 1}, 256, 8 * (size_t)size, order, [&] {
            keep_best(scores.get(), width, stride, offsets.data() + first, first, kept.get(), most, size);
        });
    }

    for (int row = 0; row < rows; row++) {
        std::vector<std::pair<float, u32>> expected;
        for (int column = 0; column < columns; column++) {
            float score = products[(size_t)row * columns + column] + offsets[column];
            if (score > -INFINITY) expected.push_back({score, (u32)column});
        }
        std::stable_sort(expected.begin(), expected.end(), [](auto a, auto b) { return a.first > b.first; });
        expected.resize(std::min<size_t>(expected.size(), most));
        for (int place = 0; place < most; place++) {
            u64 key = kept[(size_t)row * most + place];
            bool is_right = (size_t)place >= expected.size() ? key == 0 : false;
            if ((size_t)place < expected.size() && key != 0) {
                u32 bits = (u32)(key >> 32);
                float score = __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
                is_right = score == expected[place].first && (u32)~(u32)key == expected[place].second;
            }
            if (!is_right) {
                fprintf(stderr, "keep_best is wrong: kind %d, order %d, %d rows, %d columns, chunks of %d, %d kept: row %d, place %d\n",
                        (int)kind, (int)order, rows, columns, chunk, most, row, place);
                exit(1);
            }
        }
    }
}

static float half_by_definition(unsigned bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                   : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                  : std::ldexp(mantissa, -24);
    return (float)(bits >> 15 ? -value : value);
}

static void check_halves(size_t count) {
    std::unique_ptr<unsigned short[]> from(new unsigned short[count]);
    std::unique_ptr<float[]> to(new float[count]);
    for (size_t i = 0; i < count; i++) from[i] = (unsigned short)i;
    emulation::launch({(unsigned)((count + 511) / 512), 1, 1}, 256, 0, Order::Last,
                      [&] { widen_halves(from.get(), to.get(), (long long)count); });
    for (size_t i = 0; i < count; i++) {
        float expected = half_by_definition(from[i]);
        bool is_right = std::isnan(expected) ? std::isnan(to[i]) : __float_as_uint(to[i]) == __float_as_uint(expected);
        if (!is_right) {
            fprintf(stderr, "widen_halves is wrong: %04x became %g\n", from[i], to[i]);
            exit(1);
        }
    }
}

int main(int count, char** arguments) {
    int cases = count > 1 ? atoi(arguments[1]) : 400;
    for (size_t length : {65536, 1, 2, 511, 512, 513, 4097}) check_halves(length);
    const int mosts[] = {1, 2, 31, 132, 255, 256, 257, 1024, 1132, 2047, 2048};
    const int widths[] = {1, 5, 63, 255, 256, 257, 1000, 1023, 1024, 1025, 3000, 5001};
    const int chunks[] = {64, 192, 1000, 1024, 4096, 32768};
    int done = 0;
    // Every kind in every order, then shapes by chance.
    for (int kind = 0; kind < (int)Kind::Kinds; kind++)
        for (Order order : {Order::First, Order::Last, Order::Shuffled})
            for (int most : {1, 132, 1024}) check({2, 3000, 1024, most}, (Kind)kind, order), done++;
    for (int most : mosts) check({1, 5001, 4096, most}, Kind::Rising, Order::Shuffled), done++;
    while (done < cases) {
        Shape shape = {1 + (int)(chance() % 3), widths[chance() % 12], chunks[chance() % 6], mosts[chance() % 11]};
        check(shape, (Kind)(chance() % (unsigned)Kind::Kinds), (Order)(chance() % 3));
        done++;
    }
    printf("keep_best: %d cases as by sorting; widen_halves: all 65,536 numbers exactly\n", done);
}
