//! Transactions: writes to several spaces, over several commands, which are applied together.
//!
//! `Begin` locks whole spaces, in the order of their numbers, and sets the shapes that they will have. `StageWrite`
//! writes elements like a staged write: pages are appended that no index maps, and readers see the spaces as they were.
//! `Apply` changes shapes, indexes, names and attributes under one exclusive epoch, so that one journal record holds
//! all of it. This lets the variables of a data set grow together along a dimension, even if their elements do not fit
//! into memory.
//!
//! Runs of programs see the arrays that they write to as at their start, as with other commands (`reshape`, `batch`):
//! `Begin` waits for those that a growth would disturb, and `Apply` for those that write to what it deletes. A wait of
//! `Apply` never keeps another command for ever: a run may need a space of the transaction before it ends, and while
//! one is about to write to such a space, `Apply` is refused with [`Error::Busy`]; the transaction goes on, and may be
//! applied again.
//!
//! A transaction that is never ended is discarded when the store is closed or its process ends. A transaction belongs
//! to one store, and does not lock spaces that are only read.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::batch::deletions;
use super::staged_write::Staging;
use super::{Change, Device, Target};
use crate::error::{Error, Result, Shape};
use crate::sched::{RangeTicket, Share};
use crate::sim::count;
use crate::stl::space::{Space, SpaceId};
use crate::stl::write::Source;

/// Number of a transaction, unique while the store is open.
pub type TransactionId = u64;

/// The transactions that have begun and have not ended.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    next: TransactionId,
    by_id: BTreeMap<TransactionId, Arc<Mutex<Transaction>>>,
}

/// One space of a transaction, with its staged blocks.
#[derive(Debug)]
struct TransactionPart {
    space: Arc<Space>,
    staging: Staging,
    /// Keeps runs that the growth would disturb from beginning.
    _growth: RangeTicket,
}

type Parts = BTreeMap<SpaceId, TransactionPart>;

/// The spaces of a transaction; `None` once the transaction has ended.
#[derive(Debug)]
struct Transaction(Option<Parts>);

fn is_over(id: TransactionId) -> Error {
    Error::Closed(format!("transaction {id} is over"))
}

/// Returns the shape that a space will have in a transaction, or an error if the space cannot grow to it.
fn grown(space: &Space, to: &[u64]) -> Result<Vec<u64>> {
    let record = &space.peek().record;
    let from = &record.shape;
    if record.scalar && to.is_empty() {
        return Ok(from.clone());
    }
    if record.scalar || to.len() != from.len() || to.iter().zip(from).any(|(to, from)| to < from) {
        let shape = Shape(record.shape());
        return Err(Error::invalid(format!("array {:?} of shape {shape} cannot grow to {}", record.name, Shape(to))));
    }
    Ok(to.to_vec())
}

impl Device {
    pub(super) fn begin(&self, spaces: &[(SpaceId, &[u64])]) -> Result<TransactionId> {
        let mut wanted = BTreeMap::new();
        for &(id, to) in spaces {
            if wanted.insert(id, to).is_some() {
                return Err(Error::invalid(format!("a transaction names space {id} twice")));
            }
        }
        // Locks are taken in the order of numbers, all of runs before the others, so that two transactions, or one and
        // a run of programs, cannot wait for each other.
        let held: Vec<(Arc<Space>, RangeTicket)> = (wanted.keys())
            .map(|&id| self.space(id).and_then(|space| Ok((space.clone(), self.hold_growth(&space)?))))
            .collect::<Result<_>>()?;
        let mut parts = Parts::new();
        for ((space, growth), (id, to)) in held.into_iter().zip(wanted) {
            let mut staging = Staging::begin(self, &space, vec![])?;
            // No other command can have changed the shape since the blocks were locked.
            staging.grow(&grown(&space, to)?);
            parts.insert(id, TransactionPart { space, staging, _growth: growth });
        }
        assert_eq!(parts.len(), spaces.len(), "each space is staged by itself");
        let mut transactions = self.transactions.lock();
        transactions.next += 1;
        let id = transactions.next;
        let before = transactions.by_id.insert(id, Arc::new(Mutex::new(Transaction(Some(parts)))));
        assert!(before.is_none(), "transaction {id} begins once");
        Ok(id)
    }

