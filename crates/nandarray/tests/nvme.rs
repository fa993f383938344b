//! Promise: commands that a host submits as NVMe entries have the specified effect on the store, and every failure has
//! its status.
//!
//! Namespaces are compared with a vector of bytes: random commands as 64-byte entries, with the store closed and opened
//! again in between. N-D commands are compared with the engine's own. Each kind of error must have the status that
//! docs/reference/nvme.md lists. Entries are tested byte for byte beside the code, hostile ones in hostile_bytes.rs.

mod common;
#[path = "nvme/faults.rs"]
mod faults;

use std::sync::Arc;

use common::{Part, assert_sound, check, config, number, options};
use fastrand::Rng;
use nandarray::file_format::Layout;
use nandarray::nvme::*;
use nandarray::{Device, FaultMedia, Geometry, Media, MemoryMedia, Mode, Options, command};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

const KEY: [u8; 32] = *b"the key of all encrypted arrays.";

fn open(media: Arc<dyn Media>, mode: Mode, options: &Options) -> Arc<Device> {
    Arc::new(common::open(media, mode, options).unwrap())
}

fn tiny() -> Arc<Device> {
    open(Arc::new(MemoryMedia::default()), Mode::Append, &options(Geometry::TINY, 1))
}

fn namespace(nsid: u32, nsze: u64, lba_bytes: u32) -> NewNamespace<'static> {
    NewNamespace { nsid, nsze, lba_bytes, compression: None, key: None }
}

/// Submits a command as a host does, encoded as bytes, and returns its completion.
fn submit(controller: &Controller, command: NvmeCommand, lent: DataBuffer<'_>) -> Completion {
    let entry = SubmissionEntry::read_from_bytes(command.encode(77).as_bytes()).unwrap();
    let done = controller.submit(&entry, lent);
    assert_eq!(done.cid.get(), 77);
    Completion { status: done.status(), dw0: done.dw0.get(), dw1: done.dw1.get() }
}

fn status(controller: &Controller, command: NvmeCommand, lent: DataBuffer<'_>) -> Status {
    submit(controller, command, lent).status
}

// --- A namespace against a vector of bytes
// -------------------------------------------------------------------------------------

struct Oracle {
    nsid: u32,
    lba: usize,
    nsze: u64,
    bytes: Vec<u8>,
}

impl Oracle {
    fn range(&self, slba: u64, nlb: u64) -> std::ops::Range<usize> {
        slba as usize * self.lba..(slba + nlb) as usize * self.lba
    }

    fn holds(&self, controller: &Controller) {
        let mut found = vec![1; self.bytes.len()];
        let command = NvmeCommand::Read(Blocks::new(self.nsid, 0, self.nsze as u32));
        assert_eq!(status(controller, command, DataBuffer::to_host(&mut found)), Status::SUCCESS);
        assert!(found == self.bytes, "namespace {}", self.nsid);
    }

    /// Draws a range of logical blocks, as (first, number): mostly a few blocks, sometimes all up to the namespace's
    /// end.
    fn blocks(&self, rng: &mut Rng) -> (u64, u64) {
        let slba = rng.u64(..self.nsze);
        let most = if rng.u8(..8) == 0 { self.nsze - slba } else { (self.nsze - slba).min(9) };
        (slba, rng.u64(1..=most))
    }

    fn step(&mut self, controller: &Controller, rng: &mut Rng) {
        let (slba, nlb) = self.blocks(rng);
        let mut blocks = Blocks::new(self.nsid, slba, nlb as u32);
        let at = self.range(slba, nlb);
        match rng.u8(..9) {
            0..=2 => {
                blocks.fua = rng.u8(..4) == 0;
                let mut data = vec![0; at.len()];
                if rng.u8(..5) > 0 {
                    rng.fill(&mut data);
                }
                assert_eq!(
                    status(controller, NvmeCommand::Write(blocks), DataBuffer::to_controller(&data)),
                    Status::SUCCESS
                );
                self.bytes[at].copy_from_slice(&data);
            }
            3 => {
                let mut found = vec![1; at.len()];
                assert_eq!(
                    status(controller, NvmeCommand::Read(blocks), DataBuffer::to_host(&mut found)),
                    Status::SUCCESS
                );
                assert!(found == self.bytes[at]);
            }
            4 => {
                let mut wanted = self.bytes[at].to_vec();
                let same = rng.bool();
                if !same {
                    let i = rng.usize(..wanted.len());
                    wanted[i] ^= 1 << rng.u8(..8);
                }
                let found = status(controller, NvmeCommand::Compare(blocks), DataBuffer::to_controller(&wanted));
                assert_eq!(found, if same { Status::SUCCESS } else { Status::COMPARE_FAILURE });
            }
            5 => {
                let command = NvmeCommand::WriteZeroes { blocks, deac: rng.bool() };
                assert_eq!(status(controller, command, DataBuffer::NONE), Status::SUCCESS);
                self.bytes[at].fill(0);
            }
            6 => self.manage(controller, rng),
            7 => self.copy(controller, rng),
            _ => {
                let nsid = if rng.bool() { NSID_ALL } else { self.nsid };
                assert_eq!(status(controller, NvmeCommand::Flush { nsid }, DataBuffer::NONE), Status::SUCCESS);
            }
        }
    }

