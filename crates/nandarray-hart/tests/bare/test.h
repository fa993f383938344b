/* The frame of the bare-metal tests: a trap handler that notes a trap and goes on behind it, comparisons, the end.
 *
 * The handler leaves the cause in s0, the program counter in s1, the value in s2, and jumps to the address in s11, in
 * the mode that the trap came from. gp holds the number of the test that runs.
 */
#if __riscv_xlen == 64
#define SREG sd
#define LREG ld
#define WORD .dword
#define BYTES 8
#else
#define SREG sw
#define LREG lw
#define WORD .word
#define BYTES 4
#endif

#define BEGIN                                                                                                         \
    .section .text.start, "ax";                                                                                       \
    .globl _start;                                                                                                    \
_start:                                                                                                               \
    la t0, handler;                                                                                                   \
    csrw mtvec, t0;                                                                                                   \
    li t0, -1;                                                                                                        \
    csrw pmpaddr0, t0;                                                                                                \
    li t0, 0x1f;                                                                                                      \
    csrw pmpcfg0, t0;                                                                                                 \
    li gp, 0;                                                                                                         \
    j main;                                                                                                           \
    .balign 4;                                                                                                        \
handler:                                                                                                              \
    csrr s0, mcause;                                                                                                  \
    csrr s1, mepc;                                                                                                    \
    csrr s2, mtval;                                                                                                   \
    csrw mepc, s11;                                                                                                   \
    mret;                                                                                                             \
fail:                                                                                                                 \
    slli gp, gp, 1;                                                                                                   \
    ori gp, gp, 1;                                                                                                    \
    j end;                                                                                                            \
pass:                                                                                                                 \
    li gp, 1;                                                                                                         \
end:                                                                                                                  \
    la t0, tohost;                                                                                                    \
    sw gp, 0(t0);                                                                                                     \
    sw zero, 4(t0);                                                                                                   \
    j end;                                                                                                            \
main:

#define HOST                                                                                                          \
    .section .tohost, "aw";                                                                                           \
    .balign 64;                                                                                                       \
    .globl tohost, fromhost;                                                                                          \
    .size tohost, 8;                                                                                                  \
    .size fromhost, 8;                                                                                                \
tohost:                                                                                                               \
    .dword 0;                                                                                                         \
fromhost:                                                                                                             \
    .dword 0;

/* Test `n`: `register` holds `value`. */
#define EXPECT(n, register, value)                                                                                    \
    li gp, n;                                                                                                         \
    li t6, value;                                                                                                     \
    bne register, t6, fail;

/* Test `n`: `instruction` traps with `cause`, at itself, with its value in `s2`. */
#define TRAPS(n, number, ...)                                                                                         \
    li gp, n;                                                                                                         \
    li s0, -1;                                                                                                        \
    la s11, 2f;                                                                                                       \
    la s3, 1f;                                                                                                        \
1:                                                                                                                    \
    __VA_ARGS__;                                                                                                      \
    j fail;                                                                                                           \
    .balign 4;                                                                                                        \
2:                                                                                                                    \
    li t6, number;                                                                                                    \
    bne s0, t6, fail;                                                                                                 \
    bne s1, s3, fail;
