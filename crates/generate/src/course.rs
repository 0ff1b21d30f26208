//! Where an answer stands: in thinking, in free text, or in its grammar; and which tokens are certain there.
//!
//! Thinking is free and ends at `</think>`, or when its budget is used up: then it is closed with the tokens of a
//! clean close. What an answer is held to begins right behind it, or where the model begins a call. A token that
//! reaches past such a border is cut at it, so the grammar begins at its first byte whatever the model chose.
//! Nothing here can get stuck: there is always a token that may follow, or the answer is complete.

use llguidance::Matcher;
use toktrie::SimpleVob;

use crate::constraint::{Constraint, Start};
use crate::error::GenerateError;
use crate::grammar::{Grammar, first_lines, unusable};
use crate::request::OutputSpec;
use crate::sample::Allowed;
use crate::tokenizer::Tokenizer;
use crate::way_out::WayOut;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
/// What models write around the close.
const BEFORE_CLOSE: &str = "\n";
const AFTER_CLOSE: &str = "\n\n";
/// Bytes of text that are kept to look for a border in, besides the longest of them.
const TAIL_BYTES: usize = 64;
/// Digits in a row of a number in JSON: readers refuse what is beyond the largest f64, which has 309, and models of few
/// bits write digits without end.
const NUMBER_DIGITS_MAX: usize = 300;
/// Tokens that are waited for until a character is complete.
const CHARACTER_TOKENS_MAX: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing but white space so far: the model may still open thinking.
    Start,
    Thinking,
    Text,
    Grammar,
}

/// What the next tokens may be.
pub(crate) enum Choice<'a> {
    /// One of these.
    Of(Allowed<'a>),
    /// None: the answer is complete.
    End(u32),
}

/// The course of one answer.
pub(crate) struct Course<'t> {
    tokenizer: &'t Tokenizer,
    constraint: Option<Constraint>,
    /// Tokens that end the answer.
    stop_ids: Vec<u32>,
    place: Place,
    budget: usize,
    n_thinking: usize,
    /// The last bytes of text.
    tail: Vec<u8>,
    /// Bytes of the longest border.
    border_bytes: usize,
    /// While the answer is in its grammar.
    matcher: Option<Matcher>,
    /// The token that opens thinking, as long as the answer may still begin with it.
    think: Option<u32>,
    /// Tokens that the grammar allows next, a bit each.
    mask: Vec<u32>,
    /// Digits that what the grammar has taken ends with.
    n_digit: usize,
    /// Once a way out was asked for.
    way_out: Option<WayOut>,
}

impl<'t> Course<'t> {
    pub(crate) fn new(
        tokenizer: &'t Tokenizer,
        spec: &OutputSpec,
        constraint: Option<Constraint>,
        stop_ids: Vec<u32>,
        budget: Option<usize>,
    ) -> Self {
        let starts_held = constraint.as_ref().is_some_and(|c| c.start() == Some(Start::Answer));
        let place = match spec.thinking_open && !spec.raw {
            true => Place::Thinking,
            false if starts_held => Place::Grammar,
            false if spec.raw || spec.continues => Place::Text,
            false => Place::Start,
        };
        let call_starts = constraint.iter().flat_map(Constraint::call_starts);
        let border_bytes = call_starts.map(|(text, _)| text.len()).max().unwrap_or(0).max(CLOSE.len());
        let matcher =
            (place == Place::Grammar).then(|| constraint.as_ref()?.grammar().map(Grammar::start)).flatten();
        let think = matcher.as_ref().and_then(|_| constraint.as_ref()?.think());
        Self {
            tokenizer,
            constraint,
            stop_ids,
            place,
            budget: budget.unwrap_or(usize::MAX),
            n_thinking: 0,
            tail: Vec::new(),
            border_bytes,
            matcher,
            think,
            mask: Vec::new(),
            n_digit: 0,
            way_out: None,
        }
    }

    /// Tokens that come next whatever the logits are.
    pub(crate) fn certain(&mut self, out: &mut Vec<u32>) -> Result<(), GenerateError> {
        if self.place == Place::Thinking && self.n_thinking >= self.budget {
            let waited = self.n_thinking - self.budget;
            if !ends_inside_character(&self.tail) || waited >= CHARACTER_TOKENS_MAX {
                self.close_thinking(out)?;
            }
        }
        self.forced(out)
    }

