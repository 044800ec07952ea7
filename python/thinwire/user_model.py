# SPDX-License-Identifier: Apache-2.0
"""A model that a Python file has: what `thinwire train --model net.py:Net{width=32}` builds."""

import ast
import importlib.util
import inspect
import os
import sys
import traceback

from torch import nn


def _value(text):
    """A number, True, None, ... where the text is one; otherwise the text."""
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (SyntaxError, ValueError):
        return text


def _load(path):
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}")
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # for the file's own imports
    spec.loader.exec_module(module)
    return module


def build(arguments, form):
    """The module that file=, class= and the class's own arguments name.

    What the class does not get that way and has a parameter for, it gets from the data: channels, height, width,
    context, classes.
    """
    arguments = dict(arguments)
    path, name = arguments.pop("file"), arguments.pop("class")
    module = _load(path)
    made = getattr(module, name, None)
    if made is None:
        raise AttributeError(f"{path} has no class {name}")
    taken = inspect.signature(made).parameters
    given = {key: _value(text) for key, text in arguments.items()}
    for key, value in form.items():
        if key in taken:
            given.setdefault(key, value)
    model = made(**given)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{path}: {name} must make a torch.nn.Module, it made a {type(model).__name__}")
    return model


def sentence_of(error):
    """An error of the user's code in one sentence, with its place."""
    text = f"{type(error).__name__}: {error}".split("\n")[0]
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    files = [frame for frame in places if "site-packages" not in frame.filename and not frame.filename.startswith("<")]
    for frame in reversed(files or places):
        return f"{text} ({frame.filename}, line {frame.lineno})"
    return text
