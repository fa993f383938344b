//! Threads for long commands. The thread that became idle last gets the next command.
//!
//! Its stack, its memory and the caches of its processor are warm then. When threads took turns, the first command of
//! each of the 128 threads of a paced server ended 75 to 110 us late. Commands for which no thread is idle wait in the
//! order of their arrival. Not here: what a command does, and its panics, which it has to catch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

/// A command that a worker executes.
pub(super) type LongCommand = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct CommandWorkersState {
    /// Commands that wait, in order; none if a thread is idle.
    waiting: VecDeque<LongCommand>,
    /// Numbers of idle threads, the one that became idle last at the end.
    idle: Vec<usize>,
    /// For each thread the command that it was given while it was idle.
    given: Vec<Option<LongCommand>>,
    closed: bool,
}

/// Numbers of commands that wait for a worker, and of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Number of commands that wait.
    pub waiting: usize,
    /// Number of workers that execute a command.
    pub busy: usize,
    /// Number of workers.
    pub workers: usize,
}

/// The workers' commands, which connections add to.
pub(super) struct CommandWorkers {
    state: Mutex<CommandWorkersState>,
    /// By which each idle thread is woken.
    wake: Vec<Condvar>,
}

impl CommandWorkers {
    /// Starts a number of threads; the handles are for their end after [`Self::close`].
    pub(super) fn start(count: usize) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let given = std::iter::repeat_with(|| None).take(count).collect();
        let state = Mutex::new(CommandWorkersState { given, ..CommandWorkersState::default() });
        let workers = Arc::new(Self { state, wake: std::iter::repeat_with(Condvar::new).take(count).collect() });
        let start = |number| {
            let workers = workers.clone();
            thread::spawn(move || {
                while let Some(command) = workers.next(number) {
                    command();
                }
            })
        };
        let threads = (0..count).map(start).collect();
        (workers, threads)
    }

    /// Has a command executed; drops it if the workers are closed: there is no host to answer any more.
    pub(super) fn execute(&self, command: LongCommand) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        assert!(state.idle.is_empty() || state.waiting.is_empty(), "a command waits beside an idle thread");
        match state.idle.pop() {
            Some(number) => {
                state.given[number] = Some(command);
                drop(state);
                self.wake[number].notify_one();
            }
            None => state.waiting.push_back(command),
        }
    }

    /// Returns how many commands and workers there are now.
    pub(super) fn counts(&self) -> WorkerCounts {
        let state = self.state.lock();
        let workers = self.wake.len();
        WorkerCounts { waiting: state.waiting.len(), busy: workers - state.idle.len().min(workers), workers }
    }

    /// Ends the threads once they have executed all commands that are there.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        for wake in &self.wake {
            wake.notify_one();
        }
    }

    /// Waits for the next command of a thread; `None` if the workers are closed and no command is left.
    fn next(&self, number: usize) -> Option<LongCommand> {
        let mut state = self.state.lock();
        if let Some(command) = state.waiting.pop_front() {
            return Some(command);
        }
        if state.closed {
            return None;
        }
        state.idle.push(number);
        self.wake[number].wait_while(&mut state, |state| state.given[number].is_none() && !state.closed);
        state.given[number].take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    fn idle(workers: &CommandWorkers, count: usize) {
        while workers.state.lock().idle.len() < count {
            thread::yield_now();
        }
    }

    /// Executes a command that tells its thread, and waits until that thread is idle again.
    fn one(workers: &CommandWorkers, count: usize) -> ThreadId {
        let (tell, told) = mpsc::channel();
        workers.execute(Box::new(move || tell.send(thread::current().id()).unwrap()));
        let id = told.recv().unwrap();
        idle(workers, count);
        id
    }

    #[test]
    fn one_command_after_another_stays_on_one_thread() {
        let (workers, threads) = CommandWorkers::start(8);
        idle(&workers, 8);
        let first = one(&workers, 8);
        assert!((0..50).all(|_| one(&workers, 8) == first));
        workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn commands_run_at_once_up_to_the_number_of_threads_and_all_of_them_once() {
        let (workers, threads) = CommandWorkers::start(3);
        let barrier = Arc::new(std::sync::Barrier::new(3));
        let (tell, told) = mpsc::channel();
        for number in 0..300 {
            let (tell, barrier) = (tell.clone(), barrier.clone());
            workers.execute(Box::new(move || {
                barrier.wait();
                tell.send(number).unwrap();
            }));
        }
        workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(tell);
        let mut ended: Vec<u32> = told.iter().collect();
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..300));
        workers.execute(Box::new(|| panic!("a command of closed workers")));
    }
}
