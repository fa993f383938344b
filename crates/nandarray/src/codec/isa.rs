//! Compiles one portable kernel for several instruction sets, and chooses between them at run time.
//!
//! The kernels are plain safe Rust, written so that LLVM vectorises them; they only need to be compiled for more than
//! the baseline's SSE2. From one `#[inline(always)]` kernel [`per_instruction_set!`] makes a function that runs it with
//! AVX-512 VBMI (Ice Lake and Zen 4 on), AVX2 or the baseline. All versions compute the same bytes.
//!
//! There are no intrinsics here, and no choice except on x86-64 (NEON is in AArch64's baseline).

/// Defines `fn $name($($arg: $type),*)`, which runs the inline kernel `$kernel` with the best available instruction
/// set.
macro_rules! per_instruction_set {
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) => $kernel:path) => {
        $(#[$meta])*
        pub(super) fn $name($($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
                fn avx512($($arg: $type),*) {
                    $kernel($($arg),*);
                }
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $type),*) {
                    $kernel($($arg),*);
                }
                if is_x86_feature_detected!("avx512vbmi")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                {
                    // SAFETY: the three features were just detected, and each of them implies AVX-512F.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: AVX2 was just detected.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $kernel($($arg),*);
        }
    };
}

pub(super) use per_instruction_set;
