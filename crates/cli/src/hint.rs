//! What a user can do about an error: all hints, in one place.

use convert::ConvertError;
use generate::GenerateError;
use gpu::GpuError;
use hub::HubError;
use model::ModelError;
use prefix::ArchiveError;
use store::StoreError;
use stream::StreamError;

use crate::error::{CliError, Memory, NoRoom};
use crate::output::note;

/// Prints an error on one line and, if there is something to do, a hint on another.
pub(crate) fn print(error: &anyhow::Error) {
    note(format_args!("error: {}", one_line(&message(error))));
    if let Some(hint) = hint(error) {
        note(format_args!("hint: {}", one_line(&hint)));
    }
}

/// The error and its causes. Many errors name their cause themselves: none is said twice.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Did the reader of our output go away? That is no failure.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref().map(std::io::Error::kind);
    error.chain().any(|cause| kind(cause) == Some(std::io::ErrorKind::BrokenPipe))
}

/// Names of files and tensors may contain anything.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

/// The hint for an error, if there is something to do.
fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        let cli = cause.downcast_ref().and_then(for_cli);
        let convert = || cause.downcast_ref().and_then(for_convert);
        let store = || cause.downcast_ref().and_then(for_store);
        let stream = || cause.downcast_ref().and_then(for_stream);
        let model = || cause.downcast_ref().and_then(for_model);
        let generate = || cause.downcast_ref().and_then(for_generate);
        let gpu = || cause.downcast_ref().map(for_gpu);
        let archive = || cause.downcast_ref().and_then(for_archive);
        let hub = || cause.downcast_ref().and_then(for_hub);
        cli.or_else(convert)
            .or_else(store)
            .or_else(stream)
            .or_else(model)
            .or_else(generate)
            .or_else(gpu)
            .or_else(archive)
            .or_else(hub)
    })
}

fn for_cli(error: &CliError) -> Option<String> {
    Some(match error {
        CliError::NoDemo => "name a model: flash-moe run MODEL PROMPT".into(),
        CliError::NoTokenizer { model } => format!("measure it instead: flash-moe bench {}", quoted(model)),
        CliError::Memory(room) => for_memory(room),
        CliError::Damaged { is_packed: true, .. } => "copy or pack the store again".into(),
        CliError::Damaged { is_packed: false, .. } => "download the named files again".into(),
        CliError::TooLong { n_token, .. } => format!("raise --ctx above {n_token}, or shorten the prompt"),
        CliError::NoCacheFolder => "set FLASH_MOE_CACHE to a folder, or HOME".into(),
        CliError::NotKept { .. } => "'flash-moe cache ls' lists models and keys".into(),
        CliError::NothingShared => {
            "the model's template puts the question first; 'flash-moe run' keeps whole prompts".into()
        }
        CliError::EmptyPrompt => "flash-moe run \"What can you do?\"".into(),
        _ => return None,
    })
}

fn for_memory(room: &NoRoom) -> String {
    let needed = room.needed().0.div_ceil(1 << 20);
    let more = match room.memory {
        Memory::Host => format!("give it more (--memory {needed}MiB or above)"),
        Memory::Gpu => {
            format!("give it more (--vram {needed}MiB or above), compute on the CPU (--device cpu)")
        }
    };
    format!("{more}, or need less: a shorter --ctx, or a store with fewer --bits")
}

fn for_convert(error: &ConvertError) -> Option<String> {
    Some(match error {
        ConvertError::NotACheckpoint { .. } => {
            "SOURCE is a folder with config.json and *.safetensors files, as it comes from a model hub".into()
        }
        ConvertError::MissingShards { .. } | ConvertError::Header { .. } => {
            "download the named files again; nothing was written".into()
        }
        ConvertError::BadWeight { .. } => "the checkpoint is damaged; download the named file again".into(),
        ConvertError::Config { .. } | ConvertError::Tensor { .. } | ConvertError::MissingTensors { .. } => {
            "config.json and weights must come from one download of one model; nothing was written".into()
        }
        ConvertError::Unsupported { .. } | ConvertError::UnknownTensors { .. } => {
            "Qwen3.5, Qwen3.6, Qwen3-Next and Qwen3 MoE checkpoints are read in BF16, F16, F32 and FP8, converted for MLX, \
             and as GGUF"
                .into()
        }
        ConvertError::Store(error) => return for_store(error),
        _ => return None,
    })
}

fn for_store(error: &StoreError) -> Option<String> {
    Some(match error {
        StoreError::NotAStore { .. } => "make a store with: flash-moe pack CHECKPOINT STORE".into(),
        StoreError::FutureVersion { .. } => {
            "use a newer flash-moe, or pack the checkpoint again with this one".into()
        }
        StoreError::Invalid { .. } | StoreError::Checksum { .. } => {
            "the weights are damaged: 'flash-moe verify' lists all that is wrong; copy, pack or download them again".into()
        }
        StoreError::DiskFull { .. } => {
            "free some space, or write to another disk; an unfinished store is continued".into()
        }
        StoreError::Exists { .. } => "choose another name, or remove it first".into(),
        StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            "free some space and run the same command again: it goes on where it stopped".into()
        }
        StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            "check who may read the file: ls -l".into()
        }
        _ => return None,
    })
}

fn for_stream(error: &StreamError) -> Option<String> {
    Some(match error {
        StreamError::Read { .. } => {
            "check the drive and its cable; 'flash-moe verify' reads the whole store".into()
        }
        StreamError::Checksum { .. } => {
            "the store is damaged: 'flash-moe verify' lists all that is wrong".into()
        }
        StreamError::Allocate { .. } | StreamError::TooFewSlots { .. } => "change --memory".into(),
        _ => return None,
    })
}

