// SPDX-License-Identifier: Apache-2.0
// What the pure parts of a KV transfer cost on one core: conversions, hashing, and reshard programs
// on the shape of a 70 B model (80 layers, 8 heads of 128), TP 8 to 1, where runs are 4 KiB.
//   kv_bench        takes a few seconds
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "transports/kv/convert.h"
#include "transports/kv/exporter.h"
#include "transports/kv/reshard.h"
#include "transports/kv/unit.h"

namespace infos {
namespace {

/// Seconds of one call, the best of several.
double seconds_of(const std::function<void()>& work) {
  double best = 1e9;
  for (int round = 0; round < 7; ++round) {
    const auto begun = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    best = std::min(best, took.count());
  }
  return best;
}

void conversions() {
  constexpr std::size_t kElements = 16 << 10, kRepeat = 200;  // stays in the cache
  std::vector<std::byte> from(kElements * 4), to(kElements * 4), scale(4);
  for (const KvDType a : {KvDType::f32, KvDType::f16, KvDType::bf16, KvDType::i8})
    for (const KvDType b : {KvDType::f32, KvDType::f16, KvDType::bf16, KvDType::i8}) {
      if (a == b) continue;
      const double s = seconds_of([&] {
        for (std::size_t i = 0; i < kRepeat; ++i) {
          for (std::size_t row = 0; (a == KvDType::i8 || b == KvDType::i8) && row < kElements;
               row += 128) {
            if (a == KvDType::i8)
              dequantise_row(from.data() + row, scale.data(), b,
                             to.data() + row * kv_element_bytes(b), 128);
            else
              quantise_row(from.data() + row * kv_element_bytes(a), a, to.data() + row,
                           scale.data(), 128);
          }
          if (a != KvDType::i8 && b != KvDType::i8)
            float_conversion(a, b)(from.data(), to.data(), kElements);
        }
      });
      fmt::print("convert {:>4} to {:<4} {:7.2f} G elements/s\n", to_string(a), to_string(b),
                 static_cast<double>(kElements * kRepeat) / s * 1e-9);
    }
}

KvShape large(std::uint32_t ranks, KvDType dtype, std::uint32_t blocks) {
  return {"m", "b", 80, 8, 128, dtype, 16, ranks, blocks};
}

void programs() {
  constexpr std::uint32_t kTokens = 32 << 10;
  std::vector<BlockId> table;
  for (std::uint32_t i = 0; i < kTokens / 16; ++i) table.push_back({(i * 7919) % (kTokens / 16)});
  const auto p = ReshardProgram::compile(make_kv_layout(large(8, KvDType::f16, kTokens / 16)),
                                         make_kv_layout(large(1, KvDType::f16, kTokens / 16)));
  std::vector<KvCopy> copies;
  const double s = seconds_of([&] {
    copies.clear();
    p->copies({0, kTokens, 0, 80, 3}, {table, table}, copies);
  });
  fmt::print("reshard TP 8 to 1, 32k tokens, one rank: {} pieces of {} bytes, {:.1f} ns each\n",
             copies.size(), copies[0].bytes, s / static_cast<double>(copies.size()) * 1e9);
}

/// Takes a small sequence through a program, staging to place.
void landing() {
  constexpr std::uint32_t kTokens = 256;
  std::vector<BlockId> table;
  for (std::uint32_t i = 0; i < kTokens / 16; ++i) table.push_back({i});
  const KvLayout from = make_kv_layout(large(1, KvDType::f16, kTokens / 16));
  std::vector<std::byte> source(from.pool_bytes());
  const std::byte* const source_base = source.data();
  for (const KvDType dtype : {KvDType::f16, KvDType::f32, KvDType::bf16}) {
    KvShape shape = large(1, dtype, kTokens / 16);
    shape.order = KvOrder::token_major;
    const KvLayout to = make_kv_layout(shape);
    std::vector<std::byte> sink(to.pool_bytes());
    std::byte* const sink_base = sink.data();
    const auto p = ReshardProgram::compile(from, to);
    const double s = seconds_of([&] {
      p->run({0, kTokens, 0, 80}, {table, table}, {&source_base, 1}, {&sink_base, 1});
    });
    fmt::print("head-major f16 to token-major {:<4} {:6.2f} GB/s of source\n", to_string(dtype),
               static_cast<double>(source.size()) / s * 1e-9);
  }
  std::vector<std::uint64_t> stamps(stamp_table_bytes(from) / 8);
  auto exporter =
      KvExporter::create(from, {source_base}, {std::as_writable_bytes(std::span(stamps))});
  const double s = seconds_of([&] {
    for (const BlockId block : table) exporter->stamp({block, 1, 16, 0, 80});
  });
  fmt::print("stamping {:.2f} GB/s\n", static_cast<double>(source.size()) / s * 1e-9);
}

}  // namespace
}  // namespace infos

int main() {
  infos::conversions();
  infos::programs();
  infos::landing();
}
