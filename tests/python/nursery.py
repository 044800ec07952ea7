# SPDX-License-Identifier: Apache-2.0
"""Forks rank processes off one process that has imported torch, which takes seconds: a child is as a fresh program, for
this one computes nothing. Reads a request a line, in JSON, and answers with a line:

    {"scenario", "arguments", "environment", "output", "result"}   starts one; answers with its process id
    {"wait", "seconds"}                                            answers with the exit code of that process, or null
"""

import json
import os
import sys
import time

import torch

import ddp_scenarios
import scenarios


def take_part(request):
    """The child: the scenario, with its output and its result in files."""
    os.environ.update(request["environment"])
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(output, standard)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)  # what stood unwritten is the parent's
    torch.set_num_threads(1)
    name = request["scenario"]
    module = scenarios if hasattr(scenarios, name) else ddp_scenarios
    result = getattr(module, name)(**request["arguments"])
    with open(request["result"], "w") as file:
        json.dump(result, file)
    scenarios.tw.shutdown()


def exit_code(process, seconds):
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= end:
            return None
        time.sleep(0.002)


def main():
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if "wait" in request:
            answer = exit_code(request["wait"], request["seconds"])
        else:
            answer = os.fork()
            if answer == 0:
                return take_part(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
