# SPDX-License-Identifier: Apache-2.0
"""KF-57: nothing is fetched while building, and without torch the rest builds and passes its tests.

The whole of it, torch included, is built and tested without a network in .ci/run; here the part that is quick.
"""

import re
import shutil

from conftest import has_no_network, run

FETCHES = re.compile(r"\b(FetchContent\w*|ExternalProject\w*|file\s*\(\s*DOWNLOAD|git\s+clone|curl|wget)\b", re.I)


def test_kf57_no_submodule_and_no_download(source):
    assert not (source / ".gitmodules").exists()
    files = [source / "CMakeLists.txt", *source.glob("cmake/*"), *(p for folder in ("thinwire", "tests", "bench", "python",
             "examples", "fuzz") for p in (source / folder).rglob("CMakeLists.txt"))]
    assert len(files) > 20
    for file in files:
        found = FETCHES.search(file.read_text())
        assert found is None, f"{file}: {found[0]}"


def test_kf57_the_plain_part_builds_without_torch_or_network(source, build):
    # Beside the other build folders the relative paths are theirs, so that ccache knows the sources.
    folder = build.parent / f"{build.name}-offline"
    shutil.rmtree(folder, ignore_errors=True)
    offline = ["unshare", "-rn"] if has_no_network() else []
    run(*offline, "cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DTW_TORCH=OFF", "-DTW_DEVELOPER=ON",
        f"-DTW_TORCH_HINT={folder}/nothing", "-DTW_MPI=OFF")
    assert "Torch_DIR" not in (folder / "CMakeCache.txt").read_text()
    run(*offline, "cmake", "--build", folder, "-j2", "--target", "core_test", timeout=560)
    run(*offline, "ctest", "--test-dir", folder, "--no-tests=error", "-R", "^core_test$")
    shutil.rmtree(folder)