fn for_model(error: &ModelError) -> Option<String> {
    match error {
        ModelError::Store(error) => for_store(error),
        ModelError::Stream(error) => for_stream(error),
        ModelError::ContextFull { .. } => Some("raise --ctx; in a chat, /clear starts over".into()),
        ModelError::Backend { .. } => Some(
            "compute on the CPU (--device cpu); 'flash-moe doctor --gpu' says more about each GPU".into(),
        ),
        ModelError::Refused { source, .. } => for_model(source),
        ModelError::NonFinite { .. } => Some("'flash-moe verify' checks the store".into()),
        _ => None,
    }
}

fn for_gpu(_: &GpuError) -> String {
    "compute on the CPU (--device cpu); 'flash-moe doctor --gpu' says more about each GPU".into()
}

fn for_generate(error: &GenerateError) -> Option<String> {
    match error {
        GenerateError::NoTemplate => Some("use --raw to give the whole prompt as text".into()),
        GenerateError::PromptTooLong { n_prompt, .. } => {
            Some(format!("raise --ctx above {n_prompt}, or shorten the prompt"))
        }
        GenerateError::Model(error) => for_model(error),
        _ => None,
    }
}

fn for_hub(error: &HubError) -> Option<String> {
    let ask = |repo: &str| format!("open the page of {repo} on the hub and accept its terms");
    Some(match error {
        HubError::Unauthorized { has_token: false, .. } => {
            "check the name; for a private or gated model set HF_TOKEN to a token from your page of the hub".into()
        }
        HubError::Unauthorized { .. } => "check the name, and whether the token in HF_TOKEN is still valid".into(),
        HubError::Forbidden { repo, has_token: false, .. } => {
            format!("{}, then set HF_TOKEN to a token from your page of the hub", ask(repo))
        }
        HubError::Forbidden { repo, .. } => format!("{} as the owner of the token in HF_TOKEN", ask(repo)),
        HubError::NotFound { .. } => "check owner, name and revision; HF_ENDPOINT names another hub".into(),
        HubError::Status { .. } | HubError::Network { .. } => {
            "run the same command again later: it goes on where it stopped; HF_ENDPOINT and HTTPS_PROXY are honoured".into()
        }
        HubError::Answer { .. } => "is HF_ENDPOINT the address of a hub, and does a proxy answer in its place?".into(),
        HubError::Digest { .. } => "run the same command again; if it stays so, the hub's file is damaged".into(),
        HubError::Choose { .. } => "name one of them: OWNER/NAME:Q4_K_M, or its path".into(),
        HubError::NotDownloaded { repo, cache } => {
            let drive = if cache.exists() { "" } else { "connect the drive that the cache is on, or " };
            format!("{drive}download it first: flash-moe pull {}", quoted(repo))
        }
        HubError::NoModel { .. } => {
            "MODEL is a store, a checkpoint, or a repository that was pulled; a prompt that looks like a path goes \
             through '-'"
                .into()
        }
        HubError::NoWeights { .. } => "--all downloads every file, whatever it is".into(),
        HubError::DiskFull { .. } => {
            "free some space, or name a folder on another disk; an unfinished download is continued".into()
        }
        HubError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            "free some space and run the same command again: it goes on where it stopped".into()
        }
        _ => return None,
    })
}

fn for_archive(error: &ArchiveError) -> Option<String> {
    Some(match error {
        ArchiveError::Foreign { .. } => "session files are written by 'flash-moe cache export'".into(),
        ArchiveError::Damaged { .. } => "copy the file again from where it was made".into(),
        ArchiveError::Refused { .. } => {
            "a session is of use to the same weights and program alone; make one here: flash-moe cache export"
                .into()
        }
        ArchiveError::TooLarge { .. } => "allow more (--prefix-cache-size), here and when it is used".into(),
        ArchiveError::NoRoom { .. } => {
            "free space on the drive; 'flash-moe cache rm' removes what is kept".into()
        }
        ArchiveError::Io { .. } => return None,
    })
}

/// As a shell would want it.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=+:@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {

    use anyhow::Context;

    use super::*;

    /// A hint would get lost when an error is wrapped, or name a command that cannot be pasted.
    #[test]
    fn hints_are_found_in_the_chain() {
        let check = |error: anyhow::Error, expected: &str| assert_eq!(hint(&error).unwrap(), expected);
        let packed = |model: &str| anyhow::Error::from(CliError::NoTokenizer { model: model.into() });
        check(packed("/m/Qwen"), "measure it instead: flash-moe bench /m/Qwen");
        check(packed("/m/it's Qwen"), r"measure it instead: flash-moe bench '/m/it'\''s Qwen'");
        let exists = StoreError::Exists { path: "x".into() };
        let wrapped = Err::<(), _>(ModelError::Store(exists)).context("loading").unwrap_err();
        check(wrapped, "choose another name, or remove it first");
        assert_eq!(hint(&anyhow::anyhow!("something else")), None);
    }

    #[test]
    fn no_cause_is_said_twice() {
        // Would break: "the file is empty: the file is empty", or a cause that only the chain knows gets lost.
        let source = || std::io::Error::other("cable");
        let named = CliError::Io { path: "f".into(), action: "read", source: source() };
        assert_eq!(message(&named.into()), "f: cannot read: cable");
        let wrapped = Err::<(), _>(source()).context("loading").unwrap_err();
        assert_eq!(message(&wrapped), "loading: cable");
    }
}
