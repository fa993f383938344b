//! Two hosts that share a store, beside a reference in memory: spaces, views of each host, stored boxes, blocks.
//!
//! Commands are drawn from a seed: spaces are made, seen in other shapes, resized and deleted, read and written by
//! coordinates in the entry, in a page and by a handle; controllers are reset. The reference has the status of each
//! command that names a view, a box or a space that is gone.

use std::collections::BTreeMap;

use fastrand::Rng;
use nandarray::nvme::{Blocks, BoxPage, NdBox, NvmeCommand, OpenAction, SpacePage, Status, SubmissionEntry, Unit};
use zerocopy::{FromBytes, IntoBytes};

use super::{BLOCKS, Host, entry};
use crate::NSID_ND;

/// A space by the reference.
#[derive(Clone, Debug)]
struct Space {
    name: String,
    shape: Vec<u64>,
    item: usize,
    bytes: Vec<u8>,
}

/// A view that a host has open; without dimensions it follows its space.
#[derive(Clone, Debug)]
struct View {
    space: u64,
    dims: Option<Vec<u64>>,
}

/// A box of a view, in elements.
#[derive(Clone, Debug)]
struct Region {
    dsid: u32,
    start: Vec<u64>,
    count: Vec<u64>,
}

#[derive(Default)]
struct HostState {
    views: BTreeMap<u32, View>,
    boxes: BTreeMap<u32, Region>,
}

struct Model {
    spaces: BTreeMap<u64, Space>,
    hosts: [HostState; 2],
    blocks: Vec<u8>,
    names: usize,
}

fn volume(shape: &[u64]) -> u64 {
    shape.iter().product()
}

/// Returns the places of a box's elements in an array of this shape, in row-major order.
fn places(shape: &[u64], start: &[u64], count: &[u64]) -> Vec<usize> {
    let mut found = vec![0usize];
    for axis in 0..shape.len() {
        let along = start[axis]..start[axis] + count[axis];
        found =
            found.iter().flat_map(|at| along.clone().map(move |i| at * shape[axis] as usize + i as usize)).collect();
    }
    found
}

fn nd(command: NvmeCommand) -> SubmissionEntry {
    let made = command.encode(7);
    SubmissionEntry { opcode: made.opcode & 0x7f, nsid: NSID_ND.into(), ..made }
}

/// Draws another shape of the same volume.
fn reshaped(rng: &mut Rng, shape: &[u64]) -> Vec<u64> {
    let mut other = shape.to_vec();
    rng.shuffle(&mut other);
    let axis = rng.usize(..other.len());
    if other[axis].is_multiple_of(2) {
        other[axis] /= 2;
        other.insert(rng.usize(..=other.len()), 2);
    }
    other
}

impl Model {
    /// Returns the space of a view and the shape in which the view shows it.
    fn seen(&self, host: usize, dsid: u32) -> Result<(&Space, Vec<u64>), Status> {
        let view = self.hosts[host].views.get(&dsid).ok_or(Status::INVALID_DSID)?;
        let space = self.spaces.get(&view.space).ok_or(Status::INVALID_DSID)?;
        Ok((space, view.dims.clone().unwrap_or_else(|| space.shape.clone())))
    }

    /// Draws a box of a view of a host, open or closed by now.
    fn region(&self, rng: &mut Rng, host: usize) -> Region {
        let known: Vec<u32> = self.hosts[host].views.keys().copied().collect();
        let stale = known.is_empty() || rng.u8(..15) == 0;
        let dsid = if stale { rng.u32(..40) } else { known[rng.usize(..known.len())] };
        let dims = self.seen(host, dsid).map_or(vec![2, 3], |(_, dims)| dims);
        let count: Vec<u64> = dims.iter().map(|&n| rng.u64(1..=n)).collect();
        let start = dims.iter().zip(&count).map(|(n, count)| rng.u64(..=n - count)).collect();
        Region { dsid, start, count }
    }

    fn create(&mut self, host: usize, port: &Host, rng: &mut Rng) {
        let shape: Vec<u64> = (0..rng.usize(1..5)).map(|_| rng.u64(1..6)).collect();
        let item = [1usize, 2, 8][rng.usize(..3)];
        let name = format!("space {}", self.names);
        self.names += 1;
        let mut page = SpacePage::new(&name, &shape);
        page.item_bytes.set(item as u32);
        let open = nd(NvmeCommand::OpenSpace { action: OpenAction::Create, space: 0 });
        let (status, ids) = port.send(&open, page.as_bytes());
        assert_eq!(status, Status::SUCCESS);
        let bytes = vec![0; volume(&shape) as usize * item];
        self.hosts[host].views.insert(ids as u32, View { space: ids >> 32, dims: None });
        assert!(self.spaces.insert(ids >> 32, Space { name, shape, item, bytes }).is_none(), "a number used again");
    }

