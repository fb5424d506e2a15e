# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What usiw-run says before it runs anything: one clear line, and an exit status as a shell's."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

import buffers
from support import procs
from support.pairs import next_port
from support.procs import until


def only_line(proc):
    lines = proc.output.strip().splitlines()
    assert len(lines) == 1, proc.output
    assert lines[0].startswith("usiw-run: ")
    return lines[0]


def test_check(usiw_run):
    out = usiw_run([], ["--check"]).expect(0)
    labels = {line.split("  ")[0] for line in out.splitlines()}
    assert {"library", "provider", "device", "address", "this host", "elsewhere", "descriptors"} <= labels
    assert "works here" in out.splitlines()[-1]


def test_check_connects_by_each_port(usiw_run):
    """Of those that it promises."""
    works = {f"tried        a connection by {port} works" for port in ("shared memory", "UDP sockets")}
    assert works == {line for line in usiw_run([], ["--check"]).expect(0).splitlines() if line.startswith("tried")}
    works = {line for line in usiw_run([], ["--port", "socket", "--check"]).expect(0).splitlines() if "tried" in line}
    assert works == {"tried        a connection by UDP sockets works"}


def test_check_where_lo_is_down(usiw_run):
    out = procs.Proc(["unshare", "--net", usiw_run.path, "--check"]).expect(1)
    assert "lo is down" in out and "ip link set lo up" in out and "fix the problem" in out


def test_check_of_a_provider_for_another_rdma_core(usiw_run, tmp_path):
    """One that asks libibverbs for what it does not have."""
    for folder in ("run", "provider"):
        (tmp_path / folder).mkdir()
    for name in ("usiw-run", "libusiw-run.so"):
        shutil.copy(pathlib.Path(usiw_run.path).parent / name, tmp_path / "run")
    (tmp_path / "p.c").write_text("void verbs_register_driver_99(void);\n"
                                  "void *driver(void) { return (void *)verbs_register_driver_99; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "provider/libusiw-rdmav34.so", tmp_path / "p.c"],
                   check=True)
    out = procs.Proc([tmp_path / "run/usiw-run", "--check"]).expect(1)
    assert "does not fit this host's rdma-core" in out and "verbs_register_driver_99" in out


def test_check_of_an_rdma_core_of_tomorrow(usiw_run, tmp_path):
    """There is a provider, and none of the number that libibverbs asks for."""
    for folder in ("run", "provider"):
        (tmp_path / folder).mkdir()
    run = pathlib.Path(usiw_run.path).parent
    for name in ("usiw-run", "libusiw-run.so"):
        shutil.copy(run / name, tmp_path / "run")
    shutil.copy(run.parent / "provider/libusiw-provider.so", tmp_path / "provider")
    for command, status in (["--check"], 1), (["true"], 126):
        out = procs.Proc([tmp_path / "run/usiw-run", *command]).expect(status)
        assert "this host's rdma-core asks for libusiw-rdmav" in out and "rdma-core 34 to 65" in out


def test_check_where_nothing_arrives(usiw_run):
    """It says so in bounded time."""
    drop = ("ip link set lo up && nft add table inet t && "
            "nft 'add chain inet t in { type filter hook input priority 0; }' && "
            "nft add rule inet t in meta l4proto udp drop && exec \"$@\"")
    check = [usiw_run.path, "--port", "socket", "--check"]
    out = procs.Proc(["unshare", "--net", "sh", "-c", drop, "sh", *check]).expect(1, 20)
    assert "a connection by UDP sockets failed: " in out and "fix the problem" in out


@pytest.mark.parametrize("source, warned", [(buffers.SMALL, True), (buffers.LARGE, False)], ids=["small", "large"])
def test_check_warns_of_small_buffers(usiw_run, tmp_path, source, warned):
    """Where sockets may not have 8 MiB, as with Debian's default, and nowhere else."""
    out = usiw_run([], ["--check"], env=buffers.environment(tmp_path, source)).expect(0)
    assert ("net.core.rmem_max is small" in out and "net.core.rmem_max=8388608" in out) == warned, out
    assert ("208 KiB per socket" if warned else "8192 KiB per socket") in out


