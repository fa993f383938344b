// The calls of CUDA's driver that `python -m bench gpu` makes, on threads of this machine: the whole script, its kernels'
// bodies and the real server run in a test. A thread of a grid is a warp of one lane; a grid runs beside its caller.
//
// Memory of the host that is registered is mapped a second time, so that an address of the wrong side is another one.
// The environment can make it fail: NANDARRAY_CARD_HANGS names a kernel that never ends, NANDARRAY_CARD_FAULTS one whose
// launch ends with an error, NANDARRAY_CARD_COUNT the number of cards. Not here: anything that is like a card's speed.
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "nandarray/nandarray.hpp"

namespace {

using nda::u32;
using nda::u64;
using P = nda::host_policy;
/// A kernel's body, and the bytes of each parameter, which a launch copies.
struct Kernel {
    std::function<void(bench::place, void **)> work;
    std::vector<size_t> bytes;
};

enum Result : int { success = 0, invalid = 1, no_memory = 2, not_found = 500, not_ready = 600, launch_failed = 719 };
constexpr u32 threads_of_a_grid = 4;

template <class... A, size_t... I> void call(void (*body)(bench::place, A...), bench::place at, void **words, std::index_sequence<I...>) {
    body(at, *static_cast<A *>(words[I])...);
}
template <class... A> Kernel kernel(void (*body)(bench::place, A...)) {
    return {[body](bench::place at, void **words) { call(body, at, words, std::index_sequence_for<A...>()); }, {sizeof(A)...}};
}

const std::map<std::string, Kernel> kernels = {
    {"read_lanes", kernel(bench::read_lanes<P>)},
    {"chase", kernel(bench::chase<P>)},
    {"release_cost", kernel(bench::release_cost<P>)},
    {"poll_rate", kernel(bench::poll_rate<P>)},
    {"ping_pong", kernel(bench::ping_pong<P>)},
    {"random_reads", kernel(bench::random_reads<P>)},
    {"gather_rows", kernel(bench::gather_rows<P>)},
    {"vector_add_lines", kernel(bench::vector_add_lines<P>)},
    {"add_plain", kernel(bench::add_plain<P>)},
    {"store_words", kernel(bench::store_words<P>)},
    {"flush_once", kernel(bench::flush_once<P>)},
    {"read_statuses", kernel(bench::read_statuses<P>)},
};
using Function = std::map<std::string, Kernel>::const_iterator;

/// Its time, once what was before it on the stream has ended.
using Event = std::atomic<u64>;
struct Grid {
    std::atomic<bool> ended{true}, failed{false};
    std::thread thread;
    std::mutex lock;
    std::vector<Event *> behind;
};
Grid grid;
std::mutex memory_lock;
/// What the device sees of memory of the host: where, and how much.
std::map<u64, std::pair<u64, u64>> seen;

bool named(const char *variable, const std::string &kernel) {
    const char *name = std::getenv(variable);
    return name && kernel == name;
}

void run(Function function, std::vector<std::vector<char>> words, u64 threads) {
    while (named("NANDARRAY_CARD_HANGS", function->first)) sleep(1);
    std::vector<void *> at;
    for (auto &word : words) at.push_back(word.data());
    std::vector<std::thread> all;
    std::atomic<u64> next{0};
    for (u32 t = 0; t < threads_of_a_grid; ++t)
        all.emplace_back([&] {
            for (u64 i = next++; i < threads; i = next++) function->second.work({i, threads}, at.data());
        });
    for (auto &one : all) one.join();
    if (named("NANDARRAY_CARD_FAULTS", function->first)) grid.failed = true;
    std::lock_guard<std::mutex> hold(grid.lock);
    for (Event *event : grid.behind) *event = P::now_ns();
    grid.behind.clear();
    grid.ended = true;
}

void *shared_memory(u64 bytes) {
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? nullptr : at;
}

int map_again(void *at, u64 bytes) {
    std::lock_guard<std::mutex> hold(memory_lock);
    void *again = mremap(at, 0, bytes, MREMAP_MAYMOVE);
    // Memory that only this process has cannot be mapped twice.
    if (again == MAP_FAILED) again = at;
    seen[reinterpret_cast<u64>(at)] = {reinterpret_cast<u64>(again), bytes};
    return success;
}

int unmap_again(void *at) {
    std::lock_guard<std::mutex> hold(memory_lock);
    auto found = seen.find(reinterpret_cast<u64>(at));
    if (found == seen.end()) return invalid;
    if (found->second.first != found->first) munmap(reinterpret_cast<void *>(found->second.first), found->second.second);
    seen.erase(found);
    return success;
}

int finish() {
    if (grid.thread.joinable()) grid.thread.join();
    return grid.failed ? launch_failed : success;
}

}  // namespace

