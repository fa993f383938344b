//! The host's work for a command of the store (software NDS; paper, section 5.2): the host translates block by block,
//! reads and writes the extents of each block by separate commands on the link (ios), and copies runs between pages
//! and the caller's memory.
//!
//! Each function starts ios or schedules an event, or returns that there was nothing to do; the client decides on the
//! next step.

use super::part::{PartOps, PartStage, SpacePart};
use super::{SpaceClient, SpaceEvent, SpaceRequester};
use crate::flash::OpKind;
use crate::flash_trace::ExtentOp;
use crate::machine::clients::Requester;
use crate::machine::fabric::ClientContext;
use crate::machine::host_io::{Io, IoDirection};
use nandarray_sim::Ps;

impl SpaceClient {
    /// Books a host core to translate a job's next block; `false` if no block is left.
    pub(super) fn host_translates(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) -> bool {
        let j = &mut self.jobs[job as usize];
        if j.next == j.blocks.len() {
            return false;
        }
        let (block, from) = j.start_block();
        let direction = j.direction(from, block.ops_end);
        let ops = PartOps::Extents { from, to: block.ops_end };
        let core = ctx.fabric.cpu.core_of(j.queue);
        let part =
            SpacePart { direction, ops, runs: block.runs, bytes: block.bytes, ..SpacePart::new(job, self.age(job)) };
        let part = self.parts.insert(part) as u32;
        let booked = ctx.fabric.cpu.work(now, core, ctx.fabric.description.host.t_translate);
        ctx.fabric.host_span(booked, "translate", u64::from(part));
        ctx.push(booked.end, SpaceEvent::HostBlock(part));
        ctx.push(booked.end, SpaceEvent::HostWork(job));
        true
    }

    /// Submits reads of a block's pages; if there are none, begins the copying at once.
    pub(super) fn host_reads(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        if !self.submit_extents(ctx, now, part, PartStage::Reading, OpKind::Read) {
            self.host_copies(ctx, now, part);
        }
    }

    /// Books a host core to copy a block's runs between host pages and the caller's memory, once all its pages are in
    /// host memory.
    pub(super) fn host_copies(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = &mut self.parts[part as usize];
        assert_eq!(p.left, 0, "copied with extents in flight: {p:?}");
        p.at = if p.direction == IoDirection::Write { PartStage::Scattered } else { PartStage::Gathered };
        let core = ctx.fabric.cpu.core_of(self.jobs[p.job as usize].queue);
        let booked = ctx.fabric.cpu.copy(now, Some(core), p.runs, p.bytes);
        ctx.fabric.host_span(booked, "copy", u64::from(part));
        ctx.push(booked.end, SpaceEvent::HostBlock(part));
    }

    /// Submits writes of a block's pages; `false` if there are none.
    pub(super) fn host_programs(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) -> bool {
        self.submit_extents(ctx, now, part, PartStage::Programming, OpKind::Program)
    }

    fn submit_extents(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32, at: PartStage, op: OpKind) -> bool {
        let p = self.parts[part as usize];
        let page = self.flash.page_bytes();
        let most = (ctx.fabric.description.host.transfer_max_bytes / page).max(1);
        let queue = self.jobs[p.job as usize].queue;
        let mut extents = Vec::new();
        for extent in self.ops_of(&p).into_iter().filter(|s| s.op == op) {
            let mut done = 0;
            while done < extent.pages {
                let pages = most.min(extent.pages - done);
                let first = nandarray::file_format::Ppa(extent.first.0 + u64::from(done));
                // A host reads and writes whole pages.
                extents.push(ExtentOp { first, pages, last_bytes: page, ..extent });
                done += pages;
            }
        }
        let extent_pages: u32 = extents.iter().map(|extent| extent.pages).sum();
        assert_eq!(u64::from(extent_pages), self.count(&p, op), "pages of the extents of {p:?}");
        self.parts[part as usize].at = at;
        self.parts[part as usize].left = extents.len() as u32;
        let any = !extents.is_empty();
        let direction = if op == OpKind::Program { IoDirection::Write } else { IoDirection::Read };
        for extent in extents {
            let requester = Requester::SpaceClient(SpaceRequester::Extent { parent: part, extent });
            ctx.io.submit(ctx.fabric, now, Io::new(requester, direction, queue, 1));
        }
        any
    }
}
