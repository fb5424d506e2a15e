# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Trees of other releases, and the kernel of sid, as far as nothing has to be fetched for them."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from vmlib import distros, kernels, sidkernel
from vmlib.paths import PROJECT, HarnessError

OF_OTHERS = "deb [signed-by=/x.gpg] https://packages.example.com/apt cloud-bookworm main\n"
STANZA = """\
Types: deb
# http://snapshot.example.org/archive
URIs: http://deb.example.org/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


@pytest.mark.parametrize("files, found", (
    ({"sources.list.d/debian.sources": STANZA}, "http://deb.example.org/debian"),
    ({"sources.list.d/a.list": OF_OTHERS, "sources.list.d/b.sources": STANZA}, "http://deb.example.org/debian"),
    ({"sources.list": "# deb http://old.example.org x main\ndeb [arch=amd64 trusted=yes] file:/srv/debian bookworm main contrib\n"},
     "file:/srv/debian"),
    ({"sources.list": "deb-src http://a.example.org/debian bookworm main\ndeb http://b.example.org/debian stable main\n"},
     "http://b.example.org/debian"),
    ({"sources.list": "deb http://a.example.org/debian bookworm contrib\n"}, None),
    ({"sources.list.d/off.sources": STANZA + "Enabled: no\n"}, None),
    ({"sources.list": "deb mirror+file:/etc/mirrors bookworm main\n"}, None),
    ({"sources.list.d/debian.sources.save": STANZA}, None),
    ({}, None),
))
def test_the_mirror_is_that_of_the_hosts_release(tmp_path, files, found):
    (tmp_path / "os-release").write_text('NAME="Debian GNU/Linux"\nVERSION_CODENAME=bookworm\n', encoding="ascii")
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "apt" / name).write_text(text, encoding="ascii")
    if found:
        assert distros.mirror(tmp_path) == found
    else:
        with pytest.raises(HarnessError, match="no mirror of Debian bookworm"):
            distros.mirror(tmp_path)


def test_packages_of_one_kernel():
    """Both as sid has it now, in several packages, and as it was."""
    printed = ("linux-image-7.2.13+deb14-amd64\n  PreDepends: linux-base\n |Depends: dracut\n"
               "  Depends: initramfs-tools\n  Depends: linux-binary-7.2.13+deb14-amd64\n"
               "  Depends: linux-modules-7.2.13+deb14-amd64\n  Suggests: linux-doc-7.2\n")
    assert sidkernel.kernel_packages(printed, "7.2.13+deb14-amd64") == [
        "linux-image-7.2.13+deb14-amd64", "linux-binary-7.2.13+deb14-amd64", "linux-modules-7.2.13+deb14-amd64"]
    printed = "linux-image-6.16-amd64\n  Depends: kmod\n  Depends: linux-base\n"
    assert sidkernel.kernel_packages(printed, "6.16-amd64") == ["linux-image-6.16-amd64"]


@pytest.mark.parametrize("image, modules", (("boot/vmlinuz-7.2-x", "lib/modules/7.2-x"),
                                            ("usr/lib/modules/7.2-x/vmlinuz", "usr/lib/modules/7.2-x")))
def test_unpacked_packages(tmp_path, image, modules):
    for folder in (tmp_path / modules / "kernel", (tmp_path / image).parent):
        folder.mkdir(parents=True, exist_ok=True)
    with pytest.raises(HarnessError, match="no image"):
        sidkernel.unpacked_kernel(tmp_path, "7.2-x")
    (tmp_path / image).write_bytes(b"image")
    for name in ("modules.order", "modules.builtin"):
        (tmp_path / modules / name).touch()
    found = sidkernel.unpacked_kernel(tmp_path, "7.2-x")
    assert found == (tmp_path / image, tmp_path / modules)
    assert (found[1] / "modules.dep").exists()


def test_modules_that_sid_has_in_its_image_are_not_loaded():
    assert set(kernels.LATE_MODULES) - set(sidkernel.SidKernel.late_modules) == {"libcrc32c"}


def test_an_interrupted_bootstrap_is_made_anew(tmp_path, monkeypatch):
    """Whatever a run has left that ended before its end, at any of its commands."""
    monkeypatch.setattr(distros, "BUILD", tmp_path)
    monkeypatch.setattr(distros, "mirrors", lambda part, etc=None: iter(["http://deb.example.org/debian"]))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    tree = distros.Tree("sid")
    real_run, calls = distros.run, []

    def run(*argv):
        """Stands for the commands that fetch; the one at `ends_at` fails behind its work."""
        words = [str(word) for word in argv]
        if words[0] == "rm":
            return real_run(*argv)
        calls.append(words)
        if "debootstrap" in words:
            assert not tree.root.exists()
            for name in ("etc/apt/apt.conf.d", "etc/apt/sources.list.d", "etc/dpkg/dpkg.cfg.d", "var/lib/dpkg/info"):
                (tree.root / name).mkdir(parents=True)
        if "install" in words:
            assert not (tree.root / "half").exists(), "a tree with half a package is not gone on with"
            (tree.root / "half").touch()
            if len(calls) != ends_at:
                (tree.root / "var/lib/dpkg/info/make.list").touch()
                (tree.root / "half").unlink()
        if len(calls) == ends_at:
            raise HarnessError("killed")
        return ""

    monkeypatch.setattr(distros, "run", run)
    for ends_at in range(1, 20):
        calls.clear()
        try:
            tree.make("make")
            break
        except HarnessError as error:
            assert str(error) == "killed"
    assert ends_at > 3
    calls.clear()
    tree.make("make")
    assert not calls
    (tree.folder / "stamp").write_text("an older format", encoding="ascii")
    ends_at = 0
    tree.make("make")
    assert [words for words in calls if "debootstrap" in words]


def test_an_interrupted_fetch_of_the_kernel_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(sidkernel, "PACKAGES", tmp_path / "packages")
    monkeypatch.setattr(sidkernel.TREE, "make", lambda *packages: None)
    real_run, fetched = sidkernel.run, []
    monkeypatch.setattr(sidkernel, "run", lambda *argv: "7.2-x\n" if "kver" in str(argv[0]) else real_run(*argv))

    def in_tree(*argv):
        if "apt-cache" not in argv:
            assert not list((tmp_path / "packages").iterdir())
            (tmp_path / "packages" / "half.deb").touch()
            fetched.append(argv)
            if len(fetched) == 1:
                raise HarnessError("killed")
        return ""

    monkeypatch.setattr(sidkernel.TREE, "run", in_tree)
    with pytest.raises(HarnessError, match="killed"):
        sidkernel.find()
    for _ in range(2):
        assert sidkernel.find().version == "7.2-x"
    assert len(fetched) == 2


def test_kver_knows_the_tree(tmp_path):
    (tmp_path / "scripts").mkdir()
    kver = shutil.copy(PROJECT / "scripts" / "kver", tmp_path / "scripts")
    absent = subprocess.run([kver, "sid"], capture_output=True, text=True, check=False)
    assert absent.returncode == 1 and "scripts/vm prepare sid" in absent.stderr
    for version in ("7.2.9+deb14-amd64", "7.2.13+deb14-amd64", "7.3-without-headers"):
        (tmp_path / "build/distros/sid/tree/usr/lib/modules" / version / "build").mkdir(parents=True)
    for path in tmp_path.glob("build/distros/sid/tree/usr/lib/modules/7.2*/build"):
        (path / "Makefile").touch()
    assert subprocess.run([kver, "sid"], capture_output=True, text=True, check=True).stdout == "7.2.13+deb14-amd64\n"


@pytest.fixture(name="small")
def small_project(tmp_path):
    """A project with a tree in which there is just a shell."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(PROJECT / "scripts" / "distro", tmp_path / "scripts")
    tree = tmp_path / "build/distros/sid/tree"
    for folder in ("usr/bin", "proc", "dev", "sys", "etc"):
        (tree / folder).mkdir(parents=True)
    for name in ("sh", "env", "sleep"):
        program = pathlib.Path("/usr/bin", name)
        shutil.copy(program, tree / "usr/bin" / name)
        for library in re.findall(r"(/\S+) \(0x", subprocess.check_output(["ldd", program], text=True)):
            (tree / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, tree / library[1:])
    return tmp_path


def mounts_below(path):
    return [line for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
            if str(path) in line]


def processes_with(word):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if word.encode() in path.read_bytes().split(b"\0") else []
        except OSError:     # it has just ended
            pass
    return found


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_command_in_the_tree(small):
    done = subprocess.run([small / "scripts/distro", "sid", "sh", "-c", 'echo "$PWD" $$ "$1"; : >out; exit 7', "sh", "a b"],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, f"{small.resolve()} 1 a b\n", "")
    assert (small / "out").exists()
    assert not mounts_below(small)
    shutil.rmtree(small / "build/distros/sid/tree/usr/bin")
    done = subprocess.run([small / "scripts/distro", "sid", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "make check-distros" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_nothing_is_left_of_a_command_in_the_tree_that_is_killed(small):
    word = f"9{os.getpid()}"
    with subprocess.Popen([small / "scripts/distro", "sid", "sh", "-c", f"sleep {word} & sleep {word}"],
                          stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 20
        while len(processes_with(word)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(processes_with(word)) == 2
        process.send_signal(signal.SIGKILL)
    while processes_with(word) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_with(word)
    assert not mounts_below(small)
