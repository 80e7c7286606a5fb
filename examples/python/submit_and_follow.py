#!/usr/bin/env python3
"""A client in Python: submits a run, follows it until it is finished, and prints the result.

    pip install grpcio grpcio-tools
    python3 examples/python/submit_and_follow.py queens-data/auth 14

The folder is in the coordinator's data directory and contains its CA certificate (ca.pem) and an operator's join
string (operator.join). On another machine use a folder with copies of both.

The messages come from the project's .proto files, which are compiled at the start of this program.
Exit codes follow `docs/api.md`: 0 complete, 1 error, 3 contradicted or disputed, 4 not verified.
"""

import base64
import pathlib
import sys
import time

import grpc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
sys.path.insert(0, str(PROTO))

runs_pb2, runs_grpc = grpc.protos_and_services("queens/v1/runs.proto")
types_pb2 = grpc.protos("queens/v1/types.proto")

# Codes of a missing reply or a lost connection, after which the client tries again.
RETRYABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED)

# The name in the certificate of every coordinator, independent of its address.
SERVER_NAME = "coordinator.queens.internal"


def connect(folder):
    """Connects over TLS to a coordinator of the folder's CA; authenticates each call with the join string."""
    join = (folder / "operator.join").read_text().strip()
    # After the prefix: 32 bytes of the CA's hash, 36 of a token, the addresses, 4 of a checksum.
    text = join.removeprefix("queens1-")
    addresses = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[68:-4].decode()
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes()),
        grpc.access_token_call_credentials(join),
    )
    options = [("grpc.ssl_target_name_override", SERVER_NAME)]
    return grpc.secure_channel(addresses.split(",")[0], credentials, options)


def submit(stub, n):
    """Starts a run. Because of the idempotency key, repeated requests start only one run."""
    request = runs_pb2.SubmitRequest(
        spec=types_pb2.PlanSpec(n=n, layout=types_pb2.LAYOUT_BORDER),
        idempotency_key=f"submit_and_follow.py-{n}",
    )
    return stub.Submit(request, timeout=120).run


def is_finished(status):
    """Returns whether the run is finished."""
    state = status.run.state
    if state in (runs_pb2.RUN_STATE_COMPLETE, runs_pb2.RUN_STATE_CONTRADICTED):
        return status.HasField("result")
    return state in (runs_pb2.RUN_STATE_CANCELLED, runs_pb2.RUN_STATE_DISPUTED)


def follow(stub, run):
    """Prints the progress until the run is finished; reconnects if the coordinator was unreachable."""
    request = runs_pb2.WatchStatusRequest(run=run, interval_ms=200)
    while True:
        try:
            for status in stub.WatchStatus(request):
                # The reason why the run makes no progress, for example that no worker is connected.
                reason = f"; {status.reason}" if status.reason else ""
                print(
                    f"{status.tasks_done} of {status.tasks_total} tasks, {status.fraction_done:.1%}, "
                    f"{status.solutions_so_far} solutions so far{reason}",
                    file=sys.stderr,
                )
                if is_finished(status):
                    return status
        except grpc.RpcError as error:
            if error.code() not in RETRYABLE:
                raise
            print(f"{error.details()}; trying again", file=sys.stderr)
        time.sleep(1)


def main(arguments):
    if len(arguments) != 2 or not arguments[1].isdigit():
        print("usage: submit_and_follow.py FOLDER N", file=sys.stderr)
        return 2
    try:
        channel = connect(pathlib.Path(arguments[0]))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    with channel:
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
        print(f"{result.solutions} solutions, {result.fundamental} fundamental")
        return 0 if result.verified else 4
    if status.run.state == runs_pb2.RUN_STATE_CANCELLED:
        by = f" by {status.run.cancelled_by}" if status.run.cancelled_by else ""
        print(f"error: the run was cancelled{by}", file=sys.stderr)
        return 1
    print(f"do not trust {result.solutions}: a check contradicts it")
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
