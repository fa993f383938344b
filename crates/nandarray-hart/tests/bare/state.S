/* Floating-point state, code that changes, and the width of registers: what bare machines switch and rewrite. */
#include "test.h"

BEGIN
    /* Off: every floating-point instruction is illegal, and so are its registers. */
    li a0, 0x6000
    csrc mstatus, a0
    TRAPS(1, 2, fadd.d fa0, fa0, fa0)
    TRAPS(2, 2, flw fa0, 0(sp))
    TRAPS(3, 2, csrr a0, fcsr)
    /* On: dirty at once. */
    li a0, 0x2000
    csrs mstatus, a0
#ifndef PORTABLE
    csrr a1, mstatus
    li a2, 0x6000
    and a1, a1, a2
    EXPECT(4, a1, 0x6000)
    csrr a1, mstatus
    li gp, 5
    bgez a1, fail
#endif
    csrwi fcsr, 0
    li a0, 3
    fcvt.d.w fa0, a0
    fmul.d fa1, fa0, fa0
    fcvt.w.d a1, fa1, rtz
    EXPECT(6, a1, 9)
    fdiv.d fa1, fa0, fa1
    csrr a1, fflags
    EXPECT(7, a1, 1)
    /* Code that was executed, rewritten, and executed again behind a fence. */
    li gp, 8
    call changing
    EXPECT(9, a0, 1)
    la t0, changing
    lw t1, replacement
    sw t1, 0(t0)
    fence.i
    call changing
    EXPECT(10, a0, 2)
    /* What the machine says of itself. */
    csrr a0, misa
    li t0, 1 << 8 | 1 << 12 | 1 << 0 | 1 << 5 | 1 << 3 | 1 << 2
    and a1, a0, t0
    li gp, 11
    bne a1, t0, fail
    srli a0, a0, __riscv_xlen - 2
    EXPECT(12, a0, __riscv_xlen / 32)
    /* A signature of what is known. */
    la t0, begin_signature
    li t1, 0x01020304
    sw t1, 0(t0)
    fsd fa0, 8(t0)
    j pass

    .balign 4
    .option push
    .option norvc
changing:
    li a0, 1
    ret
replacement:
    li a0, 2
    .option pop

    .section .data
    .balign 16
    .globl begin_signature, end_signature
begin_signature:
    .word 0, 5, 0, 0
end_signature:
HOST
