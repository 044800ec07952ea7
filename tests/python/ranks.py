# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario (a function of scenarios.py or ddp_scenarios.py) on several rank processes and collects what each
returned."""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))


class Nursery:
    """The process that all ranks are forked from."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "nursery.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, cwd=HERE,
                                        env={**os.environ, "OMP_NUM_THREADS": "1"})

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


nursery = functools.cache(Nursery)  # ends with this process, when its standard input does


class Rank:
    def __init__(self, folder, number, scenario, arguments, environment):
        self.files = Path(folder, f"{number}.txt"), Path(folder, f"{number}.json")
        self.code = None
        self.process = nursery().ask(scenario=scenario, arguments=arguments, environment=environment,
                                     output=str(self.files[0]), result=str(self.files[1]))

    def wait(self, seconds):
        self.code = nursery().ask(wait=self.process, seconds=seconds)

    def kill(self):
        if self.code is None:
            os.kill(self.process, signal.SIGKILL)
            self.wait(60)

    @property
    def output(self):
        return self.files[0].read_text() if self.files[0].exists() else ""

    @property
    def result(self):
        return json.loads(self.files[1].read_text())


def start(name, ranks=2, environment=None, **arguments):
    """Starts the processes; returns [Rank] at once."""
    folder = tempfile.mkdtemp(prefix="thinwire-test-")
    return [Rank(folder, rank, name, arguments,
                 {"THINWIRE_RANK": str(rank), "THINWIRE_SIZE": str(ranks),
                  "THINWIRE_ADDRESS": f"file:{folder}/rendezvous", "THINWIRE_RUN_ID": os.path.basename(folder),
                  "THINWIRE_TIMEOUT": "20", **(environment or {})})
            for rank in range(ranks)]


def finish(started, timeout=240):
    end = time.monotonic() + timeout
    try:
        for rank in started:
            rank.wait(max(0.1, end - time.monotonic()))
    finally:
        for rank in started:
            rank.kill()
    return started


def run(name, ranks=2, timeout=240, environment=None, **arguments):
    """Results of all ranks; a rank that failed fails the test with its output."""
    done = finish(start(name, ranks, environment, **arguments), timeout)
    for number, rank in enumerate(done):
        assert rank.code == 0, f"rank {number} ended with {rank.code}:\n{rank.output}"
    return [rank.result for rank in done]