def test_check_says_what_is_wrong(usiw_run):
    out = usiw_run([], ["--address", "192.0.2.77", "--check"]).expect(1)
    assert "192.0.2.77 is not an address of this host" in out


def test_an_address_from_the_environment_that_is_none_is_refused(usiw_run, monkeypatch):
    monkeypatch.setenv("USIW_RUN_ADDRESS", "junk")
    assert "junk is not an address of this host" in usiw_run([], ["--check"]).expect(1)


def test_usiw_port_says_what_port_says(usiw_run, monkeypatch):
    """USIW_PORT, which says it with the module, means the same here. --port wins, and the provider sees neither."""
    monkeypatch.setenv("USIW_PORT", "socket")
    by_hand = "UDP sockets, by --port or USIW_PORT"
    assert by_hand in usiw_run([], ["--check"]).expect(0)
    assert by_hand not in usiw_run([], ["--port", "shm", "--check"]).expect(0)
    assert "USIW_PORT" not in [w.partition("=")[0] for w in usiw_run(["env"]).expect(0).split()]
    monkeypatch.setenv("USIW_PORT", "pigeon")
    proc = usiw_run(["true"])
    assert proc.wait() == 2
    assert "USIW_PORT: auto, socket, packet or shm, not 'pigeon'" in only_line(proc)


@pytest.mark.parametrize("options, part", [
    (["--nonesuch"], "unknown option --nonesuch"),
    (["-x"], "unknown option -x"),
    (["--check=1"], "unknown option --check=1"),
    (["--device"], "--device needs a value"),
    (["--loss=2"], "--loss: a probability from 0 to 1, not '2'"),
    (["--device", "a/b"], "--device"),
    (["--address", "localhost"], "--address"),
    (["--port", "pigeon"], "--port"),
    ([], "no program is named"),
])
def test_wrong_options(usiw_run, options, part):
    proc = usiw_run([], options)
    assert proc.wait() == 2
    assert part in only_line(proc)


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_options_of_the_program_are_left_alone(usiw_run, separator):
    script = ["sh", "-c", 'echo "$USIW_RUN_PORT:$*"', "sh", "--port", "shm", "--help", "-x", "--"]
    assert usiw_run([*separator, *script], ["--port=socket"]).expect(0) == "socket:--port shm --help -x --\n"


def test_program_not_found(usiw_run):
    proc = usiw_run(["no-such-program"])
    assert proc.wait() == 127
    assert "not found" in only_line(proc)


def test_static_program(usiw_run, tmp_path):
    source = tmp_path / "p.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", "-o", tmp_path / "p", source], check=True)
    proc = usiw_run([tmp_path / "p"])
    assert proc.wait() == 126
    assert "statically linked" in only_line(proc)


def test_set_user_id_program(usiw_run, tmp_path):
    """Of another user, so that the program gains rights."""
    if os.geteuid() != 0:
        pytest.fail("run this by tests/kernel-less/run")
    program = tmp_path / "p"
    shutil.copy("/bin/true", program)
    program.chmod(0o6755)
    proc = usiw_run([program])
    # Owned by the caller: no rights are gained, and it runs.
    assert proc.wait() == 0


def lost_program(tmp_path, kind):
    """A program into which the library does not get."""
    source, program = tmp_path / "lost.c", tmp_path / "lost"
    source.write_text('#include <stdio.h>\nint main(void) { puts("ran"); return 3; }\n')
    subprocess.run(["gcc", *(["-static"] if kind == "static" else []), "-o", program, source], check=True)
    return program


