/* A test that fails in number 3. */
#include "test.h"

BEGIN
    li a0, 5
    EXPECT(1, a0, 5)
    EXPECT(2, a0, 5)
    EXPECT(3, a0, 6)
    j pass
HOST
