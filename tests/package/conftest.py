# SPDX-License-Identifier: Apache-2.0
"""What the tests of the installed package share: an install of this build, made once."""

import os
import subprocess
from pathlib import Path

import pytest


def run(*command, timeout=280, **options):
    """Runs a command; a failure shows its output."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=timeout, **options)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def run_ranks(program, ranks, folder, *arguments, timeout=60, environment=None):
    """What each of `ranks` processes of one run printed; they meet through a file in `folder`."""
    started = []
    for rank in range(ranks):
        env = {**os.environ, "THINWIRE_RANK": str(rank), "THINWIRE_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
               "THINWIRE_ADDRESS": f"file:{folder}/rendezvous", "THINWIRE_TIMEOUT": "20", **(environment or {})}
        started.append(subprocess.Popen([str(program), *arguments], env=env, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True))
    printed = []
    try:
        for process in started:
            printed.append(process.communicate(timeout=timeout)[0])
    finally:
        for process in started:
            process.kill()
    for rank, process in enumerate(started):
        assert process.returncode == 0, f"rank {rank} ended with {process.returncode}:\n{printed[rank]}"
    return printed


@pytest.fixture(scope="session")
def source():
    return Path(os.environ["TW_SOURCE"])


@pytest.fixture(scope="session")
def build():
    return Path(os.environ["TW_BUILD"])


@pytest.fixture(scope="session")
def installed(build, tmp_path_factory):
    """Prefix of an install of this build, outside the source tree."""
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", build, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="session")
def torch_prefix(build):
    """Where the build found torch: a folder for CMAKE_PREFIX_PATH."""
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("Torch_DIR:"):
            return line.split("=", 1)[1]
    pytest.skip("built without torch")


def has_no_network():
    """True where this process can cut a command off from the network: unshare works."""
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0
