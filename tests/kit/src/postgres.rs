//! A PostgreSQL server in a temporary directory of one test.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use crate::Port;

/// Password of the databases' owner.
pub const PASSWORD: &str = "hush-hush";

/// A server that runs until it is dropped.
pub struct Postgres {
    programs: PathBuf,
    dir: tempfile::TempDir,
    port: Port,
    process: Option<Child>,
    settings: Vec<String>,
}

impl Postgres {
    /// Starts a new server; prints a message and returns `None` without PostgreSQL.
    pub fn start(settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            crate::not_tested("the store in PostgreSQL (apt-get install postgresql-15)");
            return None;
        };
        let dir = tempfile::Builder::new().prefix("queens-pg").tempdir().unwrap();
        let mut server = Self {
            programs,
            port: Port::reserve(),
            dir,
            process: None,
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
        };
        let password = server.dir.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        server.own(server.dir.path());
        let made = server
            .command("initdb")
            .args(["--username=queens", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
            .arg(format!("--pwfile={}", password.display()))
            .arg(server.data())
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {made:?}");
        server.restart();
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Gives a path to the user of the server, which refuses to run as root.
    pub fn own(&self, path: &Path) {
        if is_root() {
            let done = Command::new("chown").arg("-R").arg("postgres").arg(path).status();
            assert!(done.unwrap().success());
        }
    }

    fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let mut command = match is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
                command.arg(path);
                command
            }
            false => Command::new(path),
        };
        command.current_dir("/");
        command
    }

    /// Starts the server after [`Self::kill`]; returns once it accepts connections.
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "the server runs");
        // The server exits while children of a killed one still hold shared memory.
        for _ in 0..200 {
            let mut command = self.command("postgres");
            command.arg("-D").arg(self.data());
            command.args(["-c", "listen_addresses=127.0.0.1"]);
            command.args(["-c", &format!("port={}", self.port.number())]);
            command.args(["-c", &format!("unix_socket_directories={}", self.dir.path().display())]);
            for setting in &self.settings {
                command.args(["-c", setting]);
            }
            let mut process = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let log = process.stderr.take().unwrap();
            let mut lines = BufReader::new(log).lines().map_while(Result::ok);
            if lines.any(|line| line.contains("ready to accept connections")) {
                // The server would block on a full pipe.
                std::thread::spawn(move || lines.count());
                self.process = Some(process);
                return;
            }
            process.wait().unwrap();
        }
        panic!("PostgreSQL does not start in {}", self.data().display());
    }

    /// Kills the server; unlike a power failure, this keeps the system's cache.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("a server");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Creates a database and returns its URL over the socket, which needs no password.
    pub fn database(&self, name: &str) -> String {
        let made = self.sql("postgres", &format!("CREATE DATABASE {name}"));
        assert!(made.status.success(), "{made:?}");
        self.url(name)
    }

    /// Returns the URL of a database over the socket.
    pub fn url(&self, name: &str) -> String {
        let dir = self.dir.path().display();
        format!("postgres:///{name}?host={dir}&port={}&user=queens", self.port.number())
    }

    /// Returns the URL of a database over TCP, with the password.
    pub fn tcp_url(&self, name: &str) -> String {
        format!("postgres://queens:{PASSWORD}@127.0.0.1:{}/{name}", self.port.number())
    }

    /// Runs a statement with psql.
    pub fn sql(&self, database: &str, statement: &str) -> Output {
        self.command("psql")
            .args(["--no-psqlrc", "-At", "-U", "queens", "-h"])
            .arg(self.dir.path())
            .args(["-p", &self.port.number().to_string(), "-d", database, "-c", statement])
            .output()
            .unwrap()
    }

    /// Returns the result of a query as text.
    pub fn ask(&self, database: &str, query: &str) -> String {
        let output = self.sql(database, query);
        assert!(output.status.success(), "{query}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}

/// Returns the program folder of the newest version.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
        .collect();
    found.sort();
    found.pop()
}
