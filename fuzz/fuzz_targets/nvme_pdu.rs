//! Promise: no bytes of a host make the checks of NVMe/TCP panic, and no header lets a PDU be larger than its limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nandarray_nvme::tcp::{Digests, PduHeader};
use nandarray_nvme_spec::{AdminCommand, DataDescriptor, FabricsCommand, SubmissionEntry};
use zerocopy::FromBytes;

fuzz_target!(|bytes: &[u8]| {
    let Some((common, rest)) = bytes.split_at_checked(8) else { return };
    let common: [u8; 8] = common.try_into().expect("eight bytes");
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        for from_host in [false, true] {
            if let Ok(pdu) = PduHeader::decode(&common, Digests { header, data }, from_host, false) {
                assert!(pdu.bytes() <= (2 << 20) + 128 + 8, "{pdu:?}");
            }
        }
    }
    if let Ok((entry, _)) = SubmissionEntry::read_from_prefix(rest) {
        let _ = DataDescriptor::decode(&entry);
        if let Ok(command) = FabricsCommand::decode(&entry) {
            assert_eq!(FabricsCommand::decode(&command.encode(0)), Ok(command));
        }
        if let Ok(command) = AdminCommand::decode(&entry) {
            assert_eq!(AdminCommand::decode(&command.encode(0)), Ok(command));
        }
    }
});
