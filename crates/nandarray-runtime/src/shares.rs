//! Pipelines of a run: stages that feed each other, directly or through others, with their shares of the executor.
//!
//! The scheduler decides by these counts; nothing here hands out a job.

use crate::stage::{Origin, Stage};

/// Stages of a run that are connected by their inputs, with the number of their jobs.
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// Numbers of the stages, the last first.
    pub(crate) stages: Vec<usize>,
    /// Number of jobs in flight.
    pub(crate) running: usize,
    /// Number of jobs handed out so far.
    pub(crate) jobs: u64,
}

impl Pipeline {
    /// Returns the pipelines of a run, in the order of their first stages.
    pub(crate) fn all_of(stages: &[Stage<'_, '_>]) -> Vec<Self> {
        let mut pipelines: Vec<Self> = Vec::new();
        for (number, stage) in stages.iter().enumerate() {
            let feeds = |pipeline: &Self| {
                let from =
                    |origin: &Origin| matches!(origin, Origin::Stage { stage, .. } if pipeline.stages.contains(stage));
                stage.inputs.iter().any(from)
            };
            // A stage that reads outputs of two pipelines makes one of them.
            let (connected, others): (Vec<_>, Vec<_>) = pipelines.into_iter().partition(feeds);
            let mut joined: Vec<usize> = connected.into_iter().flat_map(|pipeline| pipeline.stages).collect();
            joined.push(number);
            joined.sort_unstable_by_key(|&stage| std::cmp::Reverse(stage));
            pipelines = others;
            pipelines.push(Self { stages: joined, running: 0, jobs: 0 });
        }
        pipelines.sort_by_key(|pipeline| pipeline.stages.last().copied());
        assert_eq!(pipelines.iter().map(|pipeline| pipeline.stages.len()).sum::<usize>(), stages.len());
        pipelines
    }
}
