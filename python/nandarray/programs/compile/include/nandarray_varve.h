/* VarVE for programs in C: streams of packed values, and vectors whose values have a width each.
 *
 * Every function is one instruction of Table 8.1 of the dissertation, in the encoding of docs/reference/varve.md.
 * Streams and vectors are named by constant numbers: a stream by 0 to 31, a vector by that of a vector register. A
 * program that includes this file is loaded on a core with a VarVE unit. It is compiled for a target with vectors
 * (rv64gcv).
 *
 *     nd_frstream(0, data, count, 32);            // input of 32-bit values
 *     nd_vunpack(1, 0, 64);                       // as many as fit into v1
 *     nd_varve_vi(ND_VARVE_CMPEQ, 0, 1, 7);       // mask in v0: equal to 7
 *     kept += nd_vpackm(1, 2);                    // those to output stream 2
 *     nd_crstream(0, nd_vrcnum());                // consume as many as all instructions yielded
 */
#ifndef NANDARRAY_VARVE_H
#define NANDARRAY_VARVE_H

#include <stddef.h>
#include <stdint.h>

__asm__(".weak nd_uses_varve\n.type nd_uses_varve, @object\n.set nd_uses_varve, 1");

/* Of instructions that write fixed-width vectors, masks or their length: the compiler keeps nothing of its own there
 * across them. It may use these registers between two of them, so a loop that keeps a mask in v0 leaves arrays to them.
 */
#define ND_VARVE_WRITES                                                                                              \
    "memory", "vl", "vtype", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", \
        "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",     \
        "v29", "v30", "v31"

#define ND_SIGNED 0x80
#define ND_VARVE_X(x) ((unsigned long)(x))

/* Describe a stream: an input of `count` values at `data`, or an output for as many. */
#define ND_VARVE_OPEN(opcode, kind, stream, data, count, detail) \
    __asm__ volatile(".insn r4 " #opcode ", 7, " #kind ", x%0, %1, %2, %3" \
                     : : "i"(stream), "r"(ND_VARVE_X(data)), "r"(ND_VARVE_X(count)), "r"(ND_VARVE_X(detail)) : "memory")
/* Values of `width` bits; | ND_SIGNED if they are signed. */
#define nd_frstream(stream, data, count, width) ND_VARVE_OPEN(0x0b, 0, stream, data, count, width)
#define nd_fwstream(stream, data, count, width) ND_VARVE_OPEN(0x2b, 0, stream, data, count, width)
/* Values of a width each: a byte for each value at `widths`. */
#define nd_vrstream(stream, data, count, widths) ND_VARVE_OPEN(0x0b, 1, stream, data, count, widths)
#define nd_vwstream(stream, data, count, widths) ND_VARVE_OPEN(0x2b, 1, stream, data, count, widths)
/* Huffman codes of the table at `table`. */
#define nd_hrstream(stream, data, count, table) ND_VARVE_OPEN(0x0b, 2, stream, data, count, table)
#define nd_hwstream(stream, data, count, table) ND_VARVE_OPEN(0x2b, 2, stream, data, count, table)

/* A part of a packed input (docs/reference/program-abi.md): `count` values of one frame behind `skip` others. The
 * values of "bitpack" have `width` bits, and `reference` is to be added to each, modulo the range of an element. */
typedef struct nd_packed {
    uint32_t bytes, count, skip, width;
    uint64_t reference;
    uint32_t bits, widths;
} nd_packed;

/* The parts of packed input `i`, in order: `for (nd_each_packed(part, args, 0)) { ... }`. */
#define nd_each_packed(part, args, i)                                                                       \
    const nd_packed *part = (const nd_packed *)(uintptr_t)(args)->inputs[i].address,                        \
                    *part##_end = (const nd_packed *)((const uint8_t *)part + (args)->inputs[i].bytes);      \
    part < part##_end; part = (const nd_packed *)((const uint8_t *)part + part->bytes)

/* Describe an input of a part's values: of "bitpack", and of "varwidth". */
#define nd_fpstream(stream, part)                                                                           \
    do {                                                                                                    \
        nd_frstream(stream, (const uint8_t *)(part) + (part)->bits, (part)->skip + (part)->count, (part)->width); \
        nd_crstream(stream, (part)->skip);                                                                  \
    } while (0)
#define nd_vpstream(stream, part)                                                                           \
    do {                                                                                                    \
        const uint8_t *nd_part_ = (const uint8_t *)(part);                                                  \
        nd_vrstream(stream, nd_part_ + (part)->bits, (part)->skip + (part)->count, nd_part_ + (part)->widths); \
        nd_crstream(stream, (part)->skip);                                                                  \
    } while (0)

/* A table of Huffman codes. */
typedef struct { int64_t value; uint32_t code, length; } nd_huffman_code;
typedef struct { uint64_t count; nd_huffman_code codes[]; } nd_huffman_table;

#define ND_VARVE_RESULT(text, ...) \
    ({ unsigned long nd_result_; __asm__ volatile(text : "=r"(nd_result_) : __VA_ARGS__ : "memory"); nd_result_; })
