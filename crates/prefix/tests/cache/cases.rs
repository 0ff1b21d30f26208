//! Conversations as clients have them, on the level of token ids: how much of each prompt need not be fed again.

use std::ops::Range;

use prefix::{Cache, Checkpoint, Identity, Prompt, Shape, Timeline, points};

/// A thousandth of a large model's: 30 KiB a token, 186 MiB a state.
const SHAPE: Shape = Shape { kv_token_bytes: 30, state_bytes: 190_000, logits_bytes: 600 };

/// Tokens that ask for an answer.
const ASK: Text = (1000, 5);

/// A piece of text: which one, and its tokens.
type Text = (u32, usize);

struct Turn {
    /// The prompt's messages; the first is the system message and the tools.
    messages: &'static [&'static [Text]],
    /// What is generated, and then kept too.
    answer: &'static [Text],
    /// Tokens of the prompt that need not be fed.
    n_reused: usize,
}

struct Case {
    name: &'static str,
    memory_bytes: u64,
    turns: &'static [Turn],
}

const ROOMY: u64 = u64::MAX;

/// A model that only counts bytes.
struct Blank;

impl Timeline for Blank {
    fn read_kv(&self, positions: Range<usize>, out: &mut [u8]) -> Result<(), String> {
        assert_eq!(out.len(), positions.len() * SHAPE.kv_token_bytes);
        Ok(())
    }

    fn write_kv(&mut self, positions: Range<usize>, bytes: &[u8]) -> Result<(), String> {
        assert_eq!(bytes.len(), positions.len() * SHAPE.kv_token_bytes);
        Ok(())
    }

    fn resume(&mut self, _ids: &[u32], state: &[u8]) -> Result<(), String> {
        assert!(state.len() >= SHAPE.state_bytes);
        Ok(())
    }
}

fn ids(text: &[Text]) -> Vec<u32> {
    text.iter().flat_map(|&(seed, n)| (0..n as u32).map(move |i| seed * 100_000 + i)).collect()
}

fn cache(memory_bytes: u64) -> Cache {
    let identity = Identity { fingerprint: 3, settings: String::new(), model: "blank".into(), shape: SHAPE };
    Cache::new(identity, memory_bytes)
}

fn keep(cache: &mut Cache, ids: &[u32], with_logits: bool, likelihood: f32) {
    let state = vec![0; SHAPE.state_bytes + if with_logits { SHAPE.logits_bytes } else { 0 }];
    cache.keep(Checkpoint { ids, state, likelihood }, &Blank);
}

/// Reads a prompt and answers it, as a server does; tokens that were not fed.
fn take(cache: &mut Cache, turn: &Turn) -> usize {
    let mut prompt = Vec::new();
    let mut borders = Vec::new();
    for message in turn.messages {
        borders.push(prompt.len());
        prompt.extend(ids(message));
    }
    let n_settled = prompt.len();
    prompt.extend(ids(&[ASK]));
    let n_reused = cache.load(&prompt, 0, &mut Blank).n_reused;
    let n_token = prompt.len();
    let asked = Prompt { n_token, borders: &borders, n_settled, n_reused, is_marked: false };
    for point in points(&asked, SHAPE) {
        keep(cache, &prompt[..point.pos], point.pos == n_token, point.likelihood);
    }
    if !turn.answer.is_empty() {
        prompt.extend(ids(turn.answer));
        keep(cache, &prompt, false, 1.0);
    }
    n_reused
}

const SYSTEM: &[Text] = &[(1, 6000)];
const TITLE: &[Text] = &[(90, 200)];
const AGENT: &[Text] = &[(91, 8000)];

