//! What of a prompt need not be fed again: where it comes from, and why it is not more.

use std::ops::Range;

use generate::{Tokenizer, common_prefix};
use prefix::{Loaded, Lookup, Missing};

use crate::engine::Model;

/// So many tokens at the end of a prompt are new in any case: nobody needs to be told why they are read.
const N_NEW: usize = 64;
/// Tokens that are shown of what differs, and characters of them.
const N_SHOWN: usize = 16;
const SHOWN_CHARS_MAX: usize = 40;

/// Where a prompt goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// In the session that its conversation was left in.
    Session,
    /// From a checkpoint in memory.
    Memory,
    /// From a checkpoint on the disk.
    Disk,
}

impl Source {
    /// Tokens that were taken up, and where they came from; `None` if there are none.
    pub(crate) fn of(loaded: Loaded) -> Option<(usize, Self)> {
        let source = if 0 < loaded.read_bytes { Self::Disk } else { Self::Memory };
        (0 < loaded.n_reused).then_some((loaded.n_reused, source))
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// Why no more of a prompt was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The cache is turned off.
    Off,
    /// Nothing was kept yet.
    Empty,
    /// What is kept goes on in another way.
    Differs,
    /// What is kept ends there.
    Ends,
    /// A checkpoint had to go.
    Evicted,
    /// A checkpoint on the disk cannot be used.
    Damaged,
}

impl Reason {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Empty => "empty",
            Self::Differs => "differs",
            Self::Ends => "ends",
            Self::Evicted => "evicted",
            Self::Damaged => "damaged",
        }
    }
}

/// Where a prompt parts from what a session was fed.
pub struct Parting {
    /// Tokens that both have.
    pub n_same: usize,
    /// The session's tokens from there on, a few of them.
    kept: Vec<u32>,
}

impl Parting {
    /// `fed`: the session's tokens.
    pub fn new(prompt: &[u32], fed: &[u32]) -> Self {
        let n_same = common_prefix(prompt, fed);
        Self { n_same, kept: fed[n_same..fed.len().min(n_same + N_SHOWN)].to_vec() }
    }
}

/// What of a prompt need not be fed again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Its leading tokens.
    pub n_token: usize,
    /// Where they come from; `None` if there are none.
    pub source: Option<Source>,
    /// Leading tokens that were fed before, as far as anybody knows.
    n_matched: usize,
    /// Why it is not more, if the cache knows. `None` and no cache: it is turned off.
    missing: Option<Missing>,
    is_off: bool,
}

impl Reuse {
    /// Without a cache.
    pub fn off() -> Self {
        Self { is_off: true, ..Self::default() }
    }

    /// `lookup`: what the cache says of a prompt of `n_prompt` tokens; `closest`: where it parts from the session that
    /// was fed most of it.
    pub fn new(
        n_prompt: usize,
        n_token: usize,
        source: Option<Source>,
        lookup: Lookup,
        closest: Option<Parting>,
    ) -> Self {
        let Lookup { n_matched, missing, .. } = lookup;
        let mut reuse = Self { n_token, source, n_matched: n_matched.max(n_token), missing, is_off: false };
        if let Some(Parting { n_same, kept }) = closest.filter(|parting| n_matched < parting.n_same) {
            reuse.n_matched = n_same;
            reuse.missing = match (n_same == n_prompt, kept.is_empty()) {
                (true, _) => reuse.missing,
                (false, true) => Some(Missing::Ends),
                (false, false) => Some(Missing::Differs { kept }),
            };
        }
        reuse
    }

    /// Why more of a prompt of `n_prompt` tokens is read than what is new in any case.
    pub fn reason(&self, n_prompt: usize) -> Option<Reason> {
        if n_prompt <= self.n_token + N_NEW {
            return None;
        }
        if self.is_off {
            return Some(Reason::Off);
        }
        Some(match self.missing.as_ref()? {
            Missing::Empty => Reason::Empty,
            Missing::Differs { .. } => Reason::Differs,
            Missing::Ends => Reason::Ends,
            Missing::Evicted => Reason::Evicted,
            Missing::Damaged => Reason::Damaged,
        })
    }

    /// One line for the log. It quotes what is kept, which may be of another client's conversation: nobody else is
    /// told.
    pub fn line(&self, prompt: &[u32], tokenizer: &Tokenizer) -> String {
        let (n_prompt, n_token) = (prompt.len(), self.n_token);
        let source = self.source.map_or(String::new(), |source| format!(" ({})", source.name()));
        let line = format!(
            "prompt of {n_prompt} tokens: {n_token} from the cache{source}, {} to read",
            n_prompt.saturating_sub(n_token)
        );
        match self.reason(n_prompt) {
            Some(reason) => format!("{line}: {}", self.why(reason, prompt, tokenizer)),
            None => line,
        }
    }

