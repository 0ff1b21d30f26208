//! The model of a chat, and what it remembers: a prompt is read from where it parts from the last one.

use generate::{ChatRequest, Message, Prompt, TextModel, Tool, common_prefix};
use model::{ModelError, Session, Snapshot, TokenModel};

use crate::answer::{Answer, answer, options};
use crate::device::Device;
use crate::flags::AnswerFlags;
use crate::interrupt::Answering;
use crate::load::Loaded;
use crate::meter::Metered;
use crate::output::View;
use crate::text;

/// A loaded model and its session.
pub(super) struct Model {
    pub(super) loaded: Loaded,
    pub(super) text: TextModel,
    pub(super) is_verbose: bool,
    timeline: Option<Timeline>,
}

/// A session, and where it was before the last answer: templates write answers into history in another form than
/// they were generated in (without thinking), so the next prompt parts from the session there.
struct Timeline {
    session: Session<Device>,
    snapshot: Option<Snapshot>,
}

impl Model {
    pub(super) fn new(loaded: Loaded, text: TextModel, is_verbose: bool) -> Self {
        Self { loaded, text, is_verbose, timeline: None }
    }

    /// Tokens in the session.
    pub(super) fn pos(&self) -> usize {
        self.timeline.as_ref().map_or(0, |timeline| timeline.session.pos())
    }

    /// Tokens that the context holds.
    pub(super) fn n_ctx(&self) -> usize {
        self.loaded.plan.n_ctx
    }

    /// Forgets the session.
    pub(super) fn clear(&mut self) {
        self.timeline = None;
    }

    /// Generates and shows an answer. After an error the session is forgotten, because its state is not known.
    pub(super) fn reply(
        &mut self,
        messages: Vec<Message>,
        tools: Vec<Tool>,
        flags: &AnswerFlags,
        answering: &Answering,
    ) -> anyhow::Result<Answer> {
        let thinking = text::thinking(flags.think);
        let request = ChatRequest { messages, tools, thinking, ..ChatRequest::default() };
        let prepared = self.text.prepare(&request)?;
        text::tell_warnings(&prepared);
        let (prompt, n_settled) = (&prepared.prompt, prepared.n_settled);
        let options = options(&self.text, &prepared, flags)?;
        let mut timeline = self.timeline_for(prompt)?;
        let n_reused = timeline.session.pos();
        let metered = Metered::new(&mut self.loaded.engine, &mut timeline.session, prompt.ids.len());
        let mut metered = metered.shown(self.is_verbose);
        if n_reused < n_settled {
            let fed = metered.feed(&prompt.ids[n_reused..n_settled], &mut |_| answering.flow());
            if !matches!(fed, Err(ModelError::Interrupted)) {
                fed?;
                timeline.snapshot = Some(metered.engine.snapshot(metered.session)?);
            }
        }
        let view = View { is_json: false, hide_thinking: flags.hide_thinking };
        let mut answer = answer(&mut metered, &self.text, prompt, &options, answering, view)?;
        answer.n_reused = n_reused;
        self.timeline = Some(timeline);
        Ok(answer)
    }

    /// The session, taken back to where `prompt` goes on from it; a new one if it never was there.
    fn timeline_for(&mut self, prompt: &Prompt) -> anyhow::Result<Timeline> {
        if let Some(mut timeline) = self.timeline.take() {
            let n_same = common_prefix(timeline.session.ids(), &prompt.ids);
            if n_same == timeline.session.pos() && n_same < prompt.ids.len() {
                return Ok(timeline);
            }
            if let Some(snapshot) = &timeline.snapshot
                && snapshot.pos() <= n_same
            {
                self.loaded.engine.rewind(&mut timeline.session, snapshot)?;
                return Ok(timeline);
            }
        }
        Ok(Timeline { session: self.loaded.engine.session(self.loaded.plan.n_ctx), snapshot: None })
    }
}