/* Consume `n` values of an input. */
#define nd_crstream(stream, n) \
    __asm__ volatile(".insn r 0x0b, 7, 3, x0, %1, x%0" : : "i"(stream), "r"(ND_VARVE_X(n)) : "memory")
/* End an input: the values that were left. End an output: the bits that were written. */
#define nd_erstream(stream) ND_VARVE_RESULT(".insn r 0x0b, 7, 7, %0, x0, x%1", "i"(stream))
#define nd_ewstream(stream) ND_VARVE_RESULT(".insn r 0x0b, 7, 11, %0, x0, x%1", "i"(stream))
/* Read and reset NumE. */
#define nd_vrcnum() ND_VARVE_RESULT(".insn r 0x0b, 7, 15, %0, x0, x0", "i"(0))
/* Elements of a vector. */
#define nd_vnum(v) ND_VARVE_RESULT(".insn r 0x0b, 7, 19, %0, x%1, x0", "i"(v))

/* Fixed-width vectors: as many values as `vl`, and consumed; and back. With m, those that v0 lets through. */
#define nd_unpack(v, stream) \
    __asm__ volatile(".insn r 0x2b, 7, 3, x%0, x0, x%1" : : "i"(v), "i"(stream) : ND_VARVE_WRITES)
#define nd_pack(v, stream) ND_VARVE_RESULT(".insn r 0x2b, 7, 7, %0, x%1, x%2", "i"(v), "i"(stream))
#define nd_packm(v, stream) ND_VARVE_RESULT(".insn r 0x2b, 7, 11, %0, x%1, x%2", "i"(v), "i"(stream))
/* Variable-width vectors: as many values as fit, not consumed, of at most `mb` bits. With m, others are zero. */
#define nd_vunpack(v, stream, mb) \
    __asm__ volatile(".insn r 0x2b, 7, 15, x%0, %2, x%1" : : "i"(v), "i"(stream), "r"(ND_VARVE_X(mb)) : "memory")
#define nd_vunpackm(v, stream, mb) \
    __asm__ volatile(".insn r 0x2b, 7, 19, x%0, %2, x%1" : : "i"(v), "i"(stream), "r"(ND_VARVE_X(mb)) : "memory")
#define nd_vpack(v, stream) ND_VARVE_RESULT(".insn r 0x2b, 7, 23, %0, x%1, x%2", "i"(v), "i"(stream))
#define nd_vpackm(v, stream) ND_VARVE_RESULT(".insn r 0x2b, 7, 27, %0, x%1, x%2", "i"(v), "i"(stream))

/* Operations: `vd = vs2 op vs1`, `vd = vs2 op imm` (-16 to 15); a comparison gives a mask. With m, masked by v0. */
enum {
    ND_VARVE_ADD, ND_VARVE_SUB, ND_VARVE_MAX, ND_VARVE_MIN, ND_VARVE_MUL, ND_VARVE_DIV, ND_VARVE_AND, ND_VARVE_BIC,
    ND_VARVE_EOR, ND_VARVE_ORR, ND_VARVE_CMPEQ, ND_VARVE_CMPNE, ND_VARVE_CMPLT, ND_VARVE_CMPLE, ND_VARVE_ASR,
    ND_VARVE_ASL
};
#define ND_VARVE_OP(opcode, op, vm, vd, vs2, first) \
    __asm__ volatile(".insn r " #opcode ", 7, 64 + 2 * %0 + " #vm ", x%1, x%3, x%2" \
                     : : "i"(op), "i"(vd), "i"(vs2), "i"((first) & 31) : ND_VARVE_WRITES)
#define nd_varve_vv(op, vd, vs2, vs1) ND_VARVE_OP(0x5b, op, 1, vd, vs2, vs1)
#define nd_varve_vvm(op, vd, vs2, vs1) ND_VARVE_OP(0x5b, op, 0, vd, vs2, vs1)
#define nd_varve_vi(op, vd, vs2, imm) ND_VARVE_OP(0x7b, op, 1, vd, vs2, imm)
#define nd_varve_vim(op, vd, vs2, imm) ND_VARVE_OP(0x7b, op, 0, vd, vs2, imm)
/* From a fixed-width vector; of a scalar; of an immediate; first, first + step, ... */
#define nd_vtvs(vd, vs2) ND_VARVE_OP(0x5b, 16, 1, vd, vs2, 0)
#define nd_vcpy(vd, x) __asm__ volatile(".insn r 0x5b, 7, 101, x%0, %1, x0" : : "i"(vd), "r"(ND_VARVE_X(x)) : "memory")
#define nd_vdup(vd, imm) ND_VARVE_OP(0x7b, 18, 1, vd, 0, imm)
#define nd_vindex(vd, first, step) \
    __asm__ volatile(".insn r 0x5b, 7, 99, x%0, %1, %2" \
                     : : "i"(vd), "r"(ND_VARVE_X(first)), "r"(ND_VARVE_X(step)) : "memory")

#endif
