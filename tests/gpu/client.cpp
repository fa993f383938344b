// A program of another process: sums an array by threads, then stores into it and flushes.
//
//     client REGION
#include <cstdio>
#include <thread>

#include <nandarray/nandarray.hpp>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    using P = nda::host_policy;
    nda::mapping map(argv[1]);
    nda::client<P> client(map, 2, 4096, 16, {}, 10000000000ull);
    auto line = client.open<nda::u64>("line");
    nda::u64 sums[3] = {};
    std::thread threads[3];
    for (int t = 0; t < 3; ++t)
        threads[t] = std::thread([&, t] {
            for (nda::u64 i = nda::u64(t); i < line.size(); i += 3) sums[t] += line[i];
        });
    for (auto &thread : threads) thread.join();
    if (client.first_error()) return 3;
    for (nda::u64 i = 0; i < 64; ++i)
        if (line.store(i, i + 1)) return 4;
    if (line.flush(client.word())) return 5;
    if (client.pins()) return 6;
    std::printf("%llu\n", sums[0] + sums[1] + sums[2]);
    return 0;
}
