//! From a conversation to token ids, and from logits to text.
//!
//! Owns: tokenizer, chat template, sampling, stopping, the split into thinking and answer. Everything a
//! checkpoint brings for this (tokenizer.json, template, generation config) arrives as bytes. This crate sees
//! token ids and logits only, through [`model::TokenModel`]; it must not know paths, tensors or devices.
#![forbid(unsafe_code)]

mod config;
mod error;
mod generate;
mod guard;
mod message;
mod python;
mod sample;
mod stream;
mod template;
mod thinking;
mod tokenizer;

pub use config::{GenerationConfig, stop_ids};
pub use error::GenerateError;
pub use generate::{Event, Finish, GenerateOptions, Outcome, common_prefix, generate};
pub use message::{Content, FunctionCall, Message, ToolCall};
pub use sample::{Sampler, SamplingOverrides, SamplingParams};
pub use stream::TextStream;
pub use template::{ChatTemplate, Prompt, RenderOptions};
pub use thinking::{Channel, ThinkSplitter};
pub use tokenizer::{AddedToken, Tokenizer};
