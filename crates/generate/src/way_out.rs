//! How to complete what a grammar has begun in few tokens: for answers that reach their limit.

use std::iter;

use llguidance::Matcher;

use crate::grammar::Grammar;

/// What ends a value and a call in XML, where it may follow as a whole.
const TAGS: [&str; 2] = ["\n</parameter>\n", "</function>\n"];

/// What ends things under one grammar.
pub(crate) struct WayOut {
    /// Tokens of [`TAGS`].
    tags: [Vec<u32>; TAGS.len()],
    brace: u32,
    bracket: u32,
    quote: u32,
    /// What leads on in JSON, before white space: to a key, to a value, to a number.
    steps: [u32; 3],
    /// The end of the answer.
    end: u32,
}

impl WayOut {
    pub(crate) fn new(grammar: &Grammar) -> Self {
        let tokens = |text: &str| grammar.tokenize(text.as_bytes());
        let token = |text: &str| tokens(text).first().copied().unwrap_or(u32::MAX);
        Self {
            tags: TAGS.map(tokens),
            brace: token("}"),
            bracket: token("]"),
            quote: token("\""),
            steps: [",", ":", "0"].map(token),
            end: grammar.end(),
        }
    }

    /// At most `n_max` tokens behind which the answer may end. Open values end as soon as they may, what must follow
    /// has the first value that fits. `None`: no such way was found, which does not mean that there is none.
    pub(crate) fn find(&self, matcher: &Matcher, n_max: usize) -> Option<Vec<u32>> {
        let mut matcher = matcher.deep_clone();
        let mut way = matcher.consume_ff_tokens();
        while way.len() <= n_max && !matcher.is_error() {
            if matcher.is_stopped() {
                return Some(way);
            }
            let next = match self.tag(&mut matcher) {
                Some(tag) => tag.to_vec(),
                None => match self.token(&mut matcher)? {
                    id if id == self.end => return Some(way),
                    id => vec![id],
                },
            };
            matcher.consume_tokens(&next).ok()?;
            way.extend(next);
            way.extend(matcher.consume_ff_tokens());
        }
        None
    }

    fn tag(&self, matcher: &mut Matcher) -> Option<&[u32]> {
        let fits = |tag: &&Vec<u32>| matcher.validate_tokens(tag).is_ok_and(|n_token| n_token == tag.len());
        self.tags.iter().find(fits).map(Vec::as_slice)
    }

    fn token(&self, matcher: &mut Matcher) -> Option<u32> {
        let mask = matcher.compute_mask().ok()?;
        // Only inside a text may both of them follow.
        let is_text = mask.is_allowed(self.brace) && mask.is_allowed(self.bracket);
        let outside = [self.brace, self.bracket].into_iter().filter(|_| !is_text);
        let mut ids = iter::once(self.end).chain(outside).chain([self.quote]).chain(self.steps);
        let first = || mask.first_bit_set().map(|id| id as u32);
        ids.find(|&id| mask.is_allowed(id)).or_else(first)
    }
}