    /// Submits a dataset management command that deallocates random ranges, or only has hints about them.
    fn manage(&mut self, controller: &Controller, rng: &mut Rng) {
        let ranges: Vec<DsmRange> = (0..rng.usize(1..5))
            .map(|_| {
                let (slba, nlb) = self.blocks(rng);
                let nlb = nlb - u64::from(rng.u8(..4) == 0);
                DsmRange { cattr: 0.into(), nlb: (nlb as u32).into(), slba: slba.into() }
            })
            .collect();
        let ad = rng.u8(..4) > 0;
        let command = NvmeCommand::DatasetManagement { nsid: self.nsid, nr_z: ranges.len() as u8 - 1, ad };
        assert_eq!(status(controller, command, DataBuffer::to_controller(ranges.as_bytes())), Status::SUCCESS);
        for r in ranges.iter().filter(|_| ad) {
            let at = self.range(r.slba.get(), r.nlb.get().into());
            self.bytes[at].fill(0);
        }
    }

    /// Submits a copy command whose source ranges may overlap the destination.
    fn copy(&mut self, controller: &Controller, rng: &mut Rng) {
        let (mut ranges, mut moved) = (vec![], vec![]);
        for _ in 0..rng.usize(1..5) {
            let (slba, nlb) = self.blocks(rng);
            if moved.len() / self.lba + nlb as usize > self.nsze as usize {
                break;
            }
            ranges.push(CopyRange::new(slba, nlb as u16 - 1));
            moved.extend_from_slice(&self.bytes[self.range(slba, nlb)]);
        }
        let sdlba = rng.u64(..=self.nsze - (moved.len() / self.lba) as u64);
        let nr_z = ranges.len() as u8 - 1;
        let command = NvmeCommand::Copy { nsid: self.nsid, sdlba, nr_z, fua: rng.bool() };
        assert_eq!(status(controller, command, DataBuffer::to_controller(ranges.as_bytes())), Status::SUCCESS);
        let to = sdlba as usize * self.lba;
        self.bytes[to..to + moved.len()].copy_from_slice(&moved);
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn a_namespace_is_an_array_of_bytes(seed: u64, steps in 1usize..120, coded: bool) {
        let rng = &mut Rng::with_seed(seed);
        let media = Arc::new(MemoryMedia::default());
        let wide = Geometry { page_bytes: 4096, channels: 2, banks: 1, pages_per_block: 8, layout: Layout::NEWEST };
        let geometry = [Geometry::TINY, wide][rng.usize(..2)];
        let mut device = open(media.clone(), Mode::Append, &options(geometry, 1));
        let mut controller = Controller::new(&device);
        let mut oracles: Vec<Oracle> = [(1, 512), (7, 4096)]
            .map(|(nsid, lba)| {
                let nsze = rng.u64(1..300);
                let compression = coded.then_some("lz4");
                let new = NewNamespace { compression, ..namespace(nsid, nsze, lba) };
                assert_eq!(controller.create_namespace(&new), Ok(()));
                Oracle { nsid, lba: lba as usize, nsze, bytes: vec![0; nsze as usize * lba as usize] }
            })
            .into();
        for step in 0..steps {
            oracles[rng.usize(..2)].step(&controller, rng);
            if rng.u8(..20) == 0 {
                device.close().unwrap();
                device = open(media.clone(), Mode::ReadWrite, &options(geometry, step as u64 + 2));
                controller = Controller::new(&device);
                assert_eq!(controller.namespaces().unwrap(), [1, 7]);
            }
        }
        oracles.iter().for_each(|o| o.holds(&controller));
        assert_sound(&device, &|| format!("seed {seed}"));
    }
}

#[test]
fn zeroed_and_deallocated_blocks_take_no_space() {
    let device = tiny();
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(1, 1 << 40, 512)).unwrap();
    let side = controller.identify_namespace(1).unwrap().noiob.get() as u32;
    let data = vec![7; side as usize * 512];
    let blocks = |slba| Blocks { fua: true, ..Blocks::new(1, slba, side) };
    let used = || controller.identify_namespace(1).unwrap().nuse.get();
    for at in 0..4 {
        let command = NvmeCommand::Write(blocks(at * u64::from(side)));
        assert_eq!(status(&controller, command, DataBuffer::to_controller(&data)), Status::SUCCESS);
    }
    assert_eq!(used(), 4 * u64::from(side));
    let live = number(&device, "pages_live");
    assert_eq!(
        status(&controller, NvmeCommand::WriteZeroes { blocks: blocks(0), deac: false }, DataBuffer::NONE),
        Status::SUCCESS
    );
    assert_eq!(used(), 3 * u64::from(side));
    let rest = [DsmRange { cattr: 0.into(), nlb: u32::MAX.into(), slba: 0.into() }];
    let command = NvmeCommand::DatasetManagement { nsid: 1, nr_z: 0, ad: true };
    assert_eq!(status(&controller, command, DataBuffer::to_controller(rest.as_bytes())), Status::SUCCESS);
    assert_eq!(used(), 0);
    assert!(number(&device, "pages_live") < live);
}

