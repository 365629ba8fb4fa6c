#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: a real trained model answers over HTTP exactly as its makers' own program does, from GGUF and from a Hugging Face
directory of the same weights.

Method: stories260K, greedy, for the empty prompt and for "Once upon a time"; the text must be stories260K.reference.txt,
which llama2.c printed
with the same settings. The converter is tests/tools' model-tool.

usage: stories_test.py MODEL_TOOL
"""
import asyncio
import os
import subprocess
import sys
import tempfile

import harness

SPEC = """apiVersion: infos/v1
kind: Model
metadata: {{name: {name}}}
spec:
  source: {source}
  engine: {{max_context: 512, threads: 1}}   # the file says 128, the model was trained at 512
---
"""


async def run(server, names, reference):
    await harness.wait_ready(server)
    begin = "Once upon a time"
    assert reference.startswith(begin)
    for name in names:
        for prompt in ("", begin):
            body = {"model": name, "prompt": prompt, "temperature": 0, "max_tokens": 300, "ignore_eos": True}
            text = await harness.complete(server, body)
            streamed, _ = await harness.stream(server, body)
            assert streamed == text, f"{name}: streamed and whole answers differ"
            whole = (prompt + text).lstrip(" ")
            # The reference was cut at a token count; the model itself goes on.
            assert whole.startswith(reference), f"{name}, prompt {prompt!r}:\n got {whole!r}\nwant {reference!r}"
            print(f"{name}, prompt {prompt!r}: all {len(reference)} characters as in the reference")


def main(tool):
    gguf = harness.need(harness.DATA / "models/stories260K-f32.gguf")
    with open(harness.need(harness.DATA / "models/stories260K.reference.txt"), encoding="utf-8") as file:
        reference = file.read().rstrip("\n")
    with tempfile.TemporaryDirectory(prefix="infos-stories-") as folder:
        directory = os.path.join(folder, "hf")
        subprocess.run([tool, "hf", gguf, directory], check=True, stdout=subprocess.DEVNULL)
        spec = os.path.join(folder, "spec.yaml")
        with open(spec, "w", encoding="utf-8") as file:
            file.write((SPEC.format(name="gguf", source=gguf) + SPEC.format(name="hf", source=directory)).rstrip("-\n"))
        with harness.Server({}, "--config", spec) as server:
            asyncio.run(run(server, ("gguf", "hf"), reference))


main(sys.argv[1])
