//! What turns text into tokens and back, as it came with the model.

use std::hash::{BuildHasher, Hasher, RandomState};

use generate::{Prepared, SamplingOverrides, SamplingParams, TextFiles, TextModel};
use store::Store;

use crate::error::CliError;
use crate::flags::{OnOff, SamplingFlags};
use crate::output::note;

/// Tokenizer, template and generation config of a store.
pub(crate) fn load(store: &Store) -> anyhow::Result<TextModel> {
    let Some(tokenizer) = store.sidecar("tokenizer.json")? else {
        return Err(CliError::NoTokenizer { model: store.location() }.into());
    };
    let [tokenizer_config, chat_template, generation_config] =
        ["tokenizer_config.json", "chat_template.jinja", "generation_config.json"].map(|f| store.sidecar(f));
    let (tokenizer_config, chat_template) = (tokenizer_config?, chat_template?);
    let generation_config = generation_config?;
    Ok(TextModel::new(TextFiles {
        tokenizer: &tokenizer,
        tokenizer_config: tokenizer_config.as_deref(),
        chat_template: chat_template.as_deref(),
        generation_config: generation_config.as_deref(),
    })?)
}

/// Tells oddities of the conversation that were smoothed over.
pub(crate) fn tell_warnings(prepared: &Prepared) {
    for warning in &prepared.prompt.warnings {
        note(format_args!("note: {warning}"));
    }
}

/// The model's defaults with what the user wants; a random seed if none is given.
pub(crate) fn sampling(text: &TextModel, flags: &SamplingFlags) -> Result<SamplingParams, CliError> {
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
    text.sampling(&user).map_err(|error| CliError::Usage(error.to_string()))
}

/// `--think` for the template.
pub(crate) fn thinking(think: Option<OnOff>) -> Option<bool> {
    think.map(|think| think == OnOff::On)
}

/// Differs from run to run; short enough to be typed again. (The standard library seeds its hashers at random.)
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}
