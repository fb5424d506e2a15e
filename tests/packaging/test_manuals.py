# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The manual pages, --help and the completion agree with the sources, in both directions.

usiw(7) has every USIW_* variable that shipped code reads, usiw(4) every module parameter, usiw(1) and usiw-run(1) every
option. The sources are read as text; --help is that of the built programs (BUILD, by default build).
"""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build"))
PROGRAMS = {"usiw": BUILD / "tools/usiw", "usiw-run": BUILD / "run/usiw-run"}
PAGES = sorted((ROOT / "docs/man").iterdir())


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def sources(*folders, suffixes=(".c", ".cc", ".h")):
    """{path: text} of the source files below some folders."""
    return {path: path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).rglob("*")
            if path.suffix in suffixes and path.is_file()}


def page(name):
    return text(f"docs/man/{name}")


def plain(mdoc):
    """The words of a piece of a page, without macros and line breaks."""
    return " ".join(re.sub(r"^\.\w+|\b(Ev|Fl|Cm|Ar|Xr|Ns|Op|Pa|Ql)\b", "", line, flags=re.M).strip()
                    for line in mdoc.split("\n"))


def entries(mdoc, macro):
    """{name: text} of the list items of a page that begin with a macro; nested lists belong to their item."""
    pieces = re.split(rf"^\.It {macro} ([\w-]+)", mdoc, flags=re.M)
    return {name: re.split(r"^\.S[hs] ", body, flags=re.M)[0] for name, body in zip(pieces[1::2], pieces[2::2])}


def shown(program, *arguments):
    """What a program prints by --help."""
    done = subprocess.run([PROGRAMS[program], *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


# ---- variables --------------------------------------------------------------


def variables_read():
    """In C++ a name is a literal of its own; in scripts it follows a dollar sign."""
    cxx = "\n".join(sources("provider", "tools", "cm", "kmod", "uapi").values())
    scripts = "\n".join(text(f"packaging/{name}") for name in ("attach", "completion.bash", "90-usiw.rules.in"))
    return set(re.findall(r'"(USIW_[A-Z0-9_]+)"', cxx)) | set(re.findall(r"\$\{?(USIW_[A-Z0-9_]+)", scripts))


def public_variables():
    return set(entries(page("usiw.7").partition(".Ss Internal variables")[0], "Ev"))


def constant(path, name):
    """Value of a constexpr number: digits, or a power of two as 1u << N."""
    value = re.search(rf"\b{name} = ([\du <]+)[,;]", text(path))[1].replace("u", "")
    left, _, right = value.partition("<<")
    return int(left) << int(right or 0)


def test_each_variable_is_in_usiw_7():
    names = {name for name in entries(page("usiw.7"), "Ev") if name.startswith("USIW_")}
    assert names == variables_read()


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_names_the_variables(program):
    out = shown(program, "--help")
    assert set(re.findall(r"^ +(USIW_\w+)  ", out, re.M)) == public_variables()
    assert "usiw(7)" in out


def test_defaults_and_limits_of_variables():
    about = {name: plain(body) for name, body in entries(page("usiw.7"), "Ev").items()}
    patience = [constant("provider/runtime/patience.h", f"kPatience{each}") for each in ("Min", "Max", "Default")]
    assert "{} to {}, {} by default".format(*patience) in about["USIW_PEER_TIMEOUT"]
    events = [constant("uapi/usiw_trace.h", f"kTrace{each}Events") for each in ("Min", "Max", "")]
    assert "{} to {}, rounded up to a power of two, {} by default".format(*events) in about["USIW_TRACE"]
    assert "default is adaptive" in about["USIW_PROGRESS"].replace("  ", " ")
    assert "default is auto" in about["USIW_PORT"].replace("  ", " ")
    assert "PortWish wish = PortWish::kAuto;" in text("provider/runtime/port_wish.cc")
    assert re.search(r"return Mode::kAdaptive;\n}", text("provider/progress/progress.cc"))
    constants = dict(re.findall(r'\b(k\w+Variable)\[\] = "(USIW_\w+)"', text("tools/run/host/settings.h")))
    defaults = re.findall(r'get\((k\w+Variable), "(.*?)"\)', text("tools/run/host/settings.h"))
    assert len(defaults) == 5
    for name, default in defaults:
        assert f"{default or 'none'} by default" in about[constants[name]], constants[name]


def test_values_of_variables():
    """The page lists the words with which the code compares a value, and no others."""
    about = entries(page("usiw.7"), "Ev")

    def items(name):
        return set(re.findall(r"^\.It Cm (\w+)", about[name], re.M))
    wishes = text("provider/port/choice.h").partition("parse_port_wish")[2].partition("return true")[0]
    assert items("USIW_PORT") == set(re.findall(r'name == "(\w+)"', wishes))
    faces = text("tools/run/host/settings.h").partition("bool parse_face")[2].partition("}")[0]
    assert items("USIW_FACE") == set(re.findall(r'return name == "(\w+)" \|\| name == "(\w+)"', faces)[0])
    assert items("USIW_PROGRESS") == set(re.findall(r'strcmp\(value, "(\w+)"\)', text("provider/progress/progress.cc")))
    keys = set(re.findall(r'key == "([\w-]+)"', text("provider/port/faults.cc")))
    assert keys == set(re.findall(r"^\.Cm ([\w-]+)", about["USIW_FAULTS"], re.M))


# ---- module parameters ------------------------------------------------------


def initialiser(source, variable):
    """Initial value of a static variable; if there is none, the one that the language gives it."""
    kind, stars, value = re.search(rf"^static ([\w ]+?)(\s*\*?){variable}(?: = (.*?))?;", source, re.M).groups()
    return value.strip('"') if value else "none" if "*" in stars else "N" if kind == "bool" else "0"


def module_parameters():
    """{name: (default, mode)}; each has a description."""
    found = {}
    for path, source in sources("kmod", "cm").items():
        for variant, inside in re.findall(r"^module_param(\w*)\(([^)]*)\);", source, re.M):
            words = [word.strip() for word in inside.split(",")]
            assert re.search(rf'^MODULE_PARM_DESC\({words[0]},\s*"', source, re.M), f"{path}: {words[0]} says nothing"
            found[words[0]] = (initialiser(source, words[1 if variant else 0]), words[-1])
    return found


def test_each_module_parameter_is_in_usiw_4():
    listed = {}
    section = page("usiw.4").partition(".Sh MODULE PARAMETERS")[2].partition("\n.Sh ")[0]
    for name, body in entries(section, "Cm").items():
        words = plain(body)
        listed[name] = (re.search(r"default is (\S+?)\.?( |$)", words)[1], re.search(r"mode (0\d+)", words)[1])
    assert listed == module_parameters() and listed


# ---- options ----------------------------------------------------------------

#: Each has a --help and a completion of its own.
COMMANDS = [("usiw",), ("usiw", "stat"), ("usiw", "trace"), ("usiw", "report"), ("usiw-run",)]


def completed(words, begin):
    """Words that bash offers after some words of a command line."""
    function = "_" + words[0].replace("-", "_")
    script = ('source "$1"; shift; f=$1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); $f; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", ROOT / "packaging/completion.bash", function, *words, begin],
                          stdout=subprocess.PIPE, text=True, check=True)
    return set(done.stdout.split())


def helped(words):
    """Options that --help names; usiw's own help also has lines of its commands, and a quoted one of usiw-run."""
    out = re.sub(r"'usiw-run .*?'", "", shown(words[0], *words[1:], "--help"))
    if words == ("usiw",):
        out = re.sub(r"^ +usiw [a-z]+ .*", "", out, flags=re.M)
    return set(re.findall(r"(?<![\w/-])--?[a-z][a-z-]*", out))


