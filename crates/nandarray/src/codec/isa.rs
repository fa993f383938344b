//! One portable kernel, compiled once per instruction set, chosen at run time.
//!
//! The kernels of this module are plain safe Rust written so that LLVM vectorises them; what they need is to be
//! compiled with more than the baseline's SSE2. [`per_instruction_set!`] makes, from one `#[inline(always)]` kernel, a
//! function that runs it with AVX-512 VBMI (Ice Lake and Zen 4 on), AVX2 or the baseline. Every version computes the
//! same bytes.
//!
//! Does not: hold intrinsics, or dispatch on anything but x86-64 (NEON is in AArch64's baseline).

/// Defines `fn $name($($arg: $type),*)` that runs the inline kernel `$kernel` with the best instruction set at hand.
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
