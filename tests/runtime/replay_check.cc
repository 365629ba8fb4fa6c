// SPDX-License-Identifier: Apache-2.0
// Replays recordings and says whether every core does again what it did. usage: replay_check
// FILE...
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "daemon/control/recording.h"

int main(int argc, char** argv) {
  bool all_match = argc > 1;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const auto report = infos::replay(bytes);
    if (!report.ok()) {
      std::printf("%s: %s\n", argv[i], report.error().message.c_str());
      all_match = false;
      continue;
    }
    std::size_t compared = 0;
    for (const auto& core : report->cores) compared += core.compared;
    std::printf("%s: %zu cores, %llu events, %zu hashes compared, %s\n", argv[i],
                report->cores.size(), static_cast<unsigned long long>(report->events), compared,
                report->matches ? "equal" : "DIFFERENT");
    all_match = all_match && report->matches && compared >= report->cores.size();
  }
  return all_match ? 0 : 1;
}
