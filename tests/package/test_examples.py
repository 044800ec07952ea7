# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/ are short and do what their README says."""

import re
import subprocess
import sys

import pytest

from conftest import run, run_ranks

ACCURACY = re.compile(r"rank (\d) of 2: accuracy (\d\.\d+)")


def learned(printed):
    """Both ranks report, and both have learned the spirals."""
    found = dict(ACCURACY.findall(printed))
    assert set(found) == {"0", "1"}, printed
    assert all(float(accuracy) > 0.9 for accuracy in found.values()), printed


def test_each_is_under_60_lines(source):
    programs = [p for folder in ("cpp", "python", "plan") for p in (source / "examples" / folder).iterdir()
                if p.is_file()]
    assert len(programs) == 3
    for program in programs:
        assert len(program.read_text().splitlines()) < 60, program


def test_cpp(build, tmp_path):
    learned("".join(run_ranks(build / "bin" / "spirals", 2, tmp_path)))


def test_cpp_under_torchrun(build):
    learned(run(sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc-per-node", "2",
                build / "bin" / "spirals", timeout=120))


def test_python_under_torchrun(source, build):
    if not list((build / "python" / "thinwire").glob("_thinwire*.so")):
        pytest.skip("the Python package was not built")
    learned(run(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                source / "examples" / "python" / "spirals.py", timeout=120))


def test_plan(source, build):
    plan = source / "examples" / "plan" / "two_buckets.json"
    tool = build / "bin" / "thinwire"
    assert "valid for 2 ranks, 2 exchanges" in run(tool, "plan", "--check", plan, "--ranks", "2")
    refused = subprocess.run([tool, "plan", "--check", plan, "--ranks", "1"], capture_output=True, text=True)
    assert refused.returncode == 2 and "exchange" in refused.stderr + refused.stdout
