//! Tests of streams: wrapping, waiting, looking back.

use super::*;

#[test]
fn an_input_wraps_around_its_ring() {
    let ring: Vec<u8> = (0..7).collect();
    let mut input = InputStream::resume(&ring, 5, 12, false);
    assert_eq!(input.load::<4>(), Some([5, 6, 0, 1]));
    assert_eq!(input.load::<4>(), None);
    assert_eq!(input.load::<2>(), Some([2, 3]));
    assert_eq!((input.head(), input.available()), (11, 1));
    // Bytes that were read may be overwritten, unless the caller promises otherwise.
    assert_eq!(input.peek::<2>(-2), Look::Never);
    let input = input.keeping(3);
    assert_eq!(input.peek::<2>(-2), Look::There([2, 3]));
    assert_eq!(input.peek::<2>(-4), Look::Never);
    assert_eq!(input.peek::<1>(0), Look::There([4]));
    assert_eq!(input.peek::<2>(0), Look::Wait);
    assert_eq!(input.peek::<2>(3), Look::Never, "it would overwrite what is kept");
}

#[test]
fn looking_at_an_input_tells_nothing_of_when_its_bytes_arrive() {
    let bytes: Vec<u8> = (0..200).map(|i| i as u8).collect();
    let whole = InputStream::whole(&bytes);
    for arrived in 0..=200 {
        for end in [None, Some(200)].into_iter().filter(|end| arrived < 200 || end.is_some()) {
            let input = InputStream::window(&bytes[..arrived], 0).ending(end);
            let (wanted, told) = ([0, 1, 7, 150, 200, 300, u64::MAX], |l: Look<u64>| l != Look::Wait);
            for bytes in wanted {
                let (now, then) = (input.wait(bytes), whole.wait(bytes));
                assert!(!told(now) || now == then, "{arrived} of {end:?}, {bytes}: {now:?}");
            }
            for at in [0, 3, 196, 199, 200, 70_000, -1] {
                let (now, then) = (input.peek::<4>(at), whole.peek::<4>(at));
                assert!(now == Look::Wait || now == then, "{arrived} of {end:?}, at {at}: {now:?}");
                let (now, then) = (input.before_end::<4>(at as u64), whole.before_end::<4>(at as u64));
                assert!(now == Look::Wait || now == then, "{arrived} of {end:?}, {at} back: {now:?}");
            }
        }
    }
    assert_eq!((whole.wait(u64::MAX), whole.before_end::<4>(4)), (Look::There(200), Look::There([196, 197, 198, 199])));
    let long = vec![7; 3 * REACH as usize];
    let input = InputStream::window(&long, 2 * REACH);
    assert_eq!(input.wait(u64::MAX), Look::There(REACH));
    assert_eq!(
        (input.peek::<1>(-(REACH as i64)), input.peek::<1>(-(REACH as i64) - 1)),
        (Look::There([7]), Look::Never)
    );
    assert_eq!((input.peek::<1>(REACH as i64 - 1), input.peek::<1>(REACH as i64)), (Look::There([7]), Look::Never));
}

#[test]
fn an_output_that_is_full_is_no_output_that_waits() {
    let mut ring = [0; 4];
    let mut output = OutputStream::new(&mut ring, Room::Width).limited(6);
    assert!(output.store([1, 2, 3, 4]));
    assert!(!output.store([5]) && !output.is_full(1));
    output.drained(4);
    assert!(output.store([5, 6]) && !output.store([7]) && output.is_full(1));
    assert_eq!((output.waiting(), output.head(), output.limit()), (2, 6, 6));
}

#[test]
fn an_output_wants_room_for_eight_bytes_or_for_its_own() {
    let mut ring = [0; 16];
    let mut output = OutputStream::new(&mut ring, Room::Eight);
    for i in 0..9 {
        assert!(output.store([i]));
    }
    assert!(!output.store([9]));
    output.drained(1);
    assert!(output.store([9]));
    let mut ring = [0; 16];
    let mut output = OutputStream::new(&mut ring, Room::Width);
    for i in 0..4u32 {
        assert!(output.store(i.to_le_bytes()));
    }
    assert!(!output.store([9]));
    assert_eq!(output.waiting(), 16);
}

#[test]
fn an_output_is_drained_where_it_wraps() {
    let mut ring = [0; 8];
    let mut output = OutputStream::resume(&mut ring, 6, 6, Room::Width);
    assert!(output.store([1, 2, 3, 4]));
    assert_eq!(output.waiting_at(), [6..8, 0..2]);
    assert_eq!(output.behind_head::<4>(4), Look::There([1, 2, 3, 4]));
    output.drained(3);
    assert_eq!(output.waiting_at(), [1..2, 0..0]);
    assert_eq!((output.head(), output.tail()), (10, 17));
}

#[test]
fn an_empty_array_is_an_empty_closed_stream() {
    let mut input = InputStream::whole(&[]);
    assert!(input.closed());
    assert_eq!(input.load::<1>(), None);
}

