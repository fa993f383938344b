/* Vector instructions in loops, eight of them an iteration but for the mix: by an offload (nd_block) and, compiled with
 * STANDALONE, as a process of Linux, for emulators. Registers have 256 bits, elements 32; `work` names the loop.
 *
 * It computes nothing of use; each loop ends with a number that depends on its vectors.
 */
#include <stddef.h>
#include <stdint.h>

#define LANES 8
#define CLOBBERS                                                                                                      \
    "memory", "vl", "vtype", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", \
        "v14", "v15"

static uint32_t left[1024], right[1024], result[1024];

/* Repeats TEXT; %1 is an address in `left`, %2 in `right`, %3 in `result`, %4 a number. */
#define LOOP(TEXT)                                                                                            \
    for (int64_t i = 0; i < rounds; i++) {                                                                    \
        size_t at = (size_t)i * LANES % 1024;                                                                 \
        __asm__ volatile(TEXT : : "r"(0), "r"(left + at), "r"(right + at), "r"(result + at), "r"(i) : CLOBBERS); \
    }

#define ARITHMETIC                                                                                                \
    "vadd.vv v3, v1, v2\n vmul.vv v4, v1, v3\n vsub.vv v5, v4, v2\n vand.vv v6, v5, v1\n vsll.vi v7, v6, 3\n"  \
    "vxor.vv v8, v7, v3\n vmax.vv v9, v8, v4\n vadd.vx v1, v9, %4\n"
#define MEMORY                                                                                               \
    "vle32.v v1, (%1)\n vse32.v v1, (%3)\n vle32.v v2, (%2)\n vse32.v v2, (%3)\n vle32.v v3, (%3)\n"       \
    "vse32.v v3, (%1)\n vle32.v v4, (%1)\n vse32.v v4, (%2)\n"
#define MASKS                                                                                                \
    "vmslt.vv v0, v1, v2\n vadd.vv v3, v1, v2, v0.t\n vmseq.vx v4, v3, %4\n vmand.mm v0, v0, v4\n"          \
    "vmerge.vvm v5, v1, v3, v0\n vmsltu.vv v0, v5, v2\n vadd.vi v1, v1, 1, v0.t\n vmxor.mm v4, v0, v4\n"
#define FLOATS                                                                                               \
    "vfadd.vv v3, v1, v2\n vfmul.vv v4, v3, v2\n vfmacc.vv v4, v1, v2\n vfsub.vv v5, v4, v3\n"              \
    "vfmax.vv v6, v5, v1\n vfmacc.vv v6, v3, v2\n vfmul.vv v7, v6, v2\n vfadd.vv v8, v7, v1\n"
#define FOLDS                                                                                                \
    "vmv.s.x v3, zero\n vredsum.vs v3, v1, v3\n vslidedown.vi v4, v1, 2\n vredmax.vs v5, v2, v3\n"          \
    "vrgather.vv v6, v1, v9\n vwadd.vv v10, v1, v2\n vnsrl.wi v7, v10, 1\n vmv.x.s t0, v5\n"
/* As in a filter or a sum of products: loads, arithmetic, a comparison, a masked operation, a store. */
#define MIX                                                                                                  \
    "vsetivli zero, 8, e32, m1, ta, ma\n vle32.v v1, (%1)\n vle32.v v2, (%2)\n vmul.vv v3, v1, v2\n"        \
    "vadd.vv v4, v4, v3\n vmslt.vx v0, v3, %4\n vadd.vv v5, v5, v1, v0.t\n vsrl.vi v6, v5, 2\n"             \
    "vse32.v v6, (%3)\n"

static int64_t run(int64_t work, int64_t rounds) {
    for (size_t i = 0; i < 1024; i++) left[i] = (uint32_t)i * 2654435761u, right[i] = (uint32_t)i + 1;
    __asm__ volatile("vsetivli zero, 8, e32, m1, ta, ma\n vle32.v v1, (%0)\n vle32.v v2, (%1)\n vid.v v9\n"
                     : : "r"(right), "r"(right + 8) : CLOBBERS);
    switch (work) {
        case 0: LOOP(ARITHMETIC) break;
        case 1: LOOP(MEMORY) break;
        case 2: LOOP(MASKS) break;
        case 3:
            __asm__ volatile("vfcvt.f.x.v v1, v1\n vfcvt.f.x.v v2, v2\n" : : : CLOBBERS);
            LOOP(FLOATS)
            break;
        case 4: LOOP(FOLDS) break;
        default: LOOP(MIX) break;
    }
    __asm__ volatile("vse32.v v1, (%0)" : : "r"(result) : "memory");
    return result[0] & 0xff;
}

#ifdef STANDALONE
void _start(void) {
    run(WORK, ROUNDS);
    register long number __asm__("a7") = 93, status __asm__("a0") = 0;
    __asm__ volatile("csrr a0, vlenb\n addi a0, a0, -32\n ecall" : "+r"(status) : "r"(number));
    __builtin_unreachable();
}
#else
#include <nandarray.h>

ND_PROGRAM("name": "vectors", "kind": "block", "inputs": [{"name": "x", "dtype": "int64"}],
           "outputs": [{"name": "y", "dtype": "int64"}],
           "scalars": [{"name": "work", "dtype": "int64"}, {"name": "rounds", "dtype": "int64"}])

int64_t nd_block(nd_args *args) {
    ND_OUTPUT(args, 0, int64_t)[0] = run(nd_scalar_i64(args, 0), nd_scalar_i64(args, 1));
    ND_SET_USED(args, 0, 1, int64_t);
    return 0;
}
#endif
