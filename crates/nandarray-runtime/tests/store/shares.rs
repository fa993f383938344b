//! Promise: executions that divide the tasks of a program give together what one execution of all of them gives, also
//! the number of a task that fails; a share within a run of tasks, and an end without its states, are refused.

use nandarray_runtime::{Share, TaskCuts};

use super::*;

struct Shared {
    store: Store,
    program: u32,
}

impl Shared {
    fn new() -> Self {
        let store = Store::new();
        let program = store.runtime.load(&common::by_hand(), None).unwrap();
        Self { store, program }
    }

    fn with<T>(&self, fails: u64, work: impl FnOnce(&Execution<'_>) -> T) -> T {
        let (start, step, count) = (&[0][..], &[1][..], &[ITEMS][..]);
        let inputs = [Input::Box { space: self.store.from, start, step, count, view: None, tiles: None }];
        let (outputs, scalars) = ([Some(Output::Collect), Some(Output::Collect)], [fails, u64::MAX, u64::MAX]);
        let (program, form, instructions) = (self.program, Form::Translated, None);
        let (inputs, scalars, outputs) = (&inputs[..], &scalars[..], &outputs[..]);
        let stages =
            [StageRequest { program, form, inputs, scalars, outputs, task_bytes: 400, instructions, cores: &[] }];
        let (executor, progress) = (Threads(2), Progress::default());
        let (hold_bytes, collect_bytes, locks_at_end) = (HOLD_BYTES, u64::MAX, false);
        let (stages, executor, progress) = (&stages[..], &executor as &dyn Executor, &progress);
        work(&Execution { stages, executor, hold_bytes, collect_bytes, locks_at_end, progress })
    }

    fn cuts(&self) -> TaskCuts {
        self.with(u64::MAX, |execution| self.store.runtime.task_cuts(&execution.stages[0])).unwrap().unwrap()
    }

    fn share(&self, share: Share<'_>, fails: u64) -> Result<Executed, Error> {
        self.with(fails, |execution| self.store.runtime.execute_share(execution, share))
    }
}

fn bytes(done: &Executed, output: usize) -> Vec<u8> {
    let Some(OutputValue::Bytes(bytes)) = &done.stages[0].outputs[output] else { panic!("{done:?}") };
    bytes.clone()
}

#[test]
fn shares_give_together_what_one_execution_gives() {
    let shared = Shared::new();
    let cuts = shared.cuts();
    let (tasks, each) = (cuts.edges.len() as u64 - 1, cuts.tasks_a_run);
    assert!(tasks > 2 * each && !tasks.is_multiple_of(each) && cuts.edges.last() == Some(&ITEMS), "{cuts:?}");
    let whole = shared.share(Share::All, u64::MAX).unwrap();
    assert_eq!(whole.account.tasks, tasks);
    for borders in [vec![0, tasks], vec![0, each, tasks], vec![0, 0, each, 2 * each, tasks, tasks]] {
        let (mut copied, mut states, mut done) = (Vec::new(), Vec::new(), 0);
        for two in borders.windows(2) {
            let part = shared.share(Share::Tasks { first: two[0], end: two[1] }, u64::MAX).unwrap();
            copied.extend(bytes(&part, 0));
            assert!(bytes(&part, 1).is_empty(), "a share without the end calls nd_end");
            states.extend(part.stages[0].states.clone());
            done += part.account.tasks;
        }
        let end = shared.share(Share::End { tasks, states: &states }, u64::MAX).unwrap();
        copied.extend(bytes(&end, 0));
        assert_eq!((copied, bytes(&end, 1), done), (bytes(&whole, 0), bytes(&whole, 1), tasks), "{borders:?}");
        assert_eq!(end.stages[0].state, whole.stages[0].state);
    }
    match shared.share(Share::Tasks { first: each, end: tasks }, each + 3) {
        Err(Error::Execution(failed)) => assert_eq!(failed.error.task(), Some(each + 3), "{failed}"),
        done => panic!("{done:?}"),
    }
}

#[test]
fn what_is_no_share_is_refused() {
    let shared = Shared::new();
    let tasks = shared.cuts().edges.len() as u64 - 1;
    let few = vec![vec![0; 8]];
    let wrong = [
        (Share::Tasks { first: 1, end: tasks }, "multiples of 16"),
        (Share::Tasks { first: 0, end: 17 }, "multiples of 16"),
        (Share::Tasks { first: 16, end: 0 }, "multiples of 16"),
        (Share::Tasks { first: 0, end: tasks + 16 }, "multiples of 16"),
        (Share::End { tasks, states: &few }, "states"),
        (Share::End { tasks: tasks - 1, states: &few }, "states"),
    ];
    for (share, words) in wrong {
        let error = shared.share(share, u64::MAX).unwrap_err().to_string();
        assert!(error.contains(words), "{share:?}: {error}");
    }
    let mut states = vec![vec![0; 8]; tasks.div_ceil(16) as usize];
    states[1].pop();
    let error = shared.share(Share::End { tasks, states: &states }, u64::MAX).unwrap_err().to_string();
    assert!(error.contains("must have 8 bytes, not 7"), "{error}");
}
