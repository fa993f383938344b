//! Runs a static RV64 program that writes and exits by Linux's system calls, in ckb-vm's assembler interpreter.
//!
//! Every instruction costs one cycle, so that counting is as cheap as it can be. Only for x86-64 and AArch64 hosts.

use std::io::Write;

use ckb_vm::machine::asm::{AsmCoreMachine, AsmMachine};
use ckb_vm::registers::{A0, A1, A2, A7};
use ckb_vm::{Bytes, DefaultMachineBuilder, DefaultMachineRunner, Error, Memory, Register, SupportMachine, Syscalls};

/// The system call `write`.
struct WriteOut;

impl<M: SupportMachine> Syscalls<M> for WriteOut {
    fn initialize(&mut self, _machine: &mut M) -> Result<(), Error> {
        Ok(())
    }

    fn ecall(&mut self, machine: &mut M) -> Result<bool, Error> {
        let [a1, a2, a7] = [A1, A2, A7].map(|r| machine.registers()[r].to_u64());
        if a7 != 64 {
            return Ok(false);
        }
        let bytes = machine.memory_mut().load_bytes(a1, a2)?;
        std::io::stdout().write_all(&bytes).map_err(|e| Error::External(e.to_string()))?;
        machine.set_register(A0, M::REG::from_u64(a2));
        Ok(true)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the program's file")?;
    let code: Bytes = std::fs::read(path)?.into();
    let isa = ckb_vm::ISA_IMC | ckb_vm::ISA_B | ckb_vm::ISA_MOP | ckb_vm::ISA_A;
    let core = <Box<AsmCoreMachine> as SupportMachine>::new(isa, ckb_vm::machine::VERSION2, u64::MAX);
    let core =
        DefaultMachineBuilder::new(core).instruction_cycle_func(Box::new(|_| 1)).syscall(Box::new(WriteOut)).build();
    let mut machine = AsmMachine::new(core);
    machine.load_program(&code, std::iter::empty())?;
    let exit = machine.run()?;
    eprintln!("{} instructions", machine.machine.cycles());
    std::process::exit(i32::from(exit));
}
