//! Host code: where it is made by Cranelift, and kept until all of it is dropped.

use cranelift_codegen::Context as Compiler;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};

use crate::context::{Entry, Layout};
use crate::emit::{Target, emit};
use crate::region::Region;
use crate::sites::Sites;

/// Host code.
pub(crate) struct Code {
    /// None if this host has no code generator.
    module: Option<JITModule>,
    compiler: Compiler,
    builder: FunctionBuilderContext,
    fma: bool,
    regions: usize,
}

// SAFETY: the module owns its memory and is reached through exclusive references only; no thread keeps anything of it.
unsafe impl Send for Code {}

fn module() -> Option<JITModule> {
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
    Some(JITModule::new(JITBuilder::with_isa(isa, default_libcall_names())))
}

impl Code {
    pub(crate) fn new() -> Self {
        let module = module();
        // Where the host has no fused multiply-add, Cranelift would call a library for it.
        let fma = module.as_ref().is_some_and(|m| {
            let isa = m.isa();
            let flag = isa.isa_flags().iter().any(|v| v.name == "has_fma" && v.as_bool() == Some(true));
            flag || !matches!(isa.triple().architecture.to_string().as_str(), "x86_64")
        });
        Self { module, compiler: Compiler::new(), builder: FunctionBuilderContext::new(), fma, regions: 0 }
    }

    /// Whether there is a code generator for this host.
    pub(crate) fn works(&self) -> bool {
        self.module.is_some()
    }

    /// Regions that are kept.
    pub(crate) fn regions(&self) -> usize {
        self.regions
    }

    /// Drop all code. Nobody may be executing it, or keep an [`Entry`].
    pub(crate) fn forget(&mut self) {
        if self.regions > 0 {
            self.free();
            self.module = module();
            self.regions = 0;
        }
    }

    fn free(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: entries are called by the engine alone, which drops them all when it has code dropped.
            unsafe { module.free_memory() };
        }
    }

    /// Make code for a region: its entry, and its bytes. None if the code generator refuses it.
    pub(crate) fn make(&mut self, region: &Region, bits: u32, layout: &Layout, sites: &Sites) -> Option<(Entry, u64)> {
        let module = self.module.as_mut()?;
        self.compiler.clear();
        let target = Target { bits, layout, sites, isa: module.isa(), fma: self.fma };
        emit(region, &target, &mut self.compiler.func, &mut self.builder);
        let function = module.declare_anonymous_function(&self.compiler.func.signature).ok()?;
        module.define_function(function, &mut self.compiler).ok()?;
        let bytes = self.compiler.compiled_code().map_or(0, |code| code.code_buffer().len() as u64);
        module.finalize_definitions().ok()?;
        self.regions += 1;
        let pointer = module.get_finalized_function(function);
        // SAFETY: `emit` gave the function this signature, in the host's calling convention.
        Some((unsafe { std::mem::transmute::<*const u8, Entry>(pointer) }, bytes))
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        self.free();
    }
}
