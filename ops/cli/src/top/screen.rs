//! The terminal while the display has it.

use std::io;

use anyhow::Context;

/// Runs `show` on the screen that `open` prepares, and restores the terminal afterwards, whatever fails.
pub(super) fn with_screen<T>(
    open: impl FnOnce() -> io::Result<T>,
    restore: impl Fn() -> io::Result<()>,
    show: impl FnOnce(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let screen = open()
        // It may fail after it has changed the terminal.
        .inspect_err(|_| drop(restore()))
        .context("can't use the terminal")?;
    let shown = show(screen);
    restore().context("can't restore the terminal; the command reset does")?;
    shown
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;

    use super::*;

    /// A terminal that counts how often it was restored.
    #[derive(Default)]
    struct TestTerminal {
        restored: Cell<usize>,
        can_not_be_restored: bool,
    }

    impl TestTerminal {
        fn show(
            &self,
            open: io::Result<()>,
            show: impl FnOnce(()) -> anyhow::Result<()>,
        ) -> Result<(), String> {
            let restore = || {
                self.restored.set(self.restored.get() + 1);
                match self.can_not_be_restored {
                    true => Err(io::Error::other("it is gone")),
                    false => Ok(()),
                }
            };
            with_screen(|| open, restore, show).map_err(|error| format!("{error:#}"))
        }
    }

    #[test]
    fn the_terminal_is_restored_after_a_failed_start() {
        let terminal = TestTerminal::default();
        let open = Err(io::Error::other("no alternate screen"));
        let result = terminal.show(open, |()| panic!("there is no screen"));
        assert_eq!(result, Err("can't use the terminal: no alternate screen".to_owned()));
        assert_eq!(terminal.restored.get(), 1);
    }

    #[test]
    fn the_terminal_is_restored_after_the_display_has_ended_or_failed() {
        let terminal = TestTerminal::default();
        assert_eq!(terminal.show(Ok(()), |()| Ok(())), Ok(()));
        assert_eq!(terminal.restored.get(), 1);
        let result = terminal.show(Ok(()), |()| bail!("can't read the keyboard"));
        assert_eq!(result, Err("can't read the keyboard".to_owned()));
        assert_eq!(terminal.restored.get(), 2);
    }

    #[test]
    fn a_terminal_that_can_not_be_restored_is_an_error() {
        let terminal = TestTerminal { can_not_be_restored: true, ..TestTerminal::default() };
        let error = terminal.show(Ok(()), |()| Ok(())).unwrap_err();
        assert!(error.contains("the command reset"), "{error}");
    }
}
