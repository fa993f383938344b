//! Creating a store, and opening one: reading its metadata and replaying its journal.
//!
//! Opening reads a superblock, the checkpoint's directory (not the indexes, which are read when a space is first used),
//! then the journal (`replay`). A store that is opened for reading is not written to. When a store that was not closed
//! properly is opened for writing, a new checkpoint is written, so that dropped records can never come back; `opening`
//! describes them.
//!
//! Beside a writer, a reader reads first the marks, then the superblocks, then the length of the file, then the
//! journal: each refers only to things that the writer has written before it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use super::epoch::Epoch;
use super::identity::identity_of;
use super::log::{CheckpointIndex, CheckpointStream, JournalEnd, Log};
use super::opening::{Dropped, Opening};
use super::replay::{Journals, Replay, Replayed, is_damaged, read_journals, replay_all};
use super::salvage::{self, Rebuilt};
use super::wire::Directory;
use super::{Catalog, Device, Mode, Options};
use crate::codec::Framing;
use crate::error::{Error, Result};
use crate::flash::geometry::{HEAD_BYTES, SEGMENTS_MAX};
use crate::flash::{Geometry, Segment, crc32c};
use crate::ftl::chain::Chain;
use crate::ftl::journal;
use crate::ftl::mark::{Mark, marked, next_place, read_marks};
use crate::ftl::policy::GcPolicy;
use crate::ftl::superblock::{ChainStart, LSN_MAX, ResumePoint, Superblock, is_blank as slot_is_blank, read_slots};
use crate::ftl::wear::OpenedSince;
use crate::ftl::{Ftl, placement};
use crate::media::Media;
use crate::sim::process::ProcessScope;
use crate::sim::{Chance, Counters};
use crate::stl::space::{IndexState, Space};
use crate::stl::work::Workers;

/// Number of segments of the smallest store: two generations of checkpoint and journal, the reserve for the next one,
/// and some for pages.
const SEGMENTS_MIN: u64 = 16;

pub(super) fn open(media: Arc<dyn Media>, name: &str, mode: Mode, options: &Options) -> Result<Device> {
    match open_once(media.clone(), name, mode, options) {
        Err(Error::Corrupt(_) | Error::NotAStore { .. } | Error::Version { .. }) if media.distrust(0, media.len()) => {
            open_once(media, name, mode, options)
        }
        done => done,
    }
}

fn open_once(media: Arc<dyn Media>, name: &str, mode: Mode, options: &Options) -> Result<Device> {
    options.validate()?;
    let may_make = matches!(mode, Mode::Append | Mode::Truncate | Mode::Exclusive);
    if media.is_empty() || (may_make && is_blank(media.as_ref(), &options.geometry)?) {
        if !may_make {
            return Err(Error::NotAStore { path: name.to_owned(), what: "it is empty".to_owned() });
        }
        return make(media, options);
    }
    let marks = read_marks(media.as_ref())?;
    let slots = read_slots(media.as_ref(), name).map_err(|e| blank_or_else(e, media.as_ref(), options))?;
    let read_only = mode == Mode::Read;
    // An intact older generation is preferred to salvaging the newest one.
    let passes: &[Damage] =
        if options.salvage { &[Damage::RefusedEverywhere, Damage::Salvaged] } else { &[Damage::Refused] };
    let mut failed = None;
    for &damage in passes {
        let mut first_error = None;
        for i in 0..slots.len() {
            match load(&media, (&marks, &slots), i, (read_only, damage), options) {
                Ok(mut device) => {
                    device.opening.passed_over = first_error.map(|e: Error| e.to_string());
                    return Ok(device);
                }
                // This case is the reason why the generation before is kept.
                Err(e @ Error::Corrupt(_)) => first_error = first_error.or(Some(e)),
                Err(e) => return Err(e),
            }
        }
        failed = first_error;
    }
    Err(failed.expect("there is at least one slot, and it failed"))
}

