//! A key is declared once: reading, range, default, written TOML and the list of keys follow from its row.

use nandarray_describe::ValueKind::{Count, SizeOr};
use nandarray_describe::{Checks, Described, Quantities, TypedSheet, Vocabulary, declare};
use serde_json::{Value as Json, json};

declare! {
    /// A cache.
    #[derive(Copy)]
    pub struct Cache in "cache", from "convention", {
        "ways": Count(1, 64), "lines of a set", bound "a tag has 6 bits", default "8" => ways: u32;
        "size": SizeOr("none", 64, 1 << 30), "capacity; none: no cache" => bytes: u64;
    }
}

static CACHES: Vocabulary = Vocabulary { noun: "cache", keys: Cache::KEYS, renamed: &[], presets: &[] };

impl Described for Cache {
    fn vocabulary() -> &'static Vocabulary {
        &CACHES
    }

    fn read(q: &Quantities<'_>) -> Self {
        Self::read(q)
    }

    fn check(&self, checks: &mut Checks<'_>) {
        let fine = self.bytes.is_multiple_of(64);
        checks.hold(fine, "cache.size", || "is no multiple of a line".to_owned(), || "allowed are lines".to_owned());
    }

    fn figures(&self) -> Json {
        json!({})
    }
}

fn read(rows: &str) -> Result<TypedSheet<Cache>, String> {
    TypedSheet::parse(&format!("name = 'x'\n[cache]\nsource = 'test'\n{rows}")).map_err(|e| e.to_string())
}

fn refused(rows: &str) -> String {
    read(rows).and_then(|sheet| sheet.description().map_err(|e| e.to_string())).unwrap_err()
}

#[test]
fn a_row_is_all_that_a_key_needs() {
    let sheet = read("size = '4 KiB'").unwrap();
    assert_eq!(sheet.description().unwrap(), Cache { ways: 8, bytes: 4096 });
    assert_eq!(sheet.get("cache.ways").unwrap().source, "convention");
    assert_eq!(TypedSheet::<Cache>::parse(&sheet.to_toml()).unwrap().description().unwrap().bytes, 4096);
    assert_eq!(sheet.to_json().unwrap()["values"]["cache"]["ways"]["value"], 8);
    let said = "is out of range; allowed is a whole number from 1 to 64 (a tag has 6 bits)";
    assert_eq!(refused("size = '64 B'\nways = 65"), format!("cache \"x\": line 5: cache.ways = 65 {said}"));
    assert!(refused("ways = 1").contains("cache.size: is missing: capacity; none: no cache"));
    assert!(refused("size = '65 B'").contains("is no multiple of a line; allowed are lines"));
    assert!(refused("sice = '64 B'").contains("did you mean cache.size?"));
    let row = &CACHES.keys_json()[0];
    assert_eq!((&row["key"], &row["meaning"]), (&json!("cache.ways"), &json!("lines of a set")));
    assert_eq!((&row["allowed"], &row["number"]), (&json!("a whole number from 1 to 64"), &json!(true)));
}
