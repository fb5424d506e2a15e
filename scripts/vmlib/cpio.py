# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Writes cpio archives ("newc" format), which the kernel unpacks as its initial root file system."""

import stat

_DIRECTORY_MODE = stat.S_IFDIR | 0o755


def _entry(name, mode, data, inode):
    encoded = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def archive(files):
    """Bytes of an archive of {name: (content, permissions)}; the directories above each name are made too.

    Archives can be put one behind the other: each is padded to a multiple of 512 bytes.
    """
    parts = []
    directories = set()
    inode = 1
    for name, (content, permissions) in files.items():
        above = name.split("/")[:-1]
        for depth in range(1, len(above) + 1):
            directory = "/".join(above[:depth])
            if directory not in directories:
                directories.add(directory)
                parts.append(_entry(directory, _DIRECTORY_MODE, b"", inode))
                inode += 1
        parts.append(_entry(name, stat.S_IFREG | permissions, content, inode))
        inode += 1
    parts.append(_entry("TRAILER!!!", 0, b"", 0))
    joined = b"".join(parts)
    return joined + bytes(-len(joined) % 512)
