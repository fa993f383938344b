//! Registrants of a namespace as an attribute of its array, by which they survive a loss of power.
//!
//! Attributes are a JSON object that Python writes, with words (NaN) that a parser of JSON refuses; therefore the other
//! attributes stay as they are, character by character, and only the member of this file is read. The drive's identity
//! and the namespace are in it ([`RegistrantsOwner`]): those of a store of which this one is a copy, or of an array
//! that had another name, are none.

use std::collections::BTreeMap;

use nandarray_nvme_spec::ReservationType;
use serde::{Deserialize, Serialize};

use crate::registrants::{HostId, Registrants};

/// Name of the attribute.
pub(crate) const ATTRIBUTE: &str = "nvme_reservations";

/// The namespace to which registrants belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegistrantsOwner {
    /// Identity of the drive.
    pub(crate) drive: [u8; 16],
    pub(crate) nsid: u32,
}

/// The attribute: identifiers and keys are hexadecimal numbers, since numbers of JSON are shorter.
#[derive(Debug, Deserialize, Serialize)]
struct SavedRegistrants {
    /// Identity of the drive.
    drive: String,
    /// Namespace.
    nsid: u32,
    /// Type of the reservation; 0 if there is none.
    kind: u8,
    /// Host that has the reservation; empty if none has it.
    holder: String,
    /// Keys of the registrants.
    keys: BTreeMap<String, String>,
}

fn hex(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

fn id_of(hex: &str) -> Option<HostId> {
    u128::from_str_radix(hex, 16).ok().map(u128::to_be_bytes)
}

/// Returns the registrants that attributes have for this namespace; `None` if there are none, or they make no sense.
pub(crate) fn restored(attrs: &str, owner: RegistrantsOwner) -> Option<Registrants> {
    let saved = members(attrs)?.into_iter().find_map(value)?;
    let saved: SavedRegistrants = serde_json::from_str(saved).ok()?;
    if saved.drive != hex(owner.drive) || saved.nsid != owner.nsid {
        return None;
    }
    let key_of = |(host, key): (&String, &String)| {
        let key = u64::from_str_radix(key, 16).ok().filter(|key| *key != 0)?;
        Some((id_of(host)?, key))
    };
    let keys = saved.keys.iter().map(key_of).collect::<Option<BTreeMap<_, _>>>()?;
    let held = match saved.kind {
        0 => None,
        kind => Some((ReservationType::of(kind)?, id_of(&saved.holder)?)),
    };
    Registrants::restored(keys, held)
}

/// Returns attributes with these registrants in the place of others, or with none if these do not persist; `None` if
/// the text is no object.
pub(crate) fn with(attrs: &str, registrants: &Registrants, owner: RegistrantsOwner) -> Option<String> {
    let mut members: Vec<String> =
        members(attrs)?.into_iter().filter(|member| value(member).is_none()).map(str::to_owned).collect();
    if registrants.persists {
        let held = registrants.held();
        let saved = SavedRegistrants {
            drive: hex(owner.drive),
            nsid: owner.nsid,
            kind: held.map_or(0, |(kind, _)| kind as u8),
            holder: held.map_or_else(String::new, |(_, host)| hex(host)),
            keys: registrants.keys().iter().map(|(host, key)| (hex(*host), format!("{key:016x}"))).collect(),
        };
        let text = serde_json::to_string(&saved).expect("registrants are text");
        members.push(format!("{}\"{ATTRIBUTE}\": {text}", if members.is_empty() { "" } else { " " }));
    }
    let text = format!("{{{}}}", members.join(","));
    let read = restored(&text, owner);
    assert_eq!(read.is_some(), registrants.persists, "registrants are read as they were written: {text}");
    assert!(read.is_none_or(|read| read.keys() == registrants.keys() && read.held() == registrants.held()), "{text}");
    Some(text)
}

/// Returns the value of a member of an object, if it is that of this file.
fn value(member: &str) -> Option<&str> {
    let rest = member.trim_start().strip_prefix('"')?.strip_prefix(ATTRIBUTE)?.strip_prefix('"')?;
    rest.trim_start().strip_prefix(':')
}

/// Returns the members of an object, names with values; `None` if the text is no object.
fn members(text: &str) -> Option<Vec<&str>> {
    let inside = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    if inside.trim().is_empty() {
        return Some(Vec::new());
    }
    let (mut found, mut first, mut depth) = (Vec::new(), 0, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                found.push(&inside[first..at]);
                first = at + 1;
            }
            _ => {}
        }
    }
    found.push(&inside[first..]);
    (depth == 0 && !in_string).then_some(found)
}

#[cfg(test)]
mod tests {
    use nandarray_nvme_spec::{AcquireAction, RegisterAction};

    use super::*;

    const OWNER: RegistrantsOwner = RegistrantsOwner { drive: *b"a drive's number", nsid: 7 };

    fn reserved() -> Registrants {
        let mut made = Registrants::restored(BTreeMap::new(), None).unwrap();
        for (host, key) in [([1; 16], 7), ([0xfe; 16], u64::MAX)] {
            made.register(&host, RegisterAction::Register, false, 0, key).unwrap();
        }
        let kind = ReservationType::ExclusiveAccess;
        made.acquire(&[0xfe; 16], AcquireAction::Acquire, kind, u64::MAX, 0).unwrap();
        made.generation = 0;
        made
    }

    #[test]
    fn other_attributes_stay_as_they_are() {
        let others = ["{}", r#"{"a": NaN}"#, r#"{"x":"} , \" {", "b": [{"nvme_reservations": 1}, 2], "n": 1e400}"#];
        for text in others {
            let with_them = with(text, &reserved(), OWNER).unwrap();
            assert!(with_them.contains(&text[1..text.len() - 1]), "{with_them}");
            assert_eq!(restored(&with_them, OWNER), Some(reserved()), "{with_them}");
            assert_eq!(with(&with_them, &reserved(), OWNER).unwrap(), with_them);
            assert_eq!(with(&with_them, &Registrants::default(), OWNER).unwrap(), text);
            let others = [RegistrantsOwner { drive: [0; 16], ..OWNER }, RegistrantsOwner { nsid: 8, ..OWNER }];
            assert_eq!(others.map(|other| restored(&with_them, other)), [None, None], "of another drive or namespace");
        }
    }

    #[test]
    fn damaged_attributes_are_no_registrants() {
        let whole = with("{}", &reserved(), OWNER).unwrap();
        let no_holder = whole.replace(&hex([0xfe; 16]), &hex([2; 16]));
        let changed = [
            whole.replace("\"kind\":2", "\"kind\":9"),
            whole.replace("0000000000000007", "0000000000000000"),
            whole.replace("0000000000000007", "zz"),
            no_holder.replacen(&hex([2; 16]), &hex([3; 16]), 1),
            r#"{"nvme_reservations": 5}"#.to_owned(),
            r#"{"nvme_reservations": {}}"#.to_owned(),
        ];
        for text in changed {
            assert_eq!(restored(&text, OWNER), None, "{text}");
        }
        for text in ["", "[]", "{\"a\": \"", "{]}", "{\"a\": [}"] {
            assert_eq!((restored(text, OWNER), with(text, &reserved(), OWNER)), (None, None), "{text}");
        }
    }
}
