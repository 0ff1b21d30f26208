//! Which tokens of a document are fed together, and which of them count.

use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::flags::{Counting, TextFlags};

/// Window of a model with a long context, as evaluations of others have it.
const WINDOW_DEFAULT: usize = 2048;

/// How documents are cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WindowRule {
    pub(super) window: usize,
    pub(super) stride: usize,
    /// Only the second half of each window counts, and windows are whole.
    pub(super) second_halves: bool,
}

/// Tokens `start..end` of a document. Those at `first_counted..end` count: each has one before it in the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) start: usize,
    pub(super) first_counted: usize,
    pub(super) end: usize,
}

impl WindowRule {
    /// What was asked for, for a model with a context of `n_ctx`.
    ///
    /// # Errors
    /// Tokens would be left out, or a window does not fit the context.
    pub(super) fn new(flags: &TextFlags, n_ctx: usize) -> Result<Self, CliError> {
        let window = flags.window.unwrap_or(WINDOW_DEFAULT.min(n_ctx));
        if n_ctx < window {
            let why = format!("--window {window} is more than the context of {n_ctx} tokens");
            return Err(CliError::Usage(why));
        }
        if window < 2 {
            return Err(CliError::Usage(format!("a context of {n_ctx} holds no token and one before it")));
        }
        let second_halves = flags.counting == Counting::LlamaCpp;
        let stride = match flags.stride {
            Some(_) if second_halves => {
                let why = "--counting llama.cpp: windows lie side by side, there is no --stride";
                return Err(CliError::Usage(why.into()));
            }
            Some(stride) => stride,
            None if second_halves => window,
            None => window / 2,
        };
        if window < stride {
            let why =
                format!("--stride {stride} is more than the window of {window}: tokens would be left out");
            return Err(CliError::Usage(why));
        }
        Ok(Self { window, stride, second_halves })
    }

    /// The windows of a document of `n_token` tokens.
    pub(super) fn windows(&self, n_token: usize) -> Vec<Window> {
        let mut windows = Vec::new();
        let (mut start, mut done) = (0usize, 1);
        while done < n_token {
            let end = start.saturating_add(self.window).min(n_token);
            if self.second_halves && end - start < self.window {
                break;
            }
            let first_counted =
                if self.second_halves { start + self.window / 2 + 1 } else { done.max(start + 1) };
            if first_counted < end {
                windows.push(Window { start, first_counted, end });
            }
            (start, done) = (start + self.stride, end);
        }
        windows
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        let Self { window, stride, second_halves } = self;
        if *second_halves {
            format!("windows of {window} tokens, the second half of each counted")
        } else {
            format!("windows of {window} tokens every {stride}")
        }
    }
}

impl Window {
    /// Tokens that count.
    pub(super) fn n_counted(&self) -> usize {
        self.end - self.first_counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(
        n_token: usize,
        window: usize,
        stride: usize,
        second_halves: bool,
    ) -> Vec<(usize, usize, usize)> {
        let rule = WindowRule { window, stride, second_halves };
        rule.windows(n_token).iter().map(|w| (w.start, w.first_counted, w.end)).collect()
    }

    /// Tokens would be counted twice, not at all, or without the context that the rule promises.
    #[test]
    fn windows_are_those_of_the_rule() {
        assert_eq!(windows(10, 4, 2, false), [(0, 1, 4), (2, 4, 6), (4, 6, 8), (6, 8, 10)]);
        assert_eq!(windows(9, 4, 2, false), [(0, 1, 4), (2, 4, 6), (4, 6, 8), (6, 8, 9)]);
        assert_eq!(windows(9, 4, 4, false), [(0, 1, 4), (4, 5, 8)], "the last token has nothing before it");
        assert_eq!(windows(3, 100, 50, false), [(0, 1, 3)]);
        assert_eq!(windows(11, 4, 4, true), [(0, 3, 4), (4, 7, 8)]);
        for n_token in 0..2 {
            assert_eq!(windows(n_token, 4, 2, false), []);
        }
        for (n_token, window, stride) in [(2, 2, 1), (17, 5, 3), (64, 7, 1), (100, 10, 9), (50, 50, 25)] {
            let all = WindowRule { window, stride, second_halves: false }.windows(n_token);
            let counted: Vec<usize> = all.iter().flat_map(|w| w.first_counted..w.end).collect();
            assert_eq!(counted, (1..n_token).collect::<Vec<_>>(), "{n_token} {window} {stride}");
            let is_short = |w: &Window| w.first_counted - w.start < window - stride && w.start > 0;
            assert!(!all.iter().any(is_short), "{n_token} {window} {stride}: too little context");
        }
    }

    /// A count that cannot be compared with llama-perplexity: 512 tokens give 255 predictions there.
    #[test]
    fn second_halves_are_counted_as_llama_cpp_does() {
        let rule = WindowRule { window: 512, stride: 512, second_halves: true };
        let n: usize = rule.windows(2000).iter().map(Window::n_counted).sum();
        assert_eq!(n, 3 * 255);
    }
}