    /// What may be chosen next.
    pub(crate) fn choice(&mut self) -> Result<Choice<'_>, GenerateError> {
        let banned = self.constraint.as_ref().map(Constraint::banned).unwrap_or_default();
        let (Some(matcher), Some(constraint)) = (&mut self.matcher, &self.constraint) else {
            return Ok(Choice::Of(Allowed::Except(banned)));
        };
        let Some(end) = constraint.grammar().map(Grammar::end) else {
            return Ok(Choice::Of(Allowed::Except(banned)));
        };
        if matcher.is_stopped() && !matcher.is_error() {
            return Ok(Choice::End(constraint.end_id()));
        }
        let mut mask = matcher.compute_mask().map_err(|e| broken(&e))?;
        let may_end = mask.is_allowed(end);
        if may_end && mask.num_set() == 1 {
            return Ok(Choice::End(constraint.end_id()));
        }
        for &id in self.stop_ids.iter().filter(|&&id| id < end) {
            mask.set(id as usize, may_end);
        }
        if NUMBER_DIGITS_MAX <= self.n_digit {
            end_number(self.tokenizer, &mut mask);
        }
        if let Some(think) = self.think {
            mask.allow_token(think);
        }
        self.mask.clear();
        self.mask.extend_from_slice(mask.as_slice());
        Ok(Choice::Of(Allowed::Only(&self.mask)))
    }

    /// Whether a stop token ends the answer here. It does not where something must still follow.
    pub(crate) fn may_stop(&self) -> bool {
        let is_held = self.constraint.as_ref().is_some_and(|c| c.start() == Some(Start::Answer));
        self.place != Place::Thinking || !is_held
    }

    /// The stop token came where it may not: thinking is over.
    pub(crate) fn stopped_thinking(&mut self, out: &mut Vec<u32>) -> Result<(), GenerateError> {
        self.close_thinking(out)?;
        self.forced(out)
    }

    /// Takes the chosen token; `out`: what is to be fed, itself or its part up to a border, and what is certain then.
    pub(crate) fn accept(&mut self, id: u32, out: &mut Vec<u32>) -> Result<(), GenerateError> {
        if let Some(matcher) = &mut self.matcher {
            out.push(id);
            if self.think.take() == Some(id) {
                (self.matcher, self.place) = (None, Place::Thinking);
                return Ok(());
            }
            matcher.consume_token(id).map_err(|e| broken(&e))?;
            self.count_digits(&[id]);
            return self.forced(out);
        }
        self.n_thinking += usize::from(self.place == Place::Thinking);
        let tokenizer = self.tokenizer;
        let bytes = if tokenizer.is_special(id) { &[] } else { tokenizer.token_bytes(id) };
        match self.read(bytes) {
            None => out.push(id),
            Some((n_byte, border)) => {
                if n_byte == bytes.len() {
                    out.push(id);
                } else if let Some(grammar) = self.constraint.as_ref().and_then(Constraint::grammar) {
                    out.extend(grammar.tokenize(&bytes[..n_byte]));
                }
                self.enter(border, out)?;
            }
        }
        self.forced(out)
    }

    /// Reads text; tells where the grammar begins, in bytes, and with which border.
    fn read(&mut self, bytes: &[u8]) -> Option<(usize, Border)> {
        for (i, &byte) in bytes.iter().enumerate() {
            self.tail.push(byte);
            if let Some(border) = self.border() {
                return Some((i + 1, border));
            }
        }
        let n_old = self.tail.len().saturating_sub(self.border_bytes + TAIL_BYTES);
        self.tail.drain(..n_old);
        None
    }

    /// What the last byte completes; only borders of the grammar are told.
    fn border(&mut self) -> Option<Border> {
        if self.place == Place::Start {
            let text = self.tail.trim_ascii_start();
            if text == OPEN.as_bytes() {
                self.place = Place::Thinking;
                self.tail.clear();
            } else if !OPEN.as_bytes().starts_with(text) {
                self.place = Place::Text;
            }
        }
        if self.place == Place::Thinking && self.tail.ends_with(CLOSE.as_bytes()) {
            self.place = Place::Text;
            self.tail.clear();
            let start = self.constraint.as_ref().and_then(Constraint::start);
            return (start == Some(Start::Answer)).then_some(Border::Answer);
        }
        let call_starts = self.constraint.as_ref().map(Constraint::call_starts).unwrap_or_default();
        let is_thinking = self.place == Place::Thinking;
        let call = call_starts.iter().enumerate().find(|(i, (text, _))| {
            self.tail.ends_with(text.as_bytes())
                && (*i == 0 || !is_thinking && self.starts_line(self.tail.len() - text.len()))
        });
        call.map(|(i, _)| Border::Call(i))
    }

    /// Whether there is only white space before this byte in its line.
    fn starts_line(&self, at: usize) -> bool {
        let before = &self.tail[..at];
        let line = before.iter().rposition(|&byte| byte == b'\n').map_or(before, |i| &before[i + 1..]);
        line.iter().all(u8::is_ascii_whitespace)
    }

    fn enter(&mut self, border: Border, out: &mut Vec<u32>) -> Result<(), GenerateError> {
        let Some(constraint) = &self.constraint else { return Ok(()) };
        let Some(grammar) = constraint.grammar() else { return Ok(()) };
        let mut matcher = grammar.start();
        match border {
            Border::Answer => out.extend(grammar.tokenize(AFTER_CLOSE.as_bytes())),
            Border::Call(i) => {
                let (first, (_, rest)) = (&constraint.call_starts()[0].0, &constraint.call_starts()[i]);
                let mut ids = match self.tokenizer.token_id(first) {
                    Some(id) => vec![id],
                    None => grammar.tokenize(first.as_bytes()),
                };
                ids.extend(grammar.tokenize(rest.as_bytes()));
                matcher.consume_tokens(&ids).map_err(|e| broken(&e))?;
            }
        }
        (self.matcher, self.place) = (Some(matcher), Place::Grammar);
        Ok(())
    }

    /// Ends thinking the way models do, without a rest of what they had begun to write.
    fn close_thinking(&mut self, out: &mut Vec<u32>) -> Result<(), GenerateError> {
        let begun = (2..CLOSE.len()).rev().find(|&n| self.tail.ends_with(&CLOSE.as_bytes()[..n]));
        match begun {
            Some(n) => out.extend(self.tokenizer.encode(&format!("{}{AFTER_CLOSE}", &CLOSE[n..]))?),
            None => {
                let before = if self.tail.ends_with(BEFORE_CLOSE.as_bytes()) { "" } else { BEFORE_CLOSE };
                out.extend(self.tokenizer.encode(&format!("{before}{CLOSE}{AFTER_CLOSE}"))?);
            }
        }
        self.place = Place::Text;
        self.tail.clear();
        if let Some(constraint) = self.constraint.as_ref().filter(|c| c.start() == Some(Start::Answer))
            && let Some(grammar) = constraint.grammar()
        {
            (self.matcher, self.place) = (Some(grammar.start()), Place::Grammar);
        }
        Ok(())
    }

    /// Tokens that the grammar leaves no choice about.
    fn forced(&mut self, out: &mut Vec<u32>) -> Result<(), GenerateError> {
        let Some(matcher) = &mut self.matcher else { return Ok(()) };
        if self.think.is_some() || matcher.is_stopped() {
            return Ok(());
        }
        let ids = matcher.compute_ff_tokens();
        if !ids.is_empty() {
            matcher.consume_tokens(&ids).map_err(|e| broken(&e))?;
            self.count_digits(&ids);
            out.extend(ids);
        }
        Ok(())
    }

    fn count_digits(&mut self, ids: &[u32]) {
        for &id in ids {
            let bytes = self.tokenizer.token_bytes(id);
            let n_end = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            self.n_digit = n_end + if n_end == bytes.len() { self.n_digit } else { 0 };
        }
    }

    /// Is the answer in its grammar?
    pub(crate) fn is_held(&self) -> bool {
        self.matcher.is_some()
    }

    /// At most `n_max` tokens that complete an answer in its grammar, if such are found.
    pub(crate) fn way_out(&mut self, n_max: usize) -> Option<Vec<u32>> {
        let (matcher, grammar) = (self.matcher.as_ref()?, self.constraint.as_ref()?.grammar()?);
        self.way_out.get_or_insert_with(|| WayOut::new(grammar)).find(matcher, n_max)
    }

    /// The token that ends an answer after which nothing can follow.
    pub(crate) fn is_complete(&self) -> Option<u32> {
        let matcher = self.matcher.as_ref().filter(|matcher| matcher.is_stopped() && !matcher.is_error());
        matcher.and(self.constraint.as_ref()).map(Constraint::end_id)
    }
}

