//! Commands about the cluster: `workers`, `events`, `dashboard` and `token`.

use std::{num::NonZeroU32, time::Duration};

use auth::Role;
use clap::{Args, Subcommand};
use cli::{duration::duration, threads::at_least_one};
use proto::{
    connect::{AuthChannel, JoinString},
    v1::{
        self, CreateTokenRequest, CreateTokenResponse, DashboardRequest, DrainRequest,
        EventsRequest, ListTokensRequest, PackageLimits, RenewTokenRequest, RevokeTokenRequest,
        TrustRequest, WorkersRequest, tokens_client::TokensClient,
    },
};
use serde_json::{Value, json};
use view::{
    RunSelector,
    text::{Column, date, eprint_line, plural, prose, span, stdout_width, table},
};

use super::{
    client::{Client, Connection},
    follow::next_message,
    output::{print, print_json, print_objects},
};

#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct WorkersOptions {
    #[command(subcommand)]
    command: Option<WorkersCommand>,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum WorkersCommand {
    /// Readmit a worker that returned wrong counts, after a repair
    Trust(NamedWorker),
    /// Drain a worker: it releases long tasks, finishes the others, submits its results and exits; or revoke a package
    Drain(NamedWorker),
}

#[derive(Clone, Debug, Args)]
struct NamedWorker {
    /// The worker's name, or the start of its ID
    #[arg(value_name = "NAME")]
    worker: String,
}

pub(super) async fn workers(
    connection: &Connection,
    options: &WorkersOptions,
) -> anyhow::Result<()> {
    let mut client = connection.connect().await?;
    match options.command.clone() {
        Some(WorkersCommand::Trust(NamedWorker { worker })) => {
            let worker = connection.ask(client.trust(TrustRequest { worker })).await?.worker;
            return print(&format!("Readmitted {worker}."));
        }
        Some(WorkersCommand::Drain(NamedWorker { worker })) => {
            let worker = connection.ask(client.drain(DrainRequest { worker })).await?.worker;
            let what = "it will submit its results and exit. Restart it to resume.";
            return print(&format!("Draining {worker}: {what}"));
        }
        None => {}
    }
    let (mut workers, mut request) = (Vec::new(), WorkersRequest::default());
    loop {
        let page = connection.ask(client.workers(request)).await?;
        workers.extend(page.workers);
        if page.next.is_empty() {
            break;
        }
        request = WorkersRequest { after: page.next, limit: 0 };
    }
    match options.json {
        true => print_objects(workers.iter().map(view::json::Worker::from)),
        false if workers.is_empty() => print("no workers connected"),
        false => print(&view::workers_table(&workers, stdout_width())),
    }
}

#[derive(Clone, Debug, Args)]
pub(super) struct EventsOptions {
    /// A run: four digits of its id, N=22 or last [default: all runs and the cluster]
    run: Option<RunSelector>,

    /// Only events of these kinds, such as joined,lost (see kind with --json)
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    kind: Vec<String>,

    /// Print new events as they happen
    #[arg(long)]
    follow: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(super) async fn events(connection: &Connection, options: &EventsOptions) -> anyhow::Result<()> {
    let (client, run) = connection.connect_to(options.run.as_ref()).await?;
    let open = async |mut client: Client, after| {
        let request = EventsRequest { run, after, follow: options.follow };
        connection.ask(client.events(request)).await
    };
    let is_wanted = |kind: &String| options.kind.is_empty() || options.kind.contains(kind);
    let mut stream = open(client, 0).await?;
    if options.follow {
        let mut last = 0;
        let lost = &mut |line: String| {
            eprint_line(&line);
            Ok(())
        };
        loop {
            let resume = async |client| open(client, last).await;
            let event = next_message(connection, &mut stream, resume, lost).await?;
            last = event.sequence;
            if !is_wanted(&event.kind) {
                continue;
            }
            match options.json {
                true => print_json(&view::json::Event::from(&event))?,
                false => print(&prose(&view::event_line(&event), stdout_width()))?,
            }
        }
    }
    let mut events = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(event)) if !is_wanted(&event.kind) => {}
            Ok(Some(event)) if options.json => print_json(&view::json::Event::from(&event))?,
            Ok(Some(event)) => events.push(event),
            Ok(None) => break,
            Err(status) => return Err(connection.explain(&status).await),
        }
    }
    match events.is_empty() {
        _ if options.json => Ok(()),
        true if options.kind.is_empty() => print("no events yet"),
        true => print("no events of these kinds yet"),
        false => print(&view::events_table(&events, stdout_width())),
    }
}

