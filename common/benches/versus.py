#!/usr/bin/env python3
"""Runs the same tasks with two builds of `frames_time`, in turns on one core; keeps the shortest time of each task.

    common/benches/versus.py OLD NEW N TASKS TASK_COST ROUNDS

OLD and NEW are programs: `cargo build --release -p common --example frames_time` in checkouts of two commits.
Counts must be equal. Both must divide the board in the same way.
"""
import subprocess
import sys


def run(program, n, tasks, cost):
    """Returns count and microseconds by range of units."""
    command = ["taskset", "-c", "1", program, n, "--tasks", tasks, "--task-cost", cost, "--verbose"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {row[1]: (row[2], max(int(row[3]), 1)) for row in rows if len(row) == 5 and ".." in row[1]}


def main():
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    old, new, n, tasks, cost, rounds = sys.argv[1:]
    best = {}
    for _ in range(int(rounds)):
        for name, program in (("old", old), ("new", new)):
            for units, (count, micros) in run(program, n, tasks, cost).items():
                known, least = best.setdefault((name, units), (count, micros))
                assert known == count, f"units {units} counted as {known} and as {count}"
                best[name, units] = (count, min(micros, least))
    all_units = [units for name, units in best if name == "old"]
    for units in all_units:
        assert best["old", units][0] == best["new", units][0], f"units {units}: counts differ"
    sums = [sum(best[name, units][1] for units in all_units) / 1e6 for name in ("old", "new")]
    ratios = sorted(best["old", units][1] / best["new", units][1] for units in all_units)
    print(
        f"N = {n}, {len(all_units)} tasks: old {sums[0]:.2f} s, new {sums[1]:.2f} s, ratio {sums[0] / sums[1]:.3f}; "
        f"by task {ratios[0]:.2f} to {ratios[-1]:.2f}, median {ratios[len(ratios) // 2]:.2f}"
    )


main()