extern "C" {

int cuInit(u32) { return success; }
int cuDriverGetVersion(int *version) { return *version = 13000, success; }
int cuDeviceGetCount(int *count) {
    const char *said = std::getenv("NANDARRAY_CARD_COUNT");
    return *count = said ? std::atoi(said) : 1, success;
}
int cuDeviceGet(int *device, int) { return *device = 0, success; }
int cuDeviceGetName(char *name, int bytes, int) { return std::strncpy(name, "threads of a host", size_t(bytes)), success; }
int cuDeviceGetAttribute(int *value, int what, int) { return *value = what == 75 ? 9 : what == 76 ? 0 : 1, success; }
int cuDevicePrimaryCtxRetain(void **context, int) { return *context = &grid, success; }
int cuCtxSetCurrent(void *) { return success; }
int cuGetErrorName(int code, const char **name) {
    return *name = code == launch_failed ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR", success;
}

int cuMemGetInfo_v2(size_t *free, size_t *all) { return *free = *all = size_t(1) << 32, success; }
int cuMemAlloc_v2(u64 *to, size_t bytes) {
    return posix_memalign(reinterpret_cast<void **>(to), 256, bytes) ? no_memory : success;
}
int cuMemFree_v2(u64 at) { return std::free(reinterpret_cast<void *>(at)), success; }
int cuMemHostAlloc(void **to, size_t bytes, u32) {
    *to = shared_memory(bytes);
    return *to ? map_again(*to, bytes) : no_memory;
}
int cuMemFreeHost(void *at) {
    u64 bytes = seen.at(reinterpret_cast<u64>(at)).second;
    int code = unmap_again(at);
    munmap(at, bytes);
    return code;
}
int cuMemHostRegister_v2(void *at, size_t bytes, u32) { return map_again(at, bytes); }
int cuMemHostUnregister(void *at) { return unmap_again(at); }
int cuMemHostGetDevicePointer_v2(u64 *to, void *at, u32) {
    auto found = seen.find(reinterpret_cast<u64>(at));
    return found == seen.end() ? invalid : (*to = found->second.first, success);
}
int cuMemcpyHtoD_v2(u64 to, const void *from, size_t n) { return std::memcpy(reinterpret_cast<void *>(to), from, n), success; }
int cuMemcpyDtoH_v2(void *to, u64 from, size_t n) { return std::memcpy(to, reinterpret_cast<void *>(from), n), success; }
// In the order of the stream, hence behind its kernel.
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t n, void *) { return finish() ? launch_failed : cuMemcpyHtoD_v2(to, from, n); }
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t n, void *) { return finish() ? launch_failed : cuMemcpyDtoH_v2(to, from, n); }
int cuMemsetD8_v2(u64 at, unsigned char value, size_t n) { return std::memset(reinterpret_cast<void *>(at), value, n), success; }

int cuStreamCreate(void **stream, u32) { return *stream = &grid, success; }
int cuStreamQuery(void *) { return !grid.ended ? not_ready : finish(); }
int cuEventCreate(void **event, u32) { return *event = new Event(0), success; }
int cuEventDestroy_v2(void *event) { return delete static_cast<Event *>(event), success; }
int cuEventRecord(void *event, void *) {
    std::lock_guard<std::mutex> hold(grid.lock);
    if (grid.ended) *static_cast<Event *>(event) = P::now_ns();
    else grid.behind.push_back(static_cast<Event *>(event));
    return success;
}
int cuEventElapsedTime(float *ms, void *from, void *to) {
    u64 began = *static_cast<Event *>(from), ended = *static_cast<Event *>(to);
    return ended == 0 ? not_ready : (*ms = float(double(ended - began) / 1e6), success);
}

int cuModuleLoadData(void **module, const void *) { return *module = &grid, success; }
int cuModuleGetFunction(void **function, void *, const char *name) {
    auto found = kernels.find(name);
    return found == kernels.end() ? not_found : (*function = new Function(found), success);
}
int cuLaunchKernel(void *function, u32 blocks, u32, u32, u32 threads, u32, u32, u32, void *, void **parameters, void **) {
    if (finish() != success) return launch_failed;
    std::vector<std::vector<char>> words;
    Function f = *static_cast<Function *>(function);
    for (size_t i = 0; i < f->second.bytes.size(); ++i) {
        const char *from = static_cast<const char *>(parameters[i]);
        words.emplace_back(from, from + f->second.bytes[i]);
    }
    grid.ended = false;
    grid.thread = std::thread(run, f, std::move(words), u64(blocks) * threads);
    return success;
}
}
