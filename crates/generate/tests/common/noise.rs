//! A model that says anything, from a seed.

use std::ops::ControlFlow;

use generate::Tokenizer;
use model::{ModelError, TokenModel};

/// Texts that noise would hardly ever complete by chance: begun ones it likes to go on with.
const LIKED: [&str; 2] = ["\n</parameter>\n", "\"}"];
/// Tokens that it likes as they are.
const LIKED_TOKENS: [&str; 3] = ["</think>", "<tool_call>", "</tool_call>"];

/// Random logits. Ends of things are likelier than by chance, so that answers end.
pub(crate) struct Noise {
    pub(crate) seed: u64,
    pub(crate) n_prompt: usize,
    pub(crate) n_ctx: usize,
    pub(crate) fed: Vec<u32>,
    /// Tokens that are favoured or disliked, by how much.
    pub(crate) taste: Vec<(u32, f32)>,
    /// What it says first.
    pub(crate) script: Vec<u32>,
    /// What each token stands for.
    words: Vec<Vec<u8>>,
    /// How much each token is liked for what it is.
    liking: Vec<f32>,
    text: Vec<u8>,
    logits: Vec<f32>,
}

impl Noise {
    pub(crate) fn new(tokenizer: &Tokenizer, seed: u64) -> Self {
        let n_vocab = tokenizer.vocab_size() as u32;
        let words: Vec<Vec<u8>> = (0..n_vocab).map(|id| tokenizer.token_bytes(id).to_vec()).collect();
        let liking = words.iter().map(|word| liking(word)).collect();
        let (fed, text, logits) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            seed,
            n_prompt: 0,
            n_ctx: 100_000,
            fed,
            taste: Vec::new(),
            script: Vec::new(),
            words,
            liking,
            text,
            logits,
        }
    }

    fn random(&self, i: u64) -> f32 {
        // One step of SplitMix64.
        let mut z = self.seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ (self.fed.len() as u64) << 32 ^ i;
        z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Ends of liked texts that have begun, and how much they are liked.
    fn begun(&self) -> Vec<(&'static [u8], f32)> {
        let ends = LIKED.iter().flat_map(|liked| (1..liked.len()).map(|n| liked.as_bytes().split_at(n)));
        let begun = ends.filter(|(start, _)| self.text.ends_with(start));
        begun.map(|(start, rest)| (rest, if start.len() > 1 { 40.0 } else { 9.0 })).collect()
    }
}

/// How much a token is liked for what it is.
fn liking(word: &[u8]) -> f32 {
    match word {
        [b'"' | b'}' | b']' | b'\n' | b'0'..=b'9'] => 6.0,
        _ if LIKED_TOKENS.iter().any(|liked| liked.as_bytes() == word) => 4.0,
        _ => 0.0,
    }
}

impl TokenModel for Noise {
    fn n_vocab(&self) -> usize {
        // As in real models, more rows than tokens.
        self.words.len() + 30
    }

    fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    fn pos(&self) -> usize {
        self.fed.len()
    }

    fn feed(
        &mut self,
        ids: &[u32],
        _progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<&[f32], ModelError> {
        for &id in ids {
            if self.fed.len() >= self.n_prompt {
                self.text.extend_from_slice(&self.words[id as usize]);
            }
            self.fed.push(id);
        }
        let n_vocab = self.n_vocab();
        let mut logits = vec![40.0; n_vocab];
        let begun = self.begun();
        for id in 0..self.words.len() {
            let word = &self.words[id];
            let more = begun.iter().filter(|(rest, _)| !word.is_empty() && rest.starts_with(word));
            logits[id] = 8.0 * self.random(id as u64) + self.liking[id] + more.map(|(_, by)| by).sum::<f32>();
        }
        for &(id, by) in &self.taste {
            logits[id as usize] += by;
        }
        if let Some(&id) = self.fed.len().checked_sub(self.n_prompt).and_then(|n| self.script.get(n)) {
            logits[id as usize] = 100.0;
        }
        self.logits = logits;
        Ok(&self.logits)
    }
}
