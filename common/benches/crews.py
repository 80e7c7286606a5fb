#!/usr/bin/env python3
"""Compares the throughput of one crew of 2 with that of two crews of 1, on a machine with two cores. Two programs
count the same tasks at once, and a crew of 2 counts them twice, in turns.

    common/benches/crews.py FRAMES_TIME ROUNDS N [--tasks K] [--task-cost C | --unit U]

Planning time is subtracted. The ratio is valid only on a machine without other load. The leader's share of the
crew's CPU seconds is always valid; it is one half if the work is shared evenly.
"""
import resource
import subprocess
import sys
import time


def run(program, *each):
    """Returns wall seconds, counted solutions, and the share of CPU seconds used by leaders."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    running = [subprocess.Popen([program, *more], stdout=subprocess.PIPE, text=True) for more in each]
    lines = [process.communicate()[0].splitlines()[-1] for process in running]
    seconds, after = time.time() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert all(process.returncode == 0 for process in running)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    words = [line.split() for line in lines]
    words = [line for line in words if "solutions," in line]
    leaders = sum(float(line[line.index("solutions,") + 1]) for line in words)
    counts = {line[line.index("solutions,") - 1] for line in words}
    return seconds, counts, leaders / cpu


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    program, rounds, args = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    planning, _, _ = run(program, [args[0], "--tasks", "0"])
    alone, crew, shares, counts = [], [], [], set()
    for _ in range(rounds):
        one = [*args, "--threads", "1", "--memory", str(6 << 30)]
        seconds, found, _ = run(program, one, one)
        alone.append(seconds - planning)
        counts |= found
        twice = 0.0
        for _ in range(2):
            seconds, found, share = run(program, [*args, "--threads", "2", "--memory", str(8 << 30)])
            twice += seconds - planning
            shares.append(share)
            counts |= found
        crew.append(twice)
    assert len(counts) == 1, f"counts differ: {counts}"
    by_round = " ".join(f"{a / b:.3f}" for a, b in zip(alone, crew))
    print(
        f"N = {' '.join(args)}: two crews of 1 {min(alone):.2f} s, twice a crew of 2 {min(crew):.2f} s, ratio of these "
        f"{min(alone) / min(crew):.3f} (by round {by_round}); leader's share of CPU seconds {sum(shares) / len(shares):.3f}"
    )


main()