@pytest.mark.parametrize("how", [
    "sh -c '{0}; exit $?'",
    "sh -c 'exec {0}'",
    "bash -c '{0}; exit $?'",
    "env {0}",
    "/usr/bin/python3 -c 'import os; os.execv(\"{0}\", [\"x\"])'",
    "/usr/bin/python3 -c 'import os; os.execvp(\"lost\", [\"x\"])'",
    "/usr/bin/python3 -c 'import os, sys; sys.exit(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawnp(\"lost\", [\"x\"], os.environ), 0)[1]))'",
    "/usr/bin/python3 -c 'import subprocess, sys; sys.exit(subprocess.call([\"{0}\"]))'",
    "/usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).execlp(b\"lost\", b\"x\", b\"y\", None)'",
])
def test_static_program_in_a_script(usiw_run, tmp_path, how):
    """It runs without RDMA, which is said in one line; its exit status is its own."""
    program = lost_program(tmp_path, "static")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = tmp_path / "s"
    script.write_text(f"#!/bin/sh\n{how.format(program)}\n")
    script.chmod(0o755)
    proc = usiw_run([script], env=env)
    assert proc.wait() == 3
    said = [line for line in proc.output.splitlines() if line.startswith("usiw-run:")]
    assert said == [f"usiw-run: {program} is statically linked: it runs without RDMA"], proc.output
    assert "ran" in proc.output


def test_script_of_a_static_interpreter_in_a_script(usiw_run, tmp_path):
    program = lost_program(tmp_path, "static")
    inner = tmp_path / "inner"
    inner.write_text(f"#! {program}\n")
    inner.chmod(0o755)
    proc = usiw_run(["sh", "-c", f"{inner}; exit $?"])
    assert proc.wait() == 3
    assert f"usiw-run: {program} is statically linked" in proc.output


def test_nothing_is_said_of_other_programs_in_a_script(usiw_run, tmp_path):
    """Of dynamic ones, those that cannot be executed, and those that are not to have the library."""
    lost = lost_program(tmp_path, "static")
    plain = tmp_path / "plain"
    shutil.copy(lost, plain)
    plain.chmod(0o644)
    script = f"true; {plain}; /nonesuch; env -u LD_PRELOAD {lost}; env -u LD_PRELOAD sh -c {lost}; true"
    assert "usiw-run:" not in "\n".join(line for line in usiw_run(["sh", "-c", script]).expect(0).splitlines()
                                        if "LD_PRELOAD" not in line)


def test_script(usiw_run, tmp_path):
    script = tmp_path / "s"
    script.write_text("#!/bin/sh\nibv_devinfo -l\n")
    script.chmod(0o755)
    assert "usiw0" in usiw_run([script]).expect(0)


def test_device_name(usiw_run):
    assert "rnic7" in usiw_run(["ibv_devinfo", "-l"], ["--device", "rnic7"]).expect(0)
    assert "transport:" in usiw_run(["ibv_devinfo", "-d", "rnic7"], ["--device=rnic7"]).expect(0)


def test_exit_status_and_environment_pass(usiw_run):
    assert usiw_run(["sh", "-c", "exit 42"]).wait() == 42


def test_a_program_without_verbs_is_undisturbed(usiw_run):
    """Descriptors, directories and pipes of a program that has nothing to do with RDMA."""
    out = usiw_run(["sh", "-c", "ls /sys/class/net; ls -l /dev/null; echo a | cat; cat < /etc/hostname"]).expect(0)
    assert "lo" in out and "/dev/null" in out


def played_tree(tmp_path):
    """The one tree that plays /sys there."""
    trees = list(tmp_path.glob("usiw-run-*"))
    assert len(trees) == 1
    return trees[0]


def test_what_plays_sys_can_be_read_by_all(usiw_run, tmp_path):
    """A program that gives up its user goes on to see the devices; whatever the umask, others cannot write."""
    shell = ["sh", "-c", "umask 077; ibv_devinfo -l"]
    assert "usiw0" in usiw_run(shell, env={"TMPDIR": tmp_path}).expect(0)
    tree = played_tree(tmp_path)
    for path in [tree, *tree.rglob("*")]:
        mode = 0o600 if path == tree / "lock" else 0o755 if path.is_dir() else 0o644  # nobody else locks it
        assert path.stat().st_mode & 0o777 == mode, path


def test_what_plays_sys_is_made_once(usiw_run, tmp_path):
    """Programs that start together where there is no tree yet make one, and each sees the device."""
    procs = [usiw_run(["ibv_devinfo", "-l"], env={"TMPDIR": tmp_path}) for _ in range(8)]
    for proc in procs:
        assert "usiw0" in proc.expect(0)
    tree = played_tree(tmp_path)
    assert not [path for path in tree.rglob("*") if path.name.startswith(".")]


