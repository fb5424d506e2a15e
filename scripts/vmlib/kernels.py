# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Debian's kernels made ready to boot: image, modules and initramfs, cached below build/vm/kernels/VERSION."""

import hashlib
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile

from . import cpio
from .paths import GUEST_INIT, PROJECT, VM, HarnessError, locked, run, step, write_atomically

#: Change to have every cache built again.
CACHE_FORMAT = 3

#: Loaded before the root file system is there.
BASE_MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")

#: Loaded in every guest, beside the mounting of the root: what usiw, its peers and the topologies need.
LATE_MODULES = ("ib_uverbs", "rdma_ucm", "iw_cm", "udp_tunnel", "ip6_udp_tunnel", "libcrc32c", "veth", "af_packet")

#: What the guest can load with modprobe: folders of modules, and single ones, with everything that these depend on.
MODULE_FOLDERS = (
    "drivers/infiniband", "drivers/uio", "drivers/vfio", "net/sched", "net/packet", "net/unix", "net/netfilter",
    "net/ipv4", "net/ipv6", "net/vmw_vsock", "net/xdp", "lib", "arch/x86/crypto", "crypto",
)
MODULE_NAMES = (
    "9p", "9pnet_virtio", "overlay", "virtio_pci", "virtio_console", "virtio_net", "virtio_rng", "fuse", "configfs",
    "veth", "ifb", "dummy", "bonding", "macvlan", "ipvlan", "vxlan", "tun", "nlmon", "vrf", "8021q", "bridge",
    "netdevsim", "vcan", "e1000", "e1000e", "vmxnet3", "nvme-fabrics", "nvme-rdma", "nvmet-rdma", "siw", "rdma_rxe",
    "smc", "rds_rdma", "brd", "loop", "null_blk", "xfrm_user", "nf_tables",
)


