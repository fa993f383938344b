//! Host code: made by Cranelift, and kept until all of it is dropped.

use cranelift_codegen::Context as Compiler;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};

use crate::context::{CodeEntry, ContextLayout};
use crate::emit::{CodeTarget, emit};
use crate::region::Region;
use crate::sites::Sites;

/// Bytes of a page of the host, at most: code that is finished is protected, so the next is in pages of its own.
const PAGE_BYTES: u64 = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };

/// Cranelift's compiler and the memory of its code.
struct RegionCompiler {
    module: JITModule,
    compiler: Compiler,
    builder: FunctionBuilderContext,
    fma: bool,
}

/// Host code.
#[derive(Default)]
pub(crate) struct HostCode {
    /// None before the first region, and if this host has no code generator.
    maker: Option<RegionCompiler>,
}

// SAFETY: the module owns its memory and is reached through exclusive references only; no thread keeps anything of it
// but addresses of finished code, which does not change.
unsafe impl Send for HostCode {}

impl RegionCompiler {
    fn new() -> Option<Self> {
        let mut flags = settings::builder();
        for (name, value) in [
            ("opt_level", "speed"),
            ("use_colocated_libcalls", "false"),
            ("is_pic", "false"),
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
            ("enable_probestack", "false"),
        ] {
            flags.set(name, value).ok()?;
        }
        let isa = cranelift_native::builder().ok()?.finish(settings::Flags::new(flags)).ok()?;
        // Where the host has no fused multiply-add, Cranelift would call a library for it.
        let flag = isa.isa_flags().iter().any(|v| v.name == "has_fma" && v.as_bool() == Some(true));
        let fma = flag || isa.triple().architecture.to_string() != "x86_64";
        let module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
        Some(Self { module, compiler: Compiler::new(), builder: FunctionBuilderContext::new(), fma })
    }
}

impl HostCode {
    /// Compiles a region; returns the entry of the code, and the bytes of its pages. `None` if the code generator
    /// refuses the region.
    pub(crate) fn make(
        &mut self,
        region: &Region,
        bits: u32,
        layout: &ContextLayout,
        sites: &Sites,
        bases: &[u64],
    ) -> Option<(CodeEntry, u64)> {
        if self.maker.is_none() {
            self.maker = RegionCompiler::new();
        }
        let RegionCompiler { module, compiler, builder, fma } = self.maker.as_mut()?;
        compiler.clear();
        let target = CodeTarget { bits, layout, sites, bases, isa: module.isa(), fma: *fma };
        emit(region, &target, &mut compiler.func, builder);
        let function = module.declare_anonymous_function(&compiler.func.signature).ok()?;
        module.define_function(function, compiler).ok()?;
        let bytes = compiler.compiled_code().map_or(0, |code| code.code_buffer().len() as u64);
        module.finalize_definitions().ok()?;
        let pointer = module.get_finalized_function(function);
        // SAFETY: `emit` gave the function this signature, in the host's calling convention.
        Some((unsafe { std::mem::transmute::<*const u8, CodeEntry>(pointer) }, bytes.next_multiple_of(PAGE_BYTES)))
    }
}

impl Drop for HostCode {
    fn drop(&mut self) {
        if let Some(maker) = self.maker.take() {
            // SAFETY: entries are called by engines alone, each of which holds what this is a part of.
            unsafe { maker.module.free_memory() };
        }
    }
}
