//! A model that plays scripts: what it says depends on which key the prompt contains last.
//!
//! It has keys and values and a recurrent state as real ones do, made by hashing: whatever is fed depends on all of
//! them, and a session with a wrong one says nothing but nonsense.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use generate::{TextFiles, TextModel, Tokenizer};
use model::ModelError;
use prefix::{Identity, Shape};
use serve::engine::{Counters, Model};

/// Batches end at multiples of this.
const N_ALIGN: usize = 64;
/// Far above all others.
const LOUD: f32 = 40.0;
/// Of keys and values of a position (all keys come first, then all values), and of the recurrent state.
const KV_BYTES: usize = 8;
const STATE_BYTES: usize = 8;
/// What a session says that was taken to a wrong place.
const NONSENSE: &str = "?";

/// Tokenizer, template and defaults of the demo model.
pub(crate) fn text_model() -> TextModel {
    TextModel::new(TextFiles {
        tokenizer: include_bytes!("../../../cli/demo/tokenizer.json"),
        tokenizer_config: Some(include_bytes!("../../../cli/demo/tokenizer_config.json")),
        chat_template: Some(include_bytes!("../../../cli/demo/chat_template.jinja")),
        generation_config: Some(include_bytes!("../../../cli/demo/generation_config.json")),
    })
    .expect("the demo model's files are sound")
}

/// What the model says.
#[derive(Clone, Debug)]
pub(crate) enum Script {
    /// These tokens, then the end of the turn.
    Text(String),
    /// The same, one character a token at most.
    Characters(String),
    /// So many letters that depend on everything before, and on the sampler.
    Noise(usize),
    /// These tokens, then an error.
    Fails(String),
    /// An error in the prompt.
    FailsAtOnce,
}

/// Holds the model up until it is opened.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap();
        drop(self.changed.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

/// What happened to the model, for tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// Tokens of prompts that were fed.
    pub(crate) n_fed: usize,
    /// Passes of one token each for several sessions, and how many sessions.
    pub(crate) batches: Vec<usize>,
    /// Sessions that there are, and the most there were.
    pub(crate) n_session: usize,
    pub(crate) n_session_max: usize,
}

/// The scripts, the speed, and what happened.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) scripts: BTreeMap<String, Script>,
    pub(crate) n_ctx: usize,
    /// For each token of a prompt, and for each pass of single tokens.
    pub(crate) prefill_time: Duration,
    pub(crate) decode_time: Duration,
    /// Prompts that contain the key wait in front of it.
    pub(crate) gate: Option<(String, Arc<Gate>)>,
    pub(crate) log: Arc<Mutex<Log>>,
}

impl Stage {
    pub(crate) fn new(scripts: &[(&str, Script)]) -> Self {
        Self {
            scripts: scripts.iter().map(|(key, script)| ((*key).to_owned(), script.clone())).collect(),
            n_ctx: 4096,
            prefill_time: Duration::ZERO,
            decode_time: Duration::ZERO,
            gate: None,
            log: Arc::default(),
        }
    }
}

