//! Commands during which the medium fails at every write in turn, refused commands that must have changed nothing, and
//! commands in flight beside the same commands one by one.

use std::sync::{Arc, Mutex};

use fastrand::Rng;
use nandarray::nvme::*;
use nandarray::{FaultMedia, Geometry, MemoryMedia, Mode, Options};
use zerocopy::IntoBytes;

use super::common::options;
use super::{KEY, information, namespace, new_space, open, open_view, status, submit, tiny};

/// The state of the store of these tests, as a host reads it: the bytes of namespace 1, the bytes of the space `grid`
/// with its shape, and whether the space `new` exists. `None` stands for what is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    blocks: Option<Vec<u8>>,
    grid: Option<(Vec<u64>, Vec<u8>)>,
    has_new: bool,
}

fn state(controller: &Controller) -> State {
    let mut blocks = vec![0; 16 * 512];
    let read = NvmeCommand::Read(Blocks::new(1, 0, 16));
    let blocks = status(controller, read, DataBuffer::to_host(&mut blocks)).ok().then_some(blocks);
    let view = |name| open_view(controller, OpenAction::OpenByName, 0, SpacePage::new(name, &[])).map(|(dsid, _)| dsid);
    let grid = view("grid").ok().map(|dsid| {
        let page = information(controller, dsid).unwrap();
        let shape: Vec<u64> = page.shape[..usize::from(page.sdim)].iter().map(|n| n.get()).collect();
        let mut bytes = vec![0; shape.iter().product::<u64>() as usize];
        let read = NvmeCommand::NdRead(NdBox::inline(dsid, Unit::Element, &[0, 0], &shape).unwrap());
        assert_eq!(status(controller, read, DataBuffer::to_host(&mut bytes)), Status::SUCCESS);
        (shape, bytes)
    });
    State { blocks, grid, has_new: view("new").is_ok() }
}

/// A command that changes the store, with its data.
struct Change {
    what: &'static str,
    command: NvmeCommand,
    data: Vec<u8>,
}

fn changes(dsid: u32, grid: u64) -> Vec<Change> {
    let blocks = Blocks { fua: true, ..Blocks::new(1, 2, 9) };
    let mut resized = SpacePage::new("", &[30, 20]);
    resized.item_bytes.set(1);
    let (new, resized) = (new_space("new", &[7, 7], 1).as_bytes().to_vec(), resized.as_bytes().to_vec());
    let range = DsmRange { cattr: 0.into(), nlb: 3.into(), slba: 4.into() };
    let box_of = NdBox { fua: true, ..NdBox::inline(dsid, Unit::Element, &[3, 5], &[11, 9]).unwrap() };
    let (ranges, copied) = (range.as_bytes().to_vec(), CopyRange::new(8, 3).as_bytes().to_vec());
    let change = |what, command, data| Change { what, command, data };
    vec![
        change("write", NvmeCommand::Write(blocks), vec![0xa5; 9 * 512]),
        change("write zeroes", NvmeCommand::WriteZeroes { blocks, deac: true }, vec![]),
        change("copy", NvmeCommand::Copy { nsid: 1, sdlba: 0, nr_z: 0, fua: true }, copied),
        change("deallocate", NvmeCommand::DatasetManagement { nsid: 1, nr_z: 0, ad: true }, ranges),
        change("write a box", NvmeCommand::NdWrite(box_of), vec![0x5a; 99]),
        change("create", NvmeCommand::OpenSpace { action: OpenAction::Create, space: 0 }, new),
        change("resize", NvmeCommand::OpenSpace { action: OpenAction::Resize, space: grid }, resized),
        change("delete", NvmeCommand::DeleteSpace { space: grid }, vec![]),
    ]
}

