//! Tests of the vector unit by itself; instructions as a whole are compared in `tests/vector`.
