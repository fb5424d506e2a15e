# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The kernel of Debian sid, which shows early what a newer Linux changes.

Its headers come with programs of sid's own (modpost, objtool) that need sid's C library, so a module for it cannot be
built on the host: it is built in the tree of sid (distros.py), with the headers and their compiler. The image and the
modules are fetched as packages and unpacked for the guest, whose root stays the host's.
"""

import re

from . import distros, kernels
from .paths import PROJECT, HarnessError, locked, run

TREE = distros.Tree("sid")
PACKAGES = TREE.folder / "packages"


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
    TREE.make("linux-headers-amd64", "make")
    version = run(PROJECT / "scripts" / "kver", "sid").strip()
    with locked(TREE.folder / ".packages-lock", "waiting for the packages of sid's kernel"):
        if not (PACKAGES / f"of-{version}").exists():
            fetch(version)
    return SidKernel(version)


def fetch(version):
    """Fetches the packages of the kernel. The file that says that all are there comes last."""
    run("rm", "-rf", PACKAGES)
    PACKAGES.mkdir()
    names = kernel_packages(TREE.run("apt-cache", "depends", f"linux-image-{version}"), version)
    TREE.run("sh", "-c", 'cd "$0" && apt-get download -q "$@"', PACKAGES, *names)
    (PACKAGES / f"of-{version}").touch()


def kernel_packages(depends, version):
    """linux-image-VERSION and those of its dependencies (as apt-cache prints them) that make up the same kernel."""
    names = [f"linux-image-{version}"]
    for name in re.findall(r"^ +\|?(?:Pre)?Depends: (linux-\S+)$", depends, re.MULTILINE):
        if name.endswith(f"-{version}") and name not in names:
            names.append(name)
    return names
