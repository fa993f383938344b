/* Matrices in single and double precision: products, an LU solution, norms, conversions. It prints bits and flags. */
#include "system.h"

#define SIDE 24

#define KERNEL(real, name)                                                                                            \
    static real name##_a[SIDE][SIDE], name##_b[SIDE][SIDE], name##_c[SIDE][SIDE], name##_x[SIDE];                     \
    static void name##_multiply(void)                                                                                 \
    {                                                                                                                 \
        for (int i = 0; i < SIDE; i++)                                                                                \
            for (int j = 0; j < SIDE; j++) {                                                                          \
                real sum = 0;                                                                                         \
                for (int k = 0; k < SIDE; k++)                                                                        \
                    sum += name##_a[i][k] * name##_b[k][j];                                                           \
                name##_c[i][j] = sum;                                                                                 \
            }                                                                                                         \
    }                                                                                                                 \
    static void name##_solve(void)                                                                                    \
    {                                                                                                                 \
        for (int i = 0; i < SIDE; i++)                                                                                \
            name##_x[i] = (real)(i + 1) / 7;                                                                          \
        for (int k = 0; k < SIDE; k++) {                                                                              \
            int best = k;                                                                                             \
            for (int i = k + 1; i < SIDE; i++)                                                                        \
                if (name##_c[i][k] * name##_c[i][k] > name##_c[best][k] * name##_c[best][k])                          \
                    best = i;                                                                                         \
            for (int j = 0; j < SIDE; j++) {                                                                          \
                real t = name##_c[k][j];                                                                              \
                name##_c[k][j] = name##_c[best][j];                                                                   \
                name##_c[best][j] = t;                                                                                \
            }                                                                                                         \
            real t = name##_x[k];                                                                                     \
            name##_x[k] = name##_x[best];                                                                             \
            name##_x[best] = t;                                                                                       \
            for (int i = k + 1; i < SIDE; i++) {                                                                      \
                real factor = name##_c[i][k] / name##_c[k][k];                                                        \
                for (int j = k; j < SIDE; j++)                                                                        \
                    name##_c[i][j] -= factor * name##_c[k][j];                                                        \
                name##_x[i] -= factor * name##_x[k];                                                                  \
            }                                                                                                         \
        }                                                                                                             \
        for (int i = SIDE; i-- > 0;) {                                                                                \
            for (int j = i + 1; j < SIDE; j++)                                                                        \
                name##_x[i] -= name##_c[i][j] * name##_x[j];                                                          \
            name##_x[i] /= name##_c[i][i];                                                                            \
        }                                                                                                             \
    }                                                                                                                 \
    static unsigned long long name##_run(void)                                                                        \
    {                                                                                                                 \
        unsigned long long mixed = 0;                                                                                 \
        for (int i = 0; i < SIDE; i++)                                                                                \
            for (int j = 0; j < SIDE; j++) {                                                                          \
                name##_a[i][j] = (real)((i * 7 + j * 13) % 17) - (real)8.25 + (i == j ? 3 : 0);                       \
                name##_b[i][j] = (real)((i * 5 + j * 3) % 11) / (real)3;                                              \
            }                                                                                                         \
        name##_multiply();                                                                                            \
        for (int i = 0; i < SIDE; i++)                                                                                \
            for (int j = 0; j < SIDE; j++)                                                                            \
                mixed = mixed * 1000003 + (unsigned long long)(long long)(name##_c[i][j] * 1024);                     \
        for (int i = 0; i < SIDE; i++)                                                                                \
            name##_c[i][i] += 40;                                                                                     \
        name##_solve();                                                                                               \
        real norm = 0;                                                                                                \
        for (int i = 0; i < SIDE; i++)                                                                                \
            norm += name##_x[i] * name##_x[i];                                                                        \
        norm = name##_root(norm);                                                                                     \
        union {                                                                                                       \
            real value;                                                                                               \
            unsigned char bytes[sizeof(real)];                                                                        \
        } bits = {norm};                                                                                              \
        for (unsigned int i = 0; i < sizeof(real); i++)                                                               \
            mixed = mixed * 257 + bits.bytes[i];                                                                      \
        return mixed;                                                                                                 \
    }

static float single_root(float value)
{
    return __builtin_sqrtf(value);
}

static double double_root(double value)
{
    return __builtin_sqrt(value);
}

KERNEL(float, single)
KERNEL(double, double)

int main(void)
{
    unsigned long flags;
    print_number("single", single_run());
    __asm__ volatile("frflags %0" : "=r"(flags));
    print_number("flags", flags);
    print_number("double", double_run());
    volatile double zero = 0, large = 1e300;
    volatile double made = (large * large) / zero + zero / zero;
    (void)made;
    __asm__ volatile("frflags %0" : "=r"(flags));
    print_number("flags", flags);
    return 0;
}
