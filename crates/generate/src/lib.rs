//! From a conversation to token ids, and from logits to text.
//!
//! Owns: tokenizer, chat template, sampling, stopping, the split into thinking and answer. Everything a
//! checkpoint brings for this (tokenizer.json, template, generation config) arrives as bytes. This crate sees
//! token ids and logits only, through [`model::TokenModel`]; it must not know paths, tensors or devices.
#![forbid(unsafe_code)]

mod call_grammar;
mod config;
mod constraint;
mod conversation;
mod course;
mod error;
mod generate;
mod generation;
mod grammar;
mod guard;
mod message;
mod output;
mod python;
mod request;
mod sample;
mod stop_text;
mod stream;
mod template;
mod text_model;
mod thinking;
mod tokenizer;
mod tool;
mod way_out;

pub use config::{GenerationConfig, stop_ids};
pub use constraint::Constraint;
pub use error::GenerateError;
pub use generate::{CallEvent, Event, Outcome, common_prefix, generate};
pub use generation::{Finish, GenerateOptions, Generation, Next};
pub use message::{Content, FunctionCall, Message, ToolCall, placeholder};
pub use output::AnswerReader;
pub use request::{ChatRequest, OutputSpec, Prepared, ResponseFormat};
pub use sample::{Sampler, SamplingOverrides, SamplingParams, TokenLogprob};
pub use stream::TextStream;
pub use template::{ChatTemplate, Prompt, RenderOptions};
pub use text_model::{TextFiles, TextModel};
pub use thinking::{Channel, ThinkSplitter};
pub use tokenizer::{AddedToken, Tokenizer};
pub use tool::{CallFormat, Tool, ToolChoice};