#[test]
fn a_namespace_is_a_space_of_the_engine() {
    let device = tiny();
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(3, 8, 512)).unwrap();
    let data: Vec<u8> = (0..512 * 8).map(|i| (i / 512) as u8).collect();
    assert_eq!(
        status(&controller, NvmeCommand::Write(Blocks::new(3, 0, 8)), DataBuffer::to_controller(&data)),
        Status::SUCCESS
    );
    let found = common::read(&device, "ns/3", &Part::boxed(&[5], &[1])).unwrap();
    assert_eq!(found, [5; 512]);
    // And a view of it is one of logical blocks: 4 x 2 of them.
    let (dsid, _) = open_view(&controller, OpenAction::OpenByName, 0, SpacePage::new("ns/3", &[4, 2])).unwrap();
    let mut out = vec![0; 512 * 2];
    let nd = NdBox::inline(dsid, Unit::Partition, &[1, 1], &[2, 1]).unwrap();
    assert_eq!(status(&controller, NvmeCommand::NdRead(nd), DataBuffer::to_host(&mut out)), Status::SUCCESS);
    assert_eq!((out[0], out[512]), (5, 7));
}

#[test]
fn a_compare_sees_writes_whole_or_not_at_all() {
    let device = tiny();
    let controller = Controller::new(&device);
    // Several times what a compare reads at once.
    let (nlb, bytes) = (2048, 1 << 20);
    controller.create_namespace(&namespace(1, nlb.into(), 512)).unwrap();
    let blocks = Blocks::new(1, 0, nlb);
    let whole = [1, 2].map(|v| vec![v; bytes]);
    let mixed = [whole[0][..bytes / 2].to_vec(), whole[1][..bytes / 2].to_vec()].concat();
    assert_eq!(status(&controller, NvmeCommand::Write(blocks), DataBuffer::to_controller(&whole[0])), Status::SUCCESS);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..12 {
                let lent = DataBuffer::to_controller(&whole[i % 2]);
                assert_eq!(status(&controller, NvmeCommand::Write(blocks), lent), Status::SUCCESS);
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            let found = status(&controller, NvmeCommand::Compare(blocks), DataBuffer::to_controller(&mixed));
            assert_eq!(found, Status::COMPARE_FAILURE);
        }
    });
    assert_eq!(
        status(&controller, NvmeCommand::Compare(blocks), DataBuffer::to_controller(&whole[1])),
        Status::SUCCESS
    );
}

#[test]
fn a_power_loss_keeps_what_was_forced() {
    let media = Arc::new(FaultMedia::default());
    let device = open(media.clone(), Mode::Append, &options(Geometry::TINY, 1));
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(1, 64, 512)).unwrap();
    let blocks = Blocks { fua: true, ..Blocks::new(1, 3, 5) };
    assert_eq!(
        status(&controller, NvmeCommand::Write(blocks), DataBuffer::to_controller(&[9; 5 * 512])),
        Status::SUCCESS
    );
    for seed in 0..20 {
        let after = open(
            Arc::new(MemoryMedia::with_bytes(media.after_crash(seed))),
            Mode::ReadWrite,
            &options(Geometry::TINY, 2),
        );
        let controller = Controller::new(&after);
        let mut found = [0; 5 * 512];
        assert_eq!(status(&controller, NvmeCommand::Read(blocks), DataBuffer::to_host(&mut found)), Status::SUCCESS);
        assert_eq!(found, [9; 5 * 512]);
    }
}

// --- N-D commands
// --------------------------------------------------------------------------------------------------------------

fn open_view(controller: &Controller, action: OpenAction, space: u64, page: SpacePage) -> Result<(u32, u32), Status> {
    let done = submit(controller, NvmeCommand::OpenSpace { action, space }, DataBuffer::to_controller(page.as_bytes()));
    if done.status.ok() { Ok((done.dw0, done.dw1)) } else { Err(done.status) }
}

fn information(controller: &Controller, dsid: u32) -> Result<SpacePage, Status> {
    let mut page = SpacePage::default();
    let done = status(controller, NvmeCommand::SpaceInformation { dsid }, DataBuffer::to_host(page.as_mut_bytes()));
    if done.ok() { Ok(page) } else { Err(done) }
}

fn new_space(name: &str, dims: &[u64], item_bytes: u32) -> SpacePage {
    let mut page = SpacePage::new(name, dims);
    page.item_bytes.set(item_bytes);
    page
}