const CASES: &[Case] = &[
    Case {
        name: "the same long prompt twice",
        memory_bytes: ROOMY,
        turns: &[
            Turn { messages: &[SYSTEM, &[(2, 14_000)]], answer: &[], n_reused: 0 },
            Turn { messages: &[SYSTEM, &[(2, 14_000)]], answer: &[], n_reused: 20_000 },
        ],
    },
    Case {
        name: "the same head, another question",
        memory_bytes: ROOMY,
        turns: &[
            Turn { messages: &[SYSTEM, &[(2, 50)]], answer: &[(3, 80)], n_reused: 0 },
            Turn { messages: &[SYSTEM, &[(4, 70)]], answer: &[(5, 80)], n_reused: 6000 },
        ],
    },
    Case {
        name: "a head too short to keep is fed again",
        memory_bytes: ROOMY,
        turns: &[
            Turn { messages: &[&[(1, 40)], &[(2, 500)]], answer: &[(3, 80)], n_reused: 0 },
            Turn { messages: &[&[(1, 40)], &[(4, 70)]], answer: &[(5, 80)], n_reused: 0 },
        ],
    },
    Case {
        name: "a conversation goes on: all but the newest message, and what asked for the answer is part of it",
        memory_bytes: ROOMY,
        turns: &[
            Turn { messages: &[SYSTEM, &[(2, 300)]], answer: &[(3, 80)], n_reused: 0 },
            Turn {
                messages: &[SYSTEM, &[(2, 300)], &[ASK, (3, 80)], &[(4, 200)]],
                answer: &[(5, 90)],
                n_reused: 6385,
            },
            Turn {
                messages: &[SYSTEM, &[(2, 300)], &[ASK, (3, 80)], &[(4, 200)], &[ASK, (5, 90)], &[(6, 100)]],
                answer: &[],
                n_reused: 6680,
            },
        ],
    },
    Case {
        name: "an earlier message is changed, the last answer made again, a message left out",
        memory_bytes: ROOMY,
        turns: &[
            Turn { messages: &[&[(1, 3000)], &[(2, 3000)]], answer: &[(3, 3000)], n_reused: 0 },
            Turn {
                messages: &[&[(1, 3000)], &[(2, 3000)], &[ASK, (3, 3000)], &[(4, 3000)]],
                answer: &[(5, 3000)],
                n_reused: 9005,
            },
            Turn {
                messages: &[
                    &[(1, 3000)],
                    &[(2, 3000)],
                    &[ASK, (3, 3000)],
                    &[(4, 3000)],
                    &[ASK, (5, 3000)],
                    &[(6, 3000)],
                ],
                answer: &[(7, 3000)],
                n_reused: 15_010,
            },
            // Message 6 is changed: all before it.
            Turn {
                messages: &[
                    &[(1, 3000)],
                    &[(2, 3000)],
                    &[ASK, (3, 3000)],
                    &[(4, 3000)],
                    &[ASK, (5, 3000)],
                    &[(66, 500)],
                ],
                answer: &[(77, 500)],
                n_reused: 15_010,
            },
            // Its answer is made again: all of the prompt but what asks for it.
            Turn {
                messages: &[
                    &[(1, 3000)],
                    &[(2, 3000)],
                    &[ASK, (3, 3000)],
                    &[(4, 3000)],
                    &[ASK, (5, 3000)],
                    &[(66, 500)],
                ],
                answer: &[],
                n_reused: 15_510,
            },
            // Message 4 is left out: all before it.
            Turn {
                messages: &[&[(1, 3000)], &[(2, 3000)], &[ASK, (3, 3000)], &[ASK, (5, 3000)], &[(6, 3000)]],
                answer: &[],
                n_reused: 9005,
            },
            // The first message is changed: the system message.
            Turn { messages: &[&[(1, 3000)], &[(22, 3000)], &[ASK, (3, 3000)]], answer: &[], n_reused: 3000 },
            // The system message is changed: nothing.
            Turn { messages: &[&[(11, 3000)], &[(2, 3000)], &[ASK, (3, 3000)]], answer: &[], n_reused: 0 },
        ],
    },
    Case {
        name: "old thinking is left out by the client",
        memory_bytes: ROOMY,
        turns: &[
            Turn { messages: &[SYSTEM, &[(2, 300)]], answer: &[(30, 2000), (3, 80)], n_reused: 0 },
            Turn {
                messages: &[SYSTEM, &[(2, 300)], &[ASK, (3, 80)], &[(4, 50)]],
                answer: &[],
                n_reused: 6300,
            },
        ],
    },
    Case {
        name: "old thinking comes back",
        memory_bytes: ROOMY,
        turns: &[
            Turn { messages: &[SYSTEM, &[(2, 300)]], answer: &[(30, 2000), (3, 80)], n_reused: 0 },
            Turn {
                messages: &[SYSTEM, &[(2, 300)], &[ASK, (30, 2000), (3, 80)], &[(4, 50)]],
                answer: &[],
                n_reused: 8385,
            },
        ],
    },
    Case {
        name: "the client trims the end of an answer",
        memory_bytes: ROOMY,
        turns: &[
            Turn { messages: &[SYSTEM, &[(2, 300)]], answer: &[(3, 80), (70, 1)], n_reused: 0 },
            Turn {
                messages: &[SYSTEM, &[(2, 300)], &[ASK, (3, 80), (71, 1)], &[(4, 50)]],
                answer: &[],
                n_reused: 6300,
            },
        ],
    },
    Case {
        name: "the front end drops the oldest messages each turn",
        memory_bytes: ROOMY,
        turns: &[
            Turn { messages: &[&[(1, 2000)], &[(2, 3000)], &[(3, 2000)]], answer: &[(4, 100)], n_reused: 0 },
            Turn {
                messages: &[&[(1, 2000)], &[(3, 2000)], &[ASK, (4, 100)], &[(5, 50)]],
                answer: &[],
                n_reused: 2000,
            },
            Turn { messages: &[&[(1, 2000)], &[ASK, (4, 100)], &[(5, 50)]], answer: &[], n_reused: 2000 },
            Turn { messages: &[&[(1, 2000)], &[(5, 50)], &[(6, 50)]], answer: &[], n_reused: 2000 },
        ],
    },
    Case {
        // 1.2 MB of keys and values, and seven states.
        name: "titles and sub-agents come between two turns of a large conversation that fills the memory",
        memory_bytes: 2_600_000,
        turns: &[
            Turn { messages: &[&[(1, 20_000)], &[(2, 19_700)]], answer: &[(3, 300)], n_reused: 0 },
            Turn { messages: &[TITLE, &[(92, 100)]], answer: &[(93, 10)], n_reused: 0 },
            Turn { messages: &[AGENT, &[(94, 4000)]], answer: &[(95, 500)], n_reused: 0 },
            Turn { messages: &[TITLE, &[(96, 100)]], answer: &[(97, 10)], n_reused: 0 },
            Turn {
                messages: &[&[(1, 20_000)], &[(2, 19_700)], &[ASK, (3, 300)], &[(4, 100)]],
                answer: &[],
                // The answer of 300 tokens found no room.
                n_reused: 39_700,
            },
        ],
    },
    Case {
        name: "a long conversation keeps its end where memory has room for a few states only",
        memory_bytes: 1_000_000,
        turns: &[
            Turn { messages: &[&[(1, 2000)], &[(2, 500)]], answer: &[], n_reused: 0 },
            Turn { messages: &[&[(1, 2000)], &[(2, 500)], &[(3, 500)]], answer: &[], n_reused: 2500 },
            Turn {
                messages: &[&[(1, 2000)], &[(2, 500)], &[(3, 500)], &[(4, 500)]],
                answer: &[],
                n_reused: 3000,
            },
            Turn {
                messages: &[&[(1, 2000)], &[(2, 500)], &[(3, 500)], &[(4, 500)], &[(5, 500)]],
                answer: &[],
                n_reused: 3500,
            },
            Turn {
                messages: &[&[(1, 2000)], &[(2, 500)], &[(3, 500)], &[(4, 500)], &[(5, 500)], &[(6, 500)]],
                answer: &[],
                n_reused: 4000,
            },
            Turn {
                messages: &[
                    &[(1, 2000)],
                    &[(2, 500)],
                    &[(3, 500)],
                    &[(4, 500)],
                    &[(5, 500)],
                    &[(6, 500)],
                    &[(7, 500)],
                ],
                answer: &[],
                n_reused: 4500,
            },
        ],
    },
];

/// Clients would wait for prompts that were read before.
#[test]
fn conversations_are_not_read_twice() {
    for Case { name, memory_bytes, turns } in CASES {
        let mut cache = cache(*memory_bytes);
        let reused: Vec<usize> = turns.iter().map(|turn| take(&mut cache, turn)).collect();
        let expected: Vec<usize> = turns.iter().map(|turn| turn.n_reused).collect();
        assert_eq!(reused, expected, "{name}");
        let stats = cache.stats();
        assert!(stats.memory_bytes <= *memory_bytes, "{name}: {stats:?}");
        let n_hit = expected.iter().filter(|n| **n > 0).count() as u64;
        assert_eq!((stats.n_hit, stats.n_miss), (n_hit, turns.len() as u64 - n_hit), "{name}");
        assert!(cache.take_warnings().is_empty(), "{name}");
    }
}
