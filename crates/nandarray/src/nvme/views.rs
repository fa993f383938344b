//! The open views of a controller, by their dynamic space identifiers.
//!
//! An identifier is valid for its controller only, and never stored. Identifiers count up and are used again only after
//! the counter has wrapped, so that a stale identifier is detected.

use std::collections::BTreeMap;
use std::sync::Arc;

use nandarray_nvme_spec::Status;

use crate::stl::space::SpaceId;

/// Largest number of views that may be open at once.
pub const VIEWS_MAX: usize = 1 << 16;

/// An open view: a space under a dimensionality of its own, with the same number of elements.
#[derive(Debug)]
pub(super) struct View {
    pub(super) space: SpaceId,
    /// Dimensionality of the view; `None` is the space's own at the time of each command.
    pub(super) dims: Option<Vec<u64>>,
}

/// The open views of a controller.
#[derive(Debug, Default)]
pub(super) struct Views {
    open: BTreeMap<u32, Arc<View>>,
    last: u32,
}

impl Views {
    /// Adds a view; returns its new identifier, or an error if [`VIEWS_MAX`] views are open.
    pub(super) fn add(&mut self, view: View) -> Result<u32, Status> {
        self.check_room()?;
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.open.contains_key(&self.last) {
                self.open.insert(self.last, Arc::new(view));
                return Ok(self.last);
            }
        }
    }

    /// Checks that another view may be opened.
    pub(super) fn check_room(&self) -> Result<(), Status> {
        if self.open.len() < VIEWS_MAX { Ok(()) } else { Err(Status::TOO_MANY_VIEWS) }
    }

    /// Returns the open view with this identifier; an error if there is none.
    pub(super) fn get(&self, dsid: u32) -> Result<Arc<View>, Status> {
        self.open.get(&dsid).cloned().ok_or(Status::INVALID_DSID)
    }

    /// Closes the view with this identifier; an error if there is none.
    pub(super) fn remove(&mut self, dsid: u32) -> Result<(), Status> {
        self.open.remove(&dsid).map(drop).ok_or(Status::INVALID_DSID)
    }

    /// Closes all views.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    /// Closes all views of a space.
    pub(super) fn remove_all_of(&mut self, space: SpaceId) {
        self.open.retain(|_, view| view.space != space);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_count_up_and_around() {
        let mut views = Views { last: u32::MAX - 1, ..Views::default() };
        let view = || View { space: 1, dims: None };
        assert_eq!(views.add(view()), Ok(u32::MAX));
        assert_eq!(views.add(view()), Ok(1), "0 is no id");
        views.open.remove(&1);
        assert_eq!(views.add(view()), Ok(2), "not used again at once");
    }
}
