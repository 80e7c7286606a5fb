//! The commands about who gets in.

use std::time::Duration;

use clap::{Args, Subcommand};
use proto::{
    door::{Door, JoinString},
    v1::{
        self, CreateTokenRequest, ListTokensRequest, RevokeTokenRequest,
        tokens_client::TokensClient,
    },
};
use serde_json::{Value, json};

use super::{client::Connection, examples, output::print};
use coordinator::{
    doors::Role,
    exit::Exit,
    text::{Column, date, plural, stdout_width, table, tell},
};

/// Options of `token`.
#[derive(Clone, Debug, Args)]
pub(super) struct TokenOptions {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum TokenCommand {
    /// Makes a token and prints its join string, this once
    #[command(after_help = examples::TOKEN_CREATE)]
    Create(CreateOptions),
    /// Every token, without its secret
    #[command(after_help = examples::TOKEN_LIST)]
    List(ListOptions),
    /// Takes a token back, from the next call on
    #[command(after_help = examples::TOKEN_REVOKE)]
    Revoke(RevokeOptions),
}

#[derive(Clone, Debug, Args)]
struct CreateOptions {
    /// What its holder may do: worker, operator or viewer
    #[arg(long)]
    role: Role,

    /// For people and records: 1 to 64 letters, digits, '.', '-' and '_'
    #[arg(long)]
    name: String,

    /// How long it is good, such as 90d or 12h [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = worker::config::duration)]
    expires: Option<Duration>,

    /// Prints a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct ListOptions {
    /// Prints one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct RevokeOptions {
    /// The token's name, or its id
    name: String,
}

pub(super) async fn token(connection: &Connection, options: &TokenOptions) -> anyhow::Result<Exit> {
    let mut client = TokensClient::new(connection.door().await?);
    match &options.command {
        TokenCommand::Create(options) => create(connection, &mut client, options).await,
        TokenCommand::List(options) => list(connection, &mut client, options).await,
        TokenCommand::Revoke(options) => revoke(connection, &mut client, options).await,
    }
}

async fn create(
    connection: &Connection,
    client: &mut TokensClient<Door>,
    options: &CreateOptions,
) -> anyhow::Result<Exit> {
    let request = CreateTokenRequest {
        role: options.role.to_string(),
        name: options.name.clone(),
        lifetime_seconds: options.expires.map(|lifetime| lifetime.as_secs()),
    };
    let made = connection.ask(client.create(request)).await?;
    if options.json {
        let mut shown = made.token.as_ref().map_or_else(|| json!({}), token_json);
        shown["join"] = json!(made.join);
        // For clients that are not of this project, which send it as a bearer token.
        if let Ok(join) = made.join.parse::<JoinString>() {
            shown["bearer"] = json!(join.token().expose());
        }
        print(&shown.to_string())?;
    } else {
        let program = match options.role {
            Role::Worker => "worker",
            Role::Operator | Role::Viewer => "queensctl status",
        };
        tell("a secret, shown this once:");
        print(&format!("QUEENS_JOIN={} {program}", made.join))?;
    }
    Ok(Exit::Success)
}

async fn list(
    connection: &Connection,
    client: &mut TokensClient<Door>,
    options: &ListOptions,
) -> anyhow::Result<Exit> {
    let tokens = connection
        .ask(client.list(ListTokensRequest {}))
        .await?
        .tokens;
    if options.json {
        for token in &tokens {
            print(&token_json(token).to_string())?;
        }
        return Ok(Exit::Success);
    }
    let row = |token: &v1::Token| {
        let ends = token
            .expires_unix_ms
            .map_or_else(|| "never".to_owned(), date);
        let state = match token.revoked_unix_ms {
            Some(at) => format!("revoked {}", date(at)),
            None if token.live => "live".to_owned(),
            None => "expired".to_owned(),
        };
        vec![
            token.id.clone(),
            token.name.clone(),
            token.role.clone(),
            date(token.created_unix_ms),
            ends,
            state,
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    let columns = [
        Column::words("TOKEN"),
        Column::name("NAME"),
        Column::words("ROLE"),
        Column::words("MADE"),
        Column::words("ENDS"),
        Column::words("STATE"),
    ];
    print(&table(&columns, &rows, stdout_width()))?;
    Ok(Exit::Success)
}

async fn revoke(
    connection: &Connection,
    client: &mut TokensClient<Door>,
    options: &RevokeOptions,
) -> anyhow::Result<Exit> {
    let request = RevokeTokenRequest {
        name: options.name.clone(),
    };
    let revoked = connection.ask(client.revoke(request)).await?.revoked;
    print(&format!("{} revoked", plural(revoked, "token")))?;
    Ok(Exit::Success)
}

fn token_json(token: &v1::Token) -> Value {
    json!({
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "created_unix_ms": token.created_unix_ms,
        "expires_unix_ms": token.expires_unix_ms,
        "revoked_unix_ms": token.revoked_unix_ms,
        "live": token.live,
    })
}
