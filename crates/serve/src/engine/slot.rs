//! Sessions that wait for the next prompt of their conversation.
//!
//! Each kept session can go on where it is, or from the one state that was remembered on the way. This is all the reuse
//! of prompts there is: a cache of prefixes shared between conversations would take the place of [`Slots`].

use generate::common_prefix;

use crate::engine::Model;

/// A session that nobody uses loses half of its worth after so many other answers.
const N_HALF_LIFE: u64 = 4;

/// A session, and a state on its way to go back to: templates write answers into history in another form than they were
/// generated in (without thinking), so the next prompt parts from the session behind the settled part of this one.
pub(crate) struct Timeline<M: Model> {
    pub(crate) session: M::Session,
    /// With its position.
    pub(crate) snapshot: Option<(usize, M::Snapshot)>,
}

/// A session that is not in use.
struct Kept<M: Model> {
    timeline: Timeline<M>,
    last_use: u64,
}

/// All sessions that are not in use; at most `n_slot` with those that are.
pub(crate) struct Slots<M: Model> {
    kept: Vec<Kept<M>>,
    n_slot: usize,
    n_used: usize,
    /// Counts answers.
    clock: u64,
}

impl<M: Model> Slots<M> {
    pub(crate) fn new(n_slot: usize) -> Self {
        Self { kept: Vec::new(), n_slot, n_used: 0, clock: 0 }
    }

    /// Sessions that may be taken.
    pub(crate) fn n_free(&self) -> usize {
        self.n_slot - self.n_used
    }

    /// A session for `prompt`: the one that makes the least work, now and for those who come back to what it holds. It
    /// stands at a prefix of the prompt that leaves something to feed.
    pub(crate) fn take(&mut self, model: &mut M, prompt: &[u32]) -> Timeline<M> {
        assert!(self.n_used < self.n_slot, "there is a free slot");
        self.n_used += 1;
        self.clock += 1;
        let may_open = self.kept.len() + self.n_used <= self.n_slot;
        let price = |kept: &Kept<M>| match reusable(model, &kept.timeline, prompt) {
            0 => {
                let age = (self.clock - kept.last_use) / N_HALF_LIFE;
                prompt.len() + (model.ids(&kept.timeline.session).len() >> age.min(63))
            }
            n_reusable => prompt.len() - n_reusable,
        };
        let best = (0..self.kept.len()).min_by_key(|&i| price(&self.kept[i]));
        let Some(best) = best.filter(|&i| !may_open || price(&self.kept[i]) < prompt.len()) else {
            return Timeline { session: model.open(), snapshot: None };
        };
        let mut timeline = self.kept.swap_remove(best).timeline;
        if continues(model, &mut timeline, prompt) {
            return timeline;
        }
        // Its memory goes before the new one's comes.
        drop(timeline);
        Timeline { session: model.open(), snapshot: None }
    }

    /// The answer is over; what fed it is kept for the next.
    pub(crate) fn give_back(&mut self, timeline: Timeline<M>) {
        self.kept.push(Kept { timeline, last_use: self.clock });
        self.n_used -= 1;
    }

    /// The session failed and is gone.
    pub(crate) fn give_up(&mut self) {
        self.n_used -= 1;
    }
}

/// Leading tokens of `prompt` that need not be fed again, less than all.
fn reusable<M: Model>(model: &M, timeline: &Timeline<M>, prompt: &[u32]) -> usize {
    let ids = model.ids(&timeline.session);
    let n_same = common_prefix(ids, prompt);
    if n_same == ids.len() && n_same < prompt.len() {
        return n_same;
    }
    let pos = timeline.snapshot.as_ref().map_or(0, |&(pos, _)| pos);
    if pos <= n_same && pos < prompt.len() { pos } else { 0 }
}

/// Takes the session to where `prompt` goes on from it; false if it cannot.
fn continues<M: Model>(model: &M, timeline: &mut Timeline<M>, prompt: &[u32]) -> bool {
    let n_reusable = reusable(model, timeline, prompt);
    if n_reusable == model.ids(&timeline.session).len() {
        return 0 < n_reusable;
    }
    let Some((pos, snapshot)) = &timeline.snapshot else { return false };
    n_reusable == *pos && 0 < n_reusable && model.rewind(&mut timeline.session, snapshot).is_ok()
}
