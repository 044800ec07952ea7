# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario (a function of scenarios.py) on several rank processes and collects what each returned."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Rank:
    def __init__(self, process, result_path):
        self.process = process
        self.result_path = result_path
        self.output = ""

    @property
    def code(self):
        return self.process.returncode

    @property
    def result(self):
        with open(self.result_path) as file:
            return json.load(file)


def start(name, ranks=2, environment=None, **arguments):
    """Starts the processes; returns [Rank] at once."""
    folder = tempfile.mkdtemp(prefix="thinwire-test-")
    started = []
    for rank in range(ranks):
        result = os.path.join(folder, f"{rank}.json")
        env = {**os.environ, "THINWIRE_RANK": str(rank), "THINWIRE_SIZE": str(ranks),
               "THINWIRE_ADDRESS": f"file:{folder}/rendezvous", "THINWIRE_RUN_ID": os.path.basename(folder),
               "THINWIRE_TIMEOUT": "20", "OMP_NUM_THREADS": "1", **(environment or {})}
        process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "scenarios.py"), name, json.dumps(arguments), result],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=HERE)
        started.append(Rank(process, result))
    return started


def finish(started, timeout=240):
    end = time.monotonic() + timeout
    try:
        for rank in started:
            rank.output, _ = rank.process.communicate(timeout=max(0.1, end - time.monotonic()))
    finally:
        for rank in started:
            if rank.process.poll() is None:
                rank.process.send_signal(signal.SIGKILL)
                rank.output += rank.process.communicate()[0]
    return started


def run(name, ranks=2, timeout=240, environment=None, **arguments):
    """Results of all ranks; a rank that failed fails the test with its output."""
    done = finish(start(name, ranks, environment, **arguments), timeout)
    for number, rank in enumerate(done):
        assert rank.code == 0, f"rank {number} ended with {rank.code}:\n{rank.output}"
    return [rank.result for rank in done]
