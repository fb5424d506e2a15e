# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""scripts/plain-english refuses what CONTRIBUTING.md refuses, and nothing else."""

import subprocess

import pytest

from conftest import ROOT, load

lint = load("plain-english")


def complaints(text, path="x.h"):
    """Returns the complaints about a file with this text."""
    return [each for sentence in lint.read(path, text) for each in lint.complaints(sentence)]


def test_new_comments_are_plain_english():
    """The clean files as a whole, and the new sentences of all others."""
    done = subprocess.run([ROOT / "scripts/plain-english"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run scripts/plain-english; CONTRIBUTING.md has the rules\n{done.stdout}{done.stderr}"


# ---- words ------------------------------------------------------------------

#: For each word of the table: sentences that use it, and sentences that look alike and are right.
EXAMPLES = {
    "told": (["The peer is told the window.", "The header tells the length.", "The provider tells its port.",
              "It has not been told."],
             ["The reader cannot tell the two apart.", "A receiver cannot tell a duplicate from a new datagram.",
              "The program can tell whether the peer has gone.", "The total is read again."]),
    "says": (["The ACCEPT says which features both use.", "The kernel has said so."],
             ["The manual page says so.", "RFC 5040 says so.", "The message says what to do.", "An essay on speed."]),
    "hears": (["The end that hears nothing probes.", "The last answer that was heard.", "The socket may hear it."],
              ["The heart of the engine.", "A rehearsal."]),
    "goes by": (["The connection goes by its socket.", "Packets that went by the ring.", "Data may go by it."],
                ["Time goes by itself.", "The datagram goes to the port."]),
    "behind": (["All bytes behind the end are cleared.", "The work behind it is flushed."],
               ["The peer is behind a NAT.", "The host is behind the firewall.", "A reader falls behind."]),
    "marks": (["A datagram that came marked.", "The router sets congestion marks.", "Marked packets are counted."],
              ["The engine marks the slot valid.", "The datagram has ECN CE.", "A marked improvement."]),
    "merged": (["The socket takes merged datagrams.", "The adapter merges packets."],
               ["Both lists are merged.", "The socket takes GRO aggregates."]),
    "gate": (["The gate admits a REQ.", "Two gates share the space."],
             ["`usiw_cm_gate_request()` admits a REQ.", "usiw_cm_gate.c admits a REQ.", "The aggregate is split."]),
    "world": (["It takes the world.", "One rule for both worlds."],
              ["A real-world program.", "A World has two hosts.", "Real world figures differ."]),
    "turn": (["Each datagram in its turn.", "It waits for a turn.", "Whose turn it is."],
             ["The engine sends in turn to each QP.", "The function turns the address.", "In return it gets one."]),
    "patience": (["The patience of the initiator.", "A patient peer."], ["The peer timeout of the initiator."]),
    "sign of life": (["No sign of life came.", "A nudge to the peer.", "It nudges the thread."],
                     ["No probe was answered."]),
    "plays": (["The library plays the kernel.", "A played peer."],
              ["The size plays no role.", "The seed replays the run.", "The display is empty."]),
    "borrowed": (["The thread borrows the engine.", "The loan ends."], ["The thread drives the lent engine."]),
    "wish": (["The user's wish is known.", "What the caller wishes."], ["The requested port.", "A swish."]),
    "machine": (["The connection machine is in LINGER.", "Two cm machines."],
                ["The state machine is in LINGER.", "Each machine has two processors."]),
    "looked at": (["The field is not looked at.", "The engine looks at packets.", "One look at the sockets."],
                  ["The kernel looks up the route.", "The engine polls the socket."]),
    "place": (["It takes a place in the table.", "There is no place left.", "Each has places of its own."],
              ["The move takes place.", "The engine places the payload.", "The address of another place."]),
    "room": (["There is no room for it.", "The room of the engine.", "It makes room."],
             ["There is space for 64 bytes.", "A broom."]),
    "stands": (["The limit stands in the header.", "The value that stood there."],
               ["RTO stands for retransmission time-out.", "A fake stands in for the kernel.",
                "Nothing stands in the way.", "The test understands it."]),
    "dear": (["A system call is dear.", "This would be dearer."], ["A system call is expensive."]),
    "quick": (["A quick path.", "The quickest way."], ["A QUIC stream.", "The thread quickly sleeps."]),
    "dry": (["The ring is dry.", "A pool that runs dry."], ["A dry run.", "The loop is dry-run.", "The foundry."]),
}


def test_each_word_has_examples():
    assert {name for name, _, _ in lint.WORDS} == set(EXAMPLES)


@pytest.mark.parametrize("name, text", [(name, text) for name, (bad, _) in EXAMPLES.items() for text in bad])
def test_a_word_is_refused(name, text):
    instead = next(instead for word, _, instead in lint.WORDS if word == name)
    assert any(name in each and instead in each for each in complaints(f"// {text}\n"))


@pytest.mark.parametrize("name, text", [(name, text) for name, (_, good) in EXAMPLES.items() for text in good])
def test_a_word_is_not_mistaken(name, text):
    assert not any(f'"{name}"' in each or f"({name})" in each for each in complaints(f"// {text}\n"))


# ---- openings ---------------------------------------------------------------


@pytest.mark.parametrize("text", [
    "What hold() has kept.", "Who posts drives.", "Which of the ports is used.", "Of messages that arrive one counts.",
    "Where the page goes.", "Whose address it is.", "Whoever gets the lock drives.", "What is lost, is sent again.",
    "A ring. What is in it is read.", "Where there is no space the caller waits.", "@window: of the peer, datagrams",
    "what the peer has sent", "struct usiw_conn - what a connection has", "- Who owns it.", "(What it was before.)",
])
def test_a_headless_opening_is_refused(text):
    assert any("name the subject first" in each for each in complaints(f"// {text}\n"))


@pytest.mark.parametrize("text", [
    "Whether the peer answers is unknown.", "When the window is full, the sender waits.", "How long to wait, in us.",
    "Where possible, the engine sends at once.", "Where the kernel permits it, the socket asks for GRO.",
    "Whatever the size, one copy is left.", "Of course the caller holds the lock.", "Oldest PSN not acknowledged.",
    "The sender knows what is lost.", "Whichever comes first.", "What does a QP cost?", "What-if analysis.",
    "Returns a buffer parked by hold() to its port.", "---- Who gets a REQ ----", "@window: datagrams of the peer",
])
def test_another_opening_is_right(text):
    assert not any("name the subject first" in each for each in complaints(f"// {text}\n"))


def test_a_later_sentence_is_judged_by_its_capital_letter():
    assert not complaints("// The reader knows which\n// of the two is valid.\n")
    assert complaints("// The reader knows it. Which of the two is valid depends.\n")


# ---- what is not read -------------------------------------------------------


@pytest.mark.parametrize("text", [
    '// The word "told" is refused.\n', "// The words `told` and ``gate`` are refused.\n", "// kTold ends the wait.\n",
    "// See told_peer, gate.cc and Engine::told().\n", '#define X "told the peer" // Message of the peer.\n',
    'const char* url = "http://told.example"; /* The address. */\n', "int told = world;\n",
    "//   told      the peer was told\n",
])
def test_code_and_quotations_are_not_read(text):
    assert not complaints(text)


@pytest.mark.parametrize("path, text, line", [
    ("x.c", "int a;\n/*\n * Fine.\n * It was told.\n */\n", 4),
    ("x.cc", "int a;  ///< Fine.\n/// It was\n/// told.\n", 2),
    ("x.h", 'R"(// it was told)"; // It was told.\n', 1),
    ("x.py", '"""Fine.\n\nIt was told."""\n', 3),
    ("x.py", 'a = "# told"  # It was told.\n', 1),
    ("x.py", 'def f():\n    """It was told."""\n', 2),
    ("x.py", "#: It was told.\nX = 1\n", 1),
    ("x", "#!/usr/bin/python3\n# It was told.\n", 2),
    ("x", "#!/bin/sh\n# Fine.\n# It was told.\n", 3),
    ("x.sh", "echo \"$#\" '# told' ${x#told} # It was told.\n", 1),
    ("x.sh", "cat <<EOF\n# told\nEOF\n# It was told.\n", 4),
    ("CMakeLists.txt", "set(x \"# told\")  # It was told.\n", 1),
    ("Makefile", "all:\n\techo hi\n# It was told.\n", 3),
    ("x.lua", 'local a = "-- told" -- It was told.\n', 1),
    ("x.md", "# Title\n\n```\ntold\n```\nIt was\ntold. Fine.\n", 6),
    ("x.md", "| a | b |\n|---|---|\n| fine | it was told |\n", 3),
    ("x.md", "<!-- told\n-->\n\n- Fine.\n- It was told.\n", 5),
])
def test_comments_of_every_language_are_read(path, text, line):
    found = [(sentence.line, each) for sentence in lint.read(path, text) for each in lint.complaints(sentence)]
    assert [at for at, _ in found] == [line], found


def test_headings_and_tables_may_be_labels():
    assert not complaints("## What is checked\n\n| what | where |\n|---|---|\n| Who | Of it |\n", "x.md")
    assert complaints("## The world\n", "x.md")


# ---- what is new ------------------------------------------------------------

BAD, GOOD = "// It was told.\n", "// It was notified.\n"


def test_only_what_is_new_is_judged(repository):
    repository.commit(a_c=BAD)
    repository.commit(b_c=GOOD)
    assert repository.run("plain-english")[0] == 0
    repository.write(b_c=GOOD + "int x;\n// The gate is shut.\n")
    status, out = repository.run("plain-english")
    assert status == 1 and "b.c:3: The gate is shut." in out and "a.c" not in out
    repository.commit()
    assert repository.run("plain-english")[0] == 1, "the last commit counts"
    repository.commit(c_c=GOOD)
    assert repository.run("plain-english")[0] == 0, "the commit before does not"
    assert repository.run("plain-english", "--base", "HEAD~2")[0] == 1
    assert repository.run("plain-english", "--all")[1].count(" (gate)") + repository.run("plain-english", "b.c")[0] == 1


def test_since_the_branch_left_its_origin(repository):
    repository.commit(a_c=BAD)
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repository.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    repository.commit(b_c=BAD.replace("It", "The peer"))
    repository.commit(c_c=GOOD)
    status, out = repository.run("plain-english")
    assert status == 1 and "b.c:1" in out and "a.c" not in out


def test_a_comment_that_moves_is_not_new(repository):
    long = "// The peer was told of the window, and of all that it has sent.\n"
    repository.commit(a_c=long + "int a;\n", b_c="int b;\n")
    repository.commit(a_c="int a;\n", b_c="int b;\n" + long.replace("window, ", "window,\n// "))
    assert repository.run("plain-english")[0] == 0


def test_a_new_file_counts_before_git_knows_it(repository):
    repository.commit(a_c=GOOD)
    repository.write(new_c=BAD)
    assert repository.run("plain-english")[0] == 1


def test_clean_files_are_judged_as_a_whole(repository):
    repository.commit(a_c=BAD, clean__b_c=BAD, folder__c_c=BAD)
    repository.commit(x_c=GOOD)
    assert repository.run("plain-english")[0] == 0
    with open(repository.folder / lint.CLEAN, "a", encoding="utf-8") as f:
        f.write("clean/b.c\nfolder/\n")
    status, out = repository.run("plain-english")
    assert status == 1 and "clean/b.c:1" in out and "folder/c.c:1" in out and "a.c:1" not in out.replace("/", "")


@pytest.mark.parametrize("history", ["shallow", "none"])
def test_without_history_only_the_clean_files_are_judged(repository, history, tmp_path_factory):
    with open(repository.folder / lint.CLEAN, "a", encoding="utf-8") as f:
        f.write("clean.c\n")
    repository.commit(a_c=BAD, clean_c=GOOD)
    other = tmp_path_factory.mktemp("other")
    if history == "shallow":
        repository.git("clone", "-q", "--depth", "1", f"file://{repository.folder}", str(other))
        repository.git("-C", str(other), "remote", "remove", "origin")
    else:
        repository.git("checkout-index", "-a", f"--prefix={other}/")
        repository.env["GIT_CEILING_DIRECTORIES"] = str(other.parent)
    repository.folder = other
    status, out = repository.run("plain-english")
    assert status == 0 and "clean files only" in out, out
    repository.write(clean_c=BAD)
    assert repository.run("plain-english")[0] == 1


def test_each_clean_path_exists():
    for path in lint.clean_list():
        assert (ROOT / path).exists(), f"{lint.CLEAN} lists {path}"
