// The kernels of `python -m bench gpu`: the bodies of `kernels.hpp` with the policy for GPUs.
#include "kernels.hpp"

using P = nda::cuda_policy;
using nda::u32;
using nda::u64;
using nda::u8;
using words = nda::array<u64, P>;
using floats = nda::array<float, P>;

static __device__ __forceinline__ bench::place here() {
    return {u64(blockIdx.x) * blockDim.x + threadIdx.x, u64(gridDim.x) * blockDim.x};
}

extern "C" __global__ void read_lanes(const u8 *from, u64 bytes, u32 lane_bytes, u64 *sum) {
    bench::read_lanes<P>(here(), from, bytes, lane_bytes, sum);
}
extern "C" __global__ void chase(const u64 *next, u64 steps, u64 *out) { bench::chase<P>(here(), next, steps, out); }
extern "C" __global__ void release_cost(u64 *data, nda::shared_u32 *flag, u64 *near, u32 *near_flag, u32 times, u64 *out) {
    bench::release_cost<P>(here(), data, flag, near, near_flag, times, out);
}
extern "C" __global__ void poll_rate(const nda::shared_u64 *half, u64 looks, u64 *out) {
    bench::poll_rate<P>(here(), half, looks, out);
}
extern "C" __global__ void ping_pong(const nda::shared_u32 *theirs, nda::shared_u32 *mine, u32 rounds, bench::guard g, u64 *out) {
    bench::ping_pong<P>(here(), theirs, mine, rounds, g, out);
}
extern "C" __global__ void random_reads(words a, u64 range, u64 times, u64 seed, u64 *out) {
    bench::random_reads<P>(here(), a, range, times, seed, out);
}
extern "C" __global__ void gather_rows(words a, const u64 *numbers, u64 records, u32 row_words, u64 *rows, u64 *out) {
    bench::gather_rows<P>(here(), a, numbers, records, row_words, rows, out);
}
extern "C" __global__ void vector_add_lines(floats a, floats b, floats c, u64 *out) {
    bench::vector_add_lines<P>(here(), a, b, c, out);
}
extern "C" __global__ void add_plain(const float *a, const float *b, float *c, u64 n) {
    bench::add_plain<P>(here(), a, b, c, n);
}
extern "C" __global__ void store_words(words a, u64 n, u64 salt, u64 *out) { bench::store_words<P>(here(), a, n, salt, out); }
extern "C" __global__ void flush_once(words a, nda::completion_word *word, u64 *out) {
    bench::flush_once<P>(here(), a, word, out);
}
extern "C" __global__ void read_statuses(words a, u64 first, u64 stride, u32 *why, u64 *values) {
    bench::read_statuses<P>(here(), a, first, stride, why, values);
}
