# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The debug kernel: built from Debian's kernel source with the kernel's own checkers (debug.config)."""

import hashlib
import os
import pathlib
import shutil
import subprocess

from . import kernels
from .paths import BUILD, STANDARD_PATH, HarnessError, locked, run, say, write_atomically

SOURCE_PACKAGE = "linux-source-6.1"
CONFIG = pathlib.Path(__file__).resolve().parent / "debug.config"
FOLDER = BUILD / "debug-kernel"
SOURCE = FOLDER / "source"
OBJECTS = FOLDER / "objects"

#: Not unpacked: nothing that is configured needs it, and it is a third of the source.
EXCLUDED = ("*/Documentation/*/*", "*/tools/testing/*", "*/drivers/gpu/drm/amd/include/*")


class DebugKernel(kernels.Kernel):
    """A Kernel whose image is the build's own, with everything but usiw built in."""

    patience = 4
    finds_leaks = True
    #: Without it KASAN tells the first of its findings only.
    command_line = "kasan_multi_shot"
    #: Where the table of interrupts is data. On "pc" it is a program, which under the checkers runs into ACPI's
    #: time-out.
    machine = "q35"

    def prepare(self):
        """Unpacks, configures and builds the kernel unless that has been done; needs up to half an hour."""
        with locked(FOLDER / ".lock", "waiting for the build of the debug kernel"):
            build()
        with locked(self.cache / ".lock"):
            stamp = self.cache / "stamp"
            wanted = f"{kernels.CACHE_FORMAT} {wanted_stamp()}"
            if not stamp.exists() or stamp.read_text(encoding="ascii") != wanted:
                write_atomically(self.image, (OBJECTS / "vmlinux").read_bytes())
                shutil.rmtree(self.modules, ignore_errors=True)
                self.modules.mkdir(parents=True)
                for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
                    shutil.copy(OBJECTS / name, self.modules / name)
                run("depmod", "-b", self.cache, self.version)
                write_atomically(stamp, wanted.encode())
            self._build_initramfs()
        return self


def wanted_stamp():
    """Names what a build is made of: the version of the source and the configuration."""
    version = run("dpkg-query", "-W", "-f", "${Version}", SOURCE_PACKAGE)
    return f"{version} {hashlib.sha256(CONFIG.read_bytes()).hexdigest()}"


def find():
    """The DebugKernel. Its version is known only when it is configured, so this builds it."""
    with locked(FOLDER / ".lock", "waiting for the build of the debug kernel"):
        build()
    return DebugKernel((OBJECTS / "include/config/kernel.release").read_text(encoding="ascii").strip())


def build():
    """The build itself, with FOLDER locked. The compiler's output goes to FOLDER/build.log."""
    stamp = FOLDER / "stamp"
    wanted = wanted_stamp()
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return
    say("building the debug kernel (once; six minutes to half an hour on two processors)")
    unpack(wanted.split()[0])
    OBJECTS.mkdir(exist_ok=True)
    make("allnoconfig", f"KCONFIG_ALLCONFIG={CONFIG}")
    check_config()
    # QEMU starts the kernel by PVH, whose entry runs, and calls memcmp(), before KASAN has its shadow.
    make("vmlinux", "modules", "KASAN_SANITIZE_enlighten.o=n", "KASAN_SANITIZE_string.o=n")
    write_atomically(stamp, wanted.encode())


def unpack(version):
    """Extracts the source of this version of the package unless it is there."""
    stamp = FOLDER / "source.stamp"
    if stamp.exists() and stamp.read_text(encoding="ascii") == version:
        return
    archive = pathlib.Path("/usr/src") / f"{SOURCE_PACKAGE}.tar.xz"
    if not archive.exists():
        raise HarnessError(f"the debug kernel needs the package {SOURCE_PACKAGE} (scripts/setup debug)")
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.rmtree(OBJECTS, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    run("tar", "-xJf", archive, "-C", SOURCE, "--strip-components=1", *(f"--exclude={name}" for name in EXCLUDED))
    write_atomically(stamp, version.encode())


def make(*targets):
    """Runs the kernel's make with the log in FOLDER/build.log."""
    argv = ["make", "-s", "-C", SOURCE, f"O={OBJECTS}", f"-j{os.cpu_count() + 2}", *targets]
    with open(FOLDER / "build.log", "ab") as log:
        done = subprocess.run([str(word) for word in argv], env=dict(os.environ, PATH=STANDARD_PATH, LC_ALL="C"),
                              stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
    if done.returncode:
        raise HarnessError(f"the debug kernel cannot be built: make {targets[0]}; see {FOLDER / 'build.log'}")


def check_config():
    """HarnessError if a line of CONFIG has not come true: a dependency is missing, or an option has another name."""
    lines = (OBJECTS / ".config").read_text(encoding="ascii").splitlines()
    known = set(lines)
    for line in CONFIG.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition("=")
        if not name.startswith("CONFIG_"):
            continue
        if value == "n" and any(other.startswith(f"{name}=") for other in lines) or value != "n" and line not in known:
            raise HarnessError(f"the debug kernel's configuration does not have {line}")
