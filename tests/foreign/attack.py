#!/usr/bin/env python3
"""Runs a coordinator against foreign clients that lie, and prints how the runs end.

    pip install grpcio grpcio-tools
    python3 tests/foreign/attack.py --programs target/release --seeds 3

The honest clients are foreign as well: they take each task's count from an earlier run and wait as long
as the task takes (--slow times as long). Many simulated machines thus use little CPU, and the coordinator's
referee can recount only its share. Lies are multiples of 8, which the symmetry check of the total cannot
detect. A run ends E (exact: every count is right), B (wrong within the printed bound), D (disputed, or not
finished in time) or W (wrong outside the bound, or without one). The published count is not used to judge:
larger boards have none.
"""

import argparse
import collections
import contextlib
import dataclasses
import hashlib
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "proto"))
queue_pb2, queue_grpc = grpc.protos_and_services("queens/v1/work_queue.proto")
types_pb2 = grpc.protos("queens/v1/types.proto")

ENDS = ("complete", "contradicted", "disputed")


@dataclasses.dataclass(frozen=True)
class Group:
    """Clients that share a token, with their behavior and number of cores."""

    token: str
    size: int = 1
    cores: float = 1.0
    lie_rate: float = 0.0
    bit_errors: float = 0.0
    renames: bool = False
    impersonates: bool = False
    # Names all its leases as started, forever, and delivers nothing.
    holds: bool = False
    # Starts all its leases and restarts without them.
    parks: bool = False
    # Submits counts of tasks that it never leased.
    forges: bool = False
    # Claims many threads and submits at once.
    hurries: bool = False
    # Calls and wants no work.
    idles: bool = False
    # Counts packages in tabs of browsers, without a token.
    visits: bool = False
    start_at: float = 0.0

    @property
    def honest(self):
        greedy = self.holds or self.parks or self.hurries
        return not (greedy or self.forges or self.idles or self.lie_rate or self.bit_errors)

    @property
    def seconds_wanted(self):
        if self.idles:
            return 0.0
        return 30.0 if self.holds or self.parks or self.hurries else 0.2


def honest(size, token="good"):
    return Group(token, size, float(size))


def liars(rate, token="evil", **more):
    return Group(token, lie_rate=rate, **more)


# Liars with the token of honest machines are harder to tell apart than liars with another one.
SCENARIOS = {
    "honest, 3 machines": [honest(3)],
    "liar 5 % + 2 honest, 2 tokens": [honest(2), liars(0.05)],
    "liar 100 % + 2 honest, 2 tokens": [honest(2), liars(1.0)],
    "liar 5 % + 1 honest, 2 tokens": [honest(1), liars(0.05)],
    "liar 100 % + 1 honest, 2 tokens": [honest(1), liars(1.0)],
    "2 colluders 5 % + 2 honest, 2 tokens": [honest(2), liars(0.05, size=2, cores=2)],
    "2 colluders 100 % + 2 honest, 2 tokens": [honest(2), liars(1.0, size=2, cores=2)],
    "100 identities 5 % + 1 honest, 2 tokens": [honest(1), liars(0.05, size=100, cores=8)],
    "100 identities 5 % + 2 honest, 2 tokens": [honest(2), liars(0.05, size=100, cores=8)],
    "100 identities 100 % + 2 honest, 2 tokens": [honest(2), liars(1.0, size=100, cores=8)],
    "renamed after a bar, 100 %, same token": [honest(2), liars(1.0, "good", renames=True)],
    "leaked token, renamed after each bar, 100 % + 2 honest, 1 with another token": [
        honest(2),
        liars(1.0, "good", renames=True),
        honest(1, "good-2"),
    ],
    "impersonates an honest machine, same token": [
        honest(2),
        liars(1.0, "good", impersonates=True),
    ],
    "2 late starters 50 % + 2 honest, 2 tokens": [
        honest(2),
        liars(0.5, size=2, cores=2, start_at=0.5),
    ],
    "2 holders + 2 honest, 2 tokens": [honest(2), Group("evil", 2, holds=True)],
    "5 parkers + 2 honest, 2 tokens": [honest(2), Group("evil", 5, parks=True)],
    "idle stranger + 2 honest, 2 tokens": [honest(2), Group("evil", idles=True)],
    "counts that were never leased + 2 honest, 2 tokens": [honest(2), Group("evil", forges=True)],
    "claimed speed 100 % + a token that confirms it + 2 honest": [
        honest(2),
        liars(1.0, size=2, hurries=True),
        liars(1.0, "evil-2", size=2, hurries=True),
    ],
    "10 tabs 20 % + 1 honest": [honest(1), liars(0.2, "tabs", size=10, cores=10, visits=True)],
    "bit errors 0.1 %, 3 machines": [Group("good", 3, 3.0, bit_errors=0.001)],
    "lab of 20, 3 bad at 50 %, 1 other token": [
        honest(17, "lab"),
        liars(0.5, "lab", size=3, cores=3),
        honest(1),
    ],
}


