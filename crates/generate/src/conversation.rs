//! What agents really send, made into what chat templates accept.
//!
//! The templates of the models raise errors on ordinary traffic: a reminder from the system in mid-chat, a history
//! without a question. So the messages are put in order before a template sees them. Everything is decided by what
//! stands before or beside a message, never by what comes later: the prompt of an earlier request stays, byte for
//! byte, the start of the later one, which is what makes its work reusable. (Templates drop the thinking of turns
//! before the last question; that is theirs.) The rules:
//!
//! * `developer` is `system`, `function` is `tool`; other roles are refused.
//! * System messages before all others become one, joined by blank lines. A later one becomes a turn of the user
//!   where it stands; among the results of tools it is appended to the last result there, because a question would
//!   end the round of calls, and with it the thinking that the template shows.
//! * A conversation that does not start with a question (its history was cut, or the assistant greets first) gets
//!   [`OPENING`] as its first turn.
//! * Results of tools come in the order of the calls that they answer. Those that answer none stay where they are.
//! * A last message of the assistant is continued if it has text or thinking and no calls. White space at its start is
//!   dropped, as templates do; at its end it is kept. An empty one is dropped.
//! * Images and the like are refused, but in the results of tools a placeholder stands for them.
//! * Missing, null and empty content are the same. Parts are joined. Arguments are objects, parsed from the text that
//!   the API has; how `true` and `null` are spelled in them is the template's business, and so the same every time.

use std::collections::HashMap;

use crate::error::GenerateError;
use crate::message::{Content, Message};

/// The turn of a user who said nothing.
pub(crate) const OPENING: &str = "Continue.";

/// Messages that every template of the supported models accepts.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    /// The answer goes on with the text of the last message.
    pub(crate) continues: bool,
    /// Leading messages that a later request will have too.
    pub(crate) n_settled: usize,
    /// What was smoothed over, one line each.
    pub(crate) warnings: Vec<String>,
}

impl Conversation {
    /// # Errors
    /// There are no messages, a role is unknown, or content is not text.
    pub(crate) fn new(given: &[Message]) -> Result<Self, GenerateError> {
        if given.is_empty() {
            return Err(GenerateError::NoMessages);
        }
        let mut warnings = Vec::new();
        let plain = given.iter().enumerate().map(|(i, message)| plain(i, message, &mut warnings));
        let mut lead = plain.collect::<Result<Vec<_>, _>>()?;
        let n_lead = lead.iter().take_while(|message| message.role == "system").count();
        let rest = lead.split_off(n_lead);
        let mut conversation = Self { messages: Vec::new(), continues: false, n_settled: 0, warnings };
        if !lead.is_empty() {
            conversation.messages.push(Message::system(joined(&lead)));
        }
        // An opening for want of any message makes room for the question to come.
        let n_settled = rest.is_empty().then_some(conversation.messages.len());
        if !rest.first().is_some_and(is_question) {
            conversation.messages.push(Message::user(OPENING));
        }
        conversation.add_turns(rest, n_lead);
        let n_end = conversation.settle_end();
        conversation.n_settled = n_settled.unwrap_or(n_end);
        Ok(conversation)
    }

    /// Takes the messages behind the leading ones, of which there were `n_lead`.
    fn add_turns(&mut self, rest: Vec<Message>, n_lead: usize) {
        let mut rest = rest.into_iter().enumerate().peekable();
        let is_beside = |(_, message): &(usize, Message)| matches!(message.role.as_str(), "system" | "tool");
        while rest.peek().is_some() {
            let mut run = Vec::new();
            while let Some((i, message)) = rest.next_if(is_beside) {
                run.push((n_lead + i, message));
            }
            self.add_results(run);
            self.messages.extend(rest.next_if(|next| !is_beside(next)).map(|(_, message)| message));
        }
    }

