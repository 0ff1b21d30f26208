//! Calls in the form `{"name": NAME, "arguments": {…}}`, one or a list of them.
//!
//! Written in this order, arguments come out while they arrive. Anything else that says the same (another order,
//! arguments as text, `parameters`, a wrapping `function`) is read when it is complete.

use serde_json::Value;

use super::repair::{JsonRepair, Progress};

/// Most bytes that are read before it is known whether this is a call.
const HEAD_BYTES_MAX: usize = 16 << 10;

enum State {
    /// Where a call begins: `{`.
    Begin,
    /// From there to its arguments. The call as a whole is read beside it, in case they never come in order.
    Head { text: String, repair: JsonRepair, json: String },
    /// In the arguments.
    Arguments(JsonRepair),
    /// Behind the arguments: the `}` of the call.
    Tail,
    /// In keys behind the arguments, such as an id, which say nothing to clients.
    Extra(JsonRepair),
    /// Behind a call in a list.
    Separator,
}

/// What was decided.
pub(super) enum JsonEvent {
    /// Nothing yet.
    More,
    /// A call begins.
    Begin(String),
    /// More of its arguments.
    Arguments(String),
    /// Its arguments are complete, or broke off.
    End { is_complete: bool },
    /// This is no call (any more).
    Over,
}

/// Reader of a call or a list of calls.
pub(super) struct JsonCalls {
    state: State,
    is_list: bool,
    /// Text that was not looked at.
    held: String,
    /// Events that are decided.
    queue: std::collections::VecDeque<JsonEvent>,
}

impl JsonCalls {
    /// `is_list`: the text begins behind `[`.
    pub(super) fn new(is_list: bool) -> Self {
        Self { state: State::Begin, is_list, held: String::new(), queue: Default::default() }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.held.push_str(text);
    }

    /// What stands behind the calls.
    pub(super) fn into_rest(self) -> String {
        self.held
    }

