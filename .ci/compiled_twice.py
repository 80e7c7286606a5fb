#!/usr/bin/env python3
"""Counts the registry crates that several cargo commands compiled more than once in one profile.

Cargo compiles the libraries of procedural macros separately if they need other features there; the list shows the features.

Arguments: files with the output of `cargo … --message-format json`, one for each command.
"""

import collections
import json
import pathlib
import sys

compiled = collections.defaultdict(list)
for path in map(pathlib.Path, sys.argv[1:]):
    for message in map(json.loads, path.read_text().splitlines()):
        if message["reason"] != "compiler-artifact" or message["fresh"] or not message["package_id"].startswith("registry"):
            continue
        target, profile = message["target"], message["profile"]
        key = message["package_id"].split("#")[1], target["name"], tuple(target["kind"]), tuple(sorted(profile.items()))
        compiled[key].append(f"{path.stem}: {', '.join(message['features']) or 'no features'}")

twice = {package: by for (package, *_), by in sorted(compiled.items()) if len(by) > 1}
print(f"{len(compiled)} compilations of registry crates, {len(twice)} crates compiled twice in one profile")
for package, by in twice.items():
    print(f"  {package} ({'; '.join(by)})")
if not compiled:
    sys.exit("nothing was compiled: start from an empty target folder")