    /// Takes results of tools and what the system says among them.
    fn add_results(&mut self, run: Vec<(usize, Message)>) {
        let (said, mut results): (Vec<_>, Vec<_>) = run.into_iter().partition(|(_, m)| m.role == "system");
        self.order(&mut results);
        let said = said.into_iter().map(|(_, message)| message);
        let said: Vec<Message> = said.filter(|message| !content(message).trim().is_empty()).collect();
        match results.last_mut() {
            None => {
                let turns = said.into_iter().map(|message| Message { role: "user".into(), ..message });
                self.messages.extend(turns);
            }
            Some((_, last)) if !said.is_empty() => {
                let texts = [std::slice::from_ref(last), said.as_slice()].concat();
                last.content = Some(Content::Text(joined(&texts)));
            }
            Some(_) => {}
        }
        self.messages.extend(results.into_iter().map(|(_, message)| message));
    }

    /// Puts results in the order of the calls of the message before them; those without a call stay in their places.
    fn order(&mut self, results: &mut [(usize, Message)]) {
        let calls = self.messages.last().map_or(&[][..], |message| &message.tool_calls);
        // From behind, because of those with one id the first counts.
        let ids = calls.iter().enumerate().rev().filter_map(|(i, call)| Some((call.id.as_deref()?, i)));
        let place_of: HashMap<&str, usize> = ids.collect();
        let call_of = |message: &Message| place_of.get(message.tool_call_id.as_deref()?).copied();
        let places: Vec<usize> = (0..results.len()).filter(|&i| call_of(&results[i].1).is_some()).collect();
        let mut answering: Vec<(usize, Message)> = places.iter().map(|&i| results[i].clone()).collect();
        answering.sort_by_key(|(_, message)| call_of(message));
        for (message_idx, message) in results.iter() {
            if let (Some(id), None) = (&message.tool_call_id, call_of(message)) {
                let what = format!("message {message_idx}: a tool's result for the call {id:?}");
                self.warnings.push(format!("{what}, which is not among the calls right before it"));
            }
        }
        for (place, result) in places.into_iter().zip(answering) {
            results[place] = result;
        }
    }

    /// Decides whether the answer continues the last message, and returns how many messages stand before the answer.
    fn settle_end(&mut self) -> usize {
        let is_blank = |text: &str| text.trim().is_empty();
        if let Some(last) = self.messages.last()
            && last.role == "assistant"
            && last.tool_calls.is_empty()
        {
            let is_empty = is_blank(content(last)) && last.reasoning_content.as_deref().is_none_or(is_blank);
            if is_empty {
                self.messages.pop();
            }
            self.continues = !is_empty;
        }
        self.messages.len() - usize::from(self.continues)
    }
}

/// The message with one of four roles and its content as text.
fn plain(
    message_idx: usize,
    message: &Message,
    warnings: &mut Vec<String>,
) -> Result<Message, GenerateError> {
    let role = match message.role.as_str() {
        "system" | "developer" => "system",
        "user" => "user",
        "assistant" => "assistant",
        "tool" | "function" => "tool",
        other => {
            let why = format!("{other:?} is not a role: use system, developer, user, assistant or tool");
            return Err(GenerateError::Message { message_idx, why });
        }
    };
    let text = message.text(message_idx, warnings)?;
    let mut plain = Message { role: role.into(), content: Some(Content::Text(text)), ..message.clone() };
    if role == "assistant" {
        let calls = message.tool_calls.iter();
        plain.tool_calls = calls.map(|call| call.with_object(message_idx, warnings)).collect();
    } else {
        plain.tool_calls.clear();
        plain.reasoning_content = None;
    }
    Ok(plain)
}

/// Texts that say something, with blank lines between them.
fn joined(messages: &[Message]) -> String {
    let texts = messages.iter().map(|message| content(message).trim()).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n\n")
}

fn content(message: &Message) -> &str {
    match &message.content {
        Some(Content::Text(text)) => text,
        _ => "",
    }
}

/// Templates take a user's text for the result of a tool if it looks like one.
fn is_question(message: &Message) -> bool {
    let text = content(message).trim();
    message.role == "user" && !(text.starts_with("<tool_response>") && text.ends_with("</tool_response>"))
}
