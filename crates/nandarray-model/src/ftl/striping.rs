//! Striping, the choice of a plane for a logical page: planes are ordered by channel, way, die and plane number, in a
//! configurable order.
//!
//! Static striping puts page n at position n modulo the number of planes. Dynamic striping chooses the least busy
//! plane, searching from the position after the last choice; where the order begins with the planes of a die, it
//! chooses the least busy die and fills its planes together, so that one command programs them. Both use the order as
//! a table, which is built here.

use super::FtlSetupError;
use crate::describe::{FlashGeometry, StripeLevel, Striping};
use strength_reduce::StrengthReducedU32;

/// An order of all planes, with its inverse.
#[derive(Clone, Debug)]
pub(super) struct StripeOrder {
    /// Plane (`die * planes + plane`) at each position.
    pub(super) plane_at: Vec<u32>,
    /// Position of each plane.
    pub(super) position_of: Vec<u32>,
    /// Whether pages go to the least busy plane, and not to a plane that follows from their number.
    pub(super) dynamic: bool,
    /// Whether the planes of a die are adjacent in the order: then a die is filled as a whole.
    pub(super) die_at_once: bool,
    by_planes: StrengthReducedU32,
}

impl StripeOrder {
    /// Makes the order that a description requests.
    ///
    /// # Errors
    /// If the description does not name every level once.
    pub(super) fn new(g: &FlashGeometry, striping: &Striping) -> Result<Self, FtlSetupError> {
        let (levels, dynamic) = match striping {
            Striping::Static(levels) => (levels, false),
            Striping::Dynamic(levels) => (levels, true),
        };
        let all = [StripeLevel::Channel, StripeLevel::Way, StripeLevel::Die, StripeLevel::Plane];
        if all.iter().any(|l| !levels.contains(l)) {
            return Err(FtlSetupError::Striping);
        }
        let count = g.planes_total();
        let mut plane_at = Vec::with_capacity(count as usize);
        let mut position_of = vec![0; count as usize];
        for position in 0..count {
            let (mut rest, mut c, mut w, mut d, mut p) = (position, 0, 0, 0, 0);
            for level in levels {
                let (digit, size) = match level {
                    StripeLevel::Channel => (&mut c, g.channels),
                    StripeLevel::Way => (&mut w, g.ways),
                    StripeLevel::Die => (&mut d, g.dies),
                    StripeLevel::Plane => (&mut p, g.planes),
                };
                *digit = rest % size;
                rest /= size;
            }
            let plane = g.die_index(c, w, d) * g.planes + p;
            plane_at.push(plane);
            position_of[plane as usize] = position;
        }
        let die_at_once = levels[0] == StripeLevel::Plane && g.planes > 1;
        Ok(Self { plane_at, position_of, dynamic, die_at_once, by_planes: StrengthReducedU32::new(count) })
    }

    /// Returns the plane that static striping assigns to an owner (a logical page or map page).
    pub(super) fn own(&self, owner: u32) -> u32 {
        self.plane_at[(owner % self.by_planes) as usize]
    }

    /// Returns the number of planes.
    pub(super) fn planes(&self) -> u32 {
        self.plane_at.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> FlashGeometry {
        FlashGeometry {
            channels: 3,
            ways: 2,
            dies: 2,
            planes: 2,
            blocks: 8,
            pages: 4,
            page_bytes: 4096,
            spare_bytes: 0,
        }
    }

    #[test]
    fn every_order_is_a_permutation_and_its_first_letter_is_fastest() {
        use StripeLevel::{Channel as C, Die as D, Plane as P, Way as W};
        let g = geometry();
        let letters = [C, W, D, P];
        let mut orders = 0;
        for a in letters {
            for b in letters {
                for c in letters {
                    for d in letters {
                        let Ok(order) = StripeOrder::new(&g, &Striping::Static([a, b, c, d])) else { continue };
                        orders += 1;
                        let mut planes = order.plane_at.clone();
                        planes.sort_unstable();
                        assert!(planes.iter().copied().eq(0..g.planes_total()));
                        for (position, &plane) in order.plane_at.iter().enumerate() {
                            assert_eq!(order.position_of[plane as usize] as usize, position);
                        }
                        let step = match a {
                            C => g.ways * g.dies * g.planes,
                            W => g.dies * g.planes,
                            D => g.planes,
                            P => 1,
                        };
                        assert_eq!(order.plane_at[1], step);
                    }
                }
            }
        }
        assert_eq!(orders, 24);
    }
}
