"""Lists the strings that users read, by kind, as Markdown (`list`), or checks them with Vale (`check VALE [FILE...]`).

scripts/strings.sh and scripts/prose.sh run this program in the root of the repository."""

import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

# A token of Rust, as far as strings and their surroundings need it.
TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<raw>b?r(?P<hashes>\#*)"(?P<text>.*?)"(?P=hashes))
    | (?P<string>b?"(?P<escaped>(?:[^"\\]|\\.)*)")
    | (?P<char>b?'(?:[^'\\]|\\.[^']*)')
    | (?P<lifetime>'\w+)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<other>[^\s])
    """,
    re.VERBOSE | re.DOTALL,
)
LOGS = {"error", "warn", "info", "debug", "trace", "event"}
HELP = {"about", "long_about", "help", "long_help", "after_help", "switch", "valued", "choice", "namespace"}
METRICS = re.compile(r"counter|gauge|histogram|opts|summary", re.IGNORECASE)
ERRORS = {"Err", "bail", "anyhow", "context", "with_context", "ok_or", "ok_or_else", "map_err", "other"}
PANICS = {"panic", "expect", "unreachable", "assert", "assert_eq", "assert_ne", "debug_assert", "unimplemented"}
# Strings within these are no prose.
DATA = {"json", "include_str", "include_bytes", "env", "concat", "stringify", "cfg", "contains", "starts_with", "ends_with"}
# Texts that Vale may reject: a text and the reason on each line.
EXCEPTIONS = Path(".vale/strings.tsv")
LIST, DOCS = Path("target/strings.md"), Path("target/doc-comments.md")
ESCAPES = {"n": "\n", "t": "\t", "r": "", "0": "", '"': '"', "'": "'", "\\": "\\"}


def files(*patterns):
    """Returns the files of the repository that match these patterns of git."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns], capture_output=True, check=True)
    return [Path(name) for name in sorted(listed.stdout.decode().split("\0")) if name and Path(name).is_file()]


def unescape(text):
    """Returns the text of a string literal."""
    text = re.sub(r"\\\n\s*", "", text)
    text = re.sub(r"\\u\{([0-9a-fA-F_]+)\}|\\x([0-9a-fA-F]{2})", lambda at: chr(int((at[1] or at[2]).replace("_", ""), 16)), text)
    return re.sub(r"\\(.)", lambda at: ESCAPES.get(at[1], at[1]), text)


def is_prose(text):
    """Returns whether a text has at least two words: no key, path, query, template or piece of markup."""
    if re.search(r"[<>]/?\w+[ >].*/>|^\s*[\[{<]|::|;\n|[{(]\n|=\{|^[A-Za-z0-9_./-]+(, ?[A-Za-z0-9_./-]+)*$", text):
        return False
    words = re.findall(r"(?<![\w%{/.-])[A-Za-z][a-z']*(?![\w}/=(-])", re.sub(r"\{[^}]*\}", " ", text))
    return len(words) >= 2 and any(len(word) > 2 for word in words)


def rust_strings(path):
    """Yields line, text and surroundings of each string literal of a file, without its tests."""
    source = path.read_text()
    stack, last, attribute = [], "", False
    skip_from = None
    for token in TOKEN.finditer(source):
        kind = token.lastgroup
        if kind in ("text", "hashes", "escaped"):
            kind = "raw" if token["raw"] else "string"
        text = token.group()
        if kind == "comment":
            continue
        if kind == "word":
            last = text
        elif kind == "open":
            # The test module is the rest of a file, or a block in it.
            before = source[max(0, token.start() - 200) : token.start()]
            is_tests = text == "{" and re.search(r"#\[cfg\((?:test|any\(test[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([a-z]+\))? )?(?:mod|fn|impl|static|const|struct)[^;{]*$", before)
            is_attribute = len(stack) > 0 and stack[-1] == ("", "[") and last
            stack.append((f"#{last}" if is_attribute else last, text))
            if is_tests and skip_from is None:
                skip_from = len(stack)
            last = ""
        elif kind == "close":
            if skip_from is not None and len(stack) == skip_from:
                skip_from = None
            if stack:
                stack.pop()
            last = ""
        elif kind in ("string", "raw") and skip_from is None:
            literal = token["text"] if token["raw"] else unescape(token["escaped"])
            if not text.startswith("b"):
                yield source.count("\n", 0, token.start()) + 1, literal, [name for name, _ in stack]
        elif text not in "!.&":
            last = ""


def kind_of(path, names):
    """Returns the kind of a string literal, or nothing for one that no user reads."""
    name, inner = str(path), names[-3:]
    if any(each in DATA for each in names[-2:]):
        return None
    if names[-1:] == ["#error"]:
        return "errors"
    if any(each.startswith("#") for each in names):
        return None
    if any(each in PANICS for each in names[-2:]):
        return "panics"
    if any(each in LOGS for each in inner):
        return "logs"
    if "/options/flags.rs" in name or "/options/gates/table.rs" in name:
        return "help of the manager"
    if "src/cli/" in name:
        return "help of the client" if any(each in HELP for each in names) else "output of the client"
    if "reasons" in name or name.endswith("model/words.rs"):
        return "explanations"
    if name.endswith("metrics.rs") or any(METRICS.search(each) for each in inner) or "/telemetry/" in name:
        return "metrics"
    if name.endswith("live_reads.rs"):
        return "live reads"
    if "event_log" in name or "/admin/events/" in name:
        return "event log"
    if name.startswith("src/admin/"):
        return "admin API"
    if any(each in ERRORS or each.endswith("Error") for each in names):
        return "errors"
    if name.startswith("crates/controllers/"):
        return "events, conditions and messages of controllers"
    return "other messages"


def comments(path, mark):
    """Yields line and text of each block of comment lines of a file. A list within a comment is split into its items."""
    block, begin = [], 0
    for at, line in enumerate([*path.read_text().splitlines(), ""], 1):
        text = line.strip()
        if text.startswith(mark) and not text.startswith("#!"):
            text = text.lstrip(mark).strip()
            if not text or text.startswith(("- ", "* ")) or re.match(r"\d+\. ", text):
                if block:
                    yield begin, " ".join(block)
                block, text = [], re.sub(r"^(?:[-*]|\d+\.) ", "", text)
            if text:
                begin = begin if block else at
                block.append(text)
        elif block:
            yield begin, " ".join(block)
            block = []


def doc_comments(path):
    """Yields line and first paragraphs of the documentation of public items."""
    block, begin = [], 0
    for at, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if text.startswith(("///", "//!")):
            begin = begin if block else at
            block.append(text[3:].strip())
        elif not text.startswith("#["):
            if block and (text.startswith("pub ") or not text):
                for paragraph in "\n".join(block).split("\n\n"):
                    yield begin, " ".join(paragraph.split("\n"))
            block = []


def json_strings(path, names):
    """Yields line and text of the values of these keys in an indented JSON file."""
    for at, line in enumerate(path.read_text().splitlines(), 1):
        for text in re.findall(rf'"(?:{names})": ("(?:[^"\\]|\\.)*")', line):
            yield at, json.loads(text)


def yaml_strings(path, names):
    """Yields line and text of the values of these keys, folded ones included."""
    lines = path.read_text().splitlines()
    for at, line in enumerate(lines):
        if part := re.match(rf"(\s*)(?:{names}): (.+)", line):
            text = part[2].strip("'\"")
            if text in (">-", ">", "|", "|-"):
                text = ""
                for following in lines[at + 1 :]:
                    if following.strip() and len(following) - len(following.lstrip()) <= len(part[1]):
                        break
                    text += f"{following.strip()} "
            yield at + 1, text


def script_strings(path):
    """Yields line and text of what a script prints: quoted arguments of echo, printf and functions, help of make's targets."""
    for at, line in enumerate(path.read_text().splitlines(), 1):
        if found := re.match(r"[a-z-]+:.*?## (.*)", line):
            yield at, found[1]
        elif re.search(r"\b(echo|printf|say|fail|die|usage|note|clean|advised|unasked|step)\b|:\?", line) and not line.strip().startswith("#"):
            for quoted in re.findall(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|:\?([^}]*)\}', re.sub(r"\$\([^()]*\)", "$OUTPUT", line)):
                text = next((each for each in quoted if each), "").replace("\\n", " ").replace('\\"', '"')
                if is_prose(re.sub(r"\$\{?\w+\}?|%s", " ", text)):
                    yield at, text