/// A store with a namespace and a space, full of what the seed draws, on a medium; the identifiers of a view and its
/// space.
fn prepared(media: &Arc<FaultMedia>) -> (Arc<nandarray::Device>, Controller, u32, u64) {
    let unbuffered = Options { write_buffer_bytes: 0, ..options(Geometry::TINY, 1) };
    let device = open(media.clone(), Mode::Append, &unbuffered);
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(1, 16, 512)).unwrap();
    let mut bytes = vec![0; 16 * 512];
    Rng::with_seed(6).fill(&mut bytes);
    let write = NvmeCommand::Write(Blocks::new(1, 0, 16));
    assert_eq!(status(&controller, write, DataBuffer::to_controller(&bytes)), Status::SUCCESS);
    let (dsid, grid) = open_view(&controller, OpenAction::Create, 0, new_space("grid", &[20, 20], 1)).unwrap();
    let write = NvmeCommand::NdWrite(NdBox::inline(dsid, Unit::Element, &[0, 0], &[20, 20]).unwrap());
    assert_eq!(status(&controller, write, DataBuffer::to_controller(&bytes[..400])), Status::SUCCESS);
    assert_eq!(status(&controller, NvmeCommand::Flush { nsid: NSID_ALL }, DataBuffer::NONE), Status::SUCCESS);
    (device, controller, dsid, grid.into())
}

fn lent(data: &[u8]) -> DataBuffer<'_> {
    if data.is_empty() { DataBuffer::NONE } else { DataBuffer::to_controller(data) }
}

/// The power fails at write 1, 2, 3 of a command and the flush behind it, until both succeed: what is read after the
/// crash is the state before the command or after it, and after it if both said that they succeeded.
#[test]
fn a_command_that_is_cut_off_at_any_write_is_whole_or_absent() {
    let flush = NvmeCommand::Flush { nsid: NSID_ALL };
    for number in 0..changes(1, 1).len() {
        let media = Arc::new(FaultMedia::default());
        let (_device, controller, dsid, grid) = prepared(&media);
        let before = state(&controller);
        let change = &changes(dsid, grid)[number];
        assert_eq!(status(&controller, change.command, lent(&change.data)), Status::SUCCESS, "{}", change.what);
        let after = state(&controller);
        assert!(before != after, "{} changes something", change.what);
        for at in 1.. {
            let media = Arc::new(FaultMedia::default());
            let (_device, controller, dsid, grid) = prepared(&media);
            let change = &changes(dsid, grid)[number];
            media.crash_at_write(at);
            let done = status(&controller, change.command, lent(&change.data));
            let flushed = status(&controller, flush, DataBuffer::NONE);
            let (is_over, succeeded) = (!media.crashed(), done.ok() && flushed.ok());
            assert!(succeeded || !is_over, "{}, write {at}: {done}, then {flushed}", change.what);
            let mut seen = Vec::new();
            for seed in 0..4 {
                let crashed = Arc::new(MemoryMedia::with_bytes(media.after_crash(seed)));
                let device = open(crashed, Mode::ReadWrite, &options(Geometry::TINY, 2));
                let found = state(&Controller::new(&device));
                let context = format!("{}, write {at}, seed {seed}: {done}, then {flushed}", change.what);
                assert!(found == before || found == after, "{context}");
                assert!(!succeeded || found == after, "{context}");
                seen.push(found);
            }
            if is_over {
                assert!(at > 1, "{} writes something", change.what);
                break;
            }
        }
    }
}

#[test]
fn a_host_without_the_key_resizes_nothing() {
    let media = Arc::new(MemoryMedia::default());
    let device = open(media.clone(), Mode::Append, &options(Geometry::TINY, 1));
    let mut page = new_space("secret", &[8], 4);
    page.flags.set(SpaceFlags::KEY);
    page.key = KEY;
    let (_, space) = open_view(&Controller::new(&device), OpenAction::Create, 0, page).unwrap();
    device.close().unwrap();
    let device = open(media, Mode::ReadWrite, &options(Geometry::TINY, 2));
    let controller = Controller::new(&device);
    let resize = |key: Option<[u8; 32]>| {
        let mut page = SpacePage::new("", &[3]);
        page.flags.set(u32::from(key.is_some()) * SpaceFlags::KEY);
        page.key = key.unwrap_or_default();
        open_view(&controller, OpenAction::Resize, space.into(), page)
    };
    let shape = || device.describe("secret").unwrap().peek().record.shape().to_vec();
    for key in [None, Some([7; 32])] {
        assert_eq!(resize(key), Err(Status::ACCESS_DENIED));
        assert_eq!(shape(), [8], "after a refusal");
    }
    let (dsid, _) = resize(Some(KEY)).unwrap();
    assert_eq!((shape(), information(&controller, dsid).unwrap().dims[0].get()), (vec![3], 3));
}

