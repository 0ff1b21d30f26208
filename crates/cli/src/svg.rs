//! The few shapes that charts are made of, as SVG text: readable on any background, with fonts of the viewer.

use std::fmt::Write;

/// A picture that is being drawn. Coordinates are pixels, from the top left.
pub(crate) struct Svg {
    text: String,
}

/// Where a text stands at its point.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        let mut svg = Self { text: String::new() };
        svg.push(format_args!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12" fill="#222"><rect width="100%" height="100%" fill="#fff"/>"##
        ));
        svg
    }

    /// A filled rectangle with a text that is shown when pointed at.
    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str, hint: &str) {
        let hint = escaped(hint);
        self.push(format_args!(
            r#"<rect x="{x:.2}" y="{y:.2}" width="{width:.2}" height="{height:.2}" fill="{fill}"><title>{hint}</title></rect>"#
        ));
    }

    /// A line through points; `dash` as in `stroke-dasharray`, empty for none.
    pub(crate) fn line(&mut self, points: &[(f64, f64)], stroke: &str, width: f64, dash: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.2},{y:.2}")).collect();
        self.push(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{stroke}" stroke-width="{width}" stroke-dasharray="{dash}"/>"#,
            points.join(" ")
        ));
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), fill: &str) {
        self.push(format_args!(r##"<circle cx="{x:.2}" cy="{y:.2}" r="5" fill="{fill}" stroke="#fff"/>"##));
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.label((x, y), anchor, "", text);
    }

    /// A title.
    pub(crate) fn title(&mut self, at: (f64, f64), text: &str) {
        self.label(at, Anchor::Start, r#" font-size="14" font-weight="600""#, text);
    }

    /// A text that reads upwards.
    pub(crate) fn upward(&mut self, (x, y): (f64, f64), text: &str) {
        self.label((x, y), Anchor::Middle, &format!(r#" transform="rotate(-90 {x:.2} {y:.2})""#), text);
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn label(&mut self, (x, y): (f64, f64), anchor: Anchor, more: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.push(format_args!(r#"<text x="{x:.2}" y="{y:.2}" text-anchor="{anchor}"{more}>{text}</text>"#));
    }

    fn push(&mut self, piece: std::fmt::Arguments<'_>) {
        self.text.write_fmt(piece).expect("writing to a string cannot fail");
        self.text.push('\n');
    }
}

/// Names of models may contain anything; XML allows no control characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}') => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model's name would end a tag, and the picture would not open.
    #[test]
    fn text_stays_text() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((1.0, 2.0), Anchor::End, "a<b>&c\u{1}\u{FFFF}");
        let shown = svg.finish();
        assert!(shown.contains(">a&lt;b&gt;&amp;c\u{FFFD}\u{FFFD}</text>"), "{shown}");
    }
}
