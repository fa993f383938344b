/* Interrupts that software raises: masks, delegation, vectors, priority over nothing else. */
#include "test.h"

BEGIN
    /* Delegated supervisor software interrupt: not taken in machine mode. */
    li a0, 0x222
    csrw mideleg, a0
    csrw mie, a0
    li s4, 0
    csrsi mstatus, 8
    csrsi mip, 2
    nop
    EXPECT(1, s4, 0)
    csrr a0, sip
    EXPECT(2, a0, 2)
    csrr a0, sie
    EXPECT(3, a0, 0x222)
    /* In supervisor mode only when allowed there, and by its vector. */
    la a0, vectors
    ori a0, a0, 1
    csrw stvec, a0
    la a0, supervisor
    csrw mepc, a0
    li a0, 0x1800
    csrc mstatus, a0
    li a0, 0x800
    csrs mstatus, a0
    mret

supervisor:
    nop
    EXPECT(4, s4, 0)
    la s8, 1f
    csrsi sstatus, 2
1:
    nop
    EXPECT(5, s4, 77)
    /* Its cause has the highest bit set; where it came from is behind the instruction that allowed it. */
    slli a0, s5, 1
    EXPECT(6, a0, 2)
    li gp, 7
    bgez s5, fail
    bne s6, s8, fail
    /* The handler cleared it, and the return allowed interrupts again. */
    csrr a0, sstatus
    andi a0, a0, 2
    EXPECT(8, a0, 2)
    /* Raised again, it comes again. */
    li s4, 0
    csrsi sip, 2
    nop
    EXPECT(9, s4, 77)
    j pass

    .balign 4
vectors:
    j fail
    j software
    j fail

software:
    li s4, 77
    csrr s5, scause
    csrr s6, sepc
    csrci sip, 2
    sret
HOST