/// An input as the specification words it: all its bytes are known to the test, and positions are counted in them.
struct PlainInput<'a> {
    all: &'a [u8],
    head: u64,
    tail: u64,
    ends: bool,
    kept: u64,
    ring: u64,
}

impl PlainInput<'_> {
    /// Returns the `bytes` bytes at a position, or why they cannot be read now.
    fn look(&self, position: i128, bytes: u64) -> Look<Vec<u8>> {
        let (head, end) = (i128::from(self.head), position + i128::from(bytes));
        let held = position >= 0 && head - position <= i128::from(self.kept.min(REACH));
        if !held || end > head + i128::from(REACH.min(self.ring - self.kept)) {
            return Look::Never;
        }
        if self.ends && end > self.all.len() as i128 {
            return Look::Never;
        }
        if end > i128::from(self.tail) {
            return Look::Wait;
        }
        Look::There(self.all[position as usize..end as usize].to_vec())
    }

    fn look_back(&self, back: u64, bytes: u64) -> Look<Vec<u8>> {
        if self.ends { self.look(self.all.len() as i128 - i128::from(back), bytes) } else { Look::Wait }
    }

    fn wait(&self, bytes: u64) -> Look<u64> {
        let left = if self.ends { self.all.len() as u64 - self.head } else { u64::MAX };
        let wanted = bytes.min(REACH).min(self.ring - self.kept).min(left);
        if self.tail - self.head >= wanted { Look::There(wanted) } else { Look::Wait }
    }

    /// Returns the number of bytes for which the ring has room, without those that must be kept.
    fn room(&self) -> u64 {
        (self.ring - self.kept - (self.tail - self.head)).min(self.all.len() as u64 - self.tail)
    }

    /// Writes `count` further bytes to the ring.
    fn fill(&mut self, ring: &mut [u8], count: u64) {
        for position in self.tail..self.tail + count {
            ring[(position % self.ring) as usize] = self.all[position as usize];
        }
        self.tail += count;
    }

    fn stream<'s>(&self, ring: &'s [u8]) -> InputStream<'s> {
        let end = self.ends.then_some(self.all.len() as u64);
        InputStream::resume(ring, self.head, self.tail, false).keeping(self.kept).ending(end)
    }
}

fn plainly<const N: usize>(look: Look<[u8; N]>) -> Look<Vec<u8>> {
    match look {
        Look::There(bytes) => Look::There(bytes.to_vec()),
        Look::Wait => Look::Wait,
        Look::Never => Look::Never,
    }
}

/// Compares one read of `N` bytes, and checks that a read that waits is served once the ring is full.
fn compare_reads<const N: usize>(plain: &mut PlainInput<'_>, ring: &mut [u8], at: i64, place: &str) {
    let back = (plain.all.len() as u64).wrapping_sub(plain.head.wrapping_add_signed(at));
    let input = plain.stream(ring);
    let (ahead, before) = (plainly(input.peek::<N>(at)), plainly(input.before_end::<N>(back)));
    assert_eq!(ahead, plain.look(i128::from(plain.head) + i128::from(at), N as u64), "{place}, {N} bytes at {at}");
    assert_eq!(before, plain.look_back(back, N as u64), "{place}, {N} bytes, {back} before the end");
    for wanted in [0, N as u64, at.unsigned_abs(), u64::MAX] {
        assert_eq!(input.wait(wanted), plain.wait(wanted), "{place}, a wait for {wanted}");
    }
    assert_eq!(input.falls_short(N as u64), plain.ends && plain.all.len() as u64 - plain.head < N as u64, "{place}");
    if ahead == Look::Wait {
        let mut full = PlainInput { ends: true, ..*plain };
        let mut copy = ring.to_vec();
        full.fill(&mut copy, full.room());
        let later = full.stream(&copy).peek::<N>(at);
        assert_ne!(later, Look::Wait, "{place}: {N} bytes at {at} would be waited for in a full ring, for ever");
    }
    let mut input = plain.stream(ring);
    let (loaded, there) = (input.load::<N>(), plain.tail - plain.head >= N as u64);
    assert_eq!(loaded.map(|bytes| bytes.to_vec()), there.then(|| plain.all[plain.head as usize..][..N].to_vec()));
    plain.head += if there { N as u64 } else { 0 };
    assert_eq!((input.head(), input.available()), (plain.head, plain.tail - plain.head), "{place}");
}

