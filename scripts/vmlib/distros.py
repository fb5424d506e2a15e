# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Trees of other Debian releases below build/distros, by debootstrap from the mirror that the host's apt has.

`scripts/distro NAME COMMAND` runs a command in one. sid moves on every day: what has been fetched is kept, so remove
build/distros/sid to get a newer one.
"""

import os
import pathlib
import re

from .paths import BUILD, PROJECT, HarnessError, locked, run, say, write_atomically

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

#: Change to have the trees made again.
FORMAT = 3

#: What the tree's apt does without. The index may be out of date: a mirror may be a copy of another day.
APT_CONFIG = """\
APT::Install-Recommends "false";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
DPkg::Options { "--force-unsafe-io"; };
"""
DPKG_CONFIG = "".join(f"path-exclude=/usr/share/{folder}/*\n" for folder in ("doc", "man", "locale", "info"))


class Tree:
    """A release's tree. It is known by the release's name: trixie, sid.

    With a foreign architecture apt also installs that architecture's packages ("libibverbs-dev:arm64") into the tree,
    for cross builds. Such a tree is known by both names: trixie-arm64.
    """

    def __init__(self, release, foreign=None):
        self.release = release
        self.foreign = foreign
        self.name = f"{release}-{foreign}" if foreign else release
        self.folder = BUILD / "distros" / self.name
        self.root = self.folder / "tree"
        self._busy = self.folder / "installing"  # there is more than the stamp says, or less

    def run(self, *argv):
        """Output of a command in the tree."""
        return run(PROJECT / "scripts" / "distro", self.name, *argv)

    def make(self, *packages):
        """Makes the tree unless it is complete, and installs what is missing of the packages."""
        with locked(self.folder / ".lock", f"waiting for the tree of Debian {self.name}"):
            self._bootstrap()
            self._install(packages)

    def _bootstrap(self):
        """What an interrupted run has left is made anew."""
        stamp = self.folder / "stamp"
        if stamp.exists() and stamp.read_text(encoding="ascii") == str(FORMAT) and not self._busy.exists():
            return
        if os.getuid() != 0:
            raise HarnessError(f"Debian {self.name} needs root: debootstrap makes it")
        source = mirror()
        say(f"fetching Debian {self.name} from {source} (once; minutes, up to a gigabyte in {self.folder})")
        self.clean()
        # In namespaces of its own: it mounts, and may be killed.
        run("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
            "--propagation", "private", "debootstrap", "--variant=minbase", f"--keyring={KEYRING}", self.release,
            self.root, source)
        if self.release != "sid":  # a release's kernels come as security updates
            for uri in mirrors("-security"):
                (self.root / "etc/apt/sources.list.d/security.list").write_text(
                    f"deb {uri} {self.release}-security main\n", encoding="ascii")
        (self.root / "etc/apt/apt.conf.d/90usiw").write_text(APT_CONFIG, encoding="ascii")
        (self.root / "etc/dpkg/dpkg.cfg.d/usiw").write_text(DPKG_CONFIG, encoding="ascii")
        if self.foreign:
            self.run("dpkg", "--add-architecture", self.foreign)
        write_atomically(stamp, str(FORMAT).encode())

    def _install(self, packages):
        wanted = [package for package in packages if not self._has(package)]
        if wanted:
            say(f"Debian {self.name}: installing {' '.join(wanted)}")
            self.run("apt-get", "update", "-q")
            self._busy.touch()
            self.run("apt-get", "install", "-q", "-y", *wanted)
            self.run("apt-get", "clean")
            self._busy.unlink()

    def _has(self, package):
        """Is the package installed? dpkg writes a list of its files when it unpacks it.

        The list's name has the architecture only if several architectures of the package can be installed together.
        """
        info = self.root / "var/lib/dpkg/info"
        name, _, architecture = package.partition(":")
        suffixes = [f":{architecture}"] if architecture else [":amd64", ":arm64"]
        return any((info / f"{name}{suffix}.list").exists() for suffix in ["", *suffixes])

    def clean(self):
        """Removes the tree, and nothing of another file system: a mount in it would be somebody's."""
        (self.folder / "stamp").unlink(missing_ok=True)
        self._busy.unlink(missing_ok=True)
        run("rm", "-rf", "--one-file-system", self.root)


def mirror(etc=pathlib.Path("/etc")):
    """Address of the Debian mirror that the host's apt uses for the host's own release: it has the others, too."""
    for uri in mirrors("", etc):
        return uri
    raise HarnessError(f"no mirror of Debian {codename(etc)} in {etc}/apt/sources.list*: "
                       "other releases come from the same mirror")


def codename(etc):
    """Of the host's release."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', (etc / "os-release").read_text(encoding="utf-8"), re.MULTILINE))
    return release.get("VERSION_CODENAME")


def mirrors(part, etc=pathlib.Path("/etc")):
    """Addresses that the host's apt uses for a part of the host's release: "" for the release, "-security"."""
    suites = {f"{codename(etc)}{part}", f"stable{part}"}
    paths = [etc / "apt/sources.list", *sorted((etc / "apt/sources.list.d").glob("*"))]
    for path in paths:
        if path.suffix not in (".list", ".sources") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for kind, uri, suite, components in (stanzas if path.suffix == ".sources" else one_liners)(text):
            if kind == "deb" and suite in suites and "main" in components and re.match(r"(https?|file):/", uri):
                yield uri.rstrip("/")


def one_liners(text):
    """(type, URI, suite, components) of each line of a sources.list."""
    for line in text.splitlines():
        words = re.sub(r"^(\S+)\s+\[[^]]*\]", r"\1", line.partition("#")[0].strip()).split()
        if len(words) >= 4:
            yield words[0], words[1], words[2], words[3:]


def stanzas(text):
    """The same of a file of deb822 stanzas."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", lines):
        fields = {name.lower(): value.split()
                  for name, value in re.findall(r"^(\S+):((?:.*)(?:\n[ \t].*)*)", stanza, re.MULTILINE)}
        if fields.get("enabled", ["yes"])[0].lower() in ("no", "false", "0", "off", "without", "disable"):
            continue
        for kind in fields.get("types", []):
            for uri in fields.get("uris", []):
                for suite in fields.get("suites", []):
                    yield kind, uri, suite, fields.get("components", [])
