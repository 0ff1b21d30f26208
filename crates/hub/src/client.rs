//! Requests to a hub: redirects, who gets the token, what a refusal means, and how often to try again.
//!
//! The token goes to the hub's own address alone: storage that a hub redirects to has a signature in its address.

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use ureq::http::{HeaderMap, Uri, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

use crate::download::Options;
use crate::{HubError, Settings, Token};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Redirects in a row.
const N_REDIRECT_MAX: usize = 10;

/// Most bytes of a list of files.
pub(crate) const LIST_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of a refusal that are looked at, and characters of it that are shown.
const REFUSAL_BYTES_MAX: u64 = 4096;
const REFUSAL_CHARS_MAX: usize = 200;

/// Pauses between tries: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A server that asks for more is not waited for.
const ASKED_PAUSE_MAX: Duration = Duration::from_secs(600);
/// A pause ends so soon after another connection found that all is lost.
const PAUSE_STEP: Duration = Duration::from_millis(100);

/// Scheme, host and port.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Origin(String);

impl Origin {
    /// `None` if this is no address of the web.
    pub(crate) fn of(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let (scheme, host) = (uri.scheme_str()?.to_ascii_lowercase(), uri.host()?.to_ascii_lowercase());
        let usual_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        (!host.is_empty())
            .then(|| Self(format!("{scheme}://{host}:{}", uri.port_u16().unwrap_or(usual_port))))
    }

    fn is_secure(&self) -> bool {
        self.0.starts_with("https:")
    }
}

/// Why a request failed, and whether another one may do better.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Perhaps; the server may have said when.
    Again(HubError, Option<Duration>),
    /// No.
    Fatal(HubError),
}

/// An answer that is no redirect.
pub(crate) struct Reply {
    /// Where it came from in the end.
    pub(crate) url: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// Where the hub's own answer sent us, headers of it.
    pub(crate) first_headers: HeaderMap,
    body: Body,
}

impl Reply {
    /// The body, as it comes.
    pub(crate) fn reader(self) -> impl Read {
        self.body.into_reader()
    }

    /// A header's text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        text(&self.headers, name)
    }

    /// A header's number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.trim().parse().ok()
    }
}

/// A header's text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
}

/// Connections to one hub and what it redirects to.
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    origin: Origin,
    token: Option<Token>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.endpoint)
    }
}

