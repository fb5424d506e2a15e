# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""scripts/bench, with recorded outputs of the tools and programs that stand for them."""

import os
import pathlib
import subprocess

import pytest

from benchlib import ends, guests, instructions, loss, many, parse, plan, results, tools
from benchlib.ends import LO, Failed, Missing

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"
BARE, MANY, RUN = (str(BUILD / path) for path in ("tests/bench/bare", "tests/bench/many_qps", "run/usiw-run"))
needs_veth = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")

LAT = " #bytes #iterations t_min\n" \
      " 64      500   7.41   1864.17   118.75   \t 299.64  \t398.93 \t\t1702.72 \t\t1864.17\n"
BW = " 64         500              34.92              4.09   \t\t   0.066969\n"
FI = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n" \
     "64k     500     =500     62m         3.75s     17.49    3748.04       0.00\n"
UCX = "|     Test     | # iterations | 50.0%ile |\n" \
      "                         500      0.633     1.306     1.307       46.73      46.75      765663      765663\n"


def test_each_tools_output():
    assert parse.perftest_lat(LAT, 64) == {"us": 118.75, "p99_us": 1702.72, "avg_us": 299.64}
    assert parse.perftest_bw(BW, 64)["mb_s"] == pytest.approx(4.09 * 1.048576)
    assert parse.fi_pingpong(FI) == {"avg_us": 3748.04, "mb_s": 17.49}
    assert parse.ucx_perftest(UCX, "lat") == {"us": 0.633, "avg_us": 1.307}
    assert parse.ucx_perftest(UCX, "bw")["mb_s"] == pytest.approx(46.75 * 1.048576)
    slow = FI.replace("17.49", "0.00").replace("64k ", "2 ")
    assert parse.fi_pingpong(slow) == {"avg_us": 3748.04}
    assert parse.own("us=1.5 p99_us=3 avg_us=2.0\n") == {"us": 1.5, "p99_us": 3, "avg_us": 2}
    assert parse.own("processor=0.000000 peak_kib=7716\n") == {"processor": 0, "peak_kib": 7716}
    assert parse.callgrind_total("==7== Collected : 12345\n") == 12345


def test_output_without_a_figure_is_a_failure():
    for call in (lambda: parse.perftest_lat(LAT, 128), lambda: parse.perftest_bw(BW.replace("4.09", "0.00"), 64),
                 lambda: parse.fi_pingpong(""), lambda: parse.ucx_perftest("", "lat"), lambda: parse.own("no"),
                 lambda: parse.own("mb_s=0.000 bytes=0")):
        with pytest.raises(Failed):
            call()


