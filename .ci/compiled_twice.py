#!/usr/bin/env python3
"""Fails if several cargo commands compiled the same registry crate, because they chose other features for it.

Arguments: files with the output of `cargo … --message-format json`, one for each command.
"""

import collections
import json
import pathlib
import sys

compiled = collections.defaultdict(lambda: collections.defaultdict(set))
for path in map(pathlib.Path, sys.argv[1:]):
    for message in map(json.loads, path.read_text().splitlines()):
        if message["reason"] != "compiler-artifact" or message["fresh"] or not message["package_id"].startswith("registry"):
            continue
        target = message["target"]
        key = message["package_id"].split("#")[1], target["name"], *target["kind"]
        compiled[key][path.stem].update(message["features"])

twice = {key: by for key, by in sorted(compiled.items()) if len(by) > 1}
print(f"{len(compiled)} registry crates, {len(twice)} of them compiled by several commands")
for (package, *_), by in twice.items():
    changed = set.union(*by.values()) - set.intersection(*by.values())
    print(f"  {package}: {', '.join(sorted(changed)) or 'features of its dependencies'}")
if not compiled:
    sys.exit("nothing was compiled: start from an empty target folder")
if twice:
    sys.exit("choose the same features for all commands: [workspace.dependencies] in Cargo.toml, tests/Cargo.toml")
