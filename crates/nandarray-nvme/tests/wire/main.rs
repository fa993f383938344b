//! Promise: a connection may end, or a byte be damaged, anywhere: what arrived whole is done, what did not is absent,
//! no other host notices, and no host takes damaged bytes for right ones.
//!
//! `cuts` ends a host's stream at every byte, `damage` turns over bits of a controller's and of a host's bytes,
//! `transfers` mixes the pieces of many commands, `model` keeps a queue full of random commands and compares memory.

#![allow(clippy::disallowed_methods, reason = "timeouts of a transport are measured by the clock")]

mod cuts;
mod damage;
mod model;
#[path = "../support/mod.rs"]
mod support;
mod transfers;
