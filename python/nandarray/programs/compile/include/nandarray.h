/* nandarray.h: the interface of near-data programs in C; binary interface, version 1.
 *
 * A program defines `nd_block` or `nd_stream`, and `nd_begin`, `nd_merge`, `nd_end` if it has use for them, and says
 * once what it takes and gives, with ND_PROGRAM. There is no operating system and no C library; <math.h> works, and
 * the memory functions that compilers call are at the end of this file. docs/reference/program-abi.md has the whole
 * interface.
 *
 * Parts: arguments, metadata, streams, memory functions. Needs GCC's or Clang's extensions of C11.
 */
#ifndef NANDARRAY_H
#define NANDARRAY_H

#if !defined(__riscv) && !defined(ND_NATIVE)
#error "nandarray.h is for programs that run beside the data: compile them for RISC-V"
#endif

#include <stddef.h>
#include <stdint.h>

#define ND_ABI_VERSION 1
#define ND_MAX_INPUTS 8
#define ND_MAX_OUTPUTS 8
#define ND_MAX_SCALARS 16
/* Bytes that a program may look at from a stream's head on, or back from it, and the most that it can wait for. */
#define ND_REACH 65536

/* ---- arguments ------------------------------------------------------------------------------------------------- */

/* An input or an output of a task. Every field has 64 bits, on RV32 too. */
typedef struct nd_buffer {
    uint64_t address;  /* of the first byte; 8-byte aligned at least; 0 if this is a stream */
    uint64_t bytes;    /* input: how many there are. Output: how many there is room for */
    uint64_t used;     /* output: how many the program wrote; set by the program. Input: 0, or if it has a pace of its
                          own, how many the program took; set by the program. Of a kernel's section: where its window
                          begins in the section, in bytes */
    uint64_t ndim;     /* 1, or of the box that the task is: 1 to 4 */
    uint64_t shape[4]; /* in records: how many, or the box's extents, an input's with its halo; others are 1 */
} nd_buffer;

/* The task's place in an input whose metadata says "ahead": the input has a length and a pace of its own. */
typedef struct nd_pace {
    uint64_t first; /* the number of the first record that the task sees */
    uint64_t ended; /* 1 if the input ends with the last record that the task sees; else 0, and more may come */
} nd_pace;

/* The arguments of an entry point. */
typedef struct nd_args {
    uint64_t abi; /* ND_ABI_VERSION */
    uint64_t n_inputs;
    uint64_t n_outputs;
    uint64_t n_scalars;
    uint64_t task;             /* this task's number, from 0, in the order of the data; in nd_end how many there were;
                                  in nd_begin and nd_merge do not rely on it */
    uint64_t first_record;     /* where this task's first record is in the first input */
    uint64_t state;            /* address of state_bytes bytes that a worker keeps from task to task; zeros at first */
    uint64_t state_bytes;
    uint64_t other_state;      /* nd_merge: address of the state to fold into this one; else 0 */
    uint64_t scratchpad;       /* address of fast memory that is free to use; its contents last for one call, those of
                                  an "ordered" program from its nd_begin to its nd_end */
    uint64_t scratchpad_bytes;
    nd_buffer inputs[ND_MAX_INPUTS];
    nd_buffer outputs[ND_MAX_OUTPUTS];
    uint64_t scalars[ND_MAX_SCALARS]; /* bit patterns; integers extended to 64 bits, a float32 in the lower half */
    uint64_t screen;                  /* kernels: this screen, from 0 */
    uint64_t screens;                 /* kernels: how many the microblock has; else 0 */
    int64_t noted[7];                 /* words that a function which returns an error notes beside it; 0 before */
    uint64_t first[4];                /* where the task begins in the first input: a box's first coordinates, without
                                         its halo, else first_record; the others are 0 */
    uint64_t total[4];                /* the shape that boxes are cut from, else how many records the first input has,
                                         all ones if another program gives it; the others are 1 */
    nd_pace pace[ND_MAX_INPUTS];      /* of inputs with paces of their own; else 0 */
} nd_args;

