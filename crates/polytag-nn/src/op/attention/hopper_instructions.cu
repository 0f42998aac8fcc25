// The instructions that only GPUs of compute capability 9.0 have: products whose right operand, or both, lie in
// shared memory and which run beside the threads that ask for them; barriers in shared memory; registers that
// change hands. Compiled after instructions.cu.

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory");
}

// Tells the compiler that sums may have changed until here.
template <int WIDTH>
__device__ __forceinline__ void settle(float (&sums)[WIDTH][4]) {
#pragma unroll
    for (int n = 0; n < WIDTH; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) asm volatile("" : "+f"(sums[n][e]) :: "memory");
    }
}

#define FOUR(x, n) "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])

// sums (64 x 64) (+)= left (64 x 16, in registers) * right (16 x 64), which lies [columns, depth] or, if BY_DEPTH,
// [depth, columns].
template <bool ADD, bool BY_DEPTH>
__device__ __forceinline__ void product(float (&sums)[8][4], const Fragment& left, u64 right) {
    asm volatile("{.reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, %38;}"
        : FOUR(sums, 0), FOUR(sums, 1), FOUR(sums, 2), FOUR(sums, 3), FOUR(sums, 4), FOUR(sums, 5),
          FOUR(sums, 6), FOUR(sums, 7)
        : "r"(left.part[0]), "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]), "l"(right),
          "n"(ADD ? 1 : 0), "n"(BY_DEPTH ? 1 : 0));
}

// sums (64 x 64) += left (64 x 16) * right (16 x 64), both in shared memory by depth.
__device__ __forceinline__ void product_by_depth(float (&sums)[8][4], u64 left, u64 right) {
    asm volatile("{.reg .pred p;\n"
        "setp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 1, 1;}"
        : FOUR(sums, 0), FOUR(sums, 1), FOUR(sums, 2), FOUR(sums, 3), FOUR(sums, 4), FOUR(sums, 5),
          FOUR(sums, 6), FOUR(sums, 7)
        : "l"(left), "l"(right));
}

// What was written to shared memory is there for the products of whoever passes the next barrier.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_for_copies_but() {
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
}

// All threads of a group of four warps meet at a barrier of their own.
__device__ __forceinline__ void meet_group(int barrier) {
    asm volatile("bar.sync %0, 128;" :: "r"(barrier) : "memory");
}

// A barrier in shared memory that `count` arrivals complete, again and again; whoever waits names the parity of the
// completion that he waits for.
__device__ __forceinline__ void begin_barrier(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void arrive(u32 barrier) {
    asm volatile("{.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];}" :: "r"(barrier) : "memory");
}
__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
    asm volatile("{.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n}" :: "r"(barrier), "r"(parity) : "memory");
}

// Registers that a group of four warps gives back, or gets.
template <int COUNT>
__device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(COUNT));
}

// Stores four 8 x 8 matrices, the rows of which lie where the lanes point, eight lanes a matrix.
__device__ __forceinline__ void store_matrices(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
