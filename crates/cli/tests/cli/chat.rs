//! Conversations: typed on a terminal, and from a script.

use std::fs;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::support::{Done, flash_moe, flash_moe_with};

const GREEDY: [&str; 6] = ["--temperature", "0", "--max-tokens", "24", "--think", "off"];

fn chat(args: &[&str], input: &str) -> Done {
    flash_moe_with(&[&["chat"], args, &GREEDY].concat(), input).ok()
}

/// A conversation that goes on later would be another one, or a file of somebody's be lost.
#[test]
fn a_chat_is_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("other"), "precious").unwrap();
    let (file, other) = (at("my chat.json"), at("other"));
    let first = chat(
        &["--system", "Be kind."],
        &format!("Who are you?\n/save \"{file}\"\n/save {other}\nAnd then?\n"),
    );
    assert!(first.stderr.contains("(2 messages are in "), "{first:?}");
    assert!(first.stderr.contains("not replaced"), "{first:?}");
    assert_eq!(fs::read_to_string(other).unwrap(), "precious");
    let saved: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!((&saved["model"], &saved["settings"]["system"]), (&json!("demo model"), &json!("Be kind.")));
    let second = chat(&[], &format!("/load \"{file}\"\nAnd then?\n/load {}\n", at("none")));
    assert!(second.stderr.contains("(2 messages are here again)"), "{second:?}");
    assert!(second.stderr.contains("cannot read"), "{second:?}");
    assert_eq!(first.stdout.lines().last(), second.stdout.lines().last());
}

/// Commands would be sent to the model, or change nothing.
#[test]
fn commands_change_later_answers() {
    let done = chat(
        &[],
        "Who are you?\n/retry\n/undo\n/undo\n/retry\n/set max_tokens 2\nWho are you?\n/set top_p 7\n/stats\n",
    );
    let answers: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(answers.len(), 3, "{done:?}");
    assert_eq!(answers[0], answers[1], "{done:?}");
    assert!(answers[2].len() < answers[1].len() && answers[1].starts_with(answers[2]), "{done:?}");
    for said in [
        "(forgotten: Who are you?)",
        "there is nothing to forget",
        "there is nothing to answer again",
        "max_tokens 2",
        "top_p is 7",
        "answers: 3, of 50 tokens",
    ] {
        assert!(done.stderr.contains(said), "{said}: {done:?}");
    }
}

/// A file would not reach the model, twice, or as part of an earlier message; a message of many lines as several.
#[test]
fn files_and_long_messages_are_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes.txt");
    fs::write(&notes, "Rome is sunny.").unwrap();
    let saved = folder.path().join("chat.json");
    let input =
        format!("/file {}\n\"\"\"\nWhat is\n/quit\n\"\"\"\n/save {}\n", notes.display(), saved.display());
    let done = chat(&[], &input);
    assert!(done.stderr.contains("(notes.txt goes with the next message: 14 bytes)"), "{done:?}");
    let saved: Value = serde_json::from_str(&fs::read_to_string(saved).unwrap()).unwrap();
    assert_eq!(saved["messages"][0]["content"], "notes.txt:\n```\nRome is sunny.\n```\n\nWhat is\n/quit");
    assert_eq!(saved["messages"].as_array().map(Vec::len), Some(2));
    let refused = chat(&[], &format!("/file {}\n/tools {}\n", folder.path().display(), notes.display()));
    assert!(
        refused.stderr.contains("is not a file") && refused.stderr.contains("is not JSON"),
        "{refused:?}"
    );
}

/// A model could run commands where nobody can say no.
#[test]
fn there_is_no_shell_without_a_terminal() {
    let why = "commands of the shell need a terminal";
    flash_moe(&["chat", "--shell"]).fails(2, why, "");
    let done = chat(&[], "/tools shell\n/tools list\n");
    assert!(done.stderr.contains(why) && done.stderr.contains("no tools"), "{done:?}");
}

