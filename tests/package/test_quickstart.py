# SPDX-License-Identifier: Apache-2.0
"""The README's smallest program, taken from the README: KF-55."""

import os
import re
import time

from conftest import run

BLOCK = re.compile(r"<!-- quickstart: (\S+) -->\n```\w+\n(.*?)```", re.S)


def test_kf55_the_simplest_program_returns(source, installed, tmp_path):
    files = dict(BLOCK.findall((source / "README.md").read_text()))
    assert set(files) == {"average.cpp", "CMakeLists.txt", "run.sh"}
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace(":29517", f":{free_port()}"))
    environment = {**os.environ, "THINWIRE": str(installed)}
    run("bash", "-e", "run.sh", cwd=tmp_path, env=environment)  # builds, and runs once
    begin = time.monotonic()
    printed = run("bash", "-e", "run.sh", cwd=tmp_path, env=environment, timeout=30)
    assert time.monotonic() - begin < 10
    assert "rank 0 of 2: 1.5" in printed and "rank 1 of 2: 1.5" in printed


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
