/* Supervisor and user mode: delegation, returns, what each mode may read, and its calls. */
#include "test.h"

BEGIN
    /* Calls from user mode, breakpoints and illegal instructions are supervisor mode's. */
    li a0, 0x10c
    csrw medeleg, a0
    csrr a1, medeleg
    EXPECT(1, a1, 0x10c)
    la a0, in_supervisor_handler
    csrw stvec, a0
    la a0, supervisor
    csrw mepc, a0
    li a0, 0x1800
    csrc mstatus, a0
    li a0, 0x800
    csrs mstatus, a0
    mret

    .balign 4
in_supervisor_handler:
    csrr s4, scause
    csrr s5, sepc
    csrr s6, stval
    csrr s7, sstatus
    csrw sepc, s10
    sret

supervisor:
    /* Its call goes to machine mode. */
    TRAPS(2, 9, ecall)
    /* The handler returned to where it came from: machine registers are out of reach, by a trap of our own. */
    li gp, 3
    la s10, 1f
    la s8, 2f
2:
    csrr a0, mstatus
    j fail
    .balign 4
1:
    EXPECT(4, s4, 2)
    bne s5, s8, fail
    andi s7, s7, 0x100
    EXPECT(5, s7, 0x100)
    li gp, 6
    la s10, 1f
    mret
    j fail
    .balign 4
1:
    EXPECT(7, s4, 2)
#ifndef PORTABLE
    EXPECT(8, s6, 0x30200073)
#endif
    /* Counters are out of reach until machine mode allows them. */
    li gp, 9
    li s4, -1
    la s10, 1f
    csrr a0, instret
    j fail
    .balign 4
1:
    EXPECT(10, s4, 2)
    /* To user mode. */
    la a0, user
    csrw sepc, a0
    li a0, 0x100
    csrc sstatus, a0
    sret

    .balign 4
user:
    li gp, 11
    la s10, 1f
    la s8, 2f
2:
    ecall
    j fail
    .balign 4
1:
    EXPECT(12, s4, 8)
    bne s5, s8, fail
    andi s7, s7, 0x100
    EXPECT(13, s7, 0)
    li gp, 14
    li s4, -1
    la s10, 1f
    sret
    j fail
    .balign 4
1:
    EXPECT(15, s4, 2)
    li gp, 16
    li s4, -1
    la s10, 1f
    csrr a0, sstatus
    j fail
    .balign 4
1:
    EXPECT(17, s4, 2)
    li gp, 18
    la s10, 1f
    la s8, 2f
2:
    ebreak
    j fail
    .balign 4
1:
    EXPECT(19, s4, 3)
    bne s5, s8, fail
    /* A fault that is not delegated goes to machine mode, and back to user mode. */
    li a0, 8
    TRAPS(20, 5, lb a1, 0(a0))
    EXPECT(21, s2, 8)
    li gp, 22
    li s4, -1
    la s10, 1f
    csrr a0, mepc
    j fail
    .balign 4
1:
    EXPECT(23, s4, 2)
    j pass
HOST
