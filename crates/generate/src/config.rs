//! What a checkpoint says about its own generation: generation_config.json, and which tokens end a turn.

use serde::Deserialize;

use crate::error::GenerateError;
use crate::sample::SamplingParams;
use crate::tokenizer::Tokenizer;

/// Tokens that end the model's turn wherever a tokenizer has them, listed as end tokens or not: files are
/// often incomplete, and a model that opens a new turn by itself has finished its own.
const TURN_ENDS: [&str; 3] = ["<|im_end|>", "<|endoftext|>", "<|im_start|>"];

/// The fields of generation_config.json that matter here; all are optional.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct GenerationConfig {
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    eos_token_id: Option<OneOrMany>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u32),
    Many(Vec<u32>),
}

impl GenerationConfig {
    /// Reads generation_config.json.
    pub fn from_bytes(json: &[u8]) -> Result<Self, GenerateError> {
        let file = "generation_config.json";
        let config: Self =
            serde_json::from_slice(json).map_err(|e| GenerateError::Json { file, why: e.to_string() })?;
        config.sampling().validate()?;
        Ok(config)
    }

    /// The sampling that the checkpoint asks for: greedy if it says `"do_sample": false`; what it does not
    /// say is as in [`SamplingParams::default`].
    pub fn sampling(&self) -> SamplingParams {
        let default = SamplingParams::default();
        let temperature = self.temperature.unwrap_or(default.temperature);
        SamplingParams {
            temperature: if self.do_sample == Some(false) { 0.0 } else { temperature },
            top_p: self.top_p.unwrap_or(default.top_p),
            top_k: self.top_k.unwrap_or(default.top_k),
            min_p: self.min_p.unwrap_or(default.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(default.repetition_penalty),
            ..default
        }
    }

    /// The declared end tokens.
    pub fn eos_ids(&self) -> &[u32] {
        match &self.eos_token_id {
            None => &[],
            Some(OneOrMany::One(id)) => std::slice::from_ref(id),
            Some(OneOrMany::Many(ids)) => ids,
        }
    }
}

/// All tokens that end an answer: those of the generation config, and the tokenizer's own ends of turn, which
/// are stops even if the config lists only some of them or is missing. Sorted, without repeats.
pub fn stop_ids(config: Option<&GenerationConfig>, tokenizer: &Tokenizer) -> Vec<u32> {
    let declared = config.map(GenerationConfig::eos_ids).unwrap_or_default();
    let added = tokenizer.added_tokens().iter();
    let own = added.filter(|t| TURN_ENDS.contains(&t.content.as_str())).map(|t| t.id);
    let mut ids: Vec<u32> = declared.iter().copied().chain(own).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
