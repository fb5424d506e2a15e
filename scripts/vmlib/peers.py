# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Builds siw, which Debian leaves out of its kernels, from Debian's kernel source."""

import pathlib
import re
import tarfile
import os

from .kernels import headers_package_version
from .paths import BUILD, HarnessError, locked, run, say, write_atomically

SIW_FOLDER = "drivers/infiniband/sw/siw"


def build_siw(version):
    """Path of siw.ko for a kernel version, built if needed."""
    series = re.match(r"\d+\.\d+", version)[0]
    folder = BUILD / "peer" / f"siw-{version}"
    module = folder / "siw.ko"
    stamp = folder / "stamp"
    source = pathlib.Path(f"/usr/src/linux-source-{series}.tar.xz")
    with locked(folder / ".lock", f"waiting for the build of siw for {version}"):
        wanted = headers_package_version(version)
        if module.exists() and stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
            return module
        if not source.exists():
            raise HarnessError(f"siw for {version} needs the package linux-source-{series} (apt-get install it)")
        say(f"building siw for {version} (once, about a minute)")
        unpack(source, folder)
        run("make", "-C", f"/lib/modules/{version}/build", f"M={folder}", "CONFIG_RDMA_SIW=m", f"-j{os.cpu_count()}",
            "modules")
        write_atomically(stamp, wanted.encode())
        return module


def unpack(source, folder):
    """Extracts siw's files from the tar file of the kernel, flat, into `folder`."""
    found = 0
    with tarfile.open(source, "r|xz") as archive:
        for member in archive:
            inside = member.name.partition("/")[2]
            if member.isfile() and inside.startswith(SIW_FOLDER + "/"):
                write_atomically(folder / inside[len(SIW_FOLDER) + 1:], archive.extractfile(member).read())
                found += 1
            elif found:
                break
    if not found:
        raise HarnessError(f"{source} holds no {SIW_FOLDER}")
