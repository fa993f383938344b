/* Requests to the host: bytes for the console, system calls, and an answer for those that nobody knows. */
#include "test.h"

/* Ask the host for \value; its answer is in a1. */
.macro ask high, value
    la t0, tohost
    la t1, fromhost
    sw zero, 0(t1)
    sw zero, 4(t1)
#if __riscv_xlen == 64
    li t2, \high << 48
    or t2, t2, \value
    sd t2, 0(t0)
#else
    sw \value, 0(t0)
    li t2, \high << 16
    sw t2, 4(t0)
#endif
.endm

BEGIN
#if __riscv_xlen == 64
    la s0, text
1:
    lbu a0, 0(s0)
    beqz a0, 2f
    ask 0x101, a0
    la t1, fromhost
    lw a1, 4(t1)
    EXPECT(1, a1, 0x1010000)
    addi s0, s0, 1
    j 1b
#else
    /* Two stores cannot name a byte and a device at once: a system call. */
    la a0, first
    ask 0, a0
#endif
2:
    /* write(1, text, 6) */
    la a0, call
    ask 0, a0
    la t1, fromhost
    lw a1, 0(t1)
    EXPECT(2, a1, 1)
    la a0, call
    lw a1, 0(a0)
    EXPECT(3, a1, 6)
    lw a1, tohost
    EXPECT(4, a1, 0)
    /* A call that nobody knows. */
    la a0, unknown
    ask 0, a0
    la a0, unknown
    lw a1, 0(a0)
    EXPECT(5, a1, -38)
    /* exit(0) */
    la a0, leave
    ask 0, a0
    j fail

    .section .data
    .balign 8
#if __riscv_xlen == 32
first:
    .dword 64, 1
    .word text, 0
    .dword 9
#endif
call:
    .dword 64, 1
    WORD written
#if __riscv_xlen == 32
    WORD 0
#endif
    .dword 6
unknown:
    .dword 1234, 0, 0, 0
leave:
    .dword 93, 0, 0, 0
text:
    .asciz "console, "
written:
    .ascii "write\n"
HOST
