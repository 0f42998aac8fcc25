// What a CUDA kernel needs to be compiled by a C++ compiler and run on a CPU: the words of the language, the intrinsics
// that our simple kernels use, and blocks of threads that wait for each other.
//
// The threads of a block are fibres, one of which runs at a time until it waits or ends; who goes next is a matter of the
// order that a launch is given (first to last, last to first, or shuffled anew at every turn), so that what depends on the
// order of threads between two barriers gives other answers. Dynamic shared memory knows who touched which element since
// the last barrier of the block: two threads, one of which wrote, are a race and end the program. So do threads that wait
// at different barriers, for a thread that has ended, or for each other; reads and writes out of bounds and undefined
// behaviour are for the compiler's sanitizers. Shared memory begins with garbage in every block.
//
// What it cannot show: time, memory that is seen late by other threads, and races in static shared or global memory, or in
// dynamic shared memory that is declared as bytes, other than by what they do to the answers in one of the orders.

#pragma once

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#ifdef __x86_64__
// Puts what a function keeps for its caller on the stack, the stack's place in *from, and goes on where another stack was
// left in the same way. Fibres change millions of times, and swapcontext is a system call and clears the sanitizer's
// memory of a whole stack each time.
extern "C" void switch_stacks(void** from, void* to);
__asm__(R"(
    .text
    .globl switch_stacks
    .type switch_stacks, @function
switch_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size switch_stacks, .-switch_stacks
)");
#else
#include <ucontext.h>
#endif

namespace emulation {

// Where a fibre, or who runs them, was left.
class Context {
public:
    // The next switch to it calls a function, which does not return, on an empty stack.
    void begin(char* stack, size_t size, void (*function)()) {
        ASAN_UNPOISON_MEMORY_REGION(stack + size - 4096, 4096);  // what a function that did not return left there
#ifdef __x86_64__
        // Six registers and where to go on; whoever is called finds the stack eight bytes off a multiple of 16.
        void** top = (void**)((uintptr_t)(stack + size) / 16 * 16) - 2;
        top[0] = (void*)function;
        place = top - 6;
        std::fill(top - 6, top, nullptr);
#else
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = size;
        context.uc_link = nullptr;
        makecontext(&context, function, 0);
#endif
    }

    void go_to(Context& other) {
#ifdef __x86_64__
        switch_stacks(&place, other.place);
#else
        swapcontext(&context, &other.context);
#endif
    }

private:
#ifdef __x86_64__
    void* place = nullptr;
#else
    ucontext_t context;
#endif
};

struct Place { unsigned x = 0, y = 0, z = 0; };

[[noreturn]] inline void fail(const char* what, size_t number, const char* of = "line %zu of the kernel's text") {
    fprintf(stderr, "emulation: %s (", what);
    fprintf(stderr, of, number);
    fprintf(stderr, ")\n");
    exit(1);
}

constexpr const char* ELEMENT = "element %zu of shared memory";

enum class Order { First, Last, Shuffled };

enum class Wait { None, Block, Warp, Until, Others };

// When what runs beside the thread that asks for it is done: as early as can be or, which these say, as late.
struct Late { bool copies, products; };

// What a thread has asked for and not waited for yet, in groups; the last one is still open.
struct Requests {
    std::vector<std::vector<std::function<void()>>> groups{1};

    void clear() { groups.assign(1, {}); }
    void close() { groups.emplace_back(); }
    bool any() const {
        return std::any_of(groups.begin(), groups.end(), [](const auto& group) { return !group.empty(); });
    }

    // Does all but the last `left` closed groups, or all that there is.
    void finish(size_t left) {
        while (groups.size() > left + 1) {
            auto first = std::move(groups.front());
            groups.erase(groups.begin());
            for (auto& request : first) request();
        }
    }
};

struct Fibre {
    Context context;
    std::unique_ptr<char[]> stack;
    bool is_done = false;
    Wait wait = Wait::None;
    int line = 0;
    bool vote = false;           // what it says at a barrier of the block
    uint64_t given = 0;          // what it gives to its warp
    std::function<bool()> until; // what it waits for, if that is nothing of the block's or the warp's
    int turns = 0;               // that others still have first
    Requests copies, products;   // what runs beside it
    int registers = 0;           // that it has
};

// What so many arrivals complete, again and again.
struct Barrier {
    unsigned count = 0, left = 0, completed = 0;

