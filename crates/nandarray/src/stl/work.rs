//! Work: the tasks of a read or write. A task is the selected part of one building block.
//!
//! Work consists of one plan, of several (for a view), or of single elements; the layers below see only blocks with
//! loops. The calling thread and its helpers take tasks from a shared counter in order, so that prefetched tasks are
//! the ones that are executed next.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rayon::ThreadPool;
use smallvec::{SmallVec, smallvec};

use super::copy::Loop;
use super::plan::{BlockAt, Plan, Task};
use crate::error::{Error, Result};
use crate::sim::process::Home;

/// Number of bytes of work that justify waking one more helper thread.
const BYTES_A_HELPER: u64 = 384 << 10;

/// The tasks of a command; each is the elements that the command reads or writes in one building block.
#[derive(Debug)]
pub enum Work {
    /// Selections, each cut at the edges of building blocks; `ends[i]` is the number of tasks of plans `0..=i`.
    Plans {
        /// The plan of each selection.
        plans: Vec<Plan>,
        /// For each plan, the number of tasks of this plan and all before it.
        ends: Vec<u64>,
    },
    /// Single elements, sorted by block.
    Points {
        /// Coordinate of each touched block, and the end of the block's elements in `pairs`.
        blocks: Vec<(BlockAt, usize)>,
        /// Byte offsets of each element: in its block, and in the buffer.
        pairs: Vec<(isize, isize)>,
    },
}

impl Work {
    /// Creates the work of these plans.
    pub fn plans(plans: Vec<Plan>) -> Self {
        let mut sum = 0;
        let ends: Vec<u64> = plans
            .iter()
            .map(|p| {
                sum += p.tasks();
                sum
            })
            .collect();
        assert!(ends.is_sorted(), "running sums: {ends:?}");
        Self::Plans { plans, ends }
    }

    /// Creates the work of single elements. `coordinates` has those of the first point, then those of the second, and
    /// so on; `strides` are a block's byte strides; `stride` is the number of bytes between elements in the buffer.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for the first point outside `shape`.
    pub fn points(coordinates: &[u64], shape: &[u64], block: &[u64], strides: &[u64], stride: isize) -> Result<Self> {
        let n = shape.len();
        for point in coordinates.chunks_exact(n) {
            if let Some(axis) = (0..n).find(|&axis| point[axis] >= shape[axis]) {
                return Err(Error::OutOfRange { axis, index: point[axis].into(), size: shape[axis] });
            }
        }
        let point = |i: usize| &coordinates[i * n..(i + 1) * n];
        let order = by_block(coordinates, shape, block);
        let mut blocks: Vec<(BlockAt, usize)> = Vec::new();
        let mut pairs = Vec::with_capacity(order.len());
        for i in order {
            let mut at = BlockAt::new();
            let mut offset = 0;
            for axis in 0..n {
                at.push(point(i)[axis] / block[axis]);
                offset += point(i)[axis] % block[axis] * strides[axis];
            }
            pairs.push((offset as isize, i as isize * stride));
            match blocks.last_mut() {
                Some((last, end)) if *last == at => *end = pairs.len(),
                _ => blocks.push((at, pairs.len())),
            }
        }
        debug_assert_eq!(pairs.len() * n, coordinates.len(), "each point once");
        Ok(Self::Points { blocks, pairs })
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> u64 {
        match self {
            Self::Plans { ends, .. } => ends.last().copied().unwrap_or(0),
            Self::Points { blocks, .. } => blocks.len() as u64,
        }
    }

    /// Returns the number of successive tasks that are assembled together, because they contribute to the same rows of
    /// the buffer.
    pub fn row_tasks(&self, item_bytes: usize) -> u64 {
        match self {
            Self::Plans { plans, .. } if plans.len() == 1 => {
                let (tasks, elements) = plans[0].row();
                // The number of pieces that are joined to form a row.
                let pieces =
                    (tasks * super::copy::assemble::ROW_BYTES as u64).div_ceil((elements * item_bytes as u64).max(1));
                tasks.min(pieces).clamp(1, super::copy::assemble::MAX_PIECES as u64)
            }
            _ => 1,
        }
    }

    /// Returns a task by its number. With several plans, several tasks may be in the same block.
    pub fn task(&self, index: u64) -> Task<'_> {
        match self {
            Self::Plans { plans, ends } => {
                let plan = if plans.len() == 1 { 0 } else { ends.partition_point(|&e| e <= index) };
                plans[plan].task(index - if plan == 0 { 0 } else { ends[plan - 1] })
            }
            Self::Points { blocks, pairs } => {
                let (at, pairs) = points_of(blocks, pairs, index);
                Task { at: at.clone(), loops: smallvec![Loop::Table(pairs)], row: 0, in_block: 0, in_buffer: 0 }
            }
        }
    }

