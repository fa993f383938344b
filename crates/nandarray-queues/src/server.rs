//! The server: a region, and threads that serve its queue pairs.
//!
//! Pair q belongs to thread q modulo the number of threads, so no pair needs a lock. A thread with nothing to do polls
//! for some rounds, then sleeps on a word of the region (`sleep`) for at most a tenth of a second, and checks for
//! clients that have ended before each sleep. When the server stops, it sets the abort word, so that the waits of its
//! clients end with an error, and removes the file. If the region loses its memory, the threads end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use nandarray::{Device, Home, command};
use zerocopy::IntoBytes;

use crate::entries::Controller;
use crate::error::{QueueError, system};
use crate::futex;
use crate::layout::{ABORT_OFFSET, ASLEEP, HEARTBEAT_OFFSET, NamespaceEntry, RegionGeometry};
use crate::prepared::{ARRAY_NSID, Prepared};
use crate::region::{QueueRegion, RegionAccess, region_path};
use crate::ring::{ServedPair, ServedStore};
use crate::sleep;

/// Number of rounds over its queue pairs without work after which a thread sleeps: some tens of microseconds.
const IDLE_ROUNDS: u32 = 4000;
/// Number of rounds over its queue pairs without work after which a thread yields its core to other threads.
const YIELD_ROUNDS: u32 = 32;
/// Longest sleep of a thread, in milliseconds; within this time it notices that a client has ended.
const SLEEP_MS: u32 = 100;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Sizes of the shared memory: number of queue pairs, entries of each, bytes for data.
    pub geometry: RegionGeometry,
    /// Whether clients may write to arrays.
    pub writable: bool,
    /// Group whose members may be clients, beside the owner; `None` for those who may read and write the store's file.
    pub group: Option<u32>,
    /// Text that describes the arrays, for clients; this crate does not read it.
    pub catalog: Vec<u8>,
}

/// Counts of the work that a server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Number of commands completed.
    pub commands: u64,
    /// Number of pairs that are claimed by a client now.
    pub served: u64,
    /// Number of clients that ended without releasing their queue pair.
    pub dead: u64,
}

#[derive(Debug, Default)]
struct ServeCounters {
    commands: AtomicU64,
    served: AtomicU64,
    dead: AtomicU64,
    stop: AtomicBool,
}

/// A server of queue pairs, which stops when it is dropped.
#[derive(Debug)]
pub struct QueueServer {
    shared: Arc<ServedStore>,
    counters: Arc<ServeCounters>,
    threads: Vec<JoinHandle<()>>,
    /// The process of the threads: a process forked from it shares the region, and must leave it alone.
    home: Home,
}

impl QueueServer {
    /// Lays out the region of this name and begins to serve the arrays that the store has now; later arrays are not
    /// served.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for the geometry; [`QueueError::Taken`]; [`QueueError::System`]; errors of the store.
    pub fn start(device: &Arc<Device>, name: &str, options: ServeOptions) -> Result<Self, QueueError> {
        let (mut server, pairs) = Self::prepare(device, name, options)?;
        for (number, pairs) in pairs.into_iter().enumerate() {
            let (shared, counters) = (server.shared.clone(), server.counters.clone());
            let work = move || thread(&shared, &counters, number as u32, pairs);
            let started = std::thread::Builder::new().name(format!("queues {number}")).spawn(work);
            server.threads.push(started.map_err(system("starting a thread"))?);
        }
        Ok(server)
    }

