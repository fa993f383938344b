//! Entries of hosts, as rules, secrets and lists of hosts have them: a qualified name, or the beginning of one with `*`
//! behind it, which stands for all names that begin so.
//!
//! A host belongs to the entry that is its name, or else to the longest beginning. The secret of this entry alone
//! proves the host's name: with the secret of a beginning a process can be any host that it stands for, but none with
//! an entry of its own. Not here: the use of an entry.

/// Returns what is wrong with an entry; `None` if nothing is.
pub(crate) fn fault(entry: &str) -> Option<&'static str> {
    match entry.find('*') {
        Some(at) if at + 1 < entry.len() => Some("has * before its end"),
        Some(at) if at <= "nqn.".len() => Some("stands for all hosts"),
        _ => None,
    }
}

/// Returns the entry that a host belongs to; `None` if there is none.
pub(crate) fn entry_of<'e>(entries: impl IntoIterator<Item = &'e str>, hostnqn: &str) -> Option<&'e str> {
    let begins = |entry: &&str| entry.strip_suffix('*').is_some_and(|first| hostnqn.starts_with(first));
    let found = entries.into_iter().filter(|entry| *entry == hostnqn || begins(entry));
    found.max_by_key(|entry| (*entry == hostnqn, entry.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_belongs_to_its_name_or_to_the_longest_beginning() {
        let entries = ["nqn.a:*", "nqn.a:lab-*", "nqn.a:lab-admin", "nqn.b"];
        for (host, entry) in [
            ("nqn.a:lab-admin", Some("nqn.a:lab-admin")),
            ("nqn.a:lab-admin2", Some("nqn.a:lab-*")),
            ("nqn.a:lab-", Some("nqn.a:lab-*")),
            ("nqn.a:lab", Some("nqn.a:*")),
            ("nqn.a:", Some("nqn.a:*")),
            ("nqn.a", None),
            ("nqn.b2", None),
        ] {
            assert_eq!(entry_of(entries, host), entry, "{host}");
            assert_eq!(entry_of(entries.into_iter().rev(), host), entry, "{host}");
        }
        assert!(entries.iter().all(|entry| fault(entry).is_none()));
        assert!(["nqn.*", "*", "nqn.a*b", "nqn.a:**"].iter().all(|entry| fault(entry).is_some()));
    }
}
