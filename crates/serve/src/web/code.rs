//! Code in colours: each piece gets one of a few classes, whose colours the style sheet has for dark and light.

use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Instant;

use syntect::easy::ScopeRegionIterator;
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};
use syntect::util::LinesWithEndings;

/// Longer lines are data, and slow: they get no colours.
const LINE_BYTES_MAX: usize = 2000;

/// All classes of code.
pub(super) const CLASSES: [&str; 11] = [
    "hl-comment",
    "hl-string",
    "hl-number",
    "hl-constant",
    "hl-keyword",
    "hl-function",
    "hl-type",
    "hl-tag",
    "hl-attribute",
    "hl-inserted",
    "hl-deleted",
];

/// Scope and class; of several that fit a scope, the first counts.
const SCOPES: [(&str, &str); 24] = [
    ("comment", "hl-comment"),
    ("punctuation.definition.comment", "hl-comment"),
    ("constant.numeric", "hl-number"),
    ("constant.character.escape", "hl-constant"),
    ("constant.other.placeholder", "hl-constant"),
    ("constant", "hl-constant"),
    ("string.unquoted", ""),
    ("string", "hl-string"),
    ("punctuation.definition.string", "hl-string"),
    ("storage.type.function", "hl-keyword"),
    ("keyword.operator", ""),
    ("keyword", "hl-keyword"),
    ("storage", "hl-keyword"),
    ("variable.language", "hl-keyword"),
    ("entity.name.function", "hl-function"),
    ("support.function", "hl-function"),
    ("variable.function", "hl-function"),
    ("entity.name.tag", "hl-tag"),
    ("entity.other.attribute-name", "hl-attribute"),
    ("entity.name", "hl-type"),
    ("support.type", "hl-type"),
    ("support.class", "hl-type"),
    ("markup.inserted", "hl-inserted"),
    ("markup.deleted", "hl-deleted"),
];

/// Names of languages that syntect does not know, and whose syntax is near enough.
const ALIASES: [(&str, &str); 18] = [
    ("bash", "sh"),
    ("console", "sh"),
    ("shell", "sh"),
    ("zsh", "sh"),
    ("csharp", "cs"),
    ("golang", "go"),
    ("javascript", "js"),
    ("jsonc", "json"),
    ("jsonl", "json"),
    ("json5", "js"),
    ("jsx", "js"),
    ("kotlin", "java"),
    ("mjs", "js"),
    ("svg", "xml"),
    ("ts", "js"),
    ("tsx", "js"),
    ("typescript", "js"),
    ("vue", "html"),
];

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(SyntaxSet::load_defaults_newlines);
static RULES: LazyLock<Vec<(Scope, &'static str)>> = LazyLock::new(|| {
    let rule = |&(scope, class)| (Scope::from_str(scope).expect("scopes have few parts"), class);
    SCOPES.iter().map(rule).collect()
});

/// Escaped HTML with a `span` for each coloured piece. From the deadline on, and for a language that is not known, the
/// text has no colours.
pub(super) fn highlight(code: &str, language: &str, deadline: Instant) -> String {
    let Some(syntax) = find_syntax(language) else { return escaped(code) };
    let mut html = String::with_capacity(code.len() * 2);
    let mut state = ParseState::new(syntax);
    let mut scopes = ScopeStack::new();
    let mut rest = code;
    for line in LinesWithEndings::from(code) {
        if line.len() > LINE_BYTES_MAX || Instant::now() >= deadline {
            break;
        }
        if highlight_line(line, &mut state, &mut scopes, &mut html).is_err() {
            break;
        }
        rest = &rest[line.len()..];
    }
    html + &escaped(rest)
}

