#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Finds circles: files of the control half that need each other, directly or through others.

    circles.py [--arrows] [ROOT]    exit status 0, or 1 with a line for each circle that the document does not name

The files of a circle can only be read, tested and replaced together. Each circle is therefore cut, or it is named with
its reason in the section "Circles" of docs/architecture.md. A line of that section without a circle is an error, too.
--arrows prints why each file of a circle needs the others.

A node of the graph is a source with the header of the same stem: `tools/run/conn/qp` is qp.cc and qp.h. A second graph
has the folders of tools/run as its nodes. There are two kinds of arrows:

- An #include of another node's header.
- A use of a function or variable that a header of one node declares and the source of another node defines. A class
  whose sources are several files is an example. The header uses the virtual functions of its classes.

A use of a function needs its declaration, which is in an #include. If the declaration is in the header of the node that
defines the function, the #include is the same arrow. So uses of other functions make no difference.

The script reads sources, needs no build, and relies on the style of this project. It does not see:

- a call through a pointer or through a base class: the file that supplies the pointer or the object has the arrow;
- a call of the C library that a function of tools/run/entry replaces;
- a call that is the result of a macro, and a call of an operator;
- a destructor, except where a source makes an object with new, make_shared() or make_unique();
- a call of a member function on an object, if several classes that the file includes have a member of that name.
"""

import pathlib
import re
import sys

import floors

#: Folders of the sources, with the folders in them.
PARTS = ["cm", "kmod", "tools"]
DOCUMENT = "docs/architecture.md"

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
ATTRIBUTE = re.compile(r"\[\[[^\]]*\]\]|\b(?:alignas|__\w+)\((?:[^()]|\([^()]*\))*\)|\btemplate\s*<[^{;]*?>(?=\s*\w)")
LABEL = re.compile(r"^(?:\s*(?:public|private|protected)\s*:(?!:))+")
SCOPE = re.compile(r'\b(?:namespace [\w:]+|extern "")$')
CLASS = re.compile(r"^(?:class|struct|union)\s+(?:\w+::)*(\w+)(?:\s+final)?\s*(?::[^:].*)?$", re.DOTALL)
FUNCTION = re.compile(r"^([^=(]*?)((?:\w+::)*~?\w+)\s*\(")
VARIABLE = re.compile(r"^([^=(]*[\w>*&][\s*&]+)((?:\w+::)*\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|$)")
ALIAS = re.compile(r"\busing (\w+) = (\w+);")
OTHERS = re.compile(r"^(?:typedef|using|enum|friend|static_assert|return|goto)\b")


def node_of(name):
    """The node of a file."""
    return name.rsplit(".", 1)[0]


def folder_of(node):
    """The folder of tools/run that a node is in; None: it is in none."""
    found = re.match(r"tools/run/\w+(?=/)", node)
    return found and found[0]


def plain(text):
    """The text without comments, contents of strings, attributes and lines of the preprocessor."""
    text = NOISE.sub(lambda found: {'"': '""', "'": "0"}.get(found[0][0], " "), text)
    text = ATTRIBUTE.sub(" ", DIRECTIVE.sub(" ", text))
    for alias, name in ALIAS.findall(text):
        text = re.sub(rf"\b{alias}::", f"{name}::", text)
    return text


def statements(text):
    """(head, body or None) for each statement of a file or of a class. A namespace counts as its statements."""
    begin = depth = start = 0
    for found in re.finditer("[{};]", text):
        at = found.start()
        if found[0] == "{":
            if depth == 0:
                start = at
            depth += 1
            continue
        depth -= found[0] == "}"
        if depth == 0:
            head, body = (text[begin:at], None) if found[0] == ";" else (text[begin:start], text[start + 1:at])
            begin = at + 1
            head = LABEL.sub("", head).strip()
            if body is not None and SCOPE.search(head):
                yield from statements(body)
            elif head:
                yield head, body


class File:
    """The names that one file declares, defines and uses: "function", "variable" or "Class::member"."""

    def __init__(self, text):
        self.includes = INCLUDE.findall(text)
        self.declared = set()  # functions without a body, extern variables, static members
        self.virtual = set()   # virtual functions among them
        self.defined = set()   # functions and variables that other files can use, if something declares them
        self.members = set()   # all member functions of the classes in this file
        self.bodies = []       # (class of the function or "", text) of functions and of values of variables
        self.read(plain(text), "")

    def read(self, text, owner):
        """Adds the statements of the file, or of the class @owner in it."""
        for head, body in statements(text):
            found = CLASS.match(head)
            if body is not None and found:
                self.read(body, found[1])
            elif not OTHERS.match(head) and not CLASS.match(head):
                self.add(head, body, owner)

    def add(self, head, body, owner):
        """Adds one declaration or definition of the file, or of the class @owner in it."""
        function = FUNCTION.match(head)
        found = function or VARIABLE.match(head)
        before, name = found.groups() if found else ("", "")
        parts = [owner] * bool(owner) + [part for part in name.split("::") if part not in ("usiw", "run")]
        name = "::".join(parts[-2:])
        words = set(re.findall(r"\w+", before))
        if body is not None or "=" in head:
            value = head[found.end():] if found else head
            self.bodies.append((parts[-2] if len(parts) > 1 else "", value + (body or "")))
        if owner and function:
            self.members.add(name)
        local = "static" in words and not owner
        if not found or local or "operator" in words:
            return
        if function:
            inline = owner or "inline" in words
            declares = body is None and not re.search(r"=\s*(?:0|default|delete)\s*$", head)
            defines = body is not None and not inline
        else:
            inline = words & {"inline", "constexpr"}
            declares = not inline and ("extern" in words or (owner and "static" in words))
            defines = not inline and not owner and "extern" not in words
        if declares:
            self.declared.add(name)
            if re.search(r"\b(?:override|virtual)\b", head):
                self.virtual.add(name)
        if defines:
            self.defined.add(name)

    def uses(self, symbol, visible):
        """True if a body uses @symbol. @visible: the members of all classes that this file and its #includes have."""
        owner, _, name = symbol.rpartition("::")
        if not owner:
            pattern = re.compile(rf"(?<![\w.>:]){name}\b|(?:run|usiw|[^\w]):: ?{name}\b")
            return any(pattern.search(body) for _, body in self.bodies)
        if name.strip("~") == owner:
            pattern = rf"\b(?:new\s+|make_(?:shared|unique)\s*<\s*){owner}\b"
        else:
            pattern = rf"\b{owner}::{name}\b"
            if sum(member.endswith("::" + name) for member in visible) == 1:
                pattern += rf"|(?:\.|->)\s*{name}\b"
        inside = re.compile(rf"{pattern}|(?<![\w.>:~]){name}\b|this->{name}\b")
        outside = re.compile(pattern)
        return any((inside if of == owner else outside).search(body) for of, body in self.bodies)