pub(super) async fn dashboard(connection: &Connection, json: bool) -> anyhow::Result<()> {
    let mut client = connection.connect().await?;
    let reply = connection.ask(client.dashboard(DashboardRequest {})).await?;
    if json {
        return print_json(&json!({ "url": reply.url, "loopback_only": reply.loopback_only }));
    }
    if reply.loopback_only {
        eprint_line(
            "Reachable only from the coordinator's machine; for others, start the coordinator with `--http 0.0.0.0:7172`:",
        );
    }
    print(&reply.url)
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Create a token and print its join command, which is shown only once
    Create(CreateOptions),
    /// List tokens, without their secrets
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Replace the secret of a worker's token, after a leak for example: its workers keep identities and leases
    Renew {
        /// The token's name
        name: String,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token: its calls are rejected immediately, and its open streams end
    Revoke {
        /// The token's name or id
        name: String,
    },
}

#[derive(Clone, Debug, Args)]
pub(super) struct CreateOptions {
    /// Role: worker, operator or viewer
    #[arg(long)]
    role: Role,

    /// Name: 1 to 64 letters, digits, '.', '-' and '_'
    #[arg(long)]
    name: String,

    /// Lifetime, such as 90d or 12h [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    expires: Option<Duration>,

    /// Create a worker token for trusted machines, which recount disputed tasks
    #[arg(long)]
    trusted: bool,

    /// Maximum number of workers that may use a worker token at once [default: unlimited]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = at_least_one::<NonZeroU32>)]
    machines: Option<NonZeroU32>,

    /// Maximum time and number of tasks of a worker token's packages that are away [default: 30d,100000]
    #[arg(long, value_name = "TIME,TASKS", value_parser = package_limits)]
    packages: Option<PackageLimits>,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

fn package_limits(text: &str) -> Result<PackageLimits, String> {
    let limits = text.split_once(',').and_then(|(time, tasks)| {
        let away_seconds = duration(time).ok()?.as_secs();
        Some(PackageLimits { away_seconds, tasks: tasks.parse().ok()? })
    });
    limits.ok_or_else(|| "expected a time and a number of tasks, such as 30d,100000".to_owned())
}

type Tokens = TokensClient<AuthChannel>;

pub(super) async fn token(connection: &Connection, command: &TokenCommand) -> anyhow::Result<()> {
    let mut client = TokensClient::new(connection.open_channel().await?);
    match command {
        TokenCommand::Create(options) => create(connection, &mut client, options).await,
        TokenCommand::List { json } => list(connection, &mut client, *json).await,
        TokenCommand::Renew { name, json } => {
            let request = RenewTokenRequest { name: name.clone() };
            print_join(&connection.ask(client.renew(request)).await?, *json)
        }
        TokenCommand::Revoke { name } => {
            let request = RevokeTokenRequest { name: name.clone() };
            let revoked = connection.ask(client.revoke(request)).await?.revoked;
            print(&format!("{} revoked", plural(revoked, "token")))
        }
    }
}

async fn create(
    connection: &Connection,
    client: &mut Tokens,
    options: &CreateOptions,
) -> anyhow::Result<()> {
    let request = CreateTokenRequest {
        role: v1::Role::from(options.role).into(),
        name: options.name.clone(),
        lifetime_seconds: options.expires.map(|lifetime| lifetime.as_secs()),
        trusted: options.trusted,
        machines: options.machines.map(NonZeroU32::get),
        packages: options.packages,
    };
    print_join(&connection.ask(client.create(request)).await?, options.json)
}

/// Prints a new token with its join string.
fn print_join(created: &CreateTokenResponse, json: bool) -> anyhow::Result<()> {
    if json {
        let mut shown = created.token.as_ref().map_or_else(|| json!({}), token_json);
        shown["join"] = json!(created.join);
        // For HTTP clients.
        if let Ok(join) = created.join.parse::<JoinString>() {
            shown["bearer"] = json!(join.token().expose());
        }
        return print_json(&shown);
    }
    let program = match created.token.as_ref().map(v1::Token::role) {
        Some(v1::Role::Worker) => "worker",
        _ => "queensctl status",
    };
    eprint_line("Join command (contains a secret, shown only once):");
    print(&format!("QUEENS_JOIN={} {program}", created.join))
}

async fn list(connection: &Connection, client: &mut Tokens, json: bool) -> anyhow::Result<()> {
    let tokens = connection.ask(client.list(ListTokensRequest {})).await?.tokens;
    if json {
        return print_objects(tokens.iter().map(token_json));
    }
    let row = |token: &v1::Token| {
        let ends = token.expires_unix_ms.map_or_else(|| "never".to_owned(), date);
        let state = match token.revoked_unix_ms {
            Some(at) => format!("revoked {}", date(at)),
            None if token.active => "active".to_owned(),
            None => "expired".to_owned(),
        };
        vec![
            token.id.clone(),
            token.name.clone(),
            role_text(token),
            token.machines.map_or_else(|| "any".to_owned(), |machines| machines.to_string()),
            date(token.created_unix_ms),
            ends,
            state,
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    let columns = [
        Column::words("Token"),
        Column::name("Name"),
        Column::words("Role"),
        Column::numbers("Machines"),
        Column::words("Created"),
        Column::words("Expires"),
        Column::words("State"),
    ];
    print(&table(&columns, &rows, stdout_width()))
}

/// Returns the role of a token, with its privileges and the limits that are not the default ones.
fn role_text(token: &v1::Token) -> String {
    let mut text = token.role().to_string();
    if token.trusted {
        text += ", trusted";
    }
    if let Some(PackageLimits { away_seconds, tasks }) = token.packages {
        text +=
            &format!(", packages of {} and {}", span(away_seconds as f64), plural(tasks, "task"));
    }
    text
}

fn token_json(token: &v1::Token) -> Value {
    json!({
        "id": token.id,
        "name": token.name,
        "role": token.role(),
        "created_unix_ms": token.created_unix_ms,
        "expires_unix_ms": token.expires_unix_ms,
        "revoked_unix_ms": token.revoked_unix_ms,
        "active": token.active,
        "trusted": token.trusted,
        "machines": token.machines,
        "packages": token.packages.map(|of| json!({ "away_seconds": of.away_seconds, "tasks": of.tasks })),
    })
}