MADE_UP = "12 identities of 2 tokens make up all counts"


class ExactCounts:
    """Task -> (count, seconds of one core), from an honest run."""

    def __init__(self, directory):
        records = journal(directory)
        accepted = [record for record in records if record["kind"] == "accepted"]
        self.counts = {record["task"]: int(record["count"]) for record in accepted}
        self.seconds = {record["task"]: record["duration_us"] / 1e6 for record in accepted}
        self.core_seconds = sum(self.seconds.values())


def journal(directory):
    paths = sorted(pathlib.Path(directory).glob("runs/*/journal*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


class MadeUpCounts:
    """Counts of a board that nobody has counted."""

    core_seconds = 1.0
    seconds = collections.defaultdict(float)

    class Counts(dict):
        def __missing__(self, task):
            return 8 * int.from_bytes(hashlib.sha256(str(task).encode()).digest()[:4], "big")

    counts = Counts()


class Client(threading.Thread):
    """A worker identity: leases tasks, waits as long as they take, and submits counts."""

    def __init__(self, attack, group, number, machine):
        super().__init__(daemon=True)
        self.attack, self.group, self.machine = attack, group, machine
        self.rng = random.Random(f"{attack.seed} {group.token} {group.lie_rate} {number}")
        self.label = "honest" if group.honest else "bad"
        self.name_of = f"{self.label}-{group.token}-{number}"
        self.names = 0
        self.worked = 0.0
        self.errors = collections.Counter()
        self.stub = queue_grpc.WorkQueueStub(attack.channel)
        self.take_identity()

    def take_identity(self):
        """Takes a new identity: at the start, and after each bar."""
        if self.names:
            self.machine = self.rng.getrandbits(63) | 1
        self.names += 1
        # No secret yet, or a forged one: the published hash of an honest worker's secret, twice.
        self.secret = 2 * self.attack.victim if self.group.impersonates else b""
        self.info = queue_pb2.WorkerInfo(
            session=self.rng.getrandbits(63),
            name=f"{self.name_of}-{self.names}",
            version="foreign",
            kernel=types_pb2.KERNEL_AVX2,
            threads=4096 if self.group.hurries else 1,
            memory_bytes_per_thread=1 << 30,
            machine=self.machine,
        )

    def count(self, task):
        exact = self.attack.exact.counts[task]
        # Colluders agree on the tasks and on the lies.
        digest = hashlib.sha256(f"{self.attack.seed} {task}".encode()).digest()
        if int.from_bytes(digest[:4], "big") < self.group.lie_rate * 2**32:
            return exact + 8 * (1 + digest[4] % 10)
        if self.rng.random() < self.group.bit_errors:
            return exact ^ (8 << self.rng.randrange(12))
        return exact

    def held(self):
        return [queue_pb2.HeldLease(lease=lease, started=True) for lease in self.leases]

    def forged(self):
        """Counts of random tasks, with leases that another run of the program might have made."""
        partials = []
        for lease in self.leases[:1]:
            for task in self.rng.sample(sorted(self.attack.exact.counts), 20):
                forged = types_pb2.LeaseKey(
                    task=types_pb2.TaskRef(run=lease.task.run, plan_hash=lease.task.plan_hash, task=task),
                    epoch=1 + self.rng.randrange(3),
                    granted_unix_ms=lease.granted_unix_ms,
                    return_unix_ms=lease.return_unix_ms,
                    proof=self.rng.randbytes(16),
                )
                partials.append(
                    queue_pb2.Partial(
                        lease=forged,
                        count=self.attack.exact.counts[task] + 8,
                        kernel=types_pb2.KERNEL_AVX2,
                        orientation=types_pb2.ORIENTATION_UPRIGHT,
                        duration_us=1,
                    )
                )
        return partials

    def run(self):
        attack, partials, self.leases = self.attack, [], []
        metadata = [("authorization", f"Bearer {attack.tokens[self.group.token]}")]
        while not attack.over.is_set():
            if attack.done < self.group.start_at:
                attack.over.wait(0.05)
                continue
            request = queue_pb2.SyncRequest(
                protocol=1,
                worker=self.info,
                held=self.held(),
                partials=self.forged() if self.group.forges else partials,
                seconds_wanted=self.group.seconds_wanted,
                secret=self.secret,
            )
            try:
                reply = self.stub.Sync(request, timeout=30, metadata=metadata)
            except grpc.RpcError as error:
                self.errors[error.details()] += 1
                attack.over.wait(0.2)
                continue
            if reply.issued_secret:
                self.secret = reply.issued_secret
                if self.group.honest:
                    self.attack.victim = hashlib.sha256(self.secret).digest()[:16]
                continue
            if self.group.renames and "gets no more work" in reply.reason:
                self.take_identity()
            partials, seconds = [], 0.0
            if self.group.holds or self.group.parks or self.group.forges:
                revoked = {gone.lease.proof for gone in reply.revoked}
                self.leases = [lease for lease in self.leases if lease.proof not in revoked]
                if self.group.parks and self.leases:
                    self.leases, self.info.session = [], self.rng.getrandbits(63)
                else:
                    self.leases += [grant.lease for grant in reply.grants]
                attack.over.wait(0.1)
                continue
            for grant in reply.grants:
                task = grant.lease.task.task
                took = attack.exact.seconds[task]
                seconds += took
                partials.append(
                    queue_pb2.Partial(
                        lease=grant.lease,
                        count=self.count(task),
                        kernel=types_pb2.KERNEL_AVX2,
                        orientation=grant.orientation,
                        duration_us=1 if self.group.hurries else int(took * 1e6 * attack.slow),
                    )
                )
            if self.group.hurries:
                attack.over.wait(0.02)
                continue
            self.worked += seconds
            share = self.group.cores / self.group.size
            attack.over.wait(seconds * attack.slow / share or min(reply.next_sync_ms / 1e3, 0.1))


class Tab(Client):
    """The tab of a volunteer's browser: fetches packages over HTTP, and submits counts of all their tasks."""

    def call(self, wants_package, lines=""):
        call = {
            "secret": self.secret or None,
            "name": self.info.name,
            "named": False,
            "threads": self.info.threads,
            "memory_bytes_per_thread": self.info.memory_bytes_per_thread,
            "wants_package": wants_package,
            "lines": lines,
        }
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.attack.page, json.dumps(call).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def run(self):
        while not self.attack.over.is_set():
            try:
                self.visit()
            except urllib.error.HTTPError as refusal:
                self.errors[refusal.read().decode()] += 1
            except OSError as error:
                self.errors[str(error)] += 1
            self.attack.over.wait(0.5)

    def visit(self):
        attack, answer = self.attack, self.call(wants_package=True)
        self.secret = answer.get("secret", self.secret)
        if not answer["package"]:
            return
        # The tasks are the tab's once the coordinator knows that the tab has them.
        self.call(wants_package=False, lines=answer["package"])
        first, *tasks = answer["package"].splitlines(keepends=True)
        header, tasks = json.loads(first)["package"], [json.loads(line)["task"] for line in tasks]
        seconds = sum(attack.exact.seconds[task["task"]] for task in tasks)
        self.worked += seconds
        if not attack.over.wait(seconds * attack.slow):
            self.call(wants_package=False, lines=first + "".join(self.finished(header, task) for task in tasks))

    def finished(self, header, task):
        common = {name: header[name] for name in ("run", "plan", "return_unix_ms")}
        took = int(self.attack.exact.seconds[task["task"]] * 1e6 * self.attack.slow)
        counted = {"count": str(self.count(task["task"])), "kernel": "simd128", "duration_us": took}
        body = json.dumps({"finished": common | task | counted}, separators=(",", ":"))[:-1]
        return f'{body},"crc":"{zlib.crc32(body.encode()):08x}"}}\n'


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Attack:
    """A coordinator, its clients, and the outcome of its run."""

    def __init__(self, options, exact, name, recheck, seed):
        self.options, self.exact, self.name = options, exact, name
        self.groups, self.recheck, self.seed = SCENARIOS[name], recheck, seed
        self.slow, self.done = options.slow, 0.0
        self.victim = b""
        # Kinds of alerts, with the seconds after which they were first seen.
        self.alerts, self.slowest_status = {}, 0.0
        self.over = threading.Event()

    def queensctl(self, *arguments):
        # Without this coordinator's join string, queensctl would connect to any server on port 7171.
        join = next(self.data.glob("**/operator.join"), None)
        if join is None:
            return []
        command = [self.options.programs / "queensctl", "--timeout", "60s", "--join", f"@{join}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def status(self):
        return next(iter(self.queensctl("status", "--json")), None)

    def run(self, scratch):
        self.data = pathlib.Path(scratch) / "data"
        port, page = free_port(), f"127.0.0.1:{free_port()}"
        visitors = any(group.visits for group in self.groups)
        self.page = f"http://{page}/count/sync"
        command = [*coordinator_command(self.options), "--recheck", self.recheck]
        command += ["--volunteers", "--http", page] if visitors else ["--no-http"]
        command += ["--listen", f"0.0.0.0:{port}", "--advertise", f"127.0.0.1:{port}"]
        coordinator = subprocess.Popen(
            [*command, "--data-dir", self.data],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # In this session the referee, at idle priority, would wait for all other processes.
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + self.options.limit
            while self.status() is None:
                if coordinator.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the coordinator did not start: {command}")
                time.sleep(0.1)
            tokens = {group.token for group in self.groups if not group.visits}
            self.tokens = {name: self.token(name) for name in tokens}
            with grpc.insecure_channel(f"127.0.0.1:{port}") as self.channel:
                return self.watch(deadline)
        finally:
            self.over.set()
            coordinator.terminate()
            coordinator.wait()

    def token(self, name):
        made = self.queensctl("token", "create", "--role", "worker", "--name", name, "--json")
        return made[0]["bearer"]

    def watch(self, deadline):
        rng, clients = random.Random(self.seed), []
        machines = [rng.getrandbits(63) | 1 for group in self.groups for _ in range(group.size)]
        for group in self.groups:
            for number in range(group.size):
                # The first machine is honest.
                machine = machines[0] if group.impersonates else machines[len(clients)]
                clients.append((Tab if group.visits else Client)(self, group, number, machine))
        begun = time.monotonic()
        for client in clients:
            client.start()
        status = None
        while (asked := time.monotonic()) < deadline:
            latest = self.status()
            self.slowest_status = max(self.slowest_status, time.monotonic() - asked)
            if latest:
                status = latest
                self.done = status["fraction_done"]
                for alert in status["alerts"]:
                    self.alerts.setdefault(alert["kind"], round(time.monotonic() - begun, 1))
                if status["state"] in ENDS and (status["result"] or status["state"] == "disputed"):
                    break
            time.sleep(0.5)
        seconds = time.monotonic() - begun
        self.over.set()
        workers = self.queensctl("workers", "--json")
        for client in clients:
            client.join()
        return self.judge(status, workers, clients, seconds)

    def judge(self, status, workers, clients, seconds):
        counts = standing_counts(journal(self.data))
        wrong = sum(count != self.exact.counts[task] for task, count in counts.items())
        checks = {check["name"]: check for check in (status["result"] or {}).get("checks", [])}
        bound = printed_bound(checks)
        if len(counts) < len(self.exact.counts) or status["state"] not in ENDS[:2]:
            end = "D"
        elif wrong == 0:
            end = "E"
        else:
            end = "B" if bound is not None and wrong <= bound else "W"
        barred = [worker["name"] for worker in workers if worker["state"] == "barred"]
        extra = sum(client.worked for client in clients) / self.exact.core_seconds - 1
        return {
            "scenario": self.name,
            "recheck": self.recheck,
            "seed": self.seed,
            "end": end,
            "state": status["state"],
            "tasks": len(self.exact.counts),
            "counted": len(counts),
            "wrong": wrong,
            "bound": bound,
            "honest_barred": sum(name.startswith("honest") for name in barred),
            "bad_barred": sum(name.startswith("bad") for name in barred),
            "extra": round(extra, 3),
            "seconds": round(seconds, 1),
            "errors": dict(sum((client.errors for client in clients), collections.Counter())),
            "checks": {name: check["reason"] for name, check in checks.items()},
        }


def make_up(options):
    """Lets clients make up the counts of a board that no machine can count in the time; prints what remains of them."""
    groups = [liars(1.0, token, size=6, hurries=True) for token in ("evil", "evil-2")]
    SCENARIOS[MADE_UP] = groups
    with tempfile.TemporaryDirectory() as scratch:
        attack = Attack(options, MadeUpCounts, MADE_UP, "auto", 0)
        attack.judge = lambda status, workers, clients, seconds: {
            "seconds": round(seconds),
            "state": status["state"],
            "tasks": status["tasks"],
            "barred": sum(worker["state"] == "barred" for worker in workers),
            "alerts": attack.alerts,
            "slowest_status_s": round(attack.slowest_status, 1),
        }
        print(json.dumps(attack.run(scratch)))


def standing_counts(records):
    """The count of each task according to the journal; disputed tasks have none."""
    counts, final = collections.defaultdict(list), {}
    for record in records:
        task, count = record["task"], int(record["count"])
        if record["kind"] == "settled":
            final[task] = count
        elif record["kind"] == "voided":
            counts[task] = [one for one in counts[task] if one[0] != record["worker"]]
        else:
            counts[task].append((record["worker"], count))
    agreed = {task: {count for _, count in one} for task, one in counts.items()}
    return {task: min(one) for task, one in agreed.items() if len(one) == 1} | final


def printed_bound(checks):
    """The maximum number of wrong counts that the result states; None without a bound."""
    rechecks, referee = (checks.get(name, {}).get("reason", "") for name in ("rechecks", "referee"))
    weak = ("by the same token", "by the same machine", "not confirmed")
    if all(f" 0 {confirmation}" in rechecks for confirmation in weak):
        return 0
    most = re.search(r"at most ([\d,]+) of", referee)
    return most and int(most[1].replace(",", ""))


def coordinator_command(options):
    command = [options.programs / "coordinator", "--n", str(options.n)]
    if not options.make_up:
        command += ["--method", "rows"]
    return command + (["--task-cost", str(options.task_cost)] if options.task_cost else [])


def count_exactly(options):
    with tempfile.TemporaryDirectory() as data:
        command = [*coordinator_command(options), "--local", "--threads", "1", "--recheck", "0", "--no-http"]
        command += ["--listen", "127.0.0.1:0", "--data-dir", data]
        subprocess.run(command, check=True, capture_output=True)
        return ExactCounts(data)


def table(results):
    """Prints the outcomes of each scenario by recheck level."""
    rows = collections.defaultdict(lambda: collections.defaultdict(list))
    for result in results:
        rows[result["scenario"]][result["recheck"]].append(result)
    rechecks = list(dict.fromkeys(result["recheck"] for result in results))
    print(f"| scenario | {' | '.join(rechecks)} | honest barred | extra work |")
    print("|---" * (len(rechecks) + 3) + "|")
    for name, cells in rows.items():
        ends = []
        for recheck in rechecks:
            counted = collections.Counter(result["end"] for result in cells[recheck])
            ends.append(" ".join(f"{end}{counted[end]}" for end in "EBDW" if counted[end]))
        runs = [result for some in cells.values() for result in some]
        barred = sum(result["honest_barred"] for result in runs)
        extra = [f"{result['extra']:.0%}" for result in (runs[0], runs[-1])]
        print(f"| {name} | {' | '.join(ends)} | {barred} | {', '.join(extra)} |")
    counted = collections.Counter(result["end"] for result in results)
    print(f"\n{len(results)} runs: " + ", ".join(f"{end} {counted[end]}" for end in "EBDW"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--programs", type=pathlib.Path, default=pathlib.Path("target/release"))
    parser.add_argument("--n", type=int, default=18)
    parser.add_argument("--task-cost", type=int, help="microseconds of one core, for more tasks")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--slow", type=float, default=1.0, help="times a task's cost")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a run may take")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--recheck", nargs="*", default=["auto", "all"])
    parser.add_argument("--make-up", type=float, help="only make up counts of N = 28, for this many seconds")
    options = parser.parse_args()
    options.programs = options.programs.resolve()
    if options.make_up:
        options.n, options.limit, options.task_cost = 28, options.make_up, None
        return make_up(options)
    exact, results = count_exactly(options), []
    for seed in range(options.seeds):
        for name in SCENARIOS:
            for recheck in options.recheck if options.only in name else ():
                with tempfile.TemporaryDirectory() as scratch:
                    result = Attack(options, exact, name, recheck, seed).run(scratch)
                results.append(result)
                print(json.dumps(result), flush=True)
    with contextlib.suppress(BrokenPipeError):
        table(results)


if __name__ == "__main__":
    main()
