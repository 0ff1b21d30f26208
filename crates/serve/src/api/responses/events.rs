//! How an answer is told in the Responses API: as events while it is made, or as one response.

use generate::Finish;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::parts::{Change, Part, PartKind, Parts};
use crate::api::responses::request::Function;
use crate::engine::{Done, Update};
use crate::error::ApiError;
use crate::id;

/// Before thinking that comes back as `encrypted_content`: to clients that is opaque, and to us it need not be.
pub(crate) const REASONING_PREFIX: &str = "flash-moe:";

/// What a response repeats of its request, and how it is written.
#[derive(Clone, Debug)]
pub(crate) struct ResponseSettings {
    instructions: Option<String>,
    max_output_tokens: Option<usize>,
    metadata: Map<String, Value>,
    parallel_tool_calls: bool,
    reasoning: Value,
    temperature: Option<f64>,
    text: Value,
    tool_choice: Value,
    tools: Value,
    top_p: Option<f64>,
    truncation: Option<String>,
    user: Option<String>,
    functions: Vec<Function>,
    wants_summary: bool,
    wants_encrypted: bool,
}

impl ResponseSettings {
    /// `body`: of the request, checked.
    pub(crate) fn new(
        body: &Map<String, Value>,
        functions: Vec<Function>,
        wants_summary: bool,
        wants_encrypted: bool,
    ) -> Self {
        let get = |name: &str| body.get(name).filter(|value| !value.is_null());
        let text = |name: &str| get(name).and_then(Value::as_str).map(str::to_owned);
        Self {
            instructions: text("instructions"),
            max_output_tokens: get("max_output_tokens").and_then(Value::as_f64).map(|n| n as usize),
            metadata: get("metadata").and_then(Value::as_object).cloned().unwrap_or_default(),
            parallel_tool_calls: get("parallel_tool_calls").and_then(Value::as_bool).unwrap_or(true),
            reasoning: get("reasoning").cloned().unwrap_or_else(|| Map::new().into()),
            temperature: get("temperature").and_then(Value::as_f64),
            text: get("text").cloned().unwrap_or_else(|| serde_json::json!({ "format": { "type": "text" } })),
            tool_choice: get("tool_choice").cloned().unwrap_or_else(|| "auto".into()),
            tools: get("tools").cloned().unwrap_or_else(|| Vec::<Value>::new().into()),
            top_p: get("top_p").and_then(Value::as_f64),
            truncation: text("truncation"),
            user: text("user"),
            functions,
            wants_summary,
            wants_encrypted,
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Response {
    id: String,
    /// `response`
    object: &'static str,
    created_at: u64,
    completed_at: Option<u64>,
    status: Status,
    /// Always false.
    background: bool,
    #[schema(value_type = Option<ResponseFailure>)]
    error: Option<ResponseFailure>,
    incomplete_details: Option<IncompleteDetails>,
    instructions: Option<String>,
    max_output_tokens: Option<usize>,
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    model: String,
    output: Vec<Item>,
    parallel_tool_calls: bool,
    /// Always null.
    previous_response_id: Option<String>,
    #[schema(value_type = Object)]
    reasoning: Value,
    /// Always false: nothing is kept.
    store: bool,
    temperature: Option<f64>,
    #[schema(value_type = Object)]
    text: Value,
    #[schema(value_type = Value)]
    tool_choice: Value,
    #[schema(value_type = Vec<Object>)]
    tools: Value,
    top_p: Option<f64>,
    truncation: String,
    usage: Option<ResponseUsage>,
    user: Option<String>,
}

/// How far an answer or an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ResponseStatus)]
enum Status {
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

/// Why an answer failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
struct ResponseFailure {
    code: &'static str,
    message: String,
}

/// Why an answer is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ResponseIncompleteDetails)]
struct IncompleteDetails {
    /// `max_output_tokens`, or the context was full.
    reason: &'static str,
}

/// Counts of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: InputTokensDetails,
    output_tokens: usize,
    output_tokens_details: OutputTokensDetails,
    total_tokens: usize,
}

/// Tokens of the prompt by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ResponseInputTokensDetails)]
struct InputTokensDetails {
    /// Those that were read for an answer before.
    cached_tokens: usize,
    /// Those that were read for this answer and kept for the next.
    cache_write_tokens: usize,
}

/// Tokens of the answer by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ResponseOutputTokensDetails)]
struct OutputTokensDetails {
    reasoning_tokens: usize,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = ResponseItem)]
enum Item {
    Message {
        id: String,
        status: Status,
        /// `assistant`
        role: &'static str,
        content: Vec<ContentPart>,
    },
    Reasoning {
        id: String,
        status: Status,
        summary: Vec<ContentPart>,
        content: Vec<ContentPart>,
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<String>,
    },
    FunctionCall {
        id: String,
        status: Status,
        call_id: String,
        /// The group that the function is in.
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        name: String,
        /// A JSON object.
        arguments: String,
    },
}

/// A part of an item.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = ResponseContentPart)]
#[expect(clippy::enum_variant_names, reason = "the names of the API")]
enum ContentPart {
    OutputText {
        text: String,
        /// Always empty.
        #[schema(value_type = Vec<Object>)]
        annotations: Vec<Value>,
        /// Always empty.
        #[schema(value_type = Vec<Object>)]
        logprobs: Vec<Value>,
    },
    ReasoningText {
        text: String,
    },
    SummaryText {
        text: String,
    },
}

/// An event of a streamed answer: its name is its `type`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ResponseEvent)]
pub(crate) struct Event {
    /// Rises by one.
    sequence_number: usize,
    #[serde(flatten)]
    body: EventBody,
}

/// What an event tells.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type")]
#[schema(as = ResponseEventBody)]
enum EventBody {
    #[serde(rename = "response.created")]
    Created { response: Box<Response> },
    #[serde(rename = "response.in_progress")]
    InProgress { response: Box<Response> },
    #[serde(rename = "response.completed")]
    Completed { response: Box<Response> },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: Box<Response> },
    #[serde(rename = "response.failed")]
    Failed { response: Box<Response> },
    #[serde(rename = "response.output_item.added")]
    ItemAdded { output_index: usize, item: Item },
    #[serde(rename = "response.output_item.done")]
    ItemDone { output_index: usize, item: Item },
    #[serde(rename = "response.content_part.added")]
    PartAdded { item_id: String, output_index: usize, content_index: usize, part: ContentPart },
    #[serde(rename = "response.content_part.done")]
    PartDone { item_id: String, output_index: usize, content_index: usize, part: ContentPart },
    #[serde(rename = "response.output_text.delta")]
    TextDelta {
        item_id: String,
        output_index: usize,
        content_index: usize,
        delta: String,
        /// Always empty.
        #[schema(value_type = Vec<Object>)]
        logprobs: Vec<Value>,
    },
    #[serde(rename = "response.output_text.done")]
    TextDone {
        item_id: String,
        output_index: usize,
        content_index: usize,
        text: String,
        /// Always empty.
        #[schema(value_type = Vec<Object>)]
        logprobs: Vec<Value>,
    },
    #[serde(rename = "response.reasoning_text.delta")]
    ReasoningDelta { item_id: String, output_index: usize, content_index: usize, delta: String },
    #[serde(rename = "response.reasoning_text.done")]
    ReasoningDone { item_id: String, output_index: usize, content_index: usize, text: String },
    #[serde(rename = "response.reasoning_summary_part.added")]
    SummaryPartAdded { item_id: String, output_index: usize, summary_index: usize, part: ContentPart },
    #[serde(rename = "response.reasoning_summary_part.done")]
    SummaryPartDone { item_id: String, output_index: usize, summary_index: usize, part: ContentPart },
    #[serde(rename = "response.reasoning_summary_text.delta")]
    SummaryDelta { item_id: String, output_index: usize, summary_index: usize, delta: String },
    #[serde(rename = "response.reasoning_summary_text.done")]
    SummaryDone { item_id: String, output_index: usize, summary_index: usize, text: String },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta { item_id: String, output_index: usize, delta: String },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone { item_id: String, output_index: usize, name: String, arguments: String },
}

impl Event {
    /// As it is sent.
    pub(crate) fn to_sse(&self) -> axum::response::sse::Event {
        let json = serde_json::to_value(self).expect("keys are text");
        let name = json.get("type").and_then(Value::as_str).unwrap_or_default();
        axum::response::sse::Event::default().event(name).data(json.to_string())
    }
}

impl Response {
    fn new(settings: ResponseSettings, model: String) -> Self {
        Self {
            id: id::fresh("resp_"),
            object: "response",
            created_at: id::now_s(),
            completed_at: None,
            status: Status::InProgress,
            background: false,
            error: None,
            incomplete_details: None,
            instructions: settings.instructions,
            max_output_tokens: settings.max_output_tokens,
            metadata: settings.metadata,
            model,
            output: Vec::new(),
            parallel_tool_calls: settings.parallel_tool_calls,
            previous_response_id: None,
            reasoning: settings.reasoning,
            store: false,
            temperature: settings.temperature,
            text: settings.text,
            tool_choice: settings.tool_choice,
            tools: settings.tools,
            top_p: settings.top_p,
            truncation: settings.truncation.unwrap_or_else(|| "disabled".into()),
            usage: None,
            user: settings.user,
        }
    }
}

/// Tells one answer.
#[derive(Debug)]
pub(crate) struct ResponseWriter {
    /// What is complete of it.
    response: Response,
    parts: Parts,
    items: Items,
    n_event: usize,
}

/// How items are written.
#[derive(Debug)]
struct Items {
    functions: Vec<Function>,
    /// Thinking is told as its own summary.
    wants_summary: bool,
    wants_encrypted: bool,
    /// Of the open item.
    id: String,
    call_id: String,
    output_index: usize,
}

impl ResponseWriter {
    pub(crate) fn new(mut settings: ResponseSettings, model: String) -> Self {
        let items = Items {
            functions: std::mem::take(&mut settings.functions),
            wants_summary: settings.wants_summary,
            wants_encrypted: settings.wants_encrypted,
            id: String::new(),
            call_id: String::new(),
            output_index: 0,
        };
        Self { response: Response::new(settings, model), parts: Parts::default(), items, n_event: 0 }
    }

