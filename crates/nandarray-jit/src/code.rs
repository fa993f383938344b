//! Host code: compiled by Cranelift, and kept in memory until all of it is dropped.

use cranelift_codegen::Context as Compiler;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};

use crate::context::{CodeEntry, ContextLayout, SLOTS};
use crate::emit::{CodeTarget, emit};
use crate::region::Region;
use crate::sites::Sites;

/// Largest size of a host page in bytes. Finished code is write-protected page by page, so the next code begins on a
/// new page.
const PAGE_BYTES: u64 = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };

/// Cranelift's compiler, with the memory of the code that it has compiled.
struct RegionCompiler {
    module: JITModule,
    compiler: Compiler,
    builder: FunctionBuilderContext,
    fma: bool,
}

/// The host code of one program, with its compiler.
#[derive(Default)]
pub(crate) struct HostCode {
    /// The compiler; `None` before the first region, and if Cranelift does not support this host.
    maker: Option<RegionCompiler>,
}

// SAFETY: the module owns its memory and is reached through exclusive references only; threads keep nothing of it but
// addresses of finished code, which does not change.
unsafe impl Send for HostCode {}

/// Whether code can be generated for this host; where it cannot, everything is interpreted.
pub fn has_translator() -> bool {
    cranelift_native::builder().is_ok()
}

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
        // On a host without fused multiply-add, Cranelift would call a library for it.
        let flag = isa.isa_flags().iter().any(|v| v.name == "has_fma" && v.as_bool() == Some(true));
        let fma = flag || isa.triple().architecture.to_string() != "x86_64";
        let module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
        Some(Self { module, compiler: Compiler::new(), builder: FunctionBuilderContext::new(), fma })
    }
}

impl HostCode {
    /// Compiles a region; returns the entry of its code, and the bytes of the pages that the code occupies. `None` if
    /// the code generator rejects the region or does not support this host.
    pub(crate) fn make(
        &mut self,
        region: &Region,
        bits: u32,
        layout: &ContextLayout,
        sites: &Sites,
        bases: &[u64],
    ) -> Option<(CodeEntry, u64)> {
        assert!(bits == 32 || bits == 64, "registers of {bits} bits");
        assert!(bases.len() <= SLOTS, "{} memory regions have no slots", bases.len());
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
        assert!(!pointer.is_null(), "finished code has an address");
        // SAFETY: `emit` built the function with this signature, in the host's calling convention.
        Some((unsafe { std::mem::transmute::<*const u8, CodeEntry>(pointer) }, bytes.next_multiple_of(PAGE_BYTES)))
    }
}

impl Drop for HostCode {
    fn drop(&mut self) {
        if let Some(maker) = self.maker.take() {
            // SAFETY: only engines call the entries, and each engine holds the shared data that this code is a part of.
            unsafe { maker.module.free_memory() };
        }
    }
}
