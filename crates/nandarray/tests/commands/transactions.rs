//! Random transactions beside other commands, and losses of power among them.
//!
//! Several transactions are open at the same time, over arrays of their own: they stage parts of any form, are applied
//! with changes of names and attributes, or given up. In between, commands write to the other arrays and flush. Readers
//! see nothing of a transaction before it is applied, all of it afterwards; a loss of power leaves the state
//! after one of the commands since the last flush, in which every transaction is whole or absent.
//!
//! transactions.rs beside this folder crashes at every write of one kind of transaction; here every kind is drawn.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use nandarray::{Change, Device, Error, FaultMedia, Geometry, Mode, Options, Result, Source, TransactionId, command};

use crate::common::*;

/// An open transaction: the arrays that it holds, as they will be when it is applied.
struct Draft {
    id: TransactionId,
    arrays: Model,
}

/// A store with its expected content and open transactions.
struct World {
    device: Device,
    media: Arc<FaultMedia>,
    states: Vec<Model>,
    /// Index of the oldest state that a loss of power may leave.
    flushed: usize,
    drafts: Vec<Draft>,
    rng: Rng,
    /// Numbers of transactions that were applied, were given up, and found no room.
    counts: [u64; 3],
}

fn store_options(seed: u64, entropy: u64) -> Options {
    Options {
        write_buffer_bytes: [0, 2500, 64 << 20][seed as usize % 3],
        capacity_bytes: (seed % 4 == 3).then(|| Geometry::TINY.medium_bytes(18)),
        exact_geometry: true,
        ..options(Geometry::TINY, entropy)
    }
}

const TASTE: Taste = Taste { array_bytes: 16_000, arrays: 6, coded: true, reopen: false, snapshots: false };

