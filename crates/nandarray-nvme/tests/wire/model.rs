//! A queue that is kept full of random commands, beside a vector of bytes; commands in flight use blocks of their own.

use std::collections::BTreeMap;

use fastrand::Rng;
use nandarray::nvme::{Blocks, CopyRange, DsmRange, NvmeCommand, Status};
use nandarray_nvme::SubsystemOptions;
use nandarray_nvme::tcp::{Digests, HostQueue};
use zerocopy::IntoBytes;

use crate::support::target;

const BLOCKS: usize = 4096;

/// A command in flight: its blocks, and what its completion must be.
struct Expected {
    at: std::ops::Range<usize>,
    status: Status,
    data: Option<Vec<u8>>,
}

/// Draws blocks that no command in flight uses.
fn free(rng: &mut Rng, in_flight: &BTreeMap<u16, Expected>) -> Option<std::ops::Range<usize>> {
    let blocks = [1, 2, 31, 33, 64, 300][rng.usize(..6)];
    let first = rng.usize(..=BLOCKS - blocks);
    let at = first * 512..(first + blocks) * 512;
    let meets = |other: &Expected| other.at.start < at.end && at.start < other.at.end;
    (!in_flight.values().any(meets)).then_some(at)
}

fn submit(queue: &mut HostQueue, rng: &mut Rng, disk: &mut [u8], in_flight: &mut BTreeMap<u16, Expected>) {
    let Some(at) = free(rng, in_flight) else { return };
    let mut blocks = Blocks::new(1, at.start as u64 / 512, (at.len() / 512) as u32);
    let (mut status, mut data, mut source) = (Status::SUCCESS, None, Vec::new());
    let command = match rng.u8(..9) {
        0 | 1 => {
            data = Some(disk[at.clone()].to_vec());
            NvmeCommand::Read(blocks)
        }
        2 => {
            source = disk[at.clone()].to_vec();
            if rng.bool() {
                let place = rng.usize(..source.len());
                source[place] ^= 1;
                status = Status::COMPARE_FAILURE;
            }
            NvmeCommand::Compare(blocks)
        }
        3 => {
            disk[at.clone()].fill(0);
            NvmeCommand::WriteZeroes { blocks, deac: rng.bool() }
        }
        4 => {
            disk[at.clone()].fill(0);
            let range = DsmRange { cattr: 0.into(), nlb: (at.len() as u32 / 512).into(), slba: blocks.slba.into() };
            // As kernels do it: a page, of which the ranges are the first bytes.
            source = vec![0; 4096];
            source[..16].copy_from_slice(range.as_bytes());
            NvmeCommand::DatasetManagement { nsid: 1, nr_z: 0, ad: true }
        }
        5 if at.len() > 512 => {
            // The second half becomes the first.
            let half = at.len() / 1024 * 512;
            disk.copy_within(at.start + half..at.start + 2 * half, at.start);
            let range = CopyRange::new(blocks.slba + half as u64 / 512, (half / 512) as u16 - 1);
            source = range.as_bytes().to_vec();
            NvmeCommand::Copy { nsid: 1, sdlba: blocks.slba, nr_z: 0, fua: false }
        }
        6 => {
            status = Status::LBA_OUT_OF_RANGE;
            blocks.slba = BLOCKS as u64 - at.len() as u64 / 512 + 1;
            source = vec![1; at.len()];
            NvmeCommand::Write(blocks)
        }
        _ => {
            source = std::iter::repeat_with(|| rng.u8(..)).take(at.len()).collect();
            disk[at.clone()].copy_from_slice(&source);
            blocks.fua = rng.u8(..8) == 0;
            NvmeCommand::Write(blocks)
        }
    };
    let room = data.as_ref().map_or(0, Vec::len);
    let cid = queue.submit(command.encode(0), &source, room);
    queue.flush().unwrap();
    in_flight.insert(cid, Expected { at, status, data });
}

#[test]
fn a_full_queue_of_random_commands_leaves_what_they_say() {
    let target = target(SubsystemOptions::default());
    let mut disk = vec![0u8; BLOCKS * 512];
    for seed in 0..8u64 {
        let mut rng = Rng::with_seed(seed);
        let mut host = target.connect(Digests { header: seed & 1 == 1, data: seed & 2 == 2 });
        let queue = host.io().unwrap();
        let mut in_flight: BTreeMap<u16, Expected> = BTreeMap::new();
        let mut steps = 0;
        while steps < 220 || !in_flight.is_empty() {
            let full = in_flight.len() == 24 || steps >= 220;
            if !full && rng.u8(..3) > 0 {
                submit(queue, &mut rng, &mut disk, &mut in_flight);
                steps += 1;
                continue;
            }
            if in_flight.is_empty() {
                continue;
            }
            let (done, found) = queue.completion().unwrap();
            let wanted = in_flight.remove(&done.cid.get()).expect("a command in flight, once");
            let context = format!("seed {seed}, step {steps}, blocks {:?}", wanted.at);
            assert_eq!(done.status(), wanted.status, "{context}");
            if let Some(data) = wanted.data {
                assert!(found == data, "{context}");
            }
        }
        let read = NvmeCommand::Read(Blocks::new(1, 0, BLOCKS as u32)).encode(0);
        let (_, found) = queue.call(read, &[], disk.len()).unwrap();
        let differs = found.iter().zip(&disk).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the first byte that differs, seed {seed}");
    }
}
