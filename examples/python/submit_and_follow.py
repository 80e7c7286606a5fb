#!/usr/bin/env python3
"""A client in Python: submits a run, follows it until it is over, and prints the result.

    pip install grpcio grpcio-tools
    python3 examples/python/submit_and_follow.py 127.0.0.1:7171 14

The messages come from the .proto files of the project, compiled as this program starts: there is no
generated code to keep up to date. Exit codes are those of the programs: 0 complete, 1 error, 3
contradicted or disputed.
"""

import pathlib
import sys
import time

import grpc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
sys.path.insert(0, str(PROTO))

runs_pb2, runs_grpc = grpc.protos_and_services("queens/v1/runs.proto")
types_pb2 = grpc.protos("queens/v1/types.proto")

# Nobody answered, or the connection broke: worth another attempt.
AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED)


def submit(stub, n):
    """Starts a run. The key makes repeating the request harmless: it starts one run, however often it
    arrives."""
    request = runs_pb2.SubmitRequest(
        spec=types_pb2.PlanSpec(n=n, layout=types_pb2.LAYOUT_BORDER),
        idempotency_key=f"submit_and_follow.py-{n}",
    )
    return stub.Submit(request, timeout=120).run


def is_over(status):
    """Whether nothing more will change."""
    state = status.run.state
    if state in (runs_pb2.RUN_STATE_COMPLETE, runs_pb2.RUN_STATE_CONTRADICTED):
        return status.HasField("result")
    return state in (runs_pb2.RUN_STATE_CANCELLED, runs_pb2.RUN_STATE_DISPUTED)


def follow(stub, run):
    """Prints the progress until the run is over; goes on when the coordinator was away."""
    request = runs_pb2.WatchStatusRequest(run=run, interval_ms=200)
    while True:
        try:
            for status in stub.WatchStatus(request):
                print(
                    f"{status.tasks_done} of {status.tasks_total} tasks, "
                    f"{status.fraction_done:.1%}, {status.solutions_so_far} solutions so far",
                    file=sys.stderr,
                )
                if is_over(status):
                    return status
        except grpc.RpcError as error:
            if error.code() not in AWAY:
                raise
            print(f"{error.details()}; trying again", file=sys.stderr)
        time.sleep(1)


def main(arguments):
    if len(arguments) != 2 or not arguments[1].isdigit():
        print("usage: submit_and_follow.py HOST:PORT N", file=sys.stderr)
        return 2
    with grpc.insecure_channel(arguments[0]) as channel:
        stub = runs_grpc.RunsStub(channel)
        try:
            run = submit(stub, int(arguments[1]))
            print(f"run {run:016x}")
            status = follow(stub, run)
        except grpc.RpcError as error:
            print(f"error: {error.details()}", file=sys.stderr)
            return 1
    result = status.result
    if status.run.state == runs_pb2.RUN_STATE_COMPLETE:
        print(f"{result.solutions} solutions, {result.unique} unique")
        return 0
    if status.run.state == runs_pb2.RUN_STATE_CANCELLED:
        print("error: the run was cancelled", file=sys.stderr)
        return 1
    print(f"do not trust {result.solutions}: a check contradicts it")
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
