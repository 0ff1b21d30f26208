//! Just enough of Rust's lexical rules to tell code from comments and literals.

/// What a character of a source file belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// A source file whose comments and literals can be blanked out.
pub(crate) struct Source {
    chars: Vec<char>,
    kinds: Vec<Kind>,
}

impl Source {
    /// Classifies every character.
    pub(crate) fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut kinds = vec![Kind::Code; chars.len()];
        let mut at = 0;
        while at < chars.len() {
            let (kind, end) = token(&chars, at);
            kinds[at..end].fill(kind);
            at = end;
        }
        Self { chars, kinds }
    }

    /// The text with comments and literals replaced by spaces; lines stay where they are.
    pub(crate) fn code(&self) -> String {
        let blank = |(&c, &kind): (&char, &Kind)| if kind == Kind::Code || c == '\n' { c } else { ' ' };
        self.chars.iter().zip(&self.kinds).map(blank).collect()
    }

    /// Columns of each line that are not inside a literal: a long message is no reason to break a line.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0];
        for (&c, &kind) in self.chars.iter().zip(&self.kinds) {
            if c == '\n' {
                widths.push(0);
            } else if kind != Kind::Literal {
                *widths.last_mut().expect("there is a line") += 1;
            }
        }
        widths
    }
}

/// The token that starts at `at`, and its end. Code is handed out character by character, identifiers whole.
fn token(chars: &[char], at: usize) -> (Kind, usize) {
    let rest = &chars[at..];
    let end_at = |n: usize| (at + n).min(chars.len());
    if rest.starts_with(&['/', '/']) {
        let n = rest.iter().position(|&c| c == '\n').unwrap_or(rest.len());
        return (Kind::Comment, end_at(n));
    }
    if rest.starts_with(&['/', '*']) {
        return (Kind::Comment, end_at(block_comment(rest)));
    }
    if let Some(n) = raw_string(rest) {
        return (Kind::Literal, end_at(n));
    }
    match rest[0] {
        '"' => (Kind::Literal, end_at(quoted(rest, '"'))),
        '\'' if rest.get(1) == Some(&'\\') || rest.get(2) == Some(&'\'') => {
            (Kind::Literal, end_at(quoted(rest, '\'')))
        }
        c if is_word(c) => (Kind::Code, end_at(rest.iter().position(|&c| !is_word(c)).unwrap_or(rest.len()))),
        _ => (Kind::Code, at + 1),
    }
}

/// Length of a nested block comment.
fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut n) = (0, 0);
    while n < rest.len() {
        match rest[n..] {
            ['/', '*', ..] => (depth, n) = (depth + 1, n + 2),
            ['*', '/', ..] => (depth, n) = (depth - 1, n + 2),
            _ => n += 1,
        }
        if depth == 0 {
            break;
        }
    }
    n
}

/// Length of a literal with escapes, quotes included.
fn quoted(rest: &[char], quote: char) -> usize {
    let mut n = 1;
    while n < rest.len() && rest[n] != quote {
        n += if rest[n] == '\\' { 2 } else { 1 };
    }
    n + 1
}

/// Length of `r"…"`, `r#"…"#`, `br"…"`, `b"…"` or `c"…"`, if one starts here.
fn raw_string(rest: &[char]) -> Option<usize> {
    let prefix = rest.iter().take(2).take_while(|c| matches!(c, 'b' | 'c' | 'r')).count();
    let n_hash = rest[prefix..].iter().take_while(|&&c| c == '#').count();
    if prefix == 0 || rest.get(prefix + n_hash) != Some(&'"') {
        return None;
    }
    if rest[prefix - 1] != 'r' {
        return (n_hash == 0).then(|| prefix + quoted(&rest[prefix..], '"'));
    }
    let body = prefix + n_hash + 1;
    let closes =
        |n: usize| rest[n] == '"' && rest[n + 1..].iter().take_while(|&&c| c == '#').count() >= n_hash;
    (body..rest.len()).find(|&n| closes(n)).map(|n| n + 1 + n_hash)
}

/// Part of an identifier, keyword or number?
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Byte offsets where `word` stands alone (no letter, digit or underscore beside it).
pub(crate) fn find_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words in comments, strings or characters would be taken for code, or code would be lost.
    #[test]
    fn comments_and_literals_are_blanked() {
        let check = |text: &str, code: &str| {
            let words = Source::new(text).code().split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words, code, "{text:?}");
        };
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check(r#"a "b \" { c" d"#, "a d");
        check(r##"a r#"b " { c"# d"##, "a d");
        check(r##"br"b" b"c" c"d" e"##, "e");
        check(r"a '{' '\'' '\n' b", "a b");
        check("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
        check("var r = bar; crab", "var r = bar; crab");
    }

    /// Long messages would have to be broken, or long comments would pass.
    #[test]
    fn literals_have_no_width() {
        assert_eq!(Source::new("ab(\"cdef\")\n// gh\n").widths(), [4, 5, 0]);
    }

    /// `unsafe_code` would count as `unsafe`.
    #[test]
    fn words_stand_alone() {
        assert_eq!(find_word("unsafe unsafe_code un_unsafe (unsafe)", "unsafe").collect::<Vec<_>>(), [0, 30]);
    }
}