#[test]
fn an_input_shows_the_bytes_at_their_positions_whatever_its_ring() {
    for seed in 0..600 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let all: Vec<u8> = (0..chance.usize(1..300)).map(|_| chance.u8(..)).collect();
        let ring_bytes = [8, 16, 32, chance.usize(2..60)][chance.usize(..4)];
        let kept = chance.u64(..ring_bytes as u64);
        let mut ring = vec![0xee; ring_bytes];
        let mut plain = PlainInput { all: &all, head: 0, tail: 0, ends: chance.bool(), kept, ring: ring_bytes as u64 };
        for step in 0..80 {
            let place = format!(
                "seed {seed}, step {step}, a ring of {ring_bytes}, {kept} kept, {}..{}",
                plain.head, plain.tail
            );
            let at = [chance.i64(-12..12), 0, -1, i64::MIN, i64::MAX, chance.i64(-70..70)][chance.usize(..6)];
            match chance.u8(..4) {
                0 => compare_reads::<1>(&mut plain, &mut ring, at, &place),
                1 => compare_reads::<2>(&mut plain, &mut ring, at, &place),
                2 => compare_reads::<4>(&mut plain, &mut ring, at, &place),
                _ => compare_reads::<8>(&mut plain, &mut ring, at, &place),
            }
            let together = plain.stream(&ring).together().to_vec();
            assert_eq!(together, plain.all[plain.head as usize..][..together.len()], "{place}");
            assert_eq!(together.is_empty(), plain.head == plain.tail, "{place}");
            let count = chance.u64(..=plain.room());
            plain.fill(&mut ring, count);
            plain.ends |= plain.tail == all.len() as u64;
        }
    }
}

#[test]
fn an_output_holds_what_was_stored_until_it_is_drained() {
    for seed in 0..600 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let length = [8, 16, chance.usize(1..50)][chance.usize(..3)] as u64;
        let room = if chance.bool() { Room::Eight } else { Room::Width };
        let limit = if chance.bool() { u64::MAX } else { chance.u64(..200) };
        let mut ring = vec![0; length as usize];
        let mut output = OutputStream::new(&mut ring, room).limited(limit);
        let (mut written, mut drained) = (Vec::<u8>::new(), 0u64);
        for step in 0..120 {
            let place = format!("seed {seed}, step {step}, a ring of {length}, limit {limit}, {room:?}");
            let bytes: [u8; 8] = std::array::from_fn(|_| chance.u8(..));
            let width = 1u64 << chance.u32(..4);
            let full = output.is_full(width);
            let stored = match width {
                1 => output.store([bytes[0]]),
                2 => output.store([bytes[0], bytes[1]]),
                4 => output.store([bytes[0], bytes[1], bytes[2], bytes[3]]),
                _ => output.store(bytes),
            };
            let needs = if room == Room::Eight { 8 } else { width };
            let head = written.len() as u64;
            assert_eq!(stored, head + needs <= limit.min(drained + length), "{place}: {width} bytes at {head}");
            assert_eq!(full, limit - head < needs, "{place}: {width} bytes at {head}");
            if stored {
                written.extend_from_slice(&bytes[..width as usize]);
            }
            let head = written.len() as u64;
            assert_eq!((output.head(), output.waiting()), (head, head - drained), "{place}");
            assert_eq!(output.tail(), limit.min(drained + length), "{place}");
            let waiting: Vec<u8> =
                output.waiting_at().into_iter().flat_map(|part| output.ring()[part].to_vec()).collect();
            assert_eq!(waiting, written[drained as usize..], "{place}");
            let back = chance.u64(..2 * length + 2);
            let look = match back {
                _ if back < 2 || back > head.min(length) => Look::Never,
                _ => Look::There([written[(head - back) as usize], written[(head - back) as usize + 1]]),
            };
            assert_eq!(output.behind_head::<2>(back), look, "{place}: {back} bytes back");
            let taken = if chance.bool() { chance.u64(..=head - drained) } else { 0 };
            output.drained(taken);
            drained += taken;
            let free = (limit.min(drained + length) - head) as usize;
            assert_eq!(output.room_together().len(), free.min((length - head % length) as usize), "{place}");
        }
    }
}

#[test]
fn what_a_caller_must_not_say_of_a_stream_is_a_panic_with_the_numbers() {
    let said = |f: &dyn Fn()| {
        let quiet = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("a panic");
        quiet.downcast_ref::<String>().cloned().or_else(|| quiet.downcast_ref::<&str>().map(|s| (*s).to_owned()))
    };
    let ring = [0; 8];
    let cases: [(&dyn Fn(), &str); 10] = [
        (&|| drop(InputStream::new(&[])), "a stream needs a ring"),
        (&|| drop(InputStream::resume(&ring, 3, 12, false)), "3..12 in a ring of 8 bytes"),
        (&|| drop(InputStream::resume(&ring, 3, 2, false)), "3..2 in a ring of 8 bytes"),
        (&|| drop(InputStream::window(&ring, 9)), "9 bytes were read of 8"),
        (&|| drop(InputStream::new(&ring).keeping(8)), "8 bytes behind the head of a ring of 8 bytes"),
        (&|| drop(InputStream::whole(&ring).ending(Some(7))), "8 bytes arrived of Some(7)"),
        (&|| InputStream::new(&ring).arrived(9), "9 bytes have no room in the ring"),
        (&|| InputStream::new(&ring).ending(Some(3)).arrived(4), "4 bytes behind the end of the stream"),
        (&|| InputStream::new(&ring).ending(Some(3)).close(), "0 bytes arrived of Some(3)"),
        (&|| InputStream::new(&ring).taken(1), "1 bytes have not arrived"),
    ];
    for (wrong, says) in cases {
        assert_eq!(said(wrong).as_deref(), Some(says));
    }
}
