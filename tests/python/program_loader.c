/* Runs parts of a near-data program as a Linux process, under QEMU's user mode: an oracle for tests.
 *
 * Reads commands from standard input, each two words of 64 bits (a letter, and a number n), followed by arguments:
 * 'M' map n bytes (address); 'L' load n bytes (address, bytes); 'C' call address n (first argument, stack pointer) and
 * write the result, 8 bytes; 'D' write n bytes (address) to standard output; 'E' end.
 * Linked far above everything that programs use. No C library.
 */
#include <stddef.h>
#include <stdint.h>

static long call(long number, long a, long b, long c, long d, long e, long f) {
    register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c, a3 __asm__("a3") = d;
    register long a4 __asm__("a4") = e, a5 __asm__("a5") = f, a7 __asm__("a7") = number;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5), "r"(a7) : "memory");
    return a0;
}

__attribute__((noreturn)) static void leave(int status) {
    for (;;) call(94, status, 0, 0, 0, 0, 0);
}

static void read_all(void *to, uint64_t n) {
    for (uint64_t done = 0; done < n;) {
        long got = call(63, 0, (long)((char *)to + done), (long)(n - done), 0, 0, 0);
        if (got <= 0) leave(101);
        done += (uint64_t)got;
    }
}

static void write_all(const void *from, uint64_t n) {
    for (uint64_t done = 0; done < n;) {
        long put = call(64, 1, (long)((const char *)from + done), (long)(n - done), 0, 0, 0);
        if (put <= 0) leave(102);
        done += (uint64_t)put;
    }
}

int64_t nd_call_on_stack(void *argument, uintptr_t entry, uintptr_t stack);
__asm__(".text\n.globl nd_call_on_stack\nnd_call_on_stack:\n"
#if __riscv_xlen == 64
        "addi sp, sp, -16\nsd ra, 0(sp)\nsd s0, 8(sp)\nmv s0, sp\nmv sp, a2\njalr a1\nmv sp, s0\n"
        "ld ra, 0(sp)\nld s0, 8(sp)\naddi sp, sp, 16\nret\n"
#else
        "addi sp, sp, -16\nsw ra, 0(sp)\nsw s0, 8(sp)\nmv s0, sp\nmv sp, a2\njalr a1\nmv sp, s0\n"
        "lw ra, 0(sp)\nlw s0, 8(sp)\naddi sp, sp, 16\nret\n"
#endif
);

void start(void) {
    for (;;) {
        uint64_t what[2], more[2];
        read_all(what, sizeof what);
        uintptr_t n = (uintptr_t)what[1];
        switch (what[0]) {
        case 'M': /* fixed, private, of no file; readable, writable, executable */
            read_all(more, 8);
            if (call(222, (long)more[0], (long)n, 7, 0x32, -1, 0) != (long)more[0]) leave(103);
            break;
        case 'L':
            read_all(more, 8);
            read_all((void *)(uintptr_t)more[0], n);
            break;
        case 'C': {
            read_all(more, 16);
            int64_t result = nd_call_on_stack((void *)(uintptr_t)more[0], n, (uintptr_t)more[1]);
            write_all(&result, 8);
            break;
        }
        case 'D':
            read_all(more, 8);
            write_all((void *)(uintptr_t)more[0], n);
            break;
        default: leave(0);
        }
    }
}