impl Client {
    /// Opens no connection yet.
    ///
    /// # Errors
    /// The endpoint is no address.
    pub(crate) fn new(settings: &Settings, options: &Options) -> Result<Self, HubError> {
        let endpoint = settings.endpoint.trim_end_matches('/').to_owned();
        let origin = Origin::of(&endpoint).ok_or_else(|| HubError::Environment {
            variable: "HF_ENDPOINT",
            why: format!("'{endpoint}' is not an address"),
        })?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(options.silence_max))
            .timeout_per_write(Some(options.silence_max))
            .max_idle_connections_per_host(options.n_connection)
            .user_agent(concat!("flash-moe/", env!("CARGO_PKG_VERSION")))
            // Bytes as they are: lengths and ranges are those of the file.
            .accept_encoding("identity")
            .proxy(if settings.use_proxy { Proxy::try_from_env() } else { None })
            .tls_config(TlsConfig::builder().root_certs(certificates()).build());
        Ok(Self { agent: config.build().new_agent(), endpoint, origin, token: settings.token.clone() })
    }

    /// An address at the hub; `path` begins with a slash.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.endpoint)
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Asks for `url`, or bytes `range` of it, and follows redirects: all of them, or (`only_here`) those that stay at
    /// the hub.
    pub(crate) fn ask(
        &self,
        method: Method,
        url: &str,
        range: Option<&Range<u64>>,
        only_here: bool,
    ) -> Result<Reply, Trouble> {
        let mut url = url.to_owned();
        let mut first_headers = None;
        for _ in 0..=N_REDIRECT_MAX {
            let response = self.ask_once(method, &url, range)?;
            let (parts, body) = response.into_parts();
            let target = parts.status.is_redirection().then(|| text(&parts.headers, "location")).flatten();
            let first = first_headers.get_or_insert_with(|| parts.headers.clone());
            let next = match target {
                None => None,
                Some(target) => Some(self.redirect(&url, target).map_err(Trouble::Fatal)?),
            };
            match next {
                Some(next) if !only_here || Origin::of(&next) == Some(self.origin.clone()) => url = next,
                _ => {
                    let first_headers = std::mem::take(first);
                    let status = parts.status.as_u16();
                    return Ok(Reply { url, status, headers: parts.headers, first_headers, body });
                }
            }
        }
        let why = format!("redirects more than {N_REDIRECT_MAX} times");
        Err(Trouble::Fatal(HubError::Answer { url: shown(&url), why }))
    }

    fn ask_once(
        &self,
        method: Method,
        url: &str,
        range: Option<&Range<u64>>,
    ) -> Result<ureq::http::Response<Body>, Trouble> {
        let mut request = match method {
            Method::Get => self.agent.get(url),
            Method::Head => self.agent.head(url),
        };
        if let Some(range) = range {
            request = request.header(header::RANGE, format!("bytes={}-{}", range.start, range.end - 1));
        }
        if let Some(token) = self.token.as_ref().filter(|_| Origin::of(url) == Some(self.origin.clone())) {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        request.call().map_err(|e| {
            let is_hopeless =
                matches!(e, ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::BadUri(_));
            let error = HubError::Network { url: shown(url), why: e.to_string() };
            if is_hopeless { Trouble::Fatal(error) } else { Trouble::Again(error, None) }
        })
    }

    /// Where a redirect from `url` leads.
    fn redirect(&self, url: &str, target: &str) -> Result<String, HubError> {
        let wrong = |why: &str| HubError::Answer { url: shown(url), why: format!("redirects {why}") };
        let here = Origin::of(url).ok_or_else(|| wrong("from nowhere"))?;
        let next = if target.contains("://") {
            target.to_owned()
        } else if let Some(rest) = target.strip_prefix("//") {
            let scheme = if here.is_secure() { "https" } else { "http" };
            format!("{scheme}://{rest}")
        } else if target.starts_with('/') {
            format!("{}{target}", here.0)
        } else {
            return Err(wrong("to a relative address"));
        };
        match Origin::of(&next) {
            None => Err(wrong("to something that is no address")),
            Some(there) if here.is_secure() && !there.is_secure() => {
                Err(wrong("from https to http, where others could change the bytes"))
            }
            Some(_) => Ok(next),
        }
    }

    /// Lets an answer pass that has what was asked for. `repo` and `what` are for messages.
    pub(crate) fn check(&self, reply: Reply, repo: &str, what: &str) -> Result<Reply, Trouble> {
        if matches!(reply.status, 200 | 206) {
            return Ok(reply);
        }
        let (status, url) = (reply.status, shown(&reply.url));
        let is_elsewhere = Origin::of(&reply.url) != Some(self.origin.clone());
        let after = reply.header("retry-after").and_then(pause_asked);
        let code = reply.header("x-error-code").unwrap_or_default().to_owned();
        let message = message_of(reply);
        let (repo, has_token) = (repo.to_owned(), self.has_token());
        // Storage checks signatures, not people: another address from the hub may do.
        if is_elsewhere && matches!(status, 401 | 403 | 404 | 410) {
            return Err(Trouble::Again(HubError::Status { url, status, message }, after));
        }
        Err(match (status, code.as_str()) {
            (_, "GatedRepo") | (403, _) => {
                Trouble::Fatal(HubError::Forbidden { url, repo, message, has_token })
            }
            (401, _) => Trouble::Fatal(HubError::Unauthorized { url, repo, message, has_token }),
            (404 | 410, code) => {
                let what = match code {
                    "RepoNotFound" => format!("the repository {repo}"),
                    _ => what.to_owned(),
                };
                Trouble::Fatal(HubError::NotFound { url, what, message })
            }
            (416, _) => {
                let why = format!("{what} is shorter than the hub lists (416)");
                Trouble::Fatal(HubError::Answer { url, why })
            }
            (408 | 425 | 429 | 500 | 502 | 503 | 504, _) => {
                Trouble::Again(HubError::Status { url, status, message }, after)
            }
            _ => Trouble::Fatal(HubError::Status { url, status, message }),
        })
    }
}

