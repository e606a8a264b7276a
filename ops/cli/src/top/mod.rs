//! `top`: the flows of a running program, live in the terminal.

mod events;
mod screen;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::error::Error;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, value_parser};
use ratatui::Terminal;
use ratatui::backend::Backend;

use crate::admin::AdminArgs;
use crate::program::Program;
use events::TopEvent;
use snapshot::SnapshotSource;
use state::TopState;

/// Arguments of the command `top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Time between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = value_parser!(u64).range(1..=60))]
    interval: u64,
}

/// Shows the flows until the user quits.
///
/// # Errors
/// The admin listener did not answer at the start ([`crate::admin::AdminApiError`]), or there is no terminal.
pub(crate) fn run(arguments: &TopArgs, program: Program) -> anyhow::Result<ExitCode> {
    if !io::stdout().is_terminal() {
        bail!("standard output is not a terminal; the command flows prints the flows once");
    }
    let mut source = SnapshotSource::new(arguments.admin.api(program)?);
    let state = TopState::new(source.address(), source.fetch()?);
    let (sender, events) = channel();
    let _updates = events::start_updates(source, Duration::from_secs(arguments.interval), &sender)?;
    screen::with_screen(ratatui::try_init, ratatui::try_restore, |mut terminal| {
        events::start_input(sender).context("can't read the keyboard")?;
        run_loop(&mut terminal, &events, state)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn run_loop<B: Backend>(
    terminal: &mut Terminal<B>,
    events: &Receiver<TopEvent>,
    mut state: TopState,
) -> anyhow::Result<()>
where
    B::Error: Error + Send + Sync + 'static,
{
    loop {
        terminal.draw(|frame| view::draw(frame, &mut state)).context("can't draw")?;
        // The threads that send live as long as this loop.
        match events.recv()? {
            TopEvent::Key(key) if state.on_key(key) => return Ok(()),
            TopEvent::Key(_) | TopEvent::Resized => {}
            TopEvent::Updated(update) => state.update(update),
            TopEvent::InputFailed(error) => return Err(error).context("can't read the keyboard"),
        }
    }
}
