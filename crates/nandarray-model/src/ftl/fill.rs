//! The state of a device whose logical pages were written once, in order: a formula gives the address of each and
//! needs no memory.
//!
//! Logical page n lies in the plane at position `n % planes` of the striping order, in row `n / planes` of that plane;
//! a plane's rows run through its good blocks in order. The formula holds for a logical page until it is overwritten,
//! and its inverse (which logical page a physical page holds) for a block until it is erased.

use super::scatter::Scatter;
use super::striping::StripeOrder;
use strength_reduce::StrengthReducedU32;

/// Formula that maps logical pages to physical pages, and back, on a device that was filled once in order.
#[derive(Clone, Debug)]
pub(super) struct Fill {
    order: StripeOrder,
    planes: u32,
    blocks: u32,
    pages: u32,
    by_planes: StrengthReducedU32,
    by_pages: StrengthReducedU32,
    /// Bad blocks that the formula skips, by plane, in order.
    bad: Vec<Vec<u32>>,
    /// Formula that replaces this one for a device that was overwritten at random for long.
    scatter: Option<Box<Scatter>>,
}

impl Fill {
    /// Makes the formula of a device; `bad` lists the blocks of each plane to skip, in order.
    pub(super) fn new(order: StripeOrder, blocks: u32, pages: u32, bad: Vec<Vec<u32>>) -> Self {
        let (by_planes, by_pages) = (StrengthReducedU32::new(order.planes()), StrengthReducedU32::new(pages));
        Self { planes: order.planes(), order, blocks, pages, by_planes, by_pages, bad, scatter: None }
    }

    /// Returns this formula with the address of each page computed by `scatter`.
    pub(super) fn scattered(self, scatter: Scatter) -> Self {
        Self { scatter: Some(Box::new(scatter)), ..self }
    }

    /// Returns the row of a logical page (its number among the pages of its plane), and the plane.
    pub(super) fn row_and_plane(&self, lpa: u32) -> (u32, u32) {
        let (row, position) = StrengthReducedU32::div_rem(lpa, self.by_planes);
        (row, self.order.plane_at[position as usize])
    }

    /// Returns the logical page of number `row` among the pages of a plane.
    pub(super) fn lpa_of(&self, row: u32, plane: u32) -> u32 {
        row * self.planes + self.order.position_of[plane as usize]
    }

    /// Returns the physical page of a logical page.
    pub(super) fn page_of(&self, lpa: u32) -> u32 {
        if let Some(scatter) = &self.scatter {
            return scatter.page_of(lpa, self);
        }
        let (row, plane) = self.row_and_plane(lpa);
        let (nth, page) = StrengthReducedU32::div_rem(row, self.by_pages);
        (plane * self.blocks + self.nth_good(plane, nth)) * self.pages + page
    }

    /// Returns the logical page that lies in page `page` of block `block` of a plane.
    pub(super) fn lpa_at(&self, plane: u32, block: u32, page: u32) -> u32 {
        if let Some(scatter) = &self.scatter {
            return scatter.lpa_at(plane * self.blocks + block, page, self);
        }
        let before = self.bad[plane as usize].iter().take_while(|&&b| b < block).count() as u32;
        let row = (block - before) * self.pages + page;
        self.lpa_of(row, plane)
    }

    /// Returns how many of the first `lpas` logical pages lie in a plane.
    pub(super) fn rows_of(&self, plane: u32, lpas: u32) -> u32 {
        let position = self.order.position_of[plane as usize];
        lpas / self.planes + u32::from(position < lpas % self.planes)
    }

    /// Returns the number of a plane's good block of index `nth`.
    pub(super) fn nth_good(&self, plane: u32, nth: u32) -> u32 {
        let mut block = nth;
        for &bad in &self.bad[plane as usize] {
            if bad > block {
                break;
            }
            block += 1;
        }
        block
    }
}
