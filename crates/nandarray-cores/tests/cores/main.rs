//! Promise: a core does what a program or a kernel says and reports what went wrong by task, screen and byte, whether
//! instructions are interpreted or functions of this process are called.

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod kernels;
mod natives;
mod timing;
