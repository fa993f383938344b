//! Events of a server for its operator's log: hosts that come and go, refused logins, runs, slow commands.
//!
//! Threads of the server add events, and never wait for a reader: a limited number is kept, and of each kind only a
//! limited number a second, whatever hosts do; the others are counted, and reported by [`EventKind::Suppressed`].
//! Before the first read nothing is kept. Not here: levels, text and JSON (`python/nandarray/serving/log.py`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

/// Maximum number of events that are kept for the reader.
const KEPT_MAX: usize = 512;
/// Number of events of one kind that may come at once.
const BURST: u32 = 64;
/// Time after which one more event of the kind may come.
const REFILL: Duration = Duration::from_secs(1);
/// Least time between two events that tell how many others were suppressed.
const TELL: Duration = Duration::from_secs(10);
/// Maximum length of a text in an event, in bytes.
const TEXT_BYTES_MAX: usize = 512;

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A host has connected, and has proved its identity, where it has to.
    Connect,
    /// The association of a host has ended.
    Disconnect,
    /// A login was refused: an unknown host, or one that failed to prove its identity.
    LoginRefused,
    /// A run of programs has begun.
    RunBegin,
    /// A run of programs has ended well.
    RunEnd,
    /// A run of programs has failed.
    RunFailed,
    /// A run of programs was stopped by the server's operator, by its host, or at the time that it may take.
    RunKilled,
    /// A command other than a run took long.
    CommandSlow,
    /// Events of some kind were too many, and were left out.
    Suppressed,
}

impl EventKind {
    /// All kinds, in order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Connect,
        Self::Disconnect,
        Self::LoginRefused,
        Self::RunBegin,
        Self::RunEnd,
        Self::RunFailed,
        Self::RunKilled,
        Self::CommandSlow,
        Self::Suppressed,
    ];

    /// Returns the word of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Disconnect => "disconnect",
            Self::LoginRefused => "login_refused",
            Self::RunBegin => "run_begin",
            Self::RunEnd => "run_end",
            Self::RunFailed => "run_failed",
            Self::RunKilled => "run_killed",
            Self::CommandSlow => "command_slow",
            Self::Suppressed => "suppressed",
        }
    }
}

/// A value in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventValue {
    /// A number, in the unit that its name has.
    Number(u64),
    /// A text, which may come from a host.
    Text(String),
}

impl From<u64> for EventValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for EventValue {
    fn from(text: &str) -> Self {
        let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        Self::Text(text[..end.unwrap_or(0)].to_owned())
    }
}

/// One event.
#[derive(Clone, Debug)]
pub struct ServerEvent {
    /// The kind.
    pub kind: EventKind,
    /// Time of the event.
    pub at: SystemTime,
    /// Names and values.
    pub fields: Vec<(&'static str, EventValue)>,
}

/// The limit on events of one kind.
#[derive(Clone, Copy, Debug)]
struct EventRate {
    left: u32,
    refilled: Instant,
    suppressed: u64,
    told: Instant,
}

impl EventRate {
    fn new(now: Instant) -> Self {
        Self { left: BURST, refilled: now, suppressed: 0, told: now }
    }

