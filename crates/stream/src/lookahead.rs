//! Does it pay to read a layer's experts before its router has chosen them? Measured, layer by layer.
//!
//! A guess that was right saves waiting, and one that was wrong costs a slot and may delay what is wanted. So
//! a layer's guesses go on as long as more bytes of them are used than not. A layer that stopped tries again
//! now and then, since texts change.

/// Guesses whose outcome counts, about: older ones fade.
const N_GUESS: f32 = 64.0;
/// Right minus wrong, as a share of all guesses, below which guessing stops. Reads in idle time are almost
/// free; a third of them being useful already shortens waits.
const GAIN_MIN: f32 = -0.3;
/// Steps without guesses before a layer tries again, and how many steps it then tries.
const N_PAUSE: u32 = 256;
const N_TRIAL: u32 = 8;
/// Most tokens of a step of conversations that are decoded together; more are a prompt, and what that needs is almost
/// certain.
const N_TOGETHER_MAX: usize = 64;
/// Misses a step below which there is nothing to gain.
const MISSES_MIN: f32 = 0.02;

#[derive(Clone, Copy)]
struct Layer {
    /// Right minus wrong per guess, recent ones counting most.
    gain: f32,
    /// Experts a step that had to be read, guessed or not.
    misses: f32,
    /// Steps since guessing stopped; 0 while it goes on.
    n_paused: u32,
}

/// One record a layer.
pub(crate) struct Lookahead {
    layers: Vec<Layer>,
}

impl Lookahead {
    pub(crate) fn new(n_layer: usize) -> Self {
        Self { layers: vec![Layer { gain: 0.5, misses: 1.0, n_paused: 0 }; n_layer] }
    }

    /// Should the next step of this layer, of so many tokens, be guessed?
    pub(crate) fn pays(&self, layer: usize, n_token: usize) -> bool {
        let layer = self.layers[layer];
        let is_trying = layer.n_paused % N_PAUSE >= N_PAUSE - N_TRIAL;
        MISSES_MIN < layer.misses && (N_TOGETHER_MAX < n_token || layer.n_paused == 0 || is_trying)
    }

    /// A step of so many tokens is known: how many guesses were right and wrong, and how many experts had to be read
    /// for it, the right guesses among them.
    pub(crate) fn learn(&mut self, layer: usize, n_token: usize, guesses: [usize; 2], n_read: usize) {
        let layer = &mut self.layers[layer];
        layer.misses += (n_read as f32 - layer.misses) / N_GUESS;
        let [n_right, n_wrong] = guesses;
        let n_guess = n_right + n_wrong;
        if N_TOGETHER_MAX < n_token {
            return;
        }
        if n_guess > 0 {
            let gain = (n_right as f32 - n_wrong as f32) / n_guess as f32;
            layer.gain += (gain - layer.gain) * (n_guess as f32 / N_GUESS).min(1.0);
        }
        let is_on = GAIN_MIN <= layer.gain;
        layer.n_paused = if is_on { 0 } else { layer.n_paused.wrapping_add(1).max(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_guessed(lookahead: &mut Lookahead, n_token: usize, n_step: usize, guesses: [usize; 2]) -> usize {
        let mut n = 0;
        for _ in 0..n_step {
            let pays = lookahead.pays(0, n_token);
            n += usize::from(pays);
            lookahead.learn(0, n_token, if pays { guesses } else { [0, 0] }, 5);
        }
        n
    }

    /// Bad guesses would go on for ever, for one conversation or several together, or never be tried again when they
    /// would help.
    #[test]
    fn guessing_stops_and_comes_back() {
        for n_token in [1, 2, N_TOGETHER_MAX] {
            let mut lookahead = Lookahead::new(1);
            assert_eq!(n_guessed(&mut lookahead, n_token, 1000, [3, 1]), 1000);
            let n = n_guessed(&mut lookahead, n_token, 10_000, [0, 4]);
            assert!((50..1000).contains(&n), "{n} of 10,000 bad guesses");
            assert_eq!(n_guessed(&mut lookahead, N_TOGETHER_MAX + 1, 10, [0, 4]), 10, "prompts are guessed");
            let n = n_guessed(&mut lookahead, n_token, 10_000, [4, 0]);
            assert!(n > 8000, "{n} of 10,000 good guesses");
        }
    }

    /// Guesses would be computed for layers that are all in memory.
    #[test]
    fn nothing_is_guessed_where_nothing_is_read() {
        let mut lookahead = Lookahead::new(2);
        (0..1000).for_each(|_| lookahead.learn(1, 1, [0, 0], 0));
        assert!(lookahead.pays(0, 1) && !lookahead.pays(1, 1) && !lookahead.pays(1, 100));
    }
}