_Static_assert(sizeof(nd_buffer) == 64, "the layout is part of the interface");
_Static_assert(sizeof(nd_args) == 88 + 16 * 64 + 33 * 8 + 8 * 16, "the layout is part of the interface");

/* Entry points. They return 0 or a positive status; a negative number is the program's own error, and ends the run. */
int64_t nd_begin(nd_args *args);  /* optional: once a worker, before its first task */
int64_t nd_block(nd_args *args);  /* one task of a block program */
int64_t nd_stream(nd_args *args); /* one task of a stream program */
int64_t nd_merge(nd_args *args);  /* optional: fold *other_state into *state */
int64_t nd_end(nd_args *args);    /* optional: once, write outputs of phase "end" from the merged state */

/* The data of input or output I as a pointer to TYPE, and how many there are (of an output: there is room for). */
#define ND_INPUT(args, i, type) ((const type *)(uintptr_t)(args)->inputs[i].address)
#define ND_OUTPUT(args, i, type) ((type *)(uintptr_t)(args)->outputs[i].address)
#define ND_INPUT_COUNT(args, i, type) ((size_t)((args)->inputs[i].bytes / sizeof(type)))
#define ND_OUTPUT_COUNT(args, i, type) ((size_t)((args)->outputs[i].bytes / sizeof(type)))
/* Say how many elements of TYPE were written to output I. */
#define ND_SET_USED(args, i, count, type) ((void)((args)->outputs[i].used = (uint64_t)(count) * sizeof(type)))

/* Say how many elements of TYPE were taken of input I, which has a pace of its own: the next task sees those behind. */
#define ND_SET_TAKEN(args, i, count, type) ((void)((args)->inputs[i].used = (uint64_t)(count) * sizeof(type)))

#define ND_STATE(args, type) ((type *)(uintptr_t)(args)->state)
#define ND_OTHER_STATE(args, type) ((const type *)(uintptr_t)(args)->other_state)
#define ND_SCRATCHPAD(args, type) ((type *)(uintptr_t)(args)->scratchpad)

static inline int64_t nd_scalar_i64(const nd_args *args, unsigned i) { return (int64_t)args->scalars[i]; }
static inline uint64_t nd_scalar_u64(const nd_args *args, unsigned i) { return args->scalars[i]; }

static inline double nd_scalar_f64(const nd_args *args, unsigned i) {
    double value;
    __builtin_memcpy(&value, &args->scalars[i], sizeof value);
    return value;
}

