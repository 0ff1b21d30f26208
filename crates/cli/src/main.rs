//! The program: what is typed, what is decided, and one file for each command.
//!
//! `flags.rs` is what the user typed; `plan.rs` decides everything that was left open, and divides the memory. The
//! crates below do the work. Errors become one line and a hint here (`hint.rs`), and nowhere else.
#![forbid(unsafe_code)]

mod answer;
mod attach;
mod axes;
mod bench;
mod bytes;
mod cache;
mod cachedir;
mod chat;
mod demo;
mod device;
mod doctor;
mod drive;
mod error;
mod eval;
mod flags;
mod heatfile;
mod hint;
mod inspect;
mod interrupt;
mod load;
mod marker;
mod meter;
mod npy;
mod opening;
mod outfile;
mod output;
mod pack;
mod plan;
mod predict;
mod prefixes;
mod progress;
mod pull;
mod report;
mod run;
mod serve;
mod session_file;
mod size;
mod status;
mod svg;
mod target;
mod text;
mod timing;
mod toolfile;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::error::CliError;
use crate::flags::{Command, Flags};

/// Bad usage, as clap has it.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    match dispatch(Flags::parse().command) {
        Ok(code) => code,
        Err(error) if hint::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            hint::print(&error);
            let is_usage = matches!(error.downcast_ref(), Some(CliError::Usage(_)));
            if is_usage { EXIT_USAGE.into() } else { ExitCode::FAILURE }
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(flags) => {
            let was_finished = run::run(flags)?;
            return Ok(if was_finished { ExitCode::SUCCESS } else { interrupt::EXIT_CODE.into() });
        }
        Command::Chat(flags) => chat::chat(flags)?,
        Command::Serve(flags) => serve::serve(&flags)?,
        Command::Pull(flags) => pull::pull(&flags)?,
        Command::Pack(flags) => pack::pack(&flags)?,
        Command::Inspect(flags) => inspect::inspect(&flags)?,
        Command::Doctor(flags) => doctor::doctor(&flags)?,
        Command::Verify(flags) => verify::verify(&flags)?,
        Command::Bench(flags) => bench::bench(&flags)?,
        Command::Eval(flags) => eval::eval(&flags)?,
        Command::Synth(flags) => pack::synth(&flags)?,
        Command::Cache(flags) => {
            let was_finished = cache::cache(&flags.command)?;
            return Ok(if was_finished { ExitCode::SUCCESS } else { interrupt::EXIT_CODE.into() });
        }
    }
    Ok(ExitCode::SUCCESS)
}