/// Results that the user types would get lost, or answer another call.
#[test]
fn calls_get_the_results_that_are_typed() {
    let folder = tempfile::tempdir().unwrap();
    let (tools, saved) = (folder.path().join("tools.json"), folder.path().join("chat.json"));
    fs::write(&tools, WEATHER.to_string()).unwrap();
    let input = format!(
        "/tools {}\nWhat's the weather in Rome and Oslo?\n22 degrees\n\n/save {}\n",
        tools.display(),
        saved.display()
    );
    let args = ["chat", "--temperature", "0", "--think", "off", "--max-tokens", "100"];
    let done = flash_moe_with(&args, &input).ok();
    for said in [
        "  get_weather  Get the weather",
        "calls get_weather(city: \"Rome\")",
        "calls get_weather(city: \"Oslo\")",
    ] {
        assert!(done.stderr.contains(said), "{said}: {done:?}");
    }
    assert!(!done.stdout.contains("<tool_call>"), "{done:?}");
    let saved: Value = serde_json::from_str(&fs::read_to_string(saved).unwrap()).unwrap();
    assert_eq!(saved["tools"], WEATHER.clone());
    let messages = saved["messages"].as_array().unwrap();
    let calls = messages[1]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{saved:#}");
    for (call, (message, result)) in
        calls.iter().zip(messages[2..].iter().zip(["22 degrees", "error: the tool failed"]))
    {
        assert!(call["function"]["arguments"].is_string(), "{call}");
        assert_eq!((&message["role"], &message["content"]), (&json!("tool"), &json!(result)));
        assert_eq!(message["tool_call_id"], call["id"]);
    }
    assert_eq!(messages[4]["role"], "assistant");
}

/// The tool of the demo model's favourite question.
pub(crate) static WEATHER: LazyLock<Value> = LazyLock::new(|| {
    let parameters = json!({
        "type": "object",
        "properties": { "city": { "type": "string", "description": "The city" } },
        "required": ["city"]
    });
    json!([{ "type": "function", "function": {
        "name": "get_weather", "description": "Get the weather", "parameters": parameters
    } }])
});

#[cfg(unix)]
mod on_a_terminal {
    use std::fs;

    use serde_json::Value;

    use crate::support::command;
    use crate::terminal::Terminal;

    /// The prompt, drawn: from here on keys are read one by one.
    const PROMPT: &str = "\x1b[K> ";

    fn start(args: &[&str]) -> Terminal {
        let mut terminal = Terminal::start(command(&[&["chat"], args].concat()));
        terminal.wait_for("/help lists commands");
        terminal.wait_for(PROMPT);
        terminal
    }

    /// Types, and waits for what is said to it.
    #[track_caller]
    fn say(terminal: &mut Terminal, keys: &str, expected: &str) {
        terminal.keys(keys);
        terminal.wait_for(expected);
        terminal.wait_for(PROMPT);
    }

    /// Keys would do nothing: completion, lines that go on, Ctrl-C and Ctrl-D.
    #[test]
    fn lines_are_edited() {
        let mut terminal = start(&super::GREEDY);
        say(&mut terminal, "/thi\toff\r", "(thinking: off)");
        say(&mut terminal, "/system Be \\\rbrief.\r", "(the system message is set)");
        say(&mut terminal, "/system\r", "Be \r\nbrief.");
        say(&mut terminal, "\"\"\"\r/quit\r\"\"\"\r", "[prompt ");
        // Pasted text is one message, whatever is in it.
        say(&mut terminal, "\x1b[200~one\r/quit\r\x1b[201~\r", "[prompt ");
        say(&mut terminal, "not this\x03", "not this");
        say(&mut terminal, "/nonsense\r", "there is no /nonsense");
        terminal.keys("\x04");
        assert_eq!(terminal.end(), Some(0));
    }

    /// An empty prompt could not be left with Ctrl-C, or one of them would be enough.
    #[test]
    fn two_times_ctrl_c_leaves() {
        let mut terminal = start(&super::GREEDY);
        say(&mut terminal, "\x03", "(Ctrl-C again or Ctrl-D leaves)");
        say(&mut terminal, "/undo\r", "there is nothing to forget");
        say(&mut terminal, "\x03", "(Ctrl-C again or Ctrl-D leaves)");
        terminal.keys("\x03");
        assert_eq!(terminal.end(), Some(0));
    }

    /// Ctrl-C would end the program with the answer, or lose what came; nobody would see how fast it is.
    #[test]
    fn an_answer_is_interrupted() {
        // Random words until the context is full, if the end is not among them.
        let mut terminal = start(&["--temperature", "5", "--top-k", "0", "--top-p", "1", "--think", "off"]);
        for _ in 0..50 {
            terminal.keys("Go.\r");
            let (_, is_over) = terminal.wait_for_any(&[" | context ", "[prompt "]);
            if is_over == 0 {
                break;
            }
            terminal.wait_for(PROMPT);
            say(&mut terminal, "/clear\r", "is forgotten");
        }
        terminal.interrupt();
        let shown = terminal.wait_for("[prompt ");
        // The status line is cleared; half a character may have been held back.
        let (_, behind) = shown.rsplit_once("\x1b[J").unwrap_or_else(|| panic!("{shown:?}"));
        assert!(behind.ends_with("\r\n[prompt ") && !behind.contains('\x1b'), "{shown:?}");
        terminal.wait_for(PROMPT);
        say(&mut terminal, "/undo\r", "(forgotten: Go.)");
        terminal.keys("/quit\r");
        assert_eq!(terminal.end(), Some(0));
    }

    /// A command would run unseen, or without a yes.
    #[test]
    fn a_command_needs_a_yes() {
        const QUESTION: &str = "run it? [y/N] ";
        let refuse = |terminal: &mut Terminal| {
            while terminal.wait_for_any(&[QUESTION, PROMPT]).1 == 0 {
                terminal.keys("n\r");
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("chat.json");
        let mut terminal = start(&["--shell", "--temperature", "0", "--think", "off", "--max-tokens", "100"]);
        let wish = "Please run the shell with command `echo hello`.\r";
        terminal.keys(wish);
        let shown = terminal.wait_for(QUESTION);
        assert!(shown.contains("[the model wants to run]\r\necho hello\r\n"), "{shown:?}");
        terminal.keys("\r");
        refuse(&mut terminal);
        assert!(!terminal.all.contains("[exit code"), "{:?}", terminal.all);
        say(&mut terminal, &format!("/save {}\r", saved.display()), "messages are in ");
        let saved: Value = serde_json::from_str(&fs::read_to_string(saved).unwrap()).unwrap();
        assert_eq!(saved["messages"][2]["content"], "error: the user did not allow this command");
        say(&mut terminal, "/clear\r", "is forgotten");
        terminal.keys(wish);
        terminal.wait_for(QUESTION);
        terminal.keys("y\r");
        terminal.wait_for("\r\nhello\r\n[exit code 0]");
        refuse(&mut terminal);
        terminal.keys("/quit\r");
        assert_eq!(terminal.end(), Some(0));
    }

    /// A dumb terminal, or a user who wants no colours, would see codes.
    #[test]
    fn plain_terminals_get_plain_text() {
        let mut plain = command(&["run", "Who are you?", "--temperature", "0", "--think", "on"]);
        plain.env("NO_COLOR", "1");
        let mut terminal = Terminal::start(plain);
        terminal.wait_for("[prompt ");
        assert!(!terminal.all.contains("\x1b[2m"), "{:?}", terminal.all);
        assert_eq!(terminal.end(), Some(0));
    }
}
