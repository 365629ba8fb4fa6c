#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: the npm `openai` client, unmodified, works against infosd. Method: install it from the registry, run its cases.

usage: openai_client_test.py WORK_FOLDER
"""
import asyncio
import pathlib
import shutil
import subprocess
import sys

import harness


def main(work):
    source = pathlib.Path(__file__).parent / "openai_client"
    work.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "client_test.mjs"):
        shutil.copy(source / name, work / name)
    if not (work / "node_modules/openai").exists():
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"], cwd=work, check=True)
    with harness.Server({"demo": harness.DEMO}) as server:
        asyncio.run(harness.wait_ready(server))
        result = subprocess.run(["node", "client_test.mjs", server.url, "demo"], cwd=work, check=False)
        if result.returncode:
            print(server.logs())
        return result.returncode


sys.exit(main(pathlib.Path(sys.argv[1])))
