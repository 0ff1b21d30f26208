//! Which model is meant: a store, a checkpoint that is used where it is, or the demo model inside the program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use convert::{Checkpoint, ConvertError};
use hub::Settings;
use store::{Store, StoreError, StoreFiles};

use crate::demo;
use crate::error::CliError;
use crate::output::note;

/// Folders and files that a user may take for a model.
const MODEL_ENDINGS: [&str; 3] = [".gguf", ".safetensors", ".store"];

/// The two positional arguments of `run`: a lone one may be either.
pub(crate) fn model_and_prompt(
    first: Option<OsString>,
    second: Option<String>,
) -> Result<(Option<PathBuf>, Option<String>), CliError> {
    match (first, second) {
        (Some(model), Some(prompt)) => Ok((Some(model.into()), Some(prompt))),
        (Some(one), None) if is_model(&one, |path| path.exists()) => Ok((Some(one.into()), None)),
        (Some(one), None) => {
            one.into_string().map(|prompt| (None, Some(prompt))).map_err(|_| CliError::PromptEncoding)
        }
        (None, second) => Ok((None, second)),
    }
}

/// An existing path, or something that only makes sense as one.
fn is_model(text: &OsString, exists: impl Fn(&Path) -> bool) -> bool {
    let shown = text.to_string_lossy();
    let has_separator = shown.contains(std::path::is_separator) && !shown.contains(char::is_whitespace);
    let has_ending = MODEL_ENDINGS.iter().any(|ending| shown.ends_with(ending));
    shown != "-" && (exists(Path::new(text)) || has_separator || has_ending)
}

/// Opens a store, or a checkpoint where it is; `None` is the demo model.
pub(crate) fn open(model: Option<&Path>) -> anyhow::Result<Store> {
    let Some(path) = model else {
        let files = demo::FILES;
        if files.is_empty() {
            return Err(CliError::NoDemo.into());
        }
        return Ok(Store::open_files(StoreFiles::Embedded { name: demo::NAME, files })?);
    };
    let path = find(path)?;
    let not_a_store = match Store::open(&path) {
        Err(error @ StoreError::NotAStore { .. }) => error,
        result => return Ok(result?),
    };
    let checkpoint = match Checkpoint::open(&path) {
        Err(ConvertError::NotACheckpoint { .. }) => return Err(not_a_store.into()),
        result => result?,
    };
    note(format_args!("note: using the {} checkpoint where it is, {}", checkpoint.kind(), path.display()));
    Ok(checkpoint.in_place()?)
}

/// Where a model is that is named by path or by the name of a repository that was downloaded. Says what was taken;
/// refuses a store that is not finished.
pub(crate) fn find(model: &Path) -> anyhow::Result<PathBuf> {
    if let Err(unfinished @ StoreError::Unfinished { .. }) = Store::open(model) {
        return Err(unfinished.into());
    }
    let found = hub::resolve(model, Settings::from_env().ok().as_ref())?;
    if let Some(text) = found.note {
        note(format_args!("note: {text}"));
    }
    Ok(found.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prompt would be taken for a model, or a model for a prompt.
    #[test]
    fn a_lone_argument_is_told_apart() {
        let check = |text: &str, expected: bool| {
            assert_eq!(is_model(&text.into(), |path| path == Path::new("models")), expected, "{text}");
        };
        check("models", true);
        check("model", false);
        check("./nothing", true);
        check("/data/Qwen", true);
        check("qwen.gguf", true);
        check("What's the weather in Rome?", false);
        check("What is 3/4 of 8?", false);
        check("hello", false);
        check("-", false);
    }

    /// Two arguments are always model and prompt.
    #[test]
    fn two_arguments_are_model_and_prompt() {
        let two = model_and_prompt(Some("a b".into()), Some("c/d".into())).unwrap();
        assert_eq!(two, (Some("a b".into()), Some("c/d".into())));
        assert_eq!(
            model_and_prompt(Some("hello you".into()), None).unwrap(),
            (None, Some("hello you".into()))
        );
        assert_eq!(model_and_prompt(None, None).unwrap(), (None, None));
    }
}
