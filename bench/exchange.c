/* A bare exchange over TCP: requests and answers of fixed lengths, batched, without a protocol; bench/nvme.py runs it.
 *
 *   exchange server IN OUT [SPAN]             prints its port, serves one connection after the other; answers come
 *                                             from one hot buffer, or each from another place of SPAN bytes
 *   exchange client PORT IN OUT DEPTH SECONDS prints operations, seconds, CPU seconds
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char buffer[4 << 20], zeroes[4 << 20];

static void send_all(int fd, size_t n) {
  while (n) {
    ssize_t sent = write(fd, zeroes, n < sizeof zeroes ? n : sizeof zeroes);
    if (sent <= 0) exit(0);
    n -= (size_t)sent;
  }
}

/* Sends answers of `out` bytes, each from another place of `span` bytes, as a read of random blocks has to. */
static void send_places(int fd, size_t answers, size_t out, const char *memory, size_t span) {
  static uint64_t state = 1;
  while (answers) {
    struct iovec parts[64];
    int count = answers < 64 ? (int)answers : 64, first = 0;
    for (int i = 0; i < count; i++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      parts[i].iov_base = (void *)(memory + (state >> 33) % ((span - out) / 512) * 512);
      parts[i].iov_len = out;
    }
    answers -= (size_t)count;
    while (first < count) {
      ssize_t sent = writev(fd, parts + first, count - first);
      if (sent <= 0) exit(0);
      while (first < count && (size_t)sent >= parts[first].iov_len) sent -= (ssize_t)parts[first++].iov_len;
      if (first < count) {
        parts[first].iov_base = (char *)parts[first].iov_base + sent;
        parts[first].iov_len -= (size_t)sent;
      }
    }
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
  int one = 1, is_server = argc > 1 && !strcmp(argv[1], "server");
  if (argc < (is_server ? 4 : 7)) return 2;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (is_server) {
    size_t in = strtoul(argv[2], 0, 10), out = strtoul(argv[3], 0, 10);
    size_t span = argc > 4 ? strtoul(argv[4], 0, 10) : 0;
    char *memory = span ? malloc(span) : 0;
    if (span && (!memory || span < out + 512)) return 2;
    for (size_t i = 0; i < span; i++) memory[i] = (char)(i >> 9);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof at;
    if (bind(listener, (void *)&at, length) || listen(listener, 8)) return 1;
    getsockname(listener, (void *)&at, &length);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
      int fd = accept(listener, 0, 0);
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      size_t have = 0;
      ssize_t got;
      while ((got = read(fd, buffer, sizeof buffer)) > 0) {
        have += (size_t)got;
        if (span)
          send_places(fd, have / in, out, memory, span);
        else
          send_all(fd, have / in * out);
        have %= in;
      }
      close(fd);
    }
  }
  size_t in = strtoul(argv[3], 0, 10), out = strtoul(argv[4], 0, 10), depth = strtoul(argv[5], 0, 10);
  double seconds = atof(argv[6]);
  at.sin_port = htons((unsigned short)atoi(argv[2]));
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, (void *)&at, sizeof at)) return 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  double begin = now();
  size_t have = 0, done = 0;
  send_all(fd, depth * in);
  while (now() - begin < seconds) {
    ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return 1;
    have += (size_t)got;
    size_t ended = have / out;
    have %= out;
    done += ended;
    send_all(fd, ended * in);
  }
  double took = now() - begin;
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  printf("%zu %f %f\n", done, took,
         (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
             (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6);
  return 0;
}