/// Draws a read, a write or a flush of two namespaces, right or wrong, with the length of its buffer.
fn draw(rng: &mut Rng) -> (NvmeCommand, usize) {
    let slba = if rng.u8(..12) == 0 { 40 } else { rng.u64(..32) };
    let mut blocks = Blocks::new(rng.u32(1..=3), slba, rng.u32(1..=9));
    blocks.fua = rng.u8(..6) == 0;
    let bytes = (usize::from(blocks.nlb_z) + 1) * 512 - usize::from(rng.u8(..12) == 0);
    match rng.u8(..5) {
        0 | 1 => (NvmeCommand::Read(blocks), bytes),
        2 | 3 => (NvmeCommand::Write(blocks), bytes),
        _ => (NvmeCommand::Flush { nsid: [1, 2, 5, NSID_ALL][rng.usize(..4)] }, 0),
    }
}

#[test]
fn a_command_that_is_submitted_for_later_ends_as_one_that_is_waited_for() {
    for seed in 0..12 {
        let mut rng = Rng::with_seed(seed);
        let (now, later) = (tiny(), tiny());
        let (now, later) = (Controller::new(&now), (Controller::new(&later), later));
        for controller in [&now, &later.0] {
            controller.create_namespace(&namespace(1, 32, 512)).unwrap();
            controller.create_namespace(&namespace(2, 37, 1024)).unwrap();
        }
        for step in 0..150 {
            let (command, bytes) = draw(&mut rng);
            let context = format!("seed {seed}, step {step}: {command:?} of {bytes} bytes");
            let (mut first, mut second) = (vec![0x11; bytes], vec![0x11; bytes]);
            if matches!(command, NvmeCommand::Write(_)) {
                rng.fill(&mut first);
                second.copy_from_slice(&first);
            }
            let lend = |bytes: &mut [u8]| -> DataBuffer<'static> {
                let (at, n) = (bytes.as_mut_ptr(), bytes.len() as u64);
                match command {
                    // SAFETY: the vectors of this step live until both commands have completed.
                    NvmeCommand::Read(_) => unsafe { DataBuffer::to_host_raw(at, n) },
                    // SAFETY: as above.
                    NvmeCommand::Write(_) => unsafe { DataBuffer::to_controller_raw(at, n) },
                    _ => DataBuffer::NONE,
                }
            };
            let wanted = submit(&now, command, lend(&mut first)).status;
            let told = Arc::new(Mutex::new(Vec::new()));
            let tell = told.clone();
            let (entry, buffer) = (command.encode(step), lend(&mut second));
            // SAFETY: the buffer lives until the command has completed, which is asserted below.
            unsafe {
                later.0.submit_later(&entry, buffer, move |done| {
                    tell.lock().unwrap().push((done.cid.get(), done.status()));
                });
            }
            assert_eq!(*told.lock().unwrap(), [(step, wanted)], "{context}");
            assert!(first == second, "{context}");
        }
    }
}

/// Byte of which a block consists before the write under test.
fn old(block: u64) -> u8 {
    (block % 100) as u8
}

/// Byte of which the write under test consists: no block's old one.
const NEW: u8 = 0xa5;

