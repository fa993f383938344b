/* Bare programs whose cache counts are compared with those of Spike: one for each value of PROGRAM, without atomic,
   compressed or floating-point instructions. The result goes to `result`, so that nothing is left out. */

typedef unsigned int u32;
typedef unsigned long long u64;

volatile u64 tohost __attribute__((section(".tohost"), aligned(64)));
volatile u64 fromhost __attribute__((section(".tohost"), aligned(64)));
volatile u64 result;
static volatile u32 a[32768], b[32768];
static volatile u64 wide[8192];
char stack[8192] __attribute__((aligned(64)));

static u64 seed = 88172645463325252ull;

static u64 chance(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static u64 run(void) {
    u64 sum = 0;
#if PROGRAM == 0 /* a sum over lines */
    for (int i = 0; i < 32768; i++) sum += a[i];
#elif PROGRAM == 1 /* a walk with a stride of a line and a half */
    for (int round = 0; round < 6; round++)
        for (int i = 0; i < 32768; i += 24) sum += a[i], b[i] = round;
#elif PROGRAM == 2 /* random reads and writes */
    for (int i = 0; i < 6000; i++) {
        u64 n = chance();
        sum += a[n & 32767];
        b[(n >> 20) & 32767] = (u32)i;
    }
#elif PROGRAM == 3 /* a product of matrices */
    for (int i = 0; i < 24; i++)
        for (int j = 0; j < 24; j++) {
            u32 dot = 0;
            for (int k = 0; k < 24; k++) dot += a[24 * i + k] * b[24 * k + j];
            wide[24 * i + j] = dot;
        }
    sum = wide[100];
#elif PROGRAM == 4 /* a transposition */
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 128; j++) b[128 * j + i] = a[128 * i + j] + 1;
    sum = b[77];
#elif PROGRAM == 5 /* the sieve of Eratosthenes */
    volatile unsigned char *composite = (volatile unsigned char *)a;
    for (u32 p = 2; p < 20000; p++) {
        if (composite[p]) continue;
        sum++;
        for (u32 q = p * 2; q < 20000; q += p) composite[q] = 1;
    }
#elif PROGRAM == 6 /* a list in random order */
    for (u32 i = 0; i < 4096; i++) a[i] = (i * 1597 + 7) & 4095;
    u32 at = 0;
    for (int i = 0; i < 20000; i++) at = a[at], sum += at;
#elif PROGRAM == 7 /* insertion into a hash table */
    for (int i = 0; i < 2500; i++) {
        u64 key = chance() | 1;
        u64 slot = key * 0x9e3779b97f4a7c15ull >> 51;
        while (wide[slot & 8191] != 0) slot++;
        wide[slot & 8191] = key;
        sum += slot;
    }
#elif PROGRAM == 8 /* a heap */
    u32 n = 0;
    for (int i = 0; i < 1200; i++) {
        u32 child = n++;
        a[child] = (u32)chance();
        while (child > 0 && a[(child - 1) / 2] > a[child]) {
            u32 up = (child - 1) / 2, keep = a[up];
            a[up] = a[child], a[child] = keep, child = up;
        }
    }
    sum = a[0];
#elif PROGRAM == 9 /* a histogram of bytes */
    for (int i = 0; i < 12000; i++) b[((volatile unsigned char *)a)[i] + (i * 37 & 255)]++;
    sum = b[9];
#elif PROGRAM == 10 /* the longest common subsequence, row by row */
    for (int i = 1; i < 100; i++)
        for (int j = 1; j < 100; j++) {
            u32 same = (u32)(i * 7 % 5 == j * 3 % 5);
            u32 left = a[128 * i + j - 1], up = a[128 * (i - 1) + j];
            u32 most = left > up ? left : up;
            a[128 * i + j] = same ? a[128 * (i - 1) + j - 1] + 1 : most;
        }
    sum = a[128 * 99 + 99];
#elif PROGRAM == 11 /* much code: a jump to one of many functions */
    for (int i = 0; i < 3000; i++) {
        switch (chance() & 31) {
#define CASE(n)                                                   \
    case n:                                                       \
        sum = sum * (2 * n + 3) ^ (a[(sum + n) & 32767] += n * 5 + 1); \
        sum = (sum << 3) - (sum >> (n + 1)) + n;                  \
        b[(sum >> 5) & 32767] ^= sum * n;                         \
        break;
            CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11)
            CASE(12) CASE(13) CASE(14) CASE(15) CASE(16) CASE(17) CASE(18) CASE(19) CASE(20) CASE(21) CASE(22)
            CASE(23) CASE(24) CASE(25) CASE(26) CASE(27) CASE(28) CASE(29) CASE(30) CASE(31)
        }
    }
#endif
    return sum;
}

__attribute__((used)) void start_in_c(void) {
    result = run();
    tohost = 1;
}

__asm__(".section .text.start, \"ax\"\n"
        ".globl _start, spin\n"
        "_start:\n"
        "  la sp, stack + 8192\n"
        "  call start_in_c\n"
        "spin:\n"
        "  j spin\n");