/// Where the grammar begins.
#[derive(Clone, Copy)]
enum Border {
    /// Behind thinking.
    Answer,
    /// Behind one of the texts that begin calls.
    Call(usize),
}

/// Takes tokens that go on with digits or an exponent off `mask`, if it is a number that they would go on with: where
/// other letters may come as well, it is a text.
fn end_number(tokenizer: &Tokenizer, mask: &mut SimpleVob) {
    let starts_with =
        |id: u32, firsts: &[u8]| tokenizer.token_bytes(id).first().is_some_and(|byte| firsts.contains(byte));
    let allowed: Vec<u32> = mask.iter().collect();
    let is_text = allowed.iter().any(|&id| starts_with(id, b"xX"));
    let (longer, others): (Vec<u32>, Vec<u32>) =
        allowed.into_iter().partition(|&id| starts_with(id, b"0123456789eE"));
    if !is_text && !others.is_empty() {
        longer.into_iter().for_each(|id| mask.disallow_token(id));
    }
}

fn ends_inside_character(bytes: &[u8]) -> bool {
    let end = &bytes[bytes.len().saturating_sub(4)..];
    // An end that starts inside a character is no error of the end.
    let start = end.iter().position(|byte| byte & 0xC0 != 0x80).unwrap_or(end.len());
    std::str::from_utf8(&end[start..]).is_err_and(|error| error.error_len().is_none())
}

fn broken(error: &dyn std::fmt::Display) -> GenerateError {
    unusable("what the answer is held to", &first_lines(&error.to_string()))
}
