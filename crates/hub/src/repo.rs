//! What a user types for a repository: `owner/name`, `owner/name@revision`, `owner/name:Q4_K_M`, or an address.

use std::fmt;
use std::str::FromStr;

use crate::HubError;

/// A repository of models, perhaps a certain revision, perhaps one of several models in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repo {
    /// `owner/name`.
    pub id: String,
    /// Branch, tag or commit; `None` is `main`.
    pub revision: Option<String>,
    /// Which GGUF file: the name of its quantisation, such as `Q4_K_M`, or a file name.
    pub variant: Option<String>,
}

/// Longest name, revision or variant.
const TEXT_BYTES_MAX: usize = 200;

impl Repo {
    /// The revision to ask for.
    pub(crate) fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

impl fmt::Display for Repo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        self.revision.iter().try_for_each(|revision| write!(f, "@{revision}"))?;
        self.variant.iter().try_for_each(|variant| write!(f, ":{variant}"))
    }
}

impl FromStr for Repo {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let wrong = |why| HubError::Name { text: text.to_owned(), why };
        if let Some((_, rest)) = text.split_once("://") {
            return from_page(rest).ok_or_else(|| wrong("the address is not that of a model"))?;
        }
        let (rest, variant) = match text.rsplit_once(':') {
            Some((rest, variant)) => (rest, Some(variant)),
            None => (text, None),
        };
        let (id, revision) = match rest.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (rest, None),
        };
        Self::new(id, revision, variant).map_err(wrong)
    }
}

impl Repo {
    fn new(id: &str, revision: Option<&str>, variant: Option<&str>) -> Result<Self, &'static str> {
        let (owner, name) = id.split_once('/').ok_or("expected OWNER/NAME")?;
        if !is_word(owner) || !is_word(name) {
            return Err("expected OWNER/NAME, of letters, digits, '-', '_' and '.'");
        }
        if revision.is_some_and(|revision| !revision.split('/').all(is_word)) {
            return Err("the revision after '@' is not a branch, tag or commit");
        }
        if variant.is_some_and(|variant| !variant.split('/').all(is_word)) {
            return Err("what follows ':' is not the name of a quantisation, such as Q4_K_M");
        }
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(Self { id: id.to_owned(), revision: owned(revision), variant: owned(variant) })
    }
}

/// `HOST/owner/name[/tree/REVISION | /blob/REVISION/FILE | /resolve/REVISION/FILE][?…]`.
fn from_page(rest: &str) -> Option<Result<Repo, HubError>> {
    let path = rest.split(['?', '#']).next()?;
    let mut parts = path.split('/').skip(1).filter(|part| !part.is_empty()).peekable();
    parts.next_if_eq(&"models");
    let id = format!("{}/{}", parts.next()?, parts.next()?);
    let kind = parts.next();
    let revision = match kind {
        None => None,
        Some("tree" | "blob" | "resolve") => Some(parts.next()?),
        Some(_) => return None,
    };
    let file: Vec<&str> = parts.collect();
    let is_gguf = file.last().is_some_and(|name| name.ends_with(".gguf"));
    let variant = is_gguf.then(|| file.join("/"));
    Some(
        Repo::new(&id, revision.filter(|r| *r != "main"), variant.as_deref())
            .map_err(|why| HubError::Name { text: rest.to_owned(), why }),
    )
}

/// Part of a name: it goes into addresses and names of folders.
fn is_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    !text.is_empty()
        && text.len() <= TEXT_BYTES_MAX
        && text.chars().all(is_plain)
        && !text.starts_with('.')
        && !text.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, id: &str, revision: Option<&str>, variant: Option<&str>) {
        let repo: Repo = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let got = (repo.id.as_str(), repo.revision.as_deref(), repo.variant.as_deref());
        assert_eq!(got, (id, revision, variant), "{text}");
    }

    /// Another repository, revision or file than the one that was named would be taken.
    #[test]
    fn names_are_read() {
        check("Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.5-35B-A3B", None, None);
        check("a/b@v1.0", "a/b", Some("v1.0"), None);
        check("a/b@refs/pr/3:Q8_0", "a/b", Some("refs/pr/3"), Some("Q8_0"));
        check("a/b-GGUF:UD-Q4_K_XL", "a/b-GGUF", None, Some("UD-Q4_K_XL"));
        check("https://huggingface.co/a/b", "a/b", None, None);
        check("https://huggingface.co/a/b/tree/main", "a/b", None, None);
        check("https://huggingface.co/a/b/tree/v2?x=1#y", "a/b", Some("v2"), None);
        check("http://mirror:80/a/b/blob/main/Q4/m.gguf", "a/b", None, Some("Q4/m.gguf"));
        check("https://h/a/b/resolve/abc/config.json", "a/b", Some("abc"), None);
        let all = "a/b@v1:Q4_K_M";
        assert_eq!(all.parse::<Repo>().unwrap().to_string(), all);
    }

    /// A name could lead out of the cache's folder, or into another address.
    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "name",
            "a/",
            "/b",
            "a/b/c",
            "../b",
            "a/..",
            "a/.b",
            "a b/c",
            "a/b@",
            "a/b:",
            "a/b@..",
            "a/b@x/../y",
            "a/b:..",
            "a/b?x",
            "a/b#x",
            "a\\b/c",
            "https://h/a",
            "https://h/datasets/a/b",
            "https://h/a/b/discussions/1",
            "a/b%2f",
            "a/b@a\nb",
        ] {
            assert!(text.parse::<Repo>().is_err(), "{text:?}");
        }
        assert!(format!("a/{}", "b".repeat(201)).parse::<Repo>().is_err());
    }
}
