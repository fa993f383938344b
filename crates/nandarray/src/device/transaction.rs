//! Transactions: writes to several spaces, over as many commands as it takes, applied as one.
//!
//! `Begin` holds whole spaces, in the order of their numbers, and says which shapes they will have. `Stage` writes
//! elements, as a staged write does: pages are appended, no index knows them, and readers see the spaces as they were.
//! `Apply` changes shapes, indexes, names and attributes while no other command is applied and no cut is taken, so that
//! one journal record holds all of it. That is how the variables of a data set grow together along a dimension, though
//! their elements do not fit into memory.
//!
//! A transaction that is never ended is over when the store is closed, or with its process. It spans no two stores, and
//! reserves nothing that is only read.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::staged_write::Staging;
use super::{Change, Device, Target};
use crate::error::{Error, Result, Shape};
use crate::sim::count;
use crate::stl::space::{Space, SpaceId};
use crate::stl::write::Source;

/// A transaction's number.
pub type TransactionId = u64;

/// The transactions that have begun and are not over.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    next: TransactionId,
    by_id: BTreeMap<TransactionId, Arc<Mutex<Transaction>>>,
}

/// The staged blocks of each space; `None` once the transaction is over.
#[derive(Debug)]
struct Transaction(Option<BTreeMap<SpaceId, (Arc<Space>, Staging)>>);

fn is_over(id: TransactionId) -> Error {
    Error::Closed(format!("transaction {id} is over"))
}

/// The shape that a space will have, if it can grow so.
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
        // In the order of their numbers: of two that want the same spaces, one waits for all of them.
        for (id, to) in wanted {
            let space = self.space(id)?;
            let mut staging = Staging::begin(self, &space, vec![])?;
            // No other command can have changed the shape since the blocks are reserved.
            staging.grow(&grown(&space, to)?);
            parts.insert(id, (space, staging));
        }
        assert_eq!(parts.len(), spaces.len(), "each space is staged by itself");
        let mut transactions = self.transactions.lock();
        transactions.next += 1;
        let id = transactions.next;
        transactions.by_id.insert(id, Arc::new(Mutex::new(Transaction(Some(parts)))));
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
        parts.values_mut().for_each(|(_, staging)| staging.abandon(self)); // none once they are applied
        // Their blocks are free again before anything else is done.
        drop(parts);
        done.map(|()| self.after_write())
    }

    pub(super) fn abort(&self, id: TransactionId) {
        if let Some(mut parts) = self.end(id) {
            parts.values_mut().for_each(|(_, staging)| staging.abandon(self));
        }
    }

    /// Takes the staged blocks out of a transaction, which is over then.
    fn end(&self, id: TransactionId) -> Option<BTreeMap<SpaceId, (Arc<Space>, Staging)>> {
        let found = self.transactions.lock().by_id.remove(&id)?;
        // After a command that stages at present.
        found.lock().0.take()
    }

    fn apply_parts(&self, parts: &mut BTreeMap<SpaceId, (Arc<Space>, Staging)>, changes: &[Change<'_>]) -> Result<()> {
        self.ready()?;
        self.hold_journal(parts.values().map(|(_, staging)| staging.journal_bytes()).sum())?;
        let _pages = self.reserve_changes(changes)?;
        // Excludes commits and deletions: a space that is there now stays until all is applied.
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
