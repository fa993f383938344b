//! Converts panics to errors, so that a broken invariant ends a command and not the process.
//!
//! The entry points of the engine and of its interfaces run their work through [`caught`]. The caller decides how to
//! treat the store: its locks were released when the stack was unwound, but its state in memory may be half changed.
//! The panic hook has already printed message and place.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`; a panic in it, or in a thread that it joins, is returned as an error.
///
/// # Errors
/// The panic's message.
pub fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    // Unwind safety is the caller's duty: state that `f` changed is not used again, or is consistent at every possible
    // panic.
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| message(payload.as_ref()))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_both_kinds_and_of_joined_threads_are_kept() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| panic!("plain")), Err::<(), _>("plain".to_owned()));
        let number = 3;
        assert_eq!(caught(|| panic!("number {number}")), Err::<(), _>("number 3".to_owned()));
        assert_eq!(caught(|| std::panic::panic_any(5u8)), Err::<(), _>("a panic without a message".to_owned()));
        let joined = caught(|| std::thread::scope(|s| drop(s.spawn(|| panic!("elsewhere")))));
        assert!(joined.is_err());
    }
}