static inline float nd_scalar_f32(const nd_args *args, unsigned i) {
    uint32_t bits = (uint32_t)args->scalars[i];
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

/* A microblock of a kernel: one screen of it. The table names it NAME. */
#define ND_MICROBLOCK(name)                                                       \
    __attribute__((used, retain, visibility("default"))) int64_t nd_kernel_##name(nd_args *args)

/* A section as if all of it were there: only the part that the microblock maps may be reached. Sections that are
 * written, temporary ones among them, are counted as outputs. */
#define ND_SECTION_IN(args, i, type) ((const type *)(uintptr_t)((args)->inputs[i].address - (args)->inputs[i].used))
#define ND_SECTION_OUT(args, i, type) ((type *)(uintptr_t)((args)->outputs[i].address - (args)->outputs[i].used))

/* The first row of this screen's share of ROWS, and the one behind its last. */
static inline int64_t nd_first(const nd_args *args, int64_t rows) {
    return (int64_t)((uint64_t)rows * args->screen / args->screens);
}
static inline int64_t nd_last(const nd_args *args, int64_t rows) {
    return (int64_t)((uint64_t)rows * (args->screen + 1) / args->screens);
}

/* ---- metadata -------------------------------------------------------------------------------------------------- */

/* Once a program, at file scope: the members of a JSON object, without its braces.
 *
 *     ND_PROGRAM("name": "scale", "kind": "block",
 *                "inputs": [{"name": "x", "dtype": "float32"}],
 *                "outputs": [{"name": "y", "dtype": "float32"}],
 *                "scalars": [{"name": "factor", "dtype": "float32"}])
 */
#define ND_PROGRAM(...)                                                                                                \
    __attribute__((used, retain, aligned(1), section(".nandarray.program"))) static const char nd_program_metadata[] = \
        "{\"abi\": 1, " #__VA_ARGS__ "}";

/* ---- streams --------------------------------------------------------------------------------------------------- */

/* The stream number S is a constant from 0 to 7. A load waits until there is an element, a store until there is
 * room. A load from a stream that has ended ends the task, as if the entry point had returned 0. */

#ifdef ND_NATIVE
#include <nandarray_native.h>
#else

/* The instruction extends an element to the register's width; a compiler that is not told so masks it once more. */
#define ND_EXTENDED_(value, type) __builtin_assume((type)-1 < (type)0 || (value) <= (uintptr_t)(type)-1)

#define ND_INSN_LOAD_(s, width, type)                                                                \
    __extension__({                                                                                  \
        uintptr_t nd_v_;                                                                             \
        __asm__ volatile(".insn i 0x0b, " #width ", %0, x%1, 0" : "=r"(nd_v_) : "i"(s));             \
        ND_EXTENDED_(nd_v_, type);                                                                   \
        (type) nd_v_;                                                                                \
    })
#define ND_INSN_STORE_(s, width, value)                                                              \
    __extension__({                                                                                  \
        __asm__ volatile(".insn s 0x2b, " #width ", %0, 0(x%1)" : : "r"((uintptr_t)(value)), "i"(s)); \
        (void)0;                                                                                     \
    })
#define ND_INSN_READ_(opcode, kind, s, width, distance, type)                                        \
    __extension__({                                                                                  \
        uintptr_t nd_v_;                                                                             \
        __asm__ volatile(".insn r " #opcode ", " #width ", " #kind ", %0, x%1, %2"                     \
                         : "=r"(nd_v_)                                                               \
                         : "i"(s), "r"((uintptr_t)(distance)));                                      \
        ND_EXTENDED_(nd_v_, type);                                                                   \
        (type) nd_v_;                                                                                \
    })
#define ND_CSR_(number)                                                                              \
    __extension__({                                                                                  \
        uintptr_t nd_v_;                                                                             \
        __asm__ volatile("csrr %0, %1" : "=r"(nd_v_) : "i"(number));                                 \
        nd_v_;                                                                                       \
    })

/* StreamLoad: the next element of input stream S. */
#define nd_load_i8(s) ND_INSN_LOAD_(s, 0, int8_t)
#define nd_load_i16(s) ND_INSN_LOAD_(s, 1, int16_t)
#define nd_load_i32(s) ND_INSN_LOAD_(s, 2, int32_t)
#define nd_load_u8(s) ND_INSN_LOAD_(s, 4, uint8_t)
#define nd_load_u16(s) ND_INSN_LOAD_(s, 5, uint16_t)
#if __riscv_xlen == 64
#define nd_load_u32(s) ND_INSN_LOAD_(s, 6, uint32_t)
#define nd_load_i64(s) ND_INSN_LOAD_(s, 3, int64_t)
#define nd_load_u64(s) ND_INSN_LOAD_(s, 3, uint64_t)
#else /* RV32 has no loads of 64 bits: two halves, the lower one first */
#define nd_load_u32(s) ND_INSN_LOAD_(s, 2, uint32_t)
#define nd_load_u64(s)                                          \
    __extension__({                                             \
        uint64_t nd_low_ = nd_load_u32(s);                      \
        nd_low_ | (uint64_t)nd_load_u32(s) << 32;               \
    })
#define nd_load_i64(s) ((int64_t)nd_load_u64(s))
#endif

/* StreamStore: one element more for output stream S. */
#define nd_store_u8(s, v) ND_INSN_STORE_(s, 0, (uint8_t)(v))
#define nd_store_u16(s, v) ND_INSN_STORE_(s, 1, (uint16_t)(v))
#define nd_store_u32(s, v) ND_INSN_STORE_(s, 2, (uint32_t)(v))
#if __riscv_xlen == 64
#define nd_store_u64(s, v) ND_INSN_STORE_(s, 3, (uint64_t)(v))
#else
#define nd_store_u64(s, v)                                      \
    __extension__({                                             \
        uint64_t nd_both_ = (uint64_t)(v);                      \
        nd_store_u32(s, (uint32_t)nd_both_);                    \
        nd_store_u32(s, (uint32_t)(nd_both_ >> 32));            \
    })
#endif

/* StreamWait: waits until input stream S has BYTES more bytes (ND_REACH at most), or its end is there; gives how
 * many of them can be loaded before its end. */
#define nd_wait(s, bytes) ((size_t)ND_INSN_READ_(0x5b, 0, s, 7, bytes, uintptr_t))

/* PeekIStream: the element AHEAD bytes behind the next one of input stream S (before it if AHEAD is negative),
 * without taking it; waits for it. It has to lie before the end, which nd_wait() tells. */
#define nd_peek_u8(s, ahead) ND_INSN_READ_(0x5b, 1, s, 4, ahead, uint8_t)
#define nd_peek_u16(s, ahead) ND_INSN_READ_(0x5b, 1, s, 5, ahead, uint16_t)
#define nd_peek_i32(s, ahead) ND_INSN_READ_(0x5b, 1, s, 2, ahead, int32_t)

/* ReadIStream: the element BACK bytes before the end of input stream S, without taking it; waits for it, and for the
 * end to be known. */
#define nd_read_input_u8(s, back) ND_INSN_READ_(0x5b, 0, s, 4, back, uint8_t)
#define nd_read_input_u16(s, back) ND_INSN_READ_(0x5b, 0, s, 5, back, uint16_t)
#define nd_read_input_i32(s, back) ND_INSN_READ_(0x5b, 0, s, 2, back, int32_t)

/* ReadOStream: the element BACK bytes before the head of output stream S (what was stored last). */
#define nd_read_output_u8(s, back) ND_INSN_READ_(0x7b, 0, s, 4, back, uint8_t)
#define nd_read_output_u16(s, back) ND_INSN_READ_(0x7b, 0, s, 5, back, uint16_t)
#define nd_read_output_i32(s, back) ND_INSN_READ_(0x7b, 0, s, 2, back, int32_t)
#if __riscv_xlen == 64
#define nd_peek_u64(s, ahead) ND_INSN_READ_(0x5b, 1, s, 3, ahead, uint64_t)
#define nd_read_input_u64(s, back) ND_INSN_READ_(0x5b, 0, s, 3, back, uint64_t)
#define nd_read_output_u64(s, back) ND_INSN_READ_(0x7b, 0, s, 3, back, uint64_t)
#endif

/* Position and end of a stream: bytes since the task began (on RV32 their lower 32 bits). None of them shows how far
 * the bytes of an input have arrived, or those of an output were drained: a program waits for them. */
#define nd_input_head(s) ND_CSR_(0x800 + (s))  /* taken by the program */
#define nd_input_tail(s) ND_CSR_(0x820 + (s))  /* the end; waits until it is known */
#define nd_output_head(s) ND_CSR_(0x840 + (s)) /* stored by the program */
#define nd_output_tail(s) ND_CSR_(0x860 + (s)) /* the most that its bound leaves room for */
/* Has input stream S ended? Waits until there is a byte, or until there will be none. */
#define nd_at_end(s) (ND_CSR_(0x880 + (s)) != 0)

#endif /* ND_NATIVE */

#define nd_load_f32(s) nd_f32_of_bits_(nd_load_u32(s))
#define nd_load_f64(s) nd_f64_of_bits_(nd_load_u64(s))
#define nd_store_i8(s, v) nd_store_u8(s, (int8_t)(v))
#define nd_store_i16(s, v) nd_store_u16(s, (int16_t)(v))
#define nd_store_i32(s, v) nd_store_u32(s, (int32_t)(v))
#define nd_store_i64(s, v) nd_store_u64(s, (int64_t)(v))
#define nd_store_f32(s, v) nd_store_u32(s, nd_bits_of_f32_(v))
#define nd_store_f64(s, v) nd_store_u64(s, nd_bits_of_f64_(v))
#define nd_read_input_u32(s, back) ((uint32_t)nd_read_input_i32(s, back))
#define nd_read_output_u32(s, back) ((uint32_t)nd_read_output_i32(s, back))
#define nd_peek_u32(s, ahead) ((uint32_t)nd_peek_i32(s, ahead))
/* Bytes of input stream S up to its end; waits until that is known. Bytes that may still be stored to output stream
 * S. */
#define nd_left(s) (nd_input_tail(s) - nd_input_head(s))
#define nd_room(s) (nd_output_tail(s) - nd_output_head(s))

static inline float nd_f32_of_bits_(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double nd_f64_of_bits_(uint64_t bits) {
    double value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t nd_bits_of_f32_(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline uint64_t nd_bits_of_f64_(double value) {
    uint64_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- memory functions ------------------------------------------------------------------------------------------ */

/* Compilers make calls of these by themselves. Weak: a program may have its own. Unused ones are not linked. */
#ifndef ND_NATIVE
#ifdef __clang__
#define ND_RUNTIME_ __attribute__((weak, no_builtin))
#else
#define ND_RUNTIME_ __attribute__((weak, optimize("no-tree-loop-distribute-patterns")))
#endif

#define ND_WORD_ sizeof(uintptr_t)
typedef uintptr_t __attribute__((may_alias)) nd_word_;

/* Upwards, so that it moves down, too. */
ND_RUNTIME_ void *memcpy(void *to, const void *from, size_t n) {
    unsigned char *d = (unsigned char *)to;
    const unsigned char *s = (const unsigned char *)from;
    if ((((uintptr_t)d ^ (uintptr_t)s) & (ND_WORD_ - 1)) == 0) {
        for (; n && ((uintptr_t)d & (ND_WORD_ - 1)); n--) *d++ = *s++;
        for (; n >= 4 * ND_WORD_; n -= 4 * ND_WORD_, d += 4 * ND_WORD_, s += 4 * ND_WORD_) {
            const nd_word_ *f = (const nd_word_ *)s;
            nd_word_ *t = (nd_word_ *)d;
            nd_word_ a = f[0], b = f[1], c = f[2], e = f[3];
            t[0] = a, t[1] = b, t[2] = c, t[3] = e;
        }
        for (; n >= ND_WORD_; n -= ND_WORD_, d += ND_WORD_, s += ND_WORD_) *(nd_word_ *)d = *(const nd_word_ *)s;
    }
    for (; n; n--) *d++ = *s++;
    return to;
}

ND_RUNTIME_ void *memmove(void *to, const void *from, size_t n) {
    unsigned char *d = (unsigned char *)to;
    const unsigned char *s = (const unsigned char *)from;
    if ((uintptr_t)d - (uintptr_t)s >= n) return memcpy(to, from, n);
    int words = (((uintptr_t)d ^ (uintptr_t)s) & (ND_WORD_ - 1)) == 0;
    for (; n && (!words || ((uintptr_t)(d + n) & (ND_WORD_ - 1))); n--) d[n - 1] = s[n - 1];
    for (; n >= ND_WORD_; n -= ND_WORD_) *(nd_word_ *)(d + n - ND_WORD_) = *(const nd_word_ *)(s + n - ND_WORD_);
    for (; n; n--) d[n - 1] = s[n - 1];
    return to;
}

ND_RUNTIME_ void *memset(void *to, int byte, size_t n) {
    unsigned char *d = (unsigned char *)to;
    nd_word_ word = (nd_word_)-1 / 0xff * (unsigned char)byte;
    for (; n && ((uintptr_t)d & (ND_WORD_ - 1)); n--) *d++ = (unsigned char)byte;
    for (; n >= ND_WORD_; n -= ND_WORD_, d += ND_WORD_) *(nd_word_ *)d = word;
    for (; n; n--) *d++ = (unsigned char)byte;
    return to;
}

ND_RUNTIME_ int memcmp(const void *left, const void *right, size_t n) {
    const unsigned char *a = (const unsigned char *)left, *b = (const unsigned char *)right;
    for (; n; n--, a++, b++)
        if (*a != *b) return *a - *b;
    return 0;
}

ND_RUNTIME_ size_t strlen(const char *text) {
    const char *end = text;
    while (*end) end++;
    return (size_t)(end - text);
}

#endif /* ND_NATIVE */

#endif
