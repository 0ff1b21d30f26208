//! The loop from prompt to answer, with a model that follows a script.

mod common;

use std::ops::ControlFlow;

use common::{Script, id};
use generate::{
    Channel, Event, Finish, GenerateError, GenerateOptions, GenerationConfig, Outcome, Sampler,
    SamplingParams, ThinkSplitter, Tokenizer, common_prefix, generate, stop_ids,
};

const PROMPT: [u32; 6] = [1, 2, 3, 4, 5, 6];

/// What a user sees, and how it ended.
struct Run {
    thinking: String,
    answer: String,
    outcome: Outcome,
}

fn options(tokenizer: &Tokenizer) -> GenerateOptions {
    let sampling = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    GenerateOptions { sampling, stop_ids: stop_ids(None, tokenizer), ..GenerateOptions::default() }
}

/// Runs the script; `stop_after`: tokens after which the caller breaks.
fn run_model(model: &mut Script, options: &GenerateOptions, stop_after: usize) -> Result<Run, GenerateError> {
    let tokenizer = common::small();
    let (mut thinking, mut answer, mut n_token) = (String::new(), String::new(), 0);
    let outcome = generate(model, &tokenizer, &PROMPT, options, &mut |event| {
        match event {
            Event::Text { channel: Channel::Thinking, text } => thinking.push_str(text),
            Event::Text { channel: Channel::Answer, text } => answer.push_str(text),
            Event::Token { .. } => n_token += 1,
            Event::PromptProgress { .. } | Event::Call(_) => {}
        }
        if n_token >= stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(Run { thinking, answer, outcome })
}

fn run(answer: &[u32], edit: impl FnOnce(&mut GenerateOptions)) -> Run {
    let mut options = options(&common::small());
    edit(&mut options);
    run_model(&mut Script::new(answer, PROMPT.len()), &options, usize::MAX).unwrap()
}

/// One token a byte, with the added tokens where the text has them.
fn tokens(text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        match common::ADDED.iter().find(|(content, _)| rest.starts_with(content)) {
            Some((content, _)) => {
                ids.push(id(content));
                rest = &rest[content.len()..];
            }
            None => {
                ids.push(first.into());
                rest = if rest.is_char_boundary(1) {
                    &rest[1..]
                } else {
                    let c = rest.chars().next().unwrap();
                    ids.extend(c.to_string().bytes().skip(1).map(u32::from));
                    &rest[c.len_utf8()..]
                };
            }
        }
    }
    ids
}

#[test]
fn split_characters_come_whole() {
    // T24: U+FFFD in the output.
    let text = "日本 👩‍👩‍👧 é";
    let run = run(&[tokens(text), vec![id("<|im_end|>")]].concat(), |_| {});
    assert_eq!((run.answer.as_str(), run.thinking.as_str()), (text, ""));
    assert_eq!(run.outcome.finish, Finish::Stop(id("<|im_end|>")));
}

#[test]
fn every_end_of_turn_stops() {
    // T26: the model would go on after its turn, or show control tokens.
    let tokenizer = common::small();
    let config =
        GenerationConfig::from_bytes(format!("{{\"eos_token_id\":{}}}", id("<|im_end|>")).as_bytes())
            .unwrap();
    for config in [None, Some(&config)] {
        let ids = stop_ids(config, &tokenizer);
        assert_eq!(ids, [id("<|endoftext|>"), id("<|im_start|>"), id("<|im_end|>")]);
        for stop in ids.clone() {
            let run = run(&[259, stop, 259, 259], |o| o.stop_ids = ids.clone());
            assert_eq!((run.answer.as_str(), run.outcome.finish), ("hello", Finish::Stop(stop)));
            assert_eq!(run.outcome.generated, [259]);
            assert_eq!(run.outcome.fed, [&PROMPT[..], &[259]].concat());
        }
    }
    let extra = GenerationConfig::from_bytes(b"{\"eos_token_id\":[259,259]}").unwrap();
    assert_eq!(stop_ids(Some(&extra), &tokenizer).len(), 4);
    // Only a caller that asks for it goes on; control tokens are not shown even then.
    let run = run(&[259, id("<|im_end|>"), 259], |o| {
        o.stop_ids.clear();
        o.max_tokens = Some(3)
    });
    assert_eq!((run.answer.as_str(), run.outcome.finish), ("hellohello", Finish::Length));
}

#[test]
fn padding_rows_are_never_chosen() {
    // The script's favourite is always a row without a token: answers would be empty.
    let run = run(&[259], |o| o.max_tokens = Some(1));
    assert_eq!(run.outcome.generated, [259]);
}

#[test]
fn text_is_split_into_thinking_and_answer() {
    // T32, A33: thinking would be shown as answer, the answer vanish, or tags leak.
    let cases = [
        // (prompt opens thinking, model's text, thinking, answer)
        (true, "plan\n</think>\n\nParis.", "plan", "Paris."),
        (true, "a\n\nb\n</think>\n\n x", "a\n\nb", " x"),
        (true, "</think>\n\nParis.", "", "Paris."),
        (true, "\n</think>Paris.", "", "Paris."),
        (true, "never closed\n", "never closed\n", ""),
        (true, "a </thin b </thi", "a </thin b </thi", ""),
        (true, "a </think>b</think>c<think>d", "a ", "b</think>c<think>d"),
        (true, "a <tool_call> b\n\n\n</think>x\n", "a <tool_call> b", "x\n"),
        (true, "", "", ""),
        (false, "Paris.", "", "Paris."),
        (false, "\nParis.\n", "", "\nParis.\n"),
        (false, "<think>\nplan\n</think>\n\nParis.", "plan", "Paris."),
        (false, "\n<think>plan</think>Paris.", "plan", "Paris."),
        (false, "<thin", "", "<thin"),
        (false, "<thing> and </think>", "", "<thing> and </think>"),
        (false, "x <think> y", "", "x <think> y"),
        (false, "if (i < n && a <b) return <tool>;", "", "if (i < n && a <b) return <tool>;"),
        (false, "ends at <tool_", "", "ends at <tool_"),
        (false, "  \n", "", "  \n"),
    ];
    for (thinking_open, text, thinking, answer) in cases {
        // As the model gives it, tags as tokens.
        let stop = [tokens(text), vec![id("<|im_end|>")]].concat();
        let run = run(&stop, |o| o.output.thinking_open = thinking_open);
        assert_eq!((run.thinking.as_str(), run.answer.as_str()), (thinking, answer), "{text:?}");
        // Tags in pieces: all ways to cut the text in two, and one character at a time.
        let chars: Vec<String> = text.chars().map(String::from).collect();
        let cuts = (0..=text.len()).map(|at| vec![text[..at].to_owned(), text[at..].to_owned()]);
        for pieces in cuts.chain([chars, vec![text.to_owned()]]) {
            let mut got = (String::new(), String::new());
            let mut splitter = ThinkSplitter::new(thinking_open);
            let mut out = |channel, text: &str| match channel {
                Channel::Thinking => got.0.push_str(text),
                Channel::Answer => got.1.push_str(text),
            };
            pieces.iter().for_each(|piece| splitter.push(piece, &mut out));
            splitter.finish(&mut out);
            assert_eq!((got.0.as_str(), got.1.as_str()), (thinking, answer), "{pieces:?}");
        }
    }
}

#[test]
fn raw_mode_shows_everything() {
    // `--raw` output would lose what looks like thinking.
    let run = run(&tokens("<think>a</think>\n\nb<|im_end|>"), |o| o.output.raw = true);
    assert_eq!((run.answer.as_str(), run.thinking.as_str()), ("<think>a</think>\n\nb", ""));
}

#[test]
fn limits_end_the_answer() {
    // Answers would be cut without a word, or the context overrun.
    let run_ctx = |n_ctx, max_tokens| {
        let mut model = Script::new(&[259; 20], PROMPT.len());
        model.n_ctx = n_ctx;
        let options = GenerateOptions { max_tokens, ..options(&common::small()) };
        let run = run_model(&mut model, &options, usize::MAX).unwrap();
        assert_eq!(run.outcome.fed, model.fed);
        assert_eq!(run.answer, "hello".repeat(run.outcome.generated.len()));
        (run.outcome.finish, run.outcome.generated.len(), model.fed.len())
    };
    assert_eq!(run_ctx(100, Some(3)), (Finish::Length, 3, 8));
    assert_eq!(run_ctx(100, Some(0)), (Finish::Length, 0, 6));
    assert_eq!(run_ctx(9, None), (Finish::ContextFull, 4, 9));
    assert_eq!(run_ctx(6, None), (Finish::ContextFull, 1, 6));
    assert_eq!(run_ctx(9, Some(4)), (Finish::Length, 4, 9));
    // What was held back comes out at the end: half a character, a possible tag.
    let run = run(&tokens("ab<th\u{e9}"), |o| o.max_tokens = Some(6));
    assert_eq!(run.answer, "ab<th\u{FFFD}");
}

#[test]
fn bad_prompts_are_errors() {
    // A prompt that does not fit would be cut, or fail far away from its cause.
    let tokenizer = common::small();
    let run = |model: &mut Script, prompt: &[u32]| {
        generate(model, &tokenizer, prompt, &options(&tokenizer), &mut |_| ControlFlow::Continue(()))
    };
    let mut model = Script::new(&[259], 0);
    model.n_ctx = 5;
    let error = run(&mut model, &PROMPT).unwrap_err();
    assert!(matches!(error, GenerateError::PromptTooLong { n_prompt: 6, n_ctx: 5 }), "{error}");
    assert!(matches!(run(&mut model, &[]), Err(GenerateError::EmptyPrompt)));
    assert!(model.fed.is_empty());
    model.fed = vec![1, 2];
    assert!(matches!(run(&mut model, &[1, 2]), Err(GenerateError::NothingToFeed { pos: 2, n_prompt: 2 })));
}

#[test]
fn overflow_is_an_error() {
    // N13: token 0 for ever.
    let mut model = Script::new(&[259; 20], PROMPT.len());
    model.broken_at = Some(8);
    let Err(error) = run_model(&mut model, &options(&common::small()), usize::MAX) else {
        panic!("no error")
    };
    assert!(matches!(error, GenerateError::NonFinite { id: 7, pos: 8, .. }), "{error}");
}

#[test]
fn a_conversation_continues_where_it_was() {
    // The whole conversation would be read again for every question.
    let tokenizer = common::small();
    let mut model = Script::new(&[259, 10, id("<|im_end|>")], PROMPT.len());
    let first = run_model(&mut model, &options(&tokenizer), usize::MAX).unwrap().outcome;
    assert_eq!((first.n_prompt, first.n_reused), (6, 0));
    // The next prompt holds the answer and more.
    let next = [&PROMPT[..], &[259, 10, id("<|im_end|>"), 50, 51]].concat();
    assert_eq!(common_prefix(&first.fed, &next), first.fed.len());
    model.answer = vec![259, id("<|im_end|>")];
    model.n_prompt = next.len();
    let mut progress = Vec::new();
    let second = generate(&mut model, &tokenizer, &next, &options(&tokenizer), &mut |event| {
        if let Event::PromptProgress { done, total } = event {
            progress.push((done, total));
        }
        ControlFlow::Continue(())
    });
    let second = second.unwrap();
    assert_eq!((second.n_prompt, second.n_reused), (next.len(), first.fed.len()));
    assert_eq!(progress, [(3, 3)]);
    assert_eq!(second.generated, [259]);
    assert_eq!(model.fed, second.fed);
    for (a, b, n) in
        [(&[1, 2, 3][..], &[1, 2, 4][..], 2), (&[], &[1], 0), (&[1], &[1, 2], 1), (&[2], &[1], 0)]
    {
        assert_eq!(common_prefix(a, b), n);
    }
}

#[test]
fn interrupting_keeps_the_model_usable() {
    // Ctrl-C would end the chat, or the next answer would start from a state that nobody knows.
    let tokenizer = common::small();
    let mut model = Script::new(&[259; 20], PROMPT.len());
    // In the prompt, after the first chunk of 4.
    let outcome =
        generate(&mut model, &tokenizer, &PROMPT, &options(&tokenizer), &mut |_| ControlFlow::Break(()))
            .unwrap();
    assert_eq!((outcome.finish, outcome.fed.as_slice()), (Finish::Interrupted, &PROMPT[..4]));
    assert!(outcome.generated.is_empty());
    // Again, now in the answer, after two tokens; the second is shown.
    let run = run_model(&mut model, &options(&tokenizer), 2).unwrap();
    assert_eq!(run.outcome.finish, Finish::Interrupted);
    assert_eq!((run.outcome.n_reused, run.answer.as_str()), (4, "hellohello"));
    assert_eq!(run.outcome.fed, [&PROMPT[..], &[259]].concat());
    assert_eq!(model.fed, run.outcome.fed);
}

#[test]
fn seeds_make_answers_repeatable() {
    // The same question with the same seed would get another answer.
    let answer = |seed| {
        let sampling =
            SamplingParams { temperature: 100.0, top_k: 0, top_p: 1.0, seed, ..SamplingParams::default() };
        run(&[259; 30], |o| {
            o.sampling = sampling;
            o.max_tokens = Some(20);
            o.stop_ids.clear()
        })
        .outcome
        .generated
    };
    assert_eq!(answer(1), answer(1));
    assert_ne!(answer(1), answer(2));
}

#[test]
fn stop_texts_end_the_answer_and_never_show() {
    // A17: a part of the stop text would be shown, or what only looked like one vanish.
    let end = id("<|im_end|>");
    let cases = [
        // (model's text, stop texts, answer, the one that came, tokens generated)
        ("END of it", vec!["END", "\n\nUser:"], "", Some("END"), 3),
        ("hi END x", vec!["END"], "hi ", Some("END"), 6),
        ("hi\n\nUser: x", vec!["END", "\n\nUser:"], "hi", Some("\n\nUser:"), 9),
        ("ends in EN", vec!["END"], "ends in EN", None, 10),
        ("hello hello", vec!["llo"], "he", Some("llo"), 5),
        ("é→é", vec!["→"], "é", Some("→"), 5),
    ];
    for (text, stops, answer, found, n_generated) in cases {
        let script = [tokens(text), vec![end]].concat();
        let run = run(&script, |o| o.stop_texts = stops.iter().map(|s| s.to_string()).collect());
        let finish = found.map_or(Finish::Stop(end), |text| Finish::StopText(text.into()));
        assert_eq!((run.answer.as_str(), run.outcome.finish), (answer, finish), "{text:?}");
        assert_eq!(run.outcome.generated.len(), n_generated, "{text:?}");
    }
    // Thinking is not the answer; what is held back at a limit comes out.
    let script = tokens("END plan\n</think>\n\nBye EN");
    let run = run(&script, |o| {
        o.output.thinking_open = true;
        o.stop_texts = vec!["END".into()];
        o.max_tokens = Some(script.len());
    });
    assert_eq!((run.thinking.as_str(), run.answer.as_str()), ("END plan", "Bye EN"));
    assert_eq!(run.outcome.finish, Finish::Length);
    for stop in ["", &"x".repeat(10_000)] {
        let options = GenerateOptions { stop_texts: vec![stop.into()], ..options(&common::small()) };
        let run = run_model(&mut Script::new(&[259], PROMPT.len()), &options, usize::MAX);
        assert!(matches!(run, Err(GenerateError::StopText { .. })));
    }
}

#[test]
fn penalties_break_a_loop() {
    // T31: an answer that goes round in eight tokens would never end.
    let cycle = [70, 71, 72, 73, 74, 75, 76, 77];
    let script: Vec<u32> = cycle.iter().copied().cycle().take(200).collect();
    let first_change = |edit: fn(&mut SamplingParams)| {
        let run = run(&script, |o| {
            edit(&mut o.sampling);
            o.max_tokens = Some(150);
        });
        run.outcome.generated.iter().zip(&script).position(|(a, b)| a != b)
    };
    // The script's favourite is 25 above all others: only counted penalties get there.
    assert_eq!(first_change(|_| {}), None);
    assert_eq!(first_change(|p| p.presence_penalty = 1.5), None);
    assert_eq!(first_change(|p| p.frequency_penalty = 2.0), Some(13 * 8));
    // Where the next best is near, the choice changes within the second round. The prompt's tokens do not count.
    let mut logits = vec![0.0; 10];
    let mut sampler =
        Sampler::new(SamplingParams { presence_penalty: 1.5, ..greedy() }, 10, &[0, 1, 2]).unwrap();
    let mut chosen = Vec::new();
    for n in 0..16 {
        logits.fill(0.0);
        logits[n % 8] = 1.0;
        chosen.push(sampler.sample(&logits, n).unwrap());
    }
    assert_eq!(chosen[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(chosen[8..10], [8, 9], "{chosen:?}");
}

fn greedy() -> SamplingParams {
    SamplingParams { temperature: 0.0, ..SamplingParams::default() }
}

#[test]
fn log_probabilities_are_the_models_own() {
    // A22: clients would get the probabilities of truncated, biased or penalised distributions, or none.
    let script = [259, 10, id("<|im_end|>")];
    let told = |n_top_logprob, edit: fn(&mut GenerateOptions)| {
        let mut options = options(&common::small());
        options.n_top_logprob = n_top_logprob;
        edit(&mut options);
        let mut told = Vec::new();
        let mut model = Script::new(&script, PROMPT.len());
        generate(&mut model, &common::small(), &PROMPT, &options, &mut |event| {
            if let Event::Token { id, logprob } = event {
                told.push((id, logprob.cloned()));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        told
    };
    assert_eq!(told(None, |_| {}), [(259, None), (10, None)]);
    // Of 271 tokens one has logit 20, the others -5.
    let total = 1.0 + 270.0 * (-25f64).exp();
    let (likely, other) = ((1.0 / total).ln() as f32, ((-25f64).exp() / total).ln() as f32);
    for (n_top, top) in [(0, vec![]), (3, vec![(259, likely), (0, other), (1, other)])] {
        let (id, logprob) = told(Some(n_top), |_| {}).swap_remove(0);
        let logprob = logprob.unwrap();
        assert_eq!((id, logprob.top.len()), (259, top.len()));
        assert!((logprob.logprob - likely).abs() < 1e-5);
        for ((id, got), (expected_id, expected)) in logprob.top.iter().zip(&top) {
            assert_eq!(id, expected_id);
            assert!((got - expected).abs() < 1e-5, "{got} {expected}");
        }
    }
    // The same whatever made the choice: here a bias, which makes an unlikely one.
    let (id, logprob) = told(Some(1), |o| {
        o.logit_bias = vec![(259, -100.0), (5, 1.0)];
        o.sampling.repetition_penalty = 1.5;
    })
    .swap_remove(0);
    assert_eq!(id, 0, "5 is in the prompt and penalised");
    let logprob = logprob.unwrap();
    assert!((logprob.logprob - other).abs() < 1e-4);
    assert_eq!(logprob.top[0].0, 259);
    // All together they are a distribution.
    let all = told(Some(100), |_| {}).swap_remove(0).1.unwrap();
    let sum: f64 = all.top.iter().map(|(_, logprob)| f64::from(*logprob).exp()).sum();
    assert!(sum <= 1.0 + 1e-6 && sum > 0.999, "{sum}");
    let options = GenerateOptions { n_top_logprob: Some(101), ..options(&common::small()) };
    let run = run_model(&mut Script::new(&script, PROMPT.len()), &options, usize::MAX);
    assert!(matches!(run, Err(GenerateError::Parameter { name: "top_logprobs", .. })));
}

#[test]
fn a_bias_moves_the_choice() {
    // Clients that ban or force a token would find it unchanged, or changed by a penalty.
    let first = |bias: &[(u32, f32)]| {
        run(&[259; 3], |o| {
            o.logit_bias = bias.to_vec();
            o.sampling.repetition_penalty = 10.0;
            o.max_tokens = Some(1);
        })
        .outcome
        .generated[0]
    };
    assert_eq!(first(&[]), 259);
    assert_eq!(first(&[(259, -100.0)]), 0);
    assert_eq!(first(&[(259, -24.0)]), 259);
    assert_eq!(first(&[(3, 100.0)]), 3, "a token of the prompt, which the penalty counts");
    assert_eq!(first(&[(70, 30.0), (71, 31.0)]), 71);
    for (bias, name) in
        [((5, 100.5), "logit_bias"), ((5, f32::NAN), "logit_bias"), ((271, 1.0), "a token of logit_bias")]
    {
        let options = GenerateOptions { logit_bias: vec![bias], ..options(&common::small()) };
        match run_model(&mut Script::new(&[259], PROMPT.len()), &options, usize::MAX) {
            Err(GenerateError::Parameter { name: got, .. }) => assert_eq!(got, name),
            other => panic!("{bias:?}: {:?}", other.map(|run| run.outcome)),
        }
    }
}
