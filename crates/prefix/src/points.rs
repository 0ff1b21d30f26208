//! Where on the way through a prompt a checkpoint is worth its bytes.

use crate::Shape;

/// A prompt that is about to be fed.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// Its tokens.
    pub n_token: usize,
    /// Where messages begin, ascending: the first after the system message and the tools is the end of these.
    pub borders: &'a [usize],
    /// Leading tokens that later prompts of the same conversation will have too; 0: unknown.
    pub n_settled: usize,
    /// Tokens that need not be fed: there is a checkpoint, or a session stands there.
    pub n_reused: usize,
    /// The client says that this beginning will come back.
    pub is_marked: bool,
}

/// A position to keep a checkpoint at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Tokens before it. At the prompt's end the checkpoint is one with logits.
    pub pos: usize,
    /// How likely it is that somebody comes back to it, 1 being usual.
    pub likelihood: f32,
}

/// Points of a prompt, at most: with the largest models each costs hundreds of MB.
const N_POINT_MAX: usize = 16;

/// Fewer tokens than these are fed again rather than kept apart.
const GAP_MIN: usize = 64;

/// The prompt's end is kept too if this many tokens lie between it and the settled ones.
const END_GAP_MIN: usize = 16;

/// The start of the last message is kept if it saves this many tokens on either side.
const EDIT_GAP_MIN: usize = 256;

/// A shorter answer is read again as fast as what is kept of it.
const ANSWER_MIN: usize = 16;

/// Bounds of the spacing in long prompts, in tokens.
const SPACING: std::ops::RangeInclusive<usize> = 1024..=8192;

/// Likelihoods: of a beginning that the client marked, ...
const MARKED: f32 = 2.0;
/// ... of the system message, and of where the next turn goes on, ...
const USUAL: f32 = 1.0;
/// ... of the same prompt once more, of another last message in place of this one, and of an answer whose thinking the
/// template may drop, ...
const AGAIN: f32 = 0.5;
/// ... and of a change somewhere in the middle.
const MIDDLE: f32 = 0.1;

/// Positions behind [`Prompt::n_reused`] up to the prompt's end, ascending:
///
/// * where the next turn will go on: the settled tokens' end;
/// * the prompt's end, with logits, unless the settled tokens end close to it;
/// * the end of the system message and the tools, where other conversations go on;
/// * the start of the last message, which may be edited;
/// * in long prompts further ones at a spacing at which states take about as many bytes as keys and values: where
///   messages begin, or at multiples of the spacing where none does. Prompts that begin alike get the same ones.
pub fn points(prompt: &Prompt<'_>, shape: Shape) -> Vec<Point> {
    let Prompt { n_token, borders, n_settled, n_reused, is_marked } = *prompt;
    let borders: Vec<usize> = borders.iter().copied().filter(|pos| (1..n_token).contains(pos)).collect();
    let mut taken = Taken { n_reused, n_token, points: Vec::new() };
    let coming_back = if is_marked { MARKED } else { USUAL };
    if let Some(system) = borders.first() {
        taken.add(*system, coming_back, if is_marked { 1 } else { GAP_MIN });
    }
    if n_settled <= n_token {
        taken.add(n_settled, coming_back, 1);
    }
    if n_settled == 0 || n_settled + END_GAP_MIN <= n_token {
        taken.add(n_token, if n_settled == 0 { coming_back } else { AGAIN }, END_GAP_MIN);
    }
    if let Some(last) = borders.last() {
        taken.add(*last, AGAIN, EDIT_GAP_MIN);
    }
    let mut spacing =
        (shape.state_bytes / shape.kv_token_bytes.max(1)).clamp(*SPACING.start(), *SPACING.end());
    let between = loop {
        let between = taken.spaced(&borders, spacing);
        if taken.points.len() + between.len() <= N_POINT_MAX {
            break between;
        }
        spacing = spacing.saturating_mul(2);
    };
    let mut points = taken.points;
    points.extend(between);
    points.sort_by_key(|point| point.pos);
    points
}