class Kernel:
    """One kernel version and its cache."""

    #: Factor for all limits of time: how much slower than Debian's kernel it may be.
    patience = 1
    #: kmemleak is there and looks at the end.
    finds_leaks = False
    #: Beyond what every kernel is started with.
    command_line = ""
    #: QEMU's.
    machine = "pc"
    late_modules = LATE_MODULES

    def __init__(self, version):
        self.version = version
        self.cache = VM / "kernels" / version
        self.image = self.cache / "vmlinux"
        self.modules = self.cache / "lib" / "modules" / version
        self.initramfs = self.cache / "initramfs"

    def prepare(self):
        """Makes image, modules and initramfs unless they are there and up to date."""
        with locked(self.cache / ".lock", f"waiting for the cache of kernel {self.version}"):
            stamp = self.cache / "stamp"
            wanted = f"{CACHE_FORMAT} {self._revision()} {_code_digest()}"
            if not stamp.exists() or stamp.read_text(encoding="ascii") != wanted:
                with step(f"preparing kernel {self.version}, once"), \
                        tempfile.TemporaryDirectory(dir=self.cache) as scratch:
                    image, modules = self._find(pathlib.Path(scratch))
                    self._unpack_image(image)
                    self._copy_modules(modules)
                write_atomically(stamp, wanted.encode())
            self._build_initramfs()
        return self

    def _revision(self):
        """Names the packages that the cache is made of."""
        return headers_package_version(self.version)

    def _find(self, scratch):
        """(image file, module folder), perhaps unpacked below `scratch`."""
        return find_or_fetch(self.version, scratch)

    def module_order(self, names):
        """Paths of the modules to load for `names`, dependencies first; what is built in does not appear."""
        paths = []
        for name in names:
            shown = run("modprobe", "-d", self.cache, "-S", self.version, "--show-depends", name)
            for line in shown.splitlines():
                word = line.split()
                if word[0] == "insmod" and pathlib.Path(word[1]) not in paths:
                    paths.append(pathlib.Path(word[1]))
        return paths

    def _unpack_image(self, image):
        write_atomically(self.image, uncompressed_image(image.read_bytes()))

    def _copy_modules(self, source):
        shutil.rmtree(self.modules, ignore_errors=True)
        self.modules.mkdir(parents=True)
        dependencies = read_dependencies(source / "modules.dep")
        for name in sorted(select_modules(dependencies)):
            target = self.modules / re.sub(r"\.(xz|zst|gz)$", "", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(unpack((source / name).read_bytes()))  # the guest does not have to
        for name in ("modules.builtin", "modules.builtin.modinfo"):
            shutil.copy(source / name, self.modules / name)
        order = (source / "modules.order").read_text(encoding="ascii")
        kept = [line for line in order.splitlines() if (self.modules / line).exists()]
        (self.modules / "modules.order").write_text("\n".join(kept) + "\n", encoding="ascii")
        run("depmod", "-b", self.cache, self.version)

    def _build_initramfs(self):
        program = build_init()
        key = hashlib.sha256(program.read_bytes() + repr((BASE_MODULES, self.late_modules, CACHE_FORMAT)).encode())
        key.update((self.cache / "stamp").read_bytes())
        stamp = self.cache / "initramfs.stamp"
        if self.initramfs.exists() and stamp.exists() and stamp.read_text(encoding="ascii") == key.hexdigest():
            return
        base = self.module_order(BASE_MODULES)
        late = [path for path in self.module_order(self.late_modules) if path not in base]
        files = {"init": (program.read_bytes(), 0o755)}
        for path in base + late:
            files[f"m/{path.name}"] = (path.read_bytes(), 0o644)
        write_atomically(self.initramfs, cpio.archive(files))
        write_atomically(self.cache / "base.list", "\n".join(path.name for path in base).encode())
        write_atomically(self.cache / "late.list", "\n".join(path.name for path in late).encode())
        write_atomically(stamp, key.hexdigest().encode())

    def initramfs_modules(self, which):
        """Paths, inside of the initramfs, of the "base" or "late" modules in the order of loading."""
        return [f"/m/{name}" for name in (self.cache / f"{which}.list").read_text(encoding="ascii").split()]


def find(short):
    """The Kernel for a short name such as 6.1, by scripts/kver; "debug" is the one of debugkernel.py, "sid" that of
    sidkernel.py."""
    if short == "debug":
        from . import debugkernel  # pylint: disable=import-outside-toplevel,cyclic-import
        return debugkernel.find()
    if short == "sid":
        from . import sidkernel  # pylint: disable=import-outside-toplevel,cyclic-import
        return sidkernel.find()
    return Kernel(run(PROJECT / "scripts" / "kver", short).strip())


def headers_package_version(version):
    """Version of the installed linux-headers package, which the image has to match."""
    return run("dpkg-query", "-W", "-f", "${Version}", f"linux-headers-{version}")


def _code_digest():
    return hashlib.sha256(repr((MODULE_FOLDERS, MODULE_NAMES)).encode()).hexdigest()[:12]


def find_or_fetch(version, scratch):
    """(image file, module folder) of a kernel: installed, or unpacked below `scratch` from Debian's package."""
    installed = pathlib.Path("/boot") / f"vmlinuz-{version}"
    modules = pathlib.Path("/lib/modules") / version
    if installed.exists() and (modules / "modules.dep").exists():
        return installed, modules
    package = f"linux-image-{version}"
    scratch.chmod(0o755)
    download(package, headers_package_version(version), scratch)
    run("dpkg-deb", "-x", next(scratch.glob("*.deb")), scratch)
    run("depmod", "-b", scratch, version)
    return scratch / "boot" / f"vmlinuz-{version}", scratch / "lib" / "modules" / version


def download(package, version, folder):
    """Has apt fetch a package; another revision of it if the mirror has moved on (the kernel's ABI is in the name)."""
    for attempt, what in enumerate((f"{package}={version}", f"{package}={version}", package)):
        try:
            if attempt == 1 and os.getuid() == 0:
                run("apt-get", "update", "-q")
            run("apt-get", "download", what, cwd=folder)
            return
        except HarnessError as error:
            last = error
    raise HarnessError(f"{package} can neither be found installed nor downloaded: {last}")


def uncompressed_image(packed):
    """The ELF image inside of a bzImage: QEMU boots it directly (PVH), without the decompression under emulation.

    Offsets are those of the Linux/x86 boot protocol: setup_sects at 0x1f1, payload_offset and payload_length at 0x248.
    The last four bytes of the payload are the size of what it unpacks to.
    """
    start = (packed[0x1f1] + 1) * 512
    offset, length = struct.unpack_from("<II", packed, 0x248)
    payload = packed[start + offset:start + offset + length]
    image = unpack(payload[:-4])
    if not image.startswith(b"\x7fELF") or len(image) != struct.unpack("<I", payload[-4:])[0]:
        raise HarnessError("the kernel's image cannot be unpacked")
    return image


def unpack(data):
    """Content of compressed data, whose kind is told by its first bytes; anything else is returned as it is."""
    if data.startswith(b"\xfd7zXZ\0"):
        return lzma.decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


def read_dependencies(path):
    """modules.dep as {module: [modules it needs]}, by the names in the file."""
    dependencies = {}
    for line in path.read_text(encoding="ascii").splitlines():
        name, _, needs = line.partition(":")
        dependencies[name] = needs.split()
    return dependencies


def select_modules(dependencies):
    """The modules of MODULE_FOLDERS and MODULE_NAMES with all that they need."""
    folders = tuple(f"kernel/{folder}/" for folder in MODULE_FOLDERS)
    names = {name.replace("-", "_") for name in MODULE_NAMES}
    selected = set()
    for name, needs in dependencies.items():
        stem = name.rsplit("/", 1)[-1].split(".ko")[0].replace("-", "_")
        if name.startswith(folders) or stem in names:
            selected.add(name)
            selected.update(needs)
    return selected


def build_init():
    """The guest's process 1."""
    return build_program("init", GUEST_INIT)


def build_program(name, folder):
    """A static program of the guest, built from the C files of a folder when these have changed."""
    sources = sorted(folder.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    program = VM / f"{name}-{digest}"
    if not program.exists():
        VM.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(".part")
        run("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-D_GNU_SOURCE", "-o", part,
            *(source for source in sources if source.suffix == ".c"))
        part.rename(program)
    return program