/// What a recurrent state becomes by a token behind some keys and values.
fn mix(state: u64, id: u32, attended: u64) -> u64 {
    let hash = (state ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    (hash ^ attended).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Keys and values of a token.
fn key_value(pos: usize, id: u32) -> u64 {
    mix(pos as u64, id, 1)
}

/// The state behind some tokens that are fed one after another from nothing.
fn cold_state(ids: &[u32]) -> u64 {
    let (mut state, mut attended) = (0, 0_u64);
    for (pos, &id) in ids.iter().enumerate() {
        attended = attended.wrapping_add(key_value(pos, id));
        state = mix(state, id, attended);
    }
    state
}

/// Plays on a stage.
pub(crate) struct Scripted {
    stage: Stage,
    tokenizer: Tokenizer,
    start_id: u32,
    end_id: u32,
    counters: Counters,
}

pub(crate) struct Session {
    ids: Vec<u32>,
    kv: Vec<u64>,
    state: u64,
    /// Where to remember the state, and what was remembered.
    keep_at: Vec<usize>,
    kept: Vec<(usize, Vec<u8>)>,
    logits: Vec<f32>,
    /// The answer, from when the prompt was fed: tokens, and their bytes.
    reply: Vec<u32>,
    reply_bytes: Vec<u8>,
    /// What was said of it: tokens, and their bytes. A grammar may have said it in other tokens.
    n_said: usize,
    said: Vec<u8>,
    script: Option<Script>,
    failure: Option<String>,
    log: Arc<Mutex<Log>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.log.lock().unwrap().n_session -= 1;
    }
}

impl Session {
    /// Takes tokens behind what keys and values there are.
    fn push(&mut self, ids: &[u32]) {
        let mut attended = self.kv.iter().fold(0_u64, |sum, &kv| sum.wrapping_add(kv));
        for &id in ids {
            self.kv.push(key_value(self.ids.len(), id));
            attended = attended.wrapping_add(key_value(self.ids.len(), id));
            self.state = mix(self.state, id, attended);
            self.ids.push(id);
            if self.keep_at.contains(&self.ids.len()) {
                self.kept.push((self.ids.len(), self.state.to_le_bytes().into()));
            }
        }
    }
}

impl Scripted {
    /// What a cache keeps of it.
    pub(crate) fn identity() -> Identity {
        let logits_bytes = text_model().tokenizer().vocab_size() * size_of::<f32>();
        let shape = Shape { kv_token_bytes: KV_BYTES, state_bytes: STATE_BYTES, logits_bytes };
        Identity { fingerprint: 1, settings: "scripted".into(), model: "org/model".into(), shape }
    }

    pub(crate) fn new(stage: Stage) -> Self {
        let tokenizer = include_bytes!("../../../cli/demo/tokenizer.json");
        let tokenizer = Tokenizer::from_bytes(tokenizer, None).expect("it is sound");
        let [start_id, end_id] =
            ["<|im_start|>", "<|im_end|>"].map(|tag| tokenizer.token_id(tag).expect("it has one"));
        Self { stage, tokenizer, start_id, end_id, counters: Counters::default() }
    }

    /// The script whose key comes last, and where that is.
    fn script(&self, text: &str) -> Option<Script> {
        let found = self.stage.scripts.iter().filter_map(|(key, script)| Some((text.rfind(key)?, script)));
        found.max_by_key(|&(at, _)| at).map(|(_, script)| script.clone())
    }

    fn begin(&self, session: &mut Session) {
        let script = self.script(&self.tokenizer.decode(&session.ids, false));
        let encode = |text: &str| self.tokenizer.encode(text).expect("it can be encoded");
        session.reply = match &script {
            Some(Script::Text(text) | Script::Fails(text)) => encode(text),
            Some(Script::Characters(text)) => characters(text).flat_map(|piece| encode(&piece)).collect(),
            Some(Script::Noise(_) | Script::FailsAtOnce) | None => Vec::new(),
        };
        session.reply_bytes = self.bytes(&session.reply);
        (session.script, session.n_said) = (script, 0);
        session.said.clear();
    }

    fn bytes(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|&id| self.tokenizer.token_bytes(id)).copied().collect()
    }

    /// The next token of the answer; the end of the turn if something else was said.
    fn next(&self, session: &Session) -> u32 {
        let mut start = 0;
        for &id in &session.reply {
            if start == session.said.len() && session.reply_bytes.starts_with(&session.said) {
                return id;
            }
            start += self.tokenizer.token_bytes(id).len();
        }
        let rest = session.reply_bytes.strip_prefix(session.said.as_slice());
        let rest = rest.and_then(|rest| std::str::from_utf8(rest).ok()).unwrap_or_default();
        let ids = self.tokenizer.encode(rest).expect("it can be encoded");
        ids.first().copied().unwrap_or(self.end_id)
    }

    /// Logits after what was fed.
    fn speak(&self, session: &mut Session) {
        session.logits.fill(0.0);
        if session.state != cold_state(&session.ids) {
            let id = self.tokenizer.token_id(NONSENSE).expect("it is a token");
            session.logits[id as usize] = LOUD;
            return;
        }
        if let Some(Script::Noise(n)) = session.script
            && session.n_said < n
        {
            // Letters only, so that the text can be told apart from anything else.
            let mut hash = session.state;
            for letter in 'a'..='p' {
                hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let id = self.tokenizer.token_id(&letter.to_string()).expect("letters are tokens");
                session.logits[id as usize] = LOUD + (hash >> 61) as f32 / 2.0;
            }
            return;
        }
        let id = self.next(session);
        session.logits[id as usize] = LOUD;
    }

    fn work(&mut self, n_token: usize) {
        self.counters.n_hit += 9 * n_token as u64;
        self.counters.n_miss += n_token as u64;
        self.counters.read_bytes += 1000 * n_token as u64;
        self.counters.wait += Duration::from_micros(n_token as u64);
    }

    fn say(&self, session: &mut Session, id: u32) -> Result<(), ModelError> {
        if matches!(session.script, Some(Script::Fails(_))) && session.reply.len() <= session.n_said + 1 {
            let what = "an injected error".to_owned();
            session.failure = Some(what.clone());
            return Err(ModelError::Backend { what });
        }
        session.push(&[id]);
        session.n_said += 1;
        session.said.extend_from_slice(self.tokenizer.token_bytes(id));
        self.speak(session);
        Ok(())
    }
}

