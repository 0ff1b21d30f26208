//! The model of a chat, and what it remembers: a prompt is read from where it parts from those before.

use generate::{ChatRequest, Message, TextModel, Tool};
use model::Session;

use crate::answer::{Answer, answer, options};
use crate::device::Device;
use crate::flags::AnswerFlags;
use crate::interrupt::Answering;
use crate::load::Loaded;
use crate::meter::Metered;
use crate::output::View;
use crate::prefixes::Prefixes;
use crate::text;

/// A loaded model and its session.
pub(super) struct Model {
    pub(super) loaded: Loaded,
    pub(super) text: TextModel,
    pub(super) is_verbose: bool,
    /// Templates write answers into history in another form than they were generated in (without thinking), so the next
    /// prompt parts from the session, and goes on from a checkpoint before that.
    prefixes: Prefixes,
    session: Option<Session<Device>>,
}

impl Model {
    pub(super) fn new(loaded: Loaded, text: TextModel, prefixes: Prefixes, is_verbose: bool) -> Self {
        Self { loaded, text, is_verbose, prefixes, session: None }
    }

    /// Tokens in the session.
    pub(super) fn pos(&self) -> usize {
        self.session.as_ref().map_or(0, Session::pos)
    }

    /// Tokens that the context holds.
    pub(super) fn n_ctx(&self) -> usize {
        self.loaded.plan.n_ctx
    }

    /// Forgets the session.
    pub(super) fn clear(&mut self) {
        self.session = None;
    }

    /// The last answer was given.
    pub(super) fn finish(&mut self) {
        self.loaded.finish();
        self.prefixes.finish();
    }

    /// Generates and shows an answer. After an error the session is forgotten, because its state is not known.
    pub(super) fn reply(
        &mut self,
        messages: Vec<Message>,
        tools: Vec<Tool>,
        flags: &AnswerFlags,
        answering: &Answering,
    ) -> anyhow::Result<Answer> {
        let thinking = text::thinking(flags.opening.think);
        let request = ChatRequest { messages, tools, thinking, ..ChatRequest::default() };
        let prepared = self.text.prepare(&request)?;
        text::tell_warnings(&prepared);
        let options = options(&self.text, &prepared, flags)?;
        let held = self.session.take();
        let (text, prefixes) = (&self.text, &mut self.prefixes);
        let Loaded { engine, plan, .. } = &mut self.loaded;
        let prompt = &prepared.prompt;
        let mut session = prefixes.session_for(engine, plan, held, &prompt.ids, text);
        let keeper = prefixes.keeper(&mut session, plan, &prepared, text);
        let metered = Metered::new(engine, &mut session, prompt.ids.len()).keeping(keeper);
        let mut metered = metered.shown(self.is_verbose);
        let view = View { is_json: false, hide_thinking: flags.hide_thinking };
        let answer = answer(&mut metered, text, prompt, &options, answering, view)?;
        drop(metered);
        prefixes.keep_answer(engine, &mut session, answer.n_generated, !answer.thinking.is_empty());
        self.session = Some(session);
        Ok(answer)
    }
}
