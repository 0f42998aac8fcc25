// The instructions of a GPU that attention's kernels call by name: copies to shared memory and accesses to it by
// address, matrices in registers, products of those. Compiled first, after random.cu and prelude.cu. Attention's kernels are
// run on a CPU with another text in the place of this one, which does the same in C++: what can be said without
// naming an instruction belongs elsewhere.

typedef unsigned short bf16;

// A lane's part of a 16 x 16 left operand, or of two 16 x 8 right operands.
struct Fragment { u32 part[4]; };

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

// Starts a copy of 16 bytes to shared memory; zeros, and nothing read, where there is no source.
__device__ __forceinline__ void copy_chunk(u32 to, const void* from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

__device__ __forceinline__ void copy_float(u32 to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ Fragment load_matrices(u32 address) {
    Fragment f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.part[0]), "=r"(f.part[1]), "=r"(f.part[2]), "=r"(f.part[3])
                 : "r"(address) : "memory");
    return f;
}

__device__ __forceinline__ Fragment load_transposed(u32 address) {
    Fragment f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.part[0]), "=r"(f.part[1]), "=r"(f.part[2]), "=r"(f.part[3])
                 : "r"(address) : "memory");
    return f;
}

// sum += left (16 x 16) * right (16 x 8), the right operand in two parts.
__device__ __forceinline__ void multiply_add(float (&sum)[4], const Fragment& left, u32 right0, u32 right1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left.part[0]), "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]),
          "r"(right0), "r"(right1));
}

// Two values rounded to bf16, the first in the low half.
__device__ __forceinline__ u32 pack(float first, float second) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
    return packed;
}

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The same number, of which the compiler does not know how to compute it again: it stays in a register.
__device__ __forceinline__ u32 opaque(u32 x) {
    asm volatile("mov.u32 %0, %0;" : "+r"(x));
    return x;
}

// Whether the values that a random number's halves stand for are kept.
struct Kept { bool low, high; };

// Fifteen bits of either half, as a positive 16-bit float, against the threshold: both in one instruction.
// What is not a number lies above every threshold and is kept.
__device__ __forceinline__ Kept kept(u32 bits, u32 thresholds) {
    u32 low, high;
    asm("{.reg .pred p, q;\n"
        "setp.geu.f16x2 p|q, %2, %3;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "selp.u32 %1, 1, 0, q;}"
        : "=r"(low), "=r"(high) : "r"(bits & 0x7fff7fff), "r"(thresholds));
    return {low != 0, high != 0};
}

__device__ __forceinline__ void store_word(u32 address, u32 word) {
    asm volatile("st.shared.u32 [%0], %1;" :: "r"(address), "r"(word) : "memory");
}

__device__ __forceinline__ uint4 load_chunk(u32 address) {
    uint4 c;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c.x), "=r"(c.y), "=r"(c.z), "=r"(c.w) : "r"(address) : "memory");
    return c;
}

__device__ __forceinline__ float load_bf16(u32 address) {
    unsigned short half;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(address) : "memory");
    return __uint_as_float((u32)half << 16);
}
