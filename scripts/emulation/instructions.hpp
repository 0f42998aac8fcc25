// What op/attention/instructions.cu and hopper_instructions.cu call by name, in C++: in the place of these two texts.
//
// Addresses in shared memory are distances from its beginning. Copies and products that run beside the threads that ask for
// them are done as early or as late as can be (emulation::late), so that who does not wait for them, or lets go too
// early of what they read, gets other answers. Others may go first whenever a thread arrives at a barrier. Threads that wait for barriers that nobody completes, or for registers
// that nobody gives back, end the program. What it cannot show: memory of which the products have an older view (`publish`).

typedef unsigned short bf16;

struct Fragment { u32 part[4]; };

namespace emulation {

inline char* at(u32 address, size_t bytes) {
    if (address % bytes || address + bytes > block->shared.size()) fail("a wrong address", address, "%zu in shared memory");
    return block->shared.data() + address;
}

template <class T> T read(u32 address) {
    T value;
    memcpy(&value, at(address, sizeof(T)), sizeof(T));
    return value;
}

inline float bf16_at(u32 address) { return __uint_as_float((u32)read<bf16>(address) << 16); }
inline float half_of(u32 word, int half) { return __uint_as_float(half ? word & 0xffff0000u : word << 16); }

inline u32 rounded(float value) {
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// What all lanes of the warp have, by lane.
template <int COUNT> struct Gathered { u32 (*lanes)[COUNT]; };
template <int COUNT> Gathered<COUNT> gather(int line, const u32 (&values)[COUNT]) {
    // Twice, as one lane may be here again before the others have looked.
    static u32 kept[2][1024][COUNT];
    static bool turn[1024];
    unsigned thread = block->current;
    bool which = turn[thread] = !turn[thread];
    memcpy(kept[which][thread], values, sizeof(values));
    exchange(line, ~0u, 0, 0);
    return {&kept[which][thread & ~31u]};
}

inline void request(Requests& requests, bool is_late, std::function<void()> request) {
    if (!is_late) request();
    else requests.groups.back().push_back(std::move(request));
}

// An operand in shared memory as a descriptor has it: where its rows of 128 bytes begin, eight rows of which are a group.
struct Described {
    u32 start, group;

    explicit Described(u64 descriptor)
        : start((u32)(descriptor & 0x3fff) << 4), group((u32)(descriptor >> 32 & 0x3fff) << 4) {
        if (descriptor >> 62 != 1) fail("a descriptor of another layout", descriptor >> 62, "layout %zu");
    }

    float value(int row, int column) const {
        u32 address = start + row / 8 * group + row % 8 * 128 + column * 2;
        return bf16_at(address ^ (address >> 7 & 7) << 4);
    }
};

inline int lane() { return (int)(thread_index.x & 31); }

// Adds to a lane's part of 16 rows: `left` is the value of a lane's upper or lower row at a depth, `right` that of a
// column at a depth.
template <class Left, class Right>
void add_product(float (&sums)[8][4], bool add, int own_lane, const Left& left, const Right& right) {
    for (int n = 0; n < 8; n++) {
        for (int e = 0; e < 4; e++) {
            float sum = add ? sums[n][e] : 0.0f;
            for (int k = 0; k < 16; k++) sum += left(e >> 1, k) * right(8 * n + 2 * (own_lane & 3) + (e & 1), k);
            sums[n][e] = sum;
        }
    }
}

// What a lane has of its two rows, of what the four lanes of these rows have.
struct Rows {
    u32 parts[4][4];
    float operator()(int half, int k) const { return half_of(parts[k % 8 / 2][half + k / 8 * 2], k & 1); }
};

}  // namespace emulation

inline u32 shared_address(const void* pointer) { return (u32)((const char*)pointer - emulation::block->shared.data()); }

inline void copy_chunk(u32 to, const void* from, bool exists) {
    emulation::request(emulation::own().copies, emulation::late.copies, [=] {
        if (exists) memcpy(emulation::at(to, 16), from, 16);
        else memset(emulation::at(to, 16), 0, 16);
    });
}
inline void copy_float(u32 to, const float* from) {
    emulation::request(emulation::own().copies, emulation::late.copies, [=] { memcpy(emulation::at(to, 4), from, 4); });
}
inline void commit_copies() { emulation::own().copies.close(); }
template <int LEFT> void wait_for_copies_but() { emulation::own().copies.finish(LEFT); }
inline void wait_for_copies() {
    commit_copies();
    wait_for_copies_but<0>();
}

inline Fragment load_matrices(u32 address) {
    auto all = emulation::gather(__LINE__, {address});
    Fragment f;
    for (int i = 0; i < 4; i++) {
        f.part[i] = emulation::read<u32>(all.lanes[8 * i + emulation::lane() / 4][0] + emulation::lane() % 4 * 4);
    }
    return f;
}
inline Fragment load_transposed(u32 address) {
    auto all = emulation::gather(__LINE__, {address});
    const int row = emulation::lane() % 4 * 2, column = emulation::lane() / 4;
    Fragment f;
    for (int i = 0; i < 4; i++) {
        u32 low = emulation::read<bf16>(all.lanes[8 * i + row][0] + 2 * column);
        f.part[i] = low | (u32)emulation::read<bf16>(all.lanes[8 * i + row + 1][0] + 2 * column) << 16;
    }
    return f;
}
inline void store_matrices(u32 address, u32 a, u32 b, u32 c, u32 d) {
    auto all = emulation::gather(__LINE__, {address});
    const u32 words[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++) {
        u32 to = all.lanes[8 * i + emulation::lane() / 4][0] + emulation::lane() % 4 * 4;
        memcpy(emulation::at(to, 4), &words[i], 4);
    }
}

inline void multiply_add(float (&sum)[4], const Fragment& left, u32 right0, u32 right1) {
    const u32 (&part)[4] = left.part;
    auto all = emulation::gather(__LINE__, {part[0], part[1], part[2], part[3], right0, right1});
    const int group = emulation::lane() / 4, pair = emulation::lane() % 4;
    for (int e = 0; e < 4; e++) {
        float total = sum[e];
        for (int k = 0; k < 16; k++) {
            const u32* a = all.lanes[4 * group + k % 8 / 2];
            const u32* b = all.lanes[4 * (2 * pair + (e & 1)) + k % 8 / 2];
            total += emulation::half_of(a[(e >> 1) + k / 8 * 2], k & 1) * emulation::half_of(b[4 + k / 8], k & 1);
        }
        sum[e] = total;
    }
}

inline u32 pack(float first, float second) { return emulation::rounded(first) | emulation::rounded(second) << 16; }
inline float power_of_two(float x) { return std::exp2(x); }
inline u32 opaque(u32 x) { return x; }

struct Kept { bool low, high; };
inline Kept kept(u32 bits, u32 thresholds) {
    // Positive 16-bit floats, and what is none, are in the order of their bits.
    return {(bits & 0x7fff) >= (thresholds & 0xffff), (bits >> 16 & 0x7fff) >= thresholds >> 16};
}

inline void store_word(u32 address, u32 word) { memcpy(emulation::at(address, 4), &word, 4); }
inline uint4 load_chunk(u32 address) { return emulation::read<uint4>(address); }
inline float load_bf16(u32 address) { return emulation::bf16_at(address); }

// --- of compute capability 9.0

inline void begin_products() {}
inline void commit_products() { emulation::own().products.close(); }
template <int LEFT> void wait_for_products() { emulation::own().products.finish(LEFT); }
template <int WIDTH> void settle(float (&)[WIDTH][4]) {}
inline void publish() {}

template <bool ADD, bool BY_DEPTH> void product(float (&sums)[8][4], const Fragment& left, u64 right) {
    const u32 (&part)[4] = left.part;
    auto all = emulation::gather(__LINE__, {part[0], part[1], part[2], part[3]});
    const int lane = emulation::lane();
    emulation::Rows rows;
    memcpy(rows.parts, all.lanes[lane & ~3], sizeof(rows.parts));
    emulation::request(emulation::own().products, emulation::late.products, [=, &sums] {
        const emulation::Described operand(right);
        emulation::add_product(sums, ADD, lane, rows, [&](int column, int k) {
            return BY_DEPTH ? operand.value(k, column) : operand.value(column, k);
        });
    });
}
inline void product_by_depth(float (&sums)[8][4], u64 left, u64 right) {
    (void)emulation::gather(__LINE__, {0u});
    const int lane = emulation::lane(), row = (int)(emulation::thread_index.x >> 5 & 3) * 16 + lane / 4;
    emulation::request(emulation::own().products, emulation::late.products, [=, &sums] {
        const emulation::Described operand(right), by_row(left);
        emulation::add_product(
            sums, true, lane, [&](int half, int k) { return by_row.value(k, row + 8 * half); },
            [&](int column, int k) { return operand.value(k, column); });
    });
}

inline void begin_barrier(u32 barrier, u32 count) { emulation::block->barriers[barrier] = {count, count, 0}; }
inline void arrive(u32 barrier) {
    emulation::block->barriers.at(barrier).arrive();
    emulation::yield(__LINE__);
}
inline void wait_for(u32 barrier, u32 parity) {
    const auto& own = emulation::block->barriers.at(barrier);
    emulation::wait_until(__LINE__, [&own, parity] { return (own.completed & 1) != parity; });
}
inline void meet_group(int barrier) {
    auto& own = emulation::block->barriers[(u64)barrier << 32];
    if (own.count == 0) own = {128, 128, 0};
    const unsigned before = own.completed;
    own.arrive();
    emulation::wait_until(__LINE__, [&own, before] { return own.completed != before; });
}

template <int COUNT> void fewer_registers() {
    auto& own = emulation::own();
    if (COUNT % 8 || COUNT > own.registers) emulation::fail("registers cannot become fewer", own.registers, "%zu a thread");
    emulation::block->free_registers += own.registers - COUNT;
    own.registers = COUNT;
}
template <int COUNT> void more_registers() {
    auto& own = emulation::own();
    const int more = COUNT - own.registers;
    if (COUNT % 8 || more < 0) emulation::fail("registers cannot become more", own.registers, "%zu a thread");
    // Who was let go with others may find that they took what there was.
    const auto suffices = [more] { return emulation::block->free_registers >= more; };
    while (!suffices()) emulation::wait_until(__LINE__, suffices);
    emulation::block->free_registers -= more;
    own.registers = COUNT;
}
