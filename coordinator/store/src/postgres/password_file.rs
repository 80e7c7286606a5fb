//! Passwords in libpq's password file: `PGPASSFILE`, or `.pgpass` in the home directory.

use std::{env, fs, path::PathBuf};

use tokio_postgres::{Config, config::Host};

use crate::address::others_can_read;

const DEFAULT_PORT: u16 = 5432;

/// Returns the password of the file's first line for this connection.
/// Ignores a file that other users can read, with a warning.
pub(super) fn password(config: &Config) -> Option<String> {
    let file = match env::var_os("PGPASSFILE") {
        Some(file) => PathBuf::from(file),
        None => env::home_dir()?.join(".pgpass"),
    };
    let text = fs::read_to_string(&file).ok()?;
    if others_can_read(&file) {
        tracing::warn!("{0}: ignored, since every user can read it: chmod 600 {0}", file.display());
        return None;
    }
    find(&text, config)
}

fn find(text: &str, config: &Config) -> Option<String> {
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let port = config.get_ports().first().unwrap_or(&DEFAULT_PORT).to_string();
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name,
        // A connection over a socket.
        _ => "localhost",
    };
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line);
        let password = (fields.len() == 5).then(|| fields.pop())??;
        let wanted = [host, &port, database, user];
        let fits = |(field, wanted): (&String, &str)| field == "*" || field == wanted;
        fields.iter().zip(wanted).all(fits).then_some(password)
    })
}

/// Splits a line at its colons; a backslash escapes a colon or a backslash.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().expect("never empty").extend(characters.next()),
            other => fields.last_mut().expect("never empty").push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_gives_the_password() {
        let text = "# a comment\nother:5432:q:lab:wrong\nshort:line\ndb:5432:q:lab:hu\\:s\\\\h\n\
                    *:*:*:lab:any\nlocalhost:7000:*:*:socket:with:colons\n";
        for (url, expected) in [
            ("postgres://lab@db/q", Some("hu:s\\h")),
            ("postgres://lab@db:6000/q", Some("any")),
            ("postgres://eve@db/q", None),
            ("postgres://eve@localhost:7000", Some("socket:with:colons")),
        ] {
            let found = find(text, &url.parse().unwrap());
            assert_eq!(found.as_deref(), expected, "{url}");
        }
    }
}
