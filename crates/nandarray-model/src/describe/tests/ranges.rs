//! Every key at, below and above both ends of its range: the ends are taken, what lies beyond is refused by an error
//! that names the key, the value and the range; and a range in words reads as the range itself.

use crate::describe::{KEYS, Key};
use crate::describe::{Problem, Sheet};
use nandarray_describe::{Quantity, Value, ValueKind};
use nandarray_sim::Ps;

const OUT: &str = "is out of range";

/// Values of a key: those that are allowed with their quantities, and those that are not with the problem.
#[derive(Default)]
struct Ends {
    inside: Vec<(Value, Quantity)>,
    outside: Vec<(Value, &'static str)>,
}

impl Ends {
    fn whole(min: u64, max: u64, write: impl Fn(i128) -> Value) -> Self {
        let inside = [min, max].map(|n| (write(n.into()), Quantity::Whole(n))).to_vec();
        let outside = [i128::from(min) - 1, i128::from(max) + 1].map(|n| (write(n), OUT)).to_vec();
        Self { inside, outside }
    }

    fn real(min: f64, max: f64, write: impl Fn(f64) -> Value) -> Self {
        let inside = [min, max].map(|x| (write(x), Quantity::Real(x))).to_vec();
        let beyond = [min - 1e-6 * (max - min), max + 1e-6 * (max - min)];
        Self { inside, outside: beyond.map(|x| (write(x), OUT)).to_vec() }
    }

    fn time(min: Ps, max: Ps) -> Self {
        let text = |ps: i128| Value::Text(format!("{ps} ps"));
        let inside = [min, max].map(|t| (text(t.0.into()), Quantity::Time(t))).to_vec();
        Self { inside, outside: [i128::from(min.0) - 1, i128::from(max.0) + 1].map(|n| (text(n), OUT)).to_vec() }
    }

    fn or(mut self, word: &str) -> Self {
        self.inside.push((word.into(), Quantity::Nothing));
        self.inside.push((format!(" {word} ").as_str().into(), Quantity::Nothing));
        self
    }

    /// Adds the ends of each entry of a list of `n` entries.
    fn listed(self, n: usize, inside: impl Fn(Vec<Quantity>) -> Quantity, what: &'static str) -> Self {
        let list = |value: &Value| Value::List(vec![value.clone(); n]);
        let wrong = |(value, _): &(Value, &'static str)| {
            let mut all = vec![self.inside[0].0.clone(); n];
            all[n - 1] = value.clone();
            (Value::List(all), what)
        };
        let outside = self.outside.iter().map(wrong).collect();
        let inside = self.inside.iter().map(|(v, q)| (list(v), inside(vec![q.clone(); n]))).collect();
        Self { inside, outside }
    }

