//! Snapshots in the models of tests: a model has a copy of each array of a snapshot under a name that no array has, and
//! one more name for the snapshot itself, so that one without arrays is there, too.

use std::collections::BTreeMap;

use fastrand::Rng;
use nandarray::{Device, Result, command};

use super::{Array, Model, Op, read_array};

/// The first character of names in snapshots.
const MARK: char = '@';
/// Largest number of snapshots that are drawn.
const MOST: usize = 3;

/// Returns the name in a model of an array in a snapshot.
pub(crate) fn name_of(snapshot: &str, name: &str) -> String {
    format!("{MARK}{snapshot}/{name}")
}

/// Returns the snapshot, and the array's name in it, of a name in a model; `None` for other arrays.
pub(crate) fn parts(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(MARK)?.split_once('/')
}

fn marker() -> Array {
    Array { shape: vec![0], item: 1, fill: vec![0], attrs: String::new(), data: vec![] }
}

fn names_at(device: &Device, snapshot: &str) -> Vec<String> {
    device.execute(command::ListAt { snapshot, prefix: "" }).expect("a snapshot lists its names")
}

fn taken(device: &Device) -> Vec<String> {
    let all = device.execute(command::Snapshots).expect("a store lists its snapshots");
    all.into_iter().map(|snapshot| snapshot.name).collect()
}

/// Returns the names in a model of all arrays in snapshots.
pub(crate) fn names(device: &Device) -> Vec<String> {
    let of = |snapshot: String| -> Vec<String> {
        names_at(device, &snapshot).iter().map(|name| name_of(&snapshot, name)).collect()
    };
    taken(device).into_iter().flat_map(of).collect()
}

/// Reads all arrays of all snapshots.
pub(crate) fn read_all(device: &Device) -> Result<Model> {
    let markers = taken(device).into_iter().map(|snapshot| Ok((name_of(&snapshot, ""), marker())));
    markers.chain(names(device).into_iter().map(|name| Ok((name.clone(), read_array(device, &name)?)))).collect()
}

/// Takes a snapshot of a model.
pub(crate) fn take(snapshot: &str, model: &mut Model) {
    let (live, _) = split(model);
    model.extend(live.into_iter().map(|(name, array)| (name_of(snapshot, &name), array)));
    assert!(model.insert(name_of(snapshot, ""), marker()).is_none(), "snapshot {snapshot:?} is taken once");
}

/// Deletes a snapshot of a model.
pub(crate) fn delete(snapshot: &str, model: &mut Model) {
    let first = name_of(snapshot, "");
    assert!(model.contains_key(&first), "snapshot {snapshot:?} is there");
    model.retain(|name, _| !name.starts_with(&first));
}

/// Returns the arrays that can be written, and the names of snapshots.
pub(crate) fn split(model: &Model) -> (Model, Vec<String>) {
    let live = model.iter().filter(|(name, _)| parts(name).is_none()).map(|(name, a)| (name.clone(), a.clone()));
    let kept = model.keys().filter_map(|name| parts(name)).filter(|(_, name)| name.is_empty());
    (live.collect::<BTreeMap<_, _>>(), kept.map(|(snapshot, _)| snapshot.to_owned()).collect())
}

/// Draws the taking or the deletion of a snapshot.
pub(crate) fn draw(rng: &mut Rng, kept: &[String]) -> Op {
    let free: Vec<String> = (0..MOST).map(|i| format!("s{i}")).filter(|name| !kept.contains(name)).collect();
    if free.is_empty() || (!kept.is_empty() && rng.u8(..5) < 2) {
        return Op::DeleteSnapshot(kept[rng.usize(..kept.len())].clone());
    }
    Op::Snapshot(free[rng.usize(..free.len())].clone())
}
