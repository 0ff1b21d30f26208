//! What an answer is held to: from a request to a grammar over tokens.

use std::fmt;
use std::sync::Arc;

use llguidance::regex_to_lark;
use serde_json::{Value, json};

use crate::call_grammar::{CallGrammar, Calls, Care};
use crate::error::GenerateError;
use crate::grammar::{Grammar, GrammarFactory, check_schema, check_text, unusable};
use crate::request::{ChatRequest, ResponseFormat};
use crate::tokenizer::Tokenizer;
use crate::tool::{CallFormat, ToolChoice};

/// White space between parts of an answer's JSON: a space, or a new line and its indentation. Bounded, because
/// models of few bits like to go on with it for ever.
const JSON_SPACE: &str = r"( |\n[ \t]{0,32})";

/// What an answer is held to. Cheap to clone; thinking is always free.
#[derive(Clone)]
pub struct Constraint {
    inner: Arc<Inner>,
}

struct Inner {
    /// `None`: only `banned` counts.
    grammar: Option<Arc<Grammar>>,
    start: Start,
    /// Where calls begin: the text, and what of the grammar it stands for. The first is the regular one; others
    /// count at the start of a line.
    call_starts: Vec<(String, String)>,
    /// Tokens that are never chosen outside the grammar.
    banned: Vec<u32>,
    /// The answer may begin with this token, which opens thinking.
    think: Option<u32>,
    /// What ends an answer that cannot go on.
    end_id: u32,
}

/// Where the grammar begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With the answer.
    Answer,
    /// Where the model begins a call; before that it is free.
    Call,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { grammar, start, call_starts, banned, think, .. } = &*self.inner;
        let mut out = f.debug_struct("Constraint");
        let out = out.field("grammar", &grammar.is_some()).field("start", start);
        out.field("call_starts", call_starts).field("banned", banned).field("think", think).finish()
    }
}

impl Constraint {
    pub(crate) fn grammar(&self) -> Option<&Grammar> {
        self.inner.grammar.as_deref()
    }

    /// Where the grammar begins, if there is one.
    pub(crate) fn start(&self) -> Option<Start> {
        self.inner.grammar.as_ref().map(|_| self.inner.start)
    }

    pub(crate) fn call_starts(&self) -> &[(String, String)] {
        &self.inner.call_starts
    }

    pub(crate) fn banned(&self) -> &[u32] {
        &self.inner.banned
    }

    pub(crate) fn think(&self) -> Option<u32> {
        self.inner.think
    }

    pub(crate) fn end_id(&self) -> u32 {
        self.inner.end_id
    }
}

/// What of a model a constraint needs.
pub(crate) struct Basis<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) grammars: &'a GrammarFactory,
    pub(crate) stop_ids: &'a [u32],
    pub(crate) call_format: CallFormat,
    /// The prompt has not settled whether the model thinks.
    pub(crate) may_think: bool,
}

/// Whether [`constraint`] has anything to do, which takes a factory.
pub(crate) fn is_constrained(request: &ChatRequest) -> bool {
    let is_called = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_));
    is_called || request.response != ResponseFormat::Text || !request.tools.is_empty()
}

/// What a request holds its answer to.
///
/// # Errors
/// A schema or grammar is wrong, too complex, or not supported; a call is wanted of a tool that is not there.
pub(crate) fn constraint(
    request: &ChatRequest,
    basis: &Basis<'_>,
) -> Result<Option<Constraint>, GenerateError> {
    let answer = answer_rule(&request.response)?;
    let calls = CallGrammar::new(request, basis, Care::Plain)?;
    let opener = basis.tokenizer.token_id(CallFormat::OPEN);
    let is_banned = request.tool_choice == ToolChoice::None && !request.tools.is_empty();
    let banned: Vec<u32> = opener.filter(|_| is_banned).into_iter().collect();
    if let (Some(Answer::Lark(_)), Some(_)) = (&answer, &calls) {
        let why = "it cannot be combined with tools; set tool_choice to none";
        return Err(unusable(what(&request.response), why));
    }
    let grammar = match (grammar_source(answer.as_ref(), calls.as_ref()), &calls) {
        (None, _) => None,
        (Some(lark), None) => Some(basis.grammars.compile(what(&request.response), &lark, &[])?),
        (Some(lark), Some(_)) => {
            let simpler = |care| {
                let calls = CallGrammar::new(request, basis, care)?;
                Ok(grammar_source(answer.as_ref(), calls.as_ref()).unwrap_or_default())
            };
            Some(basis.grammars.compile(
                "the tools",
                &lark,
                &[&|| simpler(Care::Checked), &|| simpler(Care::Loose)],
            )?)
        }
    };
    if grammar.is_none() && banned.is_empty() {
        return Ok(None);
    }
    let is_free = answer.is_none() && calls.as_ref().is_some_and(|calls| calls.is_free);
    let start = if is_free { Start::Call } else { Start::Answer };
    let end_id = basis.stop_ids.first().copied().unwrap_or(u32::MAX);
    let think = if basis.may_think { basis.tokenizer.token_id("<think>") } else { None };
    let inner = Inner {
        grammar,
        start,
        call_starts: calls.map(|calls| calls.starts).unwrap_or_default(),
        banned,
        think,
        end_id,
    };
    Ok(Some(Constraint { inner: Arc::new(inner) }))
}

