//! Synthetic requests: operations, sizes, offsets and rates from settings and one seed.
//!
//! Users write the settings (JSON from Python and the command line), and [`Generator`] is the source of requests.
//! Random offsets come from `skew`; a sequential stream walks through its own part of the working set again and again.

use serde::{Deserialize, Serialize};

use super::skew::{PlaceSampler, Skew};
use super::trace::AT_MAX;
use super::{IoRequest, RequestOp, RequestSource, WorkloadError};
use nandarray_sim::Ps;

/// A size of requests, with its frequency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Bytes of a request.
    pub bytes: u64,
    /// Weight of the size: its frequency in proportion to the other weights.
    #[serde(default = "one")]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

/// Pattern of the requests' offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Random offsets, distributed by the skew.
    #[default]
    Random,
    /// Each stream walks from the beginning of its part of the working set to the end, then starts again.
    Sequential,
}

/// Rule for the times at which requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrival {
    /// Closed loop: a fixed number of requests is always in flight.
    Closed {
        /// Number of requests in flight, over all streams together; from 1 to 65,536.
        depth: u32,
    },
    /// Open loop: requests at a constant rate.
    Constant {
        /// Requests per second.
        per_s: f64,
    },
    /// Open loop: requests at random times, independent of each other.
    Poisson {
        /// Requests per second.
        per_s: f64,
    },
}

/// Settings of a generator. The defaults are 4 KiB random reads over the whole device at queue depth 32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Synthetic {
    /// Fraction of requests that read; the remaining requests write, unless they trim.
    pub read_share: f64,
    /// Fraction of requests that trim.
    pub trim_share: f64,
    /// Number of writes before each flush; 0 for no flushes.
    pub flush_every: u64,
    /// Sizes of requests, chosen at random by their weights.
    pub sizes: Vec<Size>,
    /// Pattern of the offsets.
    pub pattern: Pattern,
    /// Skew of random offsets.
    pub skew: Skew,
    /// Rule for the times at which requests arrive.
    pub arrival: Arrival,
    /// Alignment of offsets in bytes; `None` for the request's own size.
    pub align_bytes: Option<u64>,
    /// Offset of the working set on the device in bytes.
    pub offset_bytes: u64,
    /// Size of the working set in bytes; `None` to extend it to the end of the device.
    pub working_set_bytes: Option<u64>,
    /// Number of streams: sequential walks, or random requests assigned to the streams in turn.
    pub streams: u32,
    /// Number of requests after which the workload ends; `None` for no such limit.
    pub requests: Option<u64>,
    /// Number of requested bytes after which the workload ends; `None` for no such limit.
    pub bytes: Option<u64>,
    /// Seconds of modelled time after which the workload ends; the first of the three limits counts.
    pub seconds: Option<f64>,
    /// Seed of all random choices of the generator.
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            read_share: 1.0,
            trim_share: 0.0,
            flush_every: 0,
            sizes: vec![Size { bytes: 4096, weight: 1.0 }],
            pattern: Pattern::Random,
            skew: Skew::Uniform,
            arrival: Arrival::Closed { depth: 32 },
            align_bytes: None,
            offset_bytes: 0,
            working_set_bytes: None,
            streams: 1,
            requests: None,
            bytes: None,
            seconds: None,
            seed: 1,
        }
    }
}

/// Bytes of a sector; offsets and sizes are multiples of a sector.
pub const SECTOR_BYTES: u64 = 512;

/// A size, prepared for random choice.
#[derive(Clone, Copy, Debug)]
struct SizeChoice {
    bytes: u64,
    align_bytes: u64,
    /// Upper end of the random numbers from 0 to 1 that select this size.
    until: f64,
    /// Number of offsets at which a request of this size may begin, `align_bytes` apart.
    places: u64,
}

/// The sequential walk of a stream.
#[derive(Clone, Copy, Debug)]
struct SequentialWalk {
    from: u64,
    bytes: u64,
    next: u64,
}

/// A source of synthetic requests.
#[derive(Clone, Debug)]
pub struct Generator {
    settings: Synthetic,
    sizes: Vec<SizeChoice>,
    /// The sampler of random places, and the distance between places in bytes; `None` for a uniform skew.
    skewed: Option<(PlaceSampler, u64)>,
    walks: Vec<SequentialWalk>,
    until: Option<Ps>,
    chance: fastrand::Rng,
    at: f64,
    issued: u64,
    issued_bytes: u64,
    writes: u64,
    flush_is_due: bool,
}

fn wrong<T>(text: String) -> Result<T, WorkloadError> {
    Err(WorkloadError::Parameter(text))
}

