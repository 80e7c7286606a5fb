#!/usr/bin/env python3
"""Compares `worker estimate` with measured times: estimates boards, counts them, prints one Markdown row per board.

    docs/benchmarks/estimate_check.py [--programs DIR] [--memory 8GiB] [--budget 60s] N...

Exits with 1 if an estimate is off by more than 25 %. Needs an otherwise idle machine: both are wall times.
"""
import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 0.25
WORKER = Path(__file__).resolve().parents[2] / "target/release"


def worker(options, command, *arguments):
    call = [options.programs / "worker", command, *arguments, "--memory", options.memory, "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    done = subprocess.run(call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    took = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, call))}: exit code {done.returncode}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return json.loads(done.stdout), took, cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=WORKER)
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--budget", default="60s")
    parser.add_argument("n", type=int, nargs="+")
    options = parser.parse_args()
    print("| N | threads | estimated, s | range | sampled tasks | measured, s | estimated / measured | core s estimated | measured |")
    print("|---|---|---|---|---|---|---|---|---|")
    off = False
    for n in options.n:
        estimate, _, _ = worker(options, "estimate", "--n", str(n), "--budget", options.budget)
        threads, cores = estimate["threads"], estimate["core_seconds"]
        counted, took, cpu = worker(options, "count", "--n", str(n), "--method", estimate["method"])
        assert counted["complete"]
        expected, low, high = (cores[key] / threads for key in ("expected", "low", "high"))
        ratio = expected / took
        off |= abs(ratio - 1) > LIMIT
        print(f"| {n} | {threads} | {expected:.1f} | {low:.1f}–{high:.1f} | {estimate['model']['tasks']} | {took:.1f} | "
              f"{ratio:.2f} | {cores['expected']:.1f} | {cpu:.1f} |", flush=True)
    sys.exit("an estimate is off by more than 25 %" if off else 0)


if __name__ == "__main__":
    main()