/// Appends one line. On an error nothing is appended.
fn highlight_line(
    line: &str,
    state: &mut ParseState,
    scopes: &mut ScopeStack,
    html: &mut String,
) -> Result<(), syntect::Error> {
    let ops = state.parse_line(line, &SYNTAXES)?;
    let mut pieces: Vec<(&str, String)> = Vec::new();
    for (text, op) in ScopeRegionIterator::new(&ops, line) {
        scopes.apply(op)?;
        if text.is_empty() {
            continue;
        }
        let class = class_of(scopes);
        match pieces.last_mut() {
            Some((last, piece)) if *last == class => piece.push_str(text),
            _ => pieces.push((class, text.to_owned())),
        }
    }
    for (class, text) in pieces {
        if class.is_empty() {
            html.push_str(&escaped(&text));
        } else {
            html.push_str(&format!("<span class=\"{class}\">{}</span>", escaped(&text)));
        }
    }
    Ok(())
}

/// The innermost scope that has a rule decides.
fn class_of(scopes: &ScopeStack) -> &'static str {
    let rule_of = |scope: &Scope| RULES.iter().find(|(prefix, _)| prefix.is_prefix_of(*scope));
    scopes.as_slice().iter().rev().find_map(rule_of).map_or("", |(_, class)| class)
}

/// By name or file extension, in any case.
fn find_syntax(language: &str) -> Option<&'static SyntaxReference> {
    if language.is_empty() {
        return None;
    }
    let name = language.to_lowercase();
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name.as_str(), |(_, name)| name);
    SYNTAXES.find_syntax_by_token(name)
}

/// Text as HTML, also inside quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    /// What is left of HTML for a reader: the text between tags.
    fn text_of(html: &str) -> String {
        let mut text = String::new();
        for piece in html.split('<') {
            text.push_str(piece.split_once('>').map_or(piece, |(_, text)| text));
        }
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    }

    /// Code has no colours, or those of other things.
    #[test]
    fn pieces_get_their_classes() {
        let cases = [
            (
                "rust",
                "fn main() { let s = \"a\"; } // b\n",
                ["hl-keyword", "hl-function", "hl-string", "hl-comment"],
            ),
            (
                "Python",
                "def f(x):\n    return 1 # b\n",
                ["hl-keyword", "hl-function", "hl-number", "hl-comment"],
            ),
            (
                "ts",
                "class A { f() { return 'b' } } // c\n",
                ["hl-keyword", "hl-type", "hl-string", "hl-comment"],
            ),
            (
                "bash",
                "if true; then echo \"$a\"; fi # b\n",
                ["hl-keyword", "hl-function", "hl-string", "hl-comment"],
            ),
            (
                "html",
                "<!-- a --><a href=\"b\">c</a>\n",
                ["hl-comment", "hl-tag", "hl-attribute", "hl-string"],
            ),
        ];
        for (language, code, classes) in cases {
            let html = highlight(code, language, later());
            for class in classes {
                assert!(html.contains(&format!("class=\"{class}\"")), "{language}: no {class} in {html}");
            }
            assert_eq!(text_of(&html), code, "{language}");
        }
    }

    /// A language makes the highlighter panic, or loses text.
    #[test]
    fn every_language_keeps_the_text() {
        let code =
            "if (a < \"b\\n\") { /* c */ return 'd'; } # e\n<x y=\"z\">&amp;</x>\n\tdef f(): -- g\n#+END\n";
        for syntax in SYNTAXES.syntaxes() {
            let html = highlight(code, &syntax.name, later());
            assert_eq!(text_of(&html), code, "{}", syntax.name);
        }
    }

    /// Text is lost where colours end.
    #[test]
    fn long_lines_and_late_code_have_no_colours() {
        let long = format!("let a = 1;\nlet b = \"{}\";\nlet c = 2;\n", "<".repeat(LINE_BYTES_MAX));
        let html = highlight(&long, "rust", later());
        assert!(html.starts_with("<span"));
        assert_eq!(text_of(&html), long);
        let late = highlight("let a = \"<\";\n", "rust", Instant::now());
        assert_eq!(late, "let a = &quot;&lt;&quot;;\n");
        assert_eq!(highlight("<", "no such language", later()), "&lt;");
    }

    /// A class that the sanitiser drops.
    #[test]
    fn every_rule_has_a_known_class() {
        for (scope, class) in SCOPES {
            assert!(class.is_empty() || CLASSES.contains(&class), "{scope}: {class}");
        }
    }
}