impl Generator {
    /// Makes a generator for a device of `device_bytes` bytes.
    ///
    /// # Errors
    /// If a setting is out of range or does not fit the device, or no setting ends the workload.
    pub fn new(settings: Synthetic, device_bytes: u64) -> Result<Self, WorkloadError> {
        let s = &settings;
        let (read, trim) = (s.read_share, s.trim_share);
        if !(0.0..=1.0).contains(&read) || !(0.0..=1.0).contains(&trim) || read + trim > 1.0 + 1e-9 {
            return wrong(format!(
                "shares of reads and trims must be from 0 to 1, also together, not {read} and {trim}"
            ));
        }
        if s.requests.is_none() && s.bytes.is_none() && s.seconds.is_none() {
            return wrong("a workload without an end: give requests, bytes or seconds".into());
        }
        if let Some(seconds) = s.seconds.filter(|t| !(*t > 0.0 && *t <= 1e7)) {
            return wrong(format!("seconds must be above 0 and at most 10,000,000, not {seconds}"));
        }
        if !(1..=65_536).contains(&s.streams) {
            return wrong(format!("streams must be from 1 to 65,536, not {}", s.streams));
        }
        match s.arrival {
            Arrival::Closed { depth } if !(1..=65_536).contains(&depth) => {
                return wrong(format!("a queue depth must be from 1 to 65,536, not {depth}"));
            }
            Arrival::Constant { per_s } | Arrival::Poisson { per_s } if !(per_s > 0.0 && per_s <= 1e10) => {
                return wrong(format!("requests a second must be above 0 and at most 10,000,000,000, not {per_s}"));
            }
            _ => {}
        }
        s.skew.check()?;
        if !s.offset_bytes.is_multiple_of(SECTOR_BYTES) {
            return wrong(format!("an offset must be a multiple of 512 B, not {} B", s.offset_bytes));
        }
        let room = device_bytes.saturating_sub(s.offset_bytes);
        let set = s.working_set_bytes.unwrap_or(room);
        if set == 0 || set > room {
            let offset = s.offset_bytes;
            return wrong(format!("a working set of {set} B from byte {offset} on a device of {device_bytes} B"));
        }
        let sizes = Self::ready(s, set)?;
        let grid = sizes.iter().map(|r| r.align_bytes).min().expect("at least one size");
        // Places of all sizes are drawn on the finest grid, so that the same bytes are hot for all sizes.
        let skewed = (s.skew != Skew::Uniform).then(|| (PlaceSampler::new((set / grid).max(1), s.skew), grid));
        let walks = match s.pattern {
            Pattern::Random => Vec::new(),
            Pattern::Sequential => Self::walks(s, set, &sizes)?,
        };
        Ok(Self {
            until: s.seconds.map(Ps::from_seconds),
            chance: fastrand::Rng::with_seed(s.seed),
            settings,
            sizes,
            skewed,
            walks,
            at: 0.0,
            issued: 0,
            issued_bytes: 0,
            writes: 0,
            flush_is_due: false,
        })
    }