def test_what_plays_sys_is_made_good(usiw_run, tmp_path):
    """Something has cleaned up the directory of temporary files, half of it."""
    env = {"TMPDIR": tmp_path}
    usiw_run(["ibv_devinfo"], env=env).expect(0)
    tree = played_tree(tmp_path)
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    (tree / "class/infiniband_verbs/uverbs0/ibdev").unlink()
    shutil.rmtree(tree / "class/infiniband")
    assert "usiw0" in usiw_run(["ibv_devinfo", "-l"], env=env).expect(0)
    assert {path: path.read_bytes() for path in played_tree(tmp_path).rglob("*") if path.is_file()} == before


def test_what_plays_sys_is_not_somebody_elses(usiw_run, tmp_path):
    """A tree that others could write to is not used."""
    env = {"TMPDIR": tmp_path}
    usiw_run(["ibv_devinfo"], env=env).expect(0)
    tree = played_tree(tmp_path)
    (tree / "class/infiniband_verbs/uverbs0/ibdev").write_text("evil0\n")
    tree.chmod(0o777)
    out = usiw_run(["ibv_devinfo", "-l"], env=env).expect(0)
    assert "usiw0" in out and "evil0" not in out


def test_version(usiw_run):
    assert re.fullmatch(r"usiw-run \d+\.\d+\.\d+ \(ABI \d+, wire \d+\)\n", usiw_run([], ["--version"]).expect(0))


def test_file_that_is_not_executable(usiw_run, tmp_path):
    file = tmp_path / "p"
    file.write_text("#!/bin/sh\n")
    proc = usiw_run([file])
    assert proc.wait() == 126
    assert "not executable" in only_line(proc)


def test_script_that_does_not_say_by_what(usiw_run, tmp_path):
    """As a shell runs it."""
    script = tmp_path / "s"
    script.write_text('ibv_devinfo -l\necho "args: $*"\n')
    script.chmod(0o755)
    out = usiw_run([script, "a", "b"]).expect(0)
    assert "usiw0" in out and "args: a b" in out


def test_devices_can_be_listed(usiw_run):
    """ls(1) asks by statx(2). And the device has the interface that it stands for, where programs look for it."""
    out = usiw_run(["sh", "-c", "ls /sys/class/infiniband && ls /sys/class/infiniband/usiw0/device/net && "
                    "ls -l /dev/infiniband/uverbs0 /sys/class/infiniband/"]).expect(0)
    lines = out.splitlines()
    assert lines[0] == "usiw0" and lines[1] == "lo"
    assert "231, 192" in out


def test_place_for_temporary_files_that_is_not_there(usiw_run, tmp_path):
    """Another one is taken."""
    gone = {"TMPDIR": tmp_path / "gone"}
    out = usiw_run(["ibv_devinfo", "-l"], env=gone).expect(0)
    assert "usiw0" in out and "cannot" not in out


def test_no_place_for_temporary_files(usiw_run):
    """All is read-only: said at once, and by --check."""
    # The tree may be in one of them.
    path = pathlib.Path(usiw_run.path)
    build = path.parent.parent  # with the provider
    everything = (f"mount --bind {build} /mnt && "
                  "for d in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o ro none $d || exit 9; done; ")
    script = f"{everything} unset TMPDIR XDG_RUNTIME_DIR; exec /mnt/{path.relative_to(build)} "
    for arguments, status in (("--check", 1), ("true", 2)):
        proc = procs.Proc(["unshare", "--mount", "sh", "-c", script + arguments])
        assert "no directory to write to" in proc.expect(status)


def test_program_that_connects_by_itself(usiw_run):
    """ib_send_lat without -R says no more than that it failed to modify its QP: a hint stands beside that."""
    port = next_port()
    server = usiw_run(["ib_send_lat", "-p", port])
    until(lambda: procs.sockets_bound(port), "the server listens")
    client = usiw_run(["ib_send_lat", "-p", port, "127.0.0.1"])
    assert client.wait() != 0
    assert "option -R" in client.output
    server.kill()
