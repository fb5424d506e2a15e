# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The outcomes as lines and as the table of docs/compatibility.md."""

import json
import re

#: The table is between these lines; `make compat` writes it, and everything else in the document is written by hand.
BEGIN, END = "<!-- begin: written by make compat -->", "<!-- end: written by make compat -->"

#: Parts of an error that differ from run to run: times, process IDs, host names (the kernel, UCX, Redis).
DIFFERS = re.compile(r"(?<!\w)\[ *\d+(\.\d+)?\] *|\[\S+:\d+ +:\d+\] *|^\d+:\w \d+ \w+ \d+ [\d:.]+ # ")

#: The columns of the table, and how its first lines call them.
WORLDS = {"run": "usiw-run", "roce": "RoCE face", "module": "module"}
CALLED = {"run": "Under usiw-run", "roce": "Under usiw-run --face roce", "module": "With the module"}


def file_name(name):
    """A program's name as that of a file."""
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")


def outcome(result):
    """What happened, in one sentence or two."""
    if result["works"]:
        return f"works: {', '.join(result['operations'])}" if result["operations"] else "works"
    error = DIFFERS.sub("", result["error"])[:200]
    said = f": `{error}`" if error else ""
    reason = f" {result['reason']}" if result["reason"] else ""
    return f"no, {result['failure']}{said}.{reason}"


def line(result):
    """The line that is printed when a program has been tried."""
    return f"{WORLDS[result['world']]:<9} {result['name']:<48} {outcome(result)} ({result['seconds']} s)"


def command(program, text):
    """A command as a person would type it, with usiw-run left out, as Markdown."""
    if not text:
        return ""
    words = text.replace("{server}", "SERVER").replace("{client}", "CLIENT").replace("{port}", "PORT")
    words = words.replace("{server_dev}", "usiw0").replace("{client_dev}", "usiw0").replace("{dir}", "DIR")
    scripts = "../tests/compat/scripts"
    if words.startswith("{scripts}/"):
        script, _, rest = words.removeprefix("{scripts}/").partition(" ")
        return f"[{script}]({scripts}/{script})" + (f" `{rest}`" if rest else "")
    words = "".join(f"{key}={value} " for key, value in program.env.items()) + words.replace("{scripts}/", "")
    return f"`{words}`"


def cell(text):
    """Text that may stand in a table."""
    return text.replace("|", "\\|")


def read(programs, kept):
    """{(name, world): outcome} of what was kept of these programs."""
    wanted = {(program.name, world) for program in programs for world in program.worlds}
    results = [json.loads(file.read_text(encoding="utf-8")) for file in kept.glob("*/*.json")]
    return {(result["name"], result["world"]): result for result in results
            if (result["name"], result["world"]) in wanted}


def row(program, tried):
    """A row of the table; `tried`: outcomes by world."""
    versions = " and ".join(sorted({result["version"] for result in tried.values()}))
    cells = [program.name, f"{program.packages[0]} {versions}", command(program, program.server),
             command(program, program.client),
             *(outcome(tried[world]) if world in tried else "" for world in WORLDS)]
    return "| " + " | ".join(cell(text) for text in cells) + " |"


def write(programs, kept, path):
    """Writes the table of what was kept into the document."""
    results = read(programs, kept)
    if not results:
        return
    lines = []
    for world in WORLDS:
        some = [result for (_, of), result in results.items() if of == world]
        if some:
            work = sum(result["works"] for result in some)
            lines.append(f"- {CALLED[world]}: {work} work, {len(some) - work} do not. Tried on {dates(some)}.")
    lines += ["", f"| program | package, version | server | client | {' | '.join(WORLDS.values())} |",
              "|---" * (4 + len(WORLDS)) + "|"]
    for program in programs:
        tried = {world: results[program.name, world] for world in WORLDS if (program.name, world) in results}
        if tried:
            lines.append(row(program, tried))
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    path.write_text(before + "\n".join([BEGIN, "", *lines, "", END]) + rest.partition(END)[2], encoding="utf-8")


def dates(results):
    """The day, or the first and the last one."""
    first, last = min(result["date"] for result in results), max(result["date"] for result in results)
    return first if first == last else f"{first} to {last}"
