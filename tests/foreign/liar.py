#!/usr/bin/env python3
"""A lying worker from outside the project: calls `Sync`, leases tasks, and adds a multiple of 8 to each count,
which the symmetry check of the total cannot detect.

    python3 tests/foreign/liar.py 127.0.0.1:7171 JOIN_FILE EXPORT

JOIN_FILE contains a worker's join string. EXPORT is the output of `queensctl export` for an honest run of the same
plan: a liar that knows the right counts is the worst case. Exits when the coordinator reports that all runs are
finished.
"""

import json
import pathlib
import sys
import time

import grpc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
sys.path.insert(0, str(PROTO))

queue_pb2, queue_grpc = grpc.protos_and_services("queens/v1/work_queue.proto")
types_pb2 = grpc.protos("queens/v1/types.proto")

PROTOCOL = 1
# Requested work in seconds; about as much as one honest thread requests.
SECONDS_WANTED = 2.0


def honest_counts(path):
    """Task -> (count, microseconds that an honest thread took)."""
    with open(path, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return {
        record["task"]: (int(record["count"]), record["duration_us"])
        for record in records
        if record["kind"] == "accepted"
    }


def lie(grant, honest):
    """The partial of a task, wrong by 8, 16, ... up to 80."""
    count, duration_us = honest[grant.lease.task.task]
    return queue_pb2.Partial(
        lease=grant.lease,
        count=count + 8 * (1 + grant.lease.task.task % 10),
        kernel=types_pb2.KERNEL_AVX2,
        orientation=grant.orientation,
        duration_us=duration_us,
    )


class ReplyPrinter:
    """Prints the coordinator's replies; grants and accepted lies only as sums."""

    def __init__(self):
        self.accepted = 0
        self.granted = 0

    def _print_sums(self):
        if self.accepted or self.granted:
            print(f"{self.granted} tasks granted, {self.accepted} lies accepted")
        self.accepted = self.granted = 0

    def add(self, reply):
        """Adds a reply; prints its refusals, revocations and reason."""
        reasons_by_verdict = {}
        for answer in reply.acknowledgements:
            verdict = queue_pb2.Verdict.Name(answer.verdict).removeprefix("VERDICT_").lower()
            reasons_by_verdict.setdefault(verdict, []).append(answer.reason)
        self.accepted += len(reasons_by_verdict.pop("accepted", []))
        if reasons_by_verdict or reply.revoked or reply.reason:
            self._print_sums()
        self.granted += len(reply.grants)
        for verdict, reasons in reasons_by_verdict.items():
            print(f"{len(reasons)} lies answered with {verdict}: {reasons[0]}")
        if reply.revoked:
            print(f"{len(reply.revoked)} tasks revoked: {reply.revoked[0].reason}")
        if reply.reason:
            print(f"no tasks: {reply.reason}")
        sys.stdout.flush()


def main(arguments):
    if len(arguments) != 3:
        print("usage: liar.py HOST:PORT JOIN_FILE EXPORT", file=sys.stderr)
        return 2
    address, join, export = arguments
    honest = honest_counts(export)
    # Plain text, which is allowed only on loopback.
    metadata = [("authorization", f"Bearer {pathlib.Path(join).read_text('utf-8').strip()}")]
    worker = queue_pb2.WorkerInfo(
        session=time.time_ns() % 2**63,
        name="liar",
        version="foreign",
        kernel=types_pb2.KERNEL_AVX2,
        threads=1,
        memory_bytes_per_thread=1 << 30,
        machine=0x666,
    )
    with grpc.insecure_channel(address) as channel:
        stub = queue_grpc.WorkQueueStub(channel)
        lies, printer, secret = [], ReplyPrinter(), b""
        while True:
            request = queue_pb2.SyncRequest(
                protocol=PROTOCOL,
                worker=worker,
                partials=lies,
                seconds_wanted=SECONDS_WANTED,
                secret=secret,
            )
            try:
                reply = stub.Sync(request, timeout=30, metadata=metadata)
            except grpc.RpcError as error:
                print(f"call failed: {error.details()}")
                return 1
            if reply.issued_secret:
                secret = reply.issued_secret
                continue
            printer.add(reply)
            lies = [lie(grant, honest) for grant in reply.grants]
            if reply.all_runs_finished:
                print("all runs finished")
                return 0
            # Waits as long as an honest thread would need for them, or until the next call is due.
            busy = sum(partial.duration_us for partial in lies) / 1e6
            time.sleep(busy or min(reply.next_sync_ms / 1000, 1.0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