/// Treatment of damage that is found while a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// Damage is an error, except in indexes, which are not read yet; reading the arrays of these will fail.
    Refused,
    /// Any damage is an error, also in indexes.
    RefusedEverywhere,
    /// Damage is tolerated: the store consists of everything that can be read.
    Salvaged,
}

/// Checks both copies of the directory in the current checkpoint; returns for each whether it is intact.
pub(super) fn directory_copies(device: &Device) -> [bool; 2] {
    let superblock = device.log.lock().superblock().clone();
    let stream = CheckpointStream::of(device.ftl.media(), &superblock);
    superblock.directory_at.map(|at| {
        stream.read(at, superblock.directory_bytes).is_ok_and(|bytes| crc32c(&bytes) == superblock.directory_crc)
    })
}

/// Opens, for reading, the store as the superblock in the other slot and the journals after it describe it; `None` if
/// that fails, or leads to an older newest record than the open store's.
pub(super) fn generation_before(device: &Device) -> Option<Device> {
    let (slot, last_lsn) = {
        let log = device.log.lock();
        (log.slot(), log.last_lsn())
    };
    let media = device.ftl.media();
    let marks = read_marks(media.as_ref()).ok()?;
    let slots = read_slots(media.as_ref(), "the store").ok()?;
    let other = slots.iter().position(|(s, _)| *s != slot)?;
    let before = load(
        media,
        (&marks, &slots),
        other,
        (true, Damage::Refused),
        &Options { threads: Some(1), ..Options::default() },
    )
    .ok()?;
    let same = before.log.lock().last_lsn() == last_lsn;
    same.then_some(before)
}

/// Whether the creation of a store was interrupted here: the head is empty, and the medium no longer than a new store.
fn is_blank(media: &dyn Media, geometry: &Geometry) -> Result<bool> {
    if media.len() > geometry.medium_bytes(4) {
        return Ok(false);
    }
    let mut head = vec![0; HEAD_BYTES.min(media.len()) as usize];
    media.read_at(0, &mut head)?;
    Ok(head.iter().all(|&b| b == 0))
}

/// Returns the error for a medium that is no store, with a hint if the creation of a store was interrupted.
fn blank_or_else(e: Error, media: &dyn Media, options: &Options) -> Error {
    match e {
        Error::NotAStore { path, .. } if is_blank(media, &options.geometry).unwrap_or(false) => {
            let what = "its head is blank; if the making of a store was cut short here, nothing was stored yet, and \
                        mode \"a\" makes it";
            Error::NotAStore { path, what: what.to_owned() }
        }
        e => e,
    }
}

/// Number of blocks that the policy `d-choices` draws, and size of the window of `windowed-greedy`.
const GC_CHOICES: u32 = 10;

fn policies(options: &Options, placed: &str, taken: &str) -> Result<(Box<dyn placement::Placement>, GcPolicy)> {
    let policy = placement::by_name(options.placement.as_deref().unwrap_or(placed))?;
    Ok((policy, GcPolicy::by_name(options.victim.as_deref().unwrap_or(taken), GC_CHOICES)?))
}

fn workers(options: &Options) -> Result<Workers> {
    let machine = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Workers::new(options.threads.unwrap_or_else(machine))
}

fn device(
    ftl: Ftl,
    counters: Arc<Counters>,
    (log, opening): (Log, Opening),
    catalog: Catalog,
    seq: u64,
    read_only: bool,
    options: &Options,
) -> Result<Device> {
    Ok(Device {
        uuid: log.superblock().uuid,
        identity: Mutex::new(identity_of(log.superblock().uuid, ftl.media().as_ref()).0),
        served: Mutex::default(),
        capacity_bytes: log.superblock().capacity_bytes,
        ftl,
        counters,
        workers: workers(options)?,
        catalog: RwLock::new(catalog),
        epoch: Epoch::default(),
        commit: Mutex::new(()),
        reclaim: Mutex::new(()),
        log: Mutex::new(log),
        seq: AtomicU64::new(seq),
        buffered_bytes: AtomicUsize::new(0),
        behind: AtomicBool::new(false),
        write_buffer_bytes: options.write_buffer_bytes,
        read_only,
        closed: AtomicBool::new(false),
        failed: Mutex::new(None),
        panicked: OnceLock::new(),
        opening,
        transactions: Mutex::default(),
        scope: ProcessScope::here(),
    })
}

