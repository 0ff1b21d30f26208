//! A turn of a conversation: the answer, the calls in it, the answer to their results, and so on.

use generate::{Content, Finish, Message, ToolCall};

use super::tools;
use crate::answer::Answer;

/// A model that only calls tools would never come to an end.
pub(super) const N_ROUND_MAX: usize = 12;

/// What a turn needs.
pub(super) trait Peer {
    /// The answer to a conversation.
    fn reply(&mut self, messages: &[Message]) -> anyhow::Result<Answer>;

    /// The result of a call; `None`: the user wants the turn to end.
    fn call(&mut self, call: &ToolCall) -> anyhow::Result<Option<String>>;
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With an answer.
    Answered,
    /// The user ended it.
    Stopped,
    /// The user ended it before anything was said.
    Unsaid,
    /// The model called tools too often.
    TooManyRounds,
}

/// Answers the last of `messages`, and adds what was said and done. Calls are numbered on from `n_call`.
pub(super) fn turn(
    peer: &mut impl Peer,
    messages: &mut Vec<Message>,
    n_call: &mut usize,
) -> anyhow::Result<End> {
    for round in 0..N_ROUND_MAX {
        let mut answer = peer.reply(messages)?;
        let is_interrupted = answer.finish == Finish::Interrupted;
        if is_interrupted {
            // The user has not waited for what else would have been called.
            answer.calls.clear();
        }
        if is_interrupted && answer.text.is_empty() {
            return Ok(if round == 0 { End::Unsaid } else { End::Stopped });
        }
        for call in &mut answer.calls {
            call.id = Some(format!("call_{n_call}"));
            *n_call += 1;
        }
        let calls = answer.calls.clone();
        messages.push(said(answer));
        if is_interrupted {
            return Ok(End::Stopped);
        }
        if calls.is_empty() {
            return Ok(End::Answered);
        }
        if !results(peer, &calls, messages)? {
            return Ok(End::Stopped);
        }
    }
    Ok(End::TooManyRounds)
}

/// Adds a result for each call: templates want one for each. False if the user wants the turn to end.
fn results(peer: &mut impl Peer, calls: &[ToolCall], messages: &mut Vec<Message>) -> anyhow::Result<bool> {
    let mut goes_on = true;
    for call in calls {
        let result = if goes_on { peer.call(call)? } else { None };
        goes_on = result.is_some();
        messages.push(Message {
            tool_call_id: call.id.clone(),
            name: Some(call.function.name.clone()),
            ..Message::tool(result.unwrap_or_else(|| tools::error("stopped by the user")))
        });
    }
    Ok(goes_on)
}

