//! The service that hands out tokens and takes them back.

use std::{sync::Arc, time::Duration};

use proto::v1::{self, tokens_server::Tokens};
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status};

use crate::{
    doors::{Keys, KeysError, Role, TokenEntry},
    driver::Clock,
};

pub(super) struct TokensService {
    /// `None` where nobody is asked for a token.
    pub(super) keys: Option<Arc<Keys>>,
    pub(super) clock: Clock,
}

impl TokensService {
    /// Works with the keys, off the async threads: changes wait for the disk.
    async fn with<T, F>(&self, work: F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: FnOnce(&Keys) -> Result<T, Status> + Send + 'static,
    {
        let keys = self.keys.clone().ok_or_else(|| {
            Status::failed_precondition(
                "this coordinator asks nobody for a token: it serves loopback alone, was started \
                 with --insecure, or asks for certificates (--client-ca), which their authority \
                 makes and takes back",
            )
        })?;
        spawn_blocking(move || work(&keys))
            .await
            .map_err(|error| Status::internal(error.to_string()))?
    }

    fn token(&self, entry: &TokenEntry) -> v1::Token {
        v1::Token {
            id: entry.id.to_string(),
            role: entry.role.to_string(),
            name: entry.name.clone(),
            created_unix_ms: entry.created_unix_ms,
            expires_unix_ms: entry.expires_unix_ms,
            revoked_unix_ms: entry.revoked_unix_ms,
            live: entry.refusal(self.clock.now().0).is_none(),
        }
    }
}

fn refused(error: KeysError) -> Status {
    match error {
        KeysError::Request(_) | KeysError::Join(_) => Status::invalid_argument(error.to_string()),
        KeysError::Vault(_) | KeysError::Authority(_) | KeysError::Random(_) => {
            Status::internal(error.to_string())
        }
    }
}

#[tonic::async_trait]
impl Tokens for TokensService {
    async fn create(
        &self,
        request: Request<v1::CreateTokenRequest>,
    ) -> Result<Response<v1::CreateTokenResponse>, Status> {
        let v1::CreateTokenRequest {
            role,
            name,
            lifetime_seconds,
        } = request.into_inner();
        let role: Role = role
            .parse()
            .map_err(|bad| Status::invalid_argument(format!("role: {bad}")))?;
        let lifetime = lifetime_seconds.map(Duration::from_secs);
        let (join, entry) = self
            .with(move |keys| {
                let join = keys.create((role, &name), lifetime).map_err(refused)?;
                let id = join.token().id();
                let entry = keys.list().into_iter().find(|entry| entry.id == id);
                Ok((join, entry))
            })
            .await?;
        Ok(Response::new(v1::CreateTokenResponse {
            join: join.expose(),
            token: entry.as_ref().map(|entry| self.token(entry)),
        }))
    }

    async fn list(
        &self,
        _request: Request<v1::ListTokensRequest>,
    ) -> Result<Response<v1::ListTokensResponse>, Status> {
        let entries = self.with(|keys| Ok(keys.list())).await?;
        let tokens = entries.iter().map(|entry| self.token(entry)).collect();
        Ok(Response::new(v1::ListTokensResponse { tokens }))
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeTokenRequest>,
    ) -> Result<Response<v1::RevokeTokenResponse>, Status> {
        let name = request.into_inner().name;
        let asked = name.clone();
        let revoked = self
            .with(move |keys| keys.revoke(&asked).map_err(refused))
            .await?;
        match u32::try_from(revoked).unwrap_or(u32::MAX) {
            0 => Err(Status::not_found(format!(
                "there is no live token '{name}': queensctl token list shows them"
            ))),
            revoked => Ok(Response::new(v1::RevokeTokenResponse { revoked })),
        }
    }
}