fn make(media: Arc<dyn Media>, options: &Options) -> Result<Device> {
    options.geometry.validate()?;
    let capacity_bytes = options.capacity_bytes.unwrap_or(0);
    let mut geometry = options.geometry;
    // A small capacity gets small segments, so that reclaim has enough of them to choose from.
    while capacity_bytes > 0 && !options.exact_geometry && geometry.segments_within(capacity_bytes) < 64 {
        let half = Geometry { pages_per_block: geometry.pages_per_block / 2, ..geometry };
        if half.validate().is_err() || half.records_bytes() > half.segment_data_bytes() / 4 {
            break;
        }
        geometry = half;
    }
    let least = geometry.medium_bytes(SEGMENTS_MIN);
    if options.capacity_bytes.is_some_and(|c| c < least) {
        return Err(Error::invalid(format!("a capacity of {capacity_bytes} bytes is too small; the least is {least}")));
    }
    let mut chance = Chance::seeded(options.seed ^ options.entropy);
    let uuid = chance.bytes16();
    let counters = Arc::new(Counters::default());
    let (policy, victim) = policies(options, "nds", "greedy")?;
    let names = (policy.name().to_owned(), victim.name().to_owned());
    media.set_len(HEAD_BYTES)?;
    let ftl = Ftl::new(
        media,
        geometry,
        counters.clone(),
        options.verify,
        (policy, victim),
        capacity_bytes,
        chance.below(u64::MAX),
    )
    .with_wear_levelling(options.wear_levelling)
    .with_probe(options.probe.clone());
    let nowhere = ChainStart { first: 0, nonce: 0 };
    let superblock = Superblock {
        uuid,
        generation: 0,
        version: geometry.layout.newest_format(),
        geometry,
        capacity_bytes,
        checkpoint: nowhere,
        checkpoint_bytes: 0,
        directory_at: [0; 2],
        directory_bytes: 0,
        directory_crc: 0,
        journal: nowhere,
        journal_lsn: 1,
        clean: None,
        placement: names.0,
        victim: names.1,
    };
    let log = Log::of_new_store(superblock);
    let catalog = Catalog { next: 1, ..Catalog::default() };
    let device = device(ftl, counters, (log, Opening::default()), catalog, 0, false, options)?;
    if let Err(e) = device.write_first_generation() {
        // Closing the device, as dropping it does, would write a superblock that names no checkpoint.
        device.closed.store(true, Ordering::Release);
        return Err(e);
    }
    Ok(device)
}

fn read_directory(stream: &CheckpointStream, superblock: &Superblock) -> Result<Directory> {
    for at in superblock.directory_at {
        let bytes = match stream.read(at, superblock.directory_bytes) {
            Ok(bytes) => bytes,
            // The other copy is not nearer.
            Err(error @ Error::Media { .. }) if stream.media.is_far() => return Err(error),
            Err(_) => continue,
        };
        if crc32c(&bytes) == superblock.directory_crc {
            return postcard::from_bytes(&bytes)
                .map_err(|e| Error::corrupt(format!("the directory cannot be read: {e}")));
        }
    }
    Err(Error::corrupt("neither copy of the checkpoint's directory is intact"))
}

