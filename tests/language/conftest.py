# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Shared by the tests of the scripts that check comments and format: a repository to try them in."""

import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))


def load(name):
    """Returns a script without a suffix as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Repository:
    """A git repository that has the scripts and nothing else."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {**os.environ, "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        for name in ("plain-english", "same-tokens", "format", "checklib"):
            copy = shutil.copytree if (SCRIPTS / name).is_dir() else shutil.copy
            copy(SCRIPTS / name, self.folder / "scripts" / name)
        for name in (".clang-format", "kmod/.clang-format", ".gitignore"):
            shutil.copy(ROOT / name, self.folder / name)
        (folder / "scripts/plain-english.clean").write_text("# No file is clean.\n", encoding="utf-8")
        self.git("init", "-q", "-b", "main")
        self.commit()

    def git(self, *words):
        """Returns standard output."""
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
        done = subprocess.run(["git", *identity, *words], cwd=self.folder, env=self.env, capture_output=True, text=True,
                              check=True)
        return done.stdout.strip()

    def write(self, **texts):
        """Writes files; two underscores in a name stand for a slash, one before a suffix for the dot."""
        for name, text in texts.items():
            head, _, suffix = name.replace("__", "/").rpartition("_")
            path = self.folder / f"{head}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def commit(self, **texts):
        """Commits the work tree and returns the commit."""
        self.write(**texts)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def run(self, script, *arguments):
        """Returns (exit status, both outputs) of a script."""
        done = subprocess.run([self.folder / "scripts" / script, *arguments], cwd=self.folder, env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout


@pytest.fixture
def repository(tmp_path):
    """A fresh Repository with one commit."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "kmod").mkdir()
    return Repository(tmp_path)