    /// Creates a server without threads, for measurements and tests: it works only in calls of
    /// the result's `step`.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn stepped(device: &Arc<Device>, name: &str, options: ServeOptions) -> Result<Stepped, QueueError> {
        let (server, pairs) = Self::prepare(device, name, options)?;
        Ok(Stepped { server, pairs: pairs.into_iter().flatten().collect() })
    }

    fn prepare(
        device: &Arc<Device>,
        name: &str,
        options: ServeOptions,
    ) -> Result<(Self, Vec<Vec<ServedPair>>), QueueError> {
        let names = device.execute(command::List { prefix: "" })?;
        let mut arrays: Vec<Prepared> = Vec::new();
        for name in &names {
            let record = device.describe(name)?.peek().record.clone();
            let nsid = ARRAY_NSID + arrays.len() as u32;
            arrays.extend(Prepared::new(device, &record, nsid, options.writable));
        }
        let header = options.geometry.header(arrays.len() as u32, options.catalog.len() as u64)?;
        let store = device.file_state().map(|file| (file.uid, file.gid, file.mode));
        let access = RegionAccess::of_store(store, options.group);
        let region = QueueRegion::create(&region_path(name), header.region_bytes, access, options.group.is_some())?;
        for (i, array) in arrays.iter().enumerate() {
            let at = header.namespaces_offset + (i * size_of::<NamespaceEntry>()) as u64;
            region.copy_in(at, array.entry().as_bytes());
        }
        region.copy_in(header.catalog_offset, &options.catalog);
        region.copy_in(0, header.as_bytes());
        let threads = header.threads;
        let pairs =
            |t: u32| (0..header.queues).filter(|q| q % threads == t).map(|q| ServedPair::new(&header, q)).collect();
        let pairs: Vec<Vec<ServedPair>> = (0..threads).map(pairs).collect();
        let controller = Controller::new(device);
        let shared = Arc::new(ServedStore { region, header, arrays, controller, writable: options.writable });
        Ok((Self { shared, counters: Arc::default(), threads: Vec::new(), home: Home::here() }, pairs))
    }

    /// Returns the counts of the server's work so far.
    pub fn counts(&self) -> ServerCounts {
        let of = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let c = &self.counters;
        ServerCounts { commands: of(&c.commands), served: of(&c.served), dead: of(&c.dead) }
    }

    /// Returns the names of the arrays that are served.
    pub fn arrays(&self) -> Vec<String> {
        self.shared.arrays.iter().map(|a| a.name().to_owned()).collect()
    }

    /// Returns whether a thread of the server has ended, by a panic or since the region is lost: its queue pairs are
    /// served no more.
    pub fn failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Returns whether the region lost its memory, since its file was truncated or its file system is full: its queue
    /// pairs are served no more.
    pub fn lost(&self) -> bool {
        self.shared.region.lost()
    }

    /// Ends all service: waits of clients end with an error, the threads are joined, and the file is removed.
    pub fn stop(&mut self) {
        if !self.home.is_here() {
            // The handles are of threads that do not exist here; they must not even be dropped.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.counters.stop.store(true, Ordering::SeqCst);
        let region = &self.shared.region;
        region.word(ABORT_OFFSET).store(1, Ordering::SeqCst);
        for t in 0..self.threads.len() as u32 {
            futex::wake(region.word(self.shared.header.queue(t) + ASLEEP));
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message; the others are joined all the same.
            let _ = thread.join();
        }
        region.remove();
    }
}

impl Drop for QueueServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A server without threads, which serves when its caller calls [`Self::step`].
#[derive(Debug)]
pub struct Stepped {
    server: QueueServer,
    pairs: Vec<ServedPair>,
}

impl Stepped {
    /// Serves the commands that clients have submitted so far; returns their number.
    pub fn step(&mut self) -> u64 {
        self.pairs.iter_mut().map(|pair| pair.serve(&self.server.shared)).sum()
    }

    /// Frees the pairs of clients whose process has ended; returns their number.
    pub fn drop_dead(&mut self) -> usize {
        self.pairs.iter_mut().filter_map(|pair| pair.drop_dead(&self.server.shared.region).then_some(())).count()
    }
}

fn thread(shared: &ServedStore, counters: &ServeCounters, number: u32, mut pairs: Vec<ServedPair>) {
    let asleep = shared.region.word(shared.header.queue(number) + ASLEEP);
    let mut idle = 0;
    let mut served = 0;
    while !counters.stop.load(Ordering::Relaxed) && !shared.region.lost() {
        let done: u64 = pairs.iter_mut().map(|pair| pair.serve(shared)).sum();
        if done > 0 {
            counters.commands.fetch_add(done, Ordering::Relaxed);
            idle = 0;
            continue;
        }
        idle += 1;
        if idle < IDLE_ROUNDS {
            // A client that shares this core needs it to submit more commands.
            if idle % YIELD_ROUNDS == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
            continue;
        }
        idle = 0;
        shared.region.long(HEARTBEAT_OFFSET).fetch_add(1, Ordering::Relaxed);
        let dead = pairs.iter_mut().map(|pair| u64::from(pair.drop_dead(&shared.region))).sum();
        counters.dead.fetch_add(dead, Ordering::Relaxed);
        let now = pairs.iter().filter(|pair| pair.is_served()).count() as u64;
        counters.served.fetch_add(now.wrapping_sub(served), Ordering::Relaxed);
        served = now;
        let anything =
            || counters.stop.load(Ordering::SeqCst) || pairs.iter().any(|pair| pair.has_work(&shared.region));
        if sleep::announce(asleep, anything) {
            futex::wait(asleep, SLEEP_MS);
        }
    }
}
