#!/usr/bin/env python3
"""Measures the optimizations of the join: time without each over time with all, by N, on one core.

    common/benches/mechanisms.py [N ...]

N is any of 18, 20, 22, 24, 26 and 28, by default 22, 24 and 26. For 28 it joins the frame with A = 2524, C = 5477
(7 GB, a quarter of an hour), for the others a few fixed random frames of the middle m. All variants run in turns,
and the shortest time of each counts. The last lines are a table.
"""
import subprocess
import sys

# Number of frames and repetitions by N.
EFFORT = {18: (20, 5), 20: (10, 5), 22: (6, 4), 24: (4, 3), 26: (2, 3), 28: (1, 2)}


def bench(n):
    """Returns, by optimization, the time of the join without it over the time with all."""
    frames, repeat = EFFORT[n]
    command = ["cargo", "bench", "-q", "-p", "common", "--bench", "hjoin", "--", str(n), "--without", "all"]
    command += ["--frames", str(frames), "--repeat", str(repeat)]
    command += ["--columns", "2524,5477"] if n == 28 else []
    found = {}
    with subprocess.Popen(["taskset", "-c", "1", *command], stdout=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            print(line, end="", flush=True)
            name, _, words = line.partition(":")
            if name.startswith("no ") and "of the time" in words:
                found[name[3:]] = words.split()[-7]
    if running.returncode:
        sys.exit(f"{' '.join(command)}: exit code {running.returncode}")
    return found


def main():
    if any(not word.isdigit() or int(word) not in EFFORT for word in sys.argv[1:]):
        sys.exit(__doc__)
    boards = [int(word) for word in sys.argv[1:]] or [22, 24, 26]
    columns = [bench(n) for n in boards]
    print("| without | " + " | ".join(f"N = {n}" for n in boards) + " |")
    print("|---" * (1 + len(boards)) + "|")
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column[name] for column in columns) + " |")


main()