def notes(path):
    """Yields line and text of the notes of a chart, without templates and commands."""
    for at, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith(" "):
            yield at, re.sub(r"\{\{.*?\}\}", "", line).strip()


def failures(path):
    """Yields line and text of each error of a template of the chart."""
    for at, line in enumerate(path.read_text().splitlines(), 1):
        for text in re.findall(r'\{\{-? *fail "([^"]*)"', line):
            yield at, text


def test_modules(paths):
    """Returns the files and directories of modules that only tests compile."""
    modules = set()
    for path in paths:
        folder = path.parent if path.stem in ("mod", "lib", "main") else path.with_suffix("")
        for name in re.findall(r"#\[cfg\((?:test|any\(test[^\]]*)\)\]\s*(?:pub(?:\([a-z ]+\))? )?mod (\w+);", path.read_text()):
            modules |= {folder / f"{name}.rs", folder / name}
    return modules


def collect_rust(paths, found):
    """Adds the string literals of Rust files."""
    modules = test_modules(paths)
    for path in paths:
        if modules.intersection([path, *path.parents]) or str(path).startswith(("src/tidy", "src/docs", "src/security", "src/behaviour")):
            continue
        for line, text, names in rust_strings(path):
            kind = kind_of(path, names)
            if kind and is_prose(text):
                found[kind].append((path, line, text))


