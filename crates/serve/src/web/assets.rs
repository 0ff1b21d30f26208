//! The files of the page, which are part of the program, and the headers that they are sent with.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Nothing is loaded from elsewhere, no script stands in a page, and HTML is only made where `markdown.js` makes it.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     object-src 'none'; require-trusted-types-for 'script'; trusted-types rendered";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Name, content type, contents.
type Asset = (&'static str, &'static str, &'static [u8]);

macro_rules! asset {
    ($name:literal, $kind:expr) => {
        ($name, $kind, include_bytes!(concat!("../../web/", $name)))
    };
}

const INDEX: Asset = asset!("index.html", HTML);
const FILES: [Asset; 21] = [
    asset!("answer.js", JS),
    asset!("api.js", JS),
    asset!("app.js", JS),
    asset!("attachment.js", JS),
    asset!("chat.js", JS),
    asset!("code.css", CSS),
    asset!("composer.js", JS),
    asset!("conversation.js", JS),
    asset!("dialog.js", JS),
    asset!("dom.js", JS),
    asset!("icon.svg", SVG),
    asset!("icons.svg", SVG),
    asset!("log.js", JS),
    asset!("markdown.js", JS),
    asset!("message.js", JS),
    asset!("settings.js", JS),
    asset!("sidebar.js", JS),
    asset!("status.js", JS),
    asset!("store.js", JS),
    asset!("style.css", CSS),
    asset!("theme.js", JS),
];

/// `GET /`
pub(super) async fn index(headers: HeaderMap) -> Response {
    answer(&INDEX, &headers)
}

/// `GET /web/{file}`
pub(super) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match FILES.iter().find(|file| file.0 == name) {
        Some(file) => answer(file, &headers),
        None => super::error(StatusCode::NOT_FOUND, "the web page has no such file"),
    }
}

/// The file, or that the browser's copy is still right.
fn answer(file: &Asset, request: &HeaderMap) -> Response {
    let headers = [
        (header::CONTENT_TYPE, file.1),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Kept, but asked for each time: another version of the program may run at the same address.
        (header::CACHE_CONTROL, "no-cache"),
        (header::ETAG, &*TAG),
    ];
    let known = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    if known.is_some_and(|known| known.split(',').any(|tag| tag.trim().trim_start_matches("W/") == *TAG)) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, file.2).into_response()
}

/// One tag for all files: modules of two versions do not mix.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    for file in FILES.iter().chain([&INDEX]) {
        hasher.write(file.2);
    }
    format!("\"{:016x}\"", hasher.finish())
});

#[cfg(test)]
mod tests {
    use super::*;

    /// The page asks for a file that the program does not have, or carries one that nothing uses.
    #[test]
    fn files_and_their_uses_agree() {
        let texts: Vec<&str> =
            FILES.iter().chain([&INDEX]).filter_map(|file| std::str::from_utf8(file.2).ok()).collect();
        for (name, ..) in FILES {
            let is_used = |text: &&str| {
                text.contains(&format!("/web/{name}")) || text.contains(&format!("\"./{name}\""))
            };
            assert!(texts.iter().any(is_used), "nothing uses {name}");
        }
        for text in texts {
            for start in ["/web/", "from \"./"] {
                for (at, _) in text.match_indices(start) {
                    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '.';
                    let name = text[at + start.len()..].split(|c| !is_name(c)).next().unwrap();
                    assert!(name == "render" || FILES.iter().any(|file| file.0 == name), "no file {name}");
                }
            }
        }
    }

    /// The page would need the network, or the policy would stop it.
    #[test]
    fn pages_load_nothing_from_elsewhere() {
        for file in FILES.iter().chain([&INDEX]) {
            let text = std::str::from_utf8(file.2).unwrap();
            for wrong in ["<style", " style=\"", " onclick=", "javascript:", "eval(", "document.write"] {
                assert!(!text.contains(wrong), "{}: {wrong}", file.0);
            }
            for (at, _) in text.match_indices("://") {
                let rest = &text[at + 3..];
                assert!(rest.starts_with("www.w3.org/"), "{}: {}", file.0, &rest[..rest.len().min(40)]);
            }
        }
    }
}
