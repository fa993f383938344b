//! Accounts of a host's executions, for the vendor's log page C1h: the outputs of those that ended well, and reasons of
//! those that failed.
//!
//! A host may give an execution a tag (dword 14 of Execute Program), and finds its account by that tag, whatever ended
//! meanwhile on other queues; loads that failed have the tag [`nandarray_nvme_spec::LOAD_TAG`]. The last accounts
//! are kept, each of limited length.

use std::collections::VecDeque;

use nandarray_nvme_spec::{ExecutionAccount, Status};
use parking_lot::Mutex;

/// Maximum number of accounts that are kept: as many as a host has queues.
const ACCOUNTS_MAX: usize = 64;
/// Maximum length of an account in bytes.
const ACCOUNT_BYTES_MAX: usize = 4096;

/// The accounts of a host's last executions, the newest first, each with its tag.
#[derive(Debug, Default)]
pub(crate) struct ExecutionAccounts {
    kept: Mutex<VecDeque<(u16, String)>>,
}

impl ExecutionAccounts {
    /// Adds the account of an execution that has ended; an earlier one of the same tag is forgotten.
    pub(crate) fn add(&self, tag: u16, account: &ExecutionAccount) {
        let mut account = account.encode();
        let end = (0..=ACCOUNT_BYTES_MAX).rev().find(|&at| account.is_char_boundary(at));
        account.truncate(end.unwrap_or(0));
        let mut kept = self.kept.lock();
        kept.retain(|(known, _)| tag == 0 || *known != tag);
        kept.push_front((tag, account));
        kept.truncate(ACCOUNTS_MAX);
        assert!(kept.front().is_some_and(|(last, text)| *last == tag && text.len() <= ACCOUNT_BYTES_MAX));
    }

    /// Returns the account of the execution with this tag; with tag 0, of that which ended last, and nothing if none
    /// has.
    ///
    /// # Errors
    /// Invalid field: no account with this tag is kept.
    pub(crate) fn get(&self, tag: u16) -> Result<String, Status> {
        let kept = self.kept.lock();
        match kept.iter().find(|(known, _)| tag == 0 || *known == tag) {
            Some((_, account)) => Ok(account.clone()),
            None if tag == 0 => Ok(String::new()),
            None => Err(Status::INVALID_FIELD),
        }
    }
}

/// Why an execution or a load of a program fails: the status, and the reason in words.
#[derive(Debug)]
pub(crate) struct ExecutionFailure {
    pub(crate) status: Status,
    pub(crate) why: String,
}

impl ExecutionFailure {
    pub(crate) fn new(status: Status, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}

impl From<Status> for ExecutionFailure {
    fn from(status: Status) -> Self {
        Self::new(status, status.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_tag_until_64_later_ones() {
        let accounts = ExecutionAccounts::default();
        assert_eq!(accounts.get(0), Ok(String::new()));
        assert_eq!(accounts.get(9), Err(Status::INVALID_FIELD));
        let failed = |why: String| ExecutionAccount::Failed { why };
        accounts.add(9, &failed("é".repeat(ACCOUNT_BYTES_MAX)));
        assert_eq!(accounts.get(9).map(|text| text.len()), Ok(ACCOUNT_BYTES_MAX));
        accounts.add(9, &failed("again".to_owned()));
        for later in 0..ACCOUNTS_MAX {
            assert_eq!(accounts.get(9), Ok("again".to_owned()), "{later} later ones");
            accounts.add(0, &failed(later.to_string()));
            assert_eq!(accounts.get(0), Ok(later.to_string()));
        }
        assert_eq!(accounts.get(9), Err(Status::INVALID_FIELD));
    }
}
