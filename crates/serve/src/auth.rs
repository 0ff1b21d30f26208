//! Who may ask, and from where: keys, names of this host, origins of web pages.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::app::App;
use crate::error::{ApiError, ErrorKind};

/// Keys that open the server. They are never printed.
#[derive(Clone, Default)]
pub struct Keys(Arc<[String]>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

impl Keys {
    /// Empty ones are left out, or no key would be a key.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Self {
        Self(keys.into_iter().filter(|key| !key.is_empty()).collect())
    }

    /// May everybody ask?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All keys are compared, each in a time that does not depend on where it differs.
    fn opens(&self, given: &[u8]) -> bool {
        let is_same = |found, key: &String| found | key.as_bytes().ct_eq(given);
        self.0.iter().fold(subtle::Choice::from(0), is_same).into()
    }
}

/// Where requests may come from.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Names of this host, besides loopback names and addresses.
    pub hosts: Vec<String>,
    /// Origins of web pages, besides this server's own and those of this machine.
    pub origins: Vec<String>,
}

impl Origins {
    /// May a page of this origin read answers? Pages of this machine may: programs on it can ask anyway.
    pub(crate) fn allows(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        if self.origins.iter().any(|allowed| allowed == "*" || allowed.trim_end_matches('/') == origin) {
            return true;
        }
        let uri = origin.parse::<Uri>().ok();
        uri.as_ref().and_then(Uri::host).is_some_and(is_loopback)
    }

    /// A name that an attacker's page can be made to point at us is not ours; an address is no name.
    fn knows(&self, host: &str) -> bool {
        let is_address = address(host).is_some();
        is_address || is_loopback(host) || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn is_loopback(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost") || address(&host).is_some_and(|ip| ip.is_loopback())
}

/// Host and port of the request itself.
fn authority<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    let host = || headers.get(header::HOST).and_then(|host| host.to_str().ok());
    uri.authority().map(axum::http::uri::Authority::as_str).or_else(host)
}

/// Refuses requests that a foreign web page had a browser send. With keys, a name of this host is as good as another:
/// the page does not have them.
pub(crate) async fn check_origin(State(app): State<App>, request: Request, next: Next) -> Response {
    let options = app.options();
    let forbidden = |what: String| ApiError::new(ErrorKind::Forbidden, what).into_response();
    let Some(authority) = authority(request.uri(), request.headers()) else {
        return ApiError::invalid("the request has no Host header").into_response();
    };
    let Some(host) = authority.parse::<axum::http::uri::Authority>().ok().map(|a| a.host().to_owned()) else {
        return ApiError::invalid("the Host header is not a host").into_response();
    };
    if options.keys.is_empty() && !options.origins.knows(&host) {
        return forbidden(
            "this server does not know itself by the name in the Host header (--allowed-host)".into(),
        );
    }
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        let own = |scheme: &str| format!("{scheme}://{authority}");
        let is_own = origin == own("http").as_str() || origin == own("https").as_str();
        if !is_own && !options.origins.allows(origin) {
            return forbidden("web pages of this origin may not use this server (--allowed-origin)".into());
        }
    }
    next.run(request).await
}

/// Refuses requests without a key, if there are keys.
pub(crate) async fn check_key(State(app): State<App>, request: Request, next: Next) -> Response {
    let keys = &app.options().keys;
    if keys.is_empty() || given_keys(request.headers()).any(|key| keys.opens(key)) {
        return next.run(request).await;
    }
    let what = "this server needs an API key: send 'Authorization: Bearer KEY' or 'x-api-key: KEY'";
    ApiError::new(ErrorKind::Unauthorized, what).into_response()
}

/// Clients may send one of their own for another server besides.
fn given_keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    const BEARER: &[u8] = b"bearer ";
    let bearer = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let bearer = bearer
        .filter(|value| value.len() > BEARER.len() && value[..BEARER.len()].eq_ignore_ascii_case(BEARER));
    let bearer = bearer.map(|value| value[BEARER.len()..].trim_ascii());
    bearer.into_iter().chain(headers.get("x-api-key").map(HeaderValue::as_bytes))
}
