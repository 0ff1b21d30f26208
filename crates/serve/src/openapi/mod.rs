//! The OpenAPI document: every address, what it takes and what it answers.
//!
//! Requests are read field by field, so that mistakes are named and `null` is nothing. What they may hold is described
//! in [`requests`], what the OpenAI API answers in [`answers`], and other answers where they are made.

mod answers;
mod requests;

use axum::Json;
use serde_json::{Value, json};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoResponses, Modify, OpenApi};

use crate::api::{anthropic, responses};
use answers::{ChatCompletion, Completion, Detokenized, Error, Health, Model, ModelList, Tokenized};

/// Tells the document.
pub(crate) async fn openapi() -> Json<Value> {
    Json(document())
}

fn document() -> Value {
    let mut document = serde_json::to_value(Document::openapi()).expect("the document is JSON");
    let streams = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    for stream in
        streams.filter_map(|path| path.pointer_mut("/post/responses/200/content/text~1event-stream"))
    {
        describe_events(&mut stream["schema"]);
    }
    document
}

/// What stands for the data of an event becomes the event as it is sent: a name, if it has one, and JSON text.
fn describe_events(schema: &mut Value) {
    let mut data = json!({ "type": "string" });
    if schema.get("$ref").is_some() {
        data["contentMediaType"] = "application/json".into();
        data["contentSchema"] = schema.take();
    }
    let event = json!({ "type": "string" });
    *schema =
        json!({ "type": "object", "required": ["data"], "properties": { "event": event, "data": data } });
}

#[derive(OpenApi)]
#[openapi(
    info(title = "flash-moe", description = "One model through the OpenAI and Anthropic APIs", license(identifier = "MIT OR Apache-2.0")),
    paths(
        chat_completions, completions, responses_, embeddings, messages, count_tokens, models, model, tokenize,
        detokenize, health, metrics, openapi_json
    ),
    components(schemas(Error, anthropic::ErrorBody)),
    modifiers(&Keys),
    security((), ("bearer" = []), ("x_api_key" = []))
)]
struct Document;

/// Both ways to send a key, for servers that want one.
struct Keys;

impl Modify for Keys {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let x_api_key = ApiKey::Header(ApiKeyValue::new("x-api-key"));
        components.add_security_scheme("x_api_key", SecurityScheme::ApiKey(x_api_key));
    }
}

/// What may go wrong anywhere, in the shape of the OpenAI API.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only describes")]
enum Errors {
    /// The request is wrong, or asks for what there is not.
    #[response(status = 400)]
    Invalid(Error),
    /// The key is missing or wrong.
    #[response(status = 401)]
    Unauthorized(Error),
    /// Not from this web page, or not by this name of the server.
    #[response(status = 403)]
    Forbidden(Error),
    /// There is no such address or model.
    #[response(status = 404)]
    NotFound(Error),
    /// The body did not come in time.
    #[response(status = 408)]
    BodyTimeOut(Error),
    /// The body is too long.
    #[response(status = 413)]
    TooLarge(Error),
    /// The queue is full: try again after `Retry-After` seconds.
    #[response(status = 429)]
    Busy(Error),
    /// The server failed.
    #[response(status = 500)]
    Internal(Error),
    /// The server ends.
    #[response(status = 503)]
    ShuttingDown(Error),
    /// The answer took too long.
    #[response(status = 504)]
    TimeOut(Error),
}

/// The same in the shape of Anthropic's API.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only describes")]
enum AnthropicErrors {
    /// `invalid_request_error`
    #[response(status = 400)]
    Invalid(anthropic::ErrorBody),
    /// `authentication_error`
    #[response(status = 401)]
    Unauthorized(anthropic::ErrorBody),
    /// `permission_error`
    #[response(status = 403)]
    Forbidden(anthropic::ErrorBody),
    /// `timeout_error`
    #[response(status = 408)]
    BodyTimeOut(anthropic::ErrorBody),
    /// `request_too_large`
    #[response(status = 413)]
    TooLarge(anthropic::ErrorBody),
    /// `rate_limit_error`: the queue is full, try again after `Retry-After` seconds.
    #[response(status = 429)]
    Busy(anthropic::ErrorBody),
    /// `api_error`
    #[response(status = 500)]
    Internal(anthropic::ErrorBody),
    /// `overloaded_error`: the server ends.
    #[response(status = 503)]
    ShuttingDown(anthropic::ErrorBody),
    /// `timeout_error`
    #[response(status = 504)]
    TimeOut(anthropic::ErrorBody),
}

/// A function whose only use is its description.
macro_rules! describe {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[expect(dead_code, reason = "only describes")]
        fn $name() {}
    };
}

