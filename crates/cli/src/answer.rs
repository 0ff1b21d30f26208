//! One answer: generated, shown as it comes, counted.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::Instant;

use generate::{
    CallEvent, Channel, Event, Finish, FunctionCall, GenerateOptions, Prepared, Prompt, TextModel, ToolCall,
    generate,
};
use kernels::Backend;

use crate::error::CliError;
use crate::flags::AnswerFlags;
use crate::interrupt::Answering;
use crate::meter::{Cost, Counts, Metered};
use crate::output::{AnswerPrinter, View, note, quote};
use crate::size::Size;
use crate::status::Status;
use crate::{text, timing};

/// What came out.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) finish: Finish,
    /// The answer without thinking and calls.
    pub(crate) text: String,
    pub(crate) thinking: String,
    /// Complete calls of tools.
    pub(crate) calls: Vec<ToolCall>,
    /// The tool of a call that broke off.
    pub(crate) broken_call: Option<String>,
    pub(crate) prefill: Cost,
    pub(crate) decode: Cost,
    /// Tokens of prompt and answer.
    pub(crate) n_prompt: usize,
    pub(crate) n_reused: usize,
    pub(crate) n_generated: usize,
}

/// What an answer to this prompt is generated with.
///
/// # Errors
/// A sampling parameter is out of range.
pub(crate) fn options(
    text_model: &TextModel,
    prepared: &Prepared,
    flags: &AnswerFlags,
) -> Result<GenerateOptions, CliError> {
    Ok(GenerateOptions {
        sampling: text::sampling(text_model, &flags.sampling)?,
        stop_ids: text_model.stop_ids().to_vec(),
        stop_texts: flags.stop.clone(),
        max_tokens: flags.max_tokens,
        thinking_budget: flags.think_budget,
        output: prepared.output.clone(),
        constraint: prepared.constraint.clone(),
        close_at_limit: flags.close_at_limit,
        ..GenerateOptions::default()
    })
}

/// Generates and shows an answer. Ends early when interrupted, or when nobody reads it any more.
pub(crate) fn answer<B: Backend>(
    model: &mut Metered<'_, B>,
    text_model: &TextModel,
    prompt: &Prompt,
    options: &GenerateOptions,
    answering: &Answering,
    view: View,
) -> anyhow::Result<Answer> {
    let mut printer = AnswerPrinter::new(view);
    let mut status = Status::new(model.gauge());
    let mut said = Said::default();
    let mut shown: io::Result<()> = Ok(());
    let outcome = generate(model, text_model.tokenizer(), &prompt.ids, options, &mut |event| {
        if shown.is_ok() {
            said.take(event);
            shown = match event {
                Event::Text { channel, text } => printer.text(channel, text),
                Event::Token { .. } => {
                    status.update(Instant::now(), said.channel()).map_or(Ok(()), |line| printer.status(line))
                }
                Event::PromptProgress { .. } | Event::Call(_) => Ok(()),
            };
        }
        if shown.is_err() { ControlFlow::Break(()) } else { answering.flow() }
    });
    // What was generated before an error is shown on a line of its own.
    shown.and_then(|()| printer.finish())?;
    let outcome = outcome?;
    let (prefill, decode) = model.take();
    Ok(Answer {
        finish: outcome.finish,
        text: said.text,
        thinking: said.thinking,
        calls: said.calls,
        broken_call: said.open.map(|(name, _)| name),
        prefill,
        decode,
        n_prompt: outcome.n_prompt,
        n_reused: outcome.n_reused,
        n_generated: outcome.generated.len(),
    })
}

/// An answer so far.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    thinking: String,
    pub(crate) calls: Vec<ToolCall>,
    /// The call that is being written, or broke off: that is none.
    open: Option<(String, String)>,
}

