//! A RISC-V hart: the processor that executes programs beside the data, functionally and fast.
//!
//! It supports RV32 and RV64 with IMAFDC, Zicsr, Zicntr, Zifencei, Zba, Zbb, Zbs, V and the stream instructions of the
//! ASSASIN dissertation (Table 7.2). A program can access its [`Memory`] and its [`Streams`] and nothing else.
//! [`Hart::run`] executes blocks of decoded instructions ([`BasicBlock`]), which a translator and timing models also
//! use. Its results are the reference for both; it does not model time. `program` loads ELF files, `bare` runs
//! bare-metal tests.
//!
//! ```
//! use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Rv64, Stop, Streams, isa};
//!
//! let code: Vec<u8> = ["add a0, a0, a1", "jalr zero, 0(ra)"]
//!     .iter()
//!     .flat_map(|line| isa::encode(&isa::assemble(line, 64).unwrap()).to_le_bytes())
//!     .collect();
//! let mut memory = Memory::new();
//! memory.add_program(0x1000, 4096, 0x1800..0x2000, 0x1000..0x1800)?;
//! memory.get_mut(0x1000..0x1008)?.copy_from_slice(&code);
//! let mut hart = Hart::<Rv64>::new(HartMode::Program, Extensions::PROGRAM);
//! hart.call(0x1000, 0x2000, &[40, 2]);
//! assert_eq!(hart.run(&mut memory, &mut Streams::none(), Limits::default()), Stop::Returned { code: 42 });
//! # Ok::<(), nandarray_hart::MemoryError>(())
//! ```

mod access;
#[cfg(feature = "bare")]
pub mod bare;
mod block;
mod cache;
#[cfg(feature = "bare")]
mod csr;
mod exec;
mod float;
mod hart;
pub mod isa;
mod memory;
mod meter;
mod profile;
#[cfg(feature = "elf")]
mod program;
#[cfg(feature = "bare")]
mod protect;
mod streams;
mod trap;
mod varve;
mod vector;
mod work;
mod xlen;

pub use block::{BasicBlock, OPS_MAX};
#[cfg(feature = "bare")]
pub use csr::Privilege;
pub use float::{FloatFunction, float_function};
pub use hart::{Hart, HartMode, Limits, MappedRegion, Registers, Stop, TranslatorPort};
pub use isa::{Class, Extension, Extensions};
pub use memory::{Memory, MemoryError};
pub use meter::{DataAccess, Meter, MeterAnswer, StreamAccess, Unmetered};
pub use profile::{Counter, Profile};
#[cfg(feature = "elf")]
pub use program::{ElfProgram, Loaded, ProgramError, ProgramSegment, SPAN_MAX};
pub use streams::{InputStream, OutputStream, REACH, Room, STREAMS_MAX, Streams};
pub use trap::{Cause, Trap};
pub use vector::VLEN_MAX;
pub use work::{VectorBytes, VectorWork, VectorWorkKind};
pub use xlen::{Rv32, Rv64, Xlen};
