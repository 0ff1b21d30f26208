//! One answer: generated, shown as it comes, counted.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;

use generate::{Channel, Event, Finish, GenerateOptions, Prompt, TextModel, generate};
use kernels::Backend;

use crate::interrupt::Answering;
use crate::meter::{Cost, Counts, Metered};
use crate::output::{AnswerPrinter, note};
use crate::size::Size;
use crate::timing;

/// What came out.
pub(crate) struct Answer {
    pub(crate) finish: Finish,
    /// The answer without thinking.
    pub(crate) text: String,
    pub(crate) thinking: String,
    pub(crate) prefill: Cost,
    pub(crate) decode: Cost,
    /// Tokens of prompt and answer.
    pub(crate) n_prompt: usize,
    pub(crate) n_reused: usize,
    pub(crate) n_generated: usize,
}

/// Generates and shows an answer. Ends early when interrupted, or when nobody reads it any more.
pub(crate) fn answer<B: Backend>(
    model: &mut Metered<'_, B>,
    text_model: &TextModel,
    prompt: &Prompt,
    options: &GenerateOptions,
    answering: &Answering,
    is_json: bool,
) -> anyhow::Result<Answer> {
    let mut printer = AnswerPrinter::new(is_json);
    let (mut text, mut thinking) = (String::new(), String::new());
    let mut shown: io::Result<()> = Ok(());
    let outcome = generate(model, text_model.tokenizer(), &prompt.ids, options, &mut |event| {
        if let Event::Text { channel, text: piece } = event
            && shown.is_ok()
        {
            match channel {
                Channel::Thinking => thinking.push_str(piece),
                Channel::Answer => text.push_str(piece),
            }
            shown = printer.text(channel, piece);
        }
        if shown.is_err() { ControlFlow::Break(()) } else { answering.flow() }
    });
    // What was generated before an error is shown on a line of its own.
    shown.and_then(|()| printer.finish())?;
    let outcome = outcome?;
    let (prefill, decode) = model.take();
    Ok(Answer {
        finish: outcome.finish,
        text,
        thinking,
        prefill,
        decode,
        n_prompt: outcome.n_prompt,
        n_reused: outcome.n_reused,
        n_generated: outcome.generated.len(),
    })
}

impl Answer {
    /// The name that `--json` has for how it ended.
    pub(crate) fn finish_reason(&self) -> &'static str {
        match self.finish {
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
