//! Compiles grammars against a model's own vocabulary, within limits of time and memory.
//!
//! llguidance does the work: a Lark grammar, with JSON schemas in it, becomes a matcher that tells which tokens
//! may come next. It sees the vocabulary as bytes; added tokens (`<tool_call>` is one, though not a control
//! token) have a first byte that no text has, so a grammar gets them only where it names them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use crate::error::GenerateError;
use crate::tokenizer::Tokenizer;

/// Longest token that a grammar can choose: the trie's depth is bounded. Real ones stay below 600 bytes.
const TOKEN_BYTES_MAX: usize = 1000;
/// All tokens together; the trie counts its nodes in 22 bits.
const VOCAB_BYTES_MAX: usize = 4_000_000;
/// A schema, a regular expression or a client's grammar.
const SOURCE_BYTES_MAX: usize = 256 << 10;
/// The grammar of all tools of a request.
const GRAMMAR_BYTES_MAX: usize = 2 << 20;
/// Levels of a schema, or of brackets in a grammar.
const DEPTH_MAX: usize = 64;
/// Compiled grammars that are kept: an agent sends the same tools with every turn.
const COMPILED_MAX: usize = 16;
/// Work to build the automata of a grammar: about 20 ms.
const COMPILE_FUEL_MAX: u64 = 1_000_000;
/// Symbols in a grammar.
const GRAMMAR_SYMBOLS_MAX: usize = 200_000;
/// States of an answer's automata, of 1 to 2 KB.
const LEXER_STATES_MAX: usize = 50_000;

/// Sets of tokens that are allowed or not as a whole where texts are free, besides those for texts in JSON.
const SLICES: [&str; 2] = [r#"[^"\\<\x00-\x1F\x7F]{1,10}"#, r#"[^"\\<\x00-\x1F\x7F]+"#];

/// Compiles grammars for one model. Building it takes a while (the vocabulary is sorted), so a model keeps one.
pub(crate) struct GrammarFactory {
    parsers: ParserFactory,
    env: TokEnv,
    /// The last compiled grammars by their source, latest first.
    compiled: Mutex<VecDeque<(Arc<str>, Arc<Grammar>)>>,
}

/// A compiled grammar at its start.
pub(crate) struct Grammar {
    matcher: Mutex<Matcher>,
    env: TokEnv,
}

impl GrammarFactory {
    /// # Errors
    /// The vocabulary is too large.
    pub(crate) fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, GenerateError> {
        let env: TokEnv = Arc::new(Vocabulary::new(tokenizer)?);
        let slices = SLICES.iter().map(|slice| slice.to_string());
        let slices: Vec<String> = SlicedBiasComputer::general_slices().into_iter().chain(slices).collect();
        let caps = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let parsers = ParserFactory::new(&env, caps, &slices);
        let mut parsers = parsers.map_err(|e| unusable("the vocabulary", &e.to_string()))?;
        parsers.quiet();
        let limits = parsers.limits_mut();
        limits.initial_lexer_fuel = COMPILE_FUEL_MAX;
        limits.max_grammar_size = GRAMMAR_SYMBOLS_MAX;
        limits.max_lexer_states = LEXER_STATES_MAX;
        limits.verbose_errors = false;
        Ok(Self { parsers, env, compiled: Mutex::default() })
    }

    /// From a Lark grammar; `what` names it in errors. If it cannot be used, from the next one that `simpler` makes.
    ///
    /// # Errors
    /// The grammar is wrong, or too large, deep or complex, and so are the simpler ones.
    pub(crate) fn compile(
        &self,
        what: &str,
        lark: &str,
        simpler: &[&dyn Fn() -> Result<String, GenerateError>],
    ) -> Result<Arc<Grammar>, GenerateError> {
        if let Some(grammar) = self.find(lark) {
            return Ok(grammar);
        }
        let mut grammar = self.compile_once(what, lark);
        for source in simpler {
            if grammar.is_err() {
                grammar = self.compile_once(what, &source()?);
            }
        }
        let grammar = grammar?;
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.push_front((lark.into(), grammar.clone()));
        compiled.truncate(COMPILED_MAX);
        Ok(grammar)
    }

    /// The same without a second choice, and without being kept.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn compile_once(&self, what: &str, lark: &str) -> Result<Arc<Grammar>, GenerateError> {
        check_grammar(what, lark)?;
        let parser = self.parsers.create_parser(TopLevelGrammar::from_lark(lark.to_owned()));
        let parser = parser.map_err(|e| unusable(what, &first_lines(&e.to_string())))?;
        let mut matcher = Matcher::new(Ok(parser));
        // A grammar that nothing matches is told now, not in the middle of an answer.
        matcher.compute_mask().map_err(|e| unusable(what, &first_lines(&e.to_string())))?;
        Ok(Arc::new(Grammar { matcher: Mutex::new(matcher), env: self.env.clone() }))
    }

    fn find(&self, lark: &str) -> Option<Arc<Grammar>> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let i = compiled.iter().position(|(source, _)| &**source == lark)?;
        let entry = compiled.remove(i)?;
        compiled.push_front(entry);
        compiled.front().map(|(_, grammar)| grammar.clone())
    }
}