    fn why(&self, reason: Reason, prompt: &[u32], tokenizer: &Tokenizer) -> String {
        let n_matched = self.n_matched;
        let from = match self.n_token {
            0 => "is read from its start".to_owned(),
            n_token => format!("goes on from {n_token}"),
        };
        let what = match (reason, &self.missing) {
            (Reason::Off, _) => return "the prefix cache is off".into(),
            (Reason::Empty, _) => return "nothing is kept yet".into(),
            (_, Some(Missing::Differs { kept })) => {
                let ours = shown(&prompt[n_matched.min(prompt.len())..], tokenizer);
                let kept = shown(kept, tokenizer);
                format!("at token {n_matched} the prompt has {ours}, what is kept {kept}")
            }
            (Reason::Evicted, _) => "the checkpoint that was there had to go".into(),
            (Reason::Damaged, _) => "a checkpoint on the disk cannot be used".into(),
            _ => "what is kept ends there".into(),
        };
        format!("matched {n_matched}, {from}: {what}")
    }
}

/// The beginning of some tokens as text, quoted.
fn shown(ids: &[u32], tokenizer: &Tokenizer) -> String {
    let text = tokenizer.decode(&ids[..ids.len().min(N_SHOWN)], false);
    let escaped: String = text.escape_debug().take(SHOWN_CHARS_MAX).collect();
    format!("\"{escaped}\"")
}

/// A session as the cache of prefixes sees it.
pub(crate) struct View<'a, M: Model> {
    pub(crate) model: &'a M,
    pub(crate) session: &'a mut M::Session,
}

impl<M: Model> prefix::Timeline for View<'_, M> {
    fn read_kv(&self, positions: Range<usize>, out: &mut [u8]) -> Result<(), String> {
        self.model.read_kv(self.session, positions, out).map_err(|error| error.to_string())
    }

    fn write_kv(&mut self, positions: Range<usize>, bytes: &[u8]) -> Result<(), String> {
        self.model.write_kv(self.session, positions, bytes).map_err(|error| error.to_string())
    }

    fn resume(&mut self, ids: &[u32], state: &[u8]) -> Result<(), String> {
        self.model.resume(self.session, ids, state).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C20: the log would not say what was there, where it ends and why; or quote a text so that it breaks the line.
    #[test]
    fn the_log_says_what_is_missing_and_why() {
        let tokenizer = include_bytes!("../../../cli/demo/tokenizer.json");
        let tokenizer = Tokenizer::from_bytes(tokenizer, None).unwrap();
        let head = tokenizer.encode("one two three").unwrap();
        let tail = tokenizer.encode(&"\nnew \"words\" here ".repeat(40)).unwrap();
        let (n_head, prompt) = (head.len(), [head.as_slice(), &tail].concat());
        let n_prompt = prompt.len();
        let kept = tokenizer.encode(" four\r five").unwrap();
        let differs = Missing::Differs { kept: kept.clone() };
        let empty = Lookup { n_reusable: 0, n_matched: 0, missing: Some(Missing::Empty) };
        let at = |missing| Lookup { n_reusable: 2, n_matched: n_head, missing: Some(missing) };
        let line = |reuse: Reuse| reuse.line(&prompt, &tokenizer);
        let begin = |n: usize, source: &str| {
            format!("prompt of {n_prompt} tokens: {n} from the cache{source}, {} to read", n_prompt - n)
        };
        let (session, memory) = (Some(Source::Session), Some(Source::Memory));
        assert_eq!(line(Reuse::off()), begin(0, "") + ": the prefix cache is off");
        assert_eq!(
            line(Reuse::new(n_prompt, 0, None, empty.clone(), None)),
            begin(0, "") + ": nothing is kept yet"
        );
        let told = line(Reuse::new(n_prompt, 2, memory, at(differs.clone()), None));
        let (told, texts) = told.split_once(" the prompt has ").unwrap();
        let expected = format!(": matched {n_head}, goes on from 2: at token {n_head}");
        assert_eq!(told, begin(2, " (memory)") + &expected);
        let (ours, theirs) = texts.split_once(", what is kept ").unwrap();
        assert!(ours.starts_with(r#""\nnew \"words\" here"#) && ours.len() <= SHOWN_CHARS_MAX + 2, "{ours}");
        assert_eq!(theirs, r#"" four\r five""#);
        for (missing, part) in [
            (Missing::Ends, "what is kept ends there"),
            (Missing::Evicted, "the checkpoint that was there had to go"),
            (Missing::Damaged, "a checkpoint on the disk cannot be used"),
        ] {
            let told = line(Reuse::new(n_prompt, 0, None, at(missing), None));
            assert!(told.ends_with(&format!(": matched {n_head}, is read from its start: {part}")), "{told}");
        }
        // A session knows more than the tree.
        let fed = [head.as_slice(), &kept].concat();
        let told = Reuse::new(n_prompt, 0, None, empty.clone(), Some(Parting::new(&prompt, &fed)));
        assert_eq!((told.n_matched, told.reason(n_prompt)), (n_head, Some(Reason::Differs)));
        let told = Reuse::new(n_prompt, 0, None, empty, Some(Parting::new(&prompt, &head)));
        assert_eq!((told.n_matched, told.reason(n_prompt)), (n_head, Some(Reason::Ends)));
        // The last tokens are new in any case.
        let told = Reuse::new(n_prompt, n_prompt - N_NEW, session, at(differs), None);
        assert_eq!(line(told), begin(n_prompt - N_NEW, " (session)"));
    }
}