/// A generation of a store as read from the medium: its flash management and its spaces, after replay of the journals.
struct Generation {
    ftl: Ftl,
    counters: Arc<Counters>,
    /// Number of segments that the checkpoint's directory lists.
    segments: usize,
    /// Segments of the checkpoint.
    checkpoint: Vec<Segment>,
    catalog: Catalog,
    seq: u64,
    opened: OpenedSince,
    journals: Journals,
    replayed: Replayed,
    rebuilt: Rebuilt,
}

/// Opens the store as the superblock `slots[which]` describes it.
fn load(
    media: &Arc<dyn Media>,
    (marks, slots): (&[Option<Mark>; 2], &[(usize, Superblock)]),
    which: usize,
    (read_only, damage): (bool, Damage),
    options: &Options,
) -> Result<Device> {
    let salvage = damage == Damage::Salvaged;
    let (slot, superblock) = &slots[which];
    let far = media.is_far();
    if far {
        announce(media.as_ref(), superblock);
    }
    let found = read_generation(media, (marks, slots), superblock, damage, options)?;
    let Generation { ftl, counters, segments, checkpoint, catalog, seq, mut opened, journals, replayed, rebuilt } =
        found;
    let Replayed { applied, dropped, durable } = replayed;
    // Chains of this generation and of the other superblock's, whose segments must not be treated as free.
    let mut previous = journals.before.clone();
    // Far away nothing is written, and each look at the other's chains is a round trip.
    for (_, other) in slots.iter().filter(|(s, _)| s != slot && !far) {
        previous.extend(chain_segments(media, other)?);
    }
    let (chain, end) = journals.last;
    // The next record overwrites the first one that was dropped, so the records after it are no longer linked.
    let at = end.saturating_sub(journals.records[applied as usize..].iter().map(journal::Record::bytes).sum());
    let last_applied = journals.records[..applied as usize].iter().skip(journals.first_in_last).next_back();
    let next_lsn = next_lsn_of(superblock, &dropped, applied, durable)?;
    if durable >= next_lsn && !salvage {
        return Err(Error::corrupt(format!(
            "a journal record says that record {durable} is durable; the journal ends before record {next_lsn}"
        )));
    }
    take_metadata(&ftl, &checkpoint, &chain, &mut previous, next_lsn)?;
    let have = superblock.geometry.segments_within(media.len());
    let last = opened.last();
    opened.extend(checkpoint.iter().chain(chain.segments()).chain(&previous).copied());
    opened.extend(segments as Segment..have as Segment);
    ftl.wear_is_older(opened);
    ftl.set_next_lsn(next_lsn);
    assert!(next_lsn > superblock.journal_lsn + applied - 1, "record {next_lsn} follows {applied} that were applied");
    let (last_crc, durable_lsn) = (last_applied.map_or(0, |r| r.crc), durable.min(next_lsn - 1));
    let end = JournalEnd { chain, at, next_lsn, last_crc, durable_lsn, mark_place: next_place(marks) };
    let log = Log::of_store(superblock.clone(), *slot, end, checkpoint, previous);
    let clean = superblock
        .clean
        .filter(|(lsn, _)| *lsn + 1 == next_lsn && dropped.is_none() && !journals.switched && which == 0);
    let only = (slots.len() < 2).then_some(1 - slot);
    // Creation writes the second superblock last, and a barrier makes it durable before anything is flushed.
    let unwritten = superblock.generation == 1 && superblock.clean.is_none() && durable == 0;
    let unfinished = unwritten && only.map_or(Ok(false), |other| slot_is_blank(media.as_ref(), other))?;
    let superblock_damaged = only.is_some() && !unfinished;
    let opening = Opening { dropped, superblock_damaged, unfinished, rebuilt, ..Opening::default() };
    let mut device = device(ftl, counters, (log, opening), catalog, seq, read_only, options)?;
    device.reserve_segments(&device.log.lock());
    if far {
        // The pages that are free in the open segment are of interest to a writer, and to statistics.
    } else if read_only {
        device.look_at_open(clean, last)?;
    } else {
        device.opening.written_anew = device.take_up(clean, salvage)?;
    }
    Ok(device)
}

