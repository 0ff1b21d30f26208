//! What a repository has: commit, files, sizes, digests.

use std::io::Read;

use serde::Deserialize;

use crate::client::{Client, LIST_BYTES_MAX, Method, Patience, Trouble, shown, text};
use crate::digest::Digest;
use crate::{HubError, Repo};

/// Larger files are a mistake of the server's.
const FILE_BYTES_MAX: u64 = 1 << 44;

/// Longest name of a commit: SHA-256 has 64 digits.
const COMMIT_BYTES_MAX: usize = 64;

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    /// With `/` between folders.
    pub(crate) name: String,
    /// `None` where the hub does not say.
    pub(crate) bytes: Option<u64>,
    pub(crate) digest: Option<Digest>,
}

/// A repository at one commit.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) files: Vec<RemoteFile>,
}

#[derive(Deserialize)]
struct Info {
    sha: Option<String>,
    siblings: Option<Vec<Sibling>>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    #[serde(alias = "oid")]
    sha256: Option<String>,
    size: Option<u64>,
}

/// Asks for the list of files.
pub(crate) fn list(client: &Client, repo: &Repo, patience: &mut Patience<'_>) -> Result<Listing, HubError> {
    let revision = encode(repo.revision(), "");
    let url = client.url(&format!("/api/models/{}/revision/{revision}?blobs=true", repo.id));
    let what = match &repo.revision {
        None => format!("the repository {}", repo.id),
        Some(revision) => format!("{} or its revision {revision}", repo.id),
    };
    let bytes = patience.insist(|| {
        let reply = client.check(client.ask(Method::Get, &url, None, false)?, &repo.id, &what)?;
        let mut bytes = Vec::new();
        reply.reader().take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| {
            Trouble::Again(
                HubError::Network { url: shown(&url), why: format!("the list of files: {e}") },
                None,
            )
        })?;
        Ok(bytes)
    })?;
    parse(&bytes).map_err(|why| HubError::Answer { url: shown(&url), why })
}

fn parse(bytes: &[u8]) -> Result<Listing, String> {
    if bytes.len() as u64 > LIST_BYTES_MAX {
        return Err(format!("the list of files is longer than {LIST_BYTES_MAX} bytes"));
    }
    let info: Info = serde_json::from_slice(bytes).map_err(|e| format!("no list of files: {e}"))?;
    let commit = info.sha.ok_or("the list of files names no commit")?;
    if !is_commit(&commit) {
        return Err(format!("{commit:?} is not the name of a commit"));
    }
    let mut files = Vec::new();
    for Sibling { rfilename: name, size, blob_id, lfs } in info.siblings.ok_or("the answer lists no files")? {
        let digest = match &lfs {
            Some(lfs) => lfs.sha256.as_deref().and_then(Digest::sha256),
            None => blob_id.as_deref().and_then(Digest::git_blob),
        };
        let bytes = lfs.and_then(|lfs| lfs.size).or(size);
        if let Some(bytes) = bytes.filter(|&bytes| bytes > FILE_BYTES_MAX) {
            return Err(format!("a file of {bytes} bytes: {name:?}"));
        }
        files.push(RemoteFile { name, bytes, digest });
    }
    Ok(Listing { commit, files })
}

