//! Finds calls of declared tools in the text of an answer.
//!
//! Both forms of calls are read, whatever form the model should use, inside `<tool_call>` and `</tool_call>`; the form
//! with `<function=NAME>` also without the opening tag, where it starts a line. What is not a call of a declared tool
//! is text. In thinking, a call must start a line and have its opening tag: thoughts speak about calls.
//!
//! White space that only separates text and calls is dropped; between two pieces of text that have a call between them
//! it stays. `</tool_call>` behind a call is dropped, anywhere else it is text.

use std::sync::Arc;

use super::json::{JsonCalls, JsonEvent};
use super::xml::{CALL, CALL_END, FUNCTION, Tag, XmlCall, name_of};
use crate::generate::{CallEvent, Event};
use crate::thinking::Channel;
use crate::tool::Tool;

/// White space that is held back before a call.
const SPACE_BYTES_MAX: usize = 256;

type OnEvent<'a> = &'a mut dyn FnMut(Event<'_>);

enum State {
    Text,
    /// Behind `<tool_call>`; what follows decides.
    Opened(String),
    Xml(XmlCall),
    Json {
        calls: JsonCalls,
        /// What stands between the tag and the first of them; `None` once there is a call.
        lead: Option<String>,
    },
}

/// What a tag in text begins.
enum Opening {
    Call,
    CallEnd,
    /// The tool's index.
    Function(usize),
}

/// The reader of one answer.
pub(super) struct Calls {
    tools: Arc<[Tool]>,
    state: State,
    channel: Channel,
    /// Text that may be white space before a call, or the start of a tag.
    held: String,
    /// White space before the call that may be beginning, or before the last one.
    space: String,
    /// Nothing but white space came since a call.
    is_after_call: bool,
    /// Text came in this channel.
    has_text: bool,
    /// The current line, as far as it was shown, is blank.
    is_line_blank: bool,
    /// A call was read whose closing tag may follow.
    awaits_end: bool,
    n_call: usize,
}

impl Calls {
    pub(super) fn new(tools: Arc<[Tool]>, is_line_blank: bool) -> Self {
        Self {
            tools,
            state: State::Text,
            channel: Channel::Answer,
            held: String::new(),
            space: String::new(),
            is_after_call: false,
            has_text: false,
            is_line_blank,
            awaits_end: false,
            n_call: 0,
        }
    }

    /// Whether text belongs to a call, or to what may become one: it goes to [`Self::push`] then.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Text)
    }

    /// Takes text outside of calls. A tag stands at its end if there is one.
    pub(super) fn text(&mut self, channel: Channel, text: &str, on_event: OnEvent<'_>) {
        if channel != self.channel {
            self.flush(on_event);
            (self.channel, self.has_text, self.is_line_blank, self.is_after_call) =
                (channel, false, true, false);
        }
        self.held.push_str(text);
        let mut from = 0;
        while let Some(at) = self.held[from..].find('<').map(|at| from + at) {
            match self.opening(at) {
                Tag::None => from = at + 1,
                Tag::More => return self.show_before(at, on_event),
                Tag::Found((opening, n)) => {
                    self.show_before(at, on_event);
                    let n_space = self.held.find('<').unwrap_or(0);
                    let space = self.held[..n_space].to_owned();
                    self.held.drain(..n_space + n);
                    self.open(opening, space, on_event);
                    from = 0;
                    if self.is_open() {
                        let rest = std::mem::take(&mut self.held);
                        debug_assert!(rest.is_empty(), "text is cut behind `>`");
                        return;
                    }
                }
            }
        }
        self.show_before(self.held.len(), on_event);
    }

    /// Shows held text before this place, but for the white space at its end.
    fn show_before(&mut self, at: usize, on_event: OnEvent<'_>) {
        let n_text = self.held[..at].trim_end().len();
        let n = if self.is_after_call || at - n_text <= SPACE_BYTES_MAX {
            n_text
        } else {
            self.held.floor_char_boundary(at - SPACE_BYTES_MAX)
        };
        let text: String = self.held.drain(..n).collect();
        self.say(&text, on_event);
    }

    /// Shows text.
    fn say(&mut self, text: &str, on_event: OnEvent<'_>) {
        if text.is_empty() {
            return;
        }
        let mut shown = text;
        let kept;
        if self.is_after_call {
            let body = text.trim_start();
            self.is_after_call = false;
            let lead = &text[..text.len() - body.len()];
            let lead = if lead.is_empty() { self.space.as_str() } else { lead };
            kept = if self.has_text { format!("{lead}{body}") } else { body.to_owned() };
            shown = &kept;
        }
        let last_line = shown.rfind('\n').map_or(shown, |at| &shown[at + 1..]);
        let is_blank = last_line.trim().is_empty();
        self.is_line_blank = is_blank && (self.is_line_blank || last_line.len() < shown.len());
        self.has_text = true;
        on_event(Event::Text { channel: self.channel, text: shown });
    }

    /// What the `<` at this place in the held text begins, and how many bytes the tag has.
    fn opening(&self, at: usize) -> Tag<(Opening, usize)> {
        let (before, rest) = self.held.split_at(at);
        let line = before.rfind('\n').map_or(before, |at| &before[at + 1..]);
        let starts_line = line.trim().is_empty() && (line.len() < before.len() || self.is_line_blank);
        let is_answer = self.channel == Channel::Answer;
        let mut tag = Tag::None;
        for (text, opening, is_possible) in
            [(CALL, Opening::Call, is_answer || starts_line), (CALL_END, Opening::CallEnd, self.awaits_end)]
        {
            if is_possible && rest.starts_with(text) {
                return Tag::Found((opening, text.len()));
            }
            if is_possible && text.starts_with(rest) {
                tag = Tag::More;
            }
        }
        if is_answer && starts_line {
            match function_tag(rest, &self.tools) {
                Tag::Found((tool_idx, n)) => return Tag::Found((Opening::Function(tool_idx), n)),
                Tag::More => tag = Tag::More,
                Tag::None => {}
            }
        }
        tag
    }

    fn open(&mut self, opening: Opening, space: String, on_event: OnEvent<'_>) {
        match opening {
            Opening::Call => {
                self.put_space(space);
                self.state = State::Opened(String::new());
            }
            Opening::CallEnd => self.awaits_end = false,
            Opening::Function(tool_idx) => {
                self.put_space(space);
                self.begin_xml(tool_idx, on_event);
            }
        }
    }

    /// Remembers the white space before a call; before a further one, that of the first counts.
    fn put_space(&mut self, space: String) {
        if !self.is_after_call {
            self.space = space;
        }
    }

    fn begin_xml(&mut self, tool_idx: usize, on_event: OnEvent<'_>) {
        let tool = &self.tools[tool_idx];
        on_event(Event::Call(CallEvent::Begin { index: self.n_call, name: &tool.name }));
        self.state = State::Xml(XmlCall::new(tool.parameters.clone()));
    }

    /// Takes text of what is open, and returns what does not belong to it.
    pub(super) fn push(&mut self, text: &str, on_event: OnEvent<'_>) -> String {
        match &mut self.state {
            State::Text => return text.to_owned(),
            State::Opened(held) => {
                held.push_str(text);
                return self.decide(on_event);
            }
            State::Xml(call) => {
                let mut json = String::new();
                let is_complete = call.push(text, &mut json);
                self.arguments(&json, on_event);
                if is_complete {
                    return self.end_xml(true, on_event);
                }
            }
            State::Json { calls, .. } => {
                calls.push(text);
                return self.read_json(on_event);
            }
        }
        String::new()
    }

    /// The end of the answer: returns what of the open call is text after all.
    pub(super) fn finish_open(&mut self, on_event: OnEvent<'_>) -> String {
        match &mut self.state {
            State::Text => String::new(),
            State::Opened(held) => {
                let rest = std::mem::take(held);
                self.reject(rest, on_event)
            }
            State::Xml(call) => {
                let mut json = String::new();
                let is_complete = call.finish(&mut json);
                self.arguments(&json, on_event);
                self.end_xml(is_complete, on_event)
            }
            State::Json { calls, .. } => {
                for event in calls.finish() {
                    self.tell_json(event, on_event);
                }
                self.end_json(on_event)
            }
        }
    }

    /// The end of the answer, with nothing open: what was held back is text after all.
    pub(super) fn flush(&mut self, on_event: OnEvent<'_>) {
        let text = std::mem::take(&mut self.held);
        if !(self.is_after_call && text.trim().is_empty()) {
            self.say(&text, on_event);
        }
    }

    /// Decides what `<tool_call>` opened.
    fn decide(&mut self, on_event: OnEvent<'_>) -> String {
        let State::Opened(held) = &mut self.state else { return String::new() };
        let body = held.trim_start();
        if body.is_empty() && held.len() <= SPACE_BYTES_MAX {
            return String::new();
        }
        if body.starts_with(['{', '[']) {
            let is_list = body.starts_with('[');
            let n_lead = held.len() - body.len() + usize::from(is_list);
            let rest = held.split_off(n_lead);
            let lead = Some(std::mem::take(held));
            self.state = State::Json { calls: JsonCalls::new(is_list), lead };
            return self.push(&rest, on_event);
        }
        match function_tag(body, &self.tools) {
            Tag::More => String::new(),
            Tag::Found((tool_idx, n)) => {
                let rest = body[n..].to_owned();
                self.begin_xml(tool_idx, on_event);
                self.push(&rest, on_event)
            }
            Tag::None => {
                let rest = std::mem::take(held);
                self.reject(rest, on_event)
            }
        }
    }

    /// What was opened is no call: the tag is text, and so is the rest.
    fn reject(&mut self, rest: String, on_event: OnEvent<'_>) -> String {
        self.state = State::Text;
        let space = if self.is_after_call { String::new() } else { std::mem::take(&mut self.space) };
        self.say(&format!("{space}{CALL}"), on_event);
        rest
    }

    fn arguments(&mut self, json: &str, on_event: OnEvent<'_>) {
        if !json.is_empty() {
            on_event(Event::Call(CallEvent::Arguments { index: self.n_call, json }));
        }
    }

    fn end_call(&mut self, complete: bool, on_event: OnEvent<'_>) {
        on_event(Event::Call(CallEvent::End { index: self.n_call, complete }));
        self.n_call += 1;
        (self.is_after_call, self.is_line_blank, self.awaits_end) = (true, true, true);
    }

    fn end_xml(&mut self, complete: bool, on_event: OnEvent<'_>) -> String {
        let State::Xml(call) = std::mem::replace(&mut self.state, State::Text) else { return String::new() };
        self.end_call(complete, on_event);
        let (stray, rest) = call.into_rest();
        self.say(stray.trim_end(), on_event);
        rest
    }

    fn read_json(&mut self, on_event: OnEvent<'_>) -> String {
        let tools = Arc::clone(&self.tools);
        let is_tool = |name: &str| tools.iter().any(|tool| tool.name == name);
        while let State::Json { calls, .. } = &mut self.state {
            match calls.next(&is_tool) {
                JsonEvent::More => break,
                JsonEvent::Over => return self.end_json(on_event),
                event => self.tell_json(event, on_event),
            }
        }
        String::new()
    }

    fn tell_json(&mut self, event: JsonEvent, on_event: OnEvent<'_>) {
        match event {
            JsonEvent::Begin(name) => {
                if let State::Json { lead, .. } = &mut self.state {
                    *lead = None;
                }
                on_event(Event::Call(CallEvent::Begin { index: self.n_call, name: &name }));
            }
            JsonEvent::Arguments(json) => self.arguments(&json, on_event),
            JsonEvent::End { is_complete } => self.end_call(is_complete, on_event),
            JsonEvent::More | JsonEvent::Over => {}
        }
    }

    fn end_json(&mut self, on_event: OnEvent<'_>) -> String {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Json { calls, lead: None } => calls.into_rest(),
            State::Json { calls, lead: Some(lead) } => self.reject(lead + &calls.into_rest(), on_event),
            _ => String::new(),
        }
    }
}

/// `<function=NAME>` of a declared tool at the start of the text: its index, and the tag's bytes.
fn function_tag(text: &str, tools: &[Tool]) -> Tag<(usize, usize)> {
    let Some(rest) = text.strip_prefix(FUNCTION) else {
        return if FUNCTION.starts_with(text) { Tag::More } else { Tag::None };
    };
    match name_of(rest) {
        Tag::Found((name, n)) => match tools.iter().position(|tool| tool.name == name) {
            Some(tool_idx) => Tag::Found((tool_idx, FUNCTION.len() + n)),
            None => Tag::None,
        },
        Tag::More => Tag::More,
        Tag::None => Tag::None,
    }
}
