"""The stamp of a record: what it names, and what must never be in it."""

import getpass
import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

from cleave.environment import environment


def test_versions_and_commit_as_plain_data():
    stamp = environment({"name": "some GPU"})
    assert json.loads(json.dumps(stamp)) == stamp
    assert stamp["python"] == platform.python_version()
    assert stamp["packages"]["numpy"] == np.__version__
    assert "egglog" in stamp["packages"]
    assert stamp["gpu"] == {"name": "some GPU"}
    assert stamp["commit"] is None or len(stamp["commit"]["id"]) == 40


def test_no_path_user_or_host_is_in_it():
    text = json.dumps(environment())
    assert str(Path.home()) not in text and str(Path(__file__).parents[2]) not in text
    assert platform.node() not in text or platform.node() in platform.system()
    assert f'"{getpass.getuser()}"' not in text


def test_commit_of_a_copy_without_git(monkeypatch):
    monkeypatch.setenv("CLEAVE_COMMIT", "abc123+")
    assert environment()["commit"] == {"id": "abc123", "dirty": True}
    monkeypatch.setenv("CLEAVE_COMMIT", "abc123")
    assert environment()["commit"] == {"id": "abc123", "dirty": False}


def test_nothing_heavy_is_imported_to_find_out():
    code = "from cleave.environment import environment; environment(); import sys; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(shown.stdout.split()) & {"numpy", "egglog", "cupy", "torch", "sympy", "rich", "jax"}
