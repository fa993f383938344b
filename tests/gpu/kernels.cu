// Kernels that fetch for themselves, compiled for several architectures by `make cuda`; no machine here runs them.
#include "nandarray/array.hpp"

using array_u64 = nda::array<unsigned long long, nda::cuda_policy>;
using array_f32 = nda::array<float, nda::cuda_policy>;

extern "C" __global__ void sum(array_u64 data, nda::u64 n, unsigned long long *out) {
    nda::u64 i = nda::u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, data[i]);
}

extern "C" __global__ void vector_add(array_f32 a, array_f32 b, array_f32 c, nda::u64 n) {
    nda::u64 i = nda::u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) c.store(i, a[i] + b[i]);
}

extern "C" __global__ void bfs_step(array_u64 offsets, array_u64 edges, unsigned *level, unsigned now, unsigned *more, nda::u64 n) {
    nda::u64 node = nda::u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (node >= n || level[node] != now) return;
    for (nda::u64 e = offsets[node], last = offsets[node + 1]; e < last; ++e) {
        unsigned long long to = edges[e];
        if (level[to] == 0xffffffffu) {
            level[to] = now + 1;
            *more = 1;
        }
    }
}
