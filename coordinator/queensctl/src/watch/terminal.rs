//! The full-screen terminal, which is restored at the end.

use std::{future, io, panic, thread};

use cli::{
    exit::{Signals, suspend},
    terminal::can_draw,
};
use crossterm::{
    event::{
        DisableBracketedPaste, EnableBracketedPaste, Event, EventStream, KeyCode, KeyEvent,
        KeyEventKind, KeyModifiers,
    },
    execute,
};
use ratatui::{DefaultTerminal, Frame};
use tokio_stream::StreamExt as _;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UserAction {
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    Key(KeyCode),
    /// Text that was pasted, not typed.
    Paste(String),
    /// The terminal was resized.
    Resize,
}

/// A terminal in raw mode on the alternate screen; restored on drop and by a panic.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    events: Option<EventStream>,
    terminated: Option<Signals>,
}

impl Screen {
    /// Opens the terminal on stdout; `None` if stdout is not a suitable terminal.
    pub(crate) fn open() -> Option<Self> {
        if !can_draw(&io::stdout()) {
            return None;
        }
        let Ok(terminal) = initialize() else {
            // The terminal may be half initialized.
            restore();
            return None;
        };
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            end_bracketed_paste();
            hook(info);
        }));
        Some(Self { terminal, events: Some(EventStream::new()), terminated: Signals::new().ok() })
    }

    /// Returns the terminal to the shell until the shell continues this process.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        suspend()?;
        self.terminal = initialize()?;
        Ok(())
    }

    pub(super) fn draw(&mut self, drawing: impl FnOnce(&mut Frame)) -> io::Result<()> {
        self.terminal.draw(drawing).map(|_| ())
    }

    pub(super) async fn next_action(&mut self) -> UserAction {
        loop {
            let event = tokio::select! {
                event = next(&mut self.events) => event,
                () = received(&mut self.terminated) => return UserAction::Interrupt,
            };
            match event {
                Some(Ok(event)) => {
                    if let Some(action) = action(&event) {
                        return action;
                    }
                }
                // The input is closed; signals still arrive.
                Some(Err(_)) | None => self.events = None,
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The panic hook has restored the terminal; a second time would move the cursor above its message.
        if !thread::panicking() {
            restore();
        }
    }
}

/// Enters the alternate screen, where pasted text differs from typed keys.
fn initialize() -> io::Result<DefaultTerminal> {
    let terminal = ratatui::try_init()?;
    // Terminals without bracketed paste ignore the request.
    execute!(io::stdout(), EnableBracketedPaste)?;
    Ok(terminal)
}

/// Leaves the alternate screen; ignores errors, because the terminal may be closed.
fn restore() {
    end_bracketed_paste();
    let _ = ratatui::try_restore();
}

fn end_bracketed_paste() {
    let _ = execute!(io::stdout(), DisableBracketedPaste);
}

async fn next(events: &mut Option<EventStream>) -> Option<io::Result<Event>> {
    match events {
        Some(events) => events.next().await,
        None => future::pending().await,
    }
}

async fn received(signals: &mut Option<Signals>) {
    match signals {
        Some(signals) => {
            signals.next().await;
        }
        None => future::pending().await,
    }
}

fn action(event: &Event) -> Option<UserAction> {
    let key = match event {
        Event::Resize(..) => return Some(UserAction::Resize),
        Event::Paste(text) => return Some(UserAction::Paste(text.clone())),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    let KeyEvent { code, modifiers, .. } = *key;
    // In raw mode Ctrl-C and Ctrl-Z are ordinary keys.
    match (code, modifiers.difference(KeyModifiers::SHIFT)) {
        (code, KeyModifiers::NONE) => Some(UserAction::Key(code)),
        (KeyCode::Char('c'), KeyModifiers::CONTROL) => Some(UserAction::Interrupt),
        (KeyCode::Char('z'), KeyModifiers::CONTROL) => Some(UserAction::Suspend),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{env, io::Read as _, num::NonZeroU16, panic::catch_unwind};

    use portable_pty::{CommandBuilder, PtySize, native_pty_system};

    use super::*;

    /// Environment variable of the process that opens the terminal and panics.
    const CHILD: &str = "QUEENS_TEST_PANICS_ON_A_SCREEN";

    #[tokio::test]
    async fn a_panic_restores_the_terminal() {
        if env::var_os(CHILD).is_some() {
            let mut screen = Screen::open().expect("a terminal");
            let drawn = catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _ = screen.draw(|frame| frame.render_widget("on the screen", frame.area()));
                panic!("drawing went wrong");
            }));
            assert!(drawn.is_err());
            return;
        }
        let (rows, cols) = (24, 80);
        let size = PtySize { rows, cols, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(env::current_exe().expect("this program"));
        let this = "watch::terminal::tests::a_panic_restores_the_terminal";
        command.args(["--exact", this, "--nocapture"]);
        command.env(CHILD, "1");
        command.env("RUST_BACKTRACE", "0");
        command.env("TERM", "xterm-256color");
        let mut reader = pair.master.try_clone_reader().expect("a readable terminal");
        let mut child = pair.slave.spawn_command(command).expect("the child starts");
        drop(pair.slave);
        let (mut seen, mut part) = (Vec::new(), [0; 4096]);
        // On Linux, reading fails with EIO after the child has closed its side.
        while let Ok(size @ 1..) = reader.read(&mut part) {
            seen.extend_from_slice(&part[..size]);
        }
        assert!(child.wait().unwrap().success());
        let [rows, cols] = [rows, cols].map(|size| NonZeroU16::new(size).unwrap());
        let mut screen = vt100::Parser::new(rows, cols, 0);
        let taken = String::from_utf8_lossy(&seen);
        assert!(taken.contains("\x1b[?1049h"), "it was opened: {taken:?}");
        screen.process(&seen);
        let shown = screen.screen();
        assert!(!shown.alternate_screen() && !shown.hide_cursor() && !shown.bracketed_paste());
        let text = shown.contents();
        assert!(text.contains("drawing went wrong"), "{text}");
        assert!(!text.contains("on the screen"), "{text}");
    }
}
