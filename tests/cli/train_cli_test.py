# SPDX-License-Identifier: Apache-2.0
"""thinwire train and thinwire eval, run as programs."""
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

TOOL = str(Path(os.environ["TW_BUILD"]) / "bin" / "thinwire")
SMALL = ["data=synthetic{train=96,test=40}", "model=cnn{width=2,hidden=8}", "batch_size=16", "epochs=1", "report=false",
         "pin=none", "timeout_s=20"]


def run(*words, code=0, timeout=120, **kwargs):
    done = subprocess.run([TOOL, *words], capture_output=True, text=True, timeout=timeout, **kwargs)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def train(tmp_path, *words, **kwargs):
    return run("train", *SMALL, f"runs={tmp_path}", "--json", *words, **kwargs)


def last_object(done):
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_json_has_the_promised_keys(tmp_path):
    out = last_object(train(tmp_path, "report=true"))
    for key in ("test_accuracy", "test_loss", "steps", "samples", "step_s", "compute_s", "exposed_s",
                "wire_bytes_per_step", "report"):
        assert key in out
    assert out["steps"] == 6 and out["samples"] == 96 and Path(out["report"]).is_file()


def test_dry_run_prints_what_it_would_use_and_reads_back(tmp_path):
    first = run("train", "--dry-run", "epochs=7", "model=resnet{depth=20}", "--ranks", "3").stdout
    assert "epochs = 7\n" in first and 'model = "resnet{depth=20}"\n' in first and "ranks = 3\n" in first
    path = tmp_path / "again.toml"
    path.write_text(first)
    assert run("train", str(path), "--dry-run").stdout == first


def test_default_configuration_is_the_documented_one():
    golden = (Path(os.environ["TW_SOURCE"]) / "tests/cli/default_train.toml").read_text()
    assert run("train", "--dry-run").stdout == golden


