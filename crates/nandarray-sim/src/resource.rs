//! Resources that serve one operation at a time: k servers, booked first come, first served.
//!
//! A booking is final when it is made: it takes the server that is free first, for the given duration. Book when the
//! work arrives, not ahead of it; otherwise work that arrives earlier but books later would wait for no reason. A
//! processor core, a firmware stage, a DRAM port or a link is a resource; a part that chooses among waiting operations
//! (a flash channel) is not.

use crate::spans::BusySpan;
use crate::time::Ps;

/// A booking: one server for one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booked {
    /// Begin of the service.
    pub start: Ps,
    /// End of the service.
    pub end: Ps,
    /// The booked server's number.
    pub server: u32,
}

/// Identical servers, numbered from 0; each has a track `T`, its row on a timeline.
#[derive(Clone, Debug)]
pub struct Resource<T> {
    track: fn(u32) -> T,
    free_at: Vec<Ps>,
    busy: Vec<Ps>,
    served: u64,
    waited: Ps,
}

impl<T> Resource<T> {
    /// Creates a resource of `servers` free servers; `track` maps a server's number to its track.
    ///
    /// # Panics
    /// If `servers` is 0.
    pub fn new(servers: u32, track: fn(u32) -> T) -> Self {
        assert!(servers > 0, "a resource of 0 servers");
        let servers = servers as usize;
        Self { track, free_at: vec![Ps::ZERO; servers], busy: vec![Ps::ZERO; servers], served: 0, waited: Ps::ZERO }
    }

    /// Returns the number of servers.
    pub fn servers(&self) -> u32 {
        self.free_at.len() as u32
    }

    /// Books a service of duration `lasts` on a free server, or else on the server that becomes free first; of several,
    /// on the one with the lowest number. The service begins at `now` or when the server becomes free.
    pub fn book(&mut self, now: Ps, lasts: Ps) -> Booked {
        let mut server = 0;
        for other in 1..self.free_at.len() {
            if self.free_at[server] <= now {
                break;
            }
            if self.free_at[other] < self.free_at[server] {
                server = other;
            }
        }
        self.book_on(server as u32, now, lasts)
    }

    /// Books a service of duration `lasts` on the given server; it begins at `now` or when the server becomes free.
    ///
    /// # Panics
    /// If there is no server of this number.
    pub fn book_on(&mut self, server: u32, now: Ps, lasts: Ps) -> Booked {
        let at = server as usize;
        let start = now.max(self.free_at[at]);
        let end = start + lasts;
        self.free_at[at] = end;
        self.busy[at] += lasts;
        self.served += 1;
        self.waited += start - now;
        Booked { start, end, server }
    }

    /// Books a service on a server of pipelined hardware, which begins every service at once, even while earlier ones
    /// are in progress. The server's busy time is the sum of all services and may exceed the elapsed time.
    pub fn pipelined(&mut self, server: u32, now: Ps, lasts: Ps) -> Booked {
        let end = now + lasts;
        let free = &mut self.free_at[server as usize];
        *free = end.max(*free);
        self.busy[server as usize] += lasts;
        self.served += 1;
        Booked { start: now, end, server }
    }

    /// Returns the time at which the last booking of a server ends.
    pub fn free_at(&self, server: u32) -> Ps {
        self.free_at[server as usize]
    }

    /// Returns the booked time of each server, by number; bookings that lie in the future are included.
    pub fn busy(&self) -> &[Ps] {
        &self.busy
    }

    /// Returns the busy time of each server until `now`, without the time that is booked after `now`. The result is
    /// exact if no booking was made later than `now`, since the bookings after it then follow each other without a gap;
    /// it is not exact for pipelined hardware.
    pub fn busy_until(&self, now: Ps) -> impl Iterator<Item = Ps> + '_ {
        self.free_at.iter().zip(&self.busy).map(move |(&free, &busy)| busy.since(free.since(now)))
    }

    /// Returns the number of bookings made so far.
    pub fn served(&self) -> u64 {
        self.served
    }

    /// Returns the time that all bookings together waited for a server.
    pub fn waited(&self) -> Ps {
        self.waited
    }

    /// Returns the span of a booking, for a timeline; `what`, `cause` and `detail` become the span's fields.
    pub fn span<C>(&self, booked: Booked, what: &'static str, cause: C, detail: u64) -> BusySpan<T, C> {
        BusySpan { track: (self.track)(booked.server), start: booked.start, end: booked.end, what, cause, detail }
    }
}

