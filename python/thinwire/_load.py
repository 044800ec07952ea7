# SPDX-License-Identifier: Apache-2.0
"""Loads the extension, or says in one sentence why it cannot be loaded."""

import importlib
import re

import torch  # before the extension, which links against its libraries


def _series(version):
    return ".".join(re.match(r"(\d+)\.(\d+)", version).groups())


def _load():
    from thinwire import _build

    if _series(torch.__version__) != _series(_build.torch_version):
        raise ImportError(
            f"thinwire was built for torch {_build.torch_version} and this is torch {torch.__version__}; "
            "build it again here with: pip install --no-build-isolation --force-reinstall thinwire")
    return importlib.import_module("thinwire._thinwire")


native = _load()
Error = native.Error
ConfigError = native.ConfigError
CommError = native.CommError
DataError = native.DataError
UnsupportedError = native.UnsupportedError