    /// Opens a view of a space, or resizes the space.
    fn open(&mut self, host: usize, port: &Host, rng: &mut Rng, context: &str) {
        let Some(id) = self.spaces.keys().copied().nth(rng.usize(..5)) else { return };
        let space = &self.spaces[&id];
        let (action, dims) = match rng.u8(..4) {
            0 => (OpenAction::Resize, space.shape.iter().map(|n| (n + rng.u64(..3)).max(2) - 1).collect()),
            1 => (OpenAction::OpenByName, reshaped(rng, &space.shape)),
            2 => (OpenAction::Open, vec![]),
            _ => (OpenAction::Open, reshaped(rng, &space.shape)),
        };
        let page = SpacePage::new(if action == OpenAction::OpenByName { &space.name } else { "" }, &dims);
        let (status, ids) = port.send(&nd(NvmeCommand::OpenSpace { action, space: id }), page.as_bytes());
        assert_eq!((status, ids >> 32), (Status::SUCCESS, id), "{context}: {action:?} {dims:?}");
        let own = action == OpenAction::Resize || dims.is_empty();
        let view = View { space: id, dims: (!own).then(|| dims.clone()) };
        assert!(self.hosts[host].views.insert(ids as u32, view).is_none(), "{context}: an identifier used again");
        if action == OpenAction::Resize {
            let space = self.spaces.get_mut(&id).unwrap();
            let kept: Vec<u64> = space.shape.iter().zip(&dims).map(|(a, b)| *a.min(b)).collect();
            let zero = vec![0; kept.len()];
            let mut bytes = vec![0; volume(&dims) as usize * space.item];
            for (from, to) in places(&space.shape, &zero, &kept).into_iter().zip(places(&dims, &zero, &kept)) {
                bytes[to * space.item..][..space.item].copy_from_slice(&space.bytes[from * space.item..][..space.item]);
            }
            (space.shape, space.bytes) = (dims, bytes);
        }
    }

    /// Returns the status of a transfer of a box, and its places in the space.
    fn transfer(&self, host: usize, region: &Region) -> Result<(u64, Vec<usize>, usize), Status> {
        let (space, dims) = self.seen(host, region.dsid)?;
        let id = self.hosts[host].views[&region.dsid].space;
        // A stored box may lie outside of a space that is smaller now.
        if (0..dims.len()).any(|axis| region.start[axis] + region.count[axis] > dims[axis]) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        if volume(&dims) != volume(&space.shape) {
            return Err(Status::VOLUME_MISMATCH);
        }
        Ok((id, places(&dims, &region.start, &region.count), space.item))
    }

    fn item_of(&self, host: usize, dsid: u32) -> usize {
        self.seen(host, dsid).map_or(1, |(space, _)| space.item)
    }

    /// Reads or writes a box, by coordinates in the entry or in a page, or by the handle of a stored box.
    fn move_box(&mut self, host: usize, port: &Host, rng: &mut Rng, context: &str) {
        let mut region = self.region(rng, host);
        let stored: Vec<u32> = self.hosts[host].boxes.keys().copied().collect();
        let handle = (!stored.is_empty() && rng.bool()).then(|| stored[rng.usize(..stored.len())]);
        if let Some(handle) = handle {
            region = self.hosts[host].boxes[&handle].clone();
        }
        let bytes = volume(&region.count) as usize * self.item_of(host, region.dsid);
        let writes = rng.bool();
        let inline = NdBox::inline(region.dsid, Unit::Element, &region.start, &region.count).ok();
        let mut prefix = Vec::new();
        let mut command = match (inline, handle) {
            (_, Some(handle)) => entry(0, NSID_ND, &[(11, 1 << 10), (12, handle)]),
            (Some(at), None) => nd(NvmeCommand::NdRead(at)),
            (None, None) if writes => {
                prefix = BoxPage::new(&region.start, &region.count).as_bytes().to_vec();
                nd(NvmeCommand::NdRead(NdBox::paged(region.dsid, Unit::Element, region.start.len() as u8)))
            }
            (None, None) => return,
        };
        let wanted = self.transfer(host, &region);
        let context = format!("{context}: {region:?}, handle {handle:?}, writes {writes}");
        if writes {
            command.opcode = 0x01;
            let data: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(bytes).collect();
            let (status, _) = port.send(&command, &[prefix, data.clone()].concat());
            assert_eq!(status, wanted.as_ref().err().copied().unwrap_or(Status::SUCCESS), "{context}");
            if let Ok((id, places, item)) = wanted {
                let space = self.spaces.get_mut(&id).unwrap();
                for (from, to) in data.chunks(item).zip(places) {
                    space.bytes[to * item..][..item].copy_from_slice(from);
                }
            }
            return;
        }
        command.opcode = 0x02;
        let found = port.fetch(&command, bytes);
        let told = wanted.map(|(id, places, item)| {
            let space = &self.spaces[&id];
            places.iter().flat_map(|at| space.bytes[at * item..][..item].to_vec()).collect::<Vec<u8>>()
        });
        assert_eq!(found, told, "{context}");
    }

