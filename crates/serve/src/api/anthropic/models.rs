//! The list of models as Anthropic's clients want it, on the same addresses as OpenAI's.

use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;

/// Only clients of Anthropic's API send it.
const VERSION_HEADER: &str = "anthropic-version";

/// All models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicModelList)]
pub(crate) struct ModelList {
    data: Vec<ModelInfo>,
    /// Always false: they are all here.
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

/// A model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = AnthropicModelInfo)]
pub(crate) struct ModelInfo {
    id: String,
    /// `model`
    r#type: &'static str,
    display_name: String,
    /// When the server was started, in the form of RFC 3339.
    created_at: String,
    /// `active`
    lifecycle: &'static str,
    /// The context.
    max_input_tokens: usize,
    /// Most tokens of an answer.
    max_tokens: usize,
}

/// Does the request come from a client of Anthropic's API?
pub(crate) fn is_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION_HEADER)
}

/// All names of the one model.
pub(crate) fn models(app: &App) -> ModelList {
    let names = &app.options().names;
    let data = names.iter().map(|name| model(app, name)).collect();
    ModelList { data, has_more: false, first_id: names.first().cloned(), last_id: names.last().cloned() }
}

/// One of them.
pub(crate) fn model(app: &App, name: &str) -> ModelInfo {
    let options = app.options();
    ModelInfo {
        id: name.to_owned(),
        r#type: "model",
        display_name: name.to_owned(),
        created_at: rfc3339(app.started_s()),
        lifecycle: "active",
        max_input_tokens: options.n_ctx,
        max_tokens: options.max_tokens.unwrap_or(options.n_ctx),
    }
}

/// Seconds since 1970 as date and time, in UTC.
fn rfc3339(time_s: u64) -> String {
    let (days, second) = (time_s / 86_400, time_s % 86_400);
    // The Gregorian calendar from 1 March of the year 0 on: leap days come last then, and every 400 years are alike.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // Clients parse the date, and refuse the whole list if there is no such day.
        for (time_s, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_796_000_000, "2026-11-30T00:53:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(time_s), expected);
        }
    }
}
