# SPDX-License-Identifier: Apache-2.0
"""python -m thinwire: the tool inside Python, which trains a class of a user's own file."""

import json
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file

SMALL = ["data=synthetic{train=96,test=40}", "batch_size=16", "epochs=1", "report=false", "pin=none", "timeout_s=60"]
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes, width=4, name="plain"):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Linear(width * 28 * 28, classes)
        self.note = name

    def forward(self, x):
        return self.head(self.features(x).flatten(1))

class Broken(Net):
    def forward(self, x):
        raise ValueError("not today")

class NoTensor(Net):
    def forward(self, x):
        return 3

def number():
    return 3
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def tool(folder, *words, code=0):
    done = subprocess.run([sys.executable, "-m", "thinwire", *words], cwd=folder, capture_output=True, text=True,
                          timeout=240)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def last_object(done):
    return json.loads(done.stdout.splitlines()[-1])


def test_a_class_of_a_file_trains_on_one_and_two_ranks(folder):
    train = ["train", *SMALL, "--model", "net.py:Net{width=2}", "--json"]
    one = last_object(tool(folder, *train, "learning_rate=0.02"))
    two = last_object(tool(folder, *train, "learning_rate=0.02", "--ranks", "2"))
    assert one["steps"] == two["steps"] == 6 and two["wire_bytes_per_step"] > 0

    # The checkpoint has the names of the plain module, and loads into it.
    state = load_file(folder / two["run"] / "checkpoints/last/model.safetensors")
    namespace = {}
    exec(NET, namespace)
    net = namespace["Net"](classes=10, width=2)
    net.load_state_dict(state, strict=True)
    assert set(state) == set(net.state_dict())

    seen = last_object(tool(folder, "eval", two["run"], "--json"))
    assert seen["test_accuracy"] == two["test_accuracy"] and seen["samples"] == 40
    more = last_object(tool(folder, "train", "--resume", one["run"], "epochs=2", "--json"))
    assert more["steps"] == 12


@pytest.mark.parametrize("model, code, text", [
    ("net.py:Nat", 2, "has no class Nat"), ("nothing.py:Net", 2, "nothing.py"), ("net.py:Net{wdth=2}", 2, "wdth"),
    ("net.py:number", 2, "torch.nn.Module"), ("net.py:Broken", 1, "not today"), ("net.py:NoTensor", 1, "one tensor"),
])
def test_what_is_wrong_in_the_file_is_one_sentence(folder, model, code, text):
    done = tool(folder, "train", *SMALL, "--model", model, code=code)
    assert text in done.stderr and len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr, done.stderr


def test_ctrl_c_saves(folder):
    process = subprocess.Popen([sys.executable, "-m", "thinwire", "train", *SMALL, "--model", "net.py:Net", "epochs=10000",
                                "log_every=1"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while not list(folder.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in out, out + errors


def test_the_other_verbs_are_there(folder):
    assert "size_cap" in tool(folder, "list").stdout
    assert "unknown verb" in tool(folder, "trane", code=2).stderr