    /// Returns block number `index` of a work of single elements, with the byte offsets of its elements in the block
    /// and in the buffer.
    pub(super) fn block_of_points(&self, index: u64) -> (&BlockAt, &[(isize, isize)]) {
        match self {
            Self::Points { blocks, pairs } => points_of(blocks, pairs, index),
            Self::Plans { .. } => unreachable!("plans are no single elements"),
        }
    }

    /// Returns the numbers of the tasks of each touched block, each block once.
    pub fn by_block(&self) -> Vec<SmallVec<[u64; 1]>> {
        if !matches!(self, Self::Plans { plans, .. } if plans.len() > 1) {
            return (0..self.len()).map(|i| smallvec![i]).collect();
        }
        let mut order: Vec<SmallVec<[u64; 1]>> = Vec::new();
        let mut seen: HashMap<BlockAt, usize> = HashMap::new();
        for i in 0..self.len() {
            let at = self.task(i).at;
            let next = order.len();
            let place = *seen.entry(at).or_insert(next);
            if place == next {
                order.push(SmallVec::new());
            }
            order[place].push(i);
        }
        debug_assert_eq!(order.iter().map(SmallVec::len).sum::<usize>() as u64, self.len(), "each task once");
        order
    }

    /// Returns the smallest box that contains all touched blocks: first and last block coordinate along each dimension.
    pub fn bounds(&self, dimensions: usize) -> Vec<(u64, u64)> {
        let mut around: Option<Vec<(u64, u64)>> = None;
        let mut grow = |b: Vec<(u64, u64)>| match &mut around {
            None => around = Some(b),
            Some(a) => a.iter_mut().zip(b).for_each(|(x, y)| *x = (x.0.min(y.0), x.1.max(y.1))),
        };
        match self {
            Self::Plans { plans, .. } => plans.iter().for_each(|p| grow(p.bounds())),
            Self::Points { blocks, .. } => blocks.iter().for_each(|(at, _)| grow(at.iter().map(|&c| (c, c)).collect())),
        }
        around.unwrap_or_else(|| vec![(0, 0); dimensions])
    }
}

fn points_of<'w>(
    blocks: &'w [(BlockAt, usize)],
    pairs: &'w [(isize, isize)],
    index: u64,
) -> (&'w BlockAt, &'w [(isize, isize)]) {
    let index = index as usize;
    let start = if index == 0 { 0 } else { blocks[index - 1].1 };
    let (at, end) = &blocks[index];
    assert!(start < *end && *end <= pairs.len(), "points {start}..{end} of {}", pairs.len());
    (at, &pairs[start..*end])
}

/// A pool of threads that help the calling thread with the tasks of a command.
#[derive(Debug)]
pub struct Workers {
    pool: ManuallyDrop<Option<ThreadPool>>,
    /// The process in which the pool's threads run: a process forked from it has the pool, but none of the threads.
    home: Home,
}

/// Largest number of threads that may work on a command: more than are ever useful, and few enough to be started at
/// once.
pub const THREADS_MAX: usize = 1024;

impl Workers {
    /// Checks that a number of threads is allowed.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0 and for more than [`THREADS_MAX`].
    pub fn check(threads: usize) -> Result<()> {
        if (1..=THREADS_MAX).contains(&threads) {
            return Ok(());
        }
        Err(Error::invalid(format!("threads must be from 1 to {THREADS_MAX}, not {threads}")))
    }

    /// Starts helper threads: `threads` is their number plus the calling thread, which works as well.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number that is not allowed, or if the threads cannot be started.
    pub fn new(threads: usize) -> Result<Self> {
        Self::check(threads)?;
        let build = |n| {
            rayon::ThreadPoolBuilder::new()
                .num_threads(n)
                .thread_name(|i| format!("nandarray-{i}"))
                .build()
                .map_err(|e| Error::invalid(format!("cannot start {threads} threads: {e}")))
        };
        let helpers = threads.saturating_sub(1);
        let pool = if helpers == 0 { None } else { Some(build(helpers)?) };
        Ok(Self { pool: ManuallyDrop::new(pool), home: Home::here() })
    }