    pub(super) fn stage(&self, id: TransactionId, space: SpaceId, target: &Target<'_>, source: Source) -> Result<()> {
        self.ready()?;
        let found = self.transactions.lock().by_id.get(&id).cloned().ok_or_else(|| is_over(id))?;
        let mut transaction = found.lock();
        let parts = transaction.0.as_mut().ok_or_else(|| is_over(id))?;
        let TransactionPart { space, staging, .. } = parts
            .get_mut(&space)
            .ok_or_else(|| Error::invalid(format!("space {space} is none of transaction {id}")))?;
        let bytes = staging.put(self, space, target, source)?;
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, bytes);
        Ok(())
    }

    pub(super) fn apply_transaction(&self, id: TransactionId, changes: &[Change<'_>]) -> Result<()> {
        let found = self.transactions.lock().by_id.get(&id).cloned().ok_or_else(|| is_over(id))?;
        let mut transaction = found.lock();
        let parts = transaction.0.as_mut().ok_or_else(|| is_over(id))?;
        let mut deleted = self.deleted(changes);
        let done = loop {
            // A refusal leaves the transaction as it was.
            let held = self.hold_deleted(id, parts, &deleted)?;
            match self.apply_parts(parts, changes, &held) {
                // A name has become another space's since its runs were waited for.
                Ok(Some(others)) => deleted = others,
                Ok(None) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        let mut parts = transaction.0.take().expect("it was there just now");
        self.transactions.lock().by_id.remove(&id);
        let applied = parts.values().all(|part| part.staging.is_empty());
        assert!(done.is_err() || applied, "transaction {id} leaves nothing staged");
        parts.values_mut().for_each(|part| part.staging.abandon(self)); // none are left if they were applied
        // The range locks are released before anything else is done.
        drop(parts);
        drop(transaction);
        done.map(|()| self.after_write())
    }

    /// Waits for the runs of programs that write to spaces which a transaction deletes, and keeps others from
    /// beginning.
    ///
    /// # Errors
    /// [`Error::Busy`] if a run has begun, or waits, to write to a space of the transaction: it may wait for the
    /// transaction to end.
    fn hold_deleted(
        &self,
        id: TransactionId,
        parts: &Parts,
        deleted: &BTreeMap<SpaceId, Arc<Space>>,
    ) -> Result<BTreeMap<SpaceId, RangeTicket>> {
        let (own, others): (Vec<_>, Vec<_>) = deleted.iter().partition(|(number, _)| parts.contains_key(number));
        let request = |space: &Space| space.runs.request(vec![], Share::Exclusive);
        // Before those of all runs that are not there yet.
        let mut held: BTreeMap<SpaceId, RangeTicket> =
            own.iter().map(|&(&number, space)| (number, request(space))).collect();
        let own_held = held.len();
        let meets_runs = |held: &BTreeMap<SpaceId, RangeTicket>| {
            let is_met = |(number, part): (&SpaceId, &TransactionPart)| {
                part.space.runs.requests() > usize::from(held.contains_key(number))
            };
            parts.iter().any(is_met)
        };
        let refused = || {
            Error::Busy(format!(
                "programs write to an array of transaction {id}, or are about to, while it waits to delete others: \
                 they must end, or the transaction must, before it is applied"
            ))
        };
        for (&number, space) in others {
            let ticket = request(space);
            let is_ended = || !self.transactions.lock().by_id.contains_key(&id);
            let stops = || meets_runs(&held) || is_ended();
            let ticket = self.granted(space, ticket, Some(&stops)).map_err(|e| match e {
                Error::Cancelled if is_ended() => is_over(id),
                Error::Cancelled if meets_runs(&held) => refused(),
                e => e,
            })?;
            held.insert(number, ticket);
        }
        if own_held > 0 && meets_runs(&held) { Err(refused()) } else { Ok(held) }
    }

    pub(super) fn abort(&self, id: TransactionId) {
        let Some(found) = self.transactions.lock().by_id.remove(&id) else { return };
        // Waits for a command that is staging at present.
        let parts = found.lock().0.take();
        for part in parts.into_iter().flat_map(Parts::into_values) {
            let mut staging = part.staging;
            staging.abandon(self);
        }
    }

    /// Applies all of a transaction; `held` are the spaces whose runs were waited for. Returns the spaces that it would
    /// delete, and does nothing, if they are others.
    fn apply_parts(
        &self,
        parts: &mut Parts,
        changes: &[Change<'_>],
        held: &BTreeMap<SpaceId, RangeTicket>,
    ) -> Result<Option<BTreeMap<SpaceId, Arc<Space>>>> {
        self.ready()?;
        self.hold_journal(parts.values().map(|part| part.staging.journal_bytes()).sum())?;
        let _pages = self.reserve_changes(changes)?;
        // Excludes commits and deletions: a space that exists now cannot be deleted before everything is applied.
        let _epoch = self.epoch.write();
        if self.closed() {
            return Err(Error::Closed("the store was closed before the transaction was applied".to_owned()));
        }
        for part in parts.values() {
            drop(part.space.write()?);
        }
        let spaces = self.spaces_changed(changes)?;
        let deleted = deletions(changes, &spaces);
        if !deleted.keys().all(|id| held.contains_key(id)) {
            return Ok(Some(deleted));
        }
        for TransactionPart { space, staging, .. } in parts.values_mut() {
            let staged = staging.take();
            let mut inner = space.write().expect("the space was there just now");
            self.apply_to(space, &mut inner, staged, Some(staging.shape()));
        }
        self.change_all(changes, &spaces);
        Ok(None)
    }
}
