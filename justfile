# Common tasks; `just` lists them.

default:
    @just --list

# The README's main command.
main:
    cargo run --bin coordinator -- --n 20 --local

# The README's test command.
test:
    cargo test --workspace

# Simulation: more than a million faults over 2,500 seeds in the default configuration, with a tally by kind, and
# a tenth as many seeds of each attack.
simulate seeds="2500":
    QUEENS_SIM_SEEDS={{seeds}} cargo test --test all simulation:: -- --nocapture --test-threads 1

# A thousand run completions (new and finished runs, one and three) next to two busy cores: none hangs.
ends:
    yes > /dev/null & one=$!; yes > /dev/null & two=$!; trap "kill $one $two" EXIT; \
    QUEENS_ENDS=250 cargo test --test all ends_after_its_runs -- --nocapture

# 200 kill -9 of the coordinator and 200 of workers in one run of more than 20,000 tasks.
kills:
    QUEENS_KILLS=200 cargo test --test all crash::directory -- --nocapture

# 500 flipped bits and 200 truncations in the files of coordinator and worker.
flips:
    QUEENS_FLIPS=500 QUEENS_CUTS=200 cargo test --test all crash::damage -- --nocapture

# Failovers between coordinators with a PostgreSQL store, and kills of the database (needs postgresql-15).
databases:
    QUEENS_TAKEOVERS=50 QUEENS_DATABASE_KILLS=200 cargo test --test all crash::databases -- --nocapture

# Loss of the coordinator's disk, with an archive.
disk-losses:
    QUEENS_DISK_LOSSES=50 cargo test --test all crash::archive -- --nocapture

# Test the NEON kernels under emulation (needs qemu-user, gcc-aarch64-linux-gnu and the target's std).
neon *tests="kernel join":
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
    cargo test -p common --lib --target aarch64-unknown-linux-gnu -- {{tests}}

# Test the kernels of WebAssembly in node (needs `rustup target add wasm32-wasip1`).
wasm *tests:
    worker/browser/test {{tests}}

# Type-check the programs for other systems (needs their std and the C compilers of mingw-w64 and
# gcc-aarch64-linux-gnu; for macOS only the package without C dependencies).
ports:
    cargo check -p worker -p coordinator -p queensctl --target x86_64-pc-windows-gnu
    cargo check -p worker --target aarch64-unknown-linux-gnu
    cargo check -p common --target aarch64-apple-darwin

# Cost of a fleet of 10,000 for its coordinator in a virtual week (some minutes), and the loss if half of it leaves
# every hour: with a grace period of 10 s and new identities, of 5 min, and of 5 min with returning identities.
fleet workers="10000" hours="168":
    cargo run --release --example bench -- virtual-fleet {{workers}} {{hours}}
    cargo run --release --example bench -- virtual-fleet {{workers}} 6
    cargo run --release --example bench -- virtual-fleet {{workers}} 6 60
    cargo run --release --example bench -- virtual-fleet {{workers}} 6 60 285
    cargo run --release --example bench -- virtual-fleet {{workers}} 6 60 285 --again

# A foreign client that adds multiples of 8 to its counts, next to an honest worker (needs grpcio, grpcio-tools).
liar:
    cargo build --release --workspace
    python3 tests/foreign/show.py

# Attacks by foreign clients against a real coordinator, with a table of the outcomes (needs grpcio and
# grpcio-tools): `just attack --seeds 3`, `just attack --only colluders`.
attack *options:
    cargo build --release -p coordinator -p queensctl
    python3 tests/foreign/attack.py {{options}}

# `worker estimate` against measured times, within 25 % (15 minutes on a quiet machine with two cores).
estimate-check *boards="20 21 22":
    cargo build --release -p worker
    docs/benchmarks/estimate_check.py {{boards}}

# Whole boards by method frames, N = 4 to 20, by crews of 1, 2 and 3 threads in three memory budgets (minutes).
exact:
    cargo run --release -p common --example frames_exact -- 4 20

# Test the unit tests of the scheduler and the worker's engine with all mutants, compiled into one program per
# crate (needs cargo-mutants): prints a table and each surviving mutant, and resumes after an interruption.
# `just mutants engine` selects the engine, `just mutants --missed` repeats the survivors.
mutants *options:
    tests/mutants/all {{options}}

# The same with one build per mutant, seconds each: `just mutants-quick scheduler --shuffle`, or engine.
mutants-quick part *options:
    tests/mutants/quick {{part}} {{options}}

# Generate the code of `proto` after a change of its .proto files.
proto:
    cargo run --quiet --manifest-path proto/generate/Cargo.toml

# Check formatting, lints and documentation, as CI does.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

# Check licenses, advisories and sources of dependencies (needs cargo-deny).
deny:
    cargo deny check

# Check every file that is shipped, as an operator uses it (an hour on two cores; needs Debian and root): prints
# what passed, failed or could not run. `just deploy-checks --quick` runs those that take seconds, as CI does.
deploy-checks *options:
    deploy/check {{options}}

# Run everything that CI runs.
ci:
    .ci/run
