#!/usr/bin/env python3
"""Records docs/img/cast.svg: `queensctl status --watch` on a real run until its result, as an animated SVG.

    pip install pyte; cargo build --release; docs/img/cast.py [PROGRAMS [N]]

Starts a coordinator from PROGRAMS (target/release), runs the screen on a terminal of 80 x 24, and records it once
per second, in real time, at most for a minute. Meanwhile two workers join, and one of them is killed. The leases are
short, so that the other worker soon gets its tasks. Choose N so that a core counts it in about 20 seconds.
"""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from xml.sax.saxutils import escape

import pyte

HERE = Path(__file__).resolve().parent
ROWS, COLUMNS, SECONDS, RESULT, EVERY = 24, 80, 60.0, 4.0, 1.0
CELL, LINE = 8.4, 17
PLAIN = "#d8dee6"
# Indexed by the color number of the terminal's palette: red, green, yellow, blue, cyan.
COLORS = {1: "#ff8a8f", 2: "#7fd08c", 3: "#f0c05a", 4: "#6cb0f5", 6: "#7fd1dd"}


def record(command, environment, events):
    """Returns the cells of the terminal, once per second, until some seconds after the result.

    Calls each of `events` after its number of seconds.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    seen, begun, finished = [], time.monotonic(), None
    while len(seen) * EVERY < (SECONDS if finished is None else finished + RESULT):
        if finished is None and (event := events.get(len(seen) * EVERY)) is not None:
            event()
        until = begun + (len(seen) + 1) * EVERY
        while (left := until - time.monotonic()) > 0:
            if select.select([terminal], [], [], left)[0]:
                try:
                    part = os.read(terminal, 65536)
                except OSError:
                    part = b""
                if not part:
                    sys.exit("the screen has ended")
                stream.feed(part)
        seen.append([[screen.buffer[y][x] for x in range(COLUMNS)] for y in range(ROWS)])
        if finished is None and any(": complete " in line for line in screen.display):
            finished = len(seen) * EVERY
    os.write(terminal, b"q")
    os.waitpid(child, 0)
    if finished is None or finished < max(events):
        sys.exit(f"the run finished after {finished} s: choose another N")
    return seen


def color(name):
    palette = pyte.graphics.FG_BG_256
    return COLORS.get(palette.index(name), PLAIN) if name in palette[:16] else PLAIN


def row(cells, y):
    """Returns a row as SVG text, one element per style."""
    spans, start = [], 0
    style = lambda cell: (color(cell.fg), cell.bold)
    for x in range(1, COLUMNS + 1):
        if x == COLUMNS or style(cells[x]) != style(cells[start]):
            text = "".join(cell.data for cell in cells[start:x])
            if text.strip():
                ink, bold = style(cells[start])
                text = text.rstrip()
                weight = ' font-weight="bold"' if bold else ""
                spans.append(f'<text x="{10 + start * CELL:.1f}" y="{20 + y * LINE}" fill="{ink}"{weight} '
                             f'textLength="{len(text) * CELL:.1f}">{escape(text)}</text>')
            start = x
    return "".join(spans)


def draw(seen):
    width, height = 20 + COLUMNS * CELL, 16 + ROWS * LINE
    whole = len(seen) * EVERY
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
           'font-family="ui-monospace,monospace" font-size="14">',
           "<style>text{white-space:pre}g{visibility:hidden}"]
    for at in range(len(seen)):
        low, high = 100 * at / len(seen), 100 * (at + 1) / len(seen)
        out.append(f"#f{at}{{animation:k{at} {whole}s step-end infinite}}"
                   f"@keyframes k{at}{{0%{{visibility:{'visible' if at == 0 else 'hidden'}}}"
                   f"{low:.3f}%{{visibility:visible}}{high:.3f}%{{visibility:hidden}}}}")
    out.append(f'</style><rect width="100%" height="100%" rx="8" fill="#12161b"/>')
    for at, cells in enumerate(seen):
        out.append(f'<g id="f{at}">' + "".join(row(line, y) for y, line in enumerate(cells)) + "</g>")
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    programs = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / "target/release").resolve()
    n = sys.argv[2] if len(sys.argv) > 2 else "20"
    environment = {**os.environ, "TERM": "xterm-256color", "RUST_LOG": "info"}
    environment.pop("NO_COLOR", None)
    with tempfile.TemporaryDirectory() as folder:
        started = []
        try:
            coordinator = subprocess.Popen(
                [programs / "coordinator", "--n", n, "--listen", "127.0.0.1:0", "--no-http", "--sync-ms", "500",
                 "--lease-ms", "3000", "--data-dir", f"{folder}/data"],
                stderr=subprocess.PIPE, text=True)
            started.append(coordinator)
            next(line for line in coordinator.stderr if "listening on" in line)
            # Without an address the programs find the coordinator and their join strings there.
            join = ["--data-dir", f"{folder}/data"]
            def join_as(name):
                started.append(subprocess.Popen(
                    [programs / "worker", *join, "--threads", "1", "--name", name, "--quiet",
                     "--spool", f"{folder}/{name}"]))

            events = {3: lambda: join_as("node-a"), 6: lambda: join_as("node-b"), 9: lambda: started[-1].kill()}
            seen = record([str(programs / "queensctl"), *join, "status", "--watch"], environment, events)
        finally:
            for child in started:
                child.kill()
                child.wait()
    (HERE / "cast.svg").write_text(draw(seen), encoding="utf-8")


if __name__ == "__main__":
    main()