/// The whole array as a transaction will leave it: grown, and filled with the fill value where it is new.
fn grown(array: &Array, shape: &[u64]) -> Array {
    let mut model = Model::from([("a".to_owned(), array.clone())]);
    Op::Resize { name: "a".into(), shape: shape.to_vec() }.tell(&mut model);
    model.remove("a").unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let media = Arc::new(FaultMedia::with_bytes(vec![]));
        let device = open(media.clone(), Mode::Append, &store_options(seed, seed)).unwrap();
        let rng = Rng::with_seed(seed);
        let mut world =
            Self { device, media, states: vec![Model::new()], flushed: 0, drafts: vec![], rng, counts: [0; 3] };
        while world.now().len() < 5 {
            let op = draw(world.rng.u64(..), world.now(), &TASTE);
            world.run(&op).unwrap();
        }
        world
    }

    fn now(&self) -> &Model {
        self.states.last().unwrap()
    }

    /// Records a state. One of a command that failed is recorded, too, if the power failed: it may have been applied.
    fn note<T>(&mut self, model: Model, done: Result<T>) -> Result<()> {
        match done {
            Ok(_) => self.states.push(model),
            Err(e) if is_full(&e) && !self.media.crashed() => {}
            Err(e) => {
                self.states.push(model);
                return Err(e);
            }
        }
        Ok(())
    }

    fn run(&mut self, op: &Op) -> Result<()> {
        let mut model = self.now().clone();
        op.tell(&mut model);
        let done = op.run(&self.device);
        let flushes = done.is_ok() && op.flushes();
        self.note(model, done)?;
        if flushes {
            self.flushed = self.states.len() - 1;
        }
        Ok(())
    }

    /// The arrays that no transaction holds.
    fn others(&self) -> Model {
        let held = |name: &String| self.drafts.iter().any(|draft| draft.arrays.contains_key(name));
        self.now().iter().filter(|(name, _)| !held(name)).map(|(name, array)| (name.clone(), array.clone())).collect()
    }

    fn begin(&mut self) -> Result<()> {
        let mut arrays = Model::new();
        for (name, array) in self.others() {
            if self.rng.bool() {
                let mut shape = array.shape.clone();
                for side in &mut shape {
                    *side += if self.rng.u8(..3) == 0 { self.rng.u64(..5) } else { 0 };
                }
                arrays.insert(name, grown(&array, &shape));
            }
        }
        let ids = arrays.iter().map(|(name, array)| Ok((open_space(&self.device, name)?.id, array.shape.clone())));
        let ids: Vec<_> = ids.collect::<Result<_>>()?;
        let spaces: Vec<_> = ids.iter().map(|(id, shape)| (*id, &shape[..])).collect();
        match self.device.execute(command::Begin { spaces: &spaces }) {
            Ok(id) => self.drafts.push(Draft { id, arrays }),
            Err(e) if is_full(&e) => self.counts[2] += 1,
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Stages a part of an array of a transaction.
    fn stage(&mut self) -> Result<()> {
        let Self { device, drafts, rng, counts, .. } = self;
        let which = rng.usize(..drafts.len());
        let Draft { id, arrays } = &mut drafts[which];
        let mut usable: Vec<_> = arrays.iter_mut().filter(|(_, array)| !array.shape.contains(&0)).collect();
        if usable.is_empty() {
            return Ok(());
        }
        let at = rng.usize(..usable.len());
        let (name, array) = &mut usable[at];
        let part = draw_part(rng, &array.shape, true);
        let elements = part.elements(&array.shape);
        let bytes = content(if rng.u8(..10) == 0 { 0 } else { rng.u64(1..) }, elements.len(), &array.fill);
        // SAFETY: the buffer has the part's elements.
        let source = unsafe { Source::from_raw(bytes.as_ptr()) };
        let (space, dimensions) = (open_space(device, name)?.id, array.shape.len());
        let strides = strides(&part.count(dimensions), array.item);
        let done = part.target(dimensions, &strides, |target| {
            device.execute(command::StageWrite { transaction: *id, space, target, source })
        });
        match done {
            Ok(()) => put(array, &elements, &bytes),
            Err(e) if is_full(&e) => counts[2] += 1,
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Ends a transaction: applies it with changes of its own arrays, or gives it up.
    fn end(&mut self) -> Result<()> {
        let Draft { id, arrays } = self.drafts.swap_remove(self.rng.usize(..self.drafts.len()));
        if self.rng.u8(..3) == 0 {
            self.counts[1] += 1;
            return self.device.execute(command::Abort { transaction: id });
        }
        let mut model = self.now().clone();
        for (name, array) in &arrays {
            // Attributes may have been set since the transaction began.
            let attrs = model[name].attrs.clone();
            model.insert(name.clone(), Array { attrs, ..array.clone() });
        }
        let (mut steps, mut names) = (Vec::new(), arrays.into_keys().collect::<Vec<_>>());
        for _ in 0..self.rng.u8(..4).min(names.len() as u8) {
            let i = self.rng.usize(..names.len());
            let free = (0..9).map(|n| format!("new/{n}")).find(|name| !model.contains_key(name));
            let step = match (self.rng.u8(..4), free) {
                (0, _) if model.len() > 3 => Step::Delete(names.swap_remove(i)),
                (1..=2, Some(to)) => Step::Rename(std::mem::replace(&mut names[i], to.clone()), to),
                _ => Step::Attrs(names[i].clone(), format!("{{\"t\":{id}}}")),
            };
            Op::Batch(vec![step.clone()]).tell(&mut model);
            steps.push(step);
            if names.is_empty() {
                break;
            }
        }
        let changes: Vec<Change<'_>> = steps.iter().map(Step::change).collect();
        let done = self.device.execute(command::Apply { transaction: id, changes: &changes });
        self.counts[if done.is_ok() { 0 } else { 2 }] += 1;
        self.note(model, done)
    }

    /// One step: a command of a transaction, or of the rest of the store.
    fn step(&mut self) -> Result<()> {
        match self.rng.u8(..10) {
            0..=1 if self.drafts.len() < 3 => self.begin(),
            2..=5 if !self.drafts.is_empty() => self.stage(),
            6 if !self.drafts.is_empty() => self.end(),
            7 => {
                // Attributes wait for no transaction.
                let nth = self.rng.usize(..self.now().len());
                let name = self.now().keys().nth(nth).unwrap().clone();
                let attrs = format!("{{\"n\":{}}}", self.rng.u8(..));
                self.run(&Op::Attrs { name, attrs })
            }
            _ => {
                let others = self.others();
                let op = if others.is_empty() { Op::Flush } else { draw(self.rng.u64(..), &others, &TASTE) };
                // A name that is free among the others may be one of a transaction's; and compaction waits for it.
                let taken = |name: &String| self.now().contains_key(name) && !others.contains_key(name);
                let clash = match &op {
                    Op::Create { name, .. } => taken(name),
                    Op::Rename { to, .. } => taken(to),
                    Op::Batch(steps) => steps.iter().any(|s| matches!(s, Step::Rename(_, to) if taken(to))),
                    Op::Compact => !self.drafts.is_empty(),
                    _ => false,
                };
                if clash { Ok(()) } else { self.run(&op) }
            }
        }
    }
}

/// Runs a drawn history to its end and returns the number of writes of the medium, and the counts.
fn whole(seed: u64, steps: u64) -> (u64, [u64; 3]) {
    let mut world = World::new(seed);
    for step in 0..steps {
        let context = || format!("seed {seed}, step {step}");
        world.step().unwrap_or_else(|e| panic!("{e:?}; {}", context()));
        assert_holds(&world.device, world.now(), &context);
    }
    let context = || format!("seed {seed}, {} transactions open", world.drafts.len());
    assert_sound(&world.device, &context);
    world.device.close().unwrap_or_else(|e| panic!("{e:?}; {}", context()));
    let model = world.now().clone();
    let writes = world.media.writes();
    drop(world.device);
    let again = open(world.media, Mode::ReadWrite, &store_options(seed, seed + 1)).unwrap();
    assert_holds(&again, &model, &|| format!("seed {seed}, opened again: transactions that were open are gone"));
    assert_sound(&again, &|| format!("seed {seed}, opened again"));
    (writes, world.counts)
}

#[test]
fn transactions_side_by_side_do_what_their_model_does() {
    let mut counts = [0; 3];
    for seed in 0..rounds(24, 800) {
        let (_, more) = whole(seed, 90);
        counts.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
    }
    assert!(counts[0] > 50 && counts[1] > 20, "applied, given up, without room: {counts:?}");
}

/// Lets the power fail at a write of a drawn history; panics unless what survives is a state since the last flush.
fn crash(seed: u64, steps: u64, at: u64) {
    let mut world = World::new(seed);
    let made = world.media.writes();
    world.media.crash_at_write(at.saturating_sub(made).max(1));
    for _ in 0..steps {
        let done = world.step();
        if world.media.crashed() {
            break;
        }
        done.unwrap_or_else(|e| panic!("{e:?}; seed {seed}, before the crash at write {at}"));
    }
    let World { device, media, states, flushed, .. } = world;
    drop(device);
    for (bytes, lost) in [(media.after_kill(), "a kill"), (media.after_crash(at), "a loss of power")] {
        let context = || format!("seed {seed}, {lost} at write {at}");
        let media = Arc::new(FaultMedia::with_bytes(bytes));
        let device = open(media, Mode::ReadWrite, &store_options(seed, 7000 + at))
            .unwrap_or_else(|e| panic!("{e}; {}", context()));
        let found = read_all(&device).unwrap_or_else(|e| panic!("{e}; {}", context()));
        let is_one = states[flushed..].iter().rev().any(|state| *state == found);
        let last = difference(&found, &states[states.len() - 1]);
        assert!(is_one, "none of {} states; from the last: {last:?}; {}", states.len() - flushed, context());
        assert_sound(&device, &context);
        // Nothing of the transactions that were open holds an array back.
        for (name, array) in &found {
            let op = Op::Resize { name: name.clone(), shape: array.shape.clone() };
            op.run(&device).unwrap_or_else(|e| panic!("{e}; {}", context()));
        }
    }
}

#[test]
fn a_loss_of_power_anywhere_leaves_every_transaction_whole_or_absent() {
    for seed in 0..rounds(10, 200) {
        let (writes, _) = whole(seed, 60);
        let mut rng = Rng::with_seed(seed + 500);
        for _ in 0..rounds(7, 60) {
            crash(seed, 60, rng.u64(1..=writes));
        }
    }
}

#[test]
fn transactions_that_are_never_ended_are_discarded_when_the_store_is_closed() {
    let media = Arc::new(FaultMedia::with_bytes(vec![]));
    let device = open(media.clone(), Mode::Append, &store_options(0, 1)).unwrap();
    let mut model = Model::new();
    for name in ["a", "b"] {
        let op = Op::bytes(name, &[40, 40]);
        op.run(&device).unwrap();
        op.tell(&mut model);
    }
    let mut live = BTreeMap::new();
    for name in ["a", "b"] {
        let space = open_space(&device, name).unwrap().id;
        let transaction = device.execute(command::Begin { spaces: &[(space, &[50, 40])] }).unwrap();
        let part = Part::boxed(&[10, 0], &[40, 40]);
        let bytes = content(3, 1600, &[0]);
        // SAFETY: the buffer has the part's elements.
        let source = unsafe { Source::from_raw(bytes.as_ptr()) };
        part.target(2, &strides(&[40, 40], 1), |target| {
            device.execute(command::StageWrite { transaction, space, target, source }).unwrap();
        });
        live.insert(name, transaction);
    }
    device.execute(command::Abort { transaction: live["a"] }).unwrap();
    assert_holds(&device, &model, &String::new);
    device.close().unwrap();
    let done = device.execute(command::Apply { transaction: live["b"], changes: &[] });
    assert!(matches!(done, Err(Error::Closed(_))), "{done:?}");
    drop(device);
    let again = open(media, Mode::ReadWrite, &store_options(0, 2)).unwrap();
    assert_holds(&again, &model, &String::new);
    assert_sound(&again, &String::new);
    again.execute(command::Compact).unwrap();
    assert_eq!(number(&again, "pages_live"), 0, "no page of a discarded transaction stays");
}
