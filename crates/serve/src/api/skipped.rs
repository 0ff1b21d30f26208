//! What a request has that is left out: clients send kinds of content and tools that only some servers have.

/// Names that one line of the log has room for.
const N_NAMED_MAX: usize = 8;
/// Characters of a kind that are told.
const KIND_CHARS_MAX: usize = 60;

/// What was left out of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped(Vec<String>);

impl Skipped {
    /// `path`: where it stands in the request; `kind`: what it is, in the client's words.
    pub(crate) fn push(&mut self, path: &str, kind: &str) {
        let kind: String = kind.chars().take(KIND_CHARS_MAX).collect();
        self.0.push(format!("{path} ({kind:?})"));
    }

    /// One line; `None` if there is nothing to tell.
    pub(crate) fn line(&self) -> Option<String> {
        let named = self.0.iter().take(N_NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let n_more = self.0.len().saturating_sub(N_NAMED_MAX);
        let more = if n_more == 0 { String::new() } else { format!(" and {n_more} more") };
        (!self.0.is_empty()).then(|| format!("left out of a request, not known here: {named}{more}"))
    }

    /// Tells the log.
    pub(crate) fn log(&self) {
        if let Some(line) = self.line() {
            eprintln!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One request could fill the log, or write lines of its own into it.
    #[test]
    fn a_line_of_the_log_stays_one_short_line() {
        let mut skipped = Skipped::default();
        assert_eq!(skipped.line(), None);
        skipped.push("tools[0]", &"x\n".repeat(100_000));
        for i in 1..1000 {
            skipped.push(&format!("tools[{i}]"), "web_search");
        }
        let line = skipped.line().unwrap();
        assert!(line.len() < 1000 && line.ends_with("and 992 more") && !line.contains('\n'), "{line}");
    }
}
