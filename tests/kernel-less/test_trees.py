# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The trees that play /sys: removed by the next usiw-run once nobody uses them, and nothing else with them."""

import fcntl
import os
import signal
import time

import pytest

LONG_AGO = time.time() - 7200


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directory for temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def look(usiw_run):
    """Runs a program that looks at the devices."""
    def run(device):
        assert device in usiw_run(["ibv_devices"], ["--device", device]).expect(0)
    return run


def trees(place):
    return sorted(place.glob("usiw-run-*"))


def age(path):
    for each in (path, path / "lock"):
        if each.exists():
            os.utime(each, (LONG_AGO, LONG_AGO))


def test_an_unused_tree_is_removed_and_a_new_one_kept(place, look):
    look("old")
    look("young")
    (old,) = [t for t in trees(place) if (t / "class/infiniband/old").exists()]
    age(old)
    look("new")
    assert not old.exists()
    assert sorted(d.name for t in trees(place) for d in (t / "class/infiniband").iterdir()) == ["new", "young"]


def test_a_used_tree_stays_until_its_user_is_killed(place, look, usiw_run):
    program = "import os, time; os.listdir('/sys/class/infiniband'); print('there', flush=True); time.sleep(300)"
    user = usiw_run(["/usr/bin/python3", "-c", program], ["--device", "used"])
    user.wait_for("there")
    (used,) = trees(place)
    age(used)
    look("other")
    assert (used / "class/infiniband/used").exists()
    user.signal(signal.SIGKILL)
    user.wait()
    look("other")
    assert not used.exists()


def test_a_user_that_has_closed_all_descriptors_finds_its_tree_again(place, look, usiw_run):
    program = """\
import os, time
os.listdir("/sys/class/infiniband")
os.closerange(3, 70000)
print("closed", flush=True)
input()
print(os.listdir("/sys/class/infiniband"))
"""
    r, w = os.pipe()
    user = usiw_run(["/usr/bin/python3", "-c", program], ["--device", "daemon"], stdin=r)
    user.wait_for("closed")
    (used,) = trees(place)
    age(used)
    look("other")
    assert not used.exists()
    os.write(w, b"\n")
    assert "['daemon']" in user.expect(0)
    os.close(r)
    os.close(w)


def test_what_only_looks_like_a_tree_stays(place, look):
    uid = os.geteuid()
    digest = "0123456789abcdef"
    target = place / "target"
    (target / "class").mkdir(parents=True)
    (target / "class" / "file").write_text("precious")
    link = place / f"usiw-run-{uid}-{digest}"
    link.symlink_to(target)
    others = []
    for name in (f"usiw-run-{uid}-abcdeg", f"usiw-run-{uid}-mine", f"usiw-run-{uid + 1}-{digest}"):
        (place / name / "class").mkdir(parents=True)
        others.append(place / name)
    (others[0] / "my data").write_text("precious")
    writable = place / f"usiw-run-{uid}-{digest[::-1]}"
    writable.mkdir()
    writable.chmod(0o777)
    inside = place / f"usiw-run-{uid}-fedcba"  # a tree, with a link in it
    (inside / "class").mkdir(parents=True)
    (inside / "class" / "link").symlink_to(target / "class")
    for path in (*others, target, writable, inside):
        age(path)
    look("usiw0")
    assert link.is_symlink() and (target / "class" / "file").read_text() == "precious"
    assert all(path.exists() for path in others) and (others[0] / "my data").exists() and writable.exists()
    assert not inside.exists()


def test_a_half_removed_tree_is_made_whole(place, look):
    """As kill -9 of the one who was removing it leaves it."""
    look("usiw0")
    (tree,) = trees(place)
    for path in (tree / "class/infiniband/usiw0").rglob("*"):
        if path.is_file():
            path.unlink()
    age(tree)
    (tree / "class").rename(tree / "class.gone")  # so that it is no tree to those who remove
    look("usiw0")
    assert (tree / "class/infiniband/usiw0/node_type").exists()


def test_eight_at_once_while_it_is_removed(place, look, usiw_run):
    look("shared")
    for _ in range(6):
        for tree in trees(place):
            age(tree)
        together = [usiw_run(["ibv_devices"], ["--device", "shared"]) for _ in range(8)]
        for proc in together:
            assert "shared" in proc.expect(0)
    assert len(trees(place)) == 1


def test_no_descriptor_is_left(place, look, usiw_run):
    """The program finds its device when a descriptor is free again. Nobody waits."""
    program = """\
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
device, taken = sys.argv[1], []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
begin = time.monotonic()
found = os.path.exists("/sys/class/infiniband/" + device)
assert time.monotonic() - begin < 1
for fd in taken:
    os.close(fd)
print(found, os.path.exists("/dev/infiniband/uverbs0"))
"""
    look("there")
    for device in ("there", "new"):
        assert usiw_run(["/usr/bin/python3", "-c", program, device], ["--device", device]).expect(0) == "False True\n"
    assert len(trees(place)) == 2


def test_fork_while_another_thread_makes_the_tree(place, look, usiw_run):
    """The child finds the device. The tree's lock is held as by one that removes it, so that making it takes long."""
    program = """\
import os, signal, threading, time
thread = threading.Thread(target=os.stat, args=("/sys/class/infiniband",))
thread.start()
print("begins", flush=True)
time.sleep(0.2)
child = os.fork()
if child == 0:
    signal.alarm(10)
    os.stat("/sys/class/infiniband/usiw0")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""
    look("usiw0")
    (tree,) = trees(place)
    with open(tree / "lock", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        proc = usiw_run(["/usr/bin/python3", "-c", program])
        proc.wait_for("begins")
        time.sleep(0.5)
    proc.expect(0)


#: A program on the RoCE face, whose GIDs are in a tree of their own.
READS_GIDS = """
import os, pathlib, shutil, subprocess
def gids():
    return [pathlib.Path(f"/sys/class/infiniband/usiw0/ports/1/gids/{i}").read_text() for i in range(4)]
before = gids()
"""


def test_the_tree_of_gids_is_made_again(place, usiw_run):
    program = READS_GIDS + f"""
for tree in pathlib.Path({str(place)!r}).glob("usiw-run-*"):
    shutil.rmtree(tree)
assert gids() == before
"""
    usiw_run(["/usr/bin/python3", "-c", program], ["--face", "roce"]).expect(0)


def test_new_trees_of_gids_take_no_more_descriptors(place, usiw_run):
    del place
    program = READS_GIDS + """
descriptors = len(os.listdir("/proc/self/fd"))
for what in ("add", "del") * 3:
    subprocess.run(["ip", "addr", what, "192.0.2.99/32", "dev", "lo"], check=True)
    assert (gids() == before) == (what == "del")
assert len(os.listdir("/proc/self/fd")) == descriptors
"""
    usiw_run(["/usr/bin/python3", "-c", program], ["--face", "roce"]).expect(0)
