//! Fields that chat and completions share.

use std::str::FromStr;

use generate::{ResponseFormat, SamplingOverrides};
use serde_json::Value;

use crate::api::answer::Wishes;
use crate::api::fields::{Fields, wrong};
use crate::app::ServeOptions;
use crate::engine::CacheHint;
use crate::error::ApiError;
use crate::limits::Limits;

/// Fields of the API's own past, or of other servers, that would change the answer if they were understood.
const REFUSED: [(&str, &str); 5] = [
    ("functions", "is the old form: use tools"),
    ("function_call", "is the old form: use tool_choice"),
    ("grammar", "is not supported: use response_format with type lark or regex"),
    ("audio", "is not supported: answers are text"),
    ("prediction", "is not supported"),
];

/// Of a client's name for a conversation, which is kept with its session.
const CACHE_KEY_CHARS_MAX: usize = 256;

/// What chat and completions have in common.
pub(crate) fn wishes(fields: &Fields<'_>, options: &ServeOptions) -> Result<Wishes, ApiError> {
    for (name, what) in REFUSED {
        if fields.value(name).is_some() {
            return Err(fields.error(name, what));
        }
    }
    let limits = &options.limits;
    let n_choice = fields.count("n")?.unwrap_or(1);
    if n_choice == 0 || limits.n_choice < n_choice {
        return Err(fields.error("n", format!("is {n_choice}, it must be 1 to {}", limits.n_choice)));
    }
    // The newer name wins.
    let max_tokens = fields.limit("max_tokens")?;
    let max_tokens = match fields.value("max_completion_tokens") {
        Some(_) => fields.limit("max_completion_tokens")?,
        None => max_tokens,
    };
    Ok(Wishes {
        sampling: sampling(fields)?,
        logit_bias: logit_bias(fields, options)?,
        stop_texts: stop_texts(fields, limits)?,
        max_tokens,
        n_choice,
        wants_progress: fields.bool("return_progress")?.unwrap_or(false),
        wants_timings: fields.bool("timings_per_token")?.unwrap_or(false),
        close_at_limit: fields.bool("close_at_limit")?.unwrap_or(false),
        ignores_stop_ids: fields.bool("ignore_eos")?.unwrap_or(false),
        hint: cache_hint(fields)?,
        ..Wishes::default()
    })
}

/// What the client says about what it will ask next.
pub(crate) fn cache_hint(fields: &Fields<'_>) -> Result<CacheHint, ApiError> {
    let key = fields.str("prompt_cache_key")?.map(|key| key.chars().take(CACHE_KEY_CHARS_MAX).collect());
    Ok(CacheHint { key, is_marked: fields.str("prompt_cache_retention")?.is_some() })
}

fn sampling(fields: &Fields<'_>) -> Result<SamplingOverrides, ApiError> {
    let repetition = fields.f32("repetition_penalty")?;
    Ok(SamplingOverrides {
        temperature: fields.f32("temperature")?,
        // -1 is how vLLM says that all tokens stay.
        top_k: match fields.i64("top_k")? {
            Some(-1) => Some(0),
            _ => fields.count("top_k")?,
        },
        top_p: fields.f32("top_p")?,
        min_p: fields.f32("min_p")?,
        presence_penalty: fields.f32("presence_penalty")?,
        frequency_penalty: fields.f32("frequency_penalty")?,
        repetition_penalty: if repetition.is_some() { repetition } else { fields.f32("repeat_penalty")? },
        seed: fields.i64("seed")?.map(|seed| seed as u64),
    })
}

fn logit_bias(fields: &Fields<'_>, options: &ServeOptions) -> Result<Vec<(u32, f32)>, ApiError> {
    let Some(map) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    Limits::check("logit_bias", map.len(), options.limits.n_logit_bias)?;
    let entry = |(id, bias): (&String, &Value)| {
        let id = u32::from_str(id).ok().filter(|&id| (id as usize) < options.n_vocab);
        let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        match (id, bias) {
            (Some(id), Some(bias)) => Ok((id, bias as f32)),
            (None, _) => {
                Err(fields.error("logit_bias", format!("keys must be token ids below {}", options.n_vocab)))
            }
            (_, None) => Err(fields.error("logit_bias", "values must be numbers from -100 to 100")),
        }
    };
    map.iter().map(entry).collect()
}