/// Announces to a medium far away what is read first of a generation: the checkpoint's directory, and the beginning of
/// the journal.
fn announce(media: &dyn Media, superblock: &Superblock) {
    const JOURNAL_BYTES: u64 = 64 << 10;
    let Superblock { geometry, checkpoint, journal, .. } = *superblock;
    let at = superblock.directory_at[0];
    let wanted = [(checkpoint, at, superblock.directory_bytes), (journal, 0, JOURNAL_BYTES)];
    let places = wanted.into_iter().flat_map(|(start, at, bytes)| {
        let within = geometry.segments_within(media.len()) > u64::from(start.first);
        let chain = within.then(|| Chain::begin(geometry, start));
        chain.map(|chain| chain.next_bytes(at, bytes).collect::<Vec<_>>()).unwrap_or_default()
    });
    let mut ranges: Vec<_> = places.map(|(from, len)| (from, from + len)).collect();
    ranges.sort_unstable();
    media.prefetch(&ranges);
}

/// Reads the checkpoint that a superblock names, and replays the journals after it.
fn read_generation(
    media: &Arc<dyn Media>,
    (marks, slots): (&[Option<Mark>; 2], &[(usize, Superblock)]),
    superblock: &Superblock,
    damage: Damage,
    options: &Options,
) -> Result<Generation> {
    let salvage = damage == Damage::Salvaged;
    let counters = Arc::new(Counters::default());
    let ftl = flash_of(media, superblock, &counters, options)?;
    let stream = Arc::new(CheckpointStream::of(media, superblock));
    let directory = read_directory(&stream, superblock)?;
    if superblock.checkpoint_bytes > 0 {
        stream.read(superblock.checkpoint_bytes - 1, 1)?;
    }
    restore_segments(&ftl, &directory)?;
    let mut replay = Replay {
        ftl: &ftl,
        catalog: catalog_of(&directory, &stream, superblock)?,
        framing: Framing::of_format(superblock.version),
        seq: directory.seq,
        opened: OpenedSince::new(superblock.capacity_bytes > 0),
        salvage,
    };
    if damage == Damage::RefusedEverywhere {
        salvage::assert_readable(&replay.catalog)?;
    }
    let journals = read_journals(media.as_ref(), superblock)?;
    // Refreshed again, for the pages that the journal names.
    media.refresh()?;
    // Records that any superblock or mark knows to be durable must exist, even if another superblock is read.
    let known = slots.iter().map(|(_, s)| s.clean.map_or(0, |c| c.0).max(s.journal_lsn - 1)).max().unwrap_or(0);
    let known = known.max(marked(marks, &slots[0].1));
    let rebuilt = if salvage {
        let damaged = is_damaged(&journals, superblock, known);
        salvage::rebuild(&ftl, &replay.catalog, &directory, damaged)?
    } else {
        Rebuilt::default()
    };
    let replayed = replay_all(&mut replay, &journals, superblock, known)?;
    let Replay { catalog, seq, opened, .. } = replay;
    let have = superblock.geometry.segments_within(media.len()) as usize;
    let checkpoint = stream.chain.lock().segments().to_vec();
    if salvage {
        let metadata = [&checkpoint, journals.last.0.segments()].concat();
        salvage::reconcile(&ftl, &catalog, &metadata, have)?;
    }
    if let Some(segment) = ftl.with_segments(|s| s.cut_to(have)) {
        return Err(truncated(have, segment as usize));
    }
    let segments = directory.segments.len();
    Ok(Generation { ftl, counters, segments, checkpoint, catalog, seq, opened, journals, replayed, rebuilt })
}

