#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house rules that a machine can check: who may include whom, what control code may not touch, and the size of things.

usage: lint.py ROOT      prints `file:line: rule: what was seen, what is allowed`; exit 1 when there is anything.
"""
import os
import re
import sys

# Who may include whom (docs/architecture.md). A module may always include itself.
ALLOWED = {
    "topology/base": [],
    "topology": ["topology/base"],
    "planner": ["topology"],
    "transports": ["topology"],
    "devices": ["topology"],
    "daemon/control": ["topology", "planner"],
    "daemon/gateway": ["topology", "planner", "transports", "devices", "daemon/control"],
    "daemon/runtime": ["topology", "planner", "transports", "devices", "daemon/control", "daemon/gateway"],
    "daemon/infosd": ["topology", "planner", "transports", "devices", "daemon/control", "daemon/gateway", "daemon/runtime"],
    "daemon/runtime/peer": ["topology", "daemon/control", "daemon/runtime"],
    "daemon/cli": ["daemon/runtime/peer", "topology", "planner", "transports", "devices", "daemon/control", "simulator"],
    "simulator": ["topology", "planner", "daemon/control"],
}
PURE = ("topology", "planner", "daemon/control", "simulator")
# What decision code may not name: clocks, threads, files, sockets, unordered iteration, foreign randomness.
IMPURE = re.compile(
    r"std::(thread|mutex|chrono|ofstream|ifstream|fstream|filesystem|random_device|mt19937|unordered_map|unordered_set|"
    r"async|condition_variable)|\b(clock_gettime|gettimeofday|getenv|rand|srand|usleep|sleep|socket|fopen)\(")
DECISIONS = ("daemon/control", "planner")
PROJECT_ROOTS = ("topology/", "planner/", "transports/", "devices/", "daemon/", "simulator/", "tests/")
STD_HEADER = re.compile(r"^[a-z_0-9]+(\.h)?$|^(sys|linux|netinet|arpa|net)/[a-z_0-9]+\.h$")
GENERATED = re.compile(r"\.pb\.h$")
LINES_MAX, COLUMNS_MAX = 500, 100
COLUMNS_MAX_TABLE = 120  # lines with a string or a trailing description: tables read better unbroken


def module_of(path):
    """The longest module name that `path` lies in, or None."""
    best = None
    for name in ALLOWED:
        if path.startswith(name + "/") and (best is None or len(name) > len(best)):
            best = name
    return best


def may_include(module, other):
    if other == module or other.startswith(module + "/") or module.startswith(other + "/"):
        return other == module or other.startswith(module + "/") or other in ALLOWED[module]
    return any(other == allowed or other.startswith(allowed + "/") for allowed in ALLOWED[module])


def check_includes(path, number, line, module):
    match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
    if not match:
        return
    quote, target = match.groups()
    if target.startswith(PROJECT_ROOTS):
        if module is None:
            return
        other = module_of(target)
        if target.startswith("tests/"):
            yield f"{path}:{number}: include: '{target}' from product code: tests are never included"
        elif other and not may_include(module, other):
            allowed = ", ".join(ALLOWED[module]) or "nothing else"
            yield f"{path}:{number}: include: '{target}' from {module}, which may include {allowed}"
        return
    if quote == '"' and not GENERATED.search(target):
        yield f"{path}:{number}: include: '\"{target}\"': include our own files by path from the repository root"
    if path.endswith(".h") and path.startswith(PURE) and not STD_HEADER.match(target) and not GENERATED.search(target):
        yield f"{path}:{number}: include: third-party '{target}' in a header of {module}: only std headers there"


def check_file(path, text):
    lines = text.split("\n")
    module = module_of(path)
    source = path.endswith((".cc", ".h"))
    if source and "SPDX-License-Identifier: Apache-2.0" not in "".join(lines[:2]):
        yield f"{path}:1: spdx: want 'SPDX-License-Identifier: Apache-2.0' in the first lines"
    if path.endswith(".h") and "#pragma once" not in text and "#ifndef INFOS_" not in text and \
            "Included more than once" not in text:
        yield f"{path}:1: header: want #pragma once, or a comment 'Included more than once: ...'"
    if source and len(lines) - 1 > LINES_MAX:
        yield f"{path}:{len(lines) - 1}: size: {len(lines) - 1} lines, at most {LINES_MAX}: split it by responsibility"
    raw_string = False
    for number, line in enumerate(lines, 1):
        if not source:
            continue
        inside, raw_string = raw_string, ('R"' in line or raw_string) and ')"' not in line
        columns = COLUMNS_MAX_TABLE if '"' in line or "///<" in line or "//" in line[20:] else COLUMNS_MAX
        if len(line) > columns and "http" not in line and not inside and 'R"' not in line:
            yield f"{path}:{number}: columns: {len(line)}, at most {columns}"
        if re.search(r"\b(TODO|FIXME|XXX)\b(?!.*#\d)", line):
            yield f"{path}:{number}: todo: a TODO names an issue number"
        if path.startswith(DECISIONS) and not path.endswith("codec.cc"):
            impure = IMPURE.search(line.split("//")[0])
            if impure:
                yield f"{path}:{number}: pure: '{impure.group(0)}' in decision code, which has no clock, thread, file or hash order"
        if re.search(r"\bsleep_for\(|\busleep\(|\bsleep\(", line) and path.startswith("tests/") and "lint: allow" not in line:
            yield f"{path}:{number}: sleep: tests wait for events, never for time"
        yield from check_includes(path, number, line, module)


def main(root):
    problems = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(d for d in folders if not d.startswith((".", "build")) and d != "node_modules")
        for name in sorted(files):
            if not name.endswith((".cc", ".h")):
                continue
            full = os.path.join(folder, name)
            with open(full, encoding="utf-8") as file:
                problems += check_file(os.path.relpath(full, root), file.read())
    for problem in problems:
        print(problem)
    print(f"lint: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