/// A port that moves bytes, such as a DRAM's. It moves one transfer at a time; each is followed by an access latency,
/// during which the next transfer can already be moved.
#[derive(Clone, Debug)]
pub struct TransferPort<T> {
    resource: Resource<T>,
    bytes_per_s: u64,
    t_access: Ps,
    bytes: u64,
    pj_per_byte: f64,
    /// Time at which the last line (see [`TransferPort::line`]) has been moved.
    lines_free_at: Ps,
    /// Total time of cache lines that were moved ahead of booked transfers.
    ahead: Ps,
}

impl<T> TransferPort<T> {
    /// Creates a port without bookings. At a rate of 0 bytes/s transfers take no time; their bytes and energy still
    /// count.
    pub fn new(track: fn(u32) -> T, bytes_per_s: u64, t_access: Ps, pj_per_byte: f64) -> Self {
        Self {
            resource: Resource::new(1, track),
            bytes_per_s,
            t_access,
            bytes: 0,
            pj_per_byte,
            lines_free_at: Ps::ZERO,
            ahead: Ps::ZERO,
        }
    }

    /// Books a transfer of `bytes`; the booking ends when the last byte has arrived.
    pub fn transfer(&mut self, now: Ps, bytes: u64) -> Booked {
        self.bytes += bytes;
        if self.bytes_per_s == 0 {
            return Booked { start: now, end: now, server: 0 };
        }
        let booked = self.resource.book(now, Ps::of_bytes(bytes, self.bytes_per_s));
        Booked { end: booked.end + self.t_access, ..booked }
    }

    /// Books a cache line, which goes ahead of transfers that are already booked: it waits for earlier lines and for
    /// the end of the burst, `burst_bytes` of a transfer, that is being moved. The waiting transfers are delayed by the
    /// line's time, which is added to [`TransferPort::ahead`].
    ///
    /// # Panics
    /// If `burst_bytes` is 0.
    pub fn line(&mut self, now: Ps, bytes: u64, burst_bytes: u64) -> Booked {
        assert!(burst_bytes > 0, "a transfer is cut into bursts of 0 bytes");
        self.bytes += bytes;
        if self.bytes_per_s == 0 {
            return Booked { start: now, end: now, server: 0 };
        }
        let lasts = Ps::of_bytes(bytes, self.bytes_per_s);
        let busy_until = self.resource.free_at(0);
        let start = if self.lines_free_at > now {
            self.lines_free_at
        } else if busy_until > now {
            let burst = Ps::of_bytes(burst_bytes, self.bytes_per_s);
            now + Ps((busy_until - now).0 % burst.0.max(1))
        } else {
            now
        };
        if busy_until > now {
            self.ahead += lasts;
        }
        // The line occupies the port, so all bookings end later by the line's time.
        self.resource.book(now, lasts);
        self.lines_free_at = start + lasts;
        Booked { start, end: start + lasts + self.t_access, server: 0 }
    }

    /// Returns the total time of lines that have gone ahead of booked transfers so far. A transfer is delayed by the
    /// growth of this total since the transfer was booked.
    pub fn ahead(&self) -> Ps {
        self.ahead
    }

    /// Returns the number of bytes moved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the energy of the bytes moved, in picojoules.
    pub fn energy_pj(&self) -> f64 {
        self.bytes as f64 * self.pj_per_byte
    }

    /// Returns the port's bookings; their ends do not include the access latency.
    pub fn resource(&self) -> &Resource<T> {
        &self.resource
    }

    /// Returns the span of a transfer, for a timeline: the port's busy time, without the access latency.
    pub fn span<C>(&self, booked: Booked, what: &'static str, cause: C, detail: u64) -> BusySpan<T, C> {
        let latency = if self.bytes_per_s == 0 { Ps::ZERO } else { self.t_access };
        self.resource.span(Booked { end: booked.end - latency, ..booked }, what, cause, detail)
    }
}

/// Returns the energy, in picojoules, of a power of `microwatts` over the duration `lasts`.
pub fn energy_pj(microwatts: f64, lasts: Ps) -> f64 {
    microwatts * lasts.0 as f64 * 1e-6
}

#[cfg(test)]
mod tests;
