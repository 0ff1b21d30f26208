//! `cache export` and `cache import`: a session that has read a long beginning, in one file.

use std::io::{self, Write};
use std::path::Path;

use generate::{Prepared, TextModel, common_prefix};
use model::{ModelError, Session, TokenModel};
use prefix::{ArchiveError, Identity, Imported};

use crate::device::Device;
use crate::error::CliError;
use crate::flags::{ExportFlags, ImportFlags};
use crate::interrupt::Answering;
use crate::load::{Loaded, load_warm};
use crate::meter::Metered;
use crate::opening::Opening;
use crate::outfile::OutFile;
use crate::output::{harmless, note};
use crate::plan::Work;
use crate::prefixes::{self, Prefixes, View};
use crate::size::Size;
use crate::{target, text};

/// Questions whose prompts have nothing in common but what stands before any: their first letters differ in all the
/// ways in which tokens may grow together with what is before.
const QUESTIONS: [&str; 6] = ["a", "0", " x", "\n\ny", "(", ""];

/// Writes the session of a beginning. Returns false if the user interrupted it.
pub(crate) fn export(flags: &ExportFlags) -> anyhow::Result<bool> {
    let opening = Opening::read(&flags.opening)?;
    if opening.is_empty() {
        let why =
            "there is nothing to read: name a --file, --system or --tools that questions will begin with";
        return Err(CliError::Usage(why.into()).into());
    }
    check_replaceable(&flags.out)?;
    let store = target::open(flags.model.as_deref())?;
    let text_model = text::load(&store)?;
    let beginning = beginning(&text_model, &opening)?;
    let n_token = beginning.prompt.ids.len();
    // Before hours of reading: can it be written there?
    let failed = |source| CliError::Io { path: flags.out.clone(), action: "write", source };
    let mut file = OutFile::create_private(&flags.out).map_err(failed)?;
    let work = Work {
        n_ctx: Some(n_token),
        n_feed: Some(n_token),
        keeps_prefixes: !flags.prefix.no_prefix_cache,
        n_session: 1,
    };
    let mut loaded = load_warm(&store, &flags.engine, work)?;
    let mut prefixes = Prefixes::open(&flags.prefix, &store, &loaded, flags.engine.verbose);
    let session = read(&mut loaded, &mut prefixes, &beginning, &text_model, flags.engine.verbose)?;
    loaded.finish();
    prefixes.finish();
    let Some(mut session) = session else {
        note("note: interrupted, no file was written");
        return Ok(false);
    };
    let identity = prefixes::identity(&loaded, public_name(&store.location()));
    let mut state = loaded.engine.state(&session)?.bytes;
    // Whoever goes on from it feeds a token first.
    state.truncate(identity.shape.state_bytes);
    let view = View { engine: &loaded.engine, session: &mut session };
    let bytes = prefix::export(&mut file, &identity, &beginning.prompt.ids, &state, &view).map_err(failed)?;
    file.finish().map_err(failed)?;
    writeln!(io::stdout().lock(), "{n_token} tokens, {}, in {}", Size(bytes), flags.out.display())?;
    Ok(true)
}

/// A model's name for others, who need not know where it was kept.
fn public_name(location: &str) -> String {
    let last = Path::new(location).file_name();
    last.map_or(location.to_owned(), |last| last.to_string_lossy().into_owned())
}

/// Another file is not replaced.
fn check_replaceable(out: &Path) -> Result<(), CliError> {
    if !out.exists() {
        return Ok(());
    }
    let why = |error| match error {
        ArchiveError::Io { path, action, source } => CliError::Io { path, action, source },
        ArchiveError::Foreign { path, why } => CliError::Input {
            path,
            why: format!("is not a session file ({why}); it is not replaced, choose another name"),
        },
        other => CliError::Input { path: out.to_owned(), why: other.to_string() },
    };
    prefix::read_identity(out).map(drop).map_err(why)
}

/// The tokens that all prompts with this opening begin with.
fn beginning(text_model: &TextModel, opening: &Opening) -> anyhow::Result<Prepared> {
    let [first, others @ ..] = QUESTIONS;
    let mut beginning = text_model.prepare(&opening.request(first))?;
    text::tell_warnings(&beginning);
    let ids = &mut beginning.prompt.ids;
    for question in others {
        let other = text_model.prepare(&opening.request(question))?;
        ids.truncate(common_prefix(ids, &other.prompt.ids));
    }
    // The last may be another one before another question.
    ids.pop();
    if ids.is_empty() {
        return Err(CliError::NothingShared.into());
    }
    beginning.n_settled = ids.len();
    Ok(beginning)
}

/// A session that was fed the beginning, with what is kept of it; `None`: the user interrupted it.
fn read(
    loaded: &mut Loaded,
    prefixes: &mut Prefixes,
    beginning: &Prepared,
    text_model: &TextModel,
    is_verbose: bool,
) -> anyhow::Result<Option<Session<Device>>> {
    let ids = &beginning.prompt.ids;
    let Loaded { engine, plan, .. } = loaded;
    let mut session = prefixes.session_for(engine, plan, None, ids, text_model);
    let n_reused = session.pos();
    if n_reused == ids.len() {
        return Ok(Some(session));
    }
    let keeper = prefixes.keeper(&mut session, plan, beginning, text_model);
    let mut metered = Metered::new(engine, &mut session, ids.len()).keeping(keeper).shown(is_verbose);
    let answering = Answering::begin();
    match metered.feed(&ids[n_reused..], &mut |_| answering.flow()) {
        Err(ModelError::Interrupted) => return Ok(None),
        fed => drop(fed?),
    }
    drop(metered);
    Ok(Some(session))
}

/// Takes a session into the cache's folder.
pub(crate) fn import(flags: &ImportFlags, root: &Path) -> anyhow::Result<()> {
    let store = target::open(flags.model.as_deref())?;
    let limits = prefixes::limits(root, flags.prefix_cache_size, None);
    let accept = |identity: &Identity| prefixes::accept(identity, &store);
    let imported = prefix::import(&flags.file, root, &limits, &store.location(), &accept)?;
    let Imported { identity, n_token, file_bytes, folder, is_new } = imported;
    let place = if is_new { "now in" } else { "already in" };
    let (bytes, folder) = (Size(file_bytes), folder.display());
    let settings = harmless(&identity.settings);
    writeln!(io::stdout().lock(), "{n_token} tokens, {bytes}, {place} {folder}\nused with {settings}")?;
    Ok(())
}
