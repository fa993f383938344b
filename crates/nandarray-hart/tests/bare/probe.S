/* A machine that makes the accesses a table tells and notes what comes of each: for the tests of protection and translation, which fill it in.
 *
 * An access has 16 fields of 8 bytes: satp, bits of mstatus, privilege (0, 1, 3), kind (0 load, 1 store, 2 fetch), bytes,
 * address, pmpcfg0, then pmpaddr0 to 3, whether a fence follows, three that are not used, and 1 (0 in the row behind the last).
 * Loads and stores are made by machine mode in the other's name (MPRV); a fetch is a return to the address, and ends at the first
 * trap. Of each there are four numbers: cause (-1 without a trap), value, program counter, what was loaded. They and a sum of
 * every page behind them are the signature; where `dump` is set it goes to the console, byte by byte, too.
 */
#if __riscv_xlen == 64
#define LREG ld
#define SREG sd
#else
#define LREG lw
#define SREG sw
#endif
#define FIELD(register, number) LREG register, 8 * number(s0)

    .section .text.start, "ax"
    .globl _start
_start:
    j begin
    /* What a large page may reach of this machine's own code. */
    .fill 16383, 4, 0x73
begin:
    la t0, handler
    csrw mtvec, t0
    li t0, 1 << 13
    csrw mstatus, t0
    /* The machine sets accessed and dirty bits, where it has a say: menvcfg.ADUE. */
#if __riscv_xlen == 64
    li t0, 1 << 61
    csrw 0x30a, t0
#else
    li t0, 1 << 29
    csrw 0x31a, t0
#endif
    la s0, probes
    la s1, results
next:
    LREG t0, 8 * 15(s0)
    beqz t0, finish
    FIELD(t0, 0)
    csrw satp, t0
    FIELD(t0, 7)
    csrw pmpaddr0, t0
    FIELD(t0, 8)
    csrw pmpaddr1, t0
    FIELD(t0, 9)
    csrw pmpaddr2, t0
    FIELD(t0, 10)
    csrw pmpaddr3, t0
    FIELD(t0, 6)
    csrw pmpcfg0, t0
    FIELD(t0, 11)
    beqz t0, 1f
    sfence.vma
    fence.i
1:
    FIELD(s2, 1)
    FIELD(s3, 2)
    slli s3, s3, 11
    or s2, s2, s3
    FIELD(s4, 3)
    FIELD(s5, 4)
    FIELD(s6, 5)
    li s7, 0
    li s8, -1
    li s9, 0
    li s10, 0
    li t0, 2
    beq s4, t0, execute
    li t0, 1 << 17
    or s2, s2, t0
    bnez s4, write
    li t0, 2
    beq s5, t0, load2
    li t0, 4
    beq s5, t0, load4
    li t0, 8
    beq s5, t0, load8
    csrw mstatus, s2
    lbu s7, 0(s6)
    j note
load2:
    csrw mstatus, s2
    lhu s7, 0(s6)
    j note
load4:
    csrw mstatus, s2
    lw s7, 0(s6)
    j note
load8:
    csrw mstatus, s2
    LREG s7, 0(s6)
    j note
write:
    /* What is stored makes nothing of an `ecall` that can be executed while floating point is off, at whatever byte of it. */
    li s11, 0x87878787
#if __riscv_xlen == 64
    slli t0, s11, 32
    or s11, s11, t0
#endif
    li t0, 2
    beq s5, t0, store2
    li t0, 4
    beq s5, t0, store4
    li t0, 8
    beq s5, t0, store8
    csrw mstatus, s2
    sb s11, 0(s6)
    j note
store2:
    csrw mstatus, s2
    sh s11, 0(s6)
    j note
store4:
    csrw mstatus, s2
    sw s11, 0(s6)
    j note
store8:
    csrw mstatus, s2
    SREG s11, 0(s6)
    j note
execute:
    csrw mstatus, s2
    csrw mepc, s6
    mret
    .balign 4
handler:
    csrr s8, mcause
    csrr s9, mtval
    csrr s10, mepc
note:
    li t0, 1 << 13
    csrw mstatus, t0
    /* The value and the counter of an illegal instruction or a call are each machine's own affair, or say nothing. */
    sw s8, 0(s1)
    sw s7, 12(s1)
    li t0, 2
    beq s8, t0, 1f
    li t0, 3
    beq s8, t0, 1f
    SREG s9, 16(s1)
1:
    sw s10, 4(s1)
    addi s1, s1, 32
    addi s0, s0, 128
    j next

finish:
    /* A word that is locked away, even from machine mode, counts as the one before it. */
    la t0, locked
    csrw mtvec, t0
    la s0, tables
    la s1, sums
    la s2, end_signature
    li t3, 31
1:
    li t0, 0
    li t1, 1024
2:
    lw t2, 0(s0)
    .balign 4
locked:
    mul t0, t0, t3
    add t0, t0, t2
    addi s0, s0, 4
    addi t1, t1, -1
    bnez t1, 2b
    sw t0, 0(s1)
    addi s1, s1, 4
    bltu s1, s2, 1b
    lw t0, dump
    beqz t0, end
    la s0, begin_signature
    la s1, end_signature
    la s2, tohost
1:
    lbu t0, 0(s0)
#if __riscv_xlen == 64
    li t1, 0x101 << 48
    or t0, t0, t1
    sd t0, 0(s2)
#else
    sw t0, 0(s2)
    li t1, 0x101 << 16
    sw t1, 4(s2)
#endif
    addi s0, s0, 1
    bltu s0, s1, 1b
end:
    la t0, tohost
    li t1, 1
    sw t1, 0(t0)
    sw zero, 4(t0)
    j end

    .section .tohost, "aw"
    .balign 64
    .globl tohost, fromhost
    .size tohost, 8
    .size fromhost, 8
tohost:
    .dword 0
fromhost:
    .dword 0

    .section .data
    .globl dump, probes, begin_signature, end_signature, tables
    .balign 4096
dump:
    .word 0
    .balign 64
probes:
    .fill 128 * (ROWS + 1)
    .balign 4096
begin_signature:
results:
    .fill 32 * ROWS
sums:
    .fill 4 * (TABLES + PAGES)
end_signature:
    .balign 4096
    /* Page tables, then the pages that are reached. */
tables:
    .fill 4096 * (TABLES + PAGES)
