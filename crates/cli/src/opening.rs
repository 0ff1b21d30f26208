//! What stands before a question: the system message, the tools, files.

use generate::{ChatRequest, Message, Tool};

use crate::attach::{Attachment, with_files};
use crate::error::CliError;
use crate::flags::OpeningFlags;
use crate::{text, toolfile};

/// The beginning of a conversation, read from where the user said.
pub(crate) struct Opening {
    system: Option<String>,
    files: Vec<Attachment>,
    tools: Vec<Tool>,
    thinking: Option<bool>,
}

impl Opening {
    /// Reads all files.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub(crate) fn read(flags: &OpeningFlags) -> Result<Self, CliError> {
        Ok(Self {
            system: flags.system.clone(),
            files: flags.file.iter().map(|path| Attachment::read(path)).collect::<Result<_, _>>()?,
            tools: flags.tools.as_deref().map_or(Ok(Vec::new()), toolfile::tools)?,
            thinking: text::thinking(flags.think),
        })
    }

    /// Nothing that a question would share with another.
    pub(crate) fn is_empty(&self) -> bool {
        self.system.is_none() && self.files.is_empty() && self.tools.is_empty()
    }

    /// The conversation that this question begins.
    pub(crate) fn request(&self, question: &str) -> ChatRequest {
        let user = Message::user(with_files(&self.files, question.trim_end()));
        ChatRequest {
            messages: self.system.as_deref().map(Message::system).into_iter().chain([user]).collect(),
            tools: self.tools.clone(),
            thinking: self.thinking,
            ..ChatRequest::default()
        }
    }
}
