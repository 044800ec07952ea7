# SPDX-License-Identifier: Apache-2.0
"""KF-56: a C++ program of at most 25 lines trains data-parallel against the installed library; the README's does too."""

import re
from pathlib import Path

import pytest

from conftest import run, run_ranks

PROJECT = Path(__file__).parent / "data_parallel"


README_PROGRAM = re.compile(r"<!-- example: train.cpp -->\n```cpp\n(.*?)```", re.S)


@pytest.fixture(scope="module")
def programs(source, installed, torch_prefix, tmp_path_factory):
    """Folder of the programs, built from a project of their own outside the source tree."""
    copy = tmp_path_factory.mktemp("project")
    for name in ("CMakeLists.txt", "main.cpp"):
        (copy / name).write_text((PROJECT / name).read_text())
    (copy / "train.cpp").write_text(README_PROGRAM.search((source / "README.md").read_text())[1])
    run("cmake", "-S", copy, "-B", copy / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed};{torch_prefix}")
    run("cmake", "--build", copy / "build", timeout=800)
    return copy / "build"


def test_kf56_wrapper_for_a_cpp_module(programs, tmp_path):
    assert len((PROJECT / "main.cpp").read_text().splitlines()) <= 25
    program = programs / "data_parallel"
    linked = run("ldd", program)
    assert "libtorch" in linked and "python" not in re.sub(r"/\S*", "", linked)

    two = run_ranks(program, 2, tmp_path)
    assert two[0] == two[1]
    one = [float.fromhex(v) for v in run(program).split()]
    assert len(one) == 10
    assert all(abs(float.fromhex(v) - w) <= 1e-6 for v, w in zip(two[0].split(), one))


def test_the_example_of_the_readme(programs, tmp_path):
    run_ranks(programs / "train", 2, tmp_path)