proptest! {
    #![proptest_config(config(80))]

    #[test]
    fn nd_commands_are_the_engines(seed: u64) {
        let rng = &mut Rng::with_seed(seed);
        let device = tiny();
        let controller = Controller::new(&device);
        let n = rng.usize(1..6);
        let dims: Vec<u64> = (0..n).map(|_| rng.u64(1..7)).collect();
        let item = [1u32, 3, 8][rng.usize(..3)];
        let (own, space) = open_view(&controller, OpenAction::Create, 0, new_space("a", &dims, item)).unwrap();
        // A view with factors of the volume in another order, and one more dimension.
        let mut other = dims.clone();
        rng.shuffle(&mut other);
        let i = rng.usize(..n);
        if other[i].is_multiple_of(2) {
            other[i] /= 2;
            other.insert(rng.usize(..=n), 2);
        }
        let (view, same) = open_view(&controller, OpenAction::Open, space.into(), SpacePage::new("", &other)).unwrap();
        prop_assert_eq!(same, space);
        for _ in 0..12 {
            let (dsid, shape) = if rng.bool() { (own, &dims) } else { (view, &other) };
            let sub: Vec<u64> = shape.iter().map(|&d| rng.u64(1..=d)).collect();
            let unit = if rng.bool() { Unit::Element } else { Unit::Partition };
            let (at, start): (Vec<u64>, Vec<u64>) = shape.iter().zip(&sub).map(|(&d, &s)| match unit {
                Unit::Element => { let a = rng.u64(..=d - s); (a, a) }
                Unit::Partition => { let p = rng.u64(..d / s); (p, p * s) }
            }).unzip();
            let page = BoxPage::new(&at, &sub);
            let inline = NdBox::inline(dsid, unit, &at, &sub).ok().filter(|_| rng.bool());
            let nd = inline.unwrap_or(NdBox::paged(dsid, unit, sub.len() as u8));
            let whole = Part::Box { start, step: vec![1; sub.len()], count: sub.clone(), view: Some(shape.clone()) };
            let bytes = (sub.iter().product::<u64>() * u64::from(item)) as usize;
            let mut data = vec![0; bytes];
            if rng.bool() {
                rng.fill(&mut data);
                let lent = DataBuffer::to_controller(&data).with_page(page.as_bytes());
                prop_assert_eq!(status(&controller, NvmeCommand::NdWrite(nd), lent), Status::SUCCESS);
                prop_assert_eq!(common::read(&device, "a", &whole).unwrap(), data);
            } else {
                let lent = DataBuffer::to_host(&mut data).with_page(page.as_bytes());
                prop_assert_eq!(status(&controller, NvmeCommand::NdRead(nd), lent), Status::SUCCESS);
                prop_assert_eq!(common::read(&device, "a", &whole).unwrap(), data);
            }
        }
    }
}

#[test]
fn a_space_from_open_to_delete() {
    let device = tiny();
    let controller = Controller::new(&device);
    let mut page = new_space("dir/matrix", &[12, 10], 4);
    assert!(page.set_dtype("<f4"));
    from_text(&mut page.compression, "lz4");
    page.bdim = 2;
    page.block[..2].copy_from_slice(&[4.into(), 5.into()]);
    let (first, space) = open_view(&controller, OpenAction::Create, 0, page).unwrap();
    let told = information(&controller, first).unwrap();
    assert_eq!((told.dtype(), text(&told.compression)), (Ok("<f4"), Ok("lz4")));
    assert_eq!((told.ndim, told.sdim, told.bdim, told.item_bytes.get()), (2, 2, 2, 4));
    assert_eq!((told.block[0].get(), told.block[1].get(), told.space.get()), (4, 5, space.into()));
    assert_eq!(&told.name[..usize::from(told.name_bytes.get())], b"dir/matrix");

    let (view, _) = open_view(&controller, OpenAction::OpenByName, 0, SpacePage::new("dir/matrix", &[120])).unwrap();
    let told = information(&controller, view).unwrap();
    assert_eq!((told.ndim, told.dims[0].get(), told.sdim, told.shape[1].get()), (1, 120, 2, 10));

    // After a resize the view has another volume than its space; the space's own dimensionality follows.
    let (third, _) = open_view(&controller, OpenAction::Resize, space.into(), SpacePage::new("", &[14, 10])).unwrap();
    assert_eq!(information(&controller, first).unwrap().dims[0].get(), 14);
    let one =
        |dsid, n: usize| NvmeCommand::NdRead(NdBox::inline(dsid, Unit::Element, &vec![0; n], &vec![1; n]).unwrap());
    assert_eq!(status(&controller, one(view, 1), DataBuffer::to_host(&mut [0; 4])), Status::VOLUME_MISMATCH);
    assert_eq!(status(&controller, one(third, 2), DataBuffer::to_host(&mut [0; 4])), Status::SUCCESS);

    assert_eq!(status(&controller, NvmeCommand::CloseSpace { dsid: third }, DataBuffer::NONE), Status::SUCCESS);
    assert_eq!(status(&controller, NvmeCommand::CloseSpace { dsid: third }, DataBuffer::NONE), Status::INVALID_DSID);
    assert_eq!(status(&controller, one(third, 2), DataBuffer::to_host(&mut [0; 4])), Status::INVALID_DSID);
    let delete = NvmeCommand::DeleteSpace { space: space.into() };
    assert_eq!(status(&controller, delete, DataBuffer::NONE), Status::SUCCESS);
    assert_eq!(status(&controller, delete, DataBuffer::NONE), Status::SPACE_NOT_FOUND);
    assert_eq!(status(&controller, one(first, 2), DataBuffer::to_host(&mut [0; 4])), Status::INVALID_DSID);
    assert!(common::names(&device).is_empty());
}