/// Creates the flash management for a superblock's geometry and policies, without any state of the segments.
fn flash_of(
    media: &Arc<dyn Media>,
    superblock: &Superblock,
    counters: &Arc<Counters>,
    options: &Options,
) -> Result<Ftl> {
    let geometry = superblock.geometry;
    // A writer in another process may have enlarged the medium for the chains that marks and superblocks name.
    media.refresh()?;
    let (have, bytes) = (geometry.segments_within(media.len()), geometry.segment_bytes());
    if have > SEGMENTS_MAX {
        return Err(Error::corrupt(format!(
            "the file has room for {have} segments of {bytes} bytes; a store has at most {SEGMENTS_MAX}"
        )));
    }
    let mut chance = Chance::seeded(options.seed ^ options.entropy ^ superblock.generation);
    let ftl = Ftl::new(
        media.clone(),
        geometry,
        counters.clone(),
        options.verify,
        policies(options, &superblock.placement, &superblock.victim)?,
        superblock.capacity_bytes,
        chance.below(u64::MAX),
    );
    Ok(ftl.with_probe(options.probe.clone()))
}

/// Returns the number of the next record, which is higher than every number that a superblock, mark or record mentions;
/// otherwise a salvaged store would be taken for a damaged one.
fn next_lsn_of(superblock: &Superblock, dropped: &Option<Dropped>, applied: u64, durable: u64) -> Result<u64> {
    let salvaged = dropped.as_ref().filter(|d| d.durable).map(|d| d.last.max(durable));
    let next_lsn = (superblock.journal_lsn + applied).max(salvaged.map_or(0, |last| last.saturating_add(1)));
    if next_lsn > LSN_MAX {
        return Err(Error::corrupt(format!("the journal claims {next_lsn} records; no store has more than {LSN_MAX}")));
    }
    Ok(next_lsn)
}

/// Marks the segments of the checkpoint, the journal and the generation before as metadata. Removes from `previous` the
/// segments that the checkpoint or journal uses, that hold live pages, or that were truncated.
fn take_metadata(
    ftl: &Ftl,
    checkpoint: &[Segment],
    chain: &Chain,
    previous: &mut Vec<Segment>,
    next_lsn: u64,
) -> Result<()> {
    previous.retain(|s| !checkpoint.contains(s) && !chain.segments().contains(s));
    previous.sort_unstable();
    previous.dedup();
    ftl.with_segments(|s| {
        let within = s.len() as Segment;
        previous.retain(|&p| p < within && s.info(p).live == 0);
        if let Some(&beyond) = checkpoint.iter().chain(chain.segments()).find(|&&c| c >= within) {
            return Err(truncated(within as usize, beyond as usize));
        }
        for &segment in checkpoint.iter().chain(chain.segments()).chain(&*previous) {
            if s.info(segment).live > 0 {
                return Err(Error::corrupt(format!("segment {segment} holds both data and metadata")));
            }
            s.restore_chain(segment);
        }
        s.settle(next_lsn - 1);
        Ok(())
    })
}

fn chain_segments(media: &Arc<dyn Media>, superblock: &Superblock) -> Result<Vec<Segment>> {
    let mut all = Vec::new();
    for start in [superblock.checkpoint, superblock.journal] {
        let mut chain = Chain::begin(superblock.geometry, start);
        while chain.follow(media.as_ref())? {}
        all.extend(chain.segments());
    }
    Ok(all)
}

fn restore_segments(ftl: &Ftl, directory: &Directory) -> Result<()> {
    let pages = ftl.geometry().pages_per_segment();
    ftl.with_segments(|s| {
        for (i, entry) in directory.segments.iter().enumerate() {
            if entry.live > pages {
                return Err(Error::corrupt(format!("segment {i} has {} live pages of {pages}", entry.live)));
            }
            s.restore(i as Segment, entry.live, entry.erases, entry.bad);
        }
        Ok(())
    })
}

fn truncated(have: usize, segment: usize) -> Error {
    Error::corrupt(format!("the file was cut short: it has {have} segments, and segment {segment} holds data"))
}

