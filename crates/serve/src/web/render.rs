//! Markdown to HTML that is safe to show, whatever the model wrote. HTML in the text is shown as text, images become
//! links, and the result is cleaned of all that this file does not make.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ammonia::UrlRelative;
use pulldown_cmark::{
    Alignment, CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html,
};

use super::code;

/// Longest text of one render, in bytes: several times the longest answer that people read.
pub(super) const MARKDOWN_BYTES_MAX: usize = 256 << 10;
/// Longest HTML before it is cleaned.
const HTML_BYTES_MAX: usize = 8 << 20;
/// Blocks and emphasis inside each other; deeper ones are shown without their marks. Browsers stop at 512 elements.
const DEPTH_MAX: usize = 48;
/// Marks of lists and quotes at the start of one line: the parser's time grows with their square.
const MARKS_MAX: usize = 256;
/// Part of the time that colours may take.
const HIGHLIGHT_TIME: Duration = Duration::from_millis(500);
/// Class of formulas, which are shown as written.
const MATH: &str = "math";

/// What a text became.
#[derive(Debug)]
pub(super) struct Page {
    /// All blocks; of an open text, all but the last.
    pub(super) html: String,
    /// The last block of an open text, which may still change.
    pub(super) tail_html: String,
    /// Where the tail starts, in UTF-16 units.
    pub(super) tail_start_utf16: usize,
}

/// Why a text is shown as it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// More than fits.
    #[error("the text has {bytes} bytes, more than the {MARKDOWN_BYTES_MAX} that are rendered at once")]
    TooLong {
        /// Size of the text.
        bytes: usize,
    },
    /// Would take too long, or become too large.
    #[error("the text is too complex to render")]
    TooComplex,
}

