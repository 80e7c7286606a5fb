//! Conversions between messages and the domain's types.

mod sync;
mod types;

pub use types::{decimal, submitted_key, submitted_spec};

use crate::PROTOCOL_VERSION;

/// A message that is not what this program speaks. One line that names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// The sender speaks another version of the protocol.
    #[error(
        "protocol version {theirs} is not spoken here: this program speaks version {ours}; \
         install the same release on coordinator and workers"
    )]
    Protocol {
        /// The sender's version.
        theirs: u32,
        /// This program's version.
        ours: u32,
    },
    /// A field holds what it must not.
    #[error("{field}: {problem}")]
    Field {
        /// The field's path in the message, such as `partials[3].task.plan_hash`.
        field: String,
        /// What it must hold, and what it holds.
        problem: String,
    },
}

impl BadMessage {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// The same, seen from the message that holds the bad one in its field `parent`.
    pub(crate) fn inside(self, parent: &str) -> Self {
        match self {
            Self::Protocol { .. } => self,
            Self::Field { field, problem } => Self::Field {
                field: if field.is_empty() {
                    parent.to_owned()
                } else {
                    format!("{parent}.{field}")
                },
                problem,
            },
        }
    }
}

impl From<BadMessage> for tonic::Status {
    fn from(bad: BadMessage) -> Self {
        match bad {
            BadMessage::Protocol { .. } => Self::failed_precondition(bad.to_string()),
            BadMessage::Field { .. } => Self::invalid_argument(bad.to_string()),
        }
    }
}

/// Refuses any protocol version but this program's.
fn check_protocol(theirs: u32) -> Result<(), BadMessage> {
    if theirs == PROTOCOL_VERSION {
        Ok(())
    } else {
        Err(BadMessage::Protocol {
            theirs,
            ours: PROTOCOL_VERSION,
        })
    }
}

/// The message in `field`, which must be set.
fn required<M, T>(field: &str, message: Option<M>) -> Result<T, BadMessage>
where
    T: TryFrom<M, Error = BadMessage>,
{
    let message = message.ok_or_else(|| BadMessage::new(field, "must be set"))?;
    T::try_from(message).map_err(|bad| bad.inside(field))
}

/// Every message of the list in `field`, at most `most`.
fn list<M, T>(field: &str, most: usize, messages: Vec<M>) -> Result<Vec<T>, BadMessage>
where
    T: TryFrom<M, Error = BadMessage>,
{
    if messages.len() > most {
        let problem = format!("at most {most} in one message, got {}", messages.len());
        return Err(BadMessage::new(field, problem));
    }
    messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| {
            T::try_from(message).map_err(|bad| bad.inside(&format!("{field}[{index}]")))
        })
        .collect()
}

/// Text for people in `field`: at most `most` bytes, no control characters.
fn text(field: &str, most: usize, text: String) -> Result<String, BadMessage> {
    if text.len() > most {
        let problem = format!("at most {most} bytes, got {}", text.len());
        return Err(BadMessage::new(field, problem));
    }
    if let Some(found) = text.chars().find(|c| c.is_control()) {
        let problem = format!("must hold no control characters, got {found:?}");
        return Err(BadMessage::new(field, problem));
    }
    Ok(text)
}

/// `text` on one line, cut at a character's border to at most `most` bytes.
fn one_line(text: &str, most: usize) -> String {
    let mut line = text.replace(char::is_control, " ");
    line.truncate(line.floor_char_boundary(most));
    line
}