impl Grammar {
    /// A matcher of its own for one answer: what it learns about the grammar goes with it.
    pub(crate) fn start(&self) -> Matcher {
        self.matcher.lock().unwrap_or_else(PoisonError::into_inner).deep_clone()
    }

    /// The token that stands for the end of the answer; the model has none of this id.
    pub(crate) fn end(&self) -> u32 {
        self.env.eos_token()
    }

    /// Tokens of any bytes, as the tokenizer would write them where they are text.
    pub(crate) fn tokenize(&self, bytes: &[u8]) -> Vec<u32> {
        self.env.tokenize_bytes(bytes)
    }
}

/// The tokenizer as llguidance wants it.
struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

impl Vocabulary {
    fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, GenerateError> {
        const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
        let word = |id: u32| match tokenizer.token_bytes(id) {
            // The marker is not part of any character, so no text needs its byte.
            bytes if bytes.len() > TOKEN_BYTES_MAX || bytes.first() == Some(&MARKER) => Vec::new(),
            bytes if tokenizer.added_token(id).is_some() => [&[MARKER], bytes].concat(),
            bytes => bytes.to_vec(),
        };
        let n_vocab = tokenizer.vocab_size() as u32;
        // The last one stands for the end of the answer: which tokens end it is decided where they are chosen.
        let words: Vec<Vec<u8>> = (0..n_vocab).map(word).chain([Vec::new()]).collect();
        let vocab_bytes: usize = words.iter().map(Vec::len).sum();
        if vocab_bytes > VOCAB_BYTES_MAX {
            let why = format!("{vocab_bytes} bytes of text, at most {VOCAB_BYTES_MAX} can be constrained");
            return Err(unusable("the vocabulary", &why));
        }
        let trie = TokTrie::from(&TokRxInfo::new(n_vocab + 1, n_vocab), &words);
        Ok(Self { tokenizer, trie })
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let ids = self.tokenizer.encode_text(text);
            ids.unwrap_or_else(|_| self.trie.greedy_tokenize(text.as_bytes()))
        })
    }
}

/// Refuses a grammar that is too large to be compiled.
///
/// # Errors
/// It is.
pub(crate) fn check_grammar(what: &str, lark: &str) -> Result<(), GenerateError> {
    if lark.len() <= GRAMMAR_BYTES_MAX {
        return Ok(());
    }
    let why = format!("it makes a grammar of {} bytes, at most {GRAMMAR_BYTES_MAX} are used", lark.len());
    Err(unusable(what, &why))
}

/// Refuses a text that is too long or nested too deeply to be compiled.
///
/// # Errors
/// It is.
pub(crate) fn check_text(what: &str, text: &str) -> Result<(), GenerateError> {
    check_bytes(what, text.len())?;
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    check_depth(what, deepest)
}

/// Refuses a schema that is too long or nested too deeply to be compiled.
///
/// # Errors
/// It is.
pub(crate) fn check_schema(what: &str, schema: &Value) -> Result<(), GenerateError> {
    let mut level = vec![schema];
    let mut depth = 0;
    while !level.is_empty() {
        check_depth(what, depth)?;
        depth += 1;
        level = level.into_iter().flat_map(children).collect();
    }
    check_bytes(what, schema.to_string().len())
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn check_bytes(what: &str, n_byte: usize) -> Result<(), GenerateError> {
    if n_byte <= SOURCE_BYTES_MAX {
        return Ok(());
    }
    Err(unusable(what, &format!("it has {n_byte} bytes, at most {SOURCE_BYTES_MAX} are used")))
}

fn check_depth(what: &str, depth: usize) -> Result<(), GenerateError> {
    if depth <= DEPTH_MAX {
        return Ok(());
    }
    Err(unusable(what, &format!("it is nested more than {DEPTH_MAX} levels deep")))
}

pub(crate) fn unusable(what: &str, why: &str) -> GenerateError {
    GenerateError::Grammar { what: what.to_owned(), why: why.to_owned() }
}

/// What is wrong; the library's messages go on with the source.
pub(crate) fn first_lines(message: &str) -> String {
    const CHARS_MAX: usize = 400;
    let lines = message.lines().take_while(|line| !line.starts_with("<non-verbose")).take(4);
    lines.collect::<Vec<_>>().join(" ").chars().take(CHARS_MAX).collect()
}