    /// Creates a pool without helpers: the calling thread works alone.
    pub fn alone() -> Self {
        Self { pool: ManuallyDrop::new(None), home: Home::here() }
    }

    fn helpers(&self) -> u64 {
        self.pool.as_ref().map_or(0, |p| p.current_num_threads() as u64)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if self.home.is_here() {
            // SAFETY: the pool is dropped once, and not used any more.
            unsafe { ManuallyDrop::drop(&mut self.pool) }
        }
        // In a forked process the pool is not dropped: that would wait for threads which do not exist there.
    }
}

/// Returns the numbers of the points sorted by block, and within a block in their own order, so that of repeated points
/// the last is written last. Uses few bytes for each point, as a command may have many.
fn by_block(coordinates: &[u64], shape: &[u64], block: &[u64]) -> Vec<usize> {
    let n = shape.len();
    let points = coordinates.chunks_exact(n);
    let sides = shape.iter().zip(block).map(|(s, b)| s.div_ceil(*b));
    if sides.clone().try_fold(1u64, |n, side| n.checked_mul(side)).is_some() {
        // All blocks of the array can be numbered with 64 bits.
        let sides: SmallVec<[u64; 4]> = sides.collect();
        let number = |point: &[u64]| (0..n).fold(0, |number, i| number * sides[i] + point[i] / block[i]);
        let mut order: Vec<(u64, usize)> = points.enumerate().map(|(i, point)| (number(point), i)).collect();
        order.sort_unstable();
        return order.into_iter().map(|(_, i)| i).collect();
    }
    let at = |&i: &usize| coordinates[i * n..(i + 1) * n].iter().zip(block).map(|(c, b)| c / b);
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|a, b| at(a).cmp(at(b)));
    order
}

/// Calls `each` for ranges that together cover all numbers below `count`, nearly in order, on the calling thread and
/// the pool's. `bytes` is the size of all the work, by which the number of threads is chosen. Ranges begin at multiples
/// of `together`, and have at least `least` numbers if there are enough for all threads. `each` gets a state that is
/// kept between its calls on one thread. The first error stops the rest and is returned.
pub fn run<T: Default>(
    workers: &Workers,
    count: u64,
    bytes: u64,
    together: u64,
    least: u64,
    each: &(dyn Fn(Range<u64>, &mut T) -> Result<()> + Sync),
) -> Result<()> {
    assert!(together > 0, "ranges begin at multiples of it");
    let helpers = (bytes / BYTES_A_HELPER).min(count.saturating_sub(1)).min(workers.helpers());
    let (Some(pool), 1.., true) = (&*workers.pool, helpers, workers.home.is_here()) else {
        return each(0..count, &mut T::default());
    };
    // Enough numbers at a time that the counter is no bottleneck, few enough that the threads end together.
    let even = count.div_ceil(helpers + 1);
    let grain = (BYTES_A_HELPER / 2 / (bytes / count).max(1)).max(least.min(even / 4)).clamp(1, even);
    let grain = if together <= even { grain.next_multiple_of(together) } else { grain };
    let next = AtomicU64::new(0);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let worker = || {
        let mut state = T::default();
        loop {
            let start = next.fetch_add(grain, Ordering::Relaxed);
            let range = start.min(count)..count.min(start.saturating_add(grain));
            if let Err(e) = each(range, &mut state) {
                failed.lock().get_or_insert(e);
                next.store(count, Ordering::Relaxed);
                return;
            }
            if start >= count {
                return;
            }
        }
    };
    pool.in_place_scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|_| worker());
        }
        worker();
    });
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_sorted_by_block_in_arrays_of_any_size() {
        let points = [[9, 3], [0, 7], [5, 0], [9, 2], [4, 1], [0, 4], [5, 0], [8, 3]];
        // Blocks (2, 0), (0, 1), (1, 0), (2, 0), (1, 0), (0, 1), (1, 0), (2, 0).
        let expected = [1, 5, 2, 4, 6, 0, 3, 7];
        for shape in [[10, 8], [1 << 40, 1 << 40]] {
            assert_eq!(by_block(points.as_flattened(), &shape, &[4, 4]), expected, "shape {shape:?}");
        }
    }
}