    /// Takes the right to add one event; counts the event as suppressed if there is none.
    fn take(&mut self, now: Instant) -> bool {
        let periods = now.saturating_duration_since(self.refilled).as_secs() / REFILL.as_secs();
        if periods > 0 {
            self.left = self.left.saturating_add(u32::try_from(periods).unwrap_or(u32::MAX)).min(BURST);
            self.refilled = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        self.suppressed += u64::from(!may);
        may
    }
}

#[derive(Debug)]
struct EventState {
    kept: VecDeque<ServerEvent>,
    rates: [EventRate; EventKind::ALL.len()],
}

/// The events of a server that were not read.
#[derive(Debug)]
pub(crate) struct EventLog {
    is_read: AtomicBool,
    state: Mutex<EventState>,
    added: Condvar,
}

#[expect(clippy::disallowed_methods, reason = "an event has a time, and limits of events are limits in time")]
fn now() -> (Instant, SystemTime) {
    (Instant::now(), SystemTime::now())
}

impl Default for EventLog {
    fn default() -> Self {
        let rates = [EventRate::new(now().0); EventKind::ALL.len()];
        let state = EventState { kept: VecDeque::new(), rates };
        Self { is_read: AtomicBool::new(false), state: Mutex::new(state), added: Condvar::new() }
    }
}

impl EventLog {
    /// Adds an event, whose fields `fields` makes if it is kept.
    pub(crate) fn add(&self, kind: EventKind, fields: impl FnOnce() -> Vec<(&'static str, EventValue)>) {
        if self.is_read.load(Ordering::Relaxed) {
            let (instant, at) = now();
            self.add_at(instant, at, kind, fields);
        }
    }

    fn add_at(
        &self,
        now: Instant,
        at: SystemTime,
        kind: EventKind,
        fields: impl FnOnce() -> Vec<(&'static str, EventValue)>,
    ) {
        let mut state = self.state.lock();
        let is_full = state.kept.len() >= KEPT_MAX;
        let rate = &mut state.rates[kind as usize];
        if is_full {
            rate.suppressed += 1;
        } else if rate.take(now) {
            state.kept.push_back(ServerEvent { kind, at, fields: fields() });
            self.added.notify_one();
        }
    }

    /// Returns the events that were not read, in order; waits at most `time` for the first one. From the first call on
    /// events are kept.
    pub(crate) fn read(&self, time: Duration) -> Vec<ServerEvent> {
        self.is_read.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        if state.kept.is_empty() {
            self.added.wait_for(&mut state, time);
        }
        let mut found: Vec<ServerEvent> = state.kept.drain(..).collect();
        let (now, at) = now();
        found.extend(suppressed(&mut state.rates, now, at));
        found
    }
}

/// Returns the events that tell of suppressed ones, at most one of a kind in [`TELL`].
fn suppressed(rates: &mut [EventRate], now: Instant, at: SystemTime) -> Vec<ServerEvent> {
    let mut found = Vec::new();
    for (rate, kind) in rates.iter_mut().zip(EventKind::ALL) {
        if rate.suppressed > 0 && now.saturating_duration_since(rate.told) >= TELL {
            let fields = vec![("of", kind.name().into()), ("events", std::mem::take(&mut rate.suppressed).into())];
            rate.told = now;
            found.push(ServerEvent { kind: EventKind::Suppressed, at, fields });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_events_is_limited_and_counted() {
        let log = EventLog::default();
        let (start, at) = now();
        log.add(EventKind::Connect, || unreachable!("nobody reads"));
        assert!(log.read(Duration::ZERO).is_empty());
        for _ in 0..1000 {
            log.add_at(start, at, EventKind::LoginRefused, || vec![("host", "x".repeat(4096).as_str().into())]);
        }
        log.add_at(start, at, EventKind::Connect, Vec::new);
        let found = log.read(Duration::ZERO);
        assert_eq!(found.len(), BURST as usize + 1, "another kind has a limit of its own");
        assert_eq!(found[0].fields[0].1, EventValue::Text("x".repeat(TEXT_BYTES_MAX)));
        for second in 1..=100u32 {
            for _ in 0..10 {
                let now = start + Duration::from_secs(second.into());
                log.add_at(now, at, EventKind::LoginRefused, Vec::new);
            }
        }
        assert_eq!(log.read(Duration::ZERO).len(), 100, "one more each second");
        let told = suppressed(&mut log.state.lock().rates, start + Duration::from_secs(200), at);
        let wanted = vec![("of", "login_refused".into()), ("events", (1000 - u64::from(BURST) + 900).into())];
        assert_eq!(told.into_iter().map(|event| event.fields).collect::<Vec<_>>(), [wanted]);
    }

    #[test]
    fn events_that_nobody_reads_are_limited() {
        let log = EventLog::default();
        log.read(Duration::ZERO);
        for kind in EventKind::ALL {
            for second in 0..1000u32 {
                let (start, at) = now();
                log.add_at(start + Duration::from_secs(second.into()), at, kind, Vec::new);
            }
        }
        assert_eq!(log.state.lock().kept.len(), KEPT_MAX);
    }
}
