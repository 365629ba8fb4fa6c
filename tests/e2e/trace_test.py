#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: `infos trace` shows where a request's time went, and a collector gets the same spans.

Method: infosd with a collector that is a thread of this test; one request with its own x-request-id and traceparent; then
`infos trace` in both forms, by name and as a list, an unknown name, and what the collector was sent.
"""
import asyncio
import http.server
import json
import subprocess
import threading

import harness

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(http.server.BaseHTTPRequestHandler):
    spans, arrived = [], threading.Event()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path == "/v1/traces" and self.headers["content-type"] == "application/json", self.path
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                Collector.spans += scope["spans"]
        self.send_response(200)
        self.end_headers()
        Collector.arrived.set()

    def log_message(self, *_):
        pass


def infos(server, *arguments):
    return subprocess.run([harness.BIN / "infos", *arguments, "--socket", server.admin], capture_output=True, text=True)


async def run(server):
    await harness.wait_ready(server)
    body = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 12, "ignore_eos": True}
    status, _, _ = await harness.request(server, "POST", "/v1/completions", body, [
        ("x-request-id", "trace-me"), ("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01")])
    assert status == 200, status

    answer = infos(server, "trace", "trace-me", "-o", "json")
    assert answer.returncode == 0, answer.stderr
    trace, = json.loads(answer.stdout)["traces"]
    kinds = [span["kind"] for span in trace["spans"]]
    assert kinds == ["queue", "prefill", "decode"] and trace["tokens"] == 12 and trace["outcome"] == "length", trace
    inside = sum(span["seconds"] for span in trace["spans"])
    assert abs(inside - trace["seconds"]) < 1e-6, (inside, trace["seconds"])  # one worker: the spans are the whole
    drawn = infos(server, "trace", "trace-me")
    assert drawn.returncode == 0 and all(kind in drawn.stdout for kind in kinds), drawn
    print(drawn.stdout)
    assert "trace-me" in infos(server, "trace").stdout
    by_answer = infos(server, "trace", trace["answer_id"], "-o", "json")
    assert json.loads(by_answer.stdout)["traces"][0]["request_id"] == "trace-me", by_answer
    unknown = infos(server, "trace", "nobody")
    assert unknown.returncode == 1 and "nobody" in unknown.stderr, unknown
    assert infos(server, "trace", "../status").returncode == 2

    assert await asyncio.to_thread(Collector.arrived.wait, 30), "nothing came to the collector"
    root = next(span for span in Collector.spans if span["name"] == "request")
    assert root["traceId"] == TRACE_ID and root["parentSpanId"] == PARENT_ID, root
    children = [span for span in Collector.spans if span.get("parentSpanId") == root["spanId"]]
    assert [span["name"] for span in children] == kinds, children
    assert len({span["spanId"] for span in Collector.spans}) == len(Collector.spans)
    for span in children:
        assert int(root["startTimeUnixNano"]) <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])


def main():
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{collector.server_address[1]}"
    with harness.Server({"demo": harness.DEMO}, "--otlp", url) as server:
        asyncio.run(run(server))
    collector.shutdown()


main()