    /// The first event.
    pub(crate) fn begin(&mut self) -> Event {
        let response = Box::new(self.response.clone());
        self.number(EventBody::Created { response })
    }

    /// The events that an update leads to.
    pub(crate) fn update(&mut self, update: Update) -> Vec<Event> {
        let mut bodies = Vec::new();
        if let Update::Started { .. } = update {
            bodies.push(EventBody::InProgress { response: Box::new(self.response.clone()) });
        }
        let is_cut = matches!(&update, Update::Done(done) if is_cut(&done.finish));
        let Self { response, parts, items, .. } = self;
        parts.push(&update, &mut |change| match change {
            Change::Open(kind) => items.open(kind, &mut bodies),
            Change::Delta(kind, text) => bodies.push(items.delta(kind, text.to_owned())),
            Change::Close(part) => {
                response.output.extend(items.close(part, is_cut, &mut bodies));
                items.output_index += 1;
            }
        });
        if let Update::Done(done) = update {
            bodies.push(self.end(&done));
        }
        bodies.into_iter().map(|body| self.number(body)).collect()
    }

    /// The last event, if the answer failed.
    pub(crate) fn failed(&mut self, error: ApiError) -> Event {
        self.response.status = Status::Failed;
        self.response.error = Some(ResponseFailure { code: "server_error", message: error.message });
        let response = Box::new(self.response.clone());
        self.number(EventBody::Failed { response })
    }

