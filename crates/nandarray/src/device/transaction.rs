//! Transactions: writes to several spaces, over several commands, which are applied together.
//!
//! `Begin` locks whole spaces, in the order of their numbers, and sets the shapes that they will have. `StageWrite`
//! writes elements like a staged write: pages are appended that no index maps, and readers see the spaces as they were.
//! `Apply` changes shapes, indexes, names and attributes under one exclusive epoch, so that one journal record holds
//! all of it. This lets the variables of a data set grow together along a dimension, even if their elements do not fit
//! into memory.
//!
//! A transaction that is never ended is discarded when the store is closed or its process ends. A transaction belongs
//! to one store, and does not lock spaces that are only read.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::staged_write::Staging;
use super::{Change, Device, Target};
use crate::error::{Error, Result, Shape};
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

/// The spaces of a transaction and their staged blocks; `None` once the transaction has ended.
#[derive(Debug)]
struct Transaction(Option<BTreeMap<SpaceId, (Arc<Space>, Staging)>>);

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
        let mut parts = BTreeMap::new();
        // Locks are taken in the order of numbers, so that two transactions cannot wait for each other.
        for (id, to) in wanted {
            let space = self.space(id)?;
            let mut staging = Staging::begin(self, &space, vec![])?;
            // No other command can have changed the shape since the blocks were locked.
            staging.grow(&grown(&space, to)?);
            parts.insert(id, (space, staging));
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
        let (space, staging) = parts
            .get_mut(&space)
            .ok_or_else(|| Error::invalid(format!("space {space} is none of transaction {id}")))?;
        let bytes = staging.put(self, space, target, source)?;
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, bytes);
        Ok(())
    }

    pub(super) fn apply_transaction(&self, id: TransactionId, changes: &[Change<'_>]) -> Result<()> {
        let mut parts = self.end(id).ok_or_else(|| is_over(id))?;
        let done = self.apply_parts(&mut parts, changes);
        let applied = parts.values().all(|(_, staging)| staging.is_empty());
        assert!(done.is_err() || applied, "transaction {id} leaves nothing staged");
        parts.values_mut().for_each(|(_, staging)| staging.abandon(self)); // none are left if they were applied
        // The range locks are released before anything else is done.
        drop(parts);
        done.map(|()| self.after_write())
    }

    pub(super) fn abort(&self, id: TransactionId) {
        if let Some(mut parts) = self.end(id) {
            parts.values_mut().for_each(|(_, staging)| staging.abandon(self));
        }
    }

    /// Ends a transaction and returns its staged blocks; `None` if it has ended before.
    fn end(&self, id: TransactionId) -> Option<BTreeMap<SpaceId, (Arc<Space>, Staging)>> {
        let found = self.transactions.lock().by_id.remove(&id)?;
        // Waits for a command that is staging at present.
        let parts = found.lock().0.take();
        assert!(parts.is_some(), "whoever takes transaction {id} off the list ends it");
        parts
    }

    fn apply_parts(&self, parts: &mut BTreeMap<SpaceId, (Arc<Space>, Staging)>, changes: &[Change<'_>]) -> Result<()> {
        self.ready()?;
        self.hold_journal(parts.values().map(|(_, staging)| staging.journal_bytes()).sum())?;
        let _pages = self.reserve_changes(changes)?;
        // Excludes commits and deletions: a space that exists now cannot be deleted before everything is applied.
        let _epoch = self.epoch.write();
        if self.closed() {
            return Err(Error::Closed("the store was closed before the transaction was applied".to_owned()));
        }
        for (space, _) in parts.values() {
            drop(space.read()?);
        }
        let spaces = self.spaces_changed(changes)?;
        for (space, staging) in parts.values_mut() {
            let staged = staging.take();
            let mut inner = space.write().expect("the space was there just now");
            self.apply_to(space, &mut inner, staged, Some(staging.shape()));
        }
        self.change_all(changes, &spaces);
        Ok(())
    }
}
