# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The pages for a reader's first hour name files, commands and tests that exist."""

import re

import pytest

from conftest import ROOT

PAGES = ["CONTRIBUTING.md", "tests/README.md", "docs/GLOSSARY.md", "docs/life-of-a-connection.md"]
FOLDERS = ("cm/", "docs/", "kmod/", "packaging/", "provider/", "scripts/", "tests/", "tools/", "uapi/")


def text(path):
    """Returns the content of a file of the project."""
    return (ROOT / path).read_text(encoding="utf-8")


def sources(*folders):
    """Returns the text of all sources in some folders."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.is_file()
             and path.suffix in (".c", ".cc", ".h", ".py", ".md", ".txt", ".tsv", "")
             and not {"corpus", "regression"} & set(path.parts)]
    return "\n".join(path.read_text(encoding="utf-8") for path in found)


def code(page):
    """Returns what a page has between backquotes, and the lines of its blocks without a language."""
    blocks = re.findall(r"^```\n(.*?)^```", text(page), re.S | re.M)
    prose = re.sub(r"^```.*?^```", "", text(page), flags=re.S | re.M)
    return re.findall(r"`([^`\n]+)`", prose) + [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page):
    named = {word for piece in code(page) for word in re.findall(r"[\w.*/-]+", piece) if word.startswith(FOLDERS)}
    assert named
    roots = (ROOT, (ROOT / page).parent)
    missing = [word for word in sorted(named) if not any(any(root.glob(word.rstrip("."))) for root in roots)]
    assert [word for word in missing if not re.search("NAME|TARGET", word)] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_exist(page):
    folder = (ROOT / page).parent
    for path, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text(page)):
        target = folder / path if path else ROOT / page
        assert target.exists(), path
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}, anchor


@pytest.mark.parametrize("page", PAGES[:2])
def test_commands_name_what_exists(page):
    commands = "\n".join(code(page))
    rules = " ".join(re.findall(r"^([\w %-]+):(?!=)", text("Makefile"), re.M)).replace("module-%", "module-6").split()
    assert set(re.findall(r"\bmake ([a-z][\w-]*)", commands)) - set(rules) == set()
    unit = sources("tests/unit", "tests/kuser")
    for suite, test in re.findall(r"--gtest_filter=(\w+)\.(\w+)", commands):
        assert re.search(rf"TEST(_F|_P)?\({suite}, {test}\)", unit), f"{suite}.{test}"
    tests = sources("tests/vm", "tests/kernel-less", "tests/protocol", "tests/packaging", "tests/rdma_core")
    for word in re.findall(r"-k ([\w/]+)", commands) + re.findall(r"verbs_data (\S+)", commands):
        assert word in tests, word
    for target in " ".join(re.findall(r"--target ([\w ]+)", commands)).split():
        assert re.search(rf"(usiw_unit_test|usiw_kuser_test|add_executable)\({target}\b", sources("tests")), target


def terms():
    """Returns pairs (term, explanation) of the glossary."""
    return re.findall(r"^- \*\*(.+?)\*\*: (.*(?:\n  .*)*)", text("docs/GLOSSARY.md"), re.M)


def test_the_glossary_is_in_order():
    keys = [re.sub(r"[^a-z0-9]", "", term.lower()) for term, _ in terms()]
    assert keys == sorted(keys) and len(keys) == len(set(keys))


def test_names_of_the_glossary_are_those_of_the_code():
    names = {word for _, explanation in terms() for piece in re.findall(r"`([^`]+)`", explanation)
             for word in re.findall(r"[A-Za-z_]\w{3,}", piece)}
    everything = set(re.findall(r"\w+", "\n".join([sources(*FOLDERS), text("Makefile")])))
    paths = set(re.findall(r"\w+", " ".join(str(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*"))))
    assert names - everything - paths == set()
