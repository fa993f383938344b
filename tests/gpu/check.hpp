// CHECK of the tests: a condition that does not hold is printed with its place, and ends the program with 1.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #x);                                 \
            std::fflush(nullptr);                                                                                      \
            std::_Exit(1); /* threads may be at work */                                                                \
        }                                                                                                              \
    } while (0)
