//! Timing of described RISC-V cores: pipelines, caches, prefetchers. The crate counts a core's ticks; events and flash
//! belong to other crates.
//!
//! ```text
//! hart executes  ->  TimedCore (a meter)  ->  issue: ticks of a block from a pipeline's state, worked out once
//!                                         ->  hierarchy: caches, prefetchers, a memory's port
//! ```
//!
//! | file | one idea |
//! | --- | --- |
//! | `describe` | a core as TOML, checked |
//! | `error` | key, value and range of what is refused |
//! | `presets` | the cores that come with the product |
//! | `unit` | the unit and the registers of an instruction |
//! | `vector`, `core/vector` | a vector unit: widths, alignment, unpacking ahead; the time of its instructions |
//! | `issue/` | static timing of blocks: in order (`scoreboard`), re-scheduled (`vliw`) |
//! | `cache/`, `prefetch/`, `hierarchy` | lines, prediction, and what an access waits |
//! | `feed` | how far a task's inputs have arrived |
//! | `core` | the meter that brings them together |
//! | `account` | ticks by instruction |
//! | `parts` | area and power of named parts |
//! | `report` | cycles by reason |
//!
//! A program's results do not depend on its timing. Not modelled: out-of-order issue, branch prediction
//! beyond fixed costs, coherence.
//!
//! ```
//! use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Rv32, Stop, Streams, isa};
//! use nandarray_uarch::TimedCore;
//!
//! let code: Vec<u8> = ["mul a0, a0, a1", "addi a0, a0, 1", "jalr zero, 0(ra)"]
//!     .iter()
//!     .flat_map(|line| isa::encode(&isa::assemble(line, 32).unwrap()).to_le_bytes())
//!     .collect();
//! let mut memory = Memory::new();
//! memory.add_program(0x1000, 4096, 0x1800..0x2000, 0x1000..0x1800)?;
//! memory.get_mut(0x1000..0x100c)?.copy_from_slice(&code);
//! let core = TimedCore::preset("ibex").unwrap();
//! let mut hart = Hart::<Rv32, _>::with_meter(HartMode::Program, Extensions::PROGRAM, core);
//! hart.call(0x1000, 0x2000, &[6, 7]);
//! assert_eq!(hart.run(&mut memory, &mut Streams::none(), Limits::default()), Stop::Returned { code: 43 });
//! // Multiplication 3 cycles, addition 1, jump 2.
//! assert_eq!(hart.meter().report().cycles(), 6.0);
//! # Ok::<(), nandarray_hart::MemoryError>(())
//! ```

mod account;
mod blocks;
pub mod cache;
mod core;
mod describe;
mod error;
mod feed;
mod hierarchy;
pub mod issue;
mod latest;
mod parts;
pub mod prefetch;
mod presets;
mod report;
mod unit;
mod vector;

pub use self::core::TimedCore;
pub use account::{AddressTicks, InstructionTicks};
pub use describe::{
    CacheDescription, CoreDescription, InputPath, Issue, MemoryDescription, PrefetchKind, Replacement, UnitLatencies,
    VliwUnits,
};
pub use error::DescribeError;
pub use feed::{CoreNeed, InputGate, TaskFeed};
pub use hierarchy::{CacheSide, Hierarchy, LineRequest, MemoryCounts, Stall};
pub use parts::{CorePart, PartEnergy};
pub use presets::{PRESET_NAMES, PRESETS};
pub use report::{CoreReport, Frozen};
pub use unit::{FunctionalUnit, Operands, REGISTERS};
pub use vector::{VectorCounts, VectorDescription};
