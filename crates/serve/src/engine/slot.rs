//! Sessions that wait for the next prompt of their conversation.
//!
//! A session goes on where it is, which copies nothing, or from a checkpoint of the cache that all share: then it needs
//! keys and values only of positions where what it was fed differs from the prompt.

use generate::common_prefix;
use prefix::{Cache, Lookup};

use crate::engine::Model;
use crate::engine::reuse::{Parting, Reuse, Source, View};

/// A session that nobody uses loses half of its worth after so many other answers.
const N_HALF_LIFE: u64 = 4;
/// Keys and values of so many tokens are copied in less time than it takes to feed one.
const N_COPIED_PER_FED: usize = 256;

/// A session that is not in use.
struct Kept<M: Model> {
    session: M::Session,
    /// The client's name for the conversation.
    key: Option<String>,
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

/// A session for a prompt, at a prefix of it.
pub(crate) struct Taken<M: Model> {
    pub(crate) session: M::Session,
    pub(crate) reuse: Reuse,
}

/// A way to a session for a prompt.
struct Way {
    /// Among those kept; `None`: a new one.
    place: Option<usize>,
    /// Leading tokens of the prompt that the session was fed.
    n_held: usize,
    /// It goes on where it is.
    continues: bool,
    /// Tokens that need not be fed.
    n_reusable: usize,
    lookup: Lookup,
    /// In tokens that must be fed, now or by those who come back to what is lost.
    price: usize,
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
    /// stands at a prefix of the prompt; at its end only if its logits are known. `key`: the client's name for the
    /// conversation. Without a cache every prompt gets a new session.
    pub(crate) fn take(
        &mut self,
        model: &mut M,
        cache: Option<&mut Cache>,
        prompt: &[u32],
        key: Option<&str>,
    ) -> Taken<M> {
        assert!(self.n_used < self.n_slot, "there is a free slot");
        self.n_used += 1;
        self.clock += 1;
        let Some(cache) = cache else {
            return Taken { session: model.open(), reuse: Reuse::off() };
        };
        let may_open = self.kept.len() + self.n_used <= self.n_slot;
        let new = may_open.then(|| new_way(cache, prompt));
        let kept = (0..self.kept.len()).map(|i| self.way(&*model, cache, prompt, key, i));
        let way = new.into_iter().chain(kept).min_by_key(|way| way.price).expect("there is a free slot");
        let sessions = self.kept.iter().map(|kept| Parting::new(prompt, model.ids(&kept.session)));
        let closest = sessions.max_by_key(|parting| parting.n_same);
        let (session, n_token, source) = self.go(model, cache, prompt, &way);
        Taken { session, reuse: Reuse::new(prompt.len(), n_token, source, way.lookup, closest) }
    }

    /// How the kept session `i` would come to `prompt`.
    fn way(&self, model: &M, cache: &Cache, prompt: &[u32], key: Option<&str>, i: usize) -> Way {
        let kept = &self.kept[i];
        let ids = model.ids(&kept.session);
        let n_held = common_prefix(ids, prompt);
        let lookup = cache.find(prompt, n_held);
        let continues = n_held == ids.len() && n_held < prompt.len() && lookup.n_reusable <= n_held;
        let n_reusable = if continues { n_held } else { lookup.n_reusable };
        // What is in the cache is not lost, nor is it to a conversation that goes on in another way.
        let is_own = continues || (key.is_some() && key == kept.key.as_deref());
        let n_safe = if is_own { ids.len() } else { n_held.max(cache.find(ids, 0).n_reusable) };
        let age = (self.clock - kept.last_use) / N_HALF_LIFE;
        let n_lost = ids.len().saturating_sub(n_safe) >> age.min(63);
        let n_copied = n_reusable.saturating_sub(n_held);
        let price = prompt.len() - n_reusable + n_copied.div_ceil(N_COPIED_PER_FED) + n_lost;
        Way { place: Some(i), n_held, continues, n_reusable, lookup, price }
    }

    /// The session, tokens that it need not be fed, and where they come from.
    fn go(
        &mut self,
        model: &mut M,
        cache: &mut Cache,
        prompt: &[u32],
        way: &Way,
    ) -> (M::Session, usize, Option<Source>) {
        let mut session = match way.place {
            Some(i) => self.kept.swap_remove(i).session,
            None => model.open(),
        };
        if way.continues && 0 < way.n_reusable {
            return (session, way.n_reusable, Some(Source::Session));
        }
        // Also if there is nothing: what is kept ages by prompts.
        let loaded = cache.load(prompt, way.n_held, &mut View { model, session: &mut session });
        if let Some((n_token, source)) = Source::of(loaded)
            && model.failure(&session).is_none()
        {
            return (session, n_token, Some(source));
        }
        // It is not to be used. Its memory goes before the new one's comes.
        drop(session);
        (model.open(), 0, None)
    }

    /// The answer is over; what fed it is kept for the next, if there is a cache.
    pub(crate) fn give_back(&mut self, session: M::Session, key: Option<String>, is_kept: bool) {
        if is_kept {
            self.kept.push(Kept { session, key, last_use: self.clock });
        }
        self.n_used -= 1;
    }

    /// The session failed and is gone.
    pub(crate) fn give_up(&mut self) {
        self.n_used -= 1;
    }
}

/// How a new session would come to `prompt`.
fn new_way(cache: &Cache, prompt: &[u32]) -> Way {
    let lookup = cache.find(prompt, 0);
    let n_reusable = lookup.n_reusable;
    let price = prompt.len() - n_reusable + n_reusable.div_ceil(N_COPIED_PER_FED);
    Way { place: None, n_held: 0, continues: false, n_reusable, lookup, price }
}