fn catalog_of(directory: &Directory, stream: &Arc<CheckpointStream>, superblock: &Superblock) -> Result<Catalog> {
    let (page_bytes, framing) = (superblock.geometry.page_bytes, Framing::of_format(superblock.version));
    let mut catalog = Catalog { by_name: BTreeMap::new(), by_id: HashMap::new(), next: directory.next_space };
    for entry in &directory.spaces {
        let (name, id) = (entry.record.name.clone(), entry.record.id);
        catalog.next = catalog.next.max(id.saturating_add(1));
        let blob = CheckpointIndex {
            stream: stream.clone(),
            place: entry.index,
            dimensions: entry.record.shape.len(),
            name: name.clone(),
        };
        let space = Space::new(entry.record.clone(), IndexState::Stored(Arc::new(blob)), page_bytes, framing)
            .map_err(|e| Error::corrupt(format!("the directory's entry for {name:?}: {e}")))?;
        if catalog.by_name.insert(name, id).is_some() || catalog.by_id.insert(id, space).is_some() {
            return Err(Error::corrupt(format!("space {id} is in the directory twice")));
        }
    }
    Ok(catalog)
}

impl Device {
    /// Writes checkpoint, marks and superblocks of a new store.
    fn write_first_generation(&self) -> Result<()> {
        let mut log = self.log.lock();
        let media = self.ftl.media().as_ref();
        self.checkpoint(&mut log)?;
        // Both marks are allocated on the disk now; they name no record yet.
        for place in 0..2 {
            Mark { uuid: self.uuid, generation: log.superblock().generation, lsn: 0 }
                .write(media, place)
                .map_err(|e| self.ftl.full_if_no_room(e))?;
        }
        // Both superblocks describe the same state, so that the store survives damage to either.
        let twin = Superblock { generation: 0, ..log.superblock().clone() };
        twin.write(media, 1 - log.slot())
    }

    /// Corrects a reader's counts for the segment that was open: its pages that were never written count as free, not
    /// as dead. This is the segment that a clean close left open, or, without a clean close, the segment `last` that
    /// was written last.
    fn look_at_open(&self, clean: Option<(u64, Option<ResumePoint>)>, last: Option<Segment>) -> Result<()> {
        match clean {
            Some((_, Some(open))) => self.ftl.resume(open.segment, Some(open.crc)),
            Some((_, None)) => Ok(()),
            None => last.map_or(Ok(()), |segment| self.ftl.resume(segment, None)),
        }
    }

    /// Prepares an opened store for writing: resumes where a clean close stopped, or, if there was none or the store
    /// was `salvaged`, writes a new checkpoint, so that dropped records cannot come back. Returns whether a checkpoint
    /// was written.
    fn take_up(&self, clean: Option<(u64, Option<ResumePoint>)>, salvaged: bool) -> Result<bool> {
        match clean {
            Some((_, open)) if !salvaged => {
                if let Some(open) = open {
                    self.ftl.resume(open.segment, Some(open.crc))?;
                }
                // Pages that were just read may be in the page cache only, if the process that closed the store was
                // killed during the close. Segments that these records free are soon overwritten, so the records must
                // be on the disk first.
                self.ftl.sync()?;
                // A process that ended before its first record was durable may have left pages with the next sequence
                // numbers.
                self.seq.fetch_add(1 + (self.ftl.draw() >> 32), Ordering::Relaxed);
                Ok(false)
            }
            _ => {
                let mut log = self.log.lock();
                // Dropped records stay in the old journal; no command may follow them. The sequence numbers of their
                // commands are on pages that may still exist, so these numbers must not be used again.
                self.seq.fetch_add(1 << 20, Ordering::Relaxed);
                self.ftl.sync()?;
                self.checkpoint(&mut log)?;
                if salvaged {
                    // The generation before is unreadable; after a second checkpoint it is not needed even if the
                    // newest one is damaged.
                    self.checkpoint(&mut log)?;
                }
                Ok(true)
            }
        }
    }
}