    fn of(kind: ValueKind) -> Self {
        let unit = |unit: &'static str| move |n: i128| Value::Text(format!("{n} {unit}"));
        let real = |unit: &'static str| move |x: f64| Value::Text(format!("{x} {unit}"));
        match kind {
            ValueKind::Count(min, max) => Self::whole(min, max, |n| Value::Whole(n as i64)),
            ValueKind::CountOrNone(min, max) => Self::whole(min, max, |n| Value::Whole(n as i64)).or("none"),
            ValueKind::Text | ValueKind::Table | ValueKind::Of(_) => panic!("{kind:?} is a core's"),
            ValueKind::Real(min, max) => Self::real(min, max, Value::Real),
            ValueKind::Share(min, max) => Self::real(min, max, Value::Real),
            ValueKind::Time(min, max) => Self::time(min, max),
            ValueKind::TimeOrNone(min, max) => Self::time(min, max).or("none"),
            ValueKind::Size(min, max) => Self::whole(min, max, unit("B")),
            ValueKind::SizeOr(word, min, max) => Self::whole(min, max, unit("B")).or(word),
            ValueKind::Frequency(min, max) => Self::whole(min, max, unit("Hz")),
            ValueKind::Rate(min, max) => Self::whole(min, max, unit("B/s")),
            ValueKind::RateOr(word, min, max) => Self::whole(min, max, unit("B/s")).or(word),
            ValueKind::Energy(min, max) => {
                let mut ends = Self::real(min, max, real("pJ"));
                ends.inside.push(("1000 A at 1 V".into(), Quantity::WattsWhile(1e3)));
                ends.outside.push(("1001 A at 1 V".into(), "draws 1001 W, at most 1000 W are allowed"));
                ends.outside.push(("-1 mA at 2 V".into(), "draws -0.002 W, at most 1000 W are allowed"));
                ends
            }
            ValueKind::EnergyPerByte(min, max) => Self::real(min, max, real("pJ/B")),
            ValueKind::Power(min, max) => Self::real(min, max, real("uW")),
            ValueKind::PowerOr(word, min, max) => Self::real(min, max, real("uW")).or(word),
            ValueKind::List(..) | ValueKind::Times(..) | ValueKind::Counts(..) | ValueKind::Cores(_) => {
                Self::of_list(kind)
            }
            ValueKind::Flag => Self {
                inside: [true, false].map(|flag| (Value::Flag(flag), Quantity::Flag(flag))).to_vec(),
                outside: vec![("true".into(), "is neither true nor false"), (1.into(), "is neither true nor false")],
            },
            ValueKind::Word(words) => Self {
                inside: words.iter().map(|word| (Value::from(*word), Quantity::Word(word))).collect(),
                outside: ["", "No", "words"].map(|word| (word.into(), "is none of the words")).to_vec(),
            },
            ValueKind::Striping => Self {
                inside: vec![
                    ("static CWDP".into(), Quantity::Striping(false, *b"CWDP")),
                    (" dynamic  PDWC ".into(), Quantity::Striping(true, *b"PDWC")),
                ],
                outside: ["CWDP", "static", "static CWD", "static CWDC", "static CWDPP", "random CWDP", "static cwdp"]
                    .map(|text| (text.into(), "is no striping order"))
                    .to_vec(),
            },
        }
    }

    /// Returns the ends of each entry of a list, and lists of wrong lengths.
    fn of_list(kind: ValueKind) -> Self {
        let counts = |all: Vec<Quantity>| {
            let count = |q: Quantity| match q {
                Quantity::Whole(n) => Some(n),
                _ => None,
            };
            Quantity::Counts(all.into_iter().map(count).collect())
        };
        match kind {
            ValueKind::Times(min, max) => {
                let times = |all: Vec<Quantity>| {
                    let time = |q: Quantity| if let Quantity::Time(t) = q { t } else { panic!("{q:?}") };
                    Quantity::Times(all.into_iter().map(time).collect())
                };
                Self::time(min, max).listed(3, times, OUT)
            }
            ValueKind::List(kind, n) => {
                let mut ends = Self::of(*kind).listed(n, Quantity::List, OUT);
                let one = ends.inside[0].0.clone();
                let Value::List(mut many) = one else { panic!("{one}") };
                many.push(many[0].clone());
                ends.outside.push((Value::List(many), "has too many entries"));
                ends.inside.push(("none".into(), Quantity::List(Vec::new())));
                ends.inside.push((Value::List(Vec::new()), Quantity::List(Vec::new())));
                ends
            }
            ValueKind::Counts(n, min, max) => {
                let ends = Self::whole(min, max, |n| Value::Whole(n as i64));
                ends.listed(n, counts, "has an entry out of range").and_lengths(n)
            }
            ValueKind::Cores(n) => {
                let ends = Self::whole(0, 255, |n| Value::Whole(n as i64)).or("none");
                ends.listed(n, counts, "has an entry that is no core").and_lengths(n)
            }
            other => panic!("{other:?} is no list"),
        }
    }