def collect():
    """Returns the strings by kind: path, line and text."""
    found = defaultdict(list)
    collect_rust(files("src/*.rs", "crates/machinery/src/*.rs", "crates/controllers/src/*.rs", "crates/cel-check/src/*.rs"), found)

    def add(kind, patterns, strings):
        for path in files(*patterns):
            found[kind] += [(path, line, text) for line, text in strings(path) if text]

    add("comments of the admin API", ["proto/*.proto"], lambda path: comments(path, "//"))
    add("comments in deploy/", ["deploy/*.yaml", "deploy/*.tpl", "deploy/Containerfile"], lambda path: comments(path, "#"))
    add("alerts", ["deploy/prometheus/rules.yaml"], lambda path: yaml_strings(path, "summary|description|runbook"))
    add("chart and plugin", ["deploy/krew/coxswain.yaml", "deploy/*Chart.yaml"], lambda path: yaml_strings(path, "shortDescription|description|caveats"))
    add("chart and plugin", ["deploy/*.schema.json"], lambda path: json_strings(path, "description"))
    add("chart and plugin", ["deploy/helm/*.yaml", "deploy/helm/*.tpl"], failures)
    add("dashboard", ["deploy/grafana/*.json"], lambda path: json_strings(path, "title|description|legendFormat|content"))
    add("chart and plugin", ["deploy/*NOTES.txt"], notes)
    add("output of scripts", ["Makefile", "*.sh"], script_strings)
    return found


def markdown(text):
    """Returns a text for Markdown: placeholders and flags are code, which the linter skips."""
    text = " ".join(text.split())
    code = re.compile(r"`[^`]*`|[\w.-]*/[\w./-]+\.[a-z]+|\{\{|\}\}|\{[^{}]*\}|\$\{?\w+\}?|--[a-z][\w-]*(?:=[\w.,*]+)?")
    parts, at = [], 0
    for each in code.finditer(text):
        parts += [re.sub(r"([\\*_<|#\[`])", r"\\\1", text[at : each.start()]), f"`{each.group().strip('`')}`" if each.group() not in ("{{", "}}") else each.group()]
        at = each.end()
    parts.append(re.sub(r"([\\*_<|#\[`])", r"\\\1", text[at:]))
    return "".join(parts)


def write(path, title, found):
    """Writes a page with a section for each kind. Returns the strings by their lines of the page."""
    lines, places = [f"# {title}", ""], {}
    for kind in sorted(found):
        lines += [f"## {kind[0].upper()}{kind[1:]}: {len(found[kind])}", ""]
        for string in found[kind]:
            lines.append(f"- {markdown(string[2])} `{string[0]}:{string[1]}`")
            places[len(lines)] = string
        lines.append("")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))
    return places


def write_list():
    """Writes the lists and prints how many strings they have."""
    found, docs = collect(), defaultdict(list)
    write(LIST, "Strings that users read", found)
    paths = files("src/*.rs", "crates/*/src/*.rs")
    modules = test_modules(paths)
    for path in paths:
        if not modules.intersection([path, *path.parents]):
            docs["documentation of public items"] += [(path, line, text) for line, text in doc_comments(path)]
    write(DOCS, "Documentation of public items", docs)
    for kind in sorted(found):
        print(f"{len(found[kind]):6} {kind}")
    print(f"{sum(map(len, found.values())):6} strings in {LIST}")
    print(f"{sum(map(len, docs.values())):6} paragraphs in {DOCS}")


def check(vale, paths):
    """Prints the findings of Vale about all strings, or about those of some Rust files. Returns whether there are any."""
    found = defaultdict(list)
    if paths:
        collect_rust([Path(path) for path in paths], found)
    else:
        found = collect()
    exceptions = {line.split("\t")[0] for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#")}
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "strings.md"
        places = write(page, "Strings", found)
        output = subprocess.run([vale, "--config", ".vale.ini", "--output", "line", page], capture_output=True, text=True)
    findings, used = 0, set()
    for line in output.stdout.splitlines():
        at, _, rule, message = line.removeprefix(f"{page}:").split(":", 3)
        path, number, text = places[int(at)]
        text = " ".join(text.split())
        if text in exceptions:
            used.add(text)
            continue
        findings += 1
        print(f"{path}:{number}: {rule}: {message}\n    {text}")
    if not paths and (unused := len(exceptions - used)):
        print(f"strings: {unused} rows of {EXCEPTIONS} are no longer needed", file=sys.stderr)
    if output.stderr or output.returncode not in (0, 1):
        sys.exit(f"strings: vale: {output.stderr or output.stdout}")
    return findings > 0


if __name__ == "__main__":
    if sys.argv[1] == "list":
        write_list()
    else:
        sys.exit(check(sys.argv[2], sys.argv[3:]))