impl Said {
    pub(crate) fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Text { channel: Channel::Thinking, text } => self.thinking.push_str(text),
            Event::Text { channel: Channel::Answer, text } => self.text.push_str(text),
            Event::Call(CallEvent::Begin { name, .. }) => self.open = Some((name.to_owned(), String::new())),
            Event::Call(CallEvent::Arguments { json, .. }) => {
                if let Some((_, arguments)) = &mut self.open {
                    arguments.push_str(json);
                }
            }
            Event::Call(CallEvent::End { complete, .. }) => {
                if let Some((name, arguments)) = self.open.take_if(|_| complete) {
                    let function = FunctionCall { name, arguments: arguments.into() };
                    self.calls.push(ToolCall { id: None, function });
                }
            }
            Event::PromptProgress { .. } | Event::Token { .. } => {}
        }
    }

    /// What it ends in.
    fn channel(&self) -> Channel {
        let is_thinking = self.text.is_empty() && self.calls.is_empty() && self.open.is_none();
        if is_thinking && !self.thinking.is_empty() { Channel::Thinking } else { Channel::Answer }
    }
}

impl Answer {
    /// The name that `--json` has for how it ended.
    pub(crate) fn finish_reason(&self) -> &'static str {
        match self.finish {
            Finish::Stop(_) | Finish::StopText(_) if !self.calls.is_empty() => "tool_calls",
            Finish::Stop(_) | Finish::StopText(_) => "stop",
            Finish::Length => "length",
            Finish::ContextFull => "context_full",
            Finish::Interrupted => "interrupted",
        }
    }

    /// The status line, on a terminal or if asked for; what must be known is said always.
    pub(crate) fn status(&self, is_verbose: bool, is_timing: bool) {
        if self.finish == Finish::ContextFull {
            note("note: the answer ends here because the context is full (--ctx)");
        }
        if let Some(name) = &self.broken_call {
            quote(&format!("note: a call of {name} broke off and is left out"));
        }
        if is_verbose || io::stderr().is_terminal() {
            note(self.status_line());
        }
        if is_verbose && 0 < self.decode.counts.n_token {
            note(format_args!("[answer: {}]", self.decode.counts.describe()));
        }
        if is_timing {
            for (title, cost) in [("prefill", &self.prefill), ("decode", &self.decode)] {
                if 0 < cost.counts.n_token {
                    note(timing::table(title, &cost.timing));
                }
            }
        }
    }

    fn status_line(&self) -> String {
        let (prefill, decode) = (&self.prefill.counts, &self.decode.counts);
        let speed =
            |counts: &Counts| counts.tok_s().map_or(String::new(), |speed| format!(" at {speed:.1} tok/s"));
        let reused = if self.n_reused > 0 { format!(" ({} reused)", self.n_reused) } else { String::new() };
        let both = prefill.plus(decode);
        format!(
            "[prompt {} tokens{reused}{}; answer {} tokens{}; {:.1} % of experts in memory, {} read]",
            self.n_prompt,
            speed(prefill),
            self.n_generated,
            speed(decode),
            100.0 * both.hit_rate().unwrap_or_default(),
            Size(both.stream.read_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a call would be run, or a whole one be lost or mixed up with another.
    #[test]
    fn only_complete_calls_count() {
        let mut said = Said::default();
        let begin = |index, name| Event::Call(CallEvent::Begin { index, name });
        let json = |index, json| Event::Call(CallEvent::Arguments { index, json });
        let end = |index, complete| Event::Call(CallEvent::End { index, complete });
        assert_eq!(said.channel(), Channel::Answer);
        said.take(Event::Text { channel: Channel::Thinking, text: "hm" });
        assert_eq!(said.channel(), Channel::Thinking);
        let events = [
            Event::Text { channel: Channel::Answer, text: "Let me see." },
            begin(0, "f"),
            json(0, "{\"a\":"),
            json(0, " 1}"),
            end(0, true),
            begin(1, "g"),
            json(1, "{}"),
            end(1, true),
            begin(2, "f"),
            json(2, "{\"a\": null}"),
            end(2, false),
        ];
        events.into_iter().for_each(|event| said.take(event));
        let calls: Vec<_> = said.calls.iter().map(|call| &call.function).collect();
        let call = |name: &str, json: &str| FunctionCall { name: name.into(), arguments: json.into() };
        assert_eq!(calls, [&call("f", "{\"a\": 1}"), &call("g", "{}")]);
        assert_eq!((said.text.as_str(), said.channel()), ("Let me see.", Channel::Answer));
        assert_eq!(said.open.map(|(name, _)| name).as_deref(), Some("f"));
    }
}
