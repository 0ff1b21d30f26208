//! What the environment says: which hub, who asks, where downloads are kept. The variables are those of the hub's own
//! programs, so that what works for them works here.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::HubError;
use crate::client::Origin;

/// The hub that is meant where nothing else is said.
const ENDPOINT: &str = "https://huggingface.co";

/// Longest token file that is read.
const TOKEN_BYTES_MAX: u64 = 4096;

/// A secret that names who asks. Never shown.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// `None` for an empty text; one with control characters or spaces inside is no token.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())).then(|| Self(text.to_owned()))
    }

    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Which hub, who asks, where downloads are kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the hub, without a slash at the end.
    pub endpoint: String,
    /// Sent to the endpoint, and to nobody else.
    pub token: Option<Token>,
    /// The folder of the cache: it has a folder for each repository.
    pub cache: PathBuf,
    /// Proxies of the environment are used.
    pub use_proxy: bool,
}

impl Settings {
    /// As the environment has it: `HF_ENDPOINT`, `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_HOME`, `HF_HUB_CACHE`.
    ///
    /// # Errors
    /// An endpoint that is no address, no place for a cache, a token that is none.
    pub fn from_env() -> Result<Self, HubError> {
        Self::from_variables(&|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, HubError> {
        let endpoint = match variable("HF_ENDPOINT") {
            None => ENDPOINT.to_owned(),
            Some(value) => value.to_string_lossy().trim().trim_end_matches('/').to_owned(),
        };
        if Origin::of(&endpoint).is_none() {
            let why = format!("'{endpoint}' is not an address such as {ENDPOINT}");
            return Err(HubError::Environment { variable: "HF_ENDPOINT", why });
        }
        let home = home(variable);
        let cache = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"].into_iter().find_map(variable);
        let cache = cache.map(PathBuf::from).or_else(|| Some(home.as_ref()?.join("hub")));
        let cache = cache.ok_or_else(|| HubError::Environment {
            variable: "HF_HUB_CACHE",
            why: "neither this nor a home folder is set: there is no place for the cache".into(),
        })?;
        let token = token(variable, home.as_deref())?;
        Ok(Self { endpoint, token, cache, use_proxy: true })
    }
}

/// `HF_HOME`, or its usual place.
fn home(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from);
    path("HF_HOME").or_else(|| {
        let user = || path("HOME").or_else(|| path("USERPROFILE"));
        let caches = path("XDG_CACHE_HOME").or_else(|| Some(user()?.join(".cache")))?;
        Some(caches.join("huggingface"))
    })
}

fn token(
    variable: &dyn Fn(&str) -> Option<OsString>,
    home: Option<&Path>,
) -> Result<Option<Token>, HubError> {
    let wrong = |variable, why: &str| HubError::Environment { variable, why: why.into() };
    if let Some(value) = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().find_map(variable) {
        let token = value.to_str().and_then(Token::new);
        return token.map(Some).ok_or_else(|| wrong("HF_TOKEN", "is not a token (spaces or odd characters)"));
    }
    let path = variable("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home?.join("token")));
    let Some(path) = path else { return Ok(None) };
    // Most people have none; a file that is something else is not sent anywhere.
    match fs::metadata(&path) {
        Ok(meta) if meta.is_file() && meta.len() <= TOKEN_BYTES_MAX => {
            let text = fs::read_to_string(&path).map_err(HubError::io(&path, "read the token"))?;
            Ok(Token::new(&text))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, HubError> {
        let variables: Vec<(String, OsString)> =
            variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Settings::from_variables(&|name| {
            variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())
        })
    }

    /// Downloads would land beside the cache that other programs use, or come from another hub.
    #[test]
    fn places_are_those_of_other_programs() {
        let check = |variables: &[(&str, &str)], cache: &str| {
            assert_eq!(settings(variables).unwrap().cache, Path::new(cache), "{variables:?}");
        };
        let home = ("HOME", "/home/a");
        check(&[home], "/home/a/.cache/huggingface/hub");
        check(&[home, ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");
        check(&[home, ("HF_HOME", "/hf")], "/hf/hub");
        check(&[home, ("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")], "/c");
        check(&[("USERPROFILE", "/u")], "/u/.cache/huggingface/hub");
        assert!(settings(&[]).unwrap_err().to_string().contains("HF_HUB_CACHE"));
        assert_eq!(settings(&[home]).unwrap().endpoint, ENDPOINT);
        let own = settings(&[home, ("HF_ENDPOINT", "http://mirror:8080/hub/")]).unwrap();
        assert_eq!(own.endpoint, "http://mirror:8080/hub");
        for bad in ["mirror", "ftp://mirror", "http://", "http://a b"] {
            assert!(settings(&[home, ("HF_ENDPOINT", bad)]).is_err(), "{bad}");
        }
    }

    /// A token would be missed, shown in a log, or garbage would be sent as one.
    #[test]
    fn tokens_are_found_and_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        assert!(settings(&[("HF_HOME", home)]).unwrap().token.is_none());
        fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        let header = |variables: &[(&str, &str)]| settings(variables).unwrap().token.unwrap().header();
        assert_eq!(header(&[("HF_HOME", home)]), "Bearer hf_file");
        assert_eq!(header(&[("HF_HOME", home), ("HF_TOKEN", "hf_variable")]), "Bearer hf_variable");
        assert!(settings(&[("HF_HOME", home), ("HF_TOKEN", "two words")]).is_err());
        let shown = format!("{:?}", settings(&[("HF_HOME", home), ("HF_TOKEN", "hf_secret")]).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
