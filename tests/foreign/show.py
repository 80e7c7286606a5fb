#!/usr/bin/env python3
"""Runs a foreign lying client next to one honest worker, with default options, to the end of a run.

    cargo build --release
    pip install grpcio grpcio-tools
    python3 tests/foreign/show.py [N]

Prints the output of each program with its name, in order. The two workers have different tokens, and the
coordinator's referee counts the disputed tasks. Exits with 0 if the total is exact and the liar was barred.
"""

import collections
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "target" / "release"
PORT = 7391
ADDRESS = f"127.0.0.1:{PORT}"
OUTPUT = threading.Lock()
START = time.monotonic()
# Number of lines of each program that differ only in numbers.
REPEATS = collections.Counter()
# Prefixes of the lines below a result.
CHECKS = ("check:", " " * 11)


def print_line(program, line):
    """Prints a line of a program within 80 columns; skips lines that differ only in numbers."""
    kind = (program, re.sub(r"[0-9a-f]*[0-9][0-9a-f.]*", "#", line))
    REPEATS[kind] += 1
    if REPEATS[kind] > 1:
        return
    head = f"{time.monotonic() - START:5.1f} {program:<11} "
    with OUTPUT:
        for part in textwrap.wrap(line, 80 - len(head), break_long_words=True) or [""]:
            print(head + part, flush=True)
            head = " " * len(head)


def print_as_is(text):
    """Prints lines that are at most 80 columns wide already."""
    with OUTPUT:
        print(text.rstrip(), flush=True)


def text_of(line):
    """Removes the time and level of a log line."""
    words = line.rstrip("\n").split(None, 2)
    if len(words) == 3 and words[0].endswith("Z") and words[1] in ("INFO", "WARN", "ERROR"):
        return words[2]
    return line.rstrip("\n")


def start(program, command):
    """Starts a process and prints each line of its output."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )

    def forward():
        for line in process.stdout:
            if line.startswith(CHECKS):
                print_as_is(line)
            else:
                print_line(program, text_of(line))

    process.output = threading.Thread(target=forward)
    process.output.start()
    return process


def start_worker(scratch):
    """Starts an honest worker with one thread."""
    command = [str(PROGRAMS / "worker"), "--data-dir", str(scratch / "data"), "--threads", "1"]
    command += ["--memory", "1GiB", "--name", "honest", "--spool", str(scratch / "spool")]
    return start("honest", command)


def queensctl(data, *arguments):
    """Runs queensctl on a data directory and returns its exit code and output."""
    command = [str(PROGRAMS / "queensctl"), "--data-dir", str(data), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def coordinator_command(n):
    """The coordinator's command for a run of method rows with default options."""
    return [str(PROGRAMS / "coordinator"), "--n", n, "--method", "rows"]


def honest_export(scratch, n):
    """Counts an honest run and exports its journal, from which the liar takes the right counts."""
    data = str(scratch / "honest")
    command = [*coordinator_command(n), "--local", "--recheck", "0", "--listen", "127.0.0.1:0"]
    subprocess.run([*command, "--data-dir", data], check=True, capture_output=True)
    export = scratch / "export.jsonl"
    journals = sorted(pathlib.Path(data).glob("runs/*/journal*.jsonl"))
    export.write_text("".join(path.read_text("utf-8") for path in journals), encoding="utf-8")
    return str(export)


def print_below(title, text):
    """Prints the output of a command under a title."""
    print_as_is(f"{time.monotonic() - START:5.1f} {title}\n{text}")


def trust_records(data):
    """The records of trust.jsonl, one line of text each."""
    path = data / "trust.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines]
    return "\n".join(
        f"{record['seq']}: {record['name']} {record['trust']}: {record['reason']}"
        for record in records
    )


def main(n):
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        export = honest_export(scratch, n)
        data = scratch / "data"
        command = [*coordinator_command(n), "--listen", ADDRESS, "--data-dir", str(data), "--exit-when-done"]
        global START
        START = time.monotonic()
        coordinator = start("coordinator", command)
        while queensctl(data, "status").returncode != 0 and coordinator.poll() is None:
            time.sleep(0.1)
        token = ["token", "create", "--role", "worker", "--name", "foreign", "--json"]
        join = scratch / "foreign.join"
        join.write_text(json.loads(queensctl(data, *token).stdout)["join"], encoding="utf-8")
        program = str(ROOT / "tests/foreign/liar.py")
        liar = start("liar", [sys.executable, program, ADDRESS, str(join), export])
        honest = start_worker(scratch)
        barred = False
        while coordinator.poll() is None:
            if not barred and "barred" in (listed := queensctl(data, "workers").stdout):
                print_below("queensctl workers:", listed)
                barred = True
            time.sleep(0.2)
        coordinator.output.join()
        liar.wait()
        liar.output.join()
        command = [str(PROGRAMS / "queensctl"), "verify", str(data)]
        verified = subprocess.run(command, capture_output=True, text=True, check=False)
        print_below("queensctl verify:", verified.stdout + verified.stderr)
        trust = trust_records(data)
        print_below("trust.jsonl, as text:", trust)
        honest.terminate()
        honest.wait()
        honest.output.join()
        for (program, kind), times in list(REPEATS.items()):
            if times > 1:
                print_line("summary", f"{program} printed {times} such lines: {kind}")
        exact = coordinator.returncode == 0 and verified.returncode == 0
        caught = "barred" in trust
        codes = f"coordinator {coordinator.returncode}, verify {verified.returncode}"
        print_line("end", f"{codes}, the liar {'barred' if caught else 'NOT barred'}")
        return 0 if exact and caught else 1


if __name__ == "__main__":
    for module in ("grpc", "grpc_tools"):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"module {module} not found: pip install grpcio grpcio-tools")
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "18"))
