// AdamW over all weights. They lie end to end; a tile is a run of at most 4096 of them with one setting, and
// begins and ends at a multiple of 64. A block of 256 threads takes a tile, four numbers a thread at a time.

#define THREADS 256

struct Tile { u32 first, length, setting, unused; };

// What is the same for all weights of a setting at a step. The bias corrections are in `step_size` and
// `root_scale`.
struct Setting { float keep, step_size, root_scale, epsilon, beta1, rest1, beta2, rest2; };

// `refused` is the first step whose gradient had a norm that is no finite number; zero for none. From then on
// nothing is changed, until the host has seen it. `factor` is what gradients are multiplied by.
struct Status { u64 refused; float factor, unused; };

extern "C" __global__ void squared_norm(const float* gradients, const Tile* tiles, int count, double* partial) {
    __shared__ double sums[THREADS];
    double sum = 0.0;
    for (int index = blockIdx.x; index < count; index += gridDim.x) {
        Tile tile = tiles[index];
        const float4* from = (const float4*)(gradients + tile.first);
        float own = 0.0f;
        for (u32 i = threadIdx.x; i < tile.length / 4; i += THREADS) {
            float4 g = from[i];
            own += (g.x * g.x + g.y * g.y) + (g.z * g.z + g.w * g.w);
        }
        sum += own;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}

// Adds the blocks' sums up, by one block of 1024 threads; the norm is for whoever asks later. `clip` is the
// greatest norm that a gradient may have; zero for any.
extern "C" __global__ void finish_norm(const double* partial, int count, Status* status, float* norm, long long step,
                                       float clip) {
    __shared__ double sums[1024];
    double sum = 0.0;
    for (int i = threadIdx.x; i < count; i += 1024) sum += partial[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 512; half; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        float found = *norm = (float)sqrt(sums[0]);
        status->factor = clip > 0.0f && found > clip ? clip / found : 1.0f;
        if (!isfinite(found) && status->refused == 0) status->refused = step;
    }
}

__device__ __forceinline__ float moved(float& first, float& second, float gradient, float master, const Setting& s) {
    first = s.beta1 * first + s.rest1 * gradient;
    second = s.beta2 * second + s.rest2 * gradient * gradient;
    return s.keep * master - s.step_size * first / (sqrtf(second) * s.root_scale + s.epsilon);
}

// One step.
extern "C" __global__ __launch_bounds__(THREADS) void update(
    const float* __restrict__ gradients, float* __restrict__ firsts, float* __restrict__ seconds,
    float* __restrict__ masters, bf16* __restrict__ halves, const Tile* __restrict__ tiles,
    const Setting* __restrict__ settings, const Status* __restrict__ status) {
    if (status->refused != 0) return;
    Tile tile = tiles[blockIdx.x];
    Setting setting = settings[tile.setting];
    float factor = status->factor;
    const float4* gradient = (const float4*)(gradients + tile.first);
    float4* first = (float4*)(firsts + tile.first);
    float4* second = (float4*)(seconds + tile.first);
    float4* master = (float4*)(masters + tile.first);
    uint2* half = (uint2*)(halves + tile.first);
    #pragma unroll 2
    for (u32 i = threadIdx.x; i < tile.length / 4; i += THREADS) {
        float4 g = __ldcs(gradient + i), m = __ldcs(first + i), v = __ldcs(second + i), w = __ldcs(master + i);
        w.x = moved(m.x, v.x, factor * g.x, w.x, setting);
        w.y = moved(m.y, v.y, factor * g.y, w.y, setting);
        w.z = moved(m.z, v.z, factor * g.z, w.z, setting);
        w.w = moved(m.w, v.w, factor * g.w, w.w, setting);
        __stcs(first + i, m);
        __stcs(second + i, v);
        __stcs(master + i, w);
        half[i] = make_uint2(narrow_pair(w.x, w.y), narrow_pair(w.z, w.w));
    }
}
