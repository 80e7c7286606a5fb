# Common tasks; `just` lists them.

default:
    @just --list

# The README's main command.
main:
    cargo run --release -p coordinator -- --n 16 --local

# The README's test command.
test:
    cargo test --workspace

# More than a million faults of workers over 2,500 seeds, at the configuration that is shipped, with a
# tally by kind; liars, and the bound on what second counts miss, over as many and 1,000.
simulate seeds="2500":
    QUEENS_SIM_SEEDS={{seeds}} cargo test -p tests --test simulation -- --nocapture --test-threads 1

# A thousand ends of runs (fresh and finished, one run and three), beside two busy cores: none hangs.
ends:
    yes > /dev/null & one=$!; yes > /dev/null & two=$!; trap "kill $one $two" EXIT; \
    QUEENS_ENDS=250 cargo test -p tests --test bad_day every_end -- --nocapture

# 200 kill -9 of the coordinator and 200 of workers over one run of more than 20,000 tasks.
kills:
    QUEENS_KILLS=200 cargo test --release -p tests --test kills -- --nocapture

# 500 flipped bits and 200 cut files, in everything that coordinator and worker keep.
flips:
    QUEENS_FLIPS=500 QUEENS_CUTS=200 cargo test -p tests --test flips -- --nocapture

# Take-overs and kills of the database, with coordinators whose runs are in PostgreSQL (needs postgresql-15).
databases:
    QUEENS_TAKEOVERS=50 QUEENS_DATABASE_KILLS=200 cargo test -p tests --features postgres --test databases -- --nocapture

# Disks that are lost under a coordinator whose archive follows.
disk-losses:
    QUEENS_DISK_LOSSES=50 cargo test -p tests --features archive --test archive -- --nocapture

# The NEON kernels under emulation (needs qemu-user, gcc-aarch64-linux-gnu and the target's std).
neon *tests="kernel hjoin qjoin":
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
    cargo test -p common --lib --target aarch64-unknown-linux-gnu -- {{tests}}

# Type-checks worker and coordinator for other systems (needs their std and the C compilers of mingw-w64 and
# gcc-aarch64-linux-gnu; for macOS only what needs no C).
ports:
    cargo check -p worker -p coordinator -p queensctl --target x86_64-pc-windows-gnu
    cargo check -p worker --target aarch64-unknown-linux-gnu
    cargo check -p common --target aarch64-apple-darwin

# What it costs a fleet of processes that half of it is exchanged every minute: ten minutes without, ten with.
elastic *arguments:
    cargo run --release -p tests --example elastic -- {{arguments}}

# What a fleet of 10,000 costs its coordinator in a virtual week (some minutes), and what it loses of which half
# leaves every hour: with ten seconds and for strangers, with five minutes, and with five minutes and coming back.
fleet workers="10000" hours="168":
    cargo run --release -p tests --example virtual_fleet -- {{workers}} {{hours}}
    cargo run --release -p tests --example virtual_fleet -- {{workers}} 6
    cargo run --release -p tests --example virtual_fleet -- {{workers}} 6 60
    cargo run --release -p tests --example virtual_fleet -- {{workers}} 6 60 285
    cargo run --release -p tests --example virtual_fleet -- {{workers}} 6 60 285 again

# A foreign client that lies by multiples of 8, beside two honest workers (needs grpcio and grpcio-tools).
liar:
    cargo build --release --workspace
    python3 tests/foreign/show.py

# What `worker estimate` foretells, and what then happens, within a quarter (a quarter of an hour of a quiet machine of
# two cores).
estimate-check *boards="20 21 22":
    cargo build --release -p worker
    docs/benchmarks/estimate_check.py {{boards}}

# Whole boards by method frames, N = 4 to 20, by crews of 1, 2 and 3 in three memory budgets (some minutes).
exact:
    cargo run --release -p common --example frames_exact -- 4 20

# All mutants of the scheduler, the facts and the worker's machine by their unit tests, in one program for each
# crate: prints the table of docs/reliability.md and every mutant that is missed (needs cargo-mutants). Goes on
# where it was ended; `just mutants machine`, `just mutants --missed` for what the last pass missed.
mutants *options:
    tests/mutants/all {{options}}

# The same by a build for each, seconds long, in a crate of their own: `just mutants-quick scheduler --shuffle`,
# or machine.
mutants-quick part *options:
    tests/mutants/quick {{part}} {{options}}

# The code of `proto` anew, after a change of its .proto files.
proto:
    cargo run --quiet --manifest-path proto/generate/Cargo.toml

# Formatting, lints and documentation, as CI checks them.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Dependencies: licences, advisories, sources (needs cargo-deny).
deny:
    cargo deny check

# Everything CI runs.
ci:
    .ci/run
