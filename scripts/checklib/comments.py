# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Separates the comments of a source file from its code.

Two scripts need the two halves: scripts/plain-english reads the comments, scripts/same-tokens compares the code. A
marker inside a string begins no comment, and a quote inside a comment begins no string. So every language has a scanner
that reads a file from its first character to its last, and both scripts use the same scanner.

blocks() returns the comments as blocks of lines, without their markers. tokens() returns the code as a list. The lists
of two texts are equal if the texts differ in comments alone, or in white space that means nothing in that language.
"""

import ast
import io
import re
import tokenize
from typing import NamedTuple

C_SUFFIXES = (".c", ".cc", ".h", ".cpp", ".hpp")
#: In these files a comment begins at a number sign after white space, and no string spans lines.
HASH_SUFFIXES = (".cmake", ".ini", ".in", ".mk", ".yml", ".conf", ".config")
HASH_NAMES = ("CMakeLists.txt", "Makefile", "Kbuild", "Kconfig", "Dockerfile")


class Block(NamedTuple):
    """One comment, or one paragraph of a document."""
    lines: list             # pairs (line number, text without markers)
    kind: str = "comment"   # comment, paragraph, heading or table


def language(path, text):
    """Returns the name of the scanner for a file; None if no scanner fits."""
    name = path.rpartition("/")[2]
    if name.endswith(C_SUFFIXES):
        return "c"
    if name.endswith(".py"):
        return "python"
    if name.endswith(".md"):
        return "markdown"
    if name.endswith(HASH_SUFFIXES) or name in HASH_NAMES:
        return "hash"
    if name.endswith(".lua"):
        return "lua"
    if name.endswith((".sh", ".bash")):
        return "shell"
    shebang = text.partition("\n")[0] if text.startswith("#!") else ""
    if "python" in shebang:
        return "python"
    if re.search(r"\b(ba|da)?sh\b", shebang):
        return "shell"
    return "hash" if re.search(r"\bmake\b", shebang) else None


def blocks(path, text):
    """Returns the comments of a file, in its order."""
    readers = {"c": _c_blocks, "python": _python_blocks, "shell": _shell_blocks, "hash": _hash_blocks,
               "lua": _lua_blocks, "markdown": _markdown_blocks}
    reader = readers.get(language(path, text))
    return reader(text) if reader else []


def tokens(path, text):
    """Returns the code of a file. A document has none. A file without a scanner is one token."""
    readers = {"c": _c_tokens, "python": _python_tokens, "shell": _shell_tokens, "hash": _hash_tokens,
               "lua": _lua_tokens, "markdown": lambda text: []}
    reader = readers.get(language(path, text))
    return reader(text) if reader else [text]


# ---- comments of several lines ----------------------------------------------


def _join(found):
    """Joins comments on consecutive lines into blocks.

    `found` is a list of (line, column, alone, lines). A comment that is alone on its line joins the one above if that
    one is alone, too, or begins at the same column.
    """
    out, last = [], None
    for line, column, alone, lines in found:
        if last is not None and alone and line == last[0] + 1 and (last[2] or column == last[1]):
            out[-1].lines.extend(lines)
        else:
            out.append(Block(list(lines)))
        last = (line + len(lines) - 1, column, alone)
    return out


def _blocks_at(text, comments, marker):
    """Returns the blocks of comments at (start, end), without the text that the pattern `marker` matches."""
    found = []
    for start, end in comments:
        begin = text.rfind("\n", 0, start) + 1
        line = text.count("\n", 0, start) + 1
        lines = list(enumerate(re.sub(marker, "", text[start:end]).split("\n"), line))
        found.append((line, start - begin, not text[begin:start].strip(), lines))
    return _join(found)


def _cut(text, comments):
    """Returns the lines of a text without the comments at (start, end), without empty lines and trailing space."""
    at, out = 0, []
    for start, end in comments:
        out.append(text[at:start])
        at = end
    return [line.rstrip() for line in ("".join(out) + text[at:]).split("\n") if line.strip()]


# ---- C and C++ --------------------------------------------------------------

_C_TOKEN = re.compile(r"""
    (?P<comment> //(?:\\\n|[^\n])* | /\*.*?\*/ )
  | (?P<raw>     (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)" )
  | (?P<string>  (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" )
  | (?P<char>    (?:u8|[uUL])?'(?:\\.|[^'\\\n])*' )
  | (?P<number>  \.?\d(?:[eEpP][+-]|'\w|[\w.])* )
  | (?P<word>    [A-Za-z_]\w* )
  | (?P<newline> \n )
  | (?P<space>   (?:\\\n|[ \t\r\f\v])+ )
  | (?P<sign>    <<=|>>=|<=>|\.\.\.|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|\.\*|. )
""", re.X | re.S)


def _c_comment_lines(text, line):
    """Returns a pair (line number, text) for each line of a comment."""
    if text.startswith("//"):
        return [(line + i, re.sub(r"^\s*//[/!]?<?", "", part)) for i, part in enumerate(text.split("\\\n"))]
    inner = re.sub(r"^/\*[*!]?<?", "", text).removesuffix("*/")
    return [(line + i, re.sub(r"^\s*\*(?!\S)", "", part) if i else part) for i, part in enumerate(inner.split("\n"))]


def _c_blocks(text):
    out, single, alone, line, column = [], [], True, 1, 0
    for match in _C_TOKEN.finditer(text):
        piece = match[0]
        if match["comment"]:
            lines = _c_comment_lines(piece, line)
            if piece.startswith("//"):
                single.append((line, column, alone, lines))
            else:
                out += _join(single) + [Block(lines)]
                single = []
        elif not match["space"] and not match["newline"]:
            alone = False
        line += piece.count("\n")
        last = piece.rfind("\n")
        column = len(piece) - last - 1 if last >= 0 else column + len(piece)
        alone = alone or bool(match["newline"])
    return out + _join(single)


def _c_tokens(text):
    """White space only separates tokens, except in a preprocessor directive.

    The end of a directive counts. So does a parenthesis that follows the name of a macro without a space.
    """
    out, directive, fresh = [], None, True
    for match in _C_TOKEN.finditer(text):
        token = match[0]
        if match["newline"]:
            out += ["\n"] if directive is not None else []
            directive, fresh = None, True
        elif not match["comment"] and not match["space"]:
            if fresh and token == "#":
                directive = []
            fresh = False
            if directive is not None:
                directive.append(token)
                if len(directive) == 3 and directive[1] == "define" and text.startswith("(", match.end()):
                    token += " with parameters"
            out.append(token)
    return out


# ---- Python -----------------------------------------------------------------


def _docstrings(text):
    """Returns the syntax nodes of all docstrings; none if the text cannot be parsed."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    firsts = [node.body[0] for node in ast.walk(tree) if isinstance(node, owners) and node.body]
    return [first.value for first in firsts if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)]


def _python_scan(text):
    """Returns the tokens; None if the tokenizer fails."""
    try:
        return list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return None


def _python_blocks(text):
    found = []
    for token in _python_scan(text) or []:
        if token.type == tokenize.COMMENT and not (token.start[0] == 1 and token.string.startswith("#!")):
            alone = not token.line[:token.start[1]].strip()
            found.append((*token.start, alone, [(token.start[0], re.sub("^#:?", "", token.string))]))
    documented = [Block(list(enumerate(node.value.split("\n"), node.lineno))) for node in _docstrings(text)]
    return sorted(_join(found) + documented, key=lambda block: block.lines[0][0])


def _python_tokens(text):
    """A docstring counts as a comment. Indentation counts, other white space within a line does not."""
    scanned = _python_scan(text)
    if scanned is None:
        return [text]
    skipped = {(node.lineno, node.col_offset) for node in _docstrings(text)}
    out, after_docstring = [], False
    for token in scanned:
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        is_docstring = token.type == tokenize.STRING and token.start in skipped
        if not is_docstring and not (after_docstring and token.type == tokenize.NEWLINE):
            out.append("\n" if token.type == tokenize.NEWLINE else
                       f"indentation {len(token.string)}" if token.type == tokenize.INDENT else
                       "dedentation" if token.type == tokenize.DEDENT else token.string)
        after_docstring = is_docstring
    return out


# ---- shell ------------------------------------------------------------------

_HERE_DOCUMENT = re.compile(r"<<(-?)\s*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?(\w+))")
_ANSI_STRING = re.compile(r"\$'(?:\\.|[^'\\])*'", re.S)


def _shell_scan(text):
    """Returns (start, end) of every comment; None if quotes or parentheses do not match.

    The stack lists the open constructs. A parenthesis stands for commands, a quote for a string, "{" for the expansion
    of a variable. In "{ quoted", another such expansion, a single quote is an ordinary character.
    """
    comments, stack, waiting, at = [], ["("], [], 0
    while at < len(text):
        char, state, step = text[at], stack[-1], 1
        if state == "'":
            if char == "'":
                stack.pop()
        elif char == "\\":
            step = 2
        elif text.startswith("$((", at) and "))" in text[at:]:
            step = text.find("))", at) + 2 - at   # arithmetic, whose "<<" begins no here-document
        elif text.startswith("$(", at):
            stack.append("(")
            step = 2
        elif text.startswith("${", at):
            pattern = re.match(r"[#!]?[\w@*?$!-]*(?:\[[^]]*\])?[#%/]", text[at + 2:at + 200])
            stack.append("{" if pattern or '"' not in stack else "{ quoted")
            step = 2
        elif text.startswith("$#", at):
            step = 2
        elif char in "`\"":
            if state == char:
                stack.pop()
            else:
                stack.append(char)
        elif state == '"':
            pass
        elif ansi := _ANSI_STRING.match(text, at):
            step = ansi.end() - at
        elif char == "'" and state != "{ quoted":
            stack.append("'")
        elif state in ("{", "{ quoted"):
            if char == "}":
                stack.pop()
        elif char == "#" and (at == 0 or text[at - 1] in " \t\n;&|()`"):
            end = text.find("\n", at)
            step = (end if end >= 0 else len(text)) - at
            comments.append((at, at + step))
        elif text.startswith("<<<", at):
            step = 3
        elif here := _HERE_DOCUMENT.match(text, at):
            waiting.append((bool(here[1]), here[2] or here[3] or here[4]))
            step = here.end() - at
        elif char == "\n" and waiting:
            step = _end_of_here_documents(text, at + 1, waiting) - at
            waiting = []
        elif char == "(":
            stack.append("(")
        elif char == ")" and len(stack) > 1:   # the pattern of a "case" ends with one that nothing has opened
            stack.pop()
        at += step
    return comments if len(stack) == 1 else None


def _end_of_here_documents(text, at, waiting):
    for tabs, word in waiting:
        end = re.compile(rf"^{chr(9) + '*' if tabs else ''}{re.escape(word)}$", re.M).search(text, at)
        at = end.end() if end else len(text)
    return at


def _shell_comments(text):
    """The first line is no comment if it names the interpreter."""
    found = _shell_scan(text)
    return found and [each for each in found if each[0] or not text.startswith("#!")]


def _shell_blocks(text):
    return _blocks_at(text, _shell_comments(text) or [], "^#+:?")


def _shell_tokens(text):
    comments = _shell_comments(text)
    return [text] if comments is None else _cut(text, comments)


# ---- CMake, make, ini and the like ------------------------------------------


def _hash_scan(text):
    """Returns (start, end) of every comment: it follows white space, and no quote of its line is open."""
    comments, begin = [], 0
    for line in text.split("\n"):
        for match in re.finditer(r"(?<!\S)#(?!!)", line):
            before = line[:match.start()]
            if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
                comments.append((begin + match.start(), begin + len(line)))
                break
        begin += len(line) + 1
    return comments


def _hash_blocks(text):
    return _blocks_at(text, _hash_scan(text), "^#+:?")


def _hash_tokens(text):
    return _cut(text, _hash_scan(text))


# ---- Lua --------------------------------------------------------------------

_LUA_TOKEN = re.compile(r"""
    (?P<comment> --\[(?P<level>=*)\[.*?\](?P=level)\] | --[^\n]* )
  | (?P<long>    \[(?P<depth>=*)\[.*?\](?P=depth)\] )
  | (?P<string>  "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
  | (?P<space>   \s+ )
  | (?P<other>   \w+ | . )
""", re.X | re.S)


def _lua_blocks(text):
    comments = [match.span() for match in _LUA_TOKEN.finditer(text) if match["comment"]]
    return _blocks_at(text, comments, r"^--+(\[=*\[)?")


def _lua_tokens(text):
    return [match[0] for match in _LUA_TOKEN.finditer(text) if not match["comment"] and not match["space"]]


# ---- Markdown ---------------------------------------------------------------


def _markdown_blocks(text):
    """Code and HTML comments are left out. A cell of a table is a block line of its own."""
    out, fence, paragraph = [], None, None
    text = re.sub(r"<!--.*?-->", lambda match: "\n" * match[0].count("\n"), text, flags=re.S)
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        mark = re.match(r"```+|~~~+", bare)
        if fence is not None:
            fence = None if mark and bare.startswith(fence) else fence
        elif mark:
            fence, paragraph = mark[0], None
        elif not bare:
            paragraph = None
        elif bare.startswith("#"):
            out.append(Block([(number, bare.lstrip("#").strip())], "heading"))
            paragraph = None
        elif bare.startswith("|"):
            if re.search(r"\w", bare):
                out.append(Block([(number, cell) for cell in re.split(r"(?<!\\)\|", bare)], "table"))
            paragraph = None
        else:
            item = re.match(r"(?:[-*+]|\d+[.)])\s+", bare)
            if paragraph is None or item:
                paragraph = Block([], "paragraph")
                out.append(paragraph)
            paragraph.lines.append((number, bare[item.end():] if item else bare))
    return out
