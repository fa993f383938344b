/* core_portme.h: what CoreMark asks of a machine, for programs beside the data and for bare ones.
 *
 * CoreMark's own five files are not in this tree: `python -m bench coremark` takes them from a wheel. No clock is read
 * here: cycles are counted outside, by the difference of two runs. The amount of data, and which run it is, are options
 * of the compiler, as in Ibex's port.
 */
#ifndef CORE_PORTME_H
#define CORE_PORTME_H

#include <stddef.h>
#include <stdint.h>

#define HAS_FLOAT 0
#define HAS_TIME_H 0
#define USE_CLOCK 0
#define HAS_STDIO 0
#define HAS_PRINTF 0
#define COMPILER_VERSION "Clang"
#define COMPILER_FLAGS ""
#define MEM_LOCATION "STACK"
#define SEED_METHOD SEED_VOLATILE
#define MEM_METHOD MEM_STACK
#define MULTITHREAD 1
#define USE_PTHREAD 0
#define USE_FORK 0
#define USE_SOCKET 0
#define MAIN_HAS_NORETURN 0

typedef int16_t ee_s16;
typedef uint16_t ee_u16;
typedef int32_t ee_s32;
typedef float ee_f32;
typedef uint8_t ee_u8;
typedef uint32_t ee_u32;
typedef uintptr_t ee_ptr_int;
typedef size_t ee_size_t;
typedef ee_u32 CORE_TICKS;

/* The next address that 32-bit values may have. */
#define align_mem(x) (void *)(((ee_ptr_int)(x) + 3) & ~(ee_ptr_int)3)

extern ee_u32 default_num_contexts;
typedef struct CORE_PORTABLE_S {
    ee_u8 portable_id;
} core_portable;

void portable_init(core_portable *p, int *argc, char *argv[]);
void portable_fini(core_portable *p);
int ee_printf(const char *format, ...);

#endif
