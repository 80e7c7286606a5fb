//! Keys, tokens and secrets in the database.

use super::{
    super::{StoreError, files::Secret},
    FENCE,
    link::Step,
    pages::Shared,
};

/// Keys, tokens and secrets in the database, by name.
#[derive(Clone)]
pub struct PgVault {
    pub(super) link: Shared,
    pub(super) term: i64,
}

impl PgVault {
    /// What is kept under a name.
    pub fn read(&self, name: &str) -> Result<Option<String>, StoreError> {
        const SQL: &str = "SELECT content FROM queens.kept WHERE name = $1";
        let rows = self
            .link
            .lock()
            .call(async |session| session.query(SQL, &[&name]).await)?;
        Ok(rows.and_then(|rows| rows.first().map(|row| row.get(0))))
    }

    /// Keeps it, as the coordinator that leads.
    pub fn write(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let steps = [
            Step::new(FENCE, vec![Box::new(self.term), Box::new(None::<i64>)]),
            keep_named(name, text),
        ];
        let mut link = self.link.lock();
        link.call(async |session| session.transact(&steps).await)?;
        Ok(())
    }

    /// Where it is, for people.
    pub fn place(&self, name: &str) -> String {
        format!("{}, {name}", self.link.place())
    }

    /// 32 random bytes of this name; drawn when they are asked for first.
    pub fn drawn(&self, name: &str) -> Result<[u8; 32], StoreError> {
        self.secret(name).map(|secret| secret.0)
    }

    pub(super) fn secret(&self, name: &str) -> Result<Secret, StoreError> {
        if let Some(text) = self.read(name)? {
            return Secret::decode(text.trim_end()).map_err(|what| {
                let place = self.place(name);
                StoreError::damaged(place.as_ref(), None, what)
            });
        }
        let secret = Secret(rand::random());
        self.write(name, &secret.encode())?;
        Ok(secret)
    }
}

pub(super) fn keep_named(name: &str, text: &str) -> Step {
    Step::new(
        "INSERT INTO queens.kept (name, content) VALUES ($1, $2) \
         ON CONFLICT (name) DO UPDATE SET content = excluded.content",
        vec![Box::new(name.to_owned()), Box::new(text.to_owned())],
    )
}
