//! Several changes of names and attributes as one command, e.g. an import whose arrays appear together, or a group that
//! is moved or deleted as a whole.
//!
//! All changes are checked first, each against the names that the changes before it would leave. Then all are applied
//! in one epoch, without a cut in between, so that one journal record holds all of them or none. Elements are not
//! changed here. Deletions wait for the runs of programs that write to what they delete.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Device;
use super::command::Change;
use super::names::check_name;
use super::wire::JournalOp;
use crate::error::{Error, Result};
use crate::ftl::Reservation;
use crate::sched::RangeTicket;
use crate::stl::space::{Space, SpaceId};

impl<'a> Change<'a> {
    /// Returns the name that the space has before the change.
    fn name(&self) -> &'a str {
        match *self {
            Self::Delete { name } | Self::SetAttrs { name, .. } => name,
            Self::Rename { from, .. } => from,
        }
    }
}

/// Returns the spaces of those changes that delete; `spaces` has that of each change.
pub(super) fn deletions(changes: &[Change<'_>], spaces: &[Arc<Space>]) -> BTreeMap<SpaceId, Arc<Space>> {
    let found = changes.iter().zip(spaces).filter(|(change, _)| matches!(change, Change::Delete { .. }));
    found.map(|(_, space)| (space.id, space.clone())).collect()
}

impl Device {
    pub(super) fn batch(&self, changes: &[Change<'_>]) -> Result<()> {
        self.sound()?;
        let _pages = self.reserve_changes(changes)?;
        let mut deleted = self.deleted(changes);
        loop {
            let held: BTreeMap<SpaceId, RangeTicket> =
                deleted.iter().map(|(&id, space)| Ok((id, self.hold_runs(space)?))).collect::<Result<_>>()?;
            // The lock is exclusive: the names that were checked cannot change before all changes are applied, and the
            // locks of spaces are taken one at a time.
            let _epoch = self.epoch.write();
            self.still_open()?;
            let spaces = self.spaces_changed(changes)?;
            deleted = deletions(changes, &spaces);
            // A name may have become another space's since its runs were waited for.
            if deleted.keys().all(|id| held.contains_key(id)) {
                self.change_all(changes, &spaces);
                break;
            }
        }
        self.after_write();
        Ok(())
    }

    /// Returns the spaces that changes delete, as names are now; those that are not there are refused later.
    pub(super) fn deleted(&self, changes: &[Change<'_>]) -> BTreeMap<SpaceId, Arc<Space>> {
        // The space of a name is that before all changes, or that which a change before gives the name to.
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let mut spaces = BTreeMap::new();
        for change in changes {
            match *change {
                Change::Rename { from, to } => drop(names.insert(to, names.get(from).copied().unwrap_or(from))),
                Change::Delete { name } => {
                    let before = names.get(name).copied().unwrap_or(name);
                    if let Ok(space) = self.find(before) {
                        spaces.insert(space.id, space);
                    }
                }
                Change::SetAttrs { .. } => {}
            }
        }
        spaces
    }

    /// Checks the new name of each change by itself, and reserves pages for the new attributes; `None` if no change
    /// sets attributes.
    pub(super) fn reserve_changes(&self, changes: &[Change<'_>]) -> Result<Option<Reservation<'_>>> {
        let mut attrs_bytes = 0;
        for change in changes {
            match change {
                Change::Rename { to, .. } => check_name(to)?,
                Change::SetAttrs { attrs, .. } => attrs_bytes += attrs.len(),
                Change::Delete { .. } => {}
            }
        }
        if attrs_bytes == 0 {
            return Ok(None);
        }
        self.ready()?;
        self.reserve_metadata(attrs_bytes).map(Some)
    }

    /// Returns the space of every change, or an error if one of the changes cannot be made. Loads the indexes of spaces
    /// to delete, since loading may fail. The caller holds the epoch exclusively from this call until the changes are
    /// made.
    pub(super) fn spaces_changed(&self, changes: &[Change<'_>]) -> Result<Vec<Arc<Space>>> {
        let mut spaces = Vec::with_capacity(changes.len());
        {
            let catalog = self.catalog.read();
            // Names as the changes so far would leave them: the space, or `None` for a name that is free.
            let mut changed: HashMap<&str, Option<SpaceId>> = HashMap::new();
            for change in changes {
                let whose = |name: &str| match changed.get(name) {
                    Some(&id) => id,
                    None => catalog.by_name.get(name).copied(),
                };
                let name = change.name();
                let id = whose(name).ok_or_else(|| Error::NotFound { name: name.to_owned() })?;
                match *change {
                    Change::Delete { .. } => drop(changed.insert(name, None)),
                    Change::Rename { to, .. } if to != name => {
                        if whose(to).is_some() {
                            return Err(Error::Exists { name: to.to_owned(), group: false });
                        }
                        changed.insert(name, None);
                        changed.insert(to, Some(id));
                    }
                    Change::Rename { .. } | Change::SetAttrs { .. } => {}
                }
                spaces.push(catalog.by_id[&id].clone());
            }
            // Checked last: in between, a group that moves may lie in an array that moves away after it.
            for change in changes {
                match *change {
                    Change::Rename { from, to } if to != from && changed[to].is_some() => {
                        catalog.check_place(to, &changed)?;
                    }
                    _ => {}
                }
            }
        }
        for (change, space) in changes.iter().zip(&spaces) {
            if let Change::Delete { .. } = change {
                drop(space.write()?);
            }
        }
        Ok(spaces)
    }

    pub(super) fn change_all(&self, changes: &[Change<'_>], spaces: &[Arc<Space>]) {
        assert_eq!(changes.len(), spaces.len(), "each change has its space");
        let mut dead = Vec::new();
        let mut ops = Vec::with_capacity(changes.len());
        for (change, space) in changes.iter().zip(spaces) {
            let mut inner = space.peek_mut();
            ops.push(match *change {
                Change::Delete { .. } => {
                    dead.extend(self.empty_space(space, &mut inner));
                    JournalOp::Delete(space.id)
                }
                Change::Rename { to, .. } => {
                    to.clone_into(&mut inner.record.name);
                    JournalOp::Rename(space.id, to.to_owned())
                }
                Change::SetAttrs { attrs, .. } => {
                    attrs.clone_into(&mut inner.record.attrs);
                    JournalOp::Attrs(space.id, attrs.to_owned())
                }
            });
        }
        let mut log = self.log.lock();
        let mut catalog = self.catalog.write();
        for (change, space) in changes.iter().zip(spaces) {
            match *change {
                Change::Delete { name } => {
                    catalog.by_name.remove(name);
                    catalog.by_id.remove(&space.id);
                }
                Change::Rename { from, to } => {
                    catalog.by_name.remove(from);
                    catalog.by_name.insert(to.to_owned(), space.id);
                }
                Change::SetAttrs { .. } => {}
            }
        }
        catalog.check();
        log.queue(ops);
        drop((catalog, log));
        self.ftl.release(dead.into_iter());
    }
}
