#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: every lint rule fires on what it forbids and is silent on what it allows. Method: one snippet per rule."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lint import check_file  # noqa: E402

HEAD = "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n"
CASES = [  # path, text after the head, the rule that must fire (None: silence)
    ("topology/base/a.h", '#include "topology/spec/spec.h"\n', "include"),
    ("topology/spec/a.h", '#include "topology/base/result.h"\n', None),
    ("topology/spec/a.h", "#include <yaml-cpp/yaml.h>\n", "include"),
    ("topology/spec/a.cc", "#include <yaml-cpp/yaml.h>\n", None),
    ("simulator/world/a.cc", '#include "daemon/runtime/worker.h"\n', "include"),
    ("simulator/world/a.cc", '#include "daemon/control/worker_core.h"\n', None),
    ("devices/cpu/a.cc", '#include "daemon/control/worker_core.h"\n', "include"),
    ("daemon/control/a.cc", '#include "devices/engine/engine.h"\n', "include"),
    ("daemon/control/a.cc", "std::unordered_map<int, int> m;\n", "pure"),
    ("daemon/control/a.cc", "auto t = std::chrono::steady_clock::now();\n", "pure"),
    ("daemon/control/a.cc", "std::map<int, int> m;  // not std::mutex\n", None),
    ("daemon/runtime/a.cc", '#include "result.h"\n', "include"),
    ("tests/base/a.cc", "std::this_thread::sleep_for(1s);\n", "sleep"),
    ("devices/cpu/a.cc", "int x;  // " + "TO" + "DO later\n", "todo"),
    ("devices/cpu/a.cc", "x" * 130 + "\n", "columns"),
    ("devices/cpu/a.cc", "\n" * 600, "size"),
    ("daemon/gateway/a.cc", '#include "tests/support/data.h"\n', "include"),
]

failures = 0
for path, text, rule in CASES:
    fired = [problem.split(": ")[1] for problem in check_file(path, HEAD + text)]
    if (rule is None and fired) or (rule is not None and rule not in fired):
        print(f"{path}: {text[:60]!r}: wanted {rule}, got {fired}")
        failures += 1
if not any(": spdx:" in problem for problem in check_file("devices/cpu/a.cc", "int x;\n")):
    print("spdx rule is silent")
    failures += 1
print(f"{len(CASES) + 1 - failures} passed, {failures} failed")
sys.exit(1 if failures else 0)
