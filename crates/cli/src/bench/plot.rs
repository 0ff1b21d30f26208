//! `--plot`: time by layer and phase, and hit rate against cache size, as one picture.

use model::{Phase, Timing};

use crate::axes::{COLOURS, Frame, HEADER, LEFT, PANEL, PLOT, RIGHT, WIDTH, whole_step};
use crate::svg::{Anchor, Svg};

/// Models of few layers would be drawn as walls.
const BAR_WIDTH_MAX: f64 = 64.0;

/// One a phase of a layer.
const PHASE_COLOURS: [&str; Phase::ALL.len()] = COLOURS;

/// What is drawn.
pub(super) struct Chart<'a> {
    pub(super) title: String,
    pub(super) prefill: &'a Timing,
    pub(super) decode: &'a Timing,
    pub(super) hits: &'a HitCurve,
}

/// Hit rates that cache sizes would have had with the routing of the run.
#[derive(Default)]
pub(super) struct HitCurve {
    /// Slots, rising.
    pub(super) n_slot: Vec<usize>,
    /// Name, and a rate for each size: the first one is the program's own policy.
    pub(super) policies: Vec<(&'static str, Vec<f64>)>,
    pub(super) slot_bytes: f64,
    /// Slots of the run, and the rate that it had without reads ahead.
    pub(super) run: (usize, Option<f64>),
}

/// The whole picture.
pub(super) fn draw(chart: &Chart<'_>) -> String {
    let mut svg = Svg::new(WIDTH, HEADER + 3.0 * PANEL);
    svg.title((LEFT, 22.0), &chart.title);
    legend(&mut svg);
    layers(&mut svg, HEADER, "prefill", chart.prefill);
    layers(&mut svg, HEADER + PANEL, "decode", chart.decode);
    hit_curve(&mut svg, HEADER + 2.0 * PANEL, chart.hits);
    svg.finish()
}

fn legend(svg: &mut Svg) {
    let step = (WIDTH - LEFT - RIGHT) / Phase::ALL.len() as f64;
    for (i, phase) in Phase::ALL.into_iter().enumerate() {
        let x = LEFT + step * i as f64;
        svg.rect((x, 38.0), (12.0, 12.0), PHASE_COLOURS[i], phase.name());
        svg.text((x + 18.0, 48.0), Anchor::Start, phase.name());
    }
}

/// Milliseconds a token, a bar a layer.
fn layers(svg: &mut Svg, top: f64, name: &str, timing: &Timing) {
    let n_token = timing.n_token.max(1) as f64;
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3 / n_token;
    let sums = timing.layers.iter().map(|phases| phases.iter().map(|&time| ms(time)).sum());
    let frame = Frame {
        top: top + 30.0,
        x_max: timing.layers.len().max(1) as f64,
        y_min: 0.0,
        y_max: sums.fold(f64::MIN_POSITIVE, f64::max) * 1.05,
    };
    let outside = ms(timing.embed + timing.head);
    svg.title(
        (LEFT, top + 18.0),
        &format!(
            "{name}: {:.2} ms a token in layers, {outside:.2} ms in embedding and head",
            ms(timing.total()) - outside
        ),
    );
    frame.y_axis(svg, "ms a token", |y| format!("{y}"));
    let width = (0.8 * (frame.x(1.0) - frame.x(0.0))).min(BAR_WIDTH_MAX);
    for (layer, phases) in timing.layers.iter().enumerate() {
        let middle = frame.x(layer as f64 + 0.5);
        let mut below = 0.0;
        for (phase, &time) in Phase::ALL.into_iter().zip(phases) {
            let (from, to) = (below, below + ms(time));
            let at = (middle - width / 2.0, frame.y(to));
            let size = (width, frame.y(from) - frame.y(to));
            let hint = format!("layer {layer}, {}: {:.3} ms a token", phase.name(), ms(time));
            svg.rect(at, size, PHASE_COLOURS[phase as usize], &hint);
            below = to;
        }
    }
    let step = whole_step(frame.x_max, 20.0);
    for layer in (0..timing.layers.len()).step_by(step) {
        let at = (frame.x(layer as f64 + 0.5), frame.top + PLOT + 16.0);
        svg.text(at, Anchor::Middle, &layer.to_string());
    }
    svg.text((LEFT + (WIDTH - LEFT - RIGHT) / 2.0, frame.top + PLOT + 34.0), Anchor::Middle, "layer");
    frame.border(svg);
}

/// A line a policy, and where the run was.
fn hit_curve(svg: &mut Svg, top: f64, hits: &HitCurve) {
    const STYLES: [(&str, f64, &str); 3] =
        [("#0072B2", 3.0, ""), ("#E69F00", 2.0, "7 4"), ("#222", 1.5, "2 3")];
    let gib = |n_slot: usize| n_slot as f64 * hits.slot_bytes / f64::from(1 << 30);
    let largest = hits.n_slot.last().copied().unwrap_or(0);
    let frame =
        Frame { top: top + 30.0, x_max: gib(largest).max(f64::MIN_POSITIVE), y_min: 0.0, y_max: 100.0 };
    svg.title((LEFT, top + 18.0), "decode: share of experts found in memory, by memory for experts");
    frame.y_axis(svg, "hits, %", |y| format!("{y}"));
    frame.x_axis(svg, "expert slots, GiB (right edge: all experts)");
    for (i, ((name, rates), (colour, width, dash))) in hits.policies.iter().zip(STYLES).enumerate() {
        let points: Vec<(f64, f64)> = hits
            .n_slot
            .iter()
            .zip(rates)
            .map(|(&n_slot, &rate)| (frame.x(gib(n_slot)), frame.y(100.0 * rate)))
            .collect();
        svg.line(&points, colour, width, dash);
        let y = frame.top + PLOT - 56.0 + 18.0 * i as f64;
        svg.line(&[(WIDTH - 250.0, y - 4.0), (WIDTH - 214.0, y - 4.0)], colour, width, dash);
        svg.text((WIDTH - 206.0, y), Anchor::Start, name);
    }
    let (n_slot, rate) = hits.run;
    let x = frame.x(gib(n_slot));
    svg.line(&[(x, frame.y(0.0)), (x, frame.y(100.0))], "#D55E00", 1.5, "4 3");
    let (anchor, dx) = if n_slot * 2 < largest { (Anchor::Start, 8.0) } else { (Anchor::End, -8.0) };
    let measured = rate.map_or(String::new(), |rate| format!(", {:.1} % measured", 100.0 * rate));
    svg.text((x + dx, frame.y(0.0) - 8.0), anchor, &format!("this run: {n_slot} slots{measured}"));
    if let Some(rate) = rate {
        svg.dot((x, frame.y(100.0 * rate)), "#D55E00");
    }
    frame.border(svg);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn timing(n_layer: u64) -> Timing {
        let layer = |l: u64| std::array::from_fn(|p| Duration::from_micros(100 * (1 + (l + p as u64) % 5)));
        Timing { layers: (0..n_layer).map(layer).collect(), n_token: 1, n_batch: 1, ..Timing::default() }
    }

    /// A picture without its data, or one that no program opens.
    #[test]
    fn a_chart_has_all_series() {
        let hits = HitCurve {
            n_slot: vec![10, 20, 40],
            policies: vec![
                ("own", vec![0.1, 0.2, 0.9]),
                ("LRU", vec![0.1, 0.1, 0.9]),
                ("best", vec![0.2, 0.5, 0.9]),
            ],
            slot_bytes: 1e8,
            run: (20, Some(0.19)),
        };
        let (prefill, decode) = (timing(3), timing(3));
        let svg = draw(&Chart { title: "a <model>".into(), prefill: &prefill, decode: &decode, hits: &hits });
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        for tag in ["svg", "rect", "text", "title"] {
            let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
            let n_self_closing = if tag == "rect" { 1 } else { 0 };
            assert_eq!(svg.matches(&open).count(), svg.matches(&close).count() + n_self_closing, "{tag}");
        }
        // Background, legend, and a bar for each layer and phase of both panels.
        assert_eq!(svg.matches("<rect").count(), 1 + 7 + 2 * 3 * 7);
        for text in [
            "a &lt;model&gt;",
            "prefill: ",
            "decode: ",
            ">own<",
            ">LRU<",
            ">best<",
            "20 slots, 19.0 % measured",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    /// A model of one layer, or a run without routing, would be drawn out of the picture.
    #[test]
    fn nothing_is_drawn_as_nothing() {
        let empty = Timing::default();
        let svg = draw(&Chart {
            title: String::new(),
            prefill: &empty,
            decode: &empty,
            hits: &HitCurve::default(),
        });
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