@pytest.mark.parametrize("words, text", [
    (["epoch=1"], "epochs"),
    (["model=resnet{depth=19}"], "depth"),
    (["model=cnm"], "cnn"),
    (["optimizer=sdg"], "sgd"),
    (["schedule=cosin"], "cosine"),
    (["data=mist"], "data set"),
    (["nowhere.toml"], "nowhere.toml"),
    (["--resume", "/nowhere"], "/nowhere"),
    (["--frobnicate"], "--frobnicate"),
    (["grouping=wfpb", "--ranks", "2", "--comm", "local"], "wfbp"),
])
def test_usage_errors_end_with_2(tmp_path, words, text):
    done = run("train", *SMALL, f"runs={tmp_path}", *words, code=2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def options():
    rows = re.findall(r"^\| `(\w+)` \| .* \| `(\S.*?)` \| .* \|$", run("train", "--options", "--markdown").stdout, re.M)
    assert len(rows) > 25
    return rows


def test_kf58_every_documented_option_runs(tmp_path):
    """KF-58: with the example value of the table each option is accepted and constructs."""
    for key, example in options():
        words = [example.replace("\\|", "|")]
        if key == "model":
            words += ["data=synthetic{shape=3x32x32,train=8,test=4}"]
        if key == "grouping" or key == "algorithm":
            words += ["--ranks", "2", "--comm", "local"]
        if key == "comm":
            words += ["--ranks", "2"]
        if key == "ranks":
            words += ["--comm", "local"]
        run("train", *SMALL, "steps=1", f"runs={tmp_path}", *words)
        wrong = key[:len(key) // 2] + key[len(key) // 2 + 1:]
        if len(key) >= 4:
            done = run("train", f"{wrong}=1", code=2)
            assert wrong in done.stderr and key in done.stderr


def test_eval_agrees_with_the_end_of_training(tmp_path):
    out = last_object(train(tmp_path))
    seen = last_object(run("eval", out["run"], "--json"))
    assert seen["samples"] == 40
    assert seen["test_accuracy"] == pytest.approx(out["test_accuracy"], abs=1e-12)
    assert seen["test_loss"] == pytest.approx(out["test_loss"], rel=1e-6)
    shared = last_object(run("eval", out["run"], "--json", "--ranks", "3", "--comm", "local"))
    assert shared["samples"] == 40 and shared["test_accuracy"] == seen["test_accuracy"]


def test_checkpoint_opens_in_python(tmp_path):
    torch = pytest.importorskip("torch")
    safetensors_torch = pytest.importorskip("safetensors.torch")
    out = last_object(train(tmp_path))
    path = Path(out["run"]) / "checkpoints" / "last"
    state = safetensors_torch.load_file(path / "model.safetensors")

    class Cnn(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = torch.nn.Conv2d(1, 2, 3, padding=1)
            self.conv2 = torch.nn.Conv2d(2, 4, 3, padding=1)
            self.fc1 = torch.nn.Linear(4 * 7 * 7, 8)
            self.fc2 = torch.nn.Linear(8, 10)

    Cnn().load_state_dict(state, strict=True)
    optimizer = safetensors_torch.load_file(path / "optimizer.safetensors")
    assert "conv1.weight/momentum" in optimizer
    # What Python writes is read back.
    safetensors_torch.save_file(state, path / "model.safetensors")
    run("eval", str(path))


def test_damaged_checkpoint_is_named(tmp_path):
    out = last_object(train(tmp_path))
    path = Path(out["run"]) / "checkpoints" / "last" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    done = run("eval", out["run"], code=1)
    assert "model.safetensors" in done.stderr


def test_two_ranks_over_tcp(tmp_path):
    one = last_object(train(tmp_path, "learning_rate=0.02"))
    two = last_object(train(tmp_path, "learning_rate=0.02", "--ranks", "2"))
    assert two["samples"] == one["samples"] and two["wire_bytes_per_step"] > 0
    assert two["test_loss"] == pytest.approx(one["test_loss"], rel=1e-3)
    logs = sorted(p.name for p in Path(two["run"]).glob("log.rank*.txt"))
    assert logs == ["log.rank0.txt", "log.rank1.txt"]


def processes_of(marker):
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes() \
                    and b"Z" != (entry / "stat").read_bytes().rsplit(b")", 1)[1].split()[0]:
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def start_long(tmp_path, *words):
    process = subprocess.Popen([TOOL, "train", *SMALL, f"runs={tmp_path}", "epochs=100000", "log_every=1", *words],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.time() + 60
    while not list(tmp_path.glob("*/metrics.jsonl")):
        assert process.poll() is None and time.time() < end, process.stderr.read()
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("ranks", [1, 2])
def test_kf41_ctrl_c_saves_and_can_be_resumed(tmp_path, ranks):
    process = start_long(tmp_path, "--ranks", str(ranks))
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 130, out + errors
    assert "--resume" in out
    folder = next(tmp_path.iterdir())
    assert (folder / "checkpoints" / "last" / "state.json").is_file()
    end = time.time() + 3
    while processes_of(str(tmp_path)) and time.time() < end:
        time.sleep(0.02)
    assert not processes_of(str(tmp_path))
    step = json.loads((folder / "checkpoints" / "last" / "state.json").read_text())["step"]
    done = run("train", "--resume", str(folder), f"steps={step + 2}", "--json")
    assert last_object(done)["steps"] == step + 2


def test_kf41_killed_rank_is_named(tmp_path):
    process = start_long(tmp_path, "--ranks", "2")
    victim = next(pid for pid in processes_of(str(tmp_path))
                  if b"THINWIRE_RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes())
    os.kill(victim, signal.SIGKILL)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "rank 1 was ended by signal 9" in errors
    assert not processes_of(str(tmp_path))


def test_kf41_killed_launcher_leaves_nobody(tmp_path):
    process = start_long(tmp_path, "--ranks", "2")
    process.kill()
    process.wait()
    end = time.time() + 3
    while processes_of(str(tmp_path)) and time.time() < end:
        time.sleep(0.02)
    assert not processes_of(str(tmp_path))