/// Characters, with tags whole: they are tokens.
fn characters(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let tags = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>"];
        let tag = tags.into_iter().find(|tag| rest.starts_with(tag));
        let n = tag.map_or_else(|| rest.chars().next().map(char::len_utf8), |tag| Some(tag.len()))?;
        let (piece, after) = rest.split_at(n);
        rest = after;
        Some(piece.to_owned())
    })
}

impl Model for Scripted {
    type Session = Session;

    fn n_vocab(&self) -> usize {
        self.tokenizer.vocab_size()
    }

    fn n_ctx(&self) -> usize {
        self.stage.n_ctx
    }

    fn n_align(&self) -> usize {
        N_ALIGN
    }

    fn open(&mut self) -> Session {
        let mut log = self.stage.log.lock().unwrap();
        log.n_session += 1;
        log.n_session_max = log.n_session_max.max(log.n_session);
        drop(log);
        Session {
            ids: Vec::new(),
            kv: Vec::new(),
            state: 0,
            keep_at: Vec::new(),
            kept: Vec::new(),
            logits: vec![0.0; self.n_vocab()],
            reply: Vec::new(),
            reply_bytes: Vec::new(),
            n_said: 0,
            said: Vec::new(),
            script: None,
            failure: None,
            log: self.stage.log.clone(),
        }
    }