    /// The answer, once it is over.
    pub(crate) fn into_response(self) -> Response {
        self.response
    }

    fn number(&mut self, body: EventBody) -> Event {
        self.n_event += 1;
        Event { sequence_number: self.n_event - 1, body }
    }

    fn end(&mut self, done: &Done) -> EventBody {
        let (response, timings) = (&mut self.response, &done.timings);
        response.usage = Some(ResponseUsage {
            input_tokens: timings.n_prompt,
            input_tokens_details: InputTokensDetails {
                cached_tokens: timings.n_cached,
                cache_write_tokens: timings.n_kept,
            },
            output_tokens: timings.n_generated,
            output_tokens_details: OutputTokensDetails { reasoning_tokens: done.n_reasoning },
            total_tokens: timings.n_prompt + timings.n_generated,
        });
        if is_cut(&done.finish) {
            response.status = Status::Incomplete;
            response.incomplete_details = Some(IncompleteDetails { reason: "max_output_tokens" });
            return EventBody::Incomplete { response: Box::new(response.clone()) };
        }
        response.status = Status::Completed;
        response.completed_at = Some(id::now_s());
        EventBody::Completed { response: Box::new(response.clone()) }
    }
}

fn is_cut(finish: &Finish) -> bool {
    match finish {
        Finish::Stop(_) | Finish::StopText(_) => false,
        Finish::Length | Finish::ContextFull | Finish::Interrupted => true,
    }
}

fn output_text(text: String) -> ContentPart {
    ContentPart::OutputText { text, annotations: Vec::new(), logprobs: Vec::new() }
}

impl Items {
    fn open(&mut self, kind: &PartKind, out: &mut Vec<EventBody>) {
        let (output_index, content_index, summary_index) = (self.output_index, 0, 0);
        let prefix = match kind {
            PartKind::Thinking => "rs_",
            PartKind::Text => "msg_",
            PartKind::Call { .. } => "fc_",
        };
        (self.id, self.call_id) = (id::fresh(prefix), id::fresh("call_"));
        let item_id = self.id.clone();
        let part = Part { kind: kind.clone(), text: String::new(), is_complete: true };
        let mut item = self.item(&part, Status::InProgress);
        match &mut item {
            Item::Message { content, .. } => content.clear(),
            Item::Reasoning { content, summary, encrypted_content, .. } => {
                content.clear();
                summary.clear();
                *encrypted_content = None;
            }
            Item::FunctionCall { .. } => {}
        }
        out.push(EventBody::ItemAdded { output_index, item });
        match kind {
            PartKind::Thinking if self.wants_summary => {
                let part = ContentPart::SummaryText { text: String::new() };
                out.push(EventBody::SummaryPartAdded { item_id, output_index, summary_index, part });
            }
            PartKind::Thinking => {
                let part = ContentPart::ReasoningText { text: String::new() };
                out.push(EventBody::PartAdded { item_id, output_index, content_index, part });
            }
            PartKind::Text => {
                let part = output_text(String::new());
                out.push(EventBody::PartAdded { item_id, output_index, content_index, part });
            }
            PartKind::Call { .. } => {}
        }
    }

