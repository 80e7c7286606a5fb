#!/usr/bin/env python3
"""A foreign liar beside two honest workers, from start to end, at the shipped defaults.

    cargo build --release
    pip install grpcio grpcio-tools
    python3 tests/foreign/show.py [N]

What each said is printed with who said it, in order. The workers of one host share one machine, and
machines vote; so each honest worker runs where /proc shows it another boot id, which wants Linux and
`unshare` with the right to mount (root, or user namespaces). Ends with 0 if the total is exact and
the liar was barred.
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
BOOT_ID = "/proc/sys/kernel/random/boot_id"
PORT = 7391
ADDRESS = f"127.0.0.1:{PORT}"
SPEAKING = threading.Lock()
START = time.monotonic()
# How often each said what differs in numbers only.
OFTEN = collections.Counter()
# How the lines below a result begin.
CHECKS = ("check:", " " * 11)


def say(who, line):
    """One line of what somebody said, within 80 columns; what differs in numbers only, once."""
    kind = (who, re.sub(r"[0-9a-f]*[0-9][0-9a-f.]*", "#", line))
    OFTEN[kind] += 1
    if OFTEN[kind] > 1:
        return
    head = f"{time.monotonic() - START:5.1f} {who:<11} "
    with SPEAKING:
        for part in textwrap.wrap(line, 80 - len(head), break_long_words=True) or [""]:
            print(head + part, flush=True)
            head = " " * len(head)


def print_as_is(text):
    """Lines that keep to 80 columns by themselves."""
    with SPEAKING:
        print(text.rstrip(), flush=True)


def text_of(line):
    """Without the time and level of a log line."""
    words = line.rstrip("\n").split(None, 2)
    if len(words) == 3 and words[0].endswith("Z") and words[1] in ("INFO", "WARN", "ERROR"):
        return words[2]
    return line.rstrip("\n")


def start(who, command):
    """A process whose every line is told."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )

    def listen():
        for line in process.stdout:
            if line.startswith(CHECKS):
                print_as_is(line)
            else:
                say(who, text_of(line))

    process.listener = threading.Thread(target=listen)
    process.listener.start()
    return process


def on_another_machine(scratch, number, command):
    """The command where the kernel says that it is another machine."""
    boot_id = scratch / f"boot-id-{number}"
    boot_id.write_text(f"00000000-0000-4000-8000-{number:012}\n", encoding="utf-8")
    mounted = f'mount --bind "{boot_id}" {BOOT_ID} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mounted, "sh", *command]


def worker(scratch, number):
    """An honest worker with one thread."""
    name = f"honest-{number}"
    command = [str(PROGRAMS / "worker"), "--coordinator", f"http://{ADDRESS}", "--threads", "1"]
    command += ["--memory", "1GiB", "--name", name, "--spool", str(scratch / name)]
    return start(name, on_another_machine(scratch, number, command))


def queensctl(*arguments):
    """Its output."""
    command = [str(PROGRAMS / "queensctl"), "--coordinator", f"http://{ADDRESS}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_of(n):
    """What is counted: a run by method rows, with nothing else said."""
    return [str(PROGRAMS / "coordinator"), "--n", n, "--method", "rows"]


def honest_export(scratch, n):
    """The counts of an honest run, for the liar to lie about."""
    data = str(scratch / "honest")
    command = [*run_of(n), "--local", "--recheck", "0", "--listen", "127.0.0.1:0"]
    subprocess.run([*command, "--data-dir", data], check=True, capture_output=True)
    export = scratch / "export.jsonl"
    journals = sorted(pathlib.Path(data).glob("runs/*/journal*.jsonl"))
    export.write_text("".join(path.read_text("utf-8") for path in journals), encoding="utf-8")
    return str(export)


def print_below(title, text):
    """Somebody's lines as they are, under a title."""
    print_as_is(f"{time.monotonic() - START:5.1f} {title}\n{text}")


def thought(data):
    """What the data directory keeps of its workers, in words."""
    path = data / "trust.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines]
    return "\n".join(
        f"{record['seq']}: {record['name']} {record['trust']}, "
        f"{record['faults']} wrong: {record['reason']}"
        for record in records
    )


def main(n):
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        export = honest_export(scratch, n)
        data = scratch / "data"
        command = [*run_of(n), "--listen", ADDRESS, "--data-dir", str(data), "--exit-when-done"]
        global START
        START = time.monotonic()
        coordinator = start("coordinator", command)
        while queensctl("status").returncode != 0 and coordinator.poll() is None:
            time.sleep(0.1)
        liar = start("liar", [sys.executable, str(ROOT / "tests/foreign/liar.py"), ADDRESS, export])
        workers = [worker(scratch, number) for number in (1, 2)]
        barred = False
        while coordinator.poll() is None:
            if not barred and "barred" in (listed := queensctl("workers").stdout):
                print_below("queensctl workers:", listed)
                barred = True
            time.sleep(0.2)
        coordinator.listener.join()
        liar.wait()
        liar.listener.join()
        verified = queensctl("verify", str(data))
        print_below("queensctl verify:", verified.stdout + verified.stderr)
        thoughts = thought(data)
        print_below("trust.jsonl, in words:", thoughts)
        for process in workers:
            process.terminate()
            process.wait()
            process.listener.join()
        for (who, kind), times in list(OFTEN.items()):
            if times > 1:
                say("in all", f"{who} heard or said {times} times: {kind}")
        exact = coordinator.returncode == 0 and verified.returncode == 0
        caught = "barred" in thoughts
        codes = f"coordinator {coordinator.returncode}, verify {verified.returncode}"
        say("end", f"{codes}, the liar {'barred' if caught else 'NOT barred'}")
        return 0 if exact and caught else 1


if __name__ == "__main__":
    for module in ("grpc", "grpc_tools"):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"the liar needs {module}: pip install grpcio grpcio-tools")
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "18"))
