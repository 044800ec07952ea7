# SPDX-License-Identifier: Apache-2.0
"""thinwire train and thinwire eval, run as programs."""
import json
import os
import pty
import re
import shutil
import signal
import socket
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


WRONG = [  # words, and what the sentence says
    (["epoch=1"], "epochs"), (["=5"], "unknown option ''"), (["epochs"], "key=value"),
    (["epochs=x"], "a number was expected, got 'x'"), (["epochs=-1"], "epochs: must be in"),
    (["epochs=1.5"], "whole number"), (["epochs="], "got ''"), (["batch_size=0"], "batch_size: must be in [1,"),
    (["seed=-1"], "seed"), (["samples=1e30"], "samples"), (["learning_rate=nan"], "learning_rate"),
    (["label_smoothing=1"], "label_smoothing"), (["log_every=0"], "log_every"), (["timeout_s=0"], "timeout_s"),
    (["threads=-1"], "threads"), (["report=maybe"], "true or false"), (["pin=x"], "pin"), (["augment=x"], "crop_flip"),
    (["name=a/b"], "runs= sets the folder"), (["ranks=0"], "ranks: must be in [1, 4096], got 0"),
    (["--ranks", "0"], "ranks: must be in [1, 4096], got 0"), (["--ranks", "-3"], "got -3"),
    (["--ranks", "two"], "--ranks"), (["--rank", "1"], "--join"),
    (["--join", "127.0.0.1:1", "--rank", "0"], "at least 2"),
    (["--join", "127.0.0.1:1", "--ranks", "2"], "--rank: is needed"),
    (["--join", "127.0.0.1:1", "--ranks", "2", "--rank", "2"], "[0, 1], got 2"),
    (["--join", "nonsense", "--ranks", "2", "--rank", "0"], "HOST:PORT"),
    (["--join", "127.0.0.1:99999", "--ranks", "2", "--rank", "0"], "1..65535"),
    (["--frobnicate"], "--frobnicate"), (["nowhere.toml"], "nowhere.toml"), (["--resume", "/nowhere"], "/nowhere"),
    (["model=resnet{depth=19}"], "depth"), (["model=cnm"], "did you mean 'cnn'"), (["model="], "expected a name"),
    (["model=cnn{"], "at character 5"), (["model=cnn{width=0}"], "width"), (["model=cnn{wdth=2}"], "'wdth'"),
    (["model=char_transformer"], "takes text"), (["model=net.py:Net"], "python -m thinwire"),
    (["model=python{file=a.py}"], "python -m thinwire"),
    (["optimizer=sdg"], "sgd"), (["optimizer=sgd{momentum=x}"], "momentum"), (["schedule=cosin"], "cosine"),
    (["schedule=step{every=0}"], "every"), (["data=mist"], "data set"), (["data=idx"], "images="),
    (["data=synthetic{shape=foo}"], "shape"), (["data=synthetic{train=0}"], "train"),
    (["data=cifar10{folder=/nowhere}"], "/nowhere"), (["data=text{path=/nowhere}"], "/nowhere"),
    (["data=fashion_mnist{folder=/nowhere}"], "/nowhere"),
    (["grouping=wfpb"], "wfbp"), (["grouping=size_cap{bytes=x}"], "bytes"), (["form=nonne"], "none"),
    (["plan=nowhere.json"], "nowhere.json"), (["comm=nonsense", "--ranks", "2"], "transport"),
    (["comm=throttel|tcp", "--ranks", "2"], "throttle"), (["comm=none", "--ranks", "2"], "one rank"),
    (["comm=tcp{foo=1}", "--ranks", "2"], "'foo'"), (["interface=eth99", "--ranks", "2"], "eth99"),
    (["runs=/dev/null"], "/dev/null"),
]


