/* A bare exchange over TCP: requests and answers of fixed lengths, batched, without a protocol; bench/nvme.py runs it.
 *
 *   exchange server IN OUT                    prints its port, serves one connection after the other
 *   exchange client PORT IN OUT DEPTH SECONDS prints operations, seconds, CPU seconds
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
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
