// SPDX-License-Identifier: Apache-2.0
// The ucx transport beside ucx_perftest in the same mode (lanes, message size, warm buffers of both
// sides, a window of messages in flight), measured in turns; the best of each counts. By hand:
//   build/release/tests/ucx_bench [local|tcp|rdma] [BYTES]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "transports/bench/kv_bench.h"
#include "transports/bench/perftest.h"
#include "transports/ucx/ucx.h"

int main(int argc, char** argv) {
  using namespace infos;
  using namespace infos::bench;
  const std::string lanes = argc > 1 ? argv[1] : "local";
  const std::uint64_t bytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1 << 20;
  RdmaOptions options;
  std::string transports = "posix,sysv,cma,tcp,self";
  if (lanes == "tcp") options.lanes = RdmaOptions::Lanes::tcp, transports = "tcp,self";
  if (lanes == "rdma") options.lanes = RdmaOptions::Lanes::rdma, transports = "rc_verbs,self";
  KvBenchOptions bench;
  bench.subjects = {
      {"ucx " + lanes, TransportKind::ucx, [options] { return make_ucx_transport(options); }}};
  bench.sizes = {bytes};
  bench.depths = {4, 16};
  bench.memory_bytes = bytes;
  bench.pieces = 0;
  bench.rounds = 2;
  bench.compare = KvBenchOptions::Compare::no;
  bench.detect = KvBenchOptions::Detect::no;
  PerftestOptions tool;
  tool.transports = transports;
  tool.test = lanes == "rdma" ? "ucp_get" : "ucp_am_bw";
  tool.bytes = bytes;
  tool.iterations = (1ull << 31) / bytes;
  double ours = 0, theirs = 0;
  for (int round = 0; round < 3; ++round) {
    const auto report = run_kv_bench(bench, [](const std::string&) {});
    if (!report) return std::fprintf(stderr, "%s\n", report.error().message.c_str()), 1;
    for (const KvRow& row : report->rows) ours = std::max(ours, row.bytes_per_second);
    if (const auto rate = perftest_rate(tool)) theirs = std::max(theirs, *rate);
  }
  std::printf("%s, %llu bytes: ucx transport %.0f MB/s, ucx_perftest %s %.0f MB/s: %.2f\n",
              lanes.c_str(), static_cast<unsigned long long>(bytes), ours / 1e6, tool.test.c_str(),
              theirs / 1e6, theirs > 0 ? ours / theirs : 0);
}
