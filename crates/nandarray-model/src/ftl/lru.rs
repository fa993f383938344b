//! Keys in order of use: a hash map to slots in a doubly linked list. Allocates nothing once it has grown.

use rustc_hash::FxHashMap;
use std::fmt::Debug;
use std::hash::Hash;

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct LruSlot<V, K> {
    key: K,
    newer: u32,
    older: u32,
    value: V,
}

/// Keys with values, ordered from the most to the least recently used.
#[derive(Clone, Debug)]
pub(super) struct Lru<V, K = u32> {
    slot_of: FxHashMap<K, u32>,
    slots: Vec<LruSlot<V, K>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl<V, K> Default for Lru<V, K> {
    fn default() -> Self {
        Self { slot_of: FxHashMap::default(), slots: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE }
    }
}

impl<V: Copy, K: Copy + Eq + Hash + Debug> Lru<V, K> {
    pub(super) fn len(&self) -> usize {
        self.slot_of.len()
    }

    pub(super) fn get(&self, key: K) -> Option<&V> {
        self.slot_of.get(&key).map(|&slot| &self.slots[slot as usize].value)
    }

    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.slot_of.get(&key).map(|&slot| &mut self.slots[slot as usize].value)
    }

    /// Marks a key as the most recently used; returns whether it is present.
    pub(super) fn touch(&mut self, key: K) -> bool {
        let Some(&slot) = self.slot_of.get(&key) else { return false };
        if slot != self.newest {
            self.unlink(slot);
            self.link_newest(slot);
        }
        true
    }

    /// Inserts a key as the most recently used.
    ///
    /// # Panics
    /// If the key is present already.
    pub(super) fn insert(&mut self, key: K, value: V) {
        let new = LruSlot { key, newer: NONE, older: NONE, value };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                self.slots.len() as u32 - 1
            }
        };
        assert!(self.slot_of.insert(key, slot).is_none(), "key {key:?} twice");
        assert_eq!(self.slot_of.len() + self.free.len(), self.slots.len(), "slots are used or free");
        self.link_newest(slot);
    }

    pub(super) fn remove(&mut self, key: K) -> Option<V> {
        let slot = self.slot_of.remove(&key)?;
        self.unlink(slot);
        self.free.push(slot);
        assert_eq!(self.slot_of.len() + self.free.len(), self.slots.len(), "slots are used or free");
        Some(self.slots[slot as usize].value)
    }

    /// Returns the least recently used key; `None` if there is none.
    pub(super) fn oldest(&self) -> Option<K> {
        (self.oldest != NONE).then(|| self.slots[self.oldest as usize].key)
    }

    /// Returns keys and values, the least recently used first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = (K, &V)> {
        let mut at = self.oldest;
        std::iter::from_fn(move || {
            let slot = self.slots.get(at as usize)?;
            at = slot.newer;
            Some((slot.key, &slot.value))
        })
    }

    fn unlink(&mut self, slot: u32) {
        let (newer, older) = (self.slots[slot as usize].newer, self.slots[slot as usize].older);
        debug_assert!(newer != NONE || self.newest == slot, "slot {slot} is not linked");
        debug_assert!(older != NONE || self.oldest == slot, "slot {slot} is not linked");
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        debug_assert!(slot != self.newest, "slot {slot} is linked already");
        (self.slots[slot as usize].newer, self.slots[slot as usize].older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.slots[newest as usize].newer = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_list(steps in prop::collection::vec((0u32..12, 0u8..4), 0..200)) {
            let mut lru = Lru::<u32>::default();
            let mut model: Vec<(u32, u32)> = Vec::new();
            for (n, (key, what)) in steps.into_iter().enumerate() {
                let at = model.iter().position(|&(k, _)| k == key);
                match (what, at) {
                    (0, None) => {
                        lru.insert(key, n as u32);
                        model.push((key, n as u32));
                    }
                    (1, _) => {
                        prop_assert_eq!(lru.touch(key), at.is_some());
                        if let Some(at) = at {
                            let entry = model.remove(at);
                            model.push(entry);
                        }
                    }
                    (2, _) => {
                        prop_assert_eq!(lru.remove(key), at.map(|at| model.remove(at).1));
                    }
                    _ => prop_assert_eq!(lru.get(key).copied(), at.map(|at| model[at].1)),
                }
                prop_assert_eq!(lru.oldest(), model.first().map(|e| e.0));
                prop_assert!(lru.oldest_first().map(|(k, v)| (k, *v)).eq(model.iter().copied()));
                prop_assert_eq!(lru.len(), model.len());
            }
        }
    }
}
