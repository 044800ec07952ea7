# SPDX-License-Identifier: Apache-2.0
"""`thinwire bench comm` as a person runs it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(os.environ["TW_BUILD"]) / "bin" / "thinwire"


def bench(*arguments, text=""):
    return subprocess.run([TOOL, "bench", "comm", "--seconds", "0.02", *arguments], input=text, capture_output=True,
                          text=True, timeout=120)


@pytest.mark.parametrize("comm, ranks", [("tcp", 2), ("tcp", 3), ("local", 3), ("c10d", 2)])
def test_every_size_is_a_row(comm, ranks):
    done = bench("--comm", comm, "--ranks", str(ranks), "--size", "4KiB", "--size", "1MiB", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["bytes"] for row in rows] == [4096, 1 << 20]
    for row in rows:
        assert row["comm"] == comm and row["ranks"] == ranks
        assert row["bus_bytes_per_s"] == pytest.approx(2 * (ranks - 1) / ranks * row["bytes"] / row["time_s"])
        assert row["cpu_s_per_gb"] > 0
        assert ("time_ratio" in row) == (comm == "tcp" and row["bytes"] == 4096)


def test_sizes_from_standard_input():
    done = bench("--size", "-", "--json", text="4096\n8192\n")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["bytes"] for line in done.stdout.splitlines()] == [4096, 8192]


def test_a_missed_target_is_exit_code_3():
    slow = ("--comm", "throttle{rate=1gbit,call_ms=2}|tcp", "--size", "4KiB")
    done = bench(*slow, "--check")
    assert done.returncode == 3 and "missed: all_reduce 4.1 kB" in done.stderr, done.stderr
    assert bench(*slow).returncode == 0


@pytest.mark.parametrize("arguments, word", [(["--size", "3"], "--size"), (["--seconds", "0"], "--seconds"),
                                             (["--pin", "maybe"], "--pin"), (["--ranks", "1"], "2 ranks"),
                                             (["--secnods", "2"], "'--seconds'")])
def test_what_is_wrong_is_said(arguments, word):
    done = bench(*arguments)
    assert done.returncode == 2 and word in done.stderr, done.stderr


def test_help_has_an_example():
    assert "thinwire bench comm --comm tcp" in bench("--help").stdout
