# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The kernel of Debian sid, which shows early what a newer Linux changes.

Its headers come with programs of sid's own (modpost, objtool) that need sid's C library, so a module for it cannot be
built on the host. This makes a small sid by debootstrap below build/sid, with the headers and their compiler;
scripts/sid runs a command in it. The image and the modules are fetched as packages and unpacked for the guest, whose
root stays the host's.

sid moves on every day, and its mirror keeps no old kernels. What has been fetched is kept: remove build/sid to get a
newer kernel.
"""

import os
import pathlib
import re
import shutil

from . import kernels
from .paths import BUILD, PROJECT, HarnessError, locked, run, say, write_atomically

FOLDER = BUILD / "sid"
TREE = FOLDER / "tree"
PACKAGES = FOLDER / "packages"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

#: Change to have the tree made again.
FORMAT = 1

#: What the tree's apt does without: everything that is not needed to compile a module. The index may be out of date:
#: a mirror may be a copy of another day.
APT_CONFIG = """\
APT::Install-Recommends "false";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
DPkg::Options { "--force-unsafe-io"; };
"""
DPKG_CONFIG = "".join(f"path-exclude=/usr/share/{folder}/*\n" for folder in ("doc", "man", "locale", "info"))


class SidKernel(kernels.Kernel):
    """A Kernel whose packages are in PACKAGES."""

    #: What it has no longer: this one is a part of its image.
    late_modules = tuple(name for name in kernels.LATE_MODULES if name != "libcrc32c")

    def _revision(self):
        return " ".join(sorted(path.name for path in PACKAGES.glob("*.deb")))

    def _find(self, scratch):
        scratch.chmod(0o755)
        for package in sorted(PACKAGES.glob("*.deb")):
            run("dpkg-deb", "-x", package, scratch)
        return unpacked_kernel(scratch, self.version)


def unpacked_kernel(root, version):
    """(image file, module folder) of a kernel in a root whose /lib may be a part of /usr, as in newer packages."""
    modules = next((root / top for top in (f"usr/lib/modules/{version}", f"lib/modules/{version}")
                    if (root / top / "kernel").is_dir()), None)
    image = next((path for path in (root / "boot" / f"vmlinuz-{version}", *(modules and [modules / "vmlinuz"] or []))
                  if path.is_file()), None)
    if not modules or not image:
        raise HarnessError(f"the packages of kernel {version} hold no image or no modules: {PACKAGES}")
    # depmod looks below lib only.
    if modules.parts[len(root.parts)] == "usr" and not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    run("depmod", "-b", root, version)
    return image, modules


def find():
    """The SidKernel. Its version is known only when the tree is there, so this makes it."""
    with locked(FOLDER / ".lock", "waiting for the tree of Debian sid"):
        make()
    return SidKernel(run(PROJECT / "scripts" / "kver", "sid").strip())


def make():
    """Makes the tree unless it is complete, with FOLDER locked. What an interrupted run has left is made anew."""
    stamp = FOLDER / "stamp"
    if stamp.exists() and stamp.read_text(encoding="ascii") == str(FORMAT):
        return
    if os.getuid() != 0:
        raise HarnessError("the sid kernel needs root: debootstrap makes the tree that its module is built in")
    source = mirror()
    say(f"fetching Debian sid from {source} for its kernel (once; minutes, half a gigabyte in build/sid)")
    clean()
    # In namespaces of its own: it mounts, and may be killed.
    run("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
        "--propagation", "private", "debootstrap", "--variant=minbase", f"--keyring={KEYRING}", "sid", TREE, source)
    (TREE / "etc/apt/apt.conf.d/90usiw").write_text(APT_CONFIG, encoding="ascii")
    (TREE / "etc/dpkg/dpkg.cfg.d/usiw").write_text(DPKG_CONFIG, encoding="ascii")
    in_tree("apt-get", "update", "-q")
    in_tree("apt-get", "install", "-q", "-y", "linux-headers-amd64", "make")
    version = run(PROJECT / "scripts" / "kver", "sid").strip()
    names = kernel_packages(in_tree("apt-cache", "depends", f"linux-image-{version}"), version)
    PACKAGES.mkdir()
    in_tree("sh", "-c", 'cd "$0" && apt-get download -q "$@"', PACKAGES, *names)
    in_tree("apt-get", "clean")
    for path in ("var/lib/apt/lists", *(f"usr/share/{folder}" for folder in ("doc", "man", "locale", "info"))):
        shutil.rmtree(TREE / path, ignore_errors=True)
    write_atomically(stamp, str(FORMAT).encode())


def clean():
    """Removes what is below FOLDER but the lock. Nothing of another file system: a mount here would be somebody's."""
    (FOLDER / "stamp").unlink(missing_ok=True)
    run("rm", "-rf", "--one-file-system", TREE, PACKAGES)


def in_tree(*argv):
    """Output of a command that runs in the tree."""
    return run(PROJECT / "scripts" / "sid", *argv)


def kernel_packages(depends, version):
    """linux-image-VERSION and those of its dependencies (as apt-cache prints them) that make up the same kernel."""
    names = [f"linux-image-{version}"]
    for name in re.findall(r"^ +\|?(?:Pre)?Depends: (linux-\S+)$", depends, re.MULTILINE):
        if name.endswith(f"-{version}") and name not in names:
            names.append(name)
    return names


def mirror(etc=pathlib.Path("/etc")):
    """Address of the Debian mirror that the host's apt uses for the host's own release: it has sid, too."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', (etc / "os-release").read_text(encoding="utf-8"), re.MULTILINE))
    suites = {release.get("VERSION_CODENAME"), "stable"}
    paths = [etc / "apt/sources.list", *sorted((etc / "apt/sources.list.d").glob("*"))]
    for path in paths:
        if path.suffix not in (".list", ".sources") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for kind, uri, suite, components in (stanzas if path.suffix == ".sources" else one_liners)(text):
            if kind == "deb" and suite in suites and "main" in components and re.match(r"(https?|file):/", uri):
                return uri.rstrip("/")
    raise HarnessError(f"no mirror of Debian {release.get('VERSION_CODENAME')} in {etc}/apt/sources.list*: "
                       "the sid kernel comes from the same mirror")


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
