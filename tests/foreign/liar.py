#!/usr/bin/env python3
"""A worker that is not the project's own and lies: it speaks `Sync`, takes tasks, and reports every
count too high by a multiple of 8, which the symmetry of the board cannot show.

    python3 tests/foreign/liar.py 127.0.0.1:7171 EXPORT

EXPORT is what `queensctl export` printed of an honest run of the same plan: a liar that knows the
right counts is the worst there is. It ends when the coordinator says that every run is over.
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
# How much work it asks for at a time, in seconds; about what one honest thread asks for.
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
    count, duration_us = honest[grant.task.task]
    return queue_pb2.Partial(
        task=grant.task,
        epoch=grant.epoch,
        count=count + 8 * (1 + grant.task.task % 10),
        kernel=types_pb2.KERNEL_AVX2,
        orientation=grant.orientation,
        duration_us=duration_us,
    )


class Teller:
    """Says what the coordinator said: what it says again and again, once with how often."""

    def __init__(self):
        self.accepted = 0
        self.granted = 0

    def _so_far(self):
        if self.accepted or self.granted:
            print(f"{self.granted} tasks granted, {self.accepted} lies accepted")
        self.accepted = self.granted = 0

    def tell(self, reply):
        """One reply."""
        said = {}
        for answer in reply.acknowledgements:
            verdict = queue_pb2.Verdict.Name(answer.verdict).removeprefix("VERDICT_").lower()
            said.setdefault(verdict, []).append(answer.reason)
        self.accepted += len(said.pop("accepted", []))
        if said or reply.revoked or reply.reason:
            self._so_far()
        self.granted += len(reply.grants)
        for verdict, reasons in said.items():
            print(f"{len(reasons)} lies answered with {verdict}: {reasons[0]}")
        if reply.revoked:
            print(f"{len(reply.revoked)} tasks taken back: {reply.revoked[0].reason}")
        if reply.reason:
            print(f"no tasks: {reply.reason}")
        sys.stdout.flush()


def main(arguments):
    if len(arguments) != 2:
        print("usage: liar.py HOST:PORT EXPORT", file=sys.stderr)
        return 2
    honest = honest_counts(arguments[1])
    worker = queue_pb2.WorkerInfo(
        id=b"a foreign worker",
        session=time.time_ns() % 2**63,
        name="liar",
        version="foreign",
        kernel=types_pb2.KERNEL_AVX2,
        threads=1,
        memory_bytes_per_thread=1 << 30,
        machine=0x666,
    )
    with grpc.insecure_channel(arguments[0]) as channel:
        stub = queue_grpc.WorkQueueStub(channel)
        lies, teller = [], Teller()
        while True:
            request = queue_pb2.SyncRequest(
                protocol=PROTOCOL, worker=worker, partials=lies, seconds_wanted=SECONDS_WANTED
            )
            try:
                reply = stub.Sync(request, timeout=30)
            except grpc.RpcError as error:
                print(f"the coordinator is gone: {error.details()}")
                return 1
            teller.tell(reply)
            lies = [lie(grant, honest) for grant in reply.grants]
            if reply.all_runs_over:
                print("every run is over")
                return 0
            # As long as an honest thread would have taken for them, and at least until the next call
            # is due when there was nothing.
            busy = sum(partial.duration_us for partial in lies) / 1e6
            time.sleep(busy or min(reply.next_sync_ms / 1000, 1.0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
