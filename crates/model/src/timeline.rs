//! A session together with its engine, as text generation sees it.

use std::ops::ControlFlow;

use kernels::Backend;

use crate::{Engine, Logits, ModelError, Session};

/// One timeline of tokens: what text generation needs of a model.
pub trait TokenModel {
    /// Rows of the head.
    fn n_vocab(&self) -> usize;

    /// Most tokens the timeline can hold.
    fn n_ctx(&self) -> usize;

    /// Tokens fed so far.
    fn pos(&self) -> usize;

    /// Are the logits after the last token known without feeding anything? Then [`Self::feed`] of nothing gives them.
    fn has_logits(&self) -> bool {
        false
    }

    /// Feeds tokens and returns the logits `[n_vocab]` after the last one. `progress` is told how many are done;
    /// when it breaks, feeding stops at the end of the current batch with [`ModelError::Interrupted`].
    ///
    /// # Errors
    /// See [`Engine::forward`].
    fn feed(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&[f32], ModelError>;
}

/// An engine and one of its sessions.
pub struct Timeline<'a, B: Backend> {
    /// The model.
    pub engine: &'a mut Engine<B>,
    /// The timeline.
    pub session: &'a mut Session<B>,
}

impl<B: Backend> TokenModel for Timeline<'_, B> {
    fn n_vocab(&self) -> usize {
        self.engine.config().n_vocab
    }

    fn n_ctx(&self) -> usize {
        self.session.n_ctx()
    }

    fn pos(&self) -> usize {
        self.session.pos()
    }

    fn feed(
        &mut self,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&[f32], ModelError> {
        self.engine.forward(self.session, ids, Logits::Last, progress)?;
        Ok(self.session.logits())
    }
}