    void arrive() {
        if (--left == 0) {
            left = count;
            completed++;
        }
    }
};

struct Block {
    std::vector<Fibre> fibres;
    std::vector<uint64_t> warps;  // what each lane gave at the last exchange of its warp
    int votes = 0;                // how many said yes at the last barrier
    unsigned epoch = 1;           // barriers so far
    unsigned current = 0;
    std::vector<char> shared;
    std::map<uint64_t, Barrier> barriers;  // by address in shared memory, or by number beyond all addresses
    int free_registers = 0;                // what threads have given back
    Context scheduler;
    const std::function<void()>* kernel = nullptr;
};

inline Block* block = nullptr;
inline Late late = {};
constexpr size_t STACK = 512 << 10;
constexpr int REGISTERS = 65536;  // of a multiprocessor

inline Fibre& own() { return block->fibres[block->current]; }

inline void wait(Wait kind, int line) {
    Fibre& own = block->fibres[block->current];
    own.wait = kind;
    own.line = line;
    own.context.go_to(block->scheduler);
}

inline void wait_until(int line, std::function<bool()> until) {
    if (until()) return;
    own().until = std::move(until);
    wait(Wait::Until, line);
}

inline int votes(int line, bool vote) {
    block->fibres[block->current].vote = vote;
    wait(Wait::Block, line);
    return block->votes;
}

template <class T> T exchange(int line, unsigned mask, T value, unsigned from) {
    static_assert(sizeof(T) <= 8);
    if (mask != ~0u) fail("only whole warps exchange values here", line);
    unsigned own = block->current;
    block->fibres[own].given = 0;
    memcpy(&block->fibres[own].given, &value, sizeof(T));
    wait(Wait::Warp, line);
    T result;
    memcpy(&result, &block->warps[(own & ~31u) + (from & 31)], sizeof(T));
    return result;
}

inline int warp_votes(int line, bool vote) {
    exchange(line, ~0u, vote, 0);
    unsigned first = block->current & ~31u;
    int yes = 0;
    for (unsigned lane = first; lane < first + 32; lane++) yes += block->warps[lane] != 0;
    return yes;
}

// Lets others go on first who are ready to, for a while.
inline void yield(int line) {
    own().turns = 6;
    wait(Wait::Others, line);
}

// Dynamic shared memory that notices races.
struct Touch { unsigned written = 0, writer = 0, read = 0, reader = 0; bool by_several = false; };
inline std::vector<Touch> touches;

template <class T> struct Shared {
    struct Element {
        size_t index;
        T* at() const {
            if ((index + 1) * sizeof(T) > block->shared.size()) fail("an index outside of shared memory", index, ELEMENT);
            return (T*)block->shared.data() + index;
        }
        operator T() const {
            T* place = at();
            Touch& touch = touches[index];
            unsigned own = block->current;
            if (touch.written == block->epoch && touch.writer != own) fail("a race: read after another's write", index, ELEMENT);
            touch.by_several = touch.read == block->epoch && (touch.by_several || touch.reader != own);
            touch.read = block->epoch;
            touch.reader = own;
            return *place;
        }
        void operator=(T value) const {
            T* place = at();
            Touch& touch = touches[index];
            unsigned own = block->current;
            bool is_read = touch.read == block->epoch && (touch.by_several || touch.reader != own);
            bool is_written = touch.written == block->epoch && touch.writer != own;
            if (is_read || is_written) fail("a race: a write where another was", index, ELEMENT);
            touch.written = block->epoch;
            touch.writer = own;
            *place = value;
        }
        void operator=(const Element& other) const { *this = (T)other; }
    };
    Element operator[](size_t index) const { return {index}; }
};

inline Place thread_index, block_index, block_size, grid_size;

inline void enter() {
    (*block->kernel)();
    if (own().copies.any()) fail("a thread ends before its copies are done", block->current, "thread %zu");
    if (own().products.any()) fail("a thread ends before its products are done", block->current, "thread %zu");
    own().is_done = true;
    own().context.go_to(block->scheduler);
}

// Lets those go on that all have come for; whether there were any.
inline bool release() {
    bool released = false;
    size_t threads = block->fibres.size();
    for (size_t warp = 0; warp < threads; warp += 32) {
        size_t end = std::min(warp + 32, threads);
        auto waits = [](const Fibre& fibre) { return fibre.wait == Wait::Warp; };
        auto first = block->fibres.begin() + warp, last = block->fibres.begin() + end;
        if (std::none_of(first, last, waits)) continue;
        if (std::any_of(first, last, [](const Fibre& fibre) { return fibre.is_done; }))
            fail("a warp waits for a lane that has ended", std::find_if(first, last, waits)->line);
        if (!std::all_of(first, last, waits)) continue;
        for (size_t lane = warp; lane < end; lane++) {
            if (block->fibres[lane].line != first->line) fail("lanes of a warp wait at different places", first->line);
            block->warps[lane] = block->fibres[lane].given;
            block->fibres[lane].wait = Wait::None;
        }
        released = true;
    }
    for (Fibre& fibre : block->fibres) {
        const bool gives_way = fibre.wait == Wait::Others, waits = gives_way || fibre.wait == Wait::Until;
        if (!waits) continue;
        if (gives_way ? --fibre.turns == 0 : fibre.until()) fibre.wait = Wait::None;
        released |= gives_way || fibre.wait == Wait::None;
    }
    int line = 0, votes = 0;
    for (Fibre& fibre : block->fibres) {
        if (fibre.is_done) continue;
        if (fibre.wait != Wait::Block) return released;
        if (line && fibre.line != line) fail("threads of a block wait at different barriers", fibre.line);
        line = fibre.line;
        votes += fibre.vote;
    }
    if (!line) return released;
    for (Fibre& fibre : block->fibres) fibre.wait = Wait::None;
    block->votes = votes;
    block->epoch++;
    return true;
}

// Static shared memory lies in a section of its own.
extern "C" char __start_block_shared[] __attribute__((weak));
extern "C" char __stop_block_shared[] __attribute__((weak));

// Runs a kernel, block after block.
inline void launch(Place grid, unsigned threads, size_t shared, Order order, const std::function<void()>& kernel) {
    static std::mt19937 random(1);
    static Block own;  // kept, so that stacks are made once
    block = &own;
    own.kernel = &kernel;
    if (own.fibres.size() != threads) {
        own.fibres = std::vector<Fibre>(threads);
        for (Fibre& fibre : own.fibres) fibre.stack.reset(new char[STACK]);
    }
    own.warps.assign(threads, 0);
    std::vector<unsigned> turns(threads);
    for (unsigned i = 0; i < threads; i++) turns[i] = order == Order::Last ? threads - 1 - i : i;
    block_size = {threads, 1, 1};
    grid_size = grid;
    for (unsigned y = 0; y < grid.y; y++) for (unsigned x = 0; x < grid.x; x++) {
        block_index = {x, y, 0};
        own.shared.assign(shared, (char)0xA5);
        own.shared.shrink_to_fit();
        touches.assign(shared, Touch());
        own.epoch = 1;
        own.barriers.clear();
        own.free_registers = 0;
        if (__start_block_shared) memset(__start_block_shared, 0xA5, __stop_block_shared - __start_block_shared);
        for (Fibre& fibre : own.fibres) {
            fibre.context.begin(fibre.stack.get(), STACK, enter);
            fibre.is_done = false;
            fibre.wait = Wait::None;
            fibre.copies.clear();
            fibre.products.clear();
            fibre.registers = REGISTERS / threads / 8 * 8;
        }
        for (;;) {
            if (order == Order::Shuffled) std::shuffle(turns.begin(), turns.end(), random);
            bool all_done = true;
            for (unsigned turn : turns) {
                Fibre& fibre = own.fibres[turn];
                if (fibre.is_done || fibre.wait != Wait::None) continue;
                own.current = turn;
                thread_index = {turn, 0, 0};
                own.scheduler.go_to(fibre.context);
            }
            for (const Fibre& fibre : own.fibres) all_done &= fibre.is_done;
            if (all_done) break;
            if (!release()) fail("threads wait for each other", own.fibres[turns[0]].line);
        }
    }
}

}  // namespace emulation

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __shared__ static __attribute__((section("block_shared")))
#define asm(...) emulation::fail("instructions of a GPU cannot be run here", __LINE__)
#define threadIdx emulation::thread_index
#define blockIdx emulation::block_index
#define blockDim emulation::block_size
#define gridDim emulation::grid_size
#define __syncthreads() ((void)emulation::votes(__LINE__, false))
#define __syncthreads_or(vote) (emulation::votes(__LINE__, vote) > 0)
#define __syncthreads_count(vote) emulation::votes(__LINE__, vote)
#define __syncthreads_and(vote) (emulation::votes(__LINE__, !(vote)) == 0)
#define __syncwarp() ((void)emulation::exchange(__LINE__, ~0u, 0, 0))
#define __shfl_xor_sync(mask, value, distance) \
    emulation::exchange(__LINE__, mask, value, emulation::block->current ^ (distance))
#define __shfl_sync(mask, value, lane) emulation::exchange(__LINE__, mask, value, lane)
#define __any_sync(mask, vote) (emulation::warp_votes(__LINE__, vote) > 0)
#define __all_sync(mask, vote) (emulation::warp_votes(__LINE__, vote) == 32)

using std::max;
using std::min;

template <class To, class From> To same_bits(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    memcpy(&result, &value, sizeof(To));
    return result;
}
inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
inline float __int_as_float(int bits) { return same_bits<float>(bits); }
inline unsigned __float_as_uint(float value) { return same_bits<unsigned>(value); }
inline int __float_as_int(float value) { return same_bits<int>(value); }

// One fibre runs at a time, so that an addition is never torn.
template <class T> T atomicAdd(T* at, T value) {
    T before = *at;
    *at = before + value;
    return before;
}

inline long long __float2ll_rn(float value) { return std::llrint(value); }

struct int2 { int x, y; };
struct uint2 { unsigned x, y; };
struct float2 { float x, y; };
struct uint4 { unsigned x, y, z, w; };
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
