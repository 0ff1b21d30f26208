//! Everything that turns conversations into token ids and back, as it came with the model.

use serde_json::Value;

use crate::config::{GenerationConfig, stop_ids};
use crate::error::GenerateError;
use crate::generate::common_prefix;
use crate::request::{ChatRequest, OutputSpec, Prepared};
use crate::sample::{SamplingOverrides, SamplingParams};
use crate::template::{ChatTemplate, Prompt, RenderOptions};
use crate::tokenizer::Tokenizer;

/// The checkpoint's files about text, as bytes.
#[derive(Clone, Copy, Debug)]
pub struct TextFiles<'a> {
    /// tokenizer.json
    pub tokenizer: &'a [u8],
    /// tokenizer_config.json
    pub tokenizer_config: Option<&'a [u8]>,
    /// chat_template.jinja
    pub chat_template: Option<&'a [u8]>,
    /// generation_config.json
    pub generation_config: Option<&'a [u8]>,
}

/// Tokenizer, template and defaults of a model.
pub struct TextModel {
    tokenizer: Tokenizer,
    template: Result<ChatTemplate, GenerateError>,
    config: Option<GenerationConfig>,
    stop_ids: Vec<u32>,
}

impl TextModel {
    /// Reads the files. A missing or broken template is an error only for those who want it.
    ///
    /// # Errors
    /// The tokenizer or the generation config cannot be used.
    pub fn new(files: TextFiles<'_>) -> Result<Self, GenerateError> {
        let config = files.generation_config.map(GenerationConfig::from_bytes).transpose()?;
        let tokenizer = Tokenizer::from_bytes(files.tokenizer, files.tokenizer_config)?;
        Ok(Self {
            stop_ids: stop_ids(config.as_ref(), &tokenizer),
            template: ChatTemplate::from_sources(files.chat_template, files.tokenizer_config),
            tokenizer,
            config,
        })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens that end an answer.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Refuses a model that cannot chat.
    ///
    /// # Errors
    /// There is no template, or it is broken.
    pub fn check_template(self) -> Result<Self, GenerateError> {
        match self.template {
            Err(error) => Err(error),
            Ok(_) => Ok(self),
        }
    }

    /// The model's defaults with what the user wants.
    ///
    /// # Errors
    /// A value out of range.
    pub fn sampling(&self, user: &SamplingOverrides) -> Result<SamplingParams, GenerateError> {
        SamplingParams::resolve(self.config.as_ref(), user)
    }

    /// Renders a conversation, and decides how its answer is read and what it is held to.
    ///
    /// # Errors
    /// The conversation cannot be rendered, or a grammar is wrong.
    pub fn prepare(&self, request: &ChatRequest) -> Result<Prepared, GenerateError> {
        let options = RenderOptions {
            thinking: request.thinking,
            extra: request.template_vars.clone(),
            ..RenderOptions::default()
        };
        let Ok(template) = &self.template else { return Err(GenerateError::NoTemplate) };
        let tools: Vec<Value> = request.tools.iter().map(|tool| tool.declaration.clone()).collect();
        let render =
            |options: &RenderOptions| template.prompt(&self.tokenizer, &request.messages, &tools, options);
        let prompt = render(&options)?;
        let closed = RenderOptions { add_generation_prompt: false, ..options };
        let history = render(&closed)?;
        let n_settled = common_prefix(&history.ids, &prompt.ids).min(prompt.ids.len() - 1);
        let output = OutputSpec {
            thinking_open: prompt.thinking_open,
            tools: request.tools.clone().into(),
            call_format: template.call_format(),
            ..OutputSpec::default()
        };
        Ok(Prepared { prompt, n_settled, output, constraint: None })
    }

    /// A prompt that is already in the model's own form.
    ///
    /// # Errors
    /// The text cannot be encoded.
    pub fn prepare_raw(&self, text: String) -> Result<Prepared, GenerateError> {
        let ids = self.tokenizer.encode(&text)?;
        let prompt = Prompt { text, ids, thinking_open: false, warnings: Vec::new() };
        let output = OutputSpec { raw: true, ..OutputSpec::default() };
        Ok(Prepared { prompt, n_settled: 0, output, constraint: None })
    }
}
