//! Whether a model thinks, and how long: the ways in which clients say so.

use crate::api::fields::Fields;
use crate::error::ApiError;

/// Tokens of thinking that a `reasoning_effort` stands for.
const EFFORTS: [(&str, Option<usize>); 6] = [
    ("minimal", Some(512)),
    ("low", Some(2048)),
    ("medium", Some(8192)),
    ("high", None),
    ("xhigh", None),
    ("max", None),
];

/// What a request, or the server, wants of thinking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// On or off; `None`: as the template has it.
    pub is_on: Option<bool>,
    /// Most tokens; `None`: no limit.
    pub budget: Option<usize>,
}

impl Thinking {
    pub(crate) const OFF: Self = Self { is_on: Some(false), budget: None };

    /// On, with at most so many tokens; none at all is off.
    pub(crate) fn of_budget(budget: Option<usize>) -> Self {
        match budget {
            Some(0) => Self::OFF,
            budget => Self { is_on: Some(true), budget },
        }
    }

    /// What a `reasoning_effort` means.
    pub(crate) fn of_effort(effort: &str) -> Option<Self> {
        if effort == "none" {
            return Some(Self::OFF);
        }
        EFFORTS.iter().find(|(name, _)| *name == effort).map(|&(_, budget)| Self::of_budget(budget))
    }

    /// Reads a chat request. Of several wishes the plainest wins: `enable_thinking`, then that of
    /// `chat_template_kwargs`, then `thinking`, `reasoning`, `reasoning_effort`; a budget of 0 is off whatever else is
    /// said.
    pub(crate) fn read(fields: &Fields<'_>, default: Self) -> Result<Self, ApiError> {
        let mut wish = default;
        if let Some(effort) = read_effort(fields, "reasoning_effort")? {
            wish = effort;
        }
        if let Some(reasoning) = fields.inner("reasoning")? {
            if let Some(effort) = read_effort(&reasoning, "effort")? {
                wish = effort;
            }
            if let Some(budget) = reasoning.count("max_tokens")? {
                wish = Self::of_budget(Some(budget));
            }
            wish.is_on = reasoning.bool("enabled")?.or(wish.is_on);
        }
        if let Some(thinking) = fields.inner("thinking")? {
            wish = match thinking.str("type")? {
                Some("disabled") => Self::OFF,
                Some("enabled" | "adaptive") => {
                    Self::of_budget(thinking.limit("budget_tokens")?.or(wish.budget))
                }
                _ => return Err(thinking.error("type", "must be enabled, adaptive or disabled")),
            };
        }
        let mut budget_field = fields.clone();
        if let Some(vars) = fields.inner("chat_template_kwargs")? {
            wish.is_on = vars.bool("enable_thinking")?.or(wish.is_on);
            if vars.value("thinking_budget").is_some() {
                budget_field = vars;
            }
        }
        wish.is_on = fields.bool("enable_thinking")?.or(wish.is_on);
        if budget_field.value("thinking_budget").is_some() {
            wish.budget = budget_field.limit("thinking_budget")?;
        }
        Ok(if wish.budget == Some(0) { Self::OFF } else { wish })
    }
}

fn read_effort(fields: &Fields<'_>, name: &str) -> Result<Option<Thinking>, ApiError> {
    let Some(effort) = fields.str(name)? else { return Ok(None) };
    let unknown = || fields.error(name, "must be none, minimal, low, medium, high, xhigh or max");
    Thinking::of_effort(effort).map(Some).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A client's switch would not switch (A31), or a budget of nothing would be no budget.
    #[test]
    fn every_spelling_is_understood() {
        let off = Thinking::OFF;
        let on = |budget| Thinking { is_on: Some(true), budget };
        let cases = [
            (json!({}), Thinking::default()),
            (json!({ "enable_thinking": false }), off),
            (json!({ "chat_template_kwargs": { "enable_thinking": false } }), off),
            (json!({ "reasoning_effort": "none" }), off),
            (json!({ "reasoning": { "effort": "none" } }), off),
            (json!({ "reasoning": { "enabled": false } }), off),
            (json!({ "reasoning": { "max_tokens": 0 } }), off),
            (json!({ "thinking": { "type": "disabled" } }), off),
            (json!({ "thinking": { "type": "enabled", "budget_tokens": 0 } }), off),
            (json!({ "thinking_budget": 0, "enable_thinking": true }), off),
            (json!({ "chat_template_kwargs": { "thinking_budget": 0 } }), off),
            (json!({ "reasoning_effort": "low" }), on(Some(2048))),
            (json!({ "reasoning_effort": "high" }), on(None)),
            (json!({ "reasoning_effort": "low", "thinking_budget": 7 }), on(Some(7))),
            (json!({ "reasoning_effort": "low", "thinking_budget": -1 }), on(None)),
            (json!({ "thinking": { "type": "enabled", "budget_tokens": 9 } }), on(Some(9))),
            (json!({ "enable_thinking": true, "reasoning_effort": "none" }), on(None)),
            (json!({ "enable_thinking": null, "reasoning_effort": null }), Thinking::default()),
        ];
        for (body, expected) in cases {
            let map = body.as_object().unwrap();
            let read = Thinking::read(&Fields::of(map), Thinking::default());
            assert_eq!(read.as_ref(), Ok(&expected), "{body}");
        }
        for (body, param) in [
            (json!({ "reasoning_effort": "huge" }), "reasoning_effort"),
            (json!({ "enable_thinking": "no" }), "enable_thinking"),
            (json!({ "thinking": true }), "thinking"),
            (json!({ "thinking": { "type": "off" } }), "thinking.type"),
            (json!({ "thinking_budget": -2 }), "thinking_budget"),
        ] {
            let error = Thinking::read(&Fields::of(body.as_object().unwrap()), off).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}");
        }
    }
}
