# SPDX-License-Identifier: Apache-2.0
"""KF-58: every option in the generated tables and every command in the documents is accepted; a misspelt one is not."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

SOURCE, TOOL = Path(os.environ["TW_SOURCE"]), Path(os.environ["TW_BUILD"]) / "bin" / "thinwire"
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.S | re.M)
SHELL = {"", "sh", "bash", "console", "text"}
INDENTED = re.compile(r"^(?: {4}\S.*\n)+", re.M)
TOML = re.compile(r"^```toml\n# (\w+\.toml)\n(.*?)^```$", re.S | re.M)
COMMAND = re.compile(r"^(?:\S*\$ )?(?:build/bin/)?thinwire (.*)$")
PLACEHOLDER = re.compile(r"\b(RUN|FILE|HOST|PORT|VERB|RATE|OPTIONS|COMMAND)\b|\.\.\.|<")


def commands():
    """(page, arguments) of every command line of the tool in a code block."""
    pages = [*SOURCE.glob("*.md"), *SOURCE.glob("docs/**/*.md"), SOURCE / "examples" / "README.md"]
    for page in pages:
        if page.name.startswith(("add-a-", "add-an-")):
            continue  # their commands name what the reader is about to write
        text = page.read_text()
        blocks = [body for language, body in FENCE.findall(text) if language in SHELL]
        for block in blocks + INDENTED.findall(FENCE.sub("", text)):
            for line in block.replace("\\\n", " ").splitlines():
                found = COMMAND.match(line.strip())
                if found and not PLACEHOLDER.search(found[1].split("#")[0]):
                    yield page.relative_to(SOURCE), shlex.split(found[1], comments=True)


def tool(*arguments, cwd=None):
    return subprocess.run([TOOL, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A place to run them: what the commands read is there, and what they write leaves the source alone."""
    made = tmp_path_factory.mktemp("docs")
    for name in ("tests", "examples", "bench"):
        (made / name).symlink_to(SOURCE / name)
    for page in SOURCE.glob("docs/**/*.md"):
        for name, text in TOML.findall(page.read_text()):
            (made / name).write_text(text)
    for run in {word for _, arguments in commands() for word in arguments if re.fullmatch(r"runs/[\w-]+", word)}:
        done = tool("train", f"name={run[5:]}", "data=synthetic{shape=1x8x8,classes=3,train=64,test=32}",
                    "model=mlp{sizes=64-16-3}", "batch_size=16", "epochs=1", "report=false", cwd=made)
        assert done.returncode == 0, done.stderr
    return made


def test_kf58_every_command_is_accepted(folder):
    found = list(commands())
    assert len(found) >= 8, "the pattern finds the commands no longer"
    for page, arguments in found:
        if arguments[0] == "train" and "--dry-run" not in arguments and "--options" not in arguments:
            arguments.append("--dry-run")
        if arguments[0] == "reproduce" and "--list" not in arguments:
            arguments.append("--dry-run")
        done = tool(*arguments, cwd=folder)
        assert done.returncode == 0, f"{page}: thinwire {shlex.join(arguments)}\n{done.stdout}{done.stderr}"


def train_options():
    """(key, assignment) of every row of the table."""
    table = tool("train", "--options", "--markdown").stdout.replace("\\|", "|")
    rows = re.findall(r"^\| `(\w+)` \| `[^`]*` \| `(\w+=[^`]*)` \|", table, re.M)
    assert len(rows) > 20 and len(rows) == len(re.findall(r"^\| `", table, re.M))
    return rows


def test_kf58_every_option_is_accepted_and_misspelt_refused():
    for key, assignment in train_options():
        done = tool("train", "--dry-run", assignment, cwd=SOURCE)  # the plan of the example is a file
        assert done.returncode == 0, f"{assignment}\n{done.stdout}{done.stderr}"
        wrong = key + key[-1]
        done = tool("train", "--dry-run", f"{wrong}=1")
        assert done.returncode == 2 and f"'{wrong}'" in done.stderr and f"'{key}'" in done.stderr, done.stderr
