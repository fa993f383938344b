/* port.c: CoreMark as a program beside the data, or (BARE) as one that a simulator runs alone.
 *
 * The program's input is how often CoreMark is to iterate; its output is what CoreMark printed of itself: the CRCs of
 * the seeds, the list, the matrix, the state machine and the whole, and 1 if it found them right.
 */
#include <stdarg.h>
#include "core_portme.h"

#ifndef ITERATIONS
#define ITERATIONS 0
#endif

volatile ee_s32 seed1_volatile = 0, seed2_volatile = 0, seed3_volatile = 0x66;
volatile ee_s32 seed4_volatile = ITERATIONS, seed5_volatile = 0;
ee_u32 default_num_contexts = 1;

static ee_u32 printed[6];

static int begins(const char *text, const char *with) {
    while (*with && *text == *with) text++, with++;
    return *with == 0;
}

/* Keeps the numbers that are results; all else that CoreMark prints is left out. */
int ee_printf(const char *format, ...) {
    static const char *const names[] = {"seedcrc", "[%d]crclist", "[%d]crcmatrix", "[%d]crcstate", "[%d]crcfinal"};
    va_list values;
    va_start(values, format);
    for (int i = 0; i < 5; i++) {
        if (!begins(format, names[i])) continue;
        if (i > 0) (void)va_arg(values, int);
        printed[i] = va_arg(values, unsigned);
    }
    va_end(values);
    if (begins(format, "Correct operation validated")) printed[5] = 1;
    return 0;
}

void portable_init(core_portable *p, int *argc, char *argv[]) {
    (void)argc, (void)argv;
    p->portable_id = 1;
}
void portable_fini(core_portable *p) { p->portable_id = 0; }
void start_time(void) {}
void stop_time(void) {}
CORE_TICKS get_time(void) { return 0; }
ee_u32 time_in_secs(CORE_TICKS ticks) { return ticks; }

int coremark_main(void);

#ifdef BARE

static char stack[16384] __attribute__((aligned(16), used));

/* Linux' system call exit: of no use to a simulator of a bare machine, which is stopped from outside. */
__attribute__((naked, used)) void bare_start(void) {
    __asm__ volatile(".option push\n.option norelax\nla gp, __global_pointer$\n.option pop\n"
                     "la sp, stack\nli t0, 16384\nadd sp, sp, t0\ncall coremark_main\n"
                     "li a0, 0\nli a7, 93\necall\n1: j 1b\n");
}

#else

#include <nandarray.h>

ND_PROGRAM("name": "coremark", "kind": "block", "inputs": [{"name": "iterations", "dtype": "uint32"}],
           "outputs": [{"name": "printed", "dtype": "uint32", "record_bytes": 24}])

int64_t nd_block(nd_args *args) {
    seed4_volatile = (ee_s32)ND_INPUT(args, 0, uint32_t)[0];
    for (int i = 0; i < 6; i++) printed[i] = 0;
    coremark_main();
    for (int i = 0; i < 6; i++) ND_OUTPUT(args, 0, uint32_t)[i] = printed[i];
    ND_SET_USED(args, 0, 6, uint32_t);
    return 0;
}

#endif
