# SPDX-License-Identifier: Apache-2.0
"""thinwire train under torchrun, which it finds without flags, and on Gloo through c10d."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(os.environ["TW_BUILD"]) / "bin" / "thinwire"
SMALL = ["data=synthetic{shape=1x8x8,classes=3,train=64,test=32}", "model=mlp{sizes=64-16-3}", "batch_size=16",
         "epochs=1", "report=false"]


def last_line(command, folder):
    done = subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_torchrun_and_c10d_train_as_two_local_ranks_do(tmp_path):
    train = ["train", *SMALL, "--json"]
    local = last_line([TOOL, *train, "--ranks", "2"], tmp_path)
    torchrun = last_line([sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python",
                          "--nproc-per-node", "2", TOOL, *train], tmp_path)
    c10d = last_line([TOOL, *train, "--ranks", "2", "--comm", "c10d"], tmp_path)
    for other in (torchrun, c10d):
        assert other["test_loss"] == local["test_loss"] and other["steps"] == local["steps"] == 4


def test_two_machines_join_by_hand(tmp_path):
    """Each rank in a network namespace of its own, as on two machines: only --join, --rank and --ranks."""
    netlab = Path(os.environ["TW_SOURCE"]) / "bench" / "netlab"
    can = subprocess.run([netlab, "1", "none", "--", "true"], capture_output=True, text=True)
    if can.returncode == 2:
        pytest.skip("no network lab here: " + can.stderr.strip())
    words = " ".join(f"'{word}'" for word in ["train", *SMALL, "--json", "--ranks", "2"])
    script = f"rank=$THINWIRE_RANK; unset THINWIRE_RANK THINWIRE_SIZE; " \
             f"exec {TOOL} {words} --rank $rank --join $MASTER_ADDR:29811 > out.$rank"
    done = subprocess.run([netlab, "2", "1gbit", "--", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True,
                          timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    out = json.loads((tmp_path / "out.0").read_text().splitlines()[-1])
    assert out["steps"] == 4 and out["wire_bytes_per_step"] > 0
    assert (tmp_path / out["run"] / "log.rank1.txt").is_file()
