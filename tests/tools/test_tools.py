# SPDX-License-Identifier: Apache-2.0
"""The checks of tools/ can fail: each is shown something wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(os.environ["TW_SOURCE"]) / "tools"


def layers(folder):
    return subprocess.run([sys.executable, TOOLS / "check_layers.py", folder], capture_output=True, text=True)


@pytest.mark.parametrize("file, include, words", [
    ("core/a.h", "thinwire/plan/plan.h", "core may not include plan"),
    ("comm/a.cpp", "thinwire/codec/codec.h", "comm may not include codec"),
    ("codec/a.cpp", "thinwire/comm/comm.h", "codec may not include comm"),
    ("train/a.cpp", "thinwire/cli/verbs.h", "train may not include cli"),
    ("report/a.cpp", "ATen/core/Tensor.h", "report is free of torch"),
    ("comm/tcp/a.cpp", "torch/torch.h", "comm is free of torch"),
    ("odd/a.cpp", "vector", "knows no folder 'odd'"),
])
def test_layers_refuses(tmp_path, file, include, words):
    path = tmp_path / "thinwire" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"#include <{include}>\n")
    done = layers(tmp_path)
    assert done.returncode == 1 and words in done.stdout


def test_layers_allows(tmp_path):
    for file, include in [("comm/c10d.cpp", "torch/csrc/distributed/c10d/ProcessGroup.hpp"),
                          ("train/a.h", "thinwire/core/error.h"), ("exchange/a.h", "thinwire/plan/plan.h")]:
        path = tmp_path / "thinwire" / file
        path.parent.mkdir(parents=True)
        path.write_text(f'#include "{include}"\n')
    assert layers(tmp_path).returncode == 0


def ctest_of(tmp_path, *tests):
    """A build folder whose tests print the given texts and end with the given codes."""
    lines = []
    for name, text, code, labels in tests:
        (tmp_path / name).write_text(text)
        lines.append(f'add_test({name} sh -c "cat {tmp_path / name}; exit {code}")\n'
                     f'set_tests_properties({name} PROPERTIES LABELS "{labels}")\n')
    (tmp_path / "CTestTestfile.cmake").write_text("".join(lines))
    return subprocess.run([sys.executable, TOOLS / "run_tests", tmp_path], capture_output=True, text=True)


SKIPS = "[==========] 5 tests from 2 test suites ran. (0 ms total)\n[  PASSED  ] 3 tests.\n[  SKIPPED ] 2 tests.\n"


def test_run_tests_counts_cases(tmp_path):
    done = ctest_of(tmp_path, ("gtest", "a_test.cpp:3: Skipped\nno second machine\n" + SKIPS, 0, "fast"),
                    ("pytest", "....\n3 passed, 1 skipped in 0.01s\n", 0, ""), ("plain", "fine\n", 0, ""))
    assert done.returncode == 0
    assert "no second machine" in done.stdout
    assert done.stdout.splitlines()[-1] == "7 passed, 0 failed, 3 skipped"


def test_run_tests_fails(tmp_path):
    failing = "[==========] 4 tests from 1 test suite ran. (0 ms total)\n[  PASSED  ] 3 tests.\n"
    done = ctest_of(tmp_path, ("gtest", failing, 1, ""), ("died", "", 9, ""))
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "3 passed, 2 failed, 0 skipped"


def test_run_tests_wants_no_skip_in_core(tmp_path):
    done = ctest_of(tmp_path, ("gtest", SKIPS, 0, "core"))
    assert done.returncode == 1 and "labelled core may have no skip" in done.stdout


def test_run_tests_wants_a_test(tmp_path):
    done = ctest_of(tmp_path)
    assert done.returncode == 1


def test_docs_finds_and_mends_a_stale_part(tmp_path):
    (tmp_path / "tools").mkdir()
    tool = tmp_path / "tools" / "docs"
    tool.write_text((TOOLS / "docs").read_text())
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "said $1"\n')
    program.chmod(0o755)
    page = tmp_path / "README.md"
    page.write_text("a\n<!-- generated: thinwire list -->\nold\n<!-- end -->\nb\n")

    def docs(mode):
        return subprocess.run([sys.executable, tool, mode, program], capture_output=True, text=True)

    stale = docs("check")
    assert stale.returncode == 1 and "README.md is stale" in stale.stdout
    assert docs("write").returncode == 0
    assert page.read_text() == "a\n<!-- generated: thinwire list -->\nsaid list\n<!-- end -->\nb\n"
    assert docs("check").returncode == 0
