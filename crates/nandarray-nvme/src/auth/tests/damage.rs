//! Exchanges of which one byte changes on the way, and every order of messages: no side is taken for another.

use super::*;

/// Runs a whole exchange in which message number `which` changes on the way; returns whether the controller takes the
/// host for authentic, and whether the host takes the controller for it.
fn exchanged(mutual: bool, which: usize, change: &dyn Fn(&mut [u8])) -> (bool, bool) {
    let (mut host, mut controller) = sides(credentials(mutual), credentials(true));
    let passed = |number: usize, message: Vec<u8>| {
        let mut message = message;
        if number == which {
            change(&mut message);
        }
        message
    };
    send(&mut controller, &passed(0, host.negotiate()));
    let challenge = passed(1, fetch(&mut controller).unwrap());
    let Ok(reply) = host.reply(&challenge, random(9)) else { return (controller.is_authentic(), false) };
    send(&mut controller, &passed(2, reply));
    let success = passed(3, fetch(&mut controller).unwrap());
    let confirmed = host.confirm(&success);
    match &confirmed {
        Ok(Some(message)) => send(&mut controller, &passed(4, message.clone())),
        Ok(None) => {}
        Err(failure) => send(&mut controller, &host.failed(*failure)),
    }
    (controller.is_authentic(), confirmed.is_ok())
}

/// For each message, the bytes that mean nothing: any of their bits may change. The host's hash is SHA-256, as it is
/// the first of its offer.
fn reserved(mutual: bool, message: usize, at: usize, mask: u8) -> bool {
    match message {
        // One bit says whether a challenge, or a response, is there.
        2 | 3 if at == 8 => (mutual || message == 2) && mask & 1 == 0,
        // Reserved; padding of the descriptor; other hashes and groups of the offer.
        0 => matches!(at, 2 | 3 | 9) || (at >= 13 && at != 8 + 34),
        // The room behind a challenge of 32 bytes.
        1 => matches!(at, 2 | 3 | 7 | 10 | 11) || at >= 48,
        2 => matches!(at, 2 | 3 | 7 | 9) || (!mutual && at >= 12 && !(16..48).contains(&at)),
        // A host that asked for no response takes whatever comes with the success.
        3 if !mutual => !matches!(at, 0 | 1 | 4 | 5 | 6 | 8),
        3 => matches!(at, 2 | 3 | 7) || (9..16).contains(&at) || at >= 48,
        _ => !matches!(at, 0 | 1 | 4 | 5),
    }
}

#[test]
fn one_byte_that_changes_makes_no_host_and_no_controller_authentic() {
    for mutual in [false, true] {
        assert_eq!(exchanged(mutual, usize::MAX, &|_| {}), (true, true));
        for which in 0..if mutual { 5 } else { 4 } {
            // Longest of the messages that a test looks at: an offer, a challenge, a reply, a success.
            for at in 0..[72, 48, 80, 48, 16][which] {
                for mask in [0x01u8, 0x80, 0xff] {
                    let change = |message: &mut [u8]| message[at] ^= mask;
                    let (host, controller) = exchanged(mutual, which, &change);
                    let context = format!("byte {at} of message {which}, mask {mask:#x}, mutual {mutual}");
                    if reserved(mutual, which, at, mask) {
                        assert_eq!((host, controller), (true, true), "{context}");
                    } else if matches!(which, 1 | 2) {
                        assert!(!(host && controller), "{context}");
                    } else if mutual && which == 3 {
                        assert!(!host && !controller, "{context}");
                    } else if mutual && which == 4 {
                        assert!(!host, "{context}");
                    }
                }
            }
        }
    }
}

/// The next step of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Negotiate,
    Reply,
    Confirm,
    GiveUp,
    Fetch,
}

const STEPS: [Step; 5] = [Step::Negotiate, Step::Reply, Step::Confirm, Step::GiveUp, Step::Fetch];

/// Whether a host is authentic after these steps: an offer, its challenge, a reply, and its success, in this order and
/// nothing between them but attempts to fetch what is not there, and nothing out of order before.
fn is_right(steps: &[Step]) -> bool {
    const ORDER: [Step; 4] = [Step::Negotiate, Step::Fetch, Step::Reply, Step::Fetch];
    let (mut at, mut authentic) = (0, false);
    for step in steps {
        match (ORDER[at], *step) {
            (wanted, step) if wanted == step => {
                at = (at + 1) % ORDER.len();
                authentic |= at == 0;
            }
            // There is nothing to fetch, which ends nothing.
            (Step::Negotiate | Step::Reply, Step::Fetch) => {}
            _ => return false,
        }
    }
    authentic
}

#[test]
fn of_all_orders_of_messages_one_makes_a_host_authentic() {
    let (mut all, mut right) = (vec![vec![]], 0);
    for _ in 0..5 {
        all = all.iter().flat_map(|steps: &Vec<Step>| STEPS.map(|step| [&steps[..], &[step]].concat())).collect();
        for steps in &all {
            let (mut host, mut controller) = sides(credentials(false), credentials(false));
            let mut fetched = vec![0; 64];
            for step in steps {
                match step {
                    Step::Negotiate => send(&mut controller, &host.negotiate()),
                    // A host that has no challenge makes up a reply.
                    Step::Reply => {
                        let made_up =
                            AuthMessage::Reply { t_id: 0x1234, seqnum: 0, response: vec![7; 32], challenge: None };
                        let reply = host.reply(&fetched, random(9)).unwrap_or_else(|_| made_up.encode());
                        send(&mut controller, &reply);
                    }
                    Step::Confirm => send(&mut controller, &AuthMessage::Success2 { t_id: 0x1234 }.encode()),
                    Step::GiveUp => send(&mut controller, &host.failed(AuthFailure::Order)),
                    Step::Fetch => fetched = fetch(&mut controller).unwrap_or(fetched),
                }
            }
            assert_eq!(controller.is_authentic(), is_right(steps), "{steps:?}");
            right += u32::from(is_right(steps));
        }
    }
    assert_eq!(right, 5, "in four steps, and with one more before, between or behind them");
}