fn stop_texts(fields: &Fields<'_>, limits: &Limits) -> Result<Vec<String>, ApiError> {
    let texts = match fields.value("stop") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(texts)) => {
            let text = |(i, text): (usize, &Value)| match text {
                Value::String(text) => Ok(text.clone()),
                other => Err(wrong(&format!("stop[{i}]"), "a string", other)),
            };
            texts.iter().enumerate().map(text).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong("stop", "a string or an array of strings", other)),
    };
    Limits::check("stop", texts.len(), limits.n_stop)?;
    if texts.iter().any(|text| limits.stop_bytes < text.len()) {
        return Err(fields.error("stop", format!("a text is longer than {} bytes", limits.stop_bytes)));
    }
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// What the answer's text must be: `response_format`, or vLLM's names for the same (`structured_outputs`, `guided_json`
/// and so on). A Lark grammar is what vLLM calls a grammar.
pub(crate) fn response_format(fields: &Fields<'_>, limits: &Limits) -> Result<ResponseFormat, ApiError> {
    let format = match fields.inner("response_format")? {
        Some(format) => declared_format(&format)?,
        None => ResponseFormat::Text,
    };
    if format != ResponseFormat::Text {
        return check_size(format, limits);
    }
    let guided = |name: &str| format!("guided_{name}");
    let found = match fields.inner("structured_outputs")? {
        Some(outputs) => guided_format(&outputs, &str::to_owned)?,
        None => guided_format(fields, &guided)?,
    };
    let found = match found {
        None => fields.object("json_schema")?.map(|schema| ResponseFormat::JsonSchema(schema.clone().into())),
        found => found,
    };
    check_size(found.unwrap_or_default(), limits)
}

fn declared_format(format: &Fields<'_>) -> Result<ResponseFormat, ApiError> {
    let text = |names: [&str; 2]| match (format.str(names[0])?, format.str(names[1])?) {
        (Some(text), _) | (None, Some(text)) => Ok(text.to_owned()),
        (None, None) => Err(format.error(names[0], "is missing")),
    };
    Ok(match format.str("type")? {
        Some("text") => ResponseFormat::Text,
        Some("json_object") => match format.value("schema") {
            None => ResponseFormat::JsonObject,
            Some(schema) => ResponseFormat::JsonSchema(schema.clone()),
        },
        Some("json_schema") => {
            let inner = format.inner("json_schema")?.unwrap_or_else(|| format.clone());
            match inner.value("schema") {
                Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
                    ResponseFormat::JsonSchema(schema.clone())
                }
                Some(other) => return Err(wrong(&inner.path("schema"), "a JSON schema", other)),
                None => return Err(inner.error("schema", "is missing")),
            }
        }
        Some("regex") => ResponseFormat::Regex(text(["pattern", "regex"])?),
        Some("lark" | "grammar") => ResponseFormat::Lark(text(["grammar", "lark"])?),
        _ => return Err(format.error("type", "must be text, json_object, json_schema, regex or lark")),
    })
}

fn guided_format(
    fields: &Fields<'_>,
    name: &dyn Fn(&str) -> String,
) -> Result<Option<ResponseFormat>, ApiError> {
    if let Some(schema) = fields.value(&name("json")) {
        let parsed = match schema {
            Value::String(text) => {
                serde_json::from_str(text).map_err(|error| fields.error(&name("json"), error))?
            }
            schema => schema.clone(),
        };
        return Ok(Some(ResponseFormat::JsonSchema(parsed)));
    }
    if let Some(choices) = fields.array(&name("choice"))? {
        return choice(fields, &name("choice"), choices).map(Some);
    }
    if let Some(regex) = fields.str(&name("regex"))? {
        return Ok(Some(ResponseFormat::Regex(regex.to_owned())));
    }
    Ok(fields.str(&name("grammar"))?.map(|grammar| ResponseFormat::Lark(grammar.to_owned())))
}

/// One of some texts, as a regular expression.
fn choice(fields: &Fields<'_>, name: &str, choices: &[Value]) -> Result<ResponseFormat, ApiError> {
    let text = |value: &Value| value.as_str().map(escaped);
    let texts: Option<Vec<String>> = choices.iter().map(text).collect();
    match texts {
        Some(texts) if !texts.is_empty() => Ok(ResponseFormat::Regex(format!("({})", texts.join("|")))),
        _ => Err(fields.error(name, "must be an array of strings, at least one")),
    }
}

/// A regular expression that matches this text only.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn check_size(format: ResponseFormat, limits: &Limits) -> Result<ResponseFormat, ApiError> {
    let n_byte = match &format {
        ResponseFormat::Text | ResponseFormat::JsonObject => 0,
        ResponseFormat::JsonSchema(schema) => schema.to_string().len(),
        ResponseFormat::Regex(text) | ResponseFormat::Lark(text) => text.len(),
    };
    if limits.grammar_bytes < n_byte {
        let what =
            format!("the schema or grammar has {n_byte} bytes, at most {} are read", limits.grammar_bytes);
        return Err(ApiError::field("response_format", what));
    }
    Ok(format)
}
