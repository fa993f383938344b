//! Promise: the writes of a transaction to several arrays become visible together, names and shapes included, or not at
//! all: to a process that opens the store after a kill or a loss of power at any moment, and when the transaction is
//! aborted or fails.
//!
//! Here the variables of a data set grow along their first dimension by parts that end anywhere in a building block, a
//! box of another array is overwritten, and a hidden array takes the name of an existing one.

mod common;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::*;
use nandarray::{
    Change, Compound, Device, Error, FaultMedia, Geometry, Mode, Options, Source, Target, TransactionId, command,
};

/// The growing arrays: name, number of columns, compression, and whether the array is encrypted.
const VARIABLES: [(&str, u64, Option<&str>, bool); 3] =
    [("a", 37, None, false), ("b", 5, Some("lz4+shuffle"), false), ("c", 1, None, true)];
const FIXED: [u64; 2] = [19, 23];

fn tiny(write_buffer_bytes: usize) -> Options {
    Options { write_buffer_bytes, ..options(Geometry::TINY, 5) }
}

fn create(device: &Device, name: &str, shape: &[u64], compression: Option<&'static str>, key: bool) {
    let (name, shape, block) = (name.to_owned(), shape.to_vec(), Some(vec![7, 16]));
    Op::Create { name, shape, item: 4, block, compression, key, fill: 0 }.run(device).unwrap();
}

fn make(device: &Device) {
    for (name, columns, compression, key) in VARIABLES {
        create(device, name, &[0, columns], compression, key);
    }
    create(device, "fixed", &FIXED, Some("zstd:1"), false);
    create(device, "named", &[1, 1], None, false);
    create(device, "hidden", &[1, 1], None, false);
}

fn begin(device: &Device, spaces: &[(&str, Vec<u64>)]) -> Result<TransactionId, Error> {
    let spaces: Vec<_> = spaces
        .iter()
        .map(|(name, shape)| Ok((open_space(device, name)?.id, shape.as_slice())))
        .collect::<Result<_, Error>>()?;
    device.execute(command::Begin { spaces: &spaces })
}

fn stage(
    device: &Device,
    id: TransactionId,
    name: &str,
    start: &[u64],
    count: &[u64],
    value: u32,
) -> Result<(), Error> {
    let bytes = value.to_le_bytes().repeat(count.iter().product::<u64>() as usize);
    let strides = strides(count, 4);
    let (step, space) = (vec![1; count.len()], open_space(device, name)?.id);
    let target = Target::Box { start, step: &step, count, strides: &strides, view: None };
    // SAFETY: the buffer has the target's elements.
    let source = unsafe { Source::from_raw(bytes.as_ptr()) };
    device.execute(command::StageWrite { transaction: id, space, target, source })
}

/// Begins a transaction that adds rows with this value to the variables, from row `from` on, in parts of three rows,
/// and writes the value to two boxes of `fixed`. Returns the transaction, which is not applied yet.
fn grow(device: &Device, from: u64, rows: u64, value: u32) -> Result<TransactionId, Error> {
    let mut spaces: Vec<_> = VARIABLES.iter().map(|(name, columns, ..)| (*name, vec![from + rows, *columns])).collect();
    spaces.push(("fixed", FIXED.to_vec()));
    let id = begin(device, &spaces)?;
    for first in (0..rows).step_by(3) {
        for (name, columns, ..) in VARIABLES {
            stage(device, id, name, &[from + first, 0], &[3.min(rows - first), columns], value)?;
        }
    }
    stage(device, id, "fixed", &[0, 0], &[13, FIXED[1]], value)?;
    stage(device, id, "fixed", &[5, 3], &[FIXED[0] - 5, FIXED[1] - 3], value)?;
    Ok(id)
}

fn apply(device: &Device, id: TransactionId, value: u32) -> Result<(), Error> {
    let attrs = value.to_string();
    let changes = [
        Change::Rename { from: "named", to: "then" },
        Change::Rename { from: "hidden", to: "named" },
        Change::Rename { from: "then", to: "hidden" },
        Change::SetAttrs { name: "named", attrs: &attrs },
    ];
    device.execute(command::Apply { transaction: id, changes: &changes })
}

