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
