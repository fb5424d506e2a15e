# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What README and docs/examples tell people to type is there: make targets, files, packages. (Whether it works shows
only where it is typed.)"""

import os
import pathlib
import re
import subprocess

import pytest

from support import procs

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD") or ROOT / "build")
README = ROOT / "README.md"
EXAMPLES = sorted((ROOT / "docs" / "examples").iterdir())
PAGES = [README, *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests" / "vm" / "README.md"]


def output(*command):
    """What a command prints."""
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout


def code_of(page):
    """The parts of a Markdown page that are code."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```", text, re.M | re.S)
    return "\n".join(blocks + re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)))


def make_words(text):
    """The targets in each `make ...` of a script."""
    for words in re.findall(r"^(?:RUN |- run: )?\s*make (?:-C \S+ )?([a-z][\w .=-]*)", text, re.M):
        yield from (word for word in re.split(r"\s+", words.strip()) if word)


def test_make_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {word for line in re.findall(r"^([\w. -]+):(?!=)", makefile, re.M) for word in line.split()}
    named = {
        word
        for page in PAGES for line in code_of(page).splitlines()
        for word in make_words(line.partition("#")[0].partition("&&")[0])
    }
    named |= {word for path in EXAMPLES for line in path.read_text(encoding="utf-8").splitlines() if "/usiw" in line
              for word in make_words(line)}
    assert "install-local" in named and "check-debug" in named
    assert {word
            for word in named if word not in targets and not word.startswith("module-") and "=" not in word} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name(page):
    text = page.read_text(encoding="utf-8")
    missing = [link for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text) if not (page.parent / link).exists()]
    code = code_of(page)
    missing += [
        path for path in re.findall(r"(?:^|[\s(])((?:scripts|docs|tests)/[\w./-]*\w)", code, re.M)
        if not re.search("NAME|TARGET", path) and not list(ROOT.glob(path + "*")) and not (BUILD / path).exists()
    ]
    missing += [path for path in re.findall(r"\bbuild/((?:run|provider|tools)/[\w./-]*\w)", code)
                if not list(BUILD.glob(path + "*"))]
    assert missing == []


def runtime_packages():
    """The packages of the image's last stage."""
    last = (ROOT / "docs" / "examples" / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")[-1]
    return set(re.search(r"--no-install-recommends \\\n(.*?)&&", last, re.S)[1].replace("\\", " ").split())


def with_dependencies(packages):
    """The packages and what they depend on, of those that are installed here."""
    known, new = set(), set(packages)
    while new:
        known |= new
        lines = subprocess.run(["dpkg-query", "-W", "-f", "${Depends}\n", *sorted(new)], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, check=False, text=True).stdout
        new = set(re.findall(r"(?:^|[,|]\s*)([a-z0-9][a-z0-9.+-]+)", lines, re.M)) - known
    return known


def owners(path):
    """The packages that have a file; dpkg knows it as from before or behind the merge of /lib and /usr/lib."""
    names = {path, os.path.realpath(path)}
    names |= {name.removeprefix("/usr") for name in names}
    found = subprocess.run(["dpkg-query", "-S", *names],
                           stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL,
                           check=False,
                           text=True)
    return {line.partition(":")[0] for line in found.stdout.splitlines()}


def test_image_has_every_library():
    """What the installed files are linked with comes with the packages of the image."""
    files = [
        BUILD / "run" / "usiw-run", BUILD / "run" / "libusiw-run.so", BUILD / "provider" / "libusiw-rdmav34.so",
        BUILD / "tools" / "usiw"
    ]
    packages = with_dependencies(runtime_packages() | {"apt"})  # which is in every image
    libraries = {path for file in files for path in re.findall(r"=> (/\S+)", output("ldd", str(file)))}
    assert len(libraries) > 5
    assert {path: owners(path) for path in libraries if not owners(path) & packages} == {}


def test_programs_are_the_same_everywhere():
    """What README starts comes with `scripts/setup local` and with the image."""
    programs = {"rdmacm-utils", "ibverbs-utils", "perftest"}
    assert programs <= set(output("scripts/setup", "--list", "local").split())
    assert programs <= runtime_packages()


def test_image_is_what_install_makes():
    """Every file is installed below DESTDIR, so that the image can take it from there."""
    plan = output("make", "-n", "install-local", "DESTDIR=/image", f"BUILD={BUILD}")
    installed = re.findall(r"^install -D .* (\S+)$", plan, re.M) + re.findall(r"> (\S+)$", plan, re.M)
    assert {"/image/usr/local/bin/usiw-run", "/image/etc/libibverbs.d/usiw.driver"} <= set(installed)
    assert [path for path in installed if path.startswith("/") and not path.startswith("/image/")] == []


def test_what_is_installed_works_and_can_be_removed(tmp_path):
    """Below any prefix; what the administrator has written stays."""
    dest, prefix = tmp_path / "dest", tmp_path / "dest/opt/usiw"
    place = [f"DESTDIR={dest}", "PREFIX=/opt/usiw", f"BUILD={BUILD}"]
    output("make", "-s", "install-files", *place)
    driver = (dest / "etc/libibverbs.d/usiw.driver").read_text(encoding="ascii")
    provider = pathlib.Path(f"{dest}{driver.split()[1]}-rdmav34.so")
    assert provider.exists() and provider.is_relative_to(prefix)
    assert procs.Proc([prefix / "bin/usiw-run", "--check"]).expect(0, 30)
    for template in (prefix / "lib/udev/rules.d/90-usiw.rules", prefix / "lib/systemd/system/usiw@.service"):
        named = re.search(r"(/\S+/attach)", template.read_text(encoding="utf-8"))[1]
        assert os.access(f"{dest}{named}", os.X_OK)
    for program in (prefix / "bin/usiw", provider):
        assert ".debug_info" not in output("readelf", "-S", "-W", program)
    (dest / "etc/usiw/devices").write_text("eth0\n", encoding="ascii")
    output("make", "-s", "install-files", *place)
    assert (dest / "etc/usiw/devices").read_text(encoding="ascii") == "eth0\n"
    output("make", "-s", "uninstall", *place)
    left = {str(path.relative_to(dest)) for path in dest.rglob("*") if not path.is_dir() or not any(path.iterdir())}
    assert {path for path in left if "usiw" in path.removeprefix("opt/usiw/")} == {"etc/usiw/devices"}, left
