# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The changed lines have the format of clang-format 14, and scripts/format changes no others."""

import pathlib
import platform
import shutil
import subprocess

import pytest

from conftest import ROOT, load

formatter = load("format")


def on_debian_12():
    """True on the release whose clang-format is the one that counts."""
    release = platform.freedesktop_os_release() if pathlib.Path("/etc/os-release").exists() else {}
    return (release.get("ID"), release.get("VERSION_ID")) == ("debian", "12")


@pytest.fixture(autouse=True)
def installed():
    """Only a release that lacks clang-format 14 may go without the tests."""
    if not shutil.which(formatter.CLANG_FORMAT):
        assert not on_debian_12(), f"{formatter.CLANG_FORMAT} is missing; scripts/setup check installs it"
        pytest.skip(f"no {formatter.CLANG_FORMAT} here; only Debian 12 must have it")


def test_the_last_commit_and_the_work_tree_are_formatted():
    if formatter.changes.commit("HEAD~1") is None:
        pytest.skip("git has no commit before the last one here")
    done = subprocess.run([ROOT / "scripts/format", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run scripts/format\n{done.stdout}{done.stderr}"


def test_only_changed_lines_are_formatted(repository):
    repository.commit(a_cc="int  a;\nint b;\n\nint  c;\n")
    repository.write(a_cc="int  a;\nint  b2;\n\nint  c;\n")
    status, out = repository.run("format", "--check", "HEAD")
    assert status == 1 and "+int b2;" in out and "-int  a;" not in out
    assert "run scripts/format HEAD" in out.splitlines()[-1]
    assert repository.run("format", "HEAD") == (0, "a.cc\n")
    assert (repository.folder / "a.cc").read_text() == "int  a;\nint b2;\n\nint  c;\n"
    assert repository.run("format", "--check", "HEAD") == (0, "")


def test_a_renamed_file_is_not_new_and_an_unknown_one_is(repository):
    repository.commit(a_cc="int  a;\n" * 20)
    repository.git("mv", "a.cc", "b.cc")
    repository.commit()
    repository.write(new_cc="int  n;\n")
    status, out = repository.run("format", "--check")
    assert status == 1 and "new.cc" in out and "b.cc" not in out


def test_the_last_commit_is_the_default(repository):
    repository.commit(a_cc="int  a;\n")
    assert repository.run("format", "--check")[0] == 1
    repository.commit(b_cc="int b;\n")
    assert repository.run("format", "--check")[0] == 0


def test_columns_of_the_kernels_style_stay(repository):
    text = ("#define A\t\t1\t/* one */\n#define BB(x)\t\\\n\tdo { x; } while (0)\n\n"
            "enum e {\n\tE_ONE\t= 1,\t/* one */\n\tE_TWENTY\t= 20,\n};\n\nint f(int a)\n{\n\treturn a;\n}\n")
    repository.write(kmod__a_c=text.replace("return a", "return  a"))
    assert repository.run("format", "HEAD") == (0, "kmod/a.c\n")
    assert (repository.folder / "kmod/a.c").read_text() == text


def test_two_styles():
    cxx = "int f(int* a) {\n  return *a;\n}\n"
    kernel = "int f(int *a)\n{\n\treturn *a;\n}\n"
    one_line = "int f(int* a) { return *a; }\n"
    assert formatter.formatted("provider/engine/x.cc", cxx, None) == one_line
    for path in ("kmod/x.c", "cm/x.c", "uapi/x.h", "tests/kmod/x.c", "provider/rdma_core/x.c"):
        assert formatter.formatted(path, cxx, None) == kernel, path
        assert formatter.formatted(path, kernel, None) == kernel, path


def test_a_missing_program_is_named(monkeypatch):
    monkeypatch.setattr(formatter, "CLANG_FORMAT", "no-such-program")
    with pytest.raises(formatter.Failed, match="no-such-program is not installed; scripts/setup check"):
        formatter.formatted("provider/engine/x.cc", "int a;\n", None)


def test_each_configuration_is_one_of_two():
    found = {(ROOT / path).resolve() for path in formatter.changes.listed() if path.endswith(".clang-format")}
    assert found == {ROOT / ".clang-format", ROOT / "kmod/.clang-format"}
    assert all((ROOT / path).exists() for path in formatter.STYLES)
