# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""scripts/same-tokens sees each change of code, and no change of comments."""

import subprocess

import pytest

from conftest import load

guard = load("same-tokens")

#: Path, text, and another text with the same code.
EQUAL = [
    ("x.c", "int a; /* one */ // two\n", "int a;\n\n/* three\n * four */\n"),
    ("x.cc", 'f("// no comment", \'"\', "/*");  // one\n', 'f("// no comment", \'"\',\n  "/*");\n'),
    ("x.cc", 'auto s = R"x(// " )x";// one\n', 'auto s = R"x(// " )x"; /* two */\n'),
    ("x.h", "#define A(x) \\\n  (x) // one\n", "#define A(x) (x)\n"),
    ("x.h", "#error don't // one\nint a;\n", "#error don't\nint a;\n"),
    ("x.cc", "int n = 1'000; // it's\n", "int n = 1'000;\n"),
    ("x.cc", "// a\\\n still the comment\nint b;\n", "int b;\n"),
    ("x.py", "a = 1  # one\n\n\nb = '#'\n", "# two\na = 1\nb = '#'\n"),
    ("x.py", 'def f():\n    """One."""\n    return 1\n', 'def f():\n    """Two.\n\n    3.\n    """\n    return 1\n'),
    ("x.py", 'def f():\n    """One."""\n', 'def f():\n    """Two."""\n'),
    ("x.py", "f(1,\n  2)\n", "f(1, 2)  # one\n"),
    ("x", "#!/usr/bin/python3\n# one\na = 1\n", "#!/usr/bin/python3\na = 1\n"),
    ("x.sh", "a=1 # one\n\n# two\nb=2\n", "a=1\nb=2\n"),
    ("x.sh", "echo '# no' \"${a#b}\" $# # one\n", "echo '# no' \"${a#b}\" $#\n"),
    ("x", "#!/bin/sh\n# one\ncat <<E\n# text\nE\n", "#!/bin/sh\ncat <<E\n# text\nE\n"),
    ("x.sh", "case $a in\n'#') b ;; # one\nesac\n", "case $a in\n'#') b ;;\nesac\n"),
    ("x.sh", "a=$((1 << 2)) # one\nb\n", "a=$((1 << 2))\nb\n"),
    ("CMakeLists.txt", "set(a \"#\") # one\n", "# two\nset(a \"#\")\n"),
    ("x.lua", "a = '--' -- one\n", "a = '--'\n"),
    ("x.md", "one\n", "two\n"),
    ("docs/man/usiw.1", "one\n", "two\n"),
]

#: Path, text, and another text with other code.
DIFFERENT = [
    ("x.c", "int a; // one\n", "int b; // one\n"),
    ("x.c", 'char *s = "// one";\n', 'char *s = "// two";\n'),
    ("x.cc", 'auto s = R"x(// one)x";\n', 'auto s = R"x(// two)x";\n'),
    ("x.c", "a = b + +c;\n", "a = b++ c;\n"),
    ("x.c", "int a;\n", "int a; /* one */ int b;\n"),
    ("x.h", "#define A (x)\n", "#define A(x)\n"),
    ("x.h", "#define A 1\nint b;\n", "#define A 1 int b;\n"),
    ("x.c", "int a; // one\nint b;\n", "int a; // one int b;\n"),
    ("x.py", "a = '# one'\n", "a = '# two'\n"),
    ("x.py", "if a:\n    b()\nc()\n", "if a:\n    b()\n    c()\n"),
    ("x.py", 'def f():\n    x = """One."""\n', 'def f():\n    x = """Two."""\n'),
    ("x.py", "a = 1\n", "# a = 1\n"),
    ("x.sh", "echo a # one\n", "echo a# one\n"),
    ("x.sh", "echo '# one'\n", "echo '# two'\n"),
    ("x.sh", "cat <<E\n# one\nE\n", "cat <<E\n# two\nE\n"),
    ("x.sh", "a=${b#x}\n", "a=${b#y}\n"),
    ("x", "#!/bin/sh\na\n", "#!/bin/sh -e\na\n"),
    ("CMakeLists.txt", "set(a \"# one\")\n", "set(a \"# two\")\n"),
    ("x.lua", "a = '-- one'\n", "a = '-- two'\n"),
    ("x.tsv", "# one\n", "# two\n"),
]


@pytest.mark.parametrize("path, before, after", EQUAL)
def test_comments_do_not_count(path, before, after):
    assert guard.difference(path, before.encode(), after.encode()) is None
    assert guard.difference(path, after.encode(), before.encode()) is None


@pytest.mark.parametrize("path, before, after", DIFFERENT)
def test_code_counts(path, before, after):
    assert guard.difference(path, before.encode(), after.encode()) is not None


def test_binary_content_counts():
    assert guard.difference("x.bin", b"\0\xff", b"\0\xfe") == "the content differs"
    assert guard.difference("x.bin", b"\0\xff", b"\0\xff") is None


def test_a_commit_and_a_range(repository):
    first = repository.commit(a_c="int a; // one\n", b_py="b = 1\n")
    second = repository.commit(a_c="int a; // two\n", b_py="# three\nb = 1\n")
    third = repository.commit(a_c="int a2; // two\n")
    assert repository.run("same-tokens", second) == (0, "")
    assert repository.run("same-tokens", "HEAD") == (1, "a.c: 'a' became 'a2'\n")
    assert repository.run("same-tokens", f"{first}..{second}") == (0, "")
    assert repository.run("same-tokens", f"{first}..{third}")[0] == 1
    assert repository.run("same-tokens", f"{second}..") == repository.run("same-tokens", "HEAD")


def test_new_deleted_and_renamed_files_count(repository):
    repository.commit(a_c="// one\n")
    repository.git("mv", "a.c", "b.c")
    repository.commit()
    assert repository.run("same-tokens", "HEAD") == (1, "a.c: is gone\nb.c: is new\n")


def test_the_mode_counts(repository):
    repository.commit(a_sh="# one\n")
    (repository.folder / "a.sh").chmod(0o755)
    repository.commit()
    status, out = repository.run("same-tokens", "HEAD")
    assert status == 1 and "100755" in out


def test_a_docstring_that_a_program_prints_is_named(repository):
    repository.commit(a_py='"""One."""\nprint(__doc__)\n')
    repository.commit(a_py='"""Two."""\nprint(__doc__)\n')
    status, out = repository.run("same-tokens", "HEAD")
    assert status == 0 and out.startswith("a.py: ") and "docstring" in out


def test_a_closed_pipe_is_no_error(repository):
    repository.commit(**{f"a{n}_c": "int a;\n" * 20 for n in range(2000)})
    script = repository.folder / "scripts/same-tokens"
    done = subprocess.run(["sh", "-c", f"{script} HEAD | head -n 1"], cwd=repository.folder, env=repository.env,
                          capture_output=True, text=True, check=True)
    assert done.stdout == "a0.c: is new\n" and done.stderr == ""


def test_an_unknown_commit(repository):
    status, out = repository.run("same-tokens", "nowhere")
    assert status == 2 and "nowhere" in out
