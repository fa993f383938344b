//! One client of the library: random bytes read and written beside a vector, the texts of its errors, servers that are
//! silent, stop in the middle of a call, or were never there.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::*;

fn wrote(client: &QueueClient, nsid: u32, first: u64, bytes: &[u8]) -> Result<(), QueueError> {
    // SAFETY: `bytes` are there for the call.
    unsafe { client.write(nsid, first, bytes.len() as u64, bytes.as_ptr()) }
}

fn found(client: &QueueClient, nsid: u32, first: u64, bytes: usize) -> Result<Vec<u8>, QueueError> {
    let mut out = vec![0xee; bytes];
    // SAFETY: `out` has room for the bytes.
    unsafe { client.read(nsid, first, bytes as u64, out.as_mut_ptr()) }.map(|()| out)
}

/// Bytes wherever they begin and end are read; whole blocks, and the array's last one, are written: each beside a
/// vector, through rings of two entries as through longer ones.
#[test]
fn any_bytes_are_read_and_any_blocks_written_as_in_a_vector() {
    for (seed, depth, data_bytes) in [(1, 2, 4096), (2, 8, 4096), (3, 64, 1 << 20)] {
        let dir = tempfile::tempdir().unwrap();
        let device = store(&dir);
        let geometry = RegionGeometry { depth, data_bytes, ..SMALL };
        let server = QueueServer::start(
            &device,
            &name(&dir),
            ServeOptions { geometry, writable: true, group: None, catalog: Vec::new() },
        )
        .unwrap();
        let client = QueueClient::open(&name(&dir), DEADLINE).unwrap();
        let mut chance = fastrand::Rng::with_seed(seed);
        let arrays: Vec<_> = client.arrays().into_iter().filter(|array| array.writable).collect();
        let mut whole: Vec<Vec<u8>> = arrays.iter().map(|array| bytes_of(&array.name, array.bytes)).collect();
        for step in 0..150 {
            let at = chance.usize(..arrays.len());
            let (nsid, all) = (arrays[at].nsid, arrays[at].bytes);
            let context = format!("seed {seed}, step {step}, {}", arrays[at].name);
            match chance.u8(..5) {
                0 | 1 => {
                    let first = chance.u64(..all);
                    let most = [5, 700, 20_000][chance.usize(..3)];
                    let bytes = chance.u64(..=(all - first).min(most)) as usize;
                    let out = found(&client, nsid, first, bytes).unwrap();
                    assert!(out == whole[at][first as usize..first as usize + bytes], "{bytes} at {first}, {context}");
                }
                2 | 3 => {
                    let first = chance.u64(..all.div_ceil(512)) * 512;
                    let to_end = chance.u8(..3) == 0;
                    let blocks = chance.u64(..(all - first) / 512 + 1).min(40) * 512;
                    let bytes = if to_end { all - first } else { blocks };
                    let data: Vec<u8> = std::iter::repeat_with(|| chance.u8(..)).take(bytes as usize).collect();
                    wrote(&client, nsid, first, &data).unwrap();
                    whole[at][first as usize..(first + bytes) as usize].copy_from_slice(&data);
                }
                _ => {
                    let record = chance.u64(1..1500);
                    let records: Vec<u64> = (0..chance.usize(..40)).map(|_| chance.u64(..all / record)).collect();
                    let out = gathered(&client, nsid, record, &records).unwrap();
                    for (part, number) in out.chunks(record as usize).zip(&records) {
                        let from = (number * record) as usize;
                        assert!(part == &whole[at][from..from + record as usize], "{number} of {record}, {context}");
                    }
                }
            }
        }
        for (array, bytes) in arrays.iter().zip(&whole) {
            let out = found(&client, array.nsid, 0, bytes.len()).unwrap();
            assert!(out == *bytes, "{} at the end, seed {seed}", array.name);
        }
        assert!(server.counts().commands > 0 && !server.failed());
    }
}

#[test]
fn errors_name_the_command_and_the_block_or_the_byte_that_fits_no_block() {
    let dir = tempfile::tempdir().unwrap();
    let device = store(&dir);
    let mut server = QueueServer::start(&device, &name(&dir), ALL).unwrap();
    let client = QueueClient::open(&name(&dir), DEADLINE).unwrap();
    let nsid = |name: &str| client.arrays().into_iter().find(|array| array.name == name).unwrap().nsid;
    let (line, odd) = (nsid("line"), nsid("odd"));
    let before = found(&client, line, 0, 40_000).unwrap();
    let text = |done: Result<(), QueueError>| done.unwrap_err().to_string();
    for (first, bytes, says) in [
        (100, 512, "byte 100 begins no block of 512"),
        (512, 100, "byte 612 ends neither a block of 512 nor the array"),
        (0, 1, "byte 1 ends neither a block of 512 nor the array"),
        (39_936, 63, "byte 39999 ends neither a block of 512 nor the array"),
    ] {
        assert_eq!(text(wrote(&client, line, first, &vec![9; bytes])), says);
    }
    // The array's last block has 64 bytes; a block more is not there.
    wrote(&client, line, 39_936, &before[39_936..]).unwrap();
    let beyond = text(wrote(&client, line, 512 * 77, &[9; 1536]));
    assert_eq!(beyond, "command 0x01 of block 77 ended with LBA Out of Range (0x4080)");
    let protected = text(wrote(&client, odd, 512, &[9; 512]));
    assert_eq!(protected, "command 0x01 of block 1 ended with Namespace is Write Protected (0x4020)");
    let unknown = text(found(&client, 5, 512 * 9, 512).map(drop));
    assert_eq!(unknown, "command 0x02 of block 9 ended with Invalid Namespace or Format (0x400b)");
    assert!(found(&client, line, 0, 40_000).unwrap() == before, "refused writes changed bytes");
    device.close().unwrap();
    let flushed = text(client.flush(line));
    assert_eq!(flushed, "command 0x00 of block 0 ended with Namespace Not Ready (0x4082)");
    server.stop();
    assert_eq!(text(client.flush(line)), format!("the server of '{}' is gone", name(&dir)));
}