    fn store_box(&mut self, host: usize, port: &Host, rng: &mut Rng, context: &str) {
        let region = self.region(rng, host);
        let command = entry(0x0d, NSID_ND, &[(10, region.dsid), (11, region.start.len() as u32 | 1 << 8)]);
        let (status, handle) = port.send(&command, BoxPage::new(&region.start, &region.count).as_bytes());
        let wanted = self.seen(host, region.dsid).err().unwrap_or(Status::SUCCESS);
        assert_eq!(status, wanted, "{context}: store {region:?}");
        if status.ok() {
            let new = self.hosts[host].boxes.insert(handle as u32, region);
            assert!(new.is_none(), "{context}: a handle used again");
        }
    }

    /// Deletes a space, closes a view, deletes a box, or resets the controller.
    fn end(&mut self, host: usize, port: &Host, rng: &mut Rng, context: &str) {
        let own = &mut self.hosts[host];
        match rng.u8(..8) {
            0 => {
                let id = self.spaces.keys().copied().nth(rng.usize(..6)).unwrap_or(999);
                let wanted = self.spaces.remove(&id).map_or(Status::SPACE_NOT_FOUND, |_| Status::SUCCESS);
                let found = port.io(&nd(NvmeCommand::DeleteSpace { space: id })).0;
                assert_eq!(found, wanted, "{context}: delete {id}");
                own.views.retain(|_, view| view.space != id);
            }
            1 => {
                port.enable(false);
                port.enable(true);
                *own = HostState::default();
            }
            2 | 3 => {
                let handle = own.boxes.keys().copied().nth(rng.usize(..3)).unwrap_or(4000);
                let wanted = own.boxes.remove(&handle).map_or(Status::INVALID_BOX, |_| Status::SUCCESS);
                assert_eq!(port.io(&entry(0x10, NSID_ND, &[(12, handle)])).0, wanted, "{context}: box {handle}");
            }
            _ => {
                let dsid = own.views.keys().copied().nth(rng.usize(..4)).unwrap_or(4000);
                let wanted = own.views.remove(&dsid).map_or(Status::INVALID_DSID, |_| Status::SUCCESS);
                assert_eq!(port.io(&nd(NvmeCommand::CloseSpace { dsid })).0, wanted, "{context}: view {dsid}");
            }
        }
    }

    fn move_blocks(&mut self, port: &Host, rng: &mut Rng, context: &str) {
        let slba = rng.u64(..BLOCKS);
        let blocks = Blocks::new(1, slba, rng.u32(1..=(BLOCKS - slba) as u32));
        let at = slba as usize * 512..(slba as usize + usize::from(blocks.nlb_z) + 1) * 512;
        if rng.bool() {
            self.blocks[at.clone()].fill(rng.u8(..));
            let (status, _) = port.send(&NvmeCommand::Write(blocks).encode(7), &self.blocks[at]);
            assert_eq!(status, Status::SUCCESS, "{context}: {blocks:?}");
        } else {
            let found = port.fetch(&NvmeCommand::Read(blocks).encode(7), at.len());
            assert!(found.unwrap() == self.blocks[at], "{context}: {blocks:?}");
        }
    }

    /// Compares what a view tells about itself and its space with the reference.
    fn describe(&self, host: usize, port: &Host, rng: &mut Rng, context: &str) {
        let dsid = self.region(rng, host).dsid;
        let found = port.fetch(&nd(NvmeCommand::SpaceInformation { dsid }), 4096);
        let seen = self.seen(host, dsid);
        assert_eq!(found.as_ref().err(), seen.as_ref().err(), "{context}: view {dsid}");
        let (Ok(bytes), Ok((space, dims))) = (found, seen) else { return };
        let page = SpacePage::read_from_bytes(&bytes).unwrap();
        let numbers = |all: &[zerocopy::little_endian::U64], n: u8| -> Vec<u64> {
            all[..usize::from(n)].iter().map(|v| v.get()).collect()
        };
        let told = (numbers(&page.dims, page.ndim), numbers(&page.shape, page.sdim), page.item_bytes.get() as usize);
        assert_eq!(told, (dims, space.shape.clone(), space.item), "{context}: view {dsid}");
        assert_eq!(&page.name[..usize::from(page.name_bytes.get())], space.name.as_bytes(), "{context}");
    }
}

#[test]
fn two_hosts_see_one_store_and_each_its_own_views() {
    for seed in 0..25 {
        let mut rng = Rng::with_seed(seed);
        let first = Host::new();
        let ports = [first.another(), first];
        let blocks = vec![0; BLOCKS as usize * 512];
        let mut model = Model { spaces: BTreeMap::new(), hosts: Default::default(), blocks, names: 0 };
        for step in 0..250 {
            let (host, context) = (rng.usize(..2), format!("seed {seed}, step {step}"));
            let port = &ports[host];
            match rng.u8(..16) {
                0 => model.create(host, port, &mut rng),
                1 | 2 => model.open(host, port, &mut rng, &context),
                3 => model.store_box(host, port, &mut rng, &context),
                4 => model.end(host, port, &mut rng, &context),
                5 => model.move_blocks(port, &mut rng, &context),
                6 => model.describe(host, port, &mut rng, &context),
                _ => model.move_box(host, port, &mut rng, &context),
            }
        }
    }
}