#[test]
fn thirty_two_dimensions_take_a_page() {
    let device = tiny();
    let controller = Controller::new(&device);
    let (dsid, _) = open_view(&controller, OpenAction::Create, 0, new_space("deep", &[2; 32], 1)).unwrap();
    let page = BoxPage::new(&[1; 32], &[1; 32]);
    let nd = NdBox::paged(dsid, Unit::Element, 32);
    let lent = DataBuffer::to_controller(&[5]).with_page(page.as_bytes());
    assert_eq!(status(&controller, NvmeCommand::NdWrite(nd), lent), Status::SUCCESS);
    let mut out = [0];
    assert_eq!(
        status(&controller, NvmeCommand::NdRead(nd), DataBuffer::to_host(&mut out).with_page(page.as_bytes())),
        Status::SUCCESS
    );
    assert_eq!(out, [5]);
    assert_eq!(
        status(&controller, NvmeCommand::NdRead(nd), DataBuffer::to_host(&mut out)),
        Status::DATA_LENGTH_INVALID,
        "no page"
    );
    let more = NdBox { ndim: 33, ..nd };
    assert_eq!(
        status(&controller, NvmeCommand::NdRead(more), DataBuffer::to_host(&mut out).with_page(page.as_bytes())),
        Status::INVALID_FIELD
    );
    let outside = BoxPage::new(&[u64::MAX; 32], &[1; 32]);
    assert_eq!(
        status(&controller, NvmeCommand::NdRead(nd), DataBuffer::to_host(&mut out).with_page(outside.as_bytes())),
        Status::LBA_OUT_OF_RANGE
    );
}

#[test]
fn open_space_says_what_is_wrong() {
    let device = tiny();
    let controller = Controller::new(&device);
    let create = |page| open_view(&controller, OpenAction::Create, 0, page);
    let (_, space) = create(new_space("a", &[4, 4], 2)).unwrap();
    assert_eq!(create(new_space("a", &[4], 2)), Err(Status::SPACE_EXISTS));
    assert_eq!(create(new_space("b", &[4], 0)), Err(Status::INVALID_FIELD));
    assert_eq!(create(new_space("b", &[4], u32::MAX)), Err(Status::INVALID_FIELD));
    assert_eq!(create(new_space("", &[4], 1)), Err(Status::INVALID_FIELD));
    assert_eq!(create(new_space("b//c", &[4], 1)), Err(Status::INVALID_FIELD));
    let mut page = new_space("b", &[4], 1);
    page.ndim = 33;
    assert_eq!(create(page), Err(Status::INVALID_FIELD));
    from_text(&mut page.compression, "nonsense");
    page.ndim = 1;
    assert_eq!(create(page), Err(Status::INVALID_FIELD));
    assert_eq!(common::names(&device), ["a"]);

    let open = |space, dims: &[u64]| open_view(&controller, OpenAction::Open, space, SpacePage::new("", dims));
    assert_eq!(open(u64::from(space), &[5]), Err(Status::VOLUME_MISMATCH));
    assert_eq!(open(99, &[]), Err(Status::SPACE_NOT_FOUND));
    assert_eq!(open(1 << 40, &[]), Err(Status::SPACE_NOT_FOUND));
    assert_eq!(
        open_view(&controller, OpenAction::OpenByName, 0, SpacePage::new("z", &[])),
        Err(Status::SPACE_NOT_FOUND)
    );
    let resize = open_view(&controller, OpenAction::Resize, space.into(), SpacePage::new("", &[4]));
    assert_eq!(resize, Err(Status::INVALID_FIELD), "a resize keeps the number of dimensions");
    let command = NvmeCommand::OpenSpace { action: OpenAction::Open, space: space.into() };
    assert_eq!(status(&controller, command, DataBuffer::to_controller(&[0; 4095])), Status::DATA_LENGTH_INVALID);
}