/// An answer as history has it.
fn said(answer: Answer) -> Message {
    let content = (!answer.text.is_empty() || answer.calls.is_empty()).then_some(Content::Text(answer.text));
    Message {
        role: "assistant".into(),
        content,
        reasoning_content: Some(answer.thinking).filter(|thinking| !thinking.is_empty()),
        tool_calls: answer.calls,
        ..Message::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use generate::FunctionCall;
    use serde_json::{Value, json};

    use super::*;
    use crate::meter::Cost;

    /// A model that follows a script, and a user who stops at the call of `stop`.
    struct Script {
        answers: VecDeque<Answer>,
        /// Number of messages of each prompt.
        asked: Vec<usize>,
    }

    impl Peer for Script {
        fn reply(&mut self, messages: &[Message]) -> anyhow::Result<Answer> {
            self.asked.push(messages.len());
            self.answers.pop_front().ok_or_else(|| anyhow::anyhow!("the script is over"))
        }

        fn call(&mut self, call: &ToolCall) -> anyhow::Result<Option<String>> {
            let name = &call.function.name;
            Ok((name != "stop").then(|| format!("{name}:{}", call.function.arguments.as_str().unwrap())))
        }
    }

    fn answer(text: &str, calls: &[&str], finish: Finish) -> Answer {
        let call = |name: &&str| ToolCall {
            id: None,
            function: FunctionCall { name: (*name).into(), arguments: "{\"a\": 1}".into() },
        };
        Answer {
            finish,
            text: text.into(),
            thinking: "hm".into(),
            calls: calls.iter().map(call).collect(),
            broken_call: None,
            prefill: Cost::default(),
            decode: Cost::default(),
            n_prompt: 0,
            n_reused: 0,
            n_generated: 0,
        }
    }

    fn run(answers: Vec<Answer>) -> (anyhow::Result<End>, Vec<usize>, Value) {
        let mut script = Script { answers: answers.into(), asked: Vec::new() };
        let mut messages = vec![Message::user("?")];
        let end = turn(&mut script, &mut messages, &mut 5);
        (end, script.asked, serde_json::to_value(&messages[1..]).unwrap())
    }

    const STOP: Finish = Finish::Stop(0);

    /// A call would get no result, another's, or one that the template cannot match.
    #[test]
    fn calls_and_results_are_remembered() {
        let (end, asked, said) = run(vec![
            answer("", &["f", "g"], STOP),
            answer("And.", &["f"], STOP),
            answer("Done.", &[], STOP),
        ]);
        assert_eq!((end.unwrap(), asked), (End::Answered, vec![1, 4, 6]));
        let call = |id: &str, name: &str| json!({ "id": id, "function": { "name": name, "arguments": "{\"a\": 1}" } });
        let result = |id: &str, name: &str| json!({ "role": "tool", "content": format!("{name}:{{\"a\": 1}}"), "tool_call_id": id, "name": name });
        let mut said = said;
        for call in said.as_array_mut().unwrap().iter_mut().flat_map(|message| {
            message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten()
        }) {
            // Readers of the form do not need it, and writers may add it.
            call.as_object_mut().unwrap().remove("type");
        }
        let expected = json!([
            { "role": "assistant", "content": null, "reasoning_content": "hm",
              "tool_calls": [call("call_5", "f"), call("call_6", "g")] },
            result("call_5", "f"),
            result("call_6", "g"),
            { "role": "assistant", "content": "And.", "reasoning_content": "hm", "tool_calls": [call("call_7", "f")] },
            result("call_7", "f"),
            { "role": "assistant", "content": "Done.", "reasoning_content": "hm" },
        ]);
        assert_eq!(said, expected);
    }

    /// Ctrl-C would lose what was said, run what was not wanted any more, or leave a history that templates refuse.
    #[test]
    fn an_interrupted_turn_keeps_what_came() {
        let roles = |said: &Value| {
            let roles = said.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap().to_owned());
            roles.collect::<Vec<_>>()
        };
        let (end, _, said) = run(vec![answer("Half", &["f"], Finish::Interrupted)]);
        assert_eq!((end.unwrap(), roles(&said)), (End::Stopped, vec!["assistant".into()]));
        assert!(said[0].get("tool_calls").is_none(), "{said}");
        let (end, _, said) = run(vec![answer("", &["f"], Finish::Interrupted)]);
        assert_eq!((end.unwrap(), roles(&said)), (End::Unsaid, Vec::new()));
        let (end, asked, said) = run(vec![answer("", &["f", "stop", "g"], STOP)]);
        assert_eq!((end.unwrap(), asked), (End::Stopped, vec![1]));
        assert_eq!(roles(&said), ["assistant", "tool", "tool", "tool"]);
        assert_eq!(said[3]["content"], "error: stopped by the user");
    }

    /// A model that calls and calls would keep the chat for ever; an error would be taken for an answer.
    #[test]
    fn rounds_are_bounded() {
        let (end, asked, _) = run((0..100).map(|_| answer("", &["f"], STOP)).collect());
        assert_eq!((end.unwrap(), asked.len()), (End::TooManyRounds, N_ROUND_MAX));
        let (end, ..) = run(vec![answer("", &["f"], STOP)]);
        assert!(end.is_err());
    }
}
