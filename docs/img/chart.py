#!/usr/bin/env python3
"""Draws docs/img/times.svg from docs/benchmarks/times.csv: time of one core against N, with other programs.

    docs/img/chart.py
"""
import csv
import math
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 780, 460, 70, 260, 40, 50
COLORS = ["#888888", "#b07aa1", "#9c755f", "#e0a100", "#59a14f", "#4e79a7", "#c8102e"]
MARKS = [(1, "1 s"), (60, "1 min"), (3600, "1 h"), (86400, "1 d"), (7 * 86400, "1 week")]


def read():
    programs = {}
    with open(HERE.parent / "benchmarks/times.csv", encoding="utf-8") as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            point = (int(row["n"]), float(row["seconds"]), row["how"])
            programs.setdefault(row["program"], []).append(point)
    return programs


def main():
    programs = read()
    points = [point for line in programs.values() for point in line]
    first, last = min(p[0] for p in points), max(p[0] for p in points)
    low, high = math.log10(min(p[1] for p in points)), math.log10(max(p[1] for p in points))

    def x(n):
        return LEFT + (n - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(seconds):
        part = (math.log10(seconds) - low) / (high - low)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13" role="img" aria-label="Seconds of one core against N, logarithmic">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="22" font-size="15" fill="#222">Time of one core for all solutions of N queens '
        '(open: from a part of the board)</text>',
    ]
    for seconds, label in [(0.1, "0.1 s")] + MARKS:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(seconds):.1f}" y2="{y(seconds):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(seconds) + 4:.1f}" text-anchor="end" fill="#444">{label}</text>')
    for n in range(first, last + 1):
        out.append(f'<text x="{x(n):.1f}" y="{HEIGHT - BOTTOM + 22}" text-anchor="middle" fill="#444">{n}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle" fill="#444">N</text>')
    for place, (name, line) in enumerate(programs.items()):
        ours = name == "this program"
        color, width = COLORS[place], 3 if ours else 1.5
        path = " ".join(f"{x(n):.1f},{y(s):.1f}" for n, s, _ in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>')
        for n, seconds, how in line:
            fill = color if how == "whole" else "#fff"
            out.append(f'<circle cx="{x(n):.1f}" cy="{y(seconds):.1f}" r="3.5" fill="{fill}" stroke="{color}" stroke-width="1.5"/>')
        at = TOP + 20 + 22 * place
        out.append(f'<line x1="{WIDTH - RIGHT + 16}" x2="{WIDTH - RIGHT + 36}" y1="{at}" y2="{at}" stroke="{color}" stroke-width="{width}"/>')
        weight = ' font-weight="bold"' if ours else ""
        out.append(f'<text x="{WIDTH - RIGHT + 42}" y="{at + 4}" fill="#222" font-size="12"{weight}>{escape(name)}</text>')
    out.append("</svg>")
    (HERE / "times.svg").write_text("\n".join(out) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