/// The grammar of an answer that is a text, calls, or one of them. A call that must be made comes without a text.
fn grammar_source(answer: Option<&Answer>, calls: Option<&CallGrammar>) -> Option<String> {
    Some(match (answer, calls) {
        (None, None) => return None,
        (Some(answer), None) => answer.rule("start"),
        (Some(answer), Some(calls)) if calls.is_free => {
            format!("start: answer | calls\n{}\n{}", answer.rule("answer"), calls.rules)
        }
        (_, Some(calls)) => format!("start: calls\n{}", calls.rules),
    })
}

/// What the text of an answer is.
enum Answer {
    /// The right side of a rule.
    Rule(String),
    /// A whole grammar.
    Lark(String),
}

impl Answer {
    fn rule(&self, name: &str) -> String {
        match self {
            Self::Rule(rule) => format!("{name}: {rule}"),
            Self::Lark(grammar) => grammar.clone(),
        }
    }
}

fn what(response: &ResponseFormat) -> &'static str {
    match response {
        ResponseFormat::Text | ResponseFormat::JsonObject => "the response format",
        ResponseFormat::JsonSchema(_) => "the JSON schema",
        ResponseFormat::Regex(_) => "the regular expression",
        ResponseFormat::Lark(_) => "the grammar",
    }
}

fn answer_rule(response: &ResponseFormat) -> Result<Option<Answer>, GenerateError> {
    let what = what(response);
    Ok(match response {
        ResponseFormat::Text => None,
        ResponseFormat::JsonObject => {
            Some(Answer::Rule(json_rule(json!({ "type": "object" }), &Calls::ANSWER)))
        }
        ResponseFormat::JsonSchema(schema) => {
            if !schema.is_object() {
                return Err(unusable(what, "it is not a JSON object"));
            }
            check_schema(what, schema)?;
            Some(Answer::Rule(json_rule(schema.clone(), &Calls::ANSWER)))
        }
        ResponseFormat::Regex(regex) => {
            check_text(what, regex)?;
            Some(Answer::Rule(format!("/{}/", regex_to_lark(regex, ""))))
        }
        ResponseFormat::Lark(grammar) => {
            check_text(what, grammar)?;
            Some(Answer::Lark(grammar.clone()))
        }
    })
}

/// How JSON is laid out, and whether what is not supported in a schema is left unchecked.
pub(crate) struct JsonForm {
    pub(crate) space: Option<&'static str>,
    pub(crate) item_separator: &'static str,
    pub(crate) key_separator: &'static str,
    pub(crate) lenient: bool,
}

impl Calls {
    const ANSWER: JsonForm =
        JsonForm { space: Some(JSON_SPACE), item_separator: ",", key_separator: ":", lenient: false };
}

/// JSON that a schema accepts, as the right side of a rule.
pub(crate) fn json_rule(mut schema: Value, form: &JsonForm) -> String {
    // What a client writes there would be settings of the library.
    let settings = json!({
        "whitespace_flexible": form.space.is_some(),
        "whitespace_pattern": form.space,
        "item_separator": form.item_separator,
        "key_separator": form.key_separator,
        "lenient": form.lenient,
    });
    if let Some(fields) = schema.as_object_mut() {
        fields.insert("x-guidance".into(), settings);
    }
    format!("%json {schema}")
}
