# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Programs that load libibverbs in unusual ways, and processes that are forbidden what others have. Either it works or
one line says what failed, why, and what to do; nothing hangs."""

import re
import socket
import subprocess

import pytest

from compiling import PROGRAMS, VERBS, compile_c, compiled
from hosts import A6
from support import procs

SECONDS = 20


def library(folder, name, source, *options):
    """A shared library of its own, whose dependencies stay although nothing calls them."""
    (folder / f"{name}.c").write_text(source)
    return compile_c(folder / f"lib{name}.so", folder / f"{name}.c", "-shared", "-fPIC", f"-L{folder}",
                     f"-Wl,--no-as-needed,-rpath,{folder}", *options)


@pytest.fixture(name="load")
def fixture_load(usiw_run, tmp_path):
    """Loads a library under usiw-run: what usiw-run says, and how many devices there are."""
    program = compile_c(tmp_path / "load", PROGRAMS / "load.c")

    def run(how, what="libibverbs.so.1"):
        lines = usiw_run([program, how, what]).expect(0, SECONDS).splitlines()
        return [line for line in lines if line.startswith("usiw-run:")], lines[-1]
    return run


@pytest.fixture(name="two_threads")
def fixture_two_threads(tmp_path):
    return compiled("two_threads", tmp_path)


def said(proc):
    return [line for line in proc.output.splitlines() if line.startswith("usiw-run:")]


def test_deep_binding(load, tmp_path):
    """A library is bound to its own dependencies first, which would hide usiw-run's: not so libibverbs, nor a library
    that needs it. Where it comes by another library a line says so."""
    assert load("deep") == ([], "1 devices")
    assert load("deep", library(tmp_path, "direct", "int direct;", *VERBS)) == ([], "1 devices")
    line, = load("deep", library(tmp_path, "indirect", "int indirect;", "-ldirect"))[0]
    assert "indirect.so loads libibverbs with RTLD_DEEPBIND" in line and "LD_PRELOAD=librdmacm.so.1" in line


def test_what_the_line_about_deep_binding_says_helps(load, tmp_path, monkeypatch):
    library(tmp_path, "direct", "int direct;", *VERBS)
    monkeypatch.setenv("LD_PRELOAD", "librdmacm.so.1")
    assert load("deep", library(tmp_path, "indirect", "int indirect;", "-ldirect")) == ([], "1 devices")


@pytest.mark.parametrize("by", ["name", "file", "another library"])
def test_namespace_of_its_own(load, tmp_path, by):
    """Of dlmopen: a libibverbs with another libc, where nothing can be interposed."""
    what = {"name": "libibverbs.so.1", "file": subprocess.run(["gcc", "-print-file-name=libibverbs.so.1"], check=True,
                                                              text=True, stdout=subprocess.PIPE).stdout.strip()}
    lines, devices = load("namespace", what.get(by) or library(tmp_path, "direct", "int direct;", *VERBS))
    assert devices == "0 devices"
    line, = lines
    assert "a namespace of dlmopen(3), which usiw-run cannot enter" in line and "load it by dlopen(3)" in line


def test_libraries_are_looked_for_as_without_usiw_run(usiw_run, tmp_path):
    """By the path in the library that calls dlopen or beside that library ($ORIGIN), also with RTLD_DEEPBIND and in a
    namespace of its own."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    library(folder, "plugin", "int plugin;")
    library(folder, "host", '#include <dlfcn.h>\nstatic int all(const char *name) { return dlopen(name, RTLD_NOW) && '
            'dlopen(name, RTLD_NOW | RTLD_DEEPBIND) && dlmopen(LM_ID_NEWLM, name, RTLD_NOW); }\n'
            'int load(void) { return all("libplugin.so") && all("$ORIGIN/libplugin.so"); }')
    (tmp_path / "p.c").write_text("int load(void);\nint main(void) { return !load(); }\n")
    program = compile_c(tmp_path / "p", tmp_path / "p.c", f"-L{folder}", "-lhost", f"-Wl,-rpath,{folder}")
    assert usiw_run([program]).expect(0) == ""