/// Reads all arrays and returns the value of each row; panics unless all arrays are in the state of the same
/// transaction.
fn told(device: &Device, context: &dyn Fn() -> String) -> Vec<u32> {
    let mut found: Option<Vec<u32>> = None;
    for (name, columns, ..) in VARIABLES {
        let array = read_array(device, name).unwrap_or_else(|e| panic!("{name}: {e}; {}", context()));
        let rows: Vec<u32> = (array.data.chunks_exact(columns as usize * 4))
            .map(|row| {
                let first: [u8; 4] = row[..4].try_into().expect("four bytes");
                assert!(row.chunks_exact(4).all(|c| c == first), "a row of {name} is torn; {}", context());
                u32::from_le_bytes(first)
            })
            .collect();
        assert_eq!(found.get_or_insert_with(|| rows.clone()), &rows, "{name}; {}", context());
    }
    let rows = found.expect("there are variables");
    let last = rows.last().copied().unwrap_or(0).to_le_bytes();
    let fixed = read_array(device, "fixed").unwrap().data;
    for (i, value) in fixed.chunks_exact(4).enumerate() {
        let (row, column) = (i as u64 / FIXED[1], i as u64 % FIXED[1]);
        let wanted = if row < 13 || column >= 3 { last } else { [0; 4] };
        assert_eq!(value, wanted, "element ({row}, {column}) of fixed; {}", context());
    }
    let attrs = open_space(device, "named").unwrap().peek().record.attrs.clone();
    let wanted = if rows.is_empty() { "{}".to_owned() } else { u32::from_le_bytes(last).to_string() };
    assert_eq!(attrs, wanted, "{}", context());
    assert_sound(device, context);
    rows
}

#[test]
fn lost_power_at_every_write_leaves_whole_transactions() {
    for write_buffer_bytes in [64 << 20, 0] {
        for n in 1.. {
            let media = Arc::new(FaultMedia::default());
            let device = open(media.clone(), Mode::Append, &tiny(write_buffer_bytes)).unwrap();
            make(&device);
            device.execute(command::Flush).unwrap();
            media.crash_at_write(media.writes() + n);
            let (mut sizes, mut flushed) = (vec![0], 0);
            let story = (|| -> Result<(), Error> {
                for (turn, rows) in [1, 3, 8, 20, 5].into_iter().enumerate() {
                    let from = sizes[turn];
                    sizes.push(from + rows);
                    let id = grow(&device, from, rows, turn as u32 + 1)?;
                    apply(&device, id, turn as u32 + 1)?;
                    if turn % 2 == 1 {
                        device.execute(command::Flush)?;
                        flushed = turn + 1;
                    }
                }
                Ok(())
            })();
            if story.is_ok() && !media.crashed() {
                assert!(n > 30, "transactions write");
                break;
            }
            for (how, bytes) in [("killed", media.after_kill()), ("power", media.after_crash(n))] {
                let context = || format!("{how} at write {n}, buffer {write_buffer_bytes}");
                let survived = Arc::new(FaultMedia::with_bytes(bytes));
                let again = open(survived, Mode::ReadWrite, &tiny(0)).unwrap_or_else(|e| panic!("{e}; {}", context()));
                let rows = told(&again, &context);
                assert!(sizes[flushed..].contains(&(rows.len() as u64)), "{} rows; {}", rows.len(), context());
                assert!(rows.is_sorted(), "{rows:?}; {}", context());
            }
        }
    }
}

#[test]
fn what_is_given_up_or_refused_leaves_nothing() {
    let media = Arc::new(FaultMedia::default());
    let device = open(media.clone(), Mode::Append, &tiny(0)).unwrap();
    make(&device);
    let id = grow(&device, 0, 11, 1).unwrap();
    assert!(told(&device, &|| "before it is applied".to_owned()).is_empty());
    apply(&device, id, 1).unwrap();
    assert_eq!(told(&device, &|| "applied".to_owned()), [1; 11]);
    for how in ["aborted", "a name that is not there", "an array that was deleted"] {
        let id = grow(&device, 11, 9, 2).unwrap();
        match how {
            "aborted" => device.execute(command::Abort { transaction: id }).unwrap(),
            "a name that is not there" => {
                let changes = [Change::Rename { from: "nothing", to: "x" }];
                let e = device.execute(command::Apply { transaction: id, changes: &changes }).unwrap_err();
                assert!(matches!(e, Error::NotFound { .. }), "{e}");
            }
            _ => {
                let other = begin(&device, &[("hidden", vec![1, 1])]).unwrap();
                stage(&device, other, "hidden", &[0, 0], &[1, 1], 9).unwrap();
                device.execute(command::Batch { changes: &[Change::Delete { name: "hidden" }] }).unwrap();
                let e = device.execute(command::Apply { transaction: other, changes: &[] }).unwrap_err();
                assert!(matches!(e, Error::Closed(_)), "{e}");
                device.execute(command::Abort { transaction: id }).unwrap();
            }
        }
        assert_eq!(told(&device, &|| how.to_owned()), [1; 11]);
        let e = stage(&device, id, "a", &[0, 0], &[1, 1], 9).unwrap_err();
        assert!(matches!(e, Error::Closed(_)), "{e}");
        device.execute(command::Abort { transaction: id }).unwrap();
    }
    for (spaces, why) in [
        (vec![("a", vec![10, 37])], "cannot grow"),
        (vec![("a", vec![11])], "cannot grow"),
        (vec![("a", vec![11, 37]), ("a", vec![12, 37])], "twice"),
    ] {
        let e = begin(&device, &spaces).unwrap_err();
        assert!(e.to_string().contains(why), "{e}");
    }
    // Nothing of those that were refused is still held.
    let id = grow(&device, 11, 9, 2).unwrap();
    let e = stage(&device, id, "named", &[0, 0], &[1, 1], 9).unwrap_err();
    assert!(e.to_string().contains("none of transaction"), "{e}");
    let e = stage(&device, id, "a", &[19, 0], &[2, 37], 9).unwrap_err();
    assert!(matches!(e, Error::OutOfRange { .. }), "{e}");
    device.close().unwrap();
    let again = open(media, Mode::ReadWrite, &tiny(0)).unwrap();
    let closed = [Change::Delete { name: "hidden" }];
    assert!(matches!(device.execute(command::Apply { transaction: id, changes: &closed }), Err(Error::Closed(_))));
    let told = |name: &str| read_array(&again, name).unwrap().shape;
    assert_eq!(told("a"), [11, 37], "what was begun when the store was closed is gone");
}