def in_page(program):
    """Options that a program's page describes."""
    items = re.findall(r"^\.It (Fl .*)$", page(f"{program}.1"), re.M)
    return {"-" + name for item in items for name in re.findall(r"Fl (\S+)", item)}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_and_completion_have_the_same_options(words):
    always = {"-h", "--help"}
    assert helped(words) | always == completed(words, "-")


@pytest.mark.parametrize("program", PROGRAMS)
def test_page_has_the_same_options(program):
    everything = set().union(*(helped(words) for words in COMMANDS if words[0] == program))
    assert in_page(program) == everything | {"-h", "--help"}


@pytest.mark.parametrize("program, files", [("usiw", ("usiw.cc", "stat.cc", "trace.cc", "report.cc")),
                                            ("usiw-run", ("run/launcher/options.cc",))])
def test_help_has_the_options_that_are_parsed(program, files):
    """The tables of getopt_long(3)."""
    tables = "".join(text(f"tools/{name}") for name in files)
    parsed = set(re.findall(r'\{"([\w-]+)", (?:no|required)_argument', tables))
    everything = set().union(*(helped(words) for words in COMMANDS if words[0] == program))
    assert {"--" + name for name in parsed} == {name for name in everything | {"--help"} if name.startswith("--")}


def test_commands():
    """--help, completion and page have the same commands of usiw."""
    commands = set(re.findall(r"^    usiw ([a-z]+)", shown("usiw", "--help"), re.M))
    assert commands == completed(("usiw",), "") - {"-h", "--help", "--version"}
    assert commands == set(entries(page("usiw.1"), "Cm"))
    assert commands == {words[1] for words in COMMANDS if words[1:]} | {"help"}


# ---- pages ------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page_is_clean(path):
    """man(1) prints no warning, and all pages of usiw refer to each other."""
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path], capture_output=True,
                          check=False, env=os.environ | {"LC_ALL": "C.UTF-8", "MANWIDTH": "80"})
    assert done.returncode == 0 and not done.stderr
    see_also = path.read_text(encoding="utf-8").partition(".Sh SEE ALSO")[2]
    others = {tuple(other.name.rsplit(".", 1)) for other in PAGES if other != path}
    assert others <= set(re.findall(r"^\.Xr (\S+) (\d)", see_also, re.M))