def test_dlerror_after_other_calls(usiw_run, tmp_path):
    """What dlopen did not find can be asked for after calls that usiw-run stands before."""
    (tmp_path / "p.c").write_text('#include <dlfcn.h>\n#include <stdio.h>\nint main(void) { '
                                  'if (dlopen("/nowhere/x.so", RTLD_NOW)) return 1;\n'
                                  'fclose(fopen("/dev/null", "w"));\nputs(dlerror()); }')
    program = compile_c(tmp_path / "p", tmp_path / "p.c")
    assert "/nowhere/x.so: cannot open" in usiw_run([program]).expect(0)


def test_static_libibverbs(usiw_run, tmp_path):
    """It sees the device and cannot load the provider."""
    program = compile_c(tmp_path / "p", PROGRAMS / "two_threads.c", "-Wl,-Bstatic", *VERBS, "-lnl-route-3", "-lnl-3",
                        "-Wl,-Bdynamic")
    proc = usiw_run([program])
    assert proc.wait(SECONDS) == 1
    line, = said(proc)
    assert f"{program} has libibverbs.a in it" in line and "-libverbs" in line


def test_memfd_create_is_forbidden(usiw_run, tmp_path, two_threads):
    forbid = compile_c(tmp_path / "forbid", PROGRAMS / "forbid.c")
    for program in ("ibv_devinfo", two_threads):
        proc = procs.Proc([forbid, "319", usiw_run.path, program])
        assert proc.wait(SECONDS) == 1, proc.output
        line, = said(proc)
        assert "memfd_create: Operation not permitted; allow memfd_create(2) in the seccomp profile" in line


def test_check_where_its_parent_ignores_children(usiw_run, tmp_path):
    """SIG_IGN of SIGCHLD is inherited. A trial that fails is still told from one that works."""
    forbid = compile_c(tmp_path / "forbid", PROGRAMS / "forbid.c")
    proc = procs.Proc(["env", "--ignore-signal=CHLD", forbid, "319", usiw_run.path, "--check"])
    assert proc.wait(SECONDS) == 1, proc.output
    assert "a connection by shared memory failed" in proc.output


def test_getrandom_is_forbidden(usiw_run, tmp_path, two_threads):
    """/dev/urandom gives the same. Where that is not there either a line says so."""
    forbid = compile_c(tmp_path / "forbid", PROGRAMS / "forbid.c")
    assert procs.Proc([forbid, "318", usiw_run.path, two_threads]).expect(0, SECONDS) == "done\n"
    proc = procs.Proc(["unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /dev/urandom && exec "$@"', "sh",
                       forbid, "318", usiw_run.path, two_threads])
    assert proc.wait(SECONDS) == 126, proc.output
    line, = said(proc)
    assert "no random numbers: getrandom(2) is forbidden" in line


def test_no_proc(usiw_run, two_threads, other_host):
    """It works, by raw packets to another host, too."""
    del other_host  # its device is there
    without = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", usiw_run.path]
    assert procs.Proc([*without, two_threads]).expect(0, SECONDS) == "done\n"
    assert "a connection by raw packets works" in procs.Proc([*without, "--check"]).expect(0, SECONDS)


@pytest.mark.usefixtures("other_host")
def test_no_ipv4(usiw_run, tmp_path):
    """A sandbox or a kernel without IPv4: the port has the speed of its interface all the same."""
    forbid = compile_c(tmp_path / "forbid", PROGRAMS / "forbid.c")
    without_ipv4 = [forbid, f"41:{int(socket.AF_INET)}"]
    shown = procs.Proc([*without_ipv4, usiw_run.path, "--address", A6, "ibv_devinfo", "-v"]).expect(0, SECONDS)
    assert re.search(r"state:\s+PORT_ACTIVE", shown) and re.search(r"active_speed:\s+10\.0 Gbps", shown)