#[test]
fn open_views_are_bounded() {
    let device = tiny();
    let controller = Controller::new(&device);
    let (_, space) = open_view(&controller, OpenAction::Create, 0, new_space("a", &[4], 1)).unwrap();
    let open = || open_view(&controller, OpenAction::Open, space.into(), SpacePage::default());
    for _ in 1..VIEWS_MAX {
        open().unwrap();
    }
    assert_eq!(open(), Err(Status::TOO_MANY_VIEWS));
    assert_eq!(status(&controller, NvmeCommand::CloseSpace { dsid: 1 }, DataBuffer::NONE), Status::SUCCESS);
    assert_eq!(open().unwrap().0, VIEWS_MAX as u32 + 1);
}

// --- Statuses
// ------------------------------------------------------------------------------------------------------------------

#[test]
fn fields_and_lengths_are_checked() {
    let device = tiny();
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(1, 10, 512)).unwrap();
    let mut room = [0u8; 4 * 512];
    let data = [1u8; 4 * 512];
    for (slba, nlb) in [(10, 1), (7, 4), (u64::MAX, 1), (u64::MAX - 1, 4)] {
        let blocks = Blocks::new(1, slba, nlb);
        let n = nlb as usize * 512;
        assert_eq!(
            status(&controller, NvmeCommand::Read(blocks), DataBuffer::to_host(&mut room[..n])),
            Status::LBA_OUT_OF_RANGE
        );
        assert_eq!(
            status(&controller, NvmeCommand::Write(blocks), DataBuffer::to_controller(&data[..n])),
            Status::LBA_OUT_OF_RANGE
        );
        assert_eq!(
            status(&controller, NvmeCommand::Compare(blocks), DataBuffer::to_controller(&data[..n])),
            Status::LBA_OUT_OF_RANGE
        );
        let zeroes = NvmeCommand::WriteZeroes { blocks, deac: true };
        assert_eq!(status(&controller, zeroes, DataBuffer::NONE), Status::LBA_OUT_OF_RANGE);
    }
    let blocks = Blocks::new(1, 0, 3);
    for lent in [DataBuffer::NONE, DataBuffer::to_controller(&data[..512]), DataBuffer::to_controller(&data)] {
        assert_eq!(status(&controller, NvmeCommand::Write(blocks), lent), Status::DATA_LENGTH_INVALID);
    }
    assert_eq!(
        status(&controller, NvmeCommand::Write(blocks), DataBuffer::to_host(&mut room[..1536])),
        Status::DATA_LENGTH_INVALID
    );
    assert_eq!(
        status(&controller, NvmeCommand::Read(blocks), DataBuffer::to_controller(&data[..1536])),
        Status::DATA_LENGTH_INVALID
    );
    assert_eq!(
        status(&controller, NvmeCommand::Flush { nsid: 1 }, DataBuffer::to_controller(&data)),
        Status::DATA_LENGTH_INVALID
    );
    for nsid in [0, 2, NSID_ALL] {
        let blocks = Blocks::new(nsid, 0, 1);
        assert_eq!(
            status(&controller, NvmeCommand::Read(blocks), DataBuffer::to_host(&mut room[..512])),
            Status::INVALID_NAMESPACE
        );
    }
}

#[test]
fn ranges_in_data_are_checked() {
    let device = tiny();
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(1, 10, 512)).unwrap();
    let ranges = [
        DsmRange { nlb: 1.into(), ..DsmRange::default() },
        DsmRange { slba: 10.into(), nlb: 1.into(), ..DsmRange::default() },
    ];
    let dsm = NvmeCommand::DatasetManagement { nsid: 1, nr_z: 1, ad: true };
    assert_eq!(status(&controller, dsm, DataBuffer::to_controller(ranges.as_bytes())), Status::LBA_OUT_OF_RANGE);
    assert_eq!(
        status(&controller, dsm, DataBuffer::to_controller(ranges[..1].as_bytes())),
        Status::DATA_LENGTH_INVALID
    );
    let copy = NvmeCommand::Copy { nsid: 1, sdlba: 8, nr_z: 0, fua: false };
    assert_eq!(
        status(&controller, copy, DataBuffer::to_controller(CopyRange::new(0, 2).as_bytes())),
        Status::LBA_OUT_OF_RANGE
    );
    let entry = SubmissionEntry { opcode: 0x33, ..SubmissionEntry::default() };
    assert_eq!(controller.submit(&entry, DataBuffer::NONE).status(), Status::INVALID_OPCODE);

    controller.create_namespace(&namespace(2, 1 << 30, 4096)).unwrap();
    let limits = controller.identify_namespace(2).unwrap();
    let ranges = [CopyRange::new(0, limits.mssrl.get() - 1); 2];
    let copy = NvmeCommand::Copy { nsid: 2, sdlba: 0, nr_z: 1, fua: false };
    assert_eq!(limits.mcl.get(), 16384);
    assert_eq!(status(&controller, copy, DataBuffer::to_controller(ranges.as_bytes())), Status::SIZE_LIMIT_EXCEEDED);
}