/// Renders a text; `open` if more of it is to come.
pub(super) fn render(markdown: &str, open: bool, deadline: Instant) -> Result<Page, Refused> {
    if markdown.len() > MARKDOWN_BYTES_MAX {
        return Err(Refused::TooLong { bytes: markdown.len() });
    }
    if markdown.lines().any(|line| n_mark(line) > MARKS_MAX) {
        return Err(Refused::TooComplex);
    }
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_MATH;
    let events: Vec<_> = Parser::new_ext(markdown, options).into_offset_iter().collect();
    let tail = if open { last_block(markdown, &events) } else { events.len() };
    let tail_start = match events.get(tail) {
        // From the start of its line: how far a block is indented matters.
        Some((_, range)) => markdown[..range.start].rfind('\n').map_or(0, |at| at + 1),
        None if open => 0, // Blanks, or definitions of links.
        None => markdown.len(),
    };
    let colours_until = deadline.min(Instant::now() + HIGHLIGHT_TIME);
    let write = |events: &[(Event<'_>, Range<usize>)]| to_html(events, colours_until, deadline);
    Ok(Page {
        html: write(&events[..tail])?,
        tail_html: write(&events[tail..])?,
        tail_start_utf16: markdown[..tail_start].encode_utf16().count(),
    })
}

/// An upper bound of the lists and quotes that a line opens.
fn n_mark(line: &str) -> usize {
    let is_mark = |c: &char| matches!(c, '>' | '-' | '+' | '*' | '.' | ')');
    let prefix = line.chars().take_while(|c| is_mark(c) || c.is_ascii_digit() || c.is_whitespace());
    // A line of dashes opens nothing: marks of lists have a blank behind them.
    let mut n_mark = 0;
    let mut before = ' ';
    for c in prefix {
        n_mark += usize::from(c == '>' || (c.is_whitespace() && is_mark(&before)));
        before = c;
    }
    n_mark
}

/// The event with which the last block at the top starts. A line that has no end yet may turn out to belong to the
/// block before it.
fn last_block(markdown: &str, events: &[(Event<'_>, Range<usize>)]) -> usize {
    let lines_end = markdown.rfind('\n').map_or(0, |at| at + 1);
    let mut depth = 0;
    let mut last = 0;
    for (i, (event, range)) in events.iter().enumerate() {
        if depth == 0 && range.start < lines_end {
            last = i;
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    last
}

/// Blocks as clean HTML.
fn to_html(
    events: &[(Event<'_>, Range<usize>)],
    colours_until: Instant,
    deadline: Instant,
) -> Result<String, Refused> {
    let mut writer = Writer::new(colours_until);
    let mut out = Bounded(String::new());
    let mut is_late = false;
    let in_time = events.iter().take_while(|_| {
        is_late = Instant::now() >= deadline;
        !is_late
    });
    let shown = in_time.flat_map(|(event, _)| writer.show(event));
    html::write_html_fmt(&mut out, shown).map_err(|_| Refused::TooComplex)?;
    if is_late {
        return Err(Refused::TooComplex);
    }
    Ok(CLEANER.clean(&out.0).to_string())
}

/// A string that does not grow without end.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > HTML_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Replaces what is shown in another way than the library does.
struct Writer {
    colours_until: Instant,
    /// For each open tag: is it shown?
    open: Vec<bool>,
    n_shown: usize,
    n_link: usize,
    /// Language and text of the code block that is open.
    code: Option<(String, String)>,
    alignments: Vec<Alignment>,
    cell_idx: usize,
    in_head: bool,
}

impl Writer {
    fn new(colours_until: Instant) -> Self {
        Self {
            colours_until,
            open: Vec::new(),
            n_shown: 0,
            n_link: 0,
            code: None,
            alignments: Vec::new(),
            cell_idx: 0,
            in_head: false,
        }
    }

    /// What stands for this event, in order.
    fn show<'a>(&mut self, event: &Event<'a>) -> Vec<Event<'a>> {
        if let Some((language, text)) = &mut self.code {
            if let Event::Text(piece) = event {
                text.push_str(piece);
                return Vec::new();
            }
            let html = code_block(language, text, self.colours_until);
            self.code = None;
            return vec![Event::Html(html.into())];
        }
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(*tag),
            Event::Html(text) => vec![Event::Text(text.clone())],
            Event::InlineHtml(text) if is_line_break(text) => vec![Event::HardBreak],
            Event::InlineHtml(text) => vec![Event::Text(text.clone())],
            Event::InlineMath(text) => vec![math("$", text)],
            Event::DisplayMath(text) => vec![math("$$", text)],
            Event::TaskListMarker(done) => vec![Event::Text(if *done { "☑ " } else { "☐ " }.into())],
            other => vec![other.clone()],
        }
    }

    fn start<'a>(&mut self, tag: &Tag<'a>) -> Vec<Event<'a>> {
        if let Tag::CodeBlock(kind) = tag {
            let language = match kind {
                CodeBlockKind::Fenced(info) => info.split([' ', ',', '{']).next().unwrap_or(""),
                CodeBlockKind::Indented => "",
            };
            self.code = Some((language.to_owned(), String::new()));
            return Vec::new();
        }
        let is_shown = self.n_shown < DEPTH_MAX;
        self.open.push(is_shown);
        if !is_shown {
            return Vec::new();
        }
        self.n_shown += 1;
        match tag {
            Tag::Link { .. } => self.n_link += 1,
            Tag::Image { dest_url, .. } => return self.start_image(dest_url),
            // The page has a heading of its own.
            Tag::Heading { level, .. } => return vec![Event::Start(heading(*level))],
            Tag::BlockQuote(_) => return vec![Event::Start(Tag::BlockQuote(None))],
            Tag::HtmlBlock => return vec![Event::Start(Tag::Paragraph)],
            Tag::Table(alignments) => {
                self.alignments.clone_from(alignments);
                let scroller = Event::Html("<div class=\"table\">".into());
                return vec![scroller, Event::Start(tag.clone())];
            }
            Tag::TableHead | Tag::TableRow => {
                self.in_head = matches!(tag, Tag::TableHead);
                self.cell_idx = 0;
            }
            Tag::TableCell => return vec![self.start_cell()],
            _ => {}
        }
        vec![Event::Start(tag.clone())]
    }

    fn end<'a>(&mut self, tag: TagEnd) -> Vec<Event<'a>> {
        if !self.open.pop().unwrap_or(false) {
            return Vec::new();
        }
        self.n_shown -= 1;
        let tag = match tag {
            TagEnd::Link => {
                self.n_link -= 1;
                tag
            }
            TagEnd::Image if self.n_link > 0 => return Vec::new(),
            TagEnd::Image => TagEnd::Link,
            TagEnd::Heading(level) => heading(level).to_end(),
            TagEnd::BlockQuote(_) => TagEnd::BlockQuote(None),
            TagEnd::HtmlBlock => TagEnd::Paragraph,
            TagEnd::Table => return vec![Event::End(tag), Event::Html("</div>\n".into())],
            _ => tag,
        };
        vec![Event::End(tag)]
    }

    /// Images are not loaded: that would tell their servers who reads what. Inside a link its text is enough.
    fn start_image<'a>(&self, url: &CowStr<'a>) -> Vec<Event<'a>> {
        let label = Event::Text("image: ".into());
        if self.n_link > 0 {
            return vec![label];
        }
        let link =
            Tag::Link { link_type: LinkType::Inline, dest_url: url.clone(), title: "".into(), id: "".into() };
        vec![Event::Start(link), label]
    }

    /// Alignment as a class: the page allows no styles inside HTML.
    fn start_cell<'a>(&mut self) -> Event<'a> {
        let name = if self.in_head { "th" } else { "td" };
        let class = match self.alignments.get(self.cell_idx) {
            Some(Alignment::Center) => " class=\"center\"",
            Some(Alignment::Right) => " class=\"right\"",
            _ => "",
        };
        self.cell_idx += 1;
        Event::Html(format!("<{name}{class}>").into())
    }
}

/// One level down.
fn heading<'a>(level: HeadingLevel) -> Tag<'a> {
    let level = HeadingLevel::try_from(level as usize + 1).unwrap_or(HeadingLevel::H6);
    Tag::Heading { level, id: None, classes: Vec::new(), attrs: Vec::new() }
}

/// The only HTML that models write and mean.
fn is_line_break(html: &str) -> bool {
    html.eq_ignore_ascii_case("<br>")
        || html.eq_ignore_ascii_case("<br/>")
        || html.eq_ignore_ascii_case("<br />")
}

/// A formula as it was written.
fn math<'a>(sign: &str, text: &str) -> Event<'a> {
    Event::Html(format!("<code class=\"{MATH}\">{sign}{}{sign}</code>", code::escaped(text)).into())
}

/// A head with the name of the language, where the page puts its button, and the code.
fn code_block(language: &str, text: &str, colours_until: Instant) -> String {
    let label = code::escaped(if language.is_empty() { "text" } else { language });
    let body = code::highlight(text, language, colours_until);
    format!(
        "<div class=\"code\"><div class=\"code-head\"><span>{label}</span></div><pre><code>{body}</code></pre></div>\n"
    )
}

/// Lets through what `Writer` makes, and nothing else.
static CLEANER: LazyLock<ammonia::Builder<'static>> = LazyLock::new(|| {
    let tags = [
        "a",
        "blockquote",
        "br",
        "code",
        "del",
        "div",
        "em",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "li",
        "ol",
        "p",
        "pre",
        "span",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ];
    let cell = HashSet::from(["center", "right"]);
    let classes = HashMap::from([
        ("div", HashSet::from(["code", "code-head", "table"])),
        ("code", HashSet::from([MATH])),
        ("span", HashSet::from(code::CLASSES)),
        ("td", cell.clone()),
        ("th", cell),
    ]);
    let mut cleaner = ammonia::Builder::empty();
    cleaner
        .tags(HashSet::from(tags))
        .tag_attributes(HashMap::from([("a", HashSet::from(["href"])), ("ol", HashSet::from(["start"]))]))
        .generic_attributes(HashSet::new())
        .allowed_classes(classes)
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::Deny)
        .link_rel(Some("noopener noreferrer nofollow"))
        .set_tag_attribute_value("a", "target", "_blank");
    cleaner
});

#[cfg(test)]
mod tests;