describe! {
    /// The next message of a conversation. With `stream`, chunks as server-sent events that end with `[DONE]`.
    #[utoipa::path(
        post, path = "/v1/chat/completions", tag = "OpenAI", request_body = requests::ChatCompletionRequest,
        responses(
            (status = 200, content((ChatCompletion = "application/json"), (String = "text/event-stream"))),
            Errors
        )
    )]
    chat_completions
}

describe! {
    /// What follows a text, without a chat template.
    #[utoipa::path(
        post, path = "/v1/completions", tag = "OpenAI", request_body = requests::CompletionRequest,
        responses(
            (status = 200, content((Completion = "application/json"), (String = "text/event-stream"))),
            Errors
        )
    )]
    completions
}

describe! {
    /// What follows a conversation, as items. Nothing is stored.
    #[utoipa::path(
        post, path = "/v1/responses", tag = "OpenAI", operation_id = "responses",
        request_body = requests::ResponsesRequest,
        responses(
            (status = 200, content(
                (responses::Response = "application/json"),
                (responses::Event = "text/event-stream")
            )),
            Errors
        )
    )]
    responses_
}

describe! {
    /// Refused: this model generates text.
    #[utoipa::path(post, path = "/v1/embeddings", tag = "OpenAI", responses(Errors))]
    embeddings
}

describe! {
    /// The next message of a conversation. With `stream`, Anthropic's events.
    #[utoipa::path(
        post, path = "/v1/messages", tag = "Anthropic", request_body = requests::MessagesRequest,
        responses(
            (status = 200, content(
                (anthropic::Message = "application/json"),
                (anthropic::Event = "text/event-stream")
            )),
            AnthropicErrors
        )
    )]
    messages
}

describe! {
    /// The number of tokens of a prompt.
    #[utoipa::path(
        post, path = "/v1/messages/count_tokens", tag = "Anthropic", request_body = requests::CountTokensRequest,
        responses((status = 200, body = anthropic::TokenCount), AnthropicErrors)
    )]
    count_tokens
}

describe! {
    /// All names of the model. With the header `anthropic-version`, in the shape of Anthropic's API.
    #[utoipa::path(get, path = "/v1/models", responses((status = 200, body = ModelList), Errors))]
    models
}

describe! {
    /// One of them.
    #[utoipa::path(
        get, path = "/v1/models/{name}", params(("name" = String, Path, description = "May have slashes")),
        responses((status = 200, body = Model), Errors)
    )]
    model
}

describe! {
    /// The tokens of a text, or of the prompt that a conversation becomes.
    #[utoipa::path(
        post, path = "/tokenize", request_body = requests::TokenizeRequest,
        responses((status = 200, body = Tokenized), Errors)
    )]
    tokenize
}

describe! {
    /// The text of tokens.
    #[utoipa::path(
        post, path = "/detokenize", request_body = requests::DetokenizeRequest,
        responses((status = 200, body = Detokenized), Errors)
    )]
    detokenize
}

describe! {
    /// Is the server there?
    #[utoipa::path(
        get, path = "/health",
        responses(
            (status = 200, body = Health),
            (status = 400, description = "There is no sound Host header", body = Error),
            (status = 403, description = "Not by this name of the server", body = Error),
            (status = 503, description = "The server ends", body = Health)
        )
    )]
    health
}

describe! {
    /// Numbers for Prometheus.
    #[utoipa::path(
        get, path = "/metrics",
        responses((status = 200, body = String, content_type = "application/openmetrics-text"), Errors)
    )]
    metrics
}

describe! {
    /// This document.
    #[utoipa::path(get, path = "/openapi.json", responses((status = 200, body = Object), Errors))]
    openapi_json
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks a document for references.
    fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    /// Tools that check streams would compare an event's frame with what is in its data.
    #[test]
    fn streams_are_described_as_events() {
        let document = document();
        for (path, data) in [
            ("/v1/chat/completions", json!({ "type": "string" })),
            ("/v1/completions", json!({ "type": "string" })),
            ("/v1/responses", described("ResponseEvent")),
            ("/v1/messages", described("AnthropicEvent")),
        ] {
            let content = &document["paths"][path]["post"]["responses"]["200"]["content"];
            let schema = &content["text/event-stream"]["schema"];
            assert_eq!((&schema["type"], &schema["properties"]["data"]), (&json!("object"), &data), "{path}");
        }
    }

    fn described(name: &str) -> Value {
        let schema = json!({ "$ref": format!("#/components/schemas/{name}") });
        json!({ "type": "string", "contentMediaType": "application/json", "contentSchema": schema })
    }

    /// Tools that read the document would find nothing where it points to.
    #[test]
    fn references_lead_somewhere() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(30 < found.len(), "{}", found.len());
        let leads = |reference: &str| document.pointer(reference.trim_start_matches('#')).is_some();
        found.retain(|reference| !leads(reference));
        assert_eq!(found, [""; 0]);
    }
}
