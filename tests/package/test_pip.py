# SPDX-License-Identifier: Apache-2.0
"""`pip install .` into an environment of its own; under another torch the package says so in one sentence.

It compiles what the package needs once more, in a folder beside the build's.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import run

STEP = """
import torch, thinwire
assert thinwire.__file__.startswith({prefix!r}), thinwire.__file__
thinwire.init()
model = thinwire.DataParallel(torch.nn.Linear(4, 2))
model(torch.ones(3, 4)).sum().backward()
assert model.weight.grad is not None
print("trained with", thinwire.__version__)
"""


def clean_environment(**more):
    return {**{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}, **more}


@pytest.fixture(scope="module")
def environment(source, build, tmp_path_factory):
    """Folder of a fresh virtual environment with this one's torch and build tools, and thinwire by pip."""
    if not list((build / "python" / "thinwire").glob("_thinwire*.so")):
        pytest.skip("the Python package was not built")
    folder = tmp_path_factory.mktemp("pip") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    torch_site = run(sys.executable, "-c", "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))")
    site = run(folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(site) / "borrowed.pth").write_text(torch_site)
    scripts = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    cache = (build / "CMakeCache.txt").read_text()
    # The build's own compiler, by the same name: else pip takes Python's, and ccache knows none of the objects.
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.M).group(1)
    build_pip = build.parent / f"{build.name}-pip"
    shutil.rmtree(build_pip, ignore_errors=True)
    run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps",
        "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--config-settings",
        f"build-dir={build_pip}", source, timeout=1500,
        env=clean_environment(PATH=scripts, CXX=compiler, CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count())))
    shutil.rmtree(build_pip)
    return folder


def test_pip_install_builds_and_the_package_trains(environment, tmp_path):
    prefix = str(environment)
    assert "trained with" in run(environment / "bin" / "python", "-c", STEP.format(prefix=prefix), cwd=tmp_path,
                                 env=clean_environment())


def test_another_torch_is_told_in_one_sentence(environment, tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '2.9.1'\n")
    done = subprocess.run([environment / "bin" / "python", "-c", "import thinwire"], cwd=tmp_path, text=True,
                          capture_output=True, env=clean_environment(PYTHONPATH=str(tmp_path)), timeout=60)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: thinwire was built for torch 2.13"), done.stderr
    assert "this is torch 2.9.1" in last and "pip install" in last
