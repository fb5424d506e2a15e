# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What of the provider speaks rdma-core's private ABI, with a libibverbs of every version: a fake one, built from
versions.tsv. The real ones of Debian 12, 13 and sid are tried by make check and make check-distros."""

import errno
import functools
import os
import pathlib
import re
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
ROOM = ROOT / "provider" / "rdma_core"
CC = ["gcc", "-std=gnu11", "-Wall", "-fPIC", "-D_GNU_SOURCE", f"-I{ROOT}", f"-I{ROOT / 'provider'}"]

#: The public function by which each interface of libibverbs, IBVERBS_1.x, is known.
PUBLIC = {12: "ibv_reg_dmabuf_mr", 13: "ibv_import_dm", 14: "ibv_query_qp_data_in_order", 15: "ibv_alloc_dmah",
          16: "ibv_dm_export_dmabuf_fd", 17: "ibv_alloc_buf", 18: "ibv_create_comp_cntr", 19: "ibv_of_tomorrow"}


@functools.cache
def rows():
    """The table: {"45-56": {"first": 45, ..., "operations": [...]}, ...}."""
    lines = [line for line in (HERE / "versions.tsv").read_text().splitlines() if not line.startswith("#")]
    names = lines[0].split("\t")
    found = [dict(zip(names, line.split("\t"))) for line in lines[1:]]
    for row in found:
        row.update({name: int(row[name]) for name in names[:-1]}, operations=row["operations"].split())
    return {f"{row['first']}-{row['last']}": row for row in found}


def newest(**changes):
    """The newest version, changed."""
    return {**list(rows().values())[-1], **changes}


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    """The program, and the room provider/rdma_core as a library with nothing behind it."""
    out = tmp_path_factory.mktemp("parts")
    # An opened device is all that is needed, so opening succeeds; what must not be called aborts.
    (out / "opened.c").write_text("int usiw_context_open(void) { return 0; }\n")
    subprocess.run([*CC, "-c", "-Dusiw_context_open=unused_context_open", "-o", out / "behind.o",
                    ROOT / "tests/kmod/other_provider.c"], check=True)
    subprocess.run([*CC, "-shared", "-o", out / "room.so", *sorted(ROOM.glob("*.c")), out / "opened.c",
                    out / "behind.o"], check=True)
    subprocess.run([*CC, "-o", out / "load", HERE / "load.c", "-ldl"], check=True)
    return out


@functools.cache
def commands():
    """The private functions that the provider looks up, without those that the fake has itself."""
    names = re.findall(r"F\((\w+),", (ROOM / "library.h").read_text())
    return [name for name in names if name.startswith("ibv_cmd_")]


def fake(folder, row, name=None, without=()):
    """Builds a libibverbs of the version that the row describes; its path."""
    def listed(names):
        return " ".join(f"X({each})" for each in names if each not in without)
    file = folder / (name or f"libibverbs.so.1.{row['interface']}.{row['last']}.0")
    public = [symbol for interface, symbol in PUBLIC.items() if interface <= row["interface"]]
    subprocess.run([*CC, "-shared", "-Wl,-soname,libibverbs.so.1", "-o", file, f"-DNUMBER={row['number']}",
                    f"-DFIRST={row['first']}", f"-DWR_FUNCTIONS={row['wr']}", f"-DFRONT={row['front']}",
                    f"-DOPERATIONS(X)={listed(row['operations'])}", f"-DPUBLIC(X)={listed(public)}",
                    f"-DCOMMANDS(X)={listed(commands())}", HERE / "fake_libibverbs.c"], check=True)
    link = folder / "libibverbs.so.1"
    link.symlink_to(file.name)
    return link


def load(parts, library, **environment):
    """What the fake saw, as {first word: [rest, ...]}, and what was said on stderr."""
    done = subprocess.run([parts / "load", library, parts / "room.so"], env={**os.environ, **environment},
                          capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    seen = {}
    for line in done.stdout.splitlines():
        word, *rest = line.split("\t")
        seen.setdefault(word, []).append(rest)
    return seen, done.stderr


#: Those of device.c, which are its own.
OWN = {"dereg_mr", "rereg_mr", "query_device_ex", "query_port", "free_context"}


@pytest.mark.parametrize("version", rows())
def test_each_operation_is_in_its_place(parts, tmp_path, version):
    """The provider registers, opens a device, and each function is where this version calls it."""
    seen, said = load(parts, fake(tmp_path, rows()[version]))
    assert said == ""
    assert seen["registered"] == [["usiw"]]
    assert seen["get_context"] == [["1", "1", "1"]]
    assert seen["context"] == [["1", "-"]]
    assert seen["qp_ex"] == [["1"]]
    for name, symbol, _ in seen["slot"]:
        assert symbol == ("-" if name in OWN else f"usiw_verb_{name}"), name
    # Static functions have no names at run time: they are where they are with the version that runs on Debian 12.
    (tmp_path / "44").mkdir()
    known, _ = load(parts, fake(tmp_path / "44", rows()["44-44"]))
    assert {name: at for name, _, at in seen["slot"]} == {name: at for name, _, at in known["slot"]}
    assert OWN <= {name for name, _, _ in seen["slot"]}


def test_the_list_has_no_operation_more(parts, tmp_path):
    """Of the newest version each row of operations.h is one, in this order."""
    names = re.findall(r"(?:HAS|NOT)\(\d+, (\w+)", (ROOM / "operations.h").read_text().partition("#define")[2])
    assert names == newest()["operations"]


def test_every_number_has_a_file():
    """libibverbs finds the provider by a name for its number."""
    listed = re.search(r"USIW_RDMA_CORE_ABIS ([\d ]+)", (ROOM / "CMakeLists.txt").read_text())[1]
    assert {int(number) for number in listed.split()} == {row["number"] for row in rows().values()}


def refused(parts, library):
    """The one line with which the provider refuses to load."""
    seen, said = load(parts, library)
    assert seen == {"registered": [["-"]]}
    assert said.count("\n") == 1 and "34 to 65" in said and "install" in said
    return said


def test_an_rdma_core_of_tomorrow(parts, tmp_path):
    """With the number of today, as several have it: the file's name tells."""
    said = refused(parts, fake(tmp_path, newest(last=66, interface=19)))
    assert "libibverbs.so.1.19.66.0 is of rdma-core 66" in said


