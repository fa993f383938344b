//! Any bytes as a trace: fio iolog, blkparse text, MSR Cambridge CSV.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nandarray_model::internals::fuzzed_trace(data));
