//! stub while building
#![allow(dead_code)]
pub mod error;
pub mod flash;
pub mod media;
pub mod sim;
pub mod stl;
