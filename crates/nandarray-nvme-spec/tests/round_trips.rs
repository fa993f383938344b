//! Promise: what is decoded from any entry is encoded to one that is decoded to the same, for each command.
//!
//! Entries are random but for their opcodes; proptest prints the seed of a failure, and keeps it.

use std::fmt::Debug;

use nandarray_nvme_spec::*;
use proptest::prelude::*;
use zerocopy::FromBytes;

/// Checks a random entry that has an opcode, whose dwords are small numbers where `small` has a bit.
fn round_trip<C: PartialEq + Debug>(
    entry: &SubmissionEntry,
    decode: impl Fn(&SubmissionEntry) -> Result<C, Status>,
    encode: impl Fn(&C) -> SubmissionEntry,
) -> Result<bool, TestCaseError> {
    let Ok(command) = decode(entry) else { return Ok(false) };
    let again = encode(&command);
    prop_assert_eq!(again.opcode, entry.opcode);
    prop_assert_eq!(again.cid.get(), 1);
    prop_assert_eq!(decode(&again), Ok(command));
    Ok(true)
}

prop_compose! {
    fn any_entry()(bytes in any::<[[u8; 32]; 2]>(), small in any::<u8>()) -> SubmissionEntry {
        let mut entry = SubmissionEntry::read_from_bytes(bytes.as_flattened()).unwrap();
        entry.flags = 0x40;
        for (bit, dword) in [2, 3, 10, 11, 12, 13, 14, 15].into_iter().enumerate() {
            if small & 1 << bit != 0 {
                entry.set_cdw(dword, entry.cdw(dword) & 0x0f);
            }
        }
        entry
    }
}

fn with(entry: &SubmissionEntry, opcode: u8) -> SubmissionEntry {
    SubmissionEntry { opcode, ..*entry }
}

proptest! {
    #[test]
    fn of_namespaces_and_views(entry in any_entry()) {
        for opcode in 0..=u8::MAX {
            round_trip(&with(&entry, opcode), NvmeCommand::decode, |command| command.encode(1))?;
        }
    }

    #[test]
    fn of_the_nd_command_set(entry in any_entry()) {
        for opcode in 0..=u8::MAX {
            let is = round_trip(&with(&entry, opcode), NdCommand::decode, |command| command.encode(1))?;
            let known = [
                NdOpcode::WRITE, NdOpcode::READ, 0x06, 0x08, 0x0c, NdOpcode::STORE_BOX, NdOpcode::DELETE_BOX,
                NdOpcode::ARRAY_REQUEST, NdOpcode::ARRAY_REPLY, NdOpcode::RUN_OUTPUT,
            ];
            prop_assert_eq!(is || opcode == 0x05, known.contains(&opcode) || opcode == 0x05, "{:#x}", opcode);
        }
    }

    #[test]
    fn of_memory(entry in any_entry()) {
        for opcode in MemoryOpcode::ALL {
            let entry = with(&entry, *opcode as u8);
            let is = round_trip(&entry, MemoryCommand::decode, |command| command.encode(1))?;
            prop_assert_eq!(is, *opcode != MemoryOpcode::Copy || entry.cdw(12) >> 8 & 0xf == 4);
        }
    }

    #[test]
    fn of_reservations(entry in any_entry()) {
        for opcode in ReservationOpcode::ALL {
            let entry = with(&entry, *opcode as u8);
            let nsid = entry.nsid.get();
            let is = round_trip(&entry, ReservationCommand::decode, |command| command.encode(nsid, 1))?;
            let (word, action) = (entry.cdw(10), entry.cdw(10) & 7);
            let wanted = match opcode {
                ReservationOpcode::Register => action <= 2 && word >> 30 != 1,
                ReservationOpcode::Report => true,
                ReservationOpcode::Acquire => action <= 2 && (1..=6).contains(&(word >> 8 & 0xff)),
                ReservationOpcode::Release => action <= 1,
            };
            prop_assert_eq!(is, wanted, "{:?}: {:#x}", opcode, word);
        }
    }

    #[test]
    fn of_programs(entry in any_entry()) {
        let entry = with(&entry, ProgramOpcode::Execute as u8);
        prop_assert!(round_trip(&entry, ProgramCommand::decode, |command| command.encode(1))?);
    }

    #[test]
    fn of_the_admin_queue(entry in any_entry(), cns in prop::sample::select(Cns::ALL),
        feature in prop::sample::select(Feature::ALL), page in prop::sample::select(LogPage::ALL)) {
        for opcode in AdminOpcode::ALL {
            let mut entry = with(&entry, *opcode as u8);
            let low = match opcode {
                AdminOpcode::Identify => cns as u8,
                AdminOpcode::GetFeatures | AdminOpcode::SetFeatures => feature as u8,
                AdminOpcode::GetLogPage => page as u8,
                _ => entry.cdw(10) as u8,
            };
            entry.set_cdw(10, entry.cdw(10) & 0xffff_fb00 | u32::from(low));
            prop_assert!(round_trip(&entry, AdminCommand::decode, |command| command.encode(1))?, "{:?}", opcode);
            AdminCommand::transfers_nothing(&entry);
        }
    }

    #[test]
    fn of_fabrics(entry in any_entry(), eight in any::<bool>()) {
        for fctype in FabricsType::ALL {
            let mut entry = with(&entry, FABRICS_OPCODE);
            entry.nsid.set(*fctype as u32);
            entry.set_cdw(10, entry.cdw(10) & 0xffff_fff8 | u32::from(eight));
            prop_assert!(round_trip(&entry, FabricsCommand::decode, |command| command.encode(1))?, "{:?}", fctype);
        }
    }

    #[test]
    fn of_the_location_of_data(entry in any_entry()) {
        let mut again = entry;
        DataDescriptor::decode(&entry).encode(&mut again);
        prop_assert_eq!(DataDescriptor::decode(&again), DataDescriptor::decode(&entry));
    }
}

#[test]
fn reserved_numbers_are_refused() {
    let with = |opcode: AdminOpcode, cdw10: u32| {
        let mut entry = SubmissionEntry::new(opcode as u8, 0, 0);
        entry.set_cdw(10, cdw10);
        AdminCommand::decode(&entry)
    };
    assert_eq!(with(AdminOpcode::Identify, 0x04), Err(Status::INVALID_FIELD));
    assert_eq!(with(AdminOpcode::GetFeatures, 0x03), Err(Status::INVALID_FIELD));
    assert_eq!(with(AdminOpcode::GetFeatures, 0x01 | 4 << 8), Err(Status::INVALID_FIELD));
    assert_eq!(AdminCommand::decode(&SubmissionEntry::new(0x0d, 0, 0)), Err(Status::INVALID_OPCODE));
    assert_eq!(FabricsCommand::decode(&SubmissionEntry::new(FABRICS_OPCODE, 2, 0)), Err(Status::INVALID_FIELD));
    assert_eq!(FabricsCommand::decode(&SubmissionEntry::new(0, 1, 0)), Err(Status::INVALID_OPCODE));
    assert_eq!(ProgramCommand::decode(&SubmissionEntry::new(0, 0, 0)), Err(Status::INVALID_OPCODE));
}