def test_report_names_what_failed_and_what_is_missing(tmp_path):
    cell = results.Cell("lo, SEND", "a", "64 B", 64, "lat")
    gone = cell._replace(row="b")
    these = [results.Result(n, cell, results.OK, {"us": us}, "") for n, us in enumerate((3.0, 1.0, 2.0))]
    these += [results.Result(3, cell, results.FAILED, {}, "no answer"),
              results.Result(0, gone, results.MISSING, {}, "b is not installed")]
    text = results.markdown(these, [])
    assert "| a | 2.00 (1.00 to 3.00), 1 of 4 failed |" in text and "| b | missing |" in text
    assert "failed: lo, SEND, a, 64 B: no answer" in text and "missing: lo, SEND, b: b is not installed" in text
    results.write_csv(tmp_path / "c.csv", these)
    lines = (tmp_path / "c.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 6 and lines[1].startswith('0,"lo, SEND",a,64 B,64,lat,ok,3.0,')


def test_a_row_without_percentiles_is_among_the_averages_only():
    these = [results.Result(1, results.Cell("t", "a", "64 B", 64, "lat"), results.OK, {"us": 1.0, "avg_us": 2.0}, ""),
             results.Result(1, results.Cell("t", "b", "64 B", 64), results.OK, {"avg_us": 3.0}, "")]
    median, average = results.markdown(these, []).split("## t: us, median")[1].split("## t: us, average")
    assert "| a | 1.00 |" in median and "| b " not in median
    assert "| a | 2.00 |" in average and "| b | 3.00 |" in average


def of(measure):
    """The state and the detail of a cell that is measured so, by a program that is there."""
    job = tools.Job(results.Cell("t", "usiw-run", "c", 1), "true", LO, measure)
    result, = plan.execute([job], 1, lambda _: None)
    return result.state, result.detail


def test_what_a_machine_lacks_is_missing_and_what_goes_wrong_is_failed():
    def raising(error):
        def measure(_):
            raise error
        return measure
    assert of(raising(Missing("no netem"))) == (results.MISSING, "no netem")
    assert of(raising(Failed("no answer"))) == (results.FAILED, "no answer")
    assert of(lambda _: {"us": 1.0}) == (results.OK, "")


def test_loss_that_cannot_be_had_is_missing_with_both_reasons():
    lossy = tools.under_loss(tools.Job(results.Cell("t", "a", "c", 1), "true", LO, lambda _: {"mb_s": 1.0}), 1)
    nowhere = ends.Ends("nowhere", ["false"], ["false"], "", ("x", "y"))
    state, detail = of(lambda _: lossy.measure(nowhere))
    assert state == results.MISSING and "XDP" in detail and "netem" in detail


def test_share_of_what_is_lost():
    shares = [int.from_bytes(loss.program(percent)[12:16], "little") for percent in (0, 25, 100)]
    assert shares == [0, 1 << 30, 0xffffffff]


@needs_veth
def test_loss_loses_and_ends():
    def answers(veth):
        done = subprocess.run([*veth.client, "ping", "-q", "-n", "-c", "300", "-i", "0.002", "-W", "1", veth.address],
                              capture_output=True, text=True, check=False)
        return int(done.stdout.split(" received")[0].split()[-1])
    with ends.two_namespaces() as veth:
        try:
            with loss.at_both(veth.sides, 30):   # half of the answers come, one in 10^20 runs as few or many as this
                assert 30 < answers(veth) < 270
        except loss.Unable as error:
            pytest.skip(str(error))
        assert answers(veth) == 300


def test_clients_run_at_once_and_all_must_succeed(tmp_path):
    # Each waits for the file of the other.
    wait = "touch $1; while ! [ -e $2 ]; do sleep 0.01; done; echo $1"
    pair = [["sh", "-c", wait, "sh", str(tmp_path / a), str(tmp_path / b)] for a, b in ("xy", "yx")]
    assert ends.several(LO, None, pair, 0).texts == [f"{tmp_path / 'x'}\n", f"{tmp_path / 'y'}\n"]
    with pytest.raises(Failed, match="ended with 3: no room"):
        ends.several(LO, None, [["true"], ["sh", "-c", "echo no room; exit 3"]], 0)
    with pytest.raises(Failed, match="the server ended with 1"):
        ends.both(LO, ["false"], ["true"], 1)


def test_a_whole_run_has_all_that_is_asked_of_it():
    programs = plan.Programs("usiw-run", "bare", "many_qps")
    veth = ends.Ends("veth", [], [], "10.77.0.2", ("va", "vb"))
    cells = [job.cell for job in plan.jobs(programs, veth, quick=False)]
    assert len(set(cells)) == len(cells)

    def columns(table, row):
        return [cell.column for cell in cells if cell.table == table and cell.row == row and cell.part != "lat"]
    for table in ("lo, SEND", "lo, WRITE", "lo, READ", "veth, SEND"):
        assert {"2 B", "64 B", "4 KiB", "64 KiB", "1 MiB", "8 MiB"} <= set(columns(table, "usiw-run, UDP sockets"))
    assert columns("veth, SEND, loss", "usiw-run, packets and sockets") == ["0.01 %", "0.1 %", "1 %", "5 %"]
    assert columns("lo, processor time", "usiw-run, shared memory") == ["64 KiB", "1 MiB"]
    assert {"1 QP", "100 QPs", "10000 QPs"} <= set(columns("lo, idle QPs", "usiw-run, shared memory"))
    assert sum(" clients at once to one server" in cell.table for cell in cells) == 6
    assert any("ofi_rxd" in cell.row for cell in cells)
    assert not any("ofi_rx" in job.cell.row for job in plan.jobs(programs, veth, quick=True))
    assert len(plan.jobs(programs, None, quick=True)) < len(plan.jobs(programs, veth, quick=True)) < len(cells) / 2


@needs_veth
@pytest.mark.skipif(not os.path.exists(BARE), reason="bare is not built")
def test_bare_ports_give_their_figures():
    with ends.two_namespaces() as veth:
        for kind in ("tcp", "tcp-blocking", "udp", "udp-gso", "packet", "shm"):
            tool = tools.Bare(BARE, kind, kind)
            out = tool.measure(veth, "SEND", "lat", 64, 50)
            assert set(tool.figures(out.text, "lat", 64)) == {"us", "p99_us", "avg_us"}, kind
            out = tool.measure(veth, "SEND", "bw", 4096, 20)
            assert set(tool.figures(out.text, "bw", 4096)) == {"mb_s", "bytes"}, kind
        crowd = many.incast(tools.Bare(BARE, "tcp", "tcp"), BARE, veth, quick=True)
        assert set(crowd.measure(veth)) == {"mb_s", "slowest"}


@needs_veth
@pytest.mark.skipif(not os.path.exists(MANY) or not os.path.exists(RUN), reason="many_qps or usiw-run is not built")
def test_many_connections_give_their_figures():
    port = tools.Perftest(RUN, "socket", "usiw-run")
    with ends.two_namespaces() as veth:
        figures = many.queue_pairs(port, MANY, veth, 30, quick=True).measure(veth)
        assert figures["kib_per_qp"] > 0 and figures["server_kib"] > 0
        assert {"client_idle", "server_idle"} < set(figures)
        assert set(many.incast(port, MANY, veth, quick=True).measure(veth)) == {"mb_s", "slowest"}
        with pytest.raises(Missing, match="may open"):
            many.queue_pairs(port, MANY, veth, 1 << 40, quick=True).measure(veth)


@pytest.mark.parametrize("status, state", [(0, results.OK), (96, results.MISSING), (1, results.FAILED)])
def test_guests_tables_go_into_the_report(tmp_path, status, state):
    compare = tmp_path / "compare"
    compare.write_text(f'#!/bin/sh\necho "| send | $* |"\necho why >&2\nexit {status}\n', encoding="ascii")
    compare.chmod(0o755)
    both = guests.run(compare, tmp_path, lambda _: None)
    assert [one.state for one in both] == [state, state]
    text = guests.markdown(both)
    assert "## In one guest" in text and "| send | --rounds 3 |" in text
    assert "## Between two guests" in text and "| send | --rounds 3 --topology hosts |" in text
    assert (f"{state}: status {status}: why" in text) == (status != 0)
    assert "--topology hosts" in (tmp_path / "compare-hosts.md").read_text(encoding="utf-8")


def test_guests_that_cannot_be_started_are_missing(tmp_path):
    assert {one.state for one in guests.run(tmp_path / "none", tmp_path, lambda _: None)} == {results.MISSING}


def test_large_copies_are_not_counted_by_the_byte(tmp_path, monkeypatch):
    fake = tmp_path / "valgrind"
    fake.write_text('#!/bin/sh\nn=${4}000\n[ "${GLIBC_TUNABLES#*rep_movsb}" != "$GLIBC_TUNABLES" ] || n=1\n'
                    'echo "Collected : $n" >&2\n', encoding="ascii")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert instructions.count("engine_bench", "send_64") == 1000


def test_instructions_beyond_the_noise_differ(tmp_path):
    path = tmp_path / "kept"
    path.write_text(instructions.written({"x": 1000}), encoding="ascii")
    assert instructions.read(path) == {"x": 1000}
    assert not instructions.difference({"x": 1000}, {"x": 1010})[1]
    assert instructions.difference({"x": 1000}, {"x": 1100})[1] and instructions.difference({"x": 1000}, {})[1]
