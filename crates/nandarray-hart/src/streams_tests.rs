//! Tests of streams: wrapping, waiting, looking back.

use super::*;

#[test]
fn an_input_wraps_around_its_ring() {
    let ring: Vec<u8> = (0..7).collect();
    let mut input = Input::resume(&ring, 5, 12, false);
    assert_eq!(input.load::<4>(), Some([5, 6, 0, 1]));
    assert_eq!(input.load::<4>(), None);
    assert_eq!(input.load::<2>(), Some([2, 3]));
    assert_eq!((input.head(), input.available()), (11, 1));
    assert_eq!(input.behind_tail::<2>(3), Some([2, 3]));
    assert_eq!(input.behind_tail::<2>(8), None);
    assert_eq!(input.behind_tail::<2>(1), None);
}

#[test]
fn an_output_wants_room_for_eight_bytes_or_for_its_own() {
    let mut ring = [0; 16];
    let mut output = Output::new(&mut ring, Room::Eight);
    for i in 0..9 {
        assert!(output.store([i]));
    }
    assert!(!output.store([9]));
    output.drained(1);
    assert!(output.store([9]));
    let mut ring = [0; 16];
    let mut output = Output::new(&mut ring, Room::Width);
    for i in 0..4u32 {
        assert!(output.store(i.to_le_bytes()));
    }
    assert!(!output.store([9]));
    assert_eq!(output.waiting(), 16);
}

#[test]
fn an_output_is_drained_where_it_wraps() {
    let mut ring = [0; 8];
    let mut output = Output::resume(&mut ring, 6, 6, Room::Width);
    assert!(output.store([1, 2, 3, 4]));
    assert_eq!(output.waiting_at(), [6..8, 0..2]);
    assert_eq!(output.behind_head::<4>(4), Some([1, 2, 3, 4]));
    output.drained(3);
    assert_eq!(output.waiting_at(), [1..2, 0..0]);
    assert_eq!((output.head(), output.tail()), (10, 17));
}

#[test]
fn an_empty_array_is_an_empty_closed_stream() {
    let mut input = Input::whole(&[]);
    assert!(input.closed());
    assert_eq!(input.load::<1>(), None);
}
