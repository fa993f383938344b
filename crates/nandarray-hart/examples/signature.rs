//! Runs a bare-metal test and prints its signature: `signature ELF ISA VLEN`.
//!
//! Does what `nandarray program run --bare` does, without Python; used to compare vector instructions with other
//! implementations.
#![allow(clippy::print_stdout, reason = "a program of its own")]

use nandarray_hart::Extensions;
use nandarray_hart::bare::{self, BareOptions, BareStatus};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, isa, vlen] = arguments.as_slice() else { return Err("signature ELF ISA VLEN".into()) };
    let (bits, extensions) = Extensions::parse(isa)?;
    let extensions = extensions.with_vlen(vlen.parse()?);
    let options = BareOptions { granularity: 8, bits: Some(bits), extensions, ..BareOptions::default() };
    let outcome = bare::run(&std::fs::read(file)?, options)?;
    if outcome.status != BareStatus::Passed {
        return Err(format!("{:?} at {:#x}", outcome.status, outcome.pc).into());
    }
    print!("{}", outcome.signature.unwrap_or_default());
    Ok(())
}
