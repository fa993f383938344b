/* Traps in machine mode: every cause that there is, with its program counter and value. */
#include "test.h"

BEGIN
    TRAPS(1, 2, .word 0xffffffff)
    EXPECT(2, s2, 0xffffffff)
    TRAPS(3, 3, ebreak)
    TRAPS(4, 11, ecall)
    li a0, 16
    TRAPS(5, 5, lw a1, 4(a0))
    EXPECT(6, s2, 20)
    TRAPS(7, 7, sb a1, 5(a0))
    EXPECT(8, s2, 21)
    la a0, data
    addi a0, a0, 2
#ifndef PORTABLE
    TRAPS(9, 4, lr.w a1, (a0))
    bne s2, a0, fail
    TRAPS(10, 6, amoadd.w a1, a1, (a0))
    bne s2, a0, fail
#endif
    /* Misaligned loads and stores are no traps. */
    li gp, 11
    li a1, 0x11223344
    sw a1, 1(a0)
    lw a2, 1(a0)
    bne a1, a2, fail
    /* A fetch from where nothing is: the program counter is there. */
    li gp, 12
    la s11, 3f
    li a0, 64
    jr a0
    j fail
    .balign 4
3:
    EXPECT(13, s0, 1)
    EXPECT(14, s1, 64)
    EXPECT(15, s2, 64)
    /* Registers that there are not, and those that cannot be written. */
    TRAPS(16, 2, csrr a0, 0x5c0)
    TRAPS(17, 2, csrw cycle, a0)
    TRAPS(18, 2, csrw mhartid, a0)
    csrr a0, mhartid
    EXPECT(19, a0, 0)
    /* Reading only is allowed where nothing is written. */
    csrrs a0, instret, x0
    TRAPS(20, 2, csrrs a0, instret, a1)
    /* No mode 2. */
    li a0, 0x1800
    csrc mstatus, a0
    li a1, 0x1000
    csrs mstatus, a1
    csrr a2, mstatus
    and a2, a2, a0
#ifndef PORTABLE
    EXPECT(21, a2, 0)
#endif
    csrs mstatus, a0
    csrr a2, mstatus
    and a2, a2, a0
    EXPECT(22, a2, 0x1800)
#ifndef PORTABLE
    /* Tables that there are not cannot be named; an address has as many bits as memory can. */
    li a0, -1
#if __riscv_xlen == 64
    csrw satp, a0
    csrr a1, satp
    EXPECT(23, a1, 0)
    csrw pmpaddr1, a0
    csrr a1, pmpaddr1
    srli a0, a0, 10
    bne a1, a0, fail
#else
    csrw pmpaddr1, a0
    csrr a1, pmpaddr1
    EXPECT(24, a1, -1)
#endif
    csrw tselect, a0
    csrr a1, tdata1
    EXPECT(25, a1, 0)
    /* The counter is set to what is written. */
    li a0, 1000
    csrw minstret, a0
    csrr a1, minstret
    EXPECT(26, a1, 1000)
#endif
    /* A trap stores the mode it came from and switches interrupts off; returning undoes that. */
    csrsi mstatus, 8
    TRAPS(27, 11, ecall)
    csrr a0, mstatus
    andi a0, a0, 0x88
    EXPECT(28, a0, 0x88)
    csrci mstatus, 8
    j pass

    .section .data
    .balign 8
data:
    .dword 0, 0
HOST