def test_an_rdma_core_of_another_number(parts, tmp_path):
    """Under a name that it should not have."""
    assert "no libibverbs of this process" in refused(parts, fake(tmp_path, newest(last=66, number=66)))


def test_a_function_is_missing(parts, tmp_path):
    assert "has no ibv_cmd_resize_cq" in refused(parts, fake(tmp_path, newest(), without=["ibv_cmd_resize_cq"]))


def test_the_functions_of_a_qp_are_of_tomorrow(parts, tmp_path):
    """More of them than there is room for."""
    assert "struct ibv_qp_ex" in refused(parts, fake(tmp_path, newest(wr=27)))


def test_a_qp_has_a_function_more(parts, tmp_path):
    """That moves what tells that they are set, which is found."""
    seen, said = load(parts, fake(tmp_path, newest(wr=23)))
    assert seen["qp_ex"] == [["1"]] and said == ""


def with_another(operations, before):
    """The operations, with a new one in front of the given one."""
    at = operations.index(before)
    return operations[:at] + ["of_tomorrow"] + operations[at:]


@pytest.mark.parametrize("changes", [
    {"operations": with_another(newest()["operations"], "alloc_mw")},
    {"operations": with_another(newest()["operations"], "poll_cq")},
    {"operations": with_another(newest()["operations"], "query_rt_values")},
    {"operations": with_another(newest()["operations"], "reg_mr")},
    {"front": newest()["front"] + 8}, {"front": newest()["front"] + 256}, {"front": newest()["front"] - 8}],
    ids=["operation-at-the-front", "operation-in-the-middle", "operation-behind", "operation-near-the-end",
         "context-grown", "context-grown-much", "context-shrunk"])
def test_opening_finds_what_the_name_hides(parts, tmp_path, changes):
    """A library of another layout whose name and functions do not tell: no device is opened, nothing is overwritten."""
    seen, said = load(parts, fake(tmp_path, newest(**changes), name="libibverbs-of-somebody.so"))
    assert seen["context"] == [["0", os.strerror(93)]]
    assert said.count("\n") == 1 and "usiw fits 34 to 65" in said
    assert seen["uninit"] == [["1"]]


def provider_abi():
    """USIW_ABI_VERSION."""
    return int(re.search(r"^#define USIW_ABI_VERSION\s+(\d+)", (ROOT / "uapi/usiw_abi.h").read_text(), re.M)[1])


@pytest.mark.parametrize("version", rows())
@pytest.mark.parametrize("newer_by, todo", [
    (1, "install usiw of the module's version, then restart the program"),
    (-1, 'install usiw-dkms of the provider\'s version, then "rmmod usiw && modprobe usiw"')],
    ids=["module-is-newer", "module-is-older"])
def test_a_module_of_another_version(parts, tmp_path, version, newer_by, todo):
    """The device does not open, twice, and one line says both versions and what to do."""
    module = provider_abi() + newer_by
    seen, said = load(parts, fake(tmp_path, rows()[version]), MODULE_ABI=f"{module} {module}")
    assert seen["context"] == [["0", os.strerror(errno.EPROTONOSUPPORT)]] * 2
    assert said == (f"usiw: the loaded kernel module speaks ABI {module} to {module}, this program's provider ABI "
                    f"{provider_abi()}: {todo}\n")


def test_without_libibverbs(parts):
    """A program that loads the provider itself."""
    done = subprocess.run(["/usr/bin/python3", "-c", f"import ctypes; ctypes.CDLL('{parts / 'room.so'}')"],
                          capture_output=True, text=True, check=True)
    assert "no libibverbs of this process" in done.stderr and done.stderr.count("\n") == 1
