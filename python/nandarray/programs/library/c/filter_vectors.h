/* filter_vectors.h: the loop of filter.c with RISC-V's V, whatever the length of its registers.
 *
 * Elements have the group of registers that goes with four of the results: a mask of one is a mask of the other.
 */
#ifndef PROGRAMS_FILTER_VECTORS_H
#define PROGRAMS_FILTER_VECTORS_H

#include <riscv_vector.h>

/* Bits and group of an element, and the letter of its type. */
#if T_BYTES == 1
#define V_BITS 8
#define V_GROUP_OF_INDEX mf2
#elif T_BYTES == 2
#define V_BITS 16
#define V_GROUP_OF_INDEX m1
#elif T_BYTES == 4
#define V_BITS 32
#define V_GROUP_OF_INDEX m2
#else
#define V_BITS 64
#define V_GROUP_OF_INDEX m4
#endif
#if WANT == 0
#define V_GROUP m4
#else
#define V_GROUP V_GROUP_OF_INDEX
#endif
#if T_FLOAT
#define V_LETTER f
#define V_AT_LEAST __riscv_vmfge
#define V_AT_MOST __riscv_vmfle
#elif T_SIGNED
#define V_LETTER i
#define V_AT_LEAST __riscv_vmsge
#define V_AT_MOST __riscv_vmsle
#else
#define V_LETTER u
#define V_AT_LEAST __riscv_vmsgeu
#define V_AT_MOST __riscv_vmsleu
#endif

#define V_JOIN_(a, b, c, d) a##b##c##d
#define V_JOIN(a, b, c, d) V_JOIN_(a, b, c, d)
#define V_SET_LENGTH V_JOIN(__riscv_vsetvl_e, V_BITS, V_GROUP, )
#define V_LOAD_OF(name) V_JOIN(name, V_LETTER, V_BITS, V_GROUP)
#define V_LOAD V_LOAD_OF(V_JOIN(__riscv_vle, V_BITS, _v_, ))
#define V_STORE V_JOIN(__riscv_vse, V_BITS, , )

static inline size_t keep_all(RESULT *restrict kept, const T *restrict x, size_t n, uint64_t first, T low, T high) {
    size_t count = 0;
    (void)first;
    for (size_t i = 0, length; i < n; i += length) {
        length = V_SET_LENGTH(n - i);
        __auto_type values = V_LOAD(x + i, length);
        __auto_type inside = __riscv_vmand(V_AT_LEAST(values, low, length), V_AT_MOST(values, high, length), length);
        size_t found = __riscv_vcpop(inside, length);
#if WANT == 0
        V_STORE(kept + count, __riscv_vcompress(values, inside, length), found);
#else
        vuint64m4_t numbers = __riscv_vadd(__riscv_vid_v_u64m4(length), first + i, length);
        __riscv_vse64(kept + count, __riscv_vcompress(numbers, inside, length), found);
#endif
        count += found;
    }
    return count;
}

#endif
