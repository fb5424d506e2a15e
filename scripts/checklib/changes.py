# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Asks git what has changed."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def git(*words, root=ROOT):
    """Returns the standard output of a git command in bytes; None if it fails, as it does without a repository."""
    try:
        done = subprocess.run(["git", *words], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def commit(name, root=ROOT):
    """Returns the hash of a commit; None if there is no such commit here."""
    found = git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", root=root)
    return found.decode().strip() if found else None


def base(root=ROOT):
    """Returns the commit since which lines count as new; None in a shallow clone and without git.

    That is the commit at which the branch left origin/HEAD. Without an origin, or if the branch is not ahead of it, it
    is the commit before the last one.
    """
    head, upstream = commit("HEAD", root), commit("origin/HEAD", root)
    if head and upstream:
        merged = git("merge-base", head, upstream, root=root)
        if merged and merged.decode().strip() != head:
            return merged.decode().strip()
    return commit("HEAD~1", root)


def _names(output):
    return [name.decode(errors="surrogateescape") for name in (output or b"").split(b"\0") if name]


def text_of(content):
    """Returns content as text; None if it is binary."""
    try:
        return content.decode() if b"\0" not in content else None
    except UnicodeDecodeError:
        return None


def at(revision, path, root=ROOT):
    """Returns the content of a file at a commit; None if the commit does not have the file."""
    return git("show", f"{revision}:{path}", root=root)


def in_work_tree(path, root=ROOT):
    """Returns the content of a file in the work tree; None if it does not exist, or is a link or a folder."""
    full = root / path
    return full.read_bytes() if full.is_file() and not full.is_symlink() else None


def listed(root=ROOT):
    """Returns the paths of all files of the project; without git, of all files outside of build/."""
    found = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", root=root)
    if found is not None:
        return sorted(set(_names(found)))
    return sorted(str(path.relative_to(root)) for path in root.rglob("*")
                  if path.is_file() and path.relative_to(root).parts[0] not in ("build", ".git"))


def between(first, last, root=ROOT):
    """Returns the paths that differ between two commits. A renamed file is two paths."""
    return sorted(_names(git("diff", "--name-only", "--no-renames", "-z", first, last, "--", root=root)))


def untracked(root=ROOT):
    """Returns the paths of new files that git does not know yet and does not ignore."""
    return _names(git("ls-files", "-z", "--others", "--exclude-standard", root=root))


def changed(since, root=ROOT):
    """Returns the paths that differ between a commit and the work tree, new files among them."""
    found = _names(git("diff", "--name-only", "--no-renames", "-z", since, "--", root=root))
    return sorted(set(found + untracked(root)))
