# SPDX-License-Identifier: Apache-2.0
"""TensorBoard's own reader reads the event files, and finds in them what metrics.jsonl says."""
import glob
import json
import os
import subprocess

import pytest

loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader",
                             reason="the Python package tensorboard is not installed")
TAGS = {"loss": "train/loss", "accuracy": "train/accuracy", "learning_rate": "train/learning_rate",
        "epoch": "train/epoch", "test_loss": "test/loss", "test_accuracy": "test/accuracy",
        "samples_per_s": "speed/samples_per_s", "step_s": "speed/step_s", "compute_s": "speed/compute_s",
        "exposed_s": "speed/exposed_s", "wire_bytes": "wire/sent_bytes"}


def value_of(summary):
    """simple_value, which newer readers turn into a tensor of one element."""
    return summary.tensor.float_val[0] if summary.HasField("tensor") else summary.simple_value


def test_event_file_equals_the_metrics(tmp_path):
    program = os.path.join(os.environ["TW_BUILD"], "bin", "write_sample_run")
    run = subprocess.run([program, str(tmp_path)], check=True, capture_output=True, text=True).stdout.strip()
    files = glob.glob(os.path.join(run, "tensorboard", "events.out.tfevents.*"))
    assert len(files) == 1
    events = list(loader.EventFileLoader(files[0]).Load())
    assert events[0].file_version == "brain.Event:2"
    assert all(1.5e9 < event.wall_time < 1e10 for event in events)
    with open(os.path.join(run, "metrics.jsonl")) as file:
        rows = [json.loads(line) for line in file]
    assert len(events) == 1 + len(rows)
    for event, row in zip(events[1:], rows):
        assert event.step == row["step"]
        found = {value.tag: value_of(value) for value in event.summary.value}
        expected = {TAGS[key]: value for key, value in row.items() if key in TAGS}
        assert found == pytest.approx(expected, rel=1e-6)


def test_a_damaged_record_is_noticed(tmp_path):
    """The checksums are real: a flipped bit does not pass."""
    program = os.path.join(os.environ["TW_BUILD"], "bin", "write_sample_run")
    run = subprocess.run([program, str(tmp_path)], check=True, capture_output=True, text=True).stdout.strip()
    path = glob.glob(os.path.join(run, "tensorboard", "events.out.tfevents.*"))[0]
    whole = len(list(loader.EventFileLoader(path).Load()))
    with open(path, "r+b") as file:
        file.seek(1000)
        byte = file.read(1)[0]
        file.seek(1000)
        file.write(bytes([byte ^ 4]))
    try:
        read = len(list(loader.EventFileLoader(path).Load()))
    except Exception as error:  # the reader's own kind of error differs between versions
        assert "corrupt" in str(error).lower() or "crc" in str(error).lower() or "data" in str(error).lower()
    else:
        assert read < whole
