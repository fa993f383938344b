//! A server and its clients: bytes, statuses, hostile bytes, a server that stops, clients that go.
//!
//! Not here: the death of processes, which is in `tests/python/test_queues.py`.

#[path = "served/client.rs"]
mod client;

use std::sync::Arc;
use std::time::Duration;

use nandarray::{BufferMut, Device, Mode, NewSpace, Options, Source, SpaceId, Target, command};
use nandarray_queues::{QueueClient, QueueError, QueueServer, RegionGeometry, ServeOptions, region_path};

const DEADLINE: Duration = Duration::from_secs(5);
const SMALL: RegionGeometry = RegionGeometry { queues: 4, depth: 8, data_bytes: 64 << 10, threads: 2 };
const ALL: ServeOptions = ServeOptions { geometry: SMALL, writable: true, group: None, catalog: Vec::new() };

fn store(dir: &tempfile::TempDir) -> Arc<Device> {
    let device = Device::open_file(&dir.path().join("a.nand"), Mode::Append, &Options::default()).unwrap();
    for (name, shape, item) in [("line", vec![5000u64], 8u32), ("grid", vec![70, 90], 4), ("odd", vec![333], 12)] {
        create(&device, name, &shape, item);
    }
    Arc::new(device)
}

/// Creates an array with the bytes of [`bytes_of`]; returns its number and its bytes.
fn create(device: &Device, name: &str, shape: &[u64], item: u32) -> (SpaceId, Vec<u8>) {
    let new = NewSpace {
        name,
        shape,
        item_bytes: item,
        dtype: &format!("|V{item}"),
        block: None,
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let space = device.execute(command::Create(new)).unwrap().id;
    let bytes = bytes_of(name, shape.iter().product::<u64>() * u64::from(item));
    let strides: Vec<isize> =
        (0..shape.len()).map(|d| (shape[d + 1..].iter().product::<u64>() * u64::from(item)) as isize).collect();
    let (start, step) = (vec![0; shape.len()], vec![1; shape.len()]);
    let target = Target::Box { start: &start, step: &step, count: shape, strides: &strides, view: None };
    // SAFETY: `bytes` are those of the whole array.
    let source = unsafe { Source::from_raw(bytes.as_ptr()) };
    device.execute(command::Write { space, target, source }).unwrap();
    (space, bytes)
}

fn bytes_of(name: &str, bytes: u64) -> Vec<u8> {
    let seed = u64::from(name.as_bytes()[0]);
    (0..bytes).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

fn name(dir: &tempfile::TempDir) -> String {
    dir.path().join("region").display().to_string()
}

fn gathered(client: &QueueClient, nsid: u32, record: u64, records: &[u64]) -> Result<Vec<u8>, QueueError> {
    let mut out = vec![0; records.len() * record as usize];
    // SAFETY: `out` has room for all records.
    unsafe { client.gather(nsid, record, records, out.as_mut_ptr()) }.map(|()| out)
}

#[test]
fn rows_of_whole_blocks_are_gathered_together() {
    let dir = tempfile::tempdir().unwrap();
    let device = Device::open_file(&dir.path().join("a.nand"), Mode::Append, &Options::default()).unwrap();
    let (space, whole) = create(&device, "rows", &[300, 2, 128], 4);
    let device = Arc::new(device);
    let geometry = RegionGeometry { depth: 64, ..SMALL };
    let mut server = QueueServer::start(
        &device,
        &name(&dir),
        ServeOptions { geometry, writable: true, group: None, catalog: Vec::new() },
    )
    .unwrap();
    let client = QueueClient::open(&name(&dir), DEADLINE).unwrap();
    let nsid = client.arrays()[0].nsid;
    let mut chance = fastrand::Rng::with_seed(3);
    for count in [1usize, 2, 15, 16, 17, 500] {
        // Repeated rows as well, and now and then a row that is not there.
        let mut rows: Vec<u64> = (0..count).map(|_| chance.u64(..300)).collect();
        let out = gathered(&client, nsid, 1024, &rows).unwrap();
        for (i, &row) in rows.iter().enumerate() {
            let (a, b) = (row as usize * 1024, i * 1024);
            assert_eq!(out[b..b + 1024], whole[a..a + 1024], "row {row}, the {i}th of {count}");
        }
        rows[count / 2] = 300;
        let beyond = gathered(&client, nsid, 1024, &rows);
        assert!(matches!(beyond, Err(QueueError::Status { status: 0x4080, .. })), "{beyond:?}");
    }
    // An array that has another shape now: each command gets its status.
    device.execute(command::Resize { space, shape: &[200, 2, 128] }).unwrap();
    assert!(matches!(gathered(&client, nsid, 1024, &[0, 1, 2]), Err(QueueError::Status { .. })));
    server.stop();
}

/// Whole blocks that are parts of rows, several rows, boxes of the inner dimensions, or no box at all, in batches and
/// one by one; and the same once the array has another shape.
#[test]
fn runs_of_blocks_are_gathered_wherever_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let device = Device::open_file(&dir.path().join("a.nand"), Mode::Append, &Options::default()).unwrap();
    let shapes: [(&[u64], u32); 6] =
        [(&[90, 1024], 4), (&[40, 6, 256], 4), (&[30, 384], 4), (&[50_000], 8), (&[7, 5, 3, 64], 8), (&[200], 1024)];
    let arrays: Vec<(SpaceId, Vec<u8>)> =
        shapes.iter().enumerate().map(|(i, (shape, item))| create(&device, &format!("a{i}"), shape, *item)).collect();
    let device = Arc::new(device);
    let geometry = RegionGeometry { depth: 64, data_bytes: 1 << 20, ..SMALL };
    let mut server = QueueServer::start(
        &device,
        &name(&dir),
        ServeOptions { geometry, writable: true, group: None, catalog: Vec::new() },
    )
    .unwrap();
    let client = QueueClient::open(&name(&dir), DEADLINE).unwrap();
    let mut chance = fastrand::Rng::with_seed(5);
    for (i, info) in client.arrays().iter().enumerate() {
        let whole = &arrays[i].1;
        for blocks in [1u64, 2, 3, 4, 6, 12, 16, 600] {
            let bytes = 512 * blocks;
            let there = info.bytes / bytes;
            let count = if there == 0 { 0 } else { chance.usize(1..80) };
            let records: Vec<u64> = (0..count).map(|_| chance.u64(..there)).collect();
            let out = gathered(&client, info.nsid, bytes, &records).unwrap();
            for (at, &record) in out.chunks_exact(bytes as usize).zip(&records) {
                let from = (record * bytes) as usize;
                assert!(at == &whole[from..from + bytes as usize], "{:?}: {blocks} blocks at {from}", info.shape);
            }
        }
    }
    let (nsid, space) = (client.arrays()[0].nsid, arrays[0].0);
    device.execute(command::Resize { space, shape: &[91, 1024] }).unwrap();
    for records in [vec![1], vec![1, 7, 3]] {
        let refused = gathered(&client, nsid, 512, &records);
        assert!(matches!(refused, Err(QueueError::Status { .. })), "{refused:?}");
    }
    server.stop();
}

#[test]
fn records_are_gathered_from_arrays_of_any_shape_and_element() {
    let dir = tempfile::tempdir().unwrap();
    let device = store(&dir);
    let server = QueueServer::start(&device, &name(&dir), ALL).unwrap();
    let client = QueueClient::open(&name(&dir), DEADLINE).unwrap();
    let mut chance = fastrand::Rng::with_seed(7);
    let arrays = client.arrays();
    assert_eq!(arrays.len(), 3);
    for array in arrays {
        let whole = bytes_of(&array.name, array.bytes);
        for record in [u64::from(array.item_bytes), 4 * u64::from(array.item_bytes), 333, 700] {
            let records: Vec<u64> = (0..100).map(|_| chance.u64(..array.bytes / record)).collect();
            let out = gathered(&client, array.nsid, record, &records).unwrap();
            for (i, &r) in records.iter().enumerate() {
                let (a, b) = ((r * record) as usize, record as usize);
                assert_eq!(out[i * b..(i + 1) * b], whole[a..a + b], "{} record {r} of {record}", array.name);
            }
        }
        let all = gathered(&client, array.nsid, array.bytes, &[0]).unwrap();
        assert!(all == whole, "{}", array.name);
        let beyond = gathered(&client, array.nsid, 512, &[0, array.bytes / 512 + 1]);
        assert!(matches!(beyond, Err(QueueError::Status { status: 0x4080, .. })), "{beyond:?}");
    }
    drop(client);
    assert!(server.counts().commands > 0);
}

#[test]
fn blocks_are_written_and_survive() {
    let dir = tempfile::tempdir().unwrap();
    let device = store(&dir);
    let server = QueueServer::start(&device, &name(&dir), ALL).unwrap();
    let client = QueueClient::open(&name(&dir), DEADLINE).unwrap();
    let line = client.arrays().into_iter().find(|a| a.name == "line").unwrap();
    let new = vec![0x77u8; 1024];
    // SAFETY: `new` has the bytes.
    unsafe { client.write(line.nsid, 512, 1024, new.as_ptr()) }.unwrap();
    client.flush(line.nsid).unwrap();
    assert_eq!(gathered(&client, line.nsid, 512, &[1, 2]).unwrap(), new);
    let odd = client.arrays().into_iter().find(|a| a.name == "odd").unwrap();
    // SAFETY: as above.
    let refused = unsafe { client.write(odd.nsid, 512, 512, new.as_ptr()) };
    assert!(matches!(refused, Err(QueueError::Status { status: 0x4020, .. })), "{refused:?}");
    drop((client, server));
    let mut out = vec![0u8; 1024];
    let target = Target::Box { start: &[64], step: &[1], count: &[128], strides: &[8], view: None };
    // SAFETY: `out` has room for 128 elements of 8 bytes.
    let to = unsafe { BufferMut::from_raw(out.as_mut_ptr()) };
    let space = device.describe("line").unwrap().id;
    device.execute(command::Read { space, target, out: to }).unwrap();
    assert_eq!(out, new);
}

#[test]
fn pairs_are_claimed_once_and_come_free() {
    let dir = tempfile::tempdir().unwrap();
    let device = store(&dir);
    let mut server = QueueServer::start(&device, &name(&dir), ALL).unwrap();
    assert!(matches!(QueueServer::start(&device, &name(&dir), ALL), Err(QueueError::Taken(_))));
    let clients: Vec<QueueClient> = (0..4).map(|_| QueueClient::open(&name(&dir), DEADLINE).unwrap()).collect();
    assert!(matches!(QueueClient::open(&name(&dir), DEADLINE), Err(QueueError::Full(4))));
    drop(clients);
    let client = QueueClient::open(&name(&dir), DEADLINE).unwrap();
    let nsid = client.arrays()[0].nsid;
    gathered(&client, nsid, 512, &[0]).unwrap();
    server.stop();
    let gone = gathered(&client, nsid, 512, &[0]);
    assert!(matches!(gone, Err(QueueError::Gone(_))), "{gone:?}");
    assert!(matches!(QueueClient::open(&name(&dir), DEADLINE), Err(QueueError::System { .. })));
}

/// Writes random bytes over everything that a client can write, while another client reads.
#[test]
fn random_bytes_in_rings_doorbells_and_header_harm_only_their_own_pair() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let device = store(&dir);
    let one = RegionGeometry { threads: 1, ..SMALL };
    let server = QueueServer::start(
        &device,
        &name(&dir),
        ServeOptions { geometry: one, writable: false, group: None, catalog: Vec::new() },
    )
    .unwrap();
    let good = QueueClient::open(&name(&dir), DEADLINE).unwrap();
    let line = good.arrays().into_iter().find(|a| a.name == "line").unwrap();
    let whole = bytes_of("line", line.bytes);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(region_path(&name(&dir))).unwrap();
    let seed = 11;
    let mut chance = fastrand::Rng::with_seed(seed);
    let (queues_at, stride) = (8192u64, 4096u64);
    // The header up to its word that ends service, and the table of three namespaces; new clients need them whole.
    let (mut header, mut table) = ([0u8; 128], [0u8; 3 * 512]);
    file.read_exact_at(&mut header, 0).unwrap();
    file.read_exact_at(&mut table, 4096).unwrap();
    for round in 0..300 {
        let bad = QueueClient::open(&name(&dir), DEADLINE).unwrap();
        // The good client has pair 0, the bad one pair 1: random entries, plausible or random doorbells.
        let mut entries = vec![0u8; 64 * 8];
        chance.fill(&mut entries);
        for e in entries.chunks_mut(64) {
            e[0] = chance.u8(..4);
            e[1] = 0;
            if chance.bool() {
                e[4..8].copy_from_slice(&(0x8000_0000 + chance.u32(..4)).to_le_bytes());
                e[40..56].fill(0);
                e[40] = chance.u8(..);
            }
        }
        file.write_all_at(&entries, queues_at + stride + 512).unwrap();
        let tail = if round % 3 == 0 { chance.u32(..) } else { chance.u32(..9) };
        file.write_all_at(&tail.to_le_bytes(), queues_at + stride).unwrap();
        if round % 5 == 0 {
            file.write_all_at(&chance.u32(..).to_le_bytes(), queues_at + stride + 64).unwrap();
        }
        // Words of the header and of the table of namespaces that the server must not believe.
        let mut noise = [0u8; 16];
        chance.fill(&mut noise);
        file.write_all_at(&noise, chance.u64(..112)).unwrap();
        file.write_all_at(&noise, 4096 + chance.u64(..3 * 512 - 16)).unwrap();
        let r = chance.u64(..line.bytes / 512);
        let out = gathered(&good, line.nsid, 512, &[r]).unwrap_or_else(|e| panic!("seed {seed} round {round}: {e}"));
        assert_eq!(out, whole[r as usize * 512..][..512], "seed {seed} round {round}");
        drop(bad);
        file.write_all_at(&header, 0).unwrap();
        file.write_all_at(&table, 4096).unwrap();
    }
    assert!(!server.failed());
}