    fn delta(&self, kind: &PartKind, delta: String) -> EventBody {
        let (item_id, output_index, content_index, summary_index) =
            (self.id.clone(), self.output_index, 0, 0);
        match kind {
            PartKind::Thinking if self.wants_summary => {
                EventBody::SummaryDelta { item_id, output_index, summary_index, delta }
            }
            PartKind::Thinking => EventBody::ReasoningDelta { item_id, output_index, content_index, delta },
            PartKind::Text => {
                EventBody::TextDelta { item_id, output_index, content_index, delta, logprobs: Vec::new() }
            }
            PartKind::Call { .. } => EventBody::ArgumentsDelta { item_id, output_index, delta },
        }
    }

    /// A call that was cut is not told: clients would run it.
    fn close(&self, part: Part, is_cut: bool, out: &mut Vec<EventBody>) -> Option<Item> {
        if !part.is_complete {
            return None;
        }
        let (output_index, content_index, summary_index) = (self.output_index, 0, 0);
        let id = || self.id.clone();
        let text = part.text.clone();
        match &part.kind {
            PartKind::Thinking if self.wants_summary => {
                let part = ContentPart::SummaryText { text: text.clone() };
                out.push(EventBody::SummaryDone { item_id: id(), output_index, summary_index, text });
                out.push(EventBody::SummaryPartDone { item_id: id(), output_index, summary_index, part });
            }
            PartKind::Thinking => {
                let part = ContentPart::ReasoningText { text: text.clone() };
                out.push(EventBody::ReasoningDone { item_id: id(), output_index, content_index, text });
                out.push(EventBody::PartDone { item_id: id(), output_index, content_index, part });
            }
            PartKind::Text => {
                let (part, logprobs) = (output_text(text.clone()), Vec::new());
                out.push(EventBody::TextDone { item_id: id(), output_index, content_index, text, logprobs });
                out.push(EventBody::PartDone { item_id: id(), output_index, content_index, part });
            }
            PartKind::Call { name } => {
                let (_, name) = self.function(name);
                out.push(EventBody::ArgumentsDone { item_id: id(), output_index, name, arguments: text });
            }
        }
        let is_call = matches!(part.kind, PartKind::Call { .. });
        let item = self.item(&part, if is_cut && !is_call { Status::Incomplete } else { Status::Completed });
        out.push(EventBody::ItemDone { output_index, item: item.clone() });
        Some(item)
    }

    fn item(&self, part: &Part, status: Status) -> Item {
        let (id, text) = (self.id.clone(), part.text.clone());
        match &part.kind {
            PartKind::Thinking => {
                let encrypted_content = self.wants_encrypted.then(|| format!("{REASONING_PREFIX}{text}"));
                let (summary, content) = match self.wants_summary {
                    true => (vec![ContentPart::SummaryText { text }], Vec::new()),
                    false => (Vec::new(), vec![ContentPart::ReasoningText { text }]),
                };
                Item::Reasoning { id, status, summary, content, encrypted_content }
            }
            PartKind::Text => {
                Item::Message { id, status, role: "assistant", content: vec![output_text(text)] }
            }
            PartKind::Call { name } => {
                let (namespace, name) = self.function(name);
                let call_id = self.call_id.clone();
                Item::FunctionCall { id, status, call_id, namespace, name, arguments: text }
            }
        }
    }