    /// The next thing that the text decides.
    pub(super) fn next(&mut self, is_tool: &dyn Fn(&str) -> bool) -> JsonEvent {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return event;
            }
            match self.state {
                State::Begin | State::Tail | State::Separator => {
                    self.held = self.held.trim_start().to_owned();
                    let Some(c) = self.held.chars().next() else { return JsonEvent::More };
                    if !self.punctuation(c) {
                        return JsonEvent::Over;
                    }
                }
                State::Head { .. } => {
                    if self.held.is_empty() || !self.head(is_tool) {
                        return self.queue.pop_front().unwrap_or(JsonEvent::More);
                    }
                }
                State::Arguments(_) => {
                    if self.held.is_empty() {
                        return JsonEvent::More;
                    }
                    self.arguments();
                }
                State::Extra(_) => {
                    if self.held.is_empty() {
                        return JsonEvent::More;
                    }
                    self.extra();
                }
            }
        }
    }

    /// The end of the answer.
    pub(super) fn finish(&mut self) -> Vec<JsonEvent> {
        match &mut self.state {
            State::Arguments(repair) => {
                let mut json = String::new();
                repair.finish(&mut json);
                vec![JsonEvent::Arguments(json), JsonEvent::End { is_complete: false }]
            }
            State::Head { text, .. } => {
                // It is no call, so it is text.
                self.held.insert_str(0, text);
                Vec::new()
            }
            State::Begin | State::Tail | State::Extra(_) | State::Separator => Vec::new(),
        }
    }

    /// Takes a character between calls; false if the calls end before it.
    fn punctuation(&mut self, c: char) -> bool {
        let next = match (&self.state, c) {
            // It is part of the call's text.
            (State::Begin, '{') => {
                let (text, json) = (String::new(), String::new());
                self.state = State::Head { text, repair: JsonRepair::new(), json };
                return true;
            }
            (State::Tail, ',') => {
                let mut rest = JsonRepair::new();
                rest.push("{", &mut String::new());
                State::Extra(rest)
            }
            (State::Tail, '}') if self.is_list => State::Separator,
            (State::Separator, ',') => State::Begin,
            (State::Tail, '}') | (State::Separator, ']') => {
                self.held.drain(..1);
                return false;
            }
            _ => return false,
        };
        self.state = next;
        self.held.drain(..1);
        true
    }

    /// Reads on in the head; false if more is needed, or if this is no call, which is then in the queue.
    fn head(&mut self, is_tool: &dyn Fn(&str) -> bool) -> bool {
        let State::Head { text, repair, json } = &mut self.state else { return false };
        let held = std::mem::take(&mut self.held);
        for (at, c) in held.char_indices() {
            let rest = &held[at + c.len_utf8()..];
            text.push(c);
            let progress = repair.push(c.encode_utf8(&mut [0; 4]), json);
            let name = if c == '{' { head_name(text) } else { None };
            let call = match progress {
                Progress::Done(_) => whole_call(json),
                Progress::More if text.len() < HEAD_BYTES_MAX && name.is_none() => continue,
                _ => None,
            };
            match (name, call) {
                (Some(name), _) if is_tool(name) => {
                    self.queue.push_back(JsonEvent::Begin(name.to_owned()));
                    self.state = State::Arguments(JsonRepair::new());
                    self.held = format!("{{{rest}");
                    return true;
                }
                (None, Some((name, arguments))) if is_tool(&name) => {
                    self.queue.push_back(JsonEvent::Begin(name));
                    self.queue.push_back(JsonEvent::Arguments(arguments));
                    self.queue.push_back(JsonEvent::End { is_complete: true });
                    self.held = rest.to_owned();
                    if self.is_list {
                        self.state = State::Separator;
                        return true;
                    }
                }
                _ => self.held = format!("{text}{rest}"),
            }
            self.queue.push_back(JsonEvent::Over);
            return false;
        }
        false
    }

    fn extra(&mut self) {
        let State::Extra(repair) = &mut self.state else { return };
        let progress = repair.push(&self.held, &mut String::new());
        let n = match progress {
            Progress::More => self.held.len(),
            Progress::Done(n) | Progress::Bad(n) => n,
        };
        self.held.drain(..n);
        match progress {
            Progress::More => {}
            Progress::Done(_) if self.is_list => self.state = State::Separator,
            Progress::Done(_) | Progress::Bad(_) => self.queue.push_back(JsonEvent::Over),
        }
    }

    fn arguments(&mut self) {
        let State::Arguments(repair) = &mut self.state else { return };
        let mut json = String::new();
        let progress = repair.push(&self.held, &mut json);
        let n = match progress {
            Progress::More => self.held.len(),
            Progress::Done(n) | Progress::Bad(n) => n,
        };
        self.held.drain(..n);
        if let Progress::Bad(_) = progress {
            self.held.insert_str(0, &repair.take_literal());
            repair.finish(&mut json);
        }
        self.queue.push_back(JsonEvent::Arguments(json));
        match progress {
            Progress::More => {}
            Progress::Done(_) => {
                self.queue.push_back(JsonEvent::End { is_complete: true });
                self.state = State::Tail;
            }
            Progress::Bad(_) => {
                self.queue.push_back(JsonEvent::End { is_complete: false });
                self.queue.push_back(JsonEvent::Over);
            }
        }
    }
}

/// The name, if the text is `{"name": NAME, "arguments": {`.
fn head_name(text: &str) -> Option<&str> {
    let after = |text: &'_ str, mark: &str| text.trim_start().strip_prefix(mark).map(str::len);
    let take = |text: &mut &str, mark: &str| -> Option<()> {
        let n = after(text, mark)?;
        *text = &text[text.len() - n..];
        Some(())
    };
    let mut rest = text;
    ["{", "\"name\"", ":", "\""].iter().try_for_each(|mark| take(&mut rest, mark))?;
    let (name, mut rest) = rest.split_once('"')?;
    take(&mut rest, ",")?;
    take(&mut rest, "\"arguments\"").or_else(|| take(&mut rest, "\"parameters\""))?;
    [":", "{"].iter().try_for_each(|mark| take(&mut rest, mark))?;
    (rest.is_empty() && !name.contains('\\')).then_some(name)
}

/// Name and arguments of a complete call.
fn whole_call(json: &str) -> Option<(String, String)> {
    let value: Value = serde_json::from_str(json).ok()?;
    let call = value.get("function").filter(|function| function.is_object()).unwrap_or(&value);
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = match call.get("arguments").or(call.get("parameters")) {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(Value::String(text)) if text.trim().is_empty() => "{}".to_owned(),
        Some(Value::String(text)) => JsonRepair::whole(text).filter(|json| json.starts_with('{'))?,
        Some(_) => return None,
    };
    Some((name, arguments))
}