    fn ids<'s>(&self, session: &'s Session) -> &'s [u32] {
        &session.ids
    }

    fn logits<'s>(&self, session: &'s Session) -> &'s [f32] {
        &session.logits
    }

    fn failure(&self, session: &Session) -> Option<String> {
        session.failure.clone()
    }

    fn feed(
        &mut self,
        session: &mut Session,
        ids: &[u32],
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), ModelError> {
        assert!(session.failure.is_none(), "a failed session was used");
        assert!(session.ids.len() + ids.len() <= self.stage.n_ctx, "more than the context was fed");
        for (i, batch) in ids.chunks(N_ALIGN).enumerate() {
            std::thread::sleep(self.stage.prefill_time * batch.len() as u32);
            session.push(batch);
            self.stage.log.lock().unwrap().n_fed += batch.len();
            self.work(batch.len());
            let n_done = i * N_ALIGN + batch.len();
            if progress(n_done).is_break() && n_done < ids.len() {
                return Err(ModelError::Interrupted);
            }
        }
        if let Some((key, gate)) = &self.stage.gate
            && self.tokenizer.decode(&session.ids, false).contains(key)
        {
            gate.pass();
        }
        let said = [session.said.clone(), self.bytes(ids)].concat();
        let starts_turn = ids.contains(&self.start_id);
        let is_said = session.said.len() < said.len() && session.reply_bytes.starts_with(&said);
        if is_said || (!session.said.is_empty() && !starts_turn) {
            // Tokens that are certain, in the middle of an answer.
            session.n_said += ids.len();
            session.said = said;
        } else {
            self.begin(session);
        }
        if matches!(session.script, Some(Script::FailsAtOnce)) {
            let what = "an injected error".to_owned();
            session.failure = Some(what.clone());
            return Err(ModelError::Backend { what });
        }
        self.speak(session);
        Ok(())
    }

    fn decode(&mut self, sessions: &mut [&mut Session], ids: &[u32]) -> Result<(), ModelError> {
        std::thread::sleep(self.stage.decode_time);
        self.stage.log.lock().unwrap().batches.push(ids.len());
        self.work(ids.len());
        let mut result = Ok(());
        for (session, &id) in sessions.iter_mut().zip(ids) {
            assert!(session.failure.is_none(), "a failed session was used");
            if let Err(error) = self.say(session, id) {
                result = Err(error);
            }
        }
        result
    }

    fn keep_at(&mut self, session: &mut Session, positions: &[usize]) {
        assert!(positions.is_sorted(), "positions ascend: {positions:?}");
        assert!(
            positions.iter().all(|&pos| session.ids.len() < pos),
            "they are behind the session: {positions:?}"
        );
        session.keep_at = positions.to_vec();
    }

    fn take_kept(&mut self, session: &mut Session) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut session.kept)
    }

    fn state(&self, session: &Session) -> Result<Vec<u8>, ModelError> {
        let logits = session.logits.iter().flat_map(|x| x.to_le_bytes());
        Ok(session.state.to_le_bytes().into_iter().chain(logits).collect())
    }

    fn read_kv(&self, session: &Session, positions: Range<usize>, out: &mut [u8]) -> Result<(), ModelError> {
        let kv = &session.kv[positions];
        let keys = kv.iter().flat_map(|kv| (*kv as u32).to_le_bytes());
        let values = kv.iter().flat_map(|kv| ((kv >> 32) as u32).to_le_bytes());
        out.copy_from_slice(&keys.chain(values).collect::<Vec<u8>>());
        Ok(())
    }

    fn write_kv(
        &self,
        session: &mut Session,
        positions: Range<usize>,
        bytes: &[u8],
    ) -> Result<(), ModelError> {
        assert_eq!(bytes.len(), positions.len() * KV_BYTES, "a position has its bytes");
        let (keys, values) = bytes.split_at(positions.len() * KV_BYTES / 2);
        let words = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        let (keys, values): (Vec<u32>, Vec<u32>) = (words(keys), words(values));
        session.kv.resize(session.kv.len().max(positions.end), 0);
        for (i, pos) in positions.enumerate() {
            session.kv[pos] = u64::from(keys[i]) | u64::from(values[i]) << 32;
        }
        Ok(())
    }

    fn resume(&self, session: &mut Session, ids: &[u32], state: &[u8]) -> Result<(), ModelError> {
        let (state, logits) = state.split_first_chunk::<STATE_BYTES>().expect("a state has its bytes");
        assert!(ids.len() <= session.kv.len(), "keys and values are there");
        session.ids = ids.to_vec();
        session.kv.truncate(ids.len());
        session.state = u64::from_le_bytes(*state);
        session.keep_at.clear();
        session.kept.clear();
        self.begin(session);
        session.logits.fill(0.0);
        let (logits, _) = logits.as_chunks::<4>();
        for (x, bytes) in session.logits.iter_mut().zip(logits) {
            *x = f32::from_le_bytes(*bytes);
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn pause(&mut self) {}
}
