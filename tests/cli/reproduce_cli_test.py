# SPDX-License-Identifier: Apache-2.0
"""thinwire reproduce, run as a program: a tiny experiment end to end, and what it refuses."""
import json
import os
import signal
import subprocess
from pathlib import Path

TOOL = str(Path(os.environ["TW_BUILD"]) / "bin" / "thinwire")
TINY = """title = "Tiny"
paper = "nobody"
claim = "It learns as well."
seeds = 2
[base]
model = "mlp{sizes=64-16-4}"
data = "synthetic{shape=1x8x8,classes=4,train=256,test=64,noise=0.2}"
ranks = 2
batch_size = 16
steps = %d
learning_rate = 0.05
pin = "none"
timeout_s = 20
[quick]
seeds = 1
[[arm]]
name = "dense"
[[arm]]
name = "seldom"
accumulate = 4
[[arm]]
name = "ef_topk"
form = "ef|topk{ratio=0.1}"
[[arm]]
name = "wild"
learning_rate = 1e6
[[rule]]
holds = "reaches"
arm = "dense"
value = 50
[[rule]]
holds = "bytes_ratio"
arm = "seldom"
of = "dense"
least = 3
[[rule]]
holds = "better"
arm = "dense"
of = "wild"
"""


def run(*words, code=0, cwd=None):
    done = subprocess.run([TOOL, "reproduce", *words], capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def write(tmp_path, text):
    path = tmp_path / "tiny.toml"
    path.write_text(text)
    return str(path)


def test_tiny_experiment_end_to_end(tmp_path):
    out = tmp_path / "out"
    done = run(write(tmp_path, TINY % 60), "--json", "--out", str(out))
    said = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1 and said["experiment"] == "tiny" and said["signal"] == 0
    assert said["command"] == "thinwire reproduce tiny"
    arms = {one["arm"]: one for one in said["arms"]}
    assert set(arms) == {"dense", "seldom", "ef_topk", "wild"} and arms["dense"]["finished"] == 2
    assert arms["dense"]["test_accuracy"] > 0.5 and arms["ef_topk"]["gain"]["seeds"] == 2
    assert 3.9 < arms["dense"]["bytes_per_step"] / arms["seldom"]["bytes_per_step"] < 4.1
    assert arms["ef_topk"]["bytes_per_step"] < 0.5 * arms["dense"]["bytes_per_step"]
    assert len(said["runs"]) == 8 and "synthetic" in said["data"][0]
    assert [one["state"] for one in said["rules"]] == ["holds", "holds", "holds"], said["rules"]
    assert said["verdict"] == "reproduced"
    for name in ("measured.json", "result.json", "report.html", "report.md", "curves.html", "runs/dense-seed2/run.json"):
        assert (out / name).is_file(), name
    # Equal seeds gave equal batches: a run again from nothing has the same losses.
    again = json.loads(run(write(tmp_path, TINY % 60), "--json", "--out", str(tmp_path / "again")).stdout)
    assert [one["test_loss"] for one in again["runs"]] == [one["test_loss"] for one in said["runs"]]


def test_pieces_are_merged_and_nothing_is_run_twice(tmp_path):
    path, out = write(tmp_path, TINY % 8), str(tmp_path / "out")
    first = run(path, "--quick", "--arm", "ef_topk", "--out", out)
    assert "run 1 of 1: ef_topk-seed1" in first.stdout and "incomplete" in first.stdout
    second = run(path, "--quick", "--out", out)
    assert "run 1 of 4: dense-seed1" in second.stdout and "ef_topk-seed1, form" not in second.stdout
    third = run(path, "--quick", "--markdown", "--out", out)
    assert third.stdout.startswith("### Tiny\n\n    thinwire reproduce tiny --quick\n") and "run " not in third.stderr
    assert "| ef_topk | form=ef\\|topk{ratio=0.1} | 1 |" in third.stdout
    refused = run(write(tmp_path, TINY % 9), "--quick", "--out", out, code=2)
    assert "with other settings; take another --out" in refused.stderr


def test_interrupted_keeps_what_was_measured(tmp_path):
    path, out = write(tmp_path, TINY % 300), tmp_path / "out"
    started = subprocess.Popen([TOOL, "reproduce", path, "--out", str(out)], stdout=subprocess.PIPE, text=True)
    for line in started.stdout:  # the first run is done
        if line.startswith("dense, seed 1: "):
            break
    started.send_signal(signal.SIGINT)
    rest = started.stdout.read()
    assert started.wait(60) == 130, rest
    kept = json.loads((out / "measured.json").read_text())["runs"]
    assert kept and kept[0]["arm"] == "dense" and kept[0]["status"] == "finished"
    assert len(kept) < 8 and "incomplete" in rest and (out / "report.html").is_file()


def test_refusals(tmp_path):
    assert "did you mean 'error-feedback-dgc'" in run("error-feedback-dcg", code=2).stderr
    assert "--list shows them" in run(code=2).stderr
    assert "--seeds: must be in [1, 1000], got 0" in run("error-feedback-dgc", "--seeds", "0", code=2).stderr
    assert "unknown arm 'densed'; did you mean 'dense'" in run("error-feedback-dgc", "--arm", "densed", code=2).stderr
    bad = write(tmp_path, (TINY % 8).replace("ef|topk", "ef|tokp"))
    assert f"{bad}, line 21: arm ef_topk: unknown codec 'tokp'; did you mean 'topk'" in run(bad, code=2).stderr
    bad = write(tmp_path, (TINY % 8).replace("title", "titel"))
    assert f"{bad}, line 1: the experiment lacks the key 'title'" in run(bad, code=2).stderr
    assert not (tmp_path / "runs").exists()


def test_list_names_every_file():
    names = {path.stem for path in (Path(os.environ["TW_SOURCE"]) / "experiments").glob("*.toml")}
    assert {one["name"] for one in json.loads(run("--list", "--json").stdout)} == names
    for name in names:
        assert name in run("--list").stdout


def test_a_dry_run_checks_and_shows_without_training(tmp_path):
    path = write(tmp_path, TINY % 40)
    done = run(path, "--quick", "--dry-run", cwd=tmp_path)
    assert "seldom: seeds 1 to 1, 10 steps on 2 ranks, form none" in done.stdout
    assert not (tmp_path / "runs").exists()
    path = write(tmp_path, (TINY % 40).replace("ef|topk", "ef|topq"))
    assert "'topq'" in run(path, "--dry-run", code=2).stderr


def test_a_simulated_experiment_end_to_end(tmp_path):
    out = tmp_path / "out"
    said = json.loads(run("mg-wfbp", "--json", "--out", str(out)).stdout)
    assert said["clock"] == "virtual" and said["kind"] == "simulated" and said["x"] == "ranks"
    assert said["command"] == "thinwire reproduce mg-wfbp" and said["out"] == str(out)
    arms = {one["arm"]: one["points"] for one in said["arms"]}
    assert [point["ranks"] for point in arms["wfbp"]] == [2**i for i in range(1, 12)]
    for exact, published in zip(arms["exact"], arms["mg_wfbp"]):
        assert exact["step_s"] <= published["step_s"] * (1 + 1e-9)
    for name in ("result.json", "report.html", "report.md"):
        assert (out / name).is_file(), name
    assert "<polyline" in (out / "report.html").read_text()
    shown = run("mg-wfbp", "--markdown", "--out", str(out))
    assert shown.stdout == (out / "report.md").read_text() and "All times are virtual" in shown.stdout
    quick = run("mg-wfbp", "--quick", "--arm", "wfbp", "--arm", "single", "--out", str(out)).stdout
    assert "incomplete" in quick and "All times are virtual" in quick


def test_simulated_experiments_refuse_what_they_have_not(tmp_path):
    assert "--seeds: a simulated experiment has none" in run("mg-wfbp", "--seeds", "2", code=2).stderr
    assert "unknown arm 'exakt'; did you mean 'exact'" in run("mg-wfbp", "--arm", "exakt", code=2).stderr
    text = (Path(os.environ["TW_SOURCE"]) / "experiments" / "mg-wfbp.toml").read_text()
    bad = write(tmp_path, text.replace('grouping = "single"', 'grouping = "singel"'))
    refused = run(bad, code=2).stderr
    assert "arm single, ranks 2: unknown grouping 'singel'; did you mean 'single'" in refused
    dry = run("mg-wfbp", "--dry-run", cwd=tmp_path).stdout
    assert "exact: grouping=exact, ranks from 2 to 2048, in virtual time" in dry and not (tmp_path / "runs").exists()
    kinds = {one["name"]: one["kind"] for one in json.loads(run("--list", "--json").stdout)}
    assert kinds["mg-wfbp"] == "simulated" and kinds["covap"] == "trained"
