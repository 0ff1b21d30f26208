//! `POST /tokenize` and `/detokenize`: what text is to the model, in the forms of llama.cpp and vLLM.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::chat;
use super::completions::token_ids;
use crate::api::answer::Source;
use crate::api::fields::Fields;
use crate::app::App;
use crate::error::ApiError;
use crate::limits::JsonBody;
use crate::off_thread::off_thread;

/// Tokens of `content` or `prompt` (a text in which special tokens count, unless `parse_special` is false), or of the
/// prompt that `messages` become.
pub(crate) async fn tokenize(
    State(app): State<App>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, ApiError> {
    off_thread(move || tokens(&app, &body)).await.map(Json)
}

fn tokens(app: &App, body: &serde_json::Map<String, Value>) -> Result<Value, ApiError> {
    let fields = Fields::of(body);
    let text = match fields.str("content")? {
        None => fields.str("prompt")?,
        text => text,
    };
    let tokenizer = app.text().tokenizer();
    let ids = match text {
        Some(text) if fields.bool("parse_special")? == Some(false) => tokenizer.encode_text(text)?,
        Some(text) => tokenizer.encode(text)?,
        None if fields.value("messages").is_some() => {
            let (chat, wishes) = chat::read(&fields, app)?;
            app.prompt(Source::Chat(Box::new(chat)), wishes.thinking.is_on)?.prompt.ids
        }
        None => return Err(fields.error("content", "is missing: content, prompt or messages is needed")),
    };
    let mut result = json!({ "count": ids.len(), "max_model_len": app.options().n_ctx, "tokens": ids });
    if fields.bool("with_pieces")?.unwrap_or(false) {
        let piece = |&id: &u32| json!({ "id": id, "piece": tokenizer.decode(&[id], false) });
        result["tokens"] = ids.iter().map(piece).collect();
    }
    Ok(result)
}

/// The text of `tokens`.
pub(crate) async fn detokenize(
    State(app): State<App>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, ApiError> {
    let decode = move || {
        let fields = Fields::of(&body);
        let Some(values) = fields.array("tokens")? else { return Err(fields.error("tokens", "is missing")) };
        Ok(app.text().tokenizer().decode(&token_ids("tokens", values)?, false))
    };
    let text = off_thread(decode).await?;
    Ok(Json(json!({ "content": text, "prompt": text })))
}
