//! Notifications of one controller's host about reservations: log page 80h, and the feature that suppresses kinds.
//!
//! A page has one notification; reading it lets the next one follow. The number of those kept is the largest that a
//! page can name: beyond that the oldest is lost, and the numbers show the gap (base 2.0, log page 80h).

use std::collections::{BTreeMap, VecDeque};

use nandarray_nvme_spec::{LogPage, ReservationNoticeKind, ReservationNoticePage, Status};

/// Maximum number of notifications that are kept.
const NOTICES_MAX: usize = 255;
/// Dword 0 of the event: status of a command set (type 6), reservation log page available (information 0), and the page
/// (base 2.0, figure 145).
pub(crate) const RESERVATION_EVENT: u32 = 6 | (LogPage::Reservations as u32) << 16;
/// Bits of the feature of suppressed kinds: one for each, by its number.
const MASK_BITS: u32 = {
    use ReservationNoticeKind::{RegistrationPreempted, ReservationPreempted, ReservationReleased};
    1 << RegistrationPreempted as u32 | 1 << ReservationReleased as u32 | 1 << ReservationPreempted as u32
};

#[derive(Clone, Copy, Debug)]
struct ReservationNotice {
    count: u64,
    nsid: u32,
    kind: ReservationNoticeKind,
}

/// The notifications that a host has not read, and those that it does not want.
#[derive(Debug, Default)]
pub(crate) struct ReservationNotices {
    waiting: VecDeque<ReservationNotice>,
    last: u64,
    masks: BTreeMap<u32, u32>,
    /// Whether an event was sent, and the host has not read the log page since then.
    noticed: bool,
}

impl ReservationNotices {
    /// Returns the kinds that a host does not want of a namespace.
    pub(crate) fn mask(&self, nsid: u32) -> u32 {
        self.masks.get(&nsid).copied().unwrap_or_default()
    }

    /// Sets the kinds that a host does not want of these namespaces.
    ///
    /// # Errors
    /// Invalid field: a bit of no kind.
    pub(crate) fn set_mask(&mut self, nsids: &[u32], mask: u32) -> Result<(), Status> {
        if mask & !MASK_BITS != 0 {
            return Err(Status::INVALID_FIELD);
        }
        self.masks.extend(nsids.iter().map(|nsid| (*nsid, mask)));
        Ok(())
    }

    /// Adds a notification, unless the host does not want it.
    pub(crate) fn add(&mut self, nsid: u32, kind: ReservationNoticeKind) {
        if self.mask(nsid) & 1 << kind as u32 != 0 {
            return;
        }
        // No number is 0, which is that of no notification.
        self.last = self.last.checked_add(1).unwrap_or(1);
        self.waiting.push_back(ReservationNotice { count: self.last, nsid, kind });
        if self.waiting.len() > NOTICES_MAX {
            self.waiting.pop_front();
        }
        assert!(self.waiting.len() <= NOTICES_MAX, "{} notifications", self.waiting.len());
    }

    /// Whether the host is to be sent an event.
    pub(crate) fn is_due(&self) -> bool {
        !self.waiting.is_empty() && !self.noticed
    }

    /// Notes that an event was sent.
    pub(crate) fn set_noticed(&mut self) {
        assert!(self.is_due(), "an event of nothing new");
        self.noticed = true;
    }

    /// Returns the log page of the oldest notification.
    pub(crate) fn page(&self) -> ReservationNoticePage {
        let mut page = ReservationNoticePage::empty();
        if let Some(oldest) = self.waiting.front() {
            page.count.set(oldest.count);
            page.kind = oldest.kind as u8;
            page.further = u8::try_from(self.waiting.len() - 1).expect("at most 255 are kept");
            page.nsid.set(oldest.nsid);
        }
        page
    }

    /// Forgets the oldest notification, which the host has read.
    pub(crate) fn read(&mut self) {
        self.waiting.pop_front();
        self.noticed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_notifications_are_lost_and_their_numbers_are_missing() {
        use ReservationNoticeKind::{RegistrationPreempted, ReservationReleased};
        let mut notices = ReservationNotices::default();
        assert_eq!(notices.page(), ReservationNoticePage::empty());
        notices.set_mask(&[2], 1 << 2).unwrap();
        assert_eq!(notices.set_mask(&[2], 1), Err(Status::INVALID_FIELD));
        for nsid in 1..=300 {
            notices.add(nsid, ReservationReleased);
        }
        let first = notices.page();
        assert_eq!((first.count.get(), first.nsid.get(), first.kind, first.further), (45, 46, 2, 254));
        for left in (0..255).rev() {
            notices.read();
            assert_eq!(notices.is_due(), left > 0);
        }
        notices.add(2, RegistrationPreempted);
        assert_eq!((notices.page().count.get(), notices.page().kind, notices.page().further), (300, 1, 0));
    }
}
