# SPDX-License-Identifier: Apache-2.0
"""tools/setup in a folder of its own: another torch, options for pip, and what an interruption leaves. No network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ["TW_SOURCE"])


@pytest.fixture
def setup(tmp_path):
    shutil.copytree(SOURCE / "tools", tmp_path / "tools")

    def run(profile="build", **variables):
        return subprocess.run([tmp_path / "tools" / "setup", profile], capture_output=True, text=True, timeout=240,
                              env={**os.environ, **variables})

    run.folder = tmp_path
    return run


def test_a_torch_that_is_there_is_taken_and_pip_gets_its_options(setup):
    # With --no-index pip finds nothing, so this setup stops half way, as one that is interrupted does.
    there = {"THINWIRE_TORCH": sys.executable, "PIP_ARGS": "--no-index"}
    first = setup(**there)
    assert f"setup: using the torch of {sys.executable}" in first.stdout
    assert first.returncode != 0 and "No matching distribution found" in first.stderr
    assert (setup.folder / ".venv" / ".thinwire-incomplete").exists()
    taken = subprocess.run([setup.folder / ".venv/bin/python", "-c", "import torch; print(torch.__version__)"],
                           capture_output=True, text=True)
    assert taken.returncode == 0, taken.stderr
    assert setup("check", **there).returncode == 1
    again = setup(**there)
    assert "setup: .venv is half made; starting it again" in again.stdout


@pytest.mark.parametrize("torch, words", [("/nowhere/python", "no such file or folder: /nowhere/python"),
                                          ("/bin/true", "has no torch of 2.9 or later")])
def test_a_torch_that_cannot_be_taken_is_named(setup, torch, words):
    done = setup(THINWIRE_TORCH=torch, PYTHON=sys.executable, PIP_ARGS="--no-index")
    assert done.returncode == 1
    assert "setup: THINWIRE_TORCH: " in done.stderr and words in done.stderr


def test_an_unknown_profile_is_refused(setup):
    done = setup("everything")
    assert done.returncode == 2 and "got everything" in done.stderr