    fn ready(s: &Synthetic, set: u64) -> Result<Vec<SizeChoice>, WorkloadError> {
        if s.sizes.is_empty() || s.sizes.len() > 1024 {
            return wrong(format!("sizes must be from 1 to 1,024 in number, not {}", s.sizes.len()));
        }
        let all: f64 = s.sizes.iter().map(|size| size.weight).sum();
        let mut until = 0.0;
        let mut sizes = Vec::with_capacity(s.sizes.len());
        for &Size { bytes, weight } in &s.sizes {
            let align_bytes = s.align_bytes.unwrap_or(bytes);
            if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) || bytes > 1 << 32 {
                return wrong(format!("a size must be a multiple of 512 B from 512 B to 4 GiB, not {bytes} B"));
            }
            if align_bytes == 0 || !align_bytes.is_multiple_of(SECTOR_BYTES) {
                return wrong(format!("an alignment must be a multiple of 512 B, not {align_bytes} B"));
            }
            if !(weight > 0.0 && weight <= 1e12) {
                return wrong(format!("a weight must be above 0 and at most 1e12, not {weight}"));
            }
            if bytes > set {
                return wrong(format!("a size of {bytes} B in a working set of {set} B"));
            }
            until += weight / all;
            sizes.push(SizeChoice { bytes, align_bytes, until, places: (set - bytes) / align_bytes + 1 });
        }
        // No random number may be without a size because of rounding.
        sizes.last_mut().expect("not empty").until = f64::INFINITY;
        Ok(sizes)
    }

    fn walks(s: &Synthetic, set: u64, sizes: &[SizeChoice]) -> Result<Vec<SequentialWalk>, WorkloadError> {
        let largest = sizes.iter().map(|r| r.bytes).max().expect("at least one size");
        let align = sizes.iter().map(|r| r.align_bytes).max().expect("at least one size");
        let bytes = set / u64::from(s.streams) / align * align;
        if bytes < largest {
            return wrong(format!(
                "{} streams in a working set of {set} B leave no room for {largest} B each",
                s.streams
            ));
        }
        let walk = |n| SequentialWalk { from: s.offset_bytes + n * bytes, bytes, next: 0 };
        Ok((0..u64::from(s.streams)).map(walk).collect())
    }

    fn size(&mut self) -> SizeChoice {
        let mut at = 0;
        if self.sizes.len() > 1 {
            let drawn = self.chance.f64();
            at = self.sizes.partition_point(|r| r.until <= drawn);
        }
        self.sizes[at]
    }

    fn op(&mut self) -> RequestOp {
        let (read, trim) = (self.settings.read_share, self.settings.trim_share);
        if read >= 1.0 {
            return RequestOp::Read;
        }
        if read + trim <= 0.0 {
            return RequestOp::Write;
        }
        let drawn = self.chance.f64();
        match drawn {
            _ if drawn < read => RequestOp::Read,
            _ if drawn < read + trim => RequestOp::Trim,
            _ => RequestOp::Write,
        }
    }

    fn offset(&mut self, stream: u32, size: &SizeChoice) -> u64 {
        if self.settings.pattern == Pattern::Sequential {
            let walk = &mut self.walks[stream as usize];
            let mut start = walk.next.next_multiple_of(size.align_bytes);
            if start + size.bytes > walk.bytes {
                start = 0;
            }
            walk.next = start + size.bytes;
            return walk.from + start;
        }
        let place = match &self.skewed {
            None => self.chance.u64(..size.places),
            Some((places, grid)) => (places.draw(&mut self.chance) * grid / size.align_bytes).min(size.places - 1),
        };
        self.settings.offset_bytes + place * size.align_bytes
    }

    /// Returns the arrival time of the next request; `None` in a closed loop.
    fn arrival(&mut self) -> Option<Ps> {
        let step = match self.settings.arrival {
            Arrival::Closed { .. } => return None,
            // Computed from the request's number, so that rounding errors do not add up.
            Arrival::Constant { per_s } => return Some(Ps((self.issued as f64 * (1e12 / per_s)).round() as u64)),
            Arrival::Poisson { per_s } => -libm::log1p(-self.chance.f64()) * (1e12 / per_s),
        };
        self.at += step;
        Some(Ps(self.at.round() as u64))
    }
}

impl RequestSource for Generator {
    fn next(&mut self, now: Ps) -> Result<Option<IoRequest>, WorkloadError> {
        let over = |limit: Option<u64>, issued| limit.is_some_and(|limit| issued >= limit);
        if over(self.settings.requests, self.issued) || over(self.settings.bytes, self.issued_bytes) {
            return Ok(None);
        }
        let at = self.arrival();
        if self.until.is_some_and(|until| at.unwrap_or(now) >= until) {
            return Ok(None);
        }
        let late = at.filter(|at| at.0 > AT_MAX);
        if let (Some(late), Arrival::Constant { per_s } | Arrival::Poisson { per_s }) = (late, self.settings.arrival) {
            let number = self.issued + 1;
            return wrong(format!("{per_s} requests a second: request {number} arrives at {late}, after 115 days"));
        }
        let stream = (self.issued % u64::from(self.settings.streams)) as u32;
        self.issued += 1;
        if std::mem::take(&mut self.flush_is_due) {
            return Ok(Some(IoRequest { at, op: RequestOp::Flush, stream, offset_bytes: 0, bytes: 0 }));
        }
        let op = self.op();
        let size = self.size();
        let offset_bytes = self.offset(stream, &size);
        self.issued_bytes += size.bytes;
        if op == RequestOp::Write && self.settings.flush_every > 0 {
            self.writes += 1;
            self.flush_is_due = self.writes.is_multiple_of(self.settings.flush_every);
        }
        Ok(Some(IoRequest { at, op, stream, offset_bytes, bytes: size.bytes }))
    }

    fn depth(&self) -> Option<u32> {
        match self.settings.arrival {
            Arrival::Closed { depth } => Some(depth),
            Arrival::Constant { .. } | Arrival::Poisson { .. } => None,
        }
    }

    fn progress(&self, now: Ps) -> Option<f64> {
        let share = |issued: u64, limit: Option<u64>| limit.map_or(0.0, |limit| issued as f64 / limit.max(1) as f64);
        let time = self.until.map_or(0.0, |until| now.0 as f64 / until.0.max(1) as f64);
        let most = share(self.issued, self.settings.requests).max(share(self.issued_bytes, self.settings.bytes));
        Some(most.max(time).min(1.0))
    }
}

#[cfg(test)]
#[path = "synthetic_tests.rs"]
mod tests;