class Graph:
    """arrows: {node: {node that it needs: why}}"""

    def __init__(self, root):
        self.root = root
        self.files = {path.relative_to(root).as_posix(): File(path.read_text(encoding="utf-8"))
                      for part in PARTS for path in sorted((root / part).rglob("*"))
                      if path.suffix in (".c", ".cc", ".h")}
        self.arrows = {node_of(name): {} for name in self.files}
        included = {name: self.find(name) for name in self.files}
        for name, headers in included.items():
            for header in headers:
                self.add(name, header, f"{name} includes {header}")
        seen = {name: self.reach(name, included) for name in self.files}
        for symbol, declaring, source in self.apart():
            for name, file in self.files.items():
                if symbol in file.virtual:
                    self.add(name, source, f"{name} has the virtual function {symbol}()")
                if declaring & seen[name]:
                    visible = set().union(*(self.files[other].members for other in seen[name]))
                    if file.uses(symbol, visible):
                        self.add(name, source, f"{name} uses {symbol}()")

    def find(self, name):
        """The files of PARTS that a file includes."""
        found = (floors.find(self.root, self.root / name, header) for header in self.files[name].includes)
        return [header for header in found if header in self.files]

    @staticmethod
    def reach(name, arrows):
        """@name and all that it has a way of arrows to."""
        reached, new = set(), {name}
        while new:
            reached |= new
            new = {other for at in new for other in arrows[at]} - reached
        return reached

    def apart(self):
        """(name, files that declare it, file that defines it) for each name that another node declares."""
        for source, file in self.files.items():
            for symbol in sorted(file.defined):
                declaring = {name for name, other in self.files.items() if symbol in other.declared}
                if any(node_of(name) != node_of(source) for name in declaring):
                    yield symbol, declaring, source

    def add(self, user, owner, why):
        """Adds an arrow between the nodes of two files."""
        if node_of(user) != node_of(owner):
            self.arrows[node_of(user)].setdefault(node_of(owner), why)

    def folders(self):
        """The arrows between folders of tools/run."""
        table = {folder: {} for folder in map(folder_of, self.arrows) if folder}
        for user, owners in self.arrows.items():
            for owner, why in owners.items():
                if folder_of(user) and folder_of(owner) and folder_of(user) != folder_of(owner):
                    table[folder_of(user)].setdefault(folder_of(owner), why)
        return table


def circles(arrows):
    """The sets of nodes of which each has a way to each other, without those of one node."""
    reached = {node: Graph.reach(node, arrows) for node in arrows}
    found = {frozenset(other for other in reached[node] if node in reached[other]) for node in arrows}
    return sorted((circle for circle in found if len(circle) > 1), key=sorted)


def text_of(circle):
    """A circle as a line of the document has it."""
    return ", ".join(f"`{node}`" for node in sorted(circle))


def named(root):
    """[circle] that the document names. Each is an item "- `NODE`, `NODE`: REASON", in one line or more."""
    section = re.search(r"^## Circles\n(.*?)(?=^## |\Z)", (root / DOCUMENT).read_text(encoding="utf-8"),
                        re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^- ((?:`[\w/]+`[,\s]*)+):(?: |\n  )\S", section[1] if section else "", re.MULTILINE)
    return [frozenset(re.findall(r"`([\w/]+)`", line)) for line in lines]


def check(root):
    """(lines about circles that are wrong, all circles, all arrows)"""
    graph = Graph(root)
    arrows = {**graph.arrows, **graph.folders()}
    found, lines = circles(graph.arrows) + circles(graph.folders()), named(root)
    wrong = [f"{DOCUMENT} does not name this circle: {text_of(circle)}" for circle in found if circle not in lines]
    wrong += [f"{DOCUMENT} names a circle that is none: {text_of(circle)}" for circle in lines if circle not in found]
    return wrong, found, arrows


def main(arguments):
    """The exit status."""
    show = arguments[:1] == ["--arrows"]
    root = pathlib.Path(arguments[show] if arguments[show:] else pathlib.Path(__file__).parents[3]).resolve()
    wrong, found, arrows = check(root)
    for circle in found if show else []:
        print(text_of(circle))
        for node in sorted(circle):
            for owner in sorted(circle & arrows[node].keys()):
                print(f"    {node} -> {owner}: {arrows[node][owner]}")
    print("\n".join(wrong) if wrong else f"{len(arrows)} nodes, {len(found)} circles, all named")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