@pytest.mark.parametrize("words, text", WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_wrong_word_is_one_sentence_and_code_2(tmp_path, words, text):
    done = run("train", *SMALL, f"runs={tmp_path}", *words, code=2)
    lines = done.stderr.splitlines()
    assert text in done.stderr and len(lines) == 1 and lines[0].startswith("thinwire: "), done.stderr
    assert not done.stdout and not list(tmp_path.iterdir())


def test_a_malformed_file_is_one_sentence_and_code_2(tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(b"junk")
    (tmp_path / "bad.toml").write_text("epochs = [1]")
    for words, text in (([f"data=idx{{images={bad},labels={bad}}}"], "no IDX file"),
                        ([f"data=text{{path={bad}}}", "model=char_transformer"], "too few"),
                        ([str(tmp_path / "bad.toml")], "line 1, epochs"),
                        ([f"plan={bad}", SMALL[0], "--ranks", "2"], "not valid JSON")):
        done = run("train", *words[:1], *SMALL[1:], f"runs={tmp_path}/runs", *words, code=2)
        assert text in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    done = run("eval", str(bad), SMALL[0], SMALL[1], code=2)
    assert "bad" in done.stderr and len(done.stderr.splitlines()) == 1


def test_what_a_launcher_started_is_not_contradicted(tmp_path):
    env = {**os.environ, "THINWIRE_RANK": "0", "THINWIRE_SIZE": "3", "THINWIRE_ADDRESS": "127.0.0.1:1"}
    done = run("train", *SMALL, f"runs={tmp_path}", "--ranks", "2", code=2, env=env)
    assert "has started 3" in done.stderr


def test_a_store_that_is_not_there_is_waited_for_no_longer_than_asked(tmp_path):
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    begin = time.monotonic()
    run("train", *SMALL, f"runs={tmp_path}", "timeout_s=2", code=1, env=env)
    assert time.monotonic() - begin < 60


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
        if key == "grouping":
            words += ["--ranks", "2", "--comm", "local"]
        if key == "plan":
            words += ["--ranks", "2", "model=mlp{sizes=784-256-10}"]
        if key in ("comm", "quality", "forms"):
            words += ["--ranks", "2"]
        if key == "ranks":
            words += ["--comm", "local"]
        run("train", *SMALL, "steps=1", f"runs={tmp_path}", *words, cwd=os.environ["TW_SOURCE"])
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
    # The tensors alone are a checkpoint too, of a model that is named.
    alone = tmp_path / "alone.safetensors"
    safetensors_torch.save_file(state, alone)
    seen = last_object(run("eval", str(alone), SMALL[0], SMALL[1], "--json"))
    assert seen["test_accuracy"] == out["test_accuracy"] and seen["step"] is None


def test_damaged_checkpoint_is_named(tmp_path):
    out = last_object(train(tmp_path))
    path = Path(out["run"]) / "checkpoints" / "last" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    done = run("eval", out["run"], code=2)
    assert "model.safetensors" in done.stderr


def test_two_ranks_over_tcp(tmp_path):
    one = last_object(train(tmp_path, "learning_rate=0.02"))
    two = last_object(train(tmp_path, "learning_rate=0.02", "--ranks", "2"))
    assert two["samples"] == one["samples"] and two["wire_bytes_per_step"] > 0
    assert two["test_loss"] == pytest.approx(one["test_loss"], rel=1e-3)
    logs = sorted(p.name for p in Path(two["run"]).glob("log.rank*.txt"))
    assert logs == ["log.rank0.txt", "log.rank1.txt"]
    events = json.loads((Path(two["run"]) / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert any("exchange" in event["name"] for event in events)
    assert json.loads((Path(two["run"]) / "run.json").read_text())["command"][0] == TOOL


def test_two_ranks_as_threads_count_their_bytes(tmp_path):
    out = last_object(train(tmp_path, "--ranks", "2", "--comm", "local"))
    assert out["wire_bytes_per_step"] > 4 * 1762  # the parameters, once


def test_covap_sends_a_part_a_step(tmp_path):
    words = ("data=synthetic{train=128,test=40}", "model=mlp{sizes=784-256-10}", "steps=8", "batch_size=16", "pin=none",
             f"runs={tmp_path}", "report=false", "--json", "--ranks", "2", "--comm", "local")
    dense = last_object(run("train", *words))
    part = last_object(run("train", *words, "grouping=covap{interval=4,bytes=100KiB,first=10KiB}",
                           "form=ef{schedule=ramp}|none"))
    assert part["wire_bytes_per_step"] == pytest.approx(dense["wire_bytes_per_step"] / 4, rel=0.02)


def test_two_machines_join_without_a_launcher(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [TOOL, "train", *SMALL, f"runs={tmp_path}", "--json", "--join", f"127.0.0.1:{port}", "--ranks", "2", "--rank"]
    started = [subprocess.Popen([*words, rank], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for rank in "01"]
    printed = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], printed
    assert json.loads(printed[0][0].splitlines()[-1])["steps"] == 6 and not printed[1][0]


def test_mpirun_is_found(tmp_path):
    mpirun = shutil.which("mpirun")
    if not mpirun:
        pytest.skip("mpirun is not installed")
    command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", TOOL, "train", *SMALL, f"runs={tmp_path}",
               "--json"]
    for comm in ("tcp", "mpi"):
        if comm == "mpi" and "mpi" not in json.loads(run("doctor", "--json").stdout)["transports"]:
            continue
        done = subprocess.run([*command, "--comm", comm], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert last_object(done)["wire_bytes_per_step"] > 0


def test_a_plan_by_hand_is_run(tmp_path):
    plan = Path(os.environ["TW_SOURCE"]) / "examples/plan/two_buckets.json"
    done = run("train", "data=synthetic{train=96,test=40}", "model=mlp{sizes=784-256-10}", "epochs=1", "pin=none",
               f"runs={tmp_path}", "report=false", "--ranks", "2", f"plan={plan}")
    assert "2 messages" in done.stdout
    done = run("train", *SMALL, f"runs={tmp_path}", "--ranks", "2", f"plan={plan}", code=2)
    assert "plan" in done.stderr


def weights(out):
    return (Path(out["checkpoint"]) / "model.safetensors").read_bytes()


def test_plan_auto_measures_chooses_and_compares(tmp_path):
    """What it measures with leaves no trace in the training: the plan it wrote, given by hand, trains to the same bits."""
    words = ["--ranks", "2", "optimizer=sgd{momentum=0}", "report=true"]
    done = train(tmp_path / "auto", *words, "plan=auto", "quality=bounded")
    out = last_object(done)
    assert "measured: an all_reduce takes" in done.stderr
    assert "predicted and measured: step" in done.stderr
    run_folder = Path(out["run"])
    choice = json.loads((run_folder / "choice.json").read_text())
    assert out["predicted_step_s"] == choice["chosen"]["predicted_step_s"] > 0
    assert out["predicted_bytes_per_step"] == choice["chosen"]["predicted_bytes_per_step"] > 0
    considered = {one["form"] for one in choice["others"]} | {choice["chosen"]["form"]}
    assert {"none", "cast{f16}", "ef|topk{ratio=0.01}", "ef|sign", "ef|powersgd{rank=4}"} <= considered
    assert choice["verdict"] in done.stderr and choice["verdict"] in Path(out["report"]).read_text()
    by_hand = last_object(train(tmp_path / "hand", *words, f"plan={run_folder / 'plan.json'}"))
    assert weights(by_hand) == weights(out)
    # The files are those that thinwire plan reads.
    again = run("plan", "--profile", str(run_folder / "profile.json"), "--cluster", str(run_folder / "cluster.json"),
                "--quality", "bounded", "--json")
    assert json.loads(again.stdout)["dense"]["predicted_step_s"] == pytest.approx(choice["dense"]["predicted_step_s"])


def test_plan_auto_obeys_the_forms_given(tmp_path):
    out = last_object(train(tmp_path, "--ranks", "2", "--comm", "throttle{rate=1mbit}|local", "plan=auto",
                            "forms=ef|topk{ratio=0.1};cast{f16}", "steps=2"))
    choice = json.loads((Path(out["run"]) / "choice.json").read_text())
    assert choice["chosen"]["form"] == "ef|topk{ratio=0.1}", "a slow link"
    assert {one["form"] for one in choice["others"]} <= {"none", "cast{f16}", "ef|topk{ratio=0.1}"}
    assert out["wire_bytes_per_step"] < 0.5 * choice["dense"]["predicted_bytes_per_step"]


def test_a_resumed_run_keeps_its_plan(tmp_path):
    """What the memories of its form hold back would be lost with another."""
    words = ["--ranks", "2", "plan=auto", "forms=ef|topk{ratio=0.1}"]
    first = last_object(train(tmp_path, *words, "--comm", "throttle{rate=1mbit}|local"))
    plan = (Path(first["run"]) / "plan.json").read_text()
    assert "topk" in plan
    done = run("train", "--resume", first["run"], "epochs=2", "--comm", "local", "--json")
    assert "the plan of the run that is resumed goes on" in done.stderr
    assert (Path(last_object(done)["run"]) / "plan.json").read_text() == plan
    other = run("train", "--resume", first["run"], "epochs=2", "--ranks", "3", "--comm", "local", "--json")
    assert "measured: an all_reduce takes" in other.stderr, "a plan for two ranks is none for three"


def test_a_plan_that_draws_by_step_goes_on_bit_for_bit(tmp_path):
    words = ["--ranks", "2", "schedule=constant"]
    made = last_object(train(tmp_path / "made", *words, "--comm", "throttle{rate=1mbit}|local", "forms=qsgd{bits=4}"))
    plan = Path(made["run"]) / "plan.json"
    assert "qsgd" in plan.read_text()
    words += ["--comm", "local", f"plan={plan}"]
    whole = last_object(train(tmp_path / "whole", *words, "epochs=2"))
    half = last_object(train(tmp_path / "half", *words))
    resumed = last_object(run("train", "--resume", half["run"], "epochs=2", "--json"))
    assert weights(resumed) == weights(whole) != weights(half)


def test_plan_auto_of_one_rank_has_nothing_to_choose(tmp_path):
    done = train(tmp_path, "plan=auto")
    assert "nothing to choose" in done.stderr and last_object(done)["steps"] == 6


def test_quality_means_auto_and_contradicts_a_plan(tmp_path):
    words = ["--ranks", "2", "--comm", "local", "steps=1"]
    assert "predicted_step_s" in last_object(train(tmp_path, *words, "quality=free"))
    assert "leave them out" in train(tmp_path, *words, "quality=free", "plan=examples/plan/two_buckets.json", code=2,
                                     cwd=os.environ["TW_SOURCE"]).stderr
    assert "did you mean 'bounded'" in train(tmp_path, "plan=auto", "quality=bouned", code=2).stderr
    assert "topk" in train(tmp_path, "plan=auto", "forms=ef|topq", code=2).stderr
    assert "momentum" in train(tmp_path, "quality=bounded", "optimizer=sgd{momentum=much}", code=2).stderr
    done = train(tmp_path, "--ranks", "3", "--comm", "local", "plan=auto", "batch_size=2", code=2)
    assert "the first batch has 2 for 3 ranks" in done.stderr, "on all ranks at once"


def test_profile_writes_what_plan_reads(tmp_path):
    words = [word for word in SMALL if word != "epochs=1"]
    out = json.loads(run("profile", *words, "--ranks", "2", "--quality", "same", "--out", str(tmp_path), "--json").stdout)
    assert out["tensors"] == 8 and out["ranks"] == 2 and len(out["speed"]) == 2
    assert out["forward_s"] > 0 and out["backward_s"] > 0 and out["update_s"] >= 0
    for link in ("all_reduce", "gather"):
        assert out["links"][link]["bytes_per_s"] > 1e6 and out["links"][link]["residual"] < 1
    plan = run("plan", "--profile", out["profile"], "--cluster", out["cluster"], "--explain")
    assert "Send whole gradients" in plan.stdout
    assert "at least 2 ranks" in run("profile", *words, code=2).stderr


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(tmp_path):
    words = [TOOL, "train", *SMALL, f"runs={tmp_path}", "epochs=40"]
    leader, follower = pty.openpty()
    process = subprocess.Popen(words, stdout=follower, stderr=subprocess.PIPE)
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 65536):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    assert process.wait(timeout=60) == 0
    assert b"\r" in seen and b"img/s" in seen.replace(b"images/s", b"img/s") and b"loss" in seen
    plain = run(*words[1:]).stdout
    assert "\r" not in plain and "\x1b" not in plain and "test accuracy" in plain


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


def test_sigterm_saves_and_leaves(tmp_path):
    process = start_long(tmp_path, "--ranks", "2")
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 143, out + errors
    folder = next(tmp_path.iterdir())
    assert (folder / "checkpoints" / "last" / "state.json").is_file()
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    # On another number of ranks it says what changes.
    step = json.loads((folder / "checkpoints" / "last" / "state.json").read_text())["step"]
    done = run("train", "--resume", str(folder), f"steps={step + 1}", "--ranks", "1")
    assert "2 ranks before, 1 now" in done.stdout


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
