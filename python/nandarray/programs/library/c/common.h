/* common.h: what the ready-made programs share: element types, error codes, arithmetic in a fixed order.
 *
 * A program is compiled for one element type, -DDTYPE=float64, and for one kind, -DSTREAM=1 for the form with stream
 * instructions. Sizes that shape a record (-DROW_BYTES=...) are constants, too, so that inner loops know them. Each
 * file has defaults, and compiles as it is.
 */
#ifndef PROGRAMS_COMMON_H
#define PROGRAMS_COMMON_H

#include <nandarray.h>

/* Whether native forms have vectors written out. `nandarray advise` compiles them without, too, to see what that
 * gains. */
#if defined(ND_NATIVE) && !defined(ND_NO_VECTORS)
#define NATIVE_VECTORS 1
#else
#define NATIVE_VECTORS 0
#endif

/* Whether intrinsics of RISC-V's V can work on elements of some bytes. */
#if defined(__riscv_vector) && !defined(ND_NATIVE)
#define RISCV_VECTORS(bytes) (8 * (bytes) <= __riscv_v_elen)
#else
#define RISCV_VECTORS(bytes) 0
#endif

/* The meaning of BAD_INPUT; a program may have its own. */
#ifndef BAD_INPUT_TEXT
#define BAD_INPUT_TEXT "an input is not what it should be"
#endif

/* Expands its arguments first, so that metadata may use macros. Says what the statuses below mean. */
#define PROGRAM(...) PROGRAM_(BAD_INPUT_TEXT, __VA_ARGS__)
#define PROGRAM_(bad_input, ...)                                            \
    ND_PROGRAM("errors": {"-1": "a scalar has a value that makes no sense", \
                          "-2": bad_input,                                  \
                          "-3": "the result is larger than its room"},      \
               __VA_ARGS__)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

#ifndef STREAM
#define STREAM 0
#endif
#if STREAM
#define KIND "stream"
#else
#define KIND "block"
#endif

/* ---- element types --------------------------------------------------------------------------------------------- */

#define CODE_int8 1
#define CODE_int16 2
#define CODE_int32 3
#define CODE_int64 4
#define CODE_uint8 5
#define CODE_uint16 6
#define CODE_uint32 7
#define CODE_uint64 8
#define CODE_float32 9
#define CODE_float64 10
#define CODE_OF_(dtype) CODE_##dtype
#define CODE_OF(dtype) CODE_OF_(dtype)

#ifndef DTYPE
#define DTYPE float64
#endif
#define DTYPE_CODE CODE_OF(DTYPE)
#define DTYPE_NAME TEXT(DTYPE)

/* T: the element; LOAD, STORE: stream instructions for it; T_MIN, T_MAX: its ends (of floats, infinities). */
#if DTYPE_CODE == CODE_int8
typedef int8_t T;
#define T_BYTES 1
#define T_LOAD nd_load_i8
#define T_STORE nd_store_i8
#define T_MIN INT8_MIN
#define T_MAX INT8_MAX
#elif DTYPE_CODE == CODE_int16
typedef int16_t T;
#define T_BYTES 2
#define T_LOAD nd_load_i16
#define T_STORE nd_store_i16
#define T_MIN INT16_MIN
#define T_MAX INT16_MAX
#elif DTYPE_CODE == CODE_int32
typedef int32_t T;
#define T_BYTES 4
#define T_LOAD nd_load_i32
#define T_STORE nd_store_i32
#define T_MIN INT32_MIN
#define T_MAX INT32_MAX
#elif DTYPE_CODE == CODE_int64
typedef int64_t T;
#define T_BYTES 8
#define T_LOAD nd_load_i64
#define T_STORE nd_store_i64
#define T_MIN INT64_MIN
#define T_MAX INT64_MAX
#elif DTYPE_CODE == CODE_uint8
typedef uint8_t T;
#define T_BYTES 1
#define T_LOAD nd_load_u8
#define T_STORE nd_store_u8
#define T_MIN 0
#define T_MAX UINT8_MAX
#elif DTYPE_CODE == CODE_uint16
typedef uint16_t T;
#define T_BYTES 2
#define T_LOAD nd_load_u16
#define T_STORE nd_store_u16
#define T_MIN 0
#define T_MAX UINT16_MAX
#elif DTYPE_CODE == CODE_uint32
typedef uint32_t T;
#define T_BYTES 4
#define T_LOAD nd_load_u32
#define T_STORE nd_store_u32
#define T_MIN 0
#define T_MAX UINT32_MAX
#elif DTYPE_CODE == CODE_uint64
typedef uint64_t T;
#define T_BYTES 8
#define T_LOAD nd_load_u64
#define T_STORE nd_store_u64
#define T_MIN 0
#define T_MAX UINT64_MAX
#elif DTYPE_CODE == CODE_float32
typedef float T;
#define T_BYTES 4
#define T_LOAD nd_load_f32
#define T_STORE nd_store_f32
#define T_MIN (-__builtin_inff())
#define T_MAX __builtin_inff()
#elif DTYPE_CODE == CODE_float64
typedef double T;
#define T_BYTES 8
#define T_LOAD nd_load_f64
#define T_STORE nd_store_f64
#define T_MIN (-__builtin_inf())
#define T_MAX __builtin_inf()
#else
#error "DTYPE is int8 to int64, uint8 to uint64, float32 or float64"
#endif

