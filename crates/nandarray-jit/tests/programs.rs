//! Promise: real programs leave the same output, status, count of instructions and registers, interpreted or
//! translated.

mod linux;

use std::path::Path;

use linux::{ExecutionEngine, Outcome, run};
use nandarray_hart::{Rv32, Rv64};

fn both(elf: &[u8]) -> [Outcome; 2] {
    [ExecutionEngine::Interpreter, ExecutionEngine::Eager].map(|kind| match elf[4] {
        1 => run::<Rv32>(elf, kind),
        _ => run::<Rv64>(elf, kind),
    })
}

#[test]
fn programs_do_the_same_translated() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nandarray-hart/tests/programs/built");
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "elf"));
    found.sort();
    assert!(found.len() > 10);
    let mut regions = 0;
    for path in found {
        let elf = std::fs::read(&path).unwrap();
        let [theirs, ours] = both(&elf);
        assert_eq!(ours.output, theirs.output, "{}", path.display());
        assert_eq!(ours.output, std::fs::read(path.with_extension("txt")).unwrap(), "{}", path.display());
        assert_eq!((ours.status, ours.instructions), (theirs.status, theirs.instructions), "{}", path.display());
        assert_eq!(ours.registers, theirs.registers, "{}", path.display());
        regions += ours.statistics.regions;
    }
    assert!(regions > 10, "hardly anything was translated");
}
