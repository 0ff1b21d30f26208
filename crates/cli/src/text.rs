//! What turns text into tokens and back, as it came with the model.

use std::hash::{BuildHasher, Hasher, RandomState};

use generate::{
    ChatTemplate, GenerateError, GenerationConfig, Message, Prompt, RenderOptions, SamplingOverrides,
    SamplingParams, Tokenizer, stop_ids,
};
use serde_json::Value;
use store::Store;

use crate::error::CliError;
use crate::flags::{OnOff, SamplingFlags};
use crate::output::note;

/// Tokenizer, template and generation config of a store.
pub(crate) struct TextModel {
    pub(crate) tokenizer: Tokenizer,
    /// Tokens that end an answer.
    pub(crate) stop_ids: Vec<u32>,
    template: Result<ChatTemplate, GenerateError>,
    config: Option<GenerationConfig>,
}

impl TextModel {
    /// Reads the sidecars. A missing or broken template is an error only for those who want it.
    pub(crate) fn load(store: &Store) -> anyhow::Result<Self> {
        let Some(tokenizer) = store.sidecar("tokenizer.json")? else {
            return Err(CliError::NoTokenizer { model: store.location() }.into());
        };
        let tokenizer_config = store.sidecar("tokenizer_config.json")?;
        let jinja = store.sidecar("chat_template.jinja")?;
        let config = store.sidecar("generation_config.json")?;
        let config = config.map(|json| GenerationConfig::from_bytes(&json)).transpose()?;
        let tokenizer = Tokenizer::from_bytes(&tokenizer, tokenizer_config.as_deref())?;
        Ok(Self {
            stop_ids: stop_ids(config.as_ref(), &tokenizer),
            template: ChatTemplate::from_sources(jinja.as_deref(), tokenizer_config.as_deref()),
            tokenizer,
            config,
        })
    }

    /// Refuses early, before the weights are loaded, if there is no template.
    pub(crate) fn check_template(self) -> Result<Self, GenerateError> {
        match self.template {
            Err(error) => Err(error),
            Ok(_) => Ok(self),
        }
    }

    /// Renders a conversation up to where the assistant goes on.
    pub(crate) fn prompt(
        &self,
        messages: &[Message],
        tools: &[Value],
        options: &RenderOptions,
    ) -> anyhow::Result<Prompt> {
        let Ok(template) = &self.template else {
            return Err(GenerateError::NoTemplate.into());
        };
        let prompt = template.prompt(&self.tokenizer, messages, tools, options)?;
        for warning in &prompt.warnings {
            note(format_args!("note: {warning}"));
        }
        Ok(prompt)
    }

    /// Tokens of a prompt that is already in the model's own form.
    pub(crate) fn raw_prompt(&self, text: String) -> anyhow::Result<Prompt> {
        let ids = self.tokenizer.encode(&text)?;
        Ok(Prompt { text, ids, thinking_open: false, warnings: Vec::new() })
    }

    /// The model's defaults with what the user wants; a random seed if none is given.
    pub(crate) fn sampling(&self, flags: &SamplingFlags) -> Result<SamplingParams, CliError> {
        let user = SamplingOverrides {
            temperature: flags.temperature,
            top_k: flags.top_k,
            top_p: flags.top_p,
            min_p: flags.min_p,
            presence_penalty: flags.presence_penalty,
            frequency_penalty: flags.frequency_penalty,
            repetition_penalty: flags.repetition_penalty,
            seed: Some(flags.seed.unwrap_or_else(random_seed)),
        };
        SamplingParams::resolve(self.config.as_ref(), &user)
            .map_err(|error| CliError::Usage(error.to_string()))
    }
}

/// `--think` for the template.
pub(crate) fn render_options(think: Option<OnOff>) -> RenderOptions {
    RenderOptions { thinking: think.map(|think| think == OnOff::On), ..RenderOptions::default() }
}

/// Differs from run to run; short enough to be typed again. (The standard library seeds its hashers at random.)
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}
