//! Promise: the source keeps its shape.
//!
//! Arrows between modules only point down; every file opens with what it is; none grows beyond what one reads at a
//! sitting; only the TCP transport has a clock, and nothing depends on the order of a hash. Exceptions are listed here,
//! each with its reason; `crates/tidy.rs` has the checks of this file.

#[path = "../../tidy.rs"]
mod tidy;

/// The layers of modules, from the bottom up: a module may use itself and those before it. Modules of one entry do not
/// use each other.
const LAYERS: tidy::Layers = &[
    &["limits"],
    &["commands", "features", "properties"],
    &["payload", "queue"],
    &["auth"],
    &["accounts", "slm", "boxes", "logs"],
    &["programs"],
    &["requests", "arrays", "offload"],
    &["subsystem", "association", "identify"],
    &["admin", "io"],
    &["tcp"],
    &["lib"],
    &["tests"],
];

/// Uses of a module of a higher layer that are allowed: file, the module that it uses, and the reason.
const UP: &[(&str, &str, &str)] = &[
    ("requests.rs", "arrays", "a request is one on arrays, which is executed when it is whole"),
    ("arrays.rs", "offload", "a request on arrays may run programs"),
    ("arrays.rs", "requests", "requests and replies are messages"),
    ("offload.rs", "arrays", "parts of the data behind a request's text"),
    ("offload.rs", "requests", "replies are messages"),
    ("subsystem.rs", "association", "a subsystem makes associations and keeps them weakly"),
    ("association.rs", "subsystem", "an association belongs to its subsystem"),
    ("identify.rs", "subsystem", "the numbers of namespaces"),
    ("identify.rs", "association", "the part of an association that answers identify"),
];

#[test]
fn arrows_only_point_down() {
    tidy::arrows_only_point_down(LAYERS, UP);
}

#[test]
fn every_module_is_in_a_layer() {
    tidy::every_module_is_in_a_layer(LAYERS);
}

#[test]
fn every_file_says_what_it_is_and_ends_in_time() {
    tidy::every_file_says_what_it_is_and_ends_in_time(&["src", "tests"], 800);
}

#[test]
fn time_chance_and_surroundings_come_in_through_the_door() {
    // A transport ends silent connections and associations: it has the machine's clock.
    let clocks = ["tcp/connection.rs", "tcp/server.rs", "tcp/logins.rs", "tcp/initiator.rs"];
    tidy::time_chance_and_surroundings_come_in_through_the_door(&clocks);
}

#[test]
fn nothing_depends_on_the_order_of_a_hash() {
    tidy::nothing_depends_on_the_order_of_a_hash(&[], &[]);
}

#[test]
fn functions_are_seen_at_once() {
    tidy::functions_are_seen_at_once(&["src", "tests"], &[]);
}

#[test]
fn no_dword_is_packed_here() {
    tidy::no_dword_is_packed(&["src"]);
}
