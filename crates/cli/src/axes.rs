//! What charts have in common: panels one below another, their axes, and colours.

use crate::svg::{Anchor, Svg};

pub(crate) const WIDTH: f64 = 960.0;
pub(crate) const LEFT: f64 = 64.0;
pub(crate) const RIGHT: f64 = 24.0;
/// Height of the part of a panel that data are drawn in, and of a whole panel.
pub(crate) const PLOT: f64 = 190.0;
pub(crate) const PANEL: f64 = 280.0;
pub(crate) const HEADER: f64 = 64.0;

/// Colours that people with any colour vision can tell apart (Okabe and Ito's set).
pub(crate) const COLOURS: [&str; 7] =
    ["#0072B2", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#E69F00"];
const INK: &str = "#222";
const GRID: &str = "#ddd";

/// A panel's frame: where values are on the picture. x begins at 0.
pub(crate) struct Frame {
    pub(crate) top: f64,
    pub(crate) x_max: f64,
    pub(crate) y_min: f64,
    pub(crate) y_max: f64,
}

impl Frame {
    pub(crate) fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * value / self.x_max
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        self.top + PLOT * (1.0 - (value - self.y_min) / (self.y_max - self.y_min))
    }

    pub(crate) fn y_axis(&self, svg: &mut Svg, name: &str, show: impl Fn(f64) -> String) {
        for value in ticks(self.y_min, self.y_max, 5.0) {
            let y = self.y(value);
            svg.line(&[(LEFT, y), (WIDTH - RIGHT, y)], GRID, 1.0, "");
            svg.text((LEFT - 8.0, y + 4.0), Anchor::End, &show(value));
        }
        svg.upward((16.0, self.top + PLOT / 2.0), name);
    }

    pub(crate) fn x_axis(&self, svg: &mut Svg, name: &str) {
        for value in ticks(0.0, self.x_max, 12.0) {
            svg.text((self.x(value), self.top + PLOT + 16.0), Anchor::Middle, &format!("{value}"));
        }
        self.x_name(svg, name);
    }

    /// What the numbers or names below are.
    pub(crate) fn x_name(&self, svg: &mut Svg, name: &str) {
        svg.text((LEFT + (WIDTH - LEFT - RIGHT) / 2.0, self.top + PLOT + 34.0), Anchor::Middle, name);
    }

    /// Over the data, so that bars stand on it.
    pub(crate) fn border(&self, svg: &mut Svg) {
        let (right, bottom) = (WIDTH - RIGHT, self.top + PLOT);
        svg.line(&[(LEFT, self.top), (LEFT, bottom), (right, bottom)], INK, 1.0, "");
    }
}

/// Round numbers from `min` to `max`, about `n` of them.
fn ticks(min: f64, max: f64, n: f64) -> Vec<f64> {
    let step = round_step(max - min, n);
    // Multiplied and rounded, not added up: 0.3, not 0.30000000000000004.
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let first = (min / step - 1e-9).ceil();
    let value = |i: usize| format!("{:.digits$}", step * (first + i as f64)).parse().unwrap_or(f64::NAN);
    (0..).map(value).take_while(|&tick| tick <= max + (max - min) * 1e-9).collect()
}

/// 1, 2 or 5 times a power of ten, so that about `n` steps make `range`.
fn round_step(range: f64, n: f64) -> f64 {
    let rough = range / n;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| rough <= factor * power * (1.0 + 1e-9));
    power * factor.unwrap_or(10.0)
}

pub(crate) fn whole_step(range: f64, n: f64) -> usize {
    round_step(range, n).max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An axis would have no numbers, too many, or ugly ones.
    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 1.0, 5.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(ticks(0.0, 100.0, 5.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.0, 0.007, 5.0), [0.0, 0.002, 0.004, 0.006]);
        assert_eq!(ticks(0.0, 29.3, 12.0), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        for max in [f64::MIN_POSITIVE, 1e-9, 3.7, 1e12] {
            let n = ticks(0.0, max, 5.0).len();
            assert!((2..=12).contains(&n), "{n} ticks up to {max}");
        }
    }

    /// An axis that does not begin at 0 would have numbers outside, or none.
    #[test]
    fn ticks_begin_anywhere() {
        assert_eq!(ticks(2.35, 3.35, 5.0), [2.4, 2.6, 2.8, 3.0, 3.2]);
        assert_eq!(ticks(-5.0, 0.0, 5.0), [-5.0, -4.0, -3.0, -2.0, -1.0, 0.0]);
    }
}