/// A store with a namespace whose blocks are old ([`old`]), on a medium.
fn filled(
    media: &Arc<FaultMedia>,
    lba: u32,
    nsze: u64,
    geometry: Geometry,
    write_buffer_bytes: usize,
) -> (Arc<nandarray::Device>, Controller) {
    let device = open(media.clone(), Mode::Append, &Options { write_buffer_bytes, ..options(geometry, 1) });
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(1, nsze, lba)).unwrap();
    let bytes: Vec<u8> = (0..nsze).flat_map(|block| vec![old(block); lba as usize]).collect();
    let write = NvmeCommand::Write(Blocks::new(1, 0, nsze as u32));
    assert_eq!(status(&controller, write, DataBuffer::to_controller(&bytes)), Status::SUCCESS);
    assert_eq!(status(&controller, NvmeCommand::Flush { nsid: 1 }, DataBuffer::NONE), Status::SUCCESS);
    (device, controller)
}

/// Promise of NAWUPF: a write of up to 2 MiB, the largest transfer over TCP, is whole or absent after a loss of power
/// at any write of the medium, at whatever block it begins. A database's pages of 16 KiB need no second copy.
#[test]
fn a_write_of_blocks_is_never_torn() {
    const MOST: u64 = 2 << 20;
    // Sizes in bytes and first blocks: within a page, over pages and building blocks, aligned to nothing.
    let small = [(512, 16 << 10), (4096, 16 << 10), (512, 33 * 512), (65536, 65536)];
    let mut cases: Vec<(u32, u64, u64)> = Vec::new();
    for (lba, bytes) in small {
        cases.extend([0, 29].map(|first| (lba, bytes, first)));
    }
    cases.extend([(4096, MOST, 1), (512, MOST, 5)]);
    let mut torn_media = 0u32;
    for (lba, bytes, first) in cases {
        let (nlb, nsze) = (bytes / u64::from(lba), first + bytes / u64::from(lba) + 2);
        let new = vec![NEW; bytes as usize];
        // Without a write buffer a write reaches the medium at once; with one, at the flush behind it. Each of the
        // medium's writes is the last one, or a sample of them.
        let places = match bytes {
            MOST => [(Geometry::FILE, 0), (Geometry::FILE, 64 << 20)],
            _ => [(Geometry::TINY, 0), (Geometry::FILE, 0)],
        };
        for (geometry, buffer) in places {
            let mut at = 1;
            loop {
                let media = Arc::new(FaultMedia::default());
                let (_device, controller) = filled(&media, lba, nsze, geometry, buffer);
                media.crash_at_write(at);
                let write = NvmeCommand::Write(Blocks::new(1, first, nlb as u32));
                let done = status(&controller, write, DataBuffer::to_controller(&new));
                let flushed = status(&controller, NvmeCommand::Flush { nsid: 1 }, DataBuffer::NONE);
                let context = format!("{bytes} bytes of blocks of {lba} from {first}, write {at}: {done}, {flushed}");
                for seed in 0..2 {
                    let crashed = Arc::new(MemoryMedia::with_bytes(media.after_crash(seed)));
                    let again = open(crashed, Mode::ReadWrite, &options(geometry, 2));
                    let mut found = vec![0; (nsze * u64::from(lba)) as usize];
                    let read = NvmeCommand::Read(Blocks::new(1, 0, nsze as u32));
                    let told = status(&Controller::new(&again), read, DataBuffer::to_host(&mut found));
                    assert_eq!(told, Status::SUCCESS, "{context}");
                    let mut count = 0;
                    for (block, chunk) in (0..).zip(found.chunks(lba as usize)) {
                        let [is_old, is_new] = [old(block), NEW].map(|wanted| chunk.iter().all(|b| *b == wanted));
                        let inside = (first..first + nlb).contains(&block);
                        assert!(is_old || is_new && inside, "{context}, seed {seed}: block {block} is torn");
                        count += u64::from(is_new);
                    }
                    assert!(count == 0 || count == nlb, "{context}, seed {seed}: {count} of {nlb} blocks");
                    assert!(count > 0 || !(done.ok() && flushed.ok()), "{context}, seed {seed}: lost");
                    torn_media += u32::from(media.crashed());
                }
                if !media.crashed() {
                    break;
                }
                at += 1 + at / 4;
            }
        }
    }
    assert!(torn_media > 200, "{torn_media} crashes");
}