/// Part of a folder's name in the cache.
fn is_commit(text: &str) -> bool {
    !text.is_empty() && text.len() <= COMMIT_BYTES_MAX && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// The address of a file at a commit.
pub(crate) fn file_url(client: &Client, repo: &Repo, commit: &str, name: &str) -> String {
    client.url(&format!("/{}/resolve/{commit}/{}", repo.id, encode(name, "/")))
}

/// Asks for the size (and the digest) of a file that the list does not give.
pub(crate) fn complete(
    client: &Client,
    repo: &Repo,
    commit: &str,
    file: &mut RemoteFile,
    patience: &mut Patience<'_>,
) -> Result<(), HubError> {
    let url = file_url(client, repo, commit, &file.name);
    let head = patience.insist(|| {
        let reply = client.ask(Method::Head, &url, None, true)?;
        // A redirect to storage is as good as the file: its headers tell.
        if (300..400).contains(&reply.status) || matches!(reply.status, 405 | 501) {
            return Ok(reply);
        }
        client.check(reply, &repo.id, &file.name)
    })?;
    let linked = |name: &str| head.header(name).or_else(|| text(&head.first_headers, name));
    let linked_bytes = linked("x-linked-size").and_then(|text| text.parse().ok());
    if file.digest.is_none() {
        let tag = linked("x-linked-etag").map(|tag| tag.trim_start_matches("W/").trim_matches('"'));
        file.digest = tag.and_then(Digest::sha256);
    }
    file.bytes = linked_bytes.or_else(|| head.number("content-length").filter(|_| head.status == 200));
    if file.bytes.is_none() {
        file.bytes = first_byte(client, repo, &url, &file.name, patience)?;
    }
    match file.bytes {
        Some(bytes) if bytes <= FILE_BYTES_MAX => Ok(()),
        Some(bytes) => Err(HubError::Answer { url, why: format!("a file of {bytes} bytes") }),
        None => Err(HubError::Answer { url, why: "the server does not say how large the file is".into() }),
    }
}

/// The size, as the answer to a request for one byte has it.
fn first_byte(
    client: &Client,
    repo: &Repo,
    url: &str,
    name: &str,
    patience: &mut Patience<'_>,
) -> Result<Option<u64>, HubError> {
    patience.insist(|| {
        let reply = client.ask(Method::Get, url, Some(&(0..1)), false)?;
        if reply.status == 416 {
            return Ok(Some(0)); // An empty file has no first byte.
        }
        let reply = client.check(reply, &repo.id, name)?;
        Ok(match reply.status {
            206 => {
                reply.header("content-range").and_then(|text| text.rsplit('/').next()?.trim().parse().ok())
            }
            _ => reply.number("content-length"),
        })
    })
}

/// Percent-encodes all that is not plain, but for the characters in `kept`.
fn encode(text: &str, kept: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let c = char::from(byte);
        if byte.is_ascii_alphanumeric() || "-._~".contains(c) || (c.is_ascii() && kept.contains(c)) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

    /// Sizes or digests would be missed, or those of a pointer taken for those of the file.
    #[test]
    fn lists_are_read() {
        let json = format!(
            r#"{{"id": "a/b", "sha": "abc1", "gated": false, "siblings": [
                {{"rfilename": "config.json", "size": 6, "blobId": "ce013625030ba8dba906f756967f9e9ca394464a"}},
                {{"rfilename": "m.safetensors", "size": 7, "blobId": "ce013625030ba8dba906f756967f9e9ca394464b",
                  "lfs": {{"sha256": "{SHA256}", "size": 9, "pointerSize": 135}}}},
                {{"rfilename": "old.json"}}]}}"#
        );
        let Listing { commit, files } = parse(json.as_bytes()).unwrap();
        assert_eq!(commit, "abc1");
        let digests: Vec<_> = files.iter().map(|f| f.digest.clone()).collect();
        let git = Digest::git_blob("ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(digests, [git, Digest::sha256(SHA256), None]);
        assert_eq!(files.iter().map(|f| f.bytes).collect::<Vec<_>>(), [Some(6), Some(9), None]);
    }

    /// Garbage would be taken for a repository, or for the name of a folder.
    #[test]
    fn garbage_is_refused() {
        for json in [
            "",
            "<html>",
            "[]",
            "{}",
            r#"{"sha": "abc"}"#,
            r#"{"sha": "../x", "siblings": []}"#,
            r#"{"sha": "", "siblings": []}"#,
            r#"{"siblings": []}"#,
            r#"{"sha": "a", "siblings": [{"size": 1}]}"#,
            r#"{"sha": "a", "siblings": [{"rfilename": "a", "size": -1}]}"#,
            r#"{"sha": "a", "siblings": [{"rfilename": "a", "size": 17592186044417}]}"#,
        ] {
            assert!(parse(json.as_bytes()).is_err(), "{json}");
        }
    }

    /// A name would change the meaning of an address.
    #[test]
    fn names_are_encoded() {
        assert_eq!(encode("a b/é?#%.json", "/"), "a%20b/%C3%A9%3F%23%25.json");
        assert_eq!(encode("refs/pr/1", ""), "refs%2Fpr%2F1");
    }
}