#[test]
fn writers_beside_a_transaction_wait_and_lose_nothing() {
    within(60, "writers beside transactions", || {
        let options = Options { threads: Some(2), ..tiny(4_000) };
        let device = open(Arc::new(FaultMedia::default()), Mode::Append, &options).unwrap();
        create(&device, "a", &[40, 32], None, false);
        create(&device, "b", &[40, 32], Some("lz4"), false);
        std::thread::scope(|s| {
            for thread in 0..4u64 {
                let device = &device;
                s.spawn(move || {
                    for turn in 0..6u32 {
                        // In either order: they are taken in one.
                        let mut spaces = vec![("a", vec![40, 32]), ("b", vec![40, 32])];
                        if thread % 2 == 1 {
                            spaces.reverse();
                        }
                        let id = begin(device, &spaces).unwrap();
                        for name in ["a", "b"] {
                            stage(device, id, name, &[thread * 10, 0], &[10, 32], turn + 1).unwrap();
                        }
                        device.execute(command::Apply { transaction: id, changes: &[] }).unwrap();
                    }
                });
            }
        });
        for name in ["a", "b"] {
            let data = read_array(&device, name).unwrap().data;
            assert!(data.chunks_exact(4).all(|value| value == 6u32.to_le_bytes()), "{name} lost elements");
        }
        assert_sound(&device, &|| "at the end".to_owned());
    });
}

#[test]
fn closing_ends_who_waits_for_a_transaction() {
    let device = open(Arc::new(FaultMedia::default()), Mode::Append, &tiny(1 << 20)).unwrap();
    make(&device);
    begin(&device, &[("fixed", FIXED.to_vec())]).unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| write(&device, "fixed", &Part::all(&FIXED), &[1; 4 * 19 * 23]));
        // Whether it waits by now or comes later, it fails the same way.
        std::thread::yield_now();
        device.close().unwrap();
        assert!(matches!(nandarray::internals::joined(waits), Err(Error::Closed(_))));
    });
}

/// A transaction deletes what a run of programs writes to when the run has ended. If a run is about to write to what
/// the transaction holds, it cannot wait: it is refused, goes on, and is applied later.
#[test]
fn a_transaction_waits_for_runs_of_what_it_deletes_unless_one_may_wait_for_it() {
    let device = open(Arc::new(FaultMedia::default()), Mode::Append, &tiny(1 << 20)).unwrap();
    make(&device);
    let id = begin(&device, &[("fixed", FIXED.to_vec())]).unwrap();
    stage(&device, id, "fixed", &[0, 0], &[1, 23], 7).unwrap();
    let apply = || device.execute(command::Apply { transaction: id, changes: &[Change::Delete { name: "named" }] });
    let never = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let run = |name: &'static str, until: mpsc::Receiver<()>| {
            let (begun, begins) = mpsc::channel();
            let (device, never) = (&device, &never);
            scope.spawn(move || {
                let hold = move |inside: &Compound<'_>| {
                    let _runs = inside.hold_run(&device.describe(name).unwrap(), vec![(0, 0); 2], never).unwrap();
                    begun.send(()).unwrap();
                    until.recv_timeout(Duration::from_secs(60)).unwrap();
                };
                device.compound(true, hold).unwrap();
            });
            begins.recv_timeout(Duration::from_secs(60)).unwrap();
        };
        let ends = ["named", "fixed"].map(|name| {
            let (end, until) = mpsc::channel();
            run(name, until);
            end
        });
        let error = apply().unwrap_err();
        assert!(matches!(error, Error::Busy(_)), "{error}");
        ends[1].send(()).unwrap();
        // The run of the other array may not have ended yet.
        let applied = scope.spawn(|| {
            loop {
                match apply() {
                    Err(Error::Busy(_)) => std::thread::yield_now(),
                    done => break done,
                }
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!applied.is_finished(), "the deletion did not wait");
        ends[0].send(()).unwrap();
        nandarray::internals::joined(applied).unwrap();
    });
    assert!(matches!(device.describe("named"), Err(Error::NotFound { .. })));
    assert_sound(&device, &|| "at the end".to_owned());
}
