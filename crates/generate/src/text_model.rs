//! Everything that turns conversations into token ids and back, as it came with the model.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::config::{GenerationConfig, stop_ids};
use crate::constraint::{Basis, Constraint, constraint, is_constrained};
use crate::conversation::Conversation;
use crate::error::GenerateError;
use crate::generate::common_prefix;
use crate::grammar::{GrammarFactory, unusable};
use crate::message::Message;
use crate::request::{ChatRequest, OutputSpec, Prepared, ResponseFormat};
use crate::sample::{SamplingOverrides, SamplingParams};
use crate::template::{ChatTemplate, Prompt, RenderOptions};
use crate::tokenizer::Tokenizer;
use crate::tool::{CallFormat, ToolChoice};

/// What a prompt ends with that leaves thinking out.
const THINK_CLOSE: &str = "</think>";
/// Tokens that the opening of an answer has, at most: a role, and perhaps thinking that is left out.
const N_OPENING_MAX: usize = 32;

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
    tokenizer: Arc<Tokenizer>,
    /// Made when an answer is first held to a grammar, or before.
    grammars: OnceLock<Result<GrammarFactory, String>>,
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
            tokenizer: tokenizer.into(),
            grammars: OnceLock::new(),
            config,
        })
    }

    /// Makes what would be made for the first requests: with a large vocabulary that takes a second or more.
    pub fn warm_up(&self) {
        // Whoever needs what could not be made is told why.
        let _ = self.tokenizer.encode_text("warm");
        let _ = self.constrain(&ResponseFormat::JsonObject);
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens that end an answer.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Where messages begin in a prompt: templates begin each with the control token that the first one begins with.
    /// Empty if the prompt begins with another token.
    pub fn message_borders(&self, ids: &[u32]) -> Vec<usize> {
        let Some(&first) = ids.first().filter(|&&id| self.tokenizer.is_special(id)) else {
            return Vec::new();
        };
        (0..ids.len()).filter(|&i| ids[i] == first).collect()
    }

    /// Where a prompt opens the answer, if that can be seen: else it would have to be rendered once more without it.
    fn opening(&self, ids: &[u32]) -> Option<usize> {
        let opening = self.message_borders(ids).pop()?;
        (0 < opening && ids.len() - opening <= N_OPENING_MAX).then_some(opening)
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
        let Ok(template) = &self.template else { return Err(GenerateError::NoTemplate) };
        let Conversation { messages, continues, n_settled, mut warnings } =
            Conversation::new(&request.messages)?;
        let options = RenderOptions {
            thinking: request.thinking,
            extra: request.template_vars.clone(),
            continue_last: continues,
            ..RenderOptions::default()
        };
        let tools: Vec<Value> = request.tools.iter().map(|tool| tool.declaration.clone()).collect();
        let render = |messages: &[Message], options: &RenderOptions| {
            template.prompt(&self.tokenizer, messages, &tools, options)
        };
        let mut prompt = render(&messages, &options)?;
        let is_whole = n_settled == messages.len();
        let n_settled = match self.opening(&prompt.ids).filter(|_| is_whole) {
            Some(opening) => opening,
            None => {
                let closed = RenderOptions { add_generation_prompt: false, continue_last: false, ..options };
                let mut settled = messages[..n_settled].to_vec();
                if settled.iter().all(|message| message.role == "system") {
                    // Templates want a question. What it shares with another one is settled.
                    settled.push(Message::user("?"));
                }
                common_prefix(&render(&settled, &closed)?.ids, &prompt.ids)
            }
        };
        warnings.append(&mut prompt.warnings);
        prompt.warnings = warnings;
        let no_calls = request.tool_choice == ToolChoice::None;
        let output = OutputSpec {
            thinking_open: prompt.thinking_open,
            continues,
            tools: if no_calls { Arc::default() } else { request.tools.clone().into() },
            call_format: template.call_format(),
            ..OutputSpec::default()
        };
        let n_settled = n_settled.min(prompt.ids.len() - 1);
        let has_thought = prompt.thinking_open || continues || prompt.text.trim_end().ends_with(THINK_CLOSE);
        let may_think = !has_thought && request.thinking != Some(false);
        let constraint = self.constraint(request, template.call_format(), may_think)?;
        Ok(Prepared { prompt, n_settled, output, constraint })
    }

    /// What holds an answer without a conversation to a form.
    ///
    /// # Errors
    /// The schema or grammar is wrong, too complex, or not supported.
    pub fn constrain(&self, response: &ResponseFormat) -> Result<Option<Constraint>, GenerateError> {
        let request = ChatRequest { response: response.clone(), ..ChatRequest::default() };
        self.constraint(&request, CallFormat::default(), false)
    }

    fn constraint(
        &self,
        request: &ChatRequest,
        call_format: CallFormat,
        may_think: bool,
    ) -> Result<Option<Constraint>, GenerateError> {
        if !is_constrained(request) {
            return Ok(None);
        }
        let grammars = self.grammars()?;
        let (tokenizer, stop_ids) = (&*self.tokenizer, &self.stop_ids[..]);
        constraint(request, &Basis { tokenizer, grammars, stop_ids, call_format, may_think })
    }

    fn grammars(&self) -> Result<&GrammarFactory, GenerateError> {
        let new = || GrammarFactory::new(self.tokenizer.clone()).map_err(|e| e.to_string());
        self.grammars.get_or_init(new).as_ref().map_err(|why| unusable("grammars", why))
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