#define T_FLOAT (DTYPE_CODE >= CODE_float32)
#define T_SIGNED (DTYPE_CODE <= CODE_int64 || T_FLOAT)

/* A scalar argument of type T. */
static inline T t_scalar(const nd_args *args, unsigned i) {
#if DTYPE_CODE == CODE_float64
    return nd_scalar_f64(args, i);
#elif DTYPE_CODE == CODE_float32
    return nd_scalar_f32(args, i);
#else
    return (T)nd_scalar_u64(args, i);
#endif
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

#define BAD_SCALAR (-1)  /* a scalar has a value that makes no sense */
#define BAD_INPUT (-2)   /* an input's bytes are not what they should be, or inputs do not fit each other */
#define OUTPUT_FULL (-3) /* the result is larger than its room */

/* ---- words ----------------------------------------------------------------------------------------------------- */

typedef uint64_t __attribute__((may_alias)) word64;

static inline uint32_t load_u32(const void *from) {
    uint32_t value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

static inline uint64_t load_u64(const void *from) {
    uint64_t value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}

/* Before a loop of few instructions: several elements a turn, so that counting and branching cost less. */
#define UNROLL(n) _Pragma(TEXT(clang loop unroll_count(n)))
#define UNROLL_ALL _Pragma("clang loop unroll(full)")

/* Copies BYTES bytes, a constant, between places whose distances from 8-byte addresses are multiples of STEP; with
 * STEP 8 or 4 or 2 by units of that, otherwise byte by byte. */
static inline __attribute__((always_inline)) void copy_fixed(void *to, const void *from, size_t bytes, size_t step) {
    if ((step | bytes) % 8 == 0)
        __builtin_memcpy(__builtin_assume_aligned(to, 8), __builtin_assume_aligned(from, 8), bytes);
    else if ((step | bytes) % 4 == 0)
        __builtin_memcpy(__builtin_assume_aligned(to, 4), __builtin_assume_aligned(from, 4), bytes);
    else if ((step | bytes) % 2 == 0)
        __builtin_memcpy(__builtin_assume_aligned(to, 2), __builtin_assume_aligned(from, 2), bytes);
    else
        __builtin_memcpy(to, from, bytes);
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

/* Bytes of a stream that are waited for together: one page of a stream buffer, whose other pages are on their way
 * meanwhile; enough for asking to cost nothing. */
#define AT_A_TIME 4096
/* Wait for elements of stream S: how many can be loaded without asking for its end; 1 at least, which may be torn. */
#define READY(s, type)                                           \
    __extension__({                                              \
        size_t ready_n_ = nd_wait((s), AT_A_TIME) / sizeof(type); \
        ready_n_ ? ready_n_ : (size_t)1;                         \
    })
/* Do what follows once for each element of input stream S; it loads exactly one. */
#define EACH_OF_STREAM(s, type) \
    while (!nd_at_end(s))       \
        UNROLL(4) for (size_t ready_ = READY(s, type); ready_; ready_--)

/* ---- sums in a fixed order ------------------------------------------------------------------------------------- */

/* A sum of floats runs over chunks of CHUNK elements, counted from the task's first element; within a chunk, element
 * i is added to lane i mod LANES, and lanes are added up as a tree. */
#define LANES 8
#define CHUNK 4096

#if NATIVE_VECTORS
/* All lanes as one vector: left to itself, Clang makes it of narrower ones. */
typedef double lanes __attribute__((vector_size(8 * LANES)));
typedef T lanes_t_ __attribute__((vector_size(T_BYTES * LANES), aligned(T_BYTES), may_alias));

static inline lanes lanes_of(const T *x) { return __builtin_convertvector(*(const lanes_t_ *)x, lanes); }
#endif

static inline double lanes_total(const double lane[LANES]) {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

#endif
