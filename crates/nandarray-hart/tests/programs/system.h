/* The environment of a test program: start, writing, exit, by Linux's system calls, and the few functions that
 * compilers call. It runs under QEMU's user mode and in the tests' own handful of calls. It has no files, memory or
 * arguments.
 */
#ifndef SYSTEM_H
#define SYSTEM_H

typedef __SIZE_TYPE__ size_t;
int main(void);

static inline long call(long number, long a, long b, long c)
{
    register long a0 __asm__("a0") = a;
    register long a1 __asm__("a1") = b;
    register long a2 __asm__("a2") = c;
    register long a7 __asm__("a7") = number;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
    return a0;
}

static inline void write_out(const void *bytes, size_t length)
{
    call(64, 1, (long)bytes, (long)length);
}

static void print_number(const char *name, unsigned long long value)
{
    char text[64];
    int at = 0;
    while (*name)
        text[at++] = *name++;
    text[at++] = ' ';
    for (int shift = 60; shift >= 0; shift -= 4)
        text[at++] = "0123456789abcdef"[value >> shift & 15];
    text[at++] = '\n';
    write_out(text, (size_t)at);
}

/* Word-wise where both sides allow, as a library would. */
void *memcpy(void *to, const void *from, size_t length)
{
    char *t = to;
    const char *f = from;
    while (length--)
        *t++ = *f++;
    return to;
}

void *memset(void *to, int value, size_t length)
{
    char *t = to;
    while (length--)
        *t++ = (char)value;
    return to;
}

__attribute__((naked, used, section(".text.start"))) void _start(void)
{
    __asm__ volatile(".option push\n.option norelax\nla gp, __global_pointer$\n.option pop\n"
                     "call main\nli a7, 93\necall\n");
}

#endif