    /// Adds lists that are an entry too short and too long.
    fn and_lengths(mut self, n: usize) -> Self {
        let Value::List(all) = self.inside[0].0.clone() else { panic!("a list") };
        for n in [0, n - 1, n + 1] {
            let entries = all.iter().cycle().take(n).cloned().collect();
            self.outside.push((Value::List(entries), "is not a list of that length"));
        }
        self
    }
}

fn refused(sheet: &Sheet, key: &Key, value: &Value) -> Problem {
    let changed = sheet.with([(key.path, value.clone())]).unwrap();
    let invalid = changed.description().expect_err(&format!("{} = {value}", key.path));
    assert_eq!(invalid.problems.len(), 1, "{invalid}");
    invalid.problems[0].clone()
}

#[test]
fn every_key_takes_the_ends_of_its_range_and_nothing_beyond() {
    let sheet = Sheet::preset("tiny").unwrap();
    for key in KEYS {
        let ends = Ends::of(key.kind);
        for (value, quantity) in &ends.inside {
            assert_eq!(key.kind.read(value).as_ref(), Ok(quantity), "{} = {value}", key.path);
        }
        let bound = if key.bound.is_empty() { String::new() } else { format!(" ({})", key.bound) };
        for (value, what) in &ends.outside {
            let allowed = format!("allowed is {}{bound}", key.kind.allowed());
            let (path, what) = (key.path.to_owned(), (*what).to_owned());
            let want = Problem { line: None, key: path, value: value.to_string(), what, allowed };
            let found = refused(&sheet, key, value);
            assert_eq!(found, want);
            let said = format!("{} = {value} {}; {}", key.path, want.what, want.allowed);
            assert_eq!(found.to_string(), said);
        }
    }
}

/// Values of wrong types are refused by every key, with an error that says what is missing.
#[test]
fn every_key_refuses_values_of_other_kinds() {
    let sheet = Sheet::preset("tiny").unwrap();
    let many = Value::List(vec![Value::Flag(true); 40]);
    for key in KEYS {
        for value in
            [Value::Real(f64::NAN), Value::Real(f64::INFINITY), many.clone(), "\u{0}".into(), "1 parsec".into()]
        {
            let problem = refused(&sheet, key, &value);
            assert!(!problem.what.is_empty() && problem.allowed.starts_with("allowed is "), "{problem}");
            assert_eq!((problem.key.as_str(), problem.value), (key.path, value.to_string()));
        }
        let with_unit = ValueKind::is_number(&key.kind) && !matches!(Ends::of(key.kind).inside[0].0, Value::Whole(_));
        if with_unit && matches!(Ends::of(key.kind).inside[0].0, Value::Text(_)) {
            for value in [Value::Whole(7), Value::Real(0.5), "7".into(), " 1e3 ".into()] {
                let problem = refused(&sheet, key, &value);
                assert!(problem.what.starts_with("lacks its unit ("), "{problem}");
            }
            let problem = refused(&sheet, key, &"3 furlongs".into());
            assert!(problem.what.starts_with("has the unit \"furlongs\", which is none of a"), "{problem}");
            let problem = refused(&sheet, key, &Value::Flag(true));
            assert!(problem.what.starts_with("is no "), "{problem}");
        }
    }
}

/// The two ends of a range in words, read as values of the key, are the ends of the range.
#[test]
fn a_range_in_words_reads_as_the_range() {
    for key in KEYS {
        let ends = Ends::of(key.kind).inside;
        let words = key.kind.allowed();
        let Some((_, range)) = words.split_once(" from ") else { continue };
        let range = range.split(", ").next().unwrap();
        let (least, most) = range.split_once(" to ").unwrap_or_else(|| panic!("{}: {words}", key.path));
        for (text, (_, want)) in [least, most].into_iter().zip(&ends) {
            let read =
                |kind: &ValueKind| kind.read(&Value::from_bare(text)).unwrap_or_else(|w| panic!("{text}: {w:?}"));
            let (got, want) = match (key.kind, want) {
                (ValueKind::Times(..), Quantity::Times(all)) => (read(&key.kind), Quantity::Times(vec![all[0]])),
                (ValueKind::List(kind, _), Quantity::List(all)) => (read(kind), all[0].clone()),
                (ValueKind::Counts(_, min, max), Quantity::Counts(all)) => {
                    (read(&ValueKind::Count(min, max)), Quantity::Whole(all[0].unwrap()))
                }
                (kind, want) => (read(&kind), want.clone()),
            };
            assert_eq!(got, want, "{}: {text} of {words:?}", key.path);
        }
    }
}