#[test]
fn namespaces_are_checked_when_made() {
    let device = tiny();
    let controller = Controller::new(&device);
    for bad in [namespace(0, 1, 512), namespace(NSID_ALL, 1, 512), namespace(1, 0, 512)] {
        assert_eq!(controller.create_namespace(&bad), Err(Status::INVALID_FIELD));
    }
    for lba in [0, 1, 256, 513, 1 << 17] {
        assert_eq!(controller.create_namespace(&namespace(1, 1, lba)), Err(Status::INVALID_FIELD), "{lba}");
    }
    controller.create_namespace(&namespace(1, 1, 65536)).unwrap();
    assert_eq!(controller.create_namespace(&namespace(1, 1, 512)), Err(Status::SPACE_EXISTS));
    // A space with such a name that is no namespace is none.
    let (_, space) = open_view(&controller, OpenAction::Create, 0, new_space("ns/2", &[4, 4], 512)).unwrap();
    assert_eq!(controller.namespaces(), Ok(vec![1]));
    assert_eq!(controller.delete_namespace(2), Err(Status::INVALID_NAMESPACE));
    assert!(space > 0);
    controller.delete_namespace(1).unwrap();
    assert_eq!(controller.namespaces(), Ok(vec![]));
}

#[test]
fn a_read_only_store_is_write_protected() {
    let media = Arc::new(MemoryMedia::default());
    let device = open(media.clone(), Mode::Append, &options(Geometry::TINY, 1));
    Controller::new(&device).create_namespace(&namespace(1, 10, 512)).unwrap();
    device.close().unwrap();
    let device = open(media, Mode::Read, &options(Geometry::TINY, 2));
    let controller = Controller::new(&device);
    let blocks = Blocks::new(1, 0, 1);
    assert_eq!(status(&controller, NvmeCommand::Read(blocks), DataBuffer::to_host(&mut [1; 512])), Status::SUCCESS);
    assert_eq!(
        status(&controller, NvmeCommand::Write(blocks), DataBuffer::to_controller(&[1; 512])),
        Status::WRITE_PROTECTED
    );
    let zeroes = NvmeCommand::WriteZeroes { blocks, deac: false };
    assert_eq!(status(&controller, zeroes, DataBuffer::NONE), Status::WRITE_PROTECTED);
    assert_eq!(status(&controller, NvmeCommand::Flush { nsid: 1 }, DataBuffer::NONE), Status::SUCCESS);
    assert_eq!(controller.create_namespace(&namespace(2, 1, 512)), Err(Status::WRITE_PROTECTED));
    assert_eq!(controller.identify_namespace(1).unwrap().nsattr, 1);
}

#[test]
fn a_full_store_exceeds_its_capacity() {
    let media = Arc::new(MemoryMedia::default());
    let capacity = Options { capacity_bytes: Some(512 << 10), write_buffer_bytes: 0, ..options(Geometry::TINY, 1) };
    let device = open(media, Mode::Append, &capacity);
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(1, 1 << 20, 512)).unwrap();
    let write =
        |slba| status(&controller, NvmeCommand::Write(Blocks::new(1, slba, 8)), DataBuffer::to_controller(&[3; 4096]));
    let full = (0..400).find(|&i| write(i * 8) != Status::SUCCESS).expect("a full store");
    assert_eq!(write(full * 8), Status::CAPACITY_EXCEEDED);
    // Giving back makes room again.
    let all = [DsmRange { nlb: (1 << 20).into(), ..DsmRange::default() }];
    let dsm = NvmeCommand::DatasetManagement { nsid: 1, nr_z: 0, ad: true };
    assert_eq!(status(&controller, dsm, DataBuffer::to_controller(all.as_bytes())), Status::SUCCESS);
    assert_eq!(write(0), Status::SUCCESS);
}

#[test]
fn damage_is_an_unrecovered_read_error() {
    let media = Arc::new(MemoryMedia::default());
    let device = open(media.clone(), Mode::Append, &options(Geometry::TINY, 1));
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(1, 64, 512)).unwrap();
    let mut data = vec![0; 512 * 64];
    Rng::with_seed(9).fill(&mut data);
    assert_eq!(
        status(&controller, NvmeCommand::Write(Blocks::new(1, 0, 64)), DataBuffer::to_controller(&data)),
        Status::SUCCESS
    );
    device.close().unwrap();
    let mut bytes = media.to_bytes();
    let at = bytes.windows(512).position(|w| *w == data[512 * 9..512 * 10]).expect("the tenth block's page");
    bytes[at + 7] ^= 0x10;
    let device = open(Arc::new(MemoryMedia::with_bytes(bytes)), Mode::Read, &options(Geometry::TINY, 2));
    let controller = Controller::new(&device);
    let read =
        |slba| status(&controller, NvmeCommand::Read(Blocks::new(1, slba, 1)), DataBuffer::to_host(&mut [0; 512]));
    assert_eq!(read(8), Status::SUCCESS);
    assert_eq!(read(9), Status::UNRECOVERED_READ_ERROR);
    let wanted = DataBuffer::to_controller(&data[512 * 9..512 * 10]);
    assert_eq!(status(&controller, NvmeCommand::Compare(Blocks::new(1, 9, 1)), wanted), Status::UNRECOVERED_READ_ERROR);
    assert!(!check(&device, false).unwrap().ok());
}

