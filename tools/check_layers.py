#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom: the arrows of HACKING.md, and that the torch-free folders stay free of torch."""

import re
import sys
from pathlib import Path

# folder: the folders it may include beside itself. What a folder may include, its includers may include too.
MAY = {
    "core": [],
    "plan": ["core"],
    "sim": ["plan"],
    "report": ["plan"],
    "comm": ["core"],
    "codec": ["plan"],
    "exchange": ["codec", "comm"],
    "edge": ["exchange"],
    "parallel": ["edge"],
    "strategy": ["exchange"],
    "train": ["strategy", "parallel", "sim", "report"],
    "cli": ["train"],
}
TORCH_FREE = {"core", "plan", "sim", "report", "comm", "codec/kernels"}
TORCH_FREE_BUT = {"comm/c10d.cpp", "comm/c10d.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
TORCH = re.compile(r"^((torch|ATen|c10|caffe2)/|thinwire/comm/c10d\.h)")


def reachable(folder):
    found, todo = set(), [folder]
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += MAY[each]
    return found


def problems(root):
    """One sentence a wrong include."""
    for file in sorted((root / "thinwire").rglob("*.[hc]*")):
        if file.suffix not in (".h", ".cpp"):
            continue
        inside = file.relative_to(root / "thinwire")
        folder = inside.parts[0]
        if folder not in MAY:
            yield f"thinwire/{inside}: tools/check_layers.py knows no folder '{folder}'"
            continue
        plain = any(str(inside).startswith(f + "/") for f in TORCH_FREE) and str(inside) not in TORCH_FREE_BUT
        for included in INCLUDE.findall(file.read_text()):
            if plain and TORCH.match(included):
                yield f"thinwire/{inside}: includes <{included}>, and {folder} is free of torch"
            parts = included.split("/")
            if parts[0] == "thinwire" and len(parts) > 2 and parts[1] not in reachable(folder):
                yield f"thinwire/{inside}: includes {included}, and {folder} may not include {parts[1]}"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(problems(root))
    print("\n".join(found) if found else "layers: every include is allowed")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
