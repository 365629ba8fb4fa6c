#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: infos-engine-bench gives the report that scripts/bench-peer reads, and clear errors. Method: runs it on the small
trained model with few tokens; looks at the report's shape, never at how fast it was."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["INFOS_SOURCE_DIR"])
DATA = pathlib.Path(os.environ.get("INFOS_TEST_DATA", SOURCE / "../shared/data"))
MODEL = DATA / "models/stories260K-f32.gguf"


def bench(*arguments):
    program = pathlib.Path(os.environ["INFOS_BIN"]) / "infos-engine-bench"
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)


class EngineBench(unittest.TestCase):
    def test_json_report_has_every_figure(self):
        result = bench(MODEL, "-t", 1, "-p", 40, "-n", 2, "--batches", "1,3", "--backend", "reference", "-o", "json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual([row["name"] for row in report["results"]], ["prefill", "decode-1", "decode-3"])
        self.assertEqual([row["tokens"] for row in report["results"]], [40, 2, 6])
        for row in report["results"]:
            for key in ("tokens_per_second", "bandwidth_fraction", "arithmetic_fraction"):
                self.assertGreater(row[key], 0, key)
        for key in ("read_bytes_per_second", "f32_flops", "int8_ops"):
            self.assertGreater(report["limits"][key], 0, key)
        # The embedding is tied, so every tensor but the norms' handful is read in each step: 260,032 weights of 4 bytes.
        self.assertEqual(report["weight_bytes"], 1040128)

    def test_errors_name_what_was_wrong(self):
        for arguments, code, part in (
                ((MODEL, "-b", "1,x"), 2, "1,x"), ((), 2, "a model is wanted"), ((MODEL, "--no-such"), 2, "no-such"),
                (("/nowhere/model.gguf",), 1, "/nowhere/model.gguf"), ((MODEL, "--backend", "none"), 1, "libinfos_none.so")):
            result = bench(*arguments)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(part, result.stderr)


if __name__ == "__main__":
    if not MODEL.exists() and os.environ.get("CI") != "true":
        print(f"test data {MODEL} is not here (set INFOS_TEST_DATA)")
        sys.exit(77)
    unittest.main()