#[test]
fn threads_of_one_client_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let device = store(&dir);
    let _server = QueueServer::start(&device, &name(&dir), ALL).unwrap();
    let client = QueueClient::open(&name(&dir), DEADLINE).unwrap();
    let line = client.arrays().into_iter().find(|array| array.name == "line").unwrap();
    let whole = bytes_of("line", line.bytes);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (client, whole, nsid) = (&client, &whole, line.nsid);
            scope.spawn(move || {
                let mut chance = fastrand::Rng::with_seed(seed);
                for _ in 0..60 {
                    let first = chance.usize(..whole.len());
                    let bytes = chance.usize(..=(whole.len() - first).min(3000));
                    let out = found(client, nsid, first as u64, bytes).unwrap();
                    assert!(out == whole[first..first + bytes], "{bytes} bytes at {first}, seed {seed}");
                }
            });
        }
    });
}

/// A server that does not answer, and one that ends between two rounds of a call: the call fails, and so does every
/// later one, since commands of it may still be in flight.
#[test]
fn a_call_that_was_given_up_is_the_clients_last() {
    let dir = tempfile::tempdir().unwrap();
    let device = store(&dir);
    let mut server = Some(QueueServer::stepped(&device, &name(&dir), ALL).unwrap());
    let mut out = vec![0; 4096];
    for stops in [false, true] {
        let soon = Duration::from_millis(if stops { 5000 } else { 5 });
        let client = QueueClient::open_with(&name(&dir), soon, || {
            server.as_mut().unwrap().step();
        })
        .unwrap();
        let nsid = client.arrays()[0].nsid;
        let mut rounds = 0;
        let silent = || {
            rounds += 1;
            if stops && rounds == 100 {
                server = None;
            }
        };
        // SAFETY: `out` has room for the records.
        let failed = unsafe { client.gather_with(nsid, 512, &[0, 1, 2], out.as_mut_ptr(), silent) }.unwrap_err();
        match stops {
            false => assert!(matches!(failed, QueueError::TimedOut(5)), "{failed}"),
            true => assert!(matches!(failed, QueueError::Gone(_)), "{failed}"),
        }
        let after = found(&client, nsid, 0, 512);
        assert!(matches!(after, Err(QueueError::Gone(_))), "{after:?}");
    }
}

#[test]
fn files_that_are_no_region_of_a_running_server_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let device = store(&dir);
    let tiny = RegionGeometry { queues: 1, depth: 2, data_bytes: 4096, threads: 1 };
    let server = QueueServer::stepped(
        &device,
        &name(&dir),
        ServeOptions { geometry: tiny, writable: true, group: None, catalog: Vec::new() },
    )
    .unwrap();
    let right = std::fs::read(region_path(&name(&dir))).unwrap();
    let path = dir.path().join("copy");
    let copy = path.display().to_string();
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        QueueClient::open(&copy, DEADLINE).err()
    };
    for cut in (0..right.len()).step_by(997).chain([4095, 4096, right.len() - 1]) {
        let found = refused(&right[..cut]);
        assert!(matches!(found, Some(QueueError::NotARegion(_))), "{cut} of {} bytes: {found:?}", right.len());
    }
    // Every byte of the header; the words behind it are the server's, and may have any value.
    for at in 0..88 {
        let mut damaged = right.clone();
        damaged[at] ^= 0x10;
        let found = refused(&damaged);
        assert!(matches!(found, Some(QueueError::NotARegion(_))), "byte {at}: {found:?}");
    }
    // A copy has no server, which would hold its lock.
    let found = refused(&right);
    assert!(matches!(&found, Some(QueueError::Gone(name)) if *name == copy), "{found:?}");
    // A text in place of the table of arrays, and one that is cut off: it is shown as it is, and nothing panics.
    let file = File::options().read(true).write(true).open(region_path(&name(&dir))).unwrap();
    file.write_all_at(&[0xff; 512], 4096).unwrap();
    let mut server = server;
    let client = QueueClient::open_with(&name(&dir), DEADLINE, || {
        server.step();
    })
    .unwrap();
    let array = client.arrays().swap_remove(0);
    assert_eq!((array.nsid, array.bytes, array.shape.len()), (u32::MAX, u64::MAX, 16));
}
