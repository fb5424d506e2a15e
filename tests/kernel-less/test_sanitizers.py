# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The recipes of docs/sanitizers.md, as they stand there: a program without a fault passes, and a planted one shows."""

import os
import pathlib
import re

import pytest

from support.procs import Proc

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = (ROOT / "tests" / "kernel-less" / "programs" / "two_threads.c").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "sanitizers.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^```\n(.*?)^```", PAGE, re.M | re.S)


def follow(usiw_run, tmp_path, recipe, source):
    """Types a recipe in a shell; returns the shell, ended."""
    (tmp_path / "program.c").write_text(source)
    path = f"{pathlib.Path(usiw_run.path).parent}:{os.environ['PATH']}"
    shell = Proc(["sh", "-e", "-c", f"cd {tmp_path}\n{recipe}"], env={"PATH": path})
    shell.wait(120)
    return shell


def test_the_page_has_recipes():
    assert len([each for each in RECIPES if "=address" in each]) == 3
    assert len([each for each in RECIPES if "=thread" in each]) == 2


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.partition(" -o")[0].replace(" ", ""))
def test_recipe(usiw_run, tmp_path, recipe):
    shell = follow(usiw_run, tmp_path, recipe, PROGRAM)
    assert (shell.wait(), shell.output) == (0, "done\n")
    fault, report = (("RACE", "ThreadSanitizer: data race") if "=thread" in recipe else
                     ("OVERFLOW", "AddressSanitizer: heap-buffer-overflow"))
    shell = follow(usiw_run, tmp_path, recipe, f"#define {fault}\n{PROGRAM}")
    assert shell.wait() != 0
    assert report in shell.output