    /// Group and name of what the model calls.
    fn function(&self, full_name: &str) -> (Option<String>, String) {
        let function = self.functions.iter().find(|function| function.full_name == full_name);
        function.map_or_else(|| (None, full_name.to_owned()), |f| (f.namespace.clone(), f.name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::{CallUpdate, Timings};

    /// Two calls; the arguments of the second one in pieces, and perhaps cut.
    fn updates(n_byte: usize, finish: Finish, is_cut: bool) -> Vec<Update> {
        let mut updates = vec![Update::Started { n_prompt: 10, n_cached: 4, n_kept: 0 }];
        for (index, name, text) in [(0, "ls", "{}"), (1, "git__log", r#"{"n":3}"#)] {
            updates.push(Update::Call(CallUpdate::Begin { index, name: name.into() }));
            let more = text.as_bytes().chunks(n_byte).map(|b| String::from_utf8(b.into()).unwrap());
            updates.extend(more.map(|json| Update::Call(CallUpdate::Arguments { index, json })));
            updates.push(Update::Call(CallUpdate::End { index, complete: index == 0 || !is_cut }));
        }
        updates.push(Update::Done(Done { finish, n_reasoning: 0, timings: Timings::default() }));
        updates
    }

    fn write(updates: Vec<Update>) -> (Vec<Value>, Value) {
        let function = |full_name: &str, namespace: Option<&str>, name: &str| Function {
            full_name: full_name.into(),
            namespace: namespace.map(str::to_owned),
            name: name.into(),
        };
        let functions = vec![function("ls", None, "ls"), function("git__log", Some("git"), "log")];
        let settings = ResponseSettings::new(&Map::new(), functions, false, false);
        let mut writer = ResponseWriter::new(settings, "m".into());
        let mut events = vec![writer.begin()];
        events.extend(updates.into_iter().flat_map(|update| writer.update(update)));
        let events = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
        (events, serde_json::to_value(writer.into_response()).unwrap())
    }

    /// A12: functions of groups would have names that clients do not know, or results would not find their call.
    #[test]
    fn calls_are_told_in_order() {
        let (mut events, response) = write(updates(100, Finish::Stop(0), false));
        let output = &response["output"];
        let id = |i: usize| output[i]["id"].clone();
        assert_ne!(output[0]["call_id"], output[1]["call_id"]);
        let expected = json!([
            { "type": "function_call", "id": id(0), "status": "completed", "call_id": output[0]["call_id"],
              "name": "ls", "arguments": "{}" },
            { "type": "function_call", "id": id(1), "status": "completed", "call_id": output[1]["call_id"],
              "namespace": "git", "name": "log", "arguments": r#"{"n":3}"# },
        ]);
        assert_eq!(*output, expected);
        for (i, event) in events.iter_mut().enumerate() {
            assert_eq!(event.as_object_mut().unwrap().remove("sequence_number"), Some(i.into()));
        }
        let begun = |i: usize| {
            let mut item = output[i].clone();
            (item["status"], item["arguments"]) = ("in_progress".into(), "".into());
            item
        };
        let of_call = |i: usize, name: &str, text: &str| {
            let place = json!({ "item_id": id(i), "output_index": i });
            let with = |more: Value| {
                let mut event = place.clone();
                event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                event
            };
            [
                json!({ "type": "response.output_item.added", "output_index": i, "item": begun(i) }),
                with(json!({ "type": "response.function_call_arguments.delta", "delta": text })),
                with(
                    json!({ "type": "response.function_call_arguments.done", "name": name, "arguments": text }),
                ),
                json!({ "type": "response.output_item.done", "output_index": i, "item": output[i] }),
            ]
        };
        let middle: Vec<Value> =
            of_call(0, "ls", "{}").into_iter().chain(of_call(1, "log", r#"{"n":3}"#)).collect();
        assert_eq!(events[2..events.len() - 1], middle);
        assert_eq!(events[events.len() - 1], json!({ "type": "response.completed", "response": response }));
        let (bytes, same) = write(updates(1, Finish::Stop(0), false));
        assert!(events.len() < bytes.len());
        for i in [0, 1] {
            assert_eq!(same["output"][i]["arguments"], output[i]["arguments"], "one byte at a time");
        }
    }

    /// T21: a call that was cut would be run.
    #[test]
    fn a_cut_call_is_not_told_as_done() {
        for (is_cut, n_call) in [(true, 1), (false, 2)] {
            let (events, response) = write(updates(3, Finish::Length, is_cut));
            let n = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
            assert_eq!((n("response.output_item.done"), n("response.incomplete")), (n_call, 1));
            assert_eq!(response["output"].as_array().unwrap().len(), n_call);
            assert_eq!(response["status"], "incomplete");
        }
    }
}