/// How likely it is that somebody goes on from the end of an answer of `n_token` tokens as it was generated; `None`: it
/// is not worth its bytes. `is_raw`: there is no template, so that whoever goes on sends it back as it is.
pub fn answer_likelihood(n_token: usize, is_raw: bool, has_thought: bool) -> Option<f32> {
    let n_min = if is_raw { 1 } else { ANSWER_MIN };
    (n_min <= n_token).then_some(if has_thought { AGAIN } else { USUAL })
}

/// The points so far.
struct Taken {
    n_reused: usize,
    n_token: usize,
    points: Vec<Point>,
}

impl Taken {
    /// Adds a point that is at least `gap` tokens from all others and from the reused ones.
    fn add(&mut self, pos: usize, likelihood: f32, gap: usize) {
        let is_apart = self.points.iter().all(|point| point.pos.abs_diff(pos) >= gap);
        if is_apart && pos <= self.n_token && pos >= self.n_reused + gap {
            self.points.push(Point { pos, likelihood });
        }
    }

    /// Points at `spacing`, none of them closer than half of it to another.
    fn spaced(&self, borders: &[usize], spacing: usize) -> Vec<Point> {
        let mut all = Taken { n_reused: self.n_reused, n_token: self.n_token, points: self.points.clone() };
        for k in 1..=self.n_token / spacing {
            let target = k * spacing;
            let after = borders.partition_point(|pos| *pos < target);
            let near = borders[after.saturating_sub(1)..borders.len().min(after + 1)].iter().copied();
            let border =
                near.min_by_key(|pos| pos.abs_diff(target)).filter(|pos| pos.abs_diff(target) <= spacing / 2);
            all.add(border.unwrap_or(target), MIDDLE, spacing / 2);
        }
        all.points.split_off(self.points.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { kv_token_bytes: 1 << 10, state_bytes: 4 << 20, logits_bytes: 4 };

    struct Case {
        name: &'static str,
        prompt: Prompt<'static>,
        positions: &'static [usize],
    }

    const PLAIN: Prompt<'static> =
        Prompt { n_token: 0, borders: &[], n_settled: 0, n_reused: 0, is_marked: false };

    const CASES: &[Case] = &[
        Case { name: "nothing", prompt: PLAIN, positions: &[] },
        Case { name: "text without messages", prompt: Prompt { n_token: 100, ..PLAIN }, positions: &[100] },
        Case { name: "a word", prompt: Prompt { n_token: 3, ..PLAIN }, positions: &[] },
        Case {
            name: "the first turn: system, question, generation prompt",
            prompt: Prompt { n_token: 1000, borders: &[0, 600], n_settled: 993, ..PLAIN },
            positions: &[600, 993],
        },
        Case {
            name: "a generation prompt that is long",
            prompt: Prompt { n_token: 1000, borders: &[0, 600], n_settled: 960, ..PLAIN },
            positions: &[600, 960, 1000],
        },
        Case {
            name: "a short question behind a long system message",
            prompt: Prompt { n_token: 655, borders: &[0, 600], n_settled: 650, ..PLAIN },
            positions: &[600, 650],
        },
        Case {
            name: "a short system message is fed again",
            prompt: Prompt { n_token: 200, borders: &[0, 40], n_settled: 195, ..PLAIN },
            positions: &[195],
        },
        Case {
            name: "unless the client asks for it",
            prompt: Prompt { n_token: 200, borders: &[0, 40], n_settled: 195, is_marked: true, ..PLAIN },
            positions: &[40, 195],
        },
        Case {
            name: "a later turn keeps its own end alone",
            prompt: Prompt {
                n_token: 1300,
                borders: &[0, 600, 993, 1200],
                n_settled: 1293,
                n_reused: 993,
                ..PLAIN
            },
            positions: &[1293],
        },
        Case {
            name: "a long last message can be edited",
            prompt: Prompt {
                n_token: 3000,
                borders: &[0, 600, 993, 1400],
                n_settled: 2993,
                n_reused: 993,
                ..PLAIN
            },
            positions: &[1400, 2993],
        },
        Case {
            name: "all was there",
            prompt: Prompt { n_token: 1000, borders: &[0, 600], n_settled: 993, n_reused: 1000, ..PLAIN },
            positions: &[],
        },
        Case {
            name: "settled tokens that were there, an end that was not",
            prompt: Prompt { n_token: 1000, borders: &[0, 600], n_settled: 960, n_reused: 960, ..PLAIN },
            positions: &[1000],
        },
        Case {
            name: "a long text at multiples of the spacing, here 4096",
            prompt: Prompt { n_token: 20_000, borders: &[0, 500], n_settled: 19_990, ..PLAIN },
            positions: &[500, 4096, 8192, 12_288, 16_384, 19_990],
        },
        Case {
            name: "a long conversation at messages' borders",
            prompt: Prompt {
                n_token: 9500,
                borders: &[0, 500, 3900, 4300, 7000, 9400],
                n_settled: 9490,
                ..PLAIN
            },
            positions: &[500, 3900, 7000, 9490],
        },
        Case {
            name: "borders that cannot be are passed over",
            prompt: Prompt { n_token: 100, borders: &[0, 500], n_settled: 700, ..PLAIN },
            positions: &[],
        },
    ];

    /// Checkpoints would be where nobody comes back to, or missing where somebody does.
    #[test]
    fn points_are_where_prompts_go_on() {
        for Case { name, prompt, positions } in CASES {
            let found: Vec<usize> = points(prompt, SHAPE).iter().map(|point| point.pos).collect();
            assert_eq!(found, *positions, "{name}");
        }
    }

    /// A prompt would be cut into so many pieces, or take so many states, that keeping costs more than it saves.
    #[test]
    fn points_are_few_and_apart() {
        let borders: Vec<usize> = (0..3000).map(|i| i * 97).collect();
        for n_token in [1, 63, 64, 1000, 60_000, 262_144] {
            for (n_settled, n_reused) in
                [(0, 0), (n_token - 1, 0), (n_token / 2, n_token / 3), (n_token, n_token / 2)]
            {
                for state_bytes in [0, 4 << 20, 1 << 30] {
                    let prompt = Prompt { n_token, borders: &borders, n_settled, n_reused, is_marked: false };
                    let points = points(&prompt, Shape { state_bytes, ..SHAPE });
                    assert!(points.len() <= N_POINT_MAX, "{prompt:?}: {points:?}");
                    for pair in points.windows(2) {
                        // The end of the settled tokens is always there, however close another one is.
                        let gap = if pair.iter().any(|point| point.pos == n_settled) { 1 } else { GAP_MIN };
                        assert!(pair[0].pos + gap <= pair[1].pos, "{prompt:?}: {points:?}");
                    }
                    assert!(points.iter().all(|point| n_reused < point.pos && point.pos <= n_token));
                    let is_settled_there = points.iter().any(|point| point.pos == n_settled);
                    assert_eq!(is_settled_there, n_settled > n_reused, "{prompt:?}: {points:?}");
                }
            }
        }
    }

    /// Short answers would fill the cache, or long ones be read again.
    #[test]
    fn answers_are_kept_if_they_are_long() {
        let cases = [
            (0, false, false, None),
            (15, false, false, None),
            (15, false, true, None),
            (16, false, false, Some(1.0)),
            (16, false, true, Some(0.5)),
            (0, true, false, None),
            (1, true, false, Some(1.0)),
            (1, true, true, Some(0.5)),
        ];
        for (n_token, is_raw, has_thought, expected) in cases {
            let found = answer_likelihood(n_token, is_raw, has_thought);
            assert_eq!(found, expected, "{n_token} {is_raw} {has_thought}");
        }
    }

    /// Two prompts with the same long beginning would have no checkpoint in common.
    #[test]
    fn prompts_that_begin_alike_share_points() {
        let of = |n_token| {
            let prompt = Prompt { n_token, borders: &[0, 500], n_settled: n_token - 5, ..PLAIN };
            points(&prompt, SHAPE).into_iter().map(|point| point.pos).collect::<Vec<_>>()
        };
        let (one, other) = (of(20_000), of(26_000));
        assert_eq!(one[..5], other[..5]);
    }
}