/// What a server says about its refusal: a header, or the `error` of a JSON body.
fn message_of(reply: Reply) -> String {
    #[derive(serde::Deserialize)]
    struct Refusal {
        error: String,
    }
    let header = reply.header("x-error-message").map(str::to_owned);
    let message = header.or_else(|| {
        let mut bytes = Vec::new();
        reply.reader().take(REFUSAL_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice::<Refusal>(&bytes).ok().map(|refusal| refusal.error)
    });
    let message = message.unwrap_or_default();
    message.chars().filter(|c| !c.is_control()).take(REFUSAL_CHARS_MAX).collect()
}

/// `Retry-After`: seconds, or a time.
fn pause_asked(text: &str) -> Option<Duration> {
    let seconds = || text.trim().parse().ok().map(Duration::from_secs);
    let until = || httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok();
    seconds().or_else(until)
}

/// An address without its query, which may have a signature in it.
pub(crate) fn shown(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or(url).to_owned()
}

/// The system's certificates, and those of the variables that people behind proxies set; without any, those of the
/// big web browsers.
fn certificates() -> RootCerts {
    let mut found = rustls_native_certs::load_native_certs().certs;
    let variables = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
    if let Some(file) = variables.into_iter().filter_map(std::env::var_os).find(|value| !value.is_empty()) {
        found.extend(rustls_native_certs::load_certs_from_paths(Some(file.as_ref()), None).certs);
    }
    match found.is_empty() {
        true => RootCerts::WebPki,
        false => found.iter().map(|der| Certificate::from_der(der).to_owned()).into(),
    }
}

/// Tries again after a while, as long as it may help.
pub(crate) struct Patience<'a> {
    pub(crate) options: &'a Options,
    /// Set when everything is lost: nobody waits any longer.
    pub(crate) is_over: &'a AtomicBool,
    /// Tries in a row that brought nothing.
    n_vain: u32,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(options: &'a Options, is_over: &'a AtomicBool) -> Self {
        Self { options, is_over, n_vain: 0 }
    }

    /// Something came: the count starts over.
    pub(crate) fn renew(&mut self) {
        self.n_vain = 0;
    }

    /// Waits before the next try, or gives up with the error.
    pub(crate) fn wait(&mut self, trouble: Trouble) -> Result<(), HubError> {
        let (error, asked) = match trouble {
            Trouble::Fatal(error) => return Err(error),
            Trouble::Again(error, asked) => (error, asked),
        };
        self.n_vain += 1;
        if self.options.n_try <= self.n_vain || self.is_over.load(Ordering::Relaxed) {
            return Err(error);
        }
        if asked.is_some_and(|asked| asked > ASKED_PAUSE_MAX) {
            return Err(error);
        }
        let doubled = FIRST_PAUSE.saturating_mul(1 << (self.n_vain - 1).min(16)).min(PAUSE_MAX);
        let mut left = asked.unwrap_or(doubled);
        while !left.is_zero() && !self.is_over.load(Ordering::Relaxed) {
            let step = left.min(PAUSE_STEP);
            (self.options.wait)(step);
            left -= step;
        }
        Ok(())
    }

    /// Does it until it succeeds or there is no hope.
    pub(crate) fn insist<T>(
        &mut self,
        mut attempt: impl FnMut() -> Result<T, Trouble>,
    ) -> Result<T, HubError> {
        self.renew();
        loop {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(trouble) => self.wait(trouble)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token would go to another server.
    #[test]
    fn origins_are_told_apart() {
        let same = |a: &str, b: &str| Origin::of(a).unwrap() == Origin::of(b).unwrap();
        assert!(same("https://Hub.co/a", "https://hub.co:443/b?c"));
        for other in ["http://hub.co/a", "https://hub.co:444/", "https://hub.co.evil/", "https://cdn.hub.co/"]
        {
            assert!(!same("https://hub.co/a", other), "{other}");
        }
        assert!(same("https://hub.co@evil/", "https://evil/"));
        for bad in ["hub.co/a", "file:///etc", "ftp://a/b", ""] {
            assert!(Origin::of(bad).is_none(), "{bad}");
        }
    }

    /// A wait would be ignored, or taken for something else.
    #[test]
    fn waits_are_read() {
        assert_eq!(pause_asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(pause_asked("Wed, 21 Oct 2015 07:28:00 GMT"), None);
        let then = SystemTime::now() + Duration::from_secs(100);
        let asked = pause_asked(&httpdate::fmt_http_date(then)).unwrap();
        assert!((90..=100).contains(&asked.as_secs()), "{asked:?}");
        assert_eq!(pause_asked("soon"), None);
    }

    /// A signature in an address would be printed.
    #[test]
    fn addresses_are_shown_without_secrets() {
        assert_eq!(shown("https://cdn/x?Signature=abc#d"), "https://cdn/x");
    }
}