#[test]
fn a_medium_that_is_gone_is_a_fault() {
    let media = Arc::new(FaultMedia::default());
    let unbuffered = Options { write_buffer_bytes: 0, ..options(Geometry::TINY, 1) };
    let device = open(media.clone(), Mode::Append, &unbuffered);
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(1, 64, 512)).unwrap();
    let blocks = Blocks::new(1, 0, 8);
    let write = || status(&controller, NvmeCommand::Write(blocks), DataBuffer::to_controller(&[3; 4096]));
    assert_eq!(write(), Status::SUCCESS);
    media.crash_at_write(1);
    assert_eq!(write(), Status::WRITE_FAULT);
    let read = status(&controller, NvmeCommand::Read(blocks), DataBuffer::to_host(&mut [3; 4096]));
    assert_eq!((read.sct(), read.sc(), read.dnr()), (2, 0x81, false));
    let forced = NvmeCommand::Flush { nsid: NSID_ALL };
    assert_ne!(status(&controller, forced, DataBuffer::NONE), Status::SUCCESS);
}

#[test]
fn keys_and_closed_stores() {
    let media = Arc::new(MemoryMedia::default());
    let device = open(media.clone(), Mode::Append, &options(Geometry::TINY, 1));
    let controller = Controller::new(&device);
    controller.create_namespace(&NewNamespace { key: Some(&KEY), ..namespace(1, 10, 512) }).unwrap();
    let write =
        |c: &Controller| status(c, NvmeCommand::Write(Blocks::new(1, 0, 1)), DataBuffer::to_controller(&[4; 512]));
    assert_eq!(write(&controller), Status::SUCCESS);
    device.close().unwrap();
    assert_eq!(write(&controller), Status::NOT_READY);
    assert_eq!(controller.identify_namespace(1).map(drop), Err(Status::NOT_READY));
    drop(device);
    assert_eq!(write(&controller), Status::NOT_READY);

    let device = open(media, Mode::ReadWrite, &options(Geometry::TINY, 2));
    let controller = Controller::new(&device);
    assert_eq!(write(&controller), Status::ACCESS_DENIED);
    let by_name = |key: Option<[u8; 32]>| {
        let mut page = SpacePage::new("ns/1", &[]);
        if let Some(key) = key {
            page.flags.set(SpaceFlags::KEY);
            page.key = key;
        }
        open_view(&controller, OpenAction::OpenByName, 0, page).map(drop)
    };
    assert_eq!(by_name(None), Err(Status::ACCESS_DENIED));
    assert_eq!(by_name(Some([1; 32])), Err(Status::ACCESS_DENIED));
    device.execute(command::Open { name: "ns/1", key: Some(&KEY) }).unwrap();
    assert_eq!(write(&controller), Status::SUCCESS);
    assert_eq!(by_name(Some(KEY)), Ok(()));
    assert_eq!(by_name(None), Err(Status::ACCESS_DENIED), "every host gives the key itself");
}

#[test]
fn identify_tells_what_is_there() {
    let device = tiny();
    let controller = Controller::new(&device);
    controller.create_namespace(&namespace(9, 100, 4096)).unwrap();
    controller.create_namespace(&namespace(10, 1000, 512)).unwrap();
    let c = controller.identify(1, 0).unwrap();
    assert_eq!(&c[24..33], b"nandarray");
    assert_eq!((c[512], c[513]), (0x66, 0x44), "entries of 64 and 16 bytes");
    assert_eq!(u16::from_le_bytes([c[520], c[521]]), 0x10d, "compare, dataset management, write zeroes, copy");
    assert_eq!(&c[768..799], b"nqn.2014-08.org.nvmexpress:uuid");
    assert_eq!(&c[3072..3080], b"NDSPACES");
    let n = IdentifyNamespace::read_from_bytes(&controller.identify(0, 9).unwrap()).unwrap();
    assert_eq!((n.nsze.get(), n.nuse.get(), n.lbaf[0].lbads, n.dlfeat), (100, 0, 12, 9));
    let list = controller.identify(2, 9).unwrap();
    assert_eq!(list[..8], [10, 0, 0, 0, 0, 0, 0, 0]);
    let ids = controller.identify(3, 10).unwrap();
    assert_eq!((ids[0], ids[1]), (2, 16));
    assert_ne!(ids[4..20], controller.identify(3, 9).unwrap()[4..20]);
    assert_eq!(controller.identify(0, 1), Err(Status::INVALID_NAMESPACE));
    assert_eq!(controller.identify(2, NSID_ALL), Err(Status::INVALID_NAMESPACE));
    assert_eq!(controller.identify(0x20, 0), Err(Status::INVALID_FIELD));
}
