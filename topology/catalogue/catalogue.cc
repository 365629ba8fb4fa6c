// SPDX-License-Identifier: Apache-2.0
#include "topology/catalogue/catalogue.h"

#include <fmt/format.h>

#include <array>
#include <string>

namespace infos {
namespace {

constexpr double T = 1e12;
constexpr Bytes gib(std::uint64_t n) { return Bytes{n << 30}; }
constexpr Bytes mib(std::uint64_t n) { return Bytes{n << 20}; }
constexpr Bandwidth gb(double n) { return Bandwidth{n * 1e9}; }

constexpr DeviceClass kCpu = DeviceClass::cpu;
constexpr DeviceClass kGpu = DeviceClass::gpu;
constexpr Confidence kSheet = Confidence::data_sheet;
constexpr Confidence kReported = Confidence::reported;
constexpr Confidence kEstimate = Confidence::estimate;

// "aiconfigurator": the system descriptions of ai-dynamo/aiconfigurator (Apache-2.0), checked
// against the data sheet. CPU peaks: cores x base clock x operations per cycle and core (AVX2 32
// f32, AVX-512 64 f32, AVX-512 VNNI 256 int8, AMX 1024 bf16 and 2048 int8; Zen 4 runs AVX-512 in
// two halves: 32 f32, 64 bf16, 128 int8); memory bandwidth: channels x rate x 8 bytes. Columns:
// name, vendor, class, {f32, bf16, f8, i8, f4}, memory, bandwidth, efficiency, peer link, host
// link, watts.
// clang-format off
constexpr std::array kKinds = std::to_array<DeviceKind>({
    {"a100-pcie", "nvidia", kGpu, {19.5 * T, 312 * T, 0, 624 * T, 0}, gib(80), gb(1935), 0.8, gb(0), gb(32), 300,
     kSheet, "NVIDIA A100 data sheet (80 GB PCIe); aiconfigurator a100_pcie"},
    {"a100-sxm", "nvidia", kGpu, {19.5 * T, 312 * T, 0, 624 * T, 0}, gib(80), gb(2039), 0.8, gb(300), gb(32), 400,
     kSheet, "NVIDIA A100 data sheet (80 GB SXM); aiconfigurator a100_sxm"},
    {"a30", "nvidia", kGpu, {10.3 * T, 165 * T, 0, 330 * T, 0}, gib(24), gb(933), 0.8, gb(100), gb(32), 165,
     kSheet, "NVIDIA A30 data sheet; aiconfigurator a30"},
    {"b200-sxm", "nvidia", kGpu, {75 * T, 2250 * T, 4500 * T, 4500 * T, 9000 * T},
     gib(180), gb(7700), 0.8, gb(900), gb(128), 1000,
     kSheet, "NVIDIA Blackwell data sheet (HGX B200); aiconfigurator b200_sxm"},
    {"b300-sxm", "nvidia", kGpu, {75 * T, 2250 * T, 4500 * T, 153.5 * T, 14000 * T},
     mib(275040), gb(7750), 0.8, gb(900), gb(128), 1100,
     kReported, "NVIDIA Blackwell Ultra data sheet; memory as nvidia-smi reports; aiconfigurator b300_sxm"},
    {"b60", "intel", kGpu, {12.28 * T, 98.304 * T, 0, 197 * T, 0}, gib(24), gb(456), 0.5, gb(0), gb(32), 200,
     kReported, "Intel Arc Pro B60 data sheet; bandwidth that kernels reach as measured in aiconfigurator b60"},
    {"epyc-7763", "amd", kCpu, {5.02 * T, 0, 0, 0, 0}, gib(512), gb(204.8), 0.8, gb(0), gb(32), 280,
     kEstimate, "AMD EPYC 7763 product page: 64 cores, 2.45 GHz, 8 x DDR4-3200; AVX2"},
    {"epyc-9654", "amd", kCpu, {7.37 * T, 14.75 * T, 0, 29.5 * T, 0}, gib(768), gb(460.8), 0.8, gb(0), gb(64), 360,
     kEstimate, "AMD EPYC 9654 product page: 96 cores, 2.4 GHz, 12 x DDR5-4800; AVX-512 in halves"},
    {"gb200", "nvidia", kGpu, {80 * T, 2500 * T, 5000 * T, 5000 * T, 10000 * T},
     mib(189471), gb(8000), 0.8, gb(900), gb(64), 1200,
     kReported, "NVIDIA GB200 NVL72 data sheet; memory as nvidia-smi reports; aiconfigurator gb200"},
    {"gb300", "nvidia", kGpu, {80 * T, 2500 * T, 5000 * T, 165 * T, 15000 * T},
     mib(284208), gb(8000), 0.8, gb(900), gb(64), 1400,
     kReported, "NVIDIA GB300 NVL72 data sheet; memory as nvidia-smi reports; aiconfigurator gb300"},
    {"generic-cpu-avx2", "any", kCpu, {0.77 * T, 0, 0, 0, 0}, gib(32), gb(51.2), 0.8, gb(0), gb(16), 65,
     kEstimate, "8 cores at 3 GHz with AVX2, 2 x DDR4-3200: a common desktop"},
    {"generic-cpu-avx512", "any", kCpu, {2.56 * T, 0, 0, 10.24 * T, 0}, gib(128), gb(140.8), 0.8, gb(0), gb(32), 150,
     kEstimate, "16 cores at 2.5 GHz with AVX-512 and VNNI, 6 x DDR4-2933: a common server"},
    {"h100-pcie", "nvidia", kGpu, {51 * T, 756.5 * T, 1513 * T, 1513 * T, 0},
     gib(80), gb(2000), 0.8, gb(0), gb(64), 350,
     kSheet, "NVIDIA H100 data sheet (PCIe); aiconfigurator h100_pcie"},
    {"h100-sxm", "nvidia", kGpu, {67 * T, 989 * T, 1978 * T, 1978 * T, 0}, gib(80), gb(3350), 0.8, gb(450), gb(64), 700,
     kSheet, "NVIDIA H100 data sheet (SXM5); aiconfigurator h100_sxm"},
    {"h200-sxm", "nvidia", kGpu, {67 * T, 989 * T, 1978 * T, 1978 * T, 0},
     mib(143771), gb(4800), 0.8, gb(450), gb(64), 700,
     kReported, "NVIDIA H200 data sheet (SXM); memory as nvidia-smi reports; aiconfigurator h200_sxm"},
    {"l4", "nvidia", kGpu, {30.3 * T, 121 * T, 242 * T, 242 * T, 0}, gib(24), gb(300), 0.8, gb(0), gb(32), 72,
     kSheet, "NVIDIA L4 data sheet; aiconfigurator l4"},
    {"l40s", "nvidia", kGpu, {91.6 * T, 362.05 * T, 733 * T, 733 * T, 0}, mib(46068), gb(864), 0.8, gb(0), gb(32), 350,
     kReported, "NVIDIA L40S data sheet; memory as nvidia-smi reports; aiconfigurator l40s"},
    {"mi300x", "amd", kGpu, {163.4 * T, 1307.4 * T, 2614.9 * T, 2614.9 * T, 0},
     gib(192), gb(5300), 0.8, gb(64), gb(64), 750,
     kSheet, "AMD Instinct MI300X data sheet; peer link: one xGMI link of seven"},
    {"mi325x", "amd", kGpu, {163.4 * T, 1307.4 * T, 2614.9 * T, 2614.9 * T, 0},
     gib(256), gb(6000), 0.8, gb(64), gb(64), 1000,
     kSheet, "AMD Instinct MI325X data sheet; peer link: one xGMI link of seven"},
    {"rtx-3090", "nvidia", kGpu, {35.6 * T, 71 * T, 0, 284 * T, 0}, gib(24), gb(936), 0.8, gb(0), gb(32), 350,
     kSheet, "NVIDIA GA102 white paper; bf16 with f32 accumulation"},
    {"rtx-4090", "nvidia", kGpu, {82.6 * T, 165.2 * T, 330.3 * T, 660.6 * T, 0},
     gib(24), gb(1008), 0.8, gb(0), gb(32), 450,
     kSheet, "NVIDIA Ada white paper; bf16 and f8 with f32 accumulation"},
    {"rtx-pro-6000-server", "nvidia", kGpu, {117 * T, 467.8 * T, 935.6 * T, 935.6 * T, 1871.2 * T},
     mib(97887), gb(1792), 0.8, gb(0), gb(64), 600,
     kReported, "NVIDIA RTX PRO 6000 Blackwell data sheet at 2430 MHz; aiconfigurator rtx_pro_6000_server"},
    {"xeon-8380", "intel", kCpu, {5.89 * T, 0, 0, 23.55 * T, 0}, gib(512), gb(204.8), 0.8, gb(0), gb(32), 270,
     kEstimate, "Intel Xeon Platinum 8380 product page: 40 cores, 2.3 GHz, 8 x DDR4-3200; AVX-512 VNNI"},
    {"xeon-8480", "intel", kCpu, {7.17 * T, 114.7 * T, 0, 229.4 * T, 0}, gib(512), gb(307.2), 0.8, gb(0), gb(64), 350,
     kEstimate, "Intel Xeon Platinum 8480+ product page: 56 cores, 2.0 GHz, 8 x DDR5-4800; AMX"},
});
// clang-format on

}  // namespace

const char* to_string(DeviceClass device_class) {
  switch (device_class) {
    case DeviceClass::cpu:
      return "cpu";
    case DeviceClass::gpu:
      return "gpu";
    case DeviceClass::asic:
      return "asic";
  }
  return "unknown";
}

const char* to_string(Confidence confidence) {
  switch (confidence) {
    case Confidence::data_sheet:
      return "data-sheet";
    case Confidence::reported:
      return "reported";
    case Confidence::estimate:
      return "estimate";
  }
  return "unknown";
}

std::span<const DeviceKind> device_kinds() { return kKinds; }

Result<DeviceKind> find_device_kind(std::string_view name) {
  std::string similar, all;
  for (const DeviceKind& kind : kKinds) {
    if (kind.name == name) return kind;
    const bool shares = name.size() >= 2 && kind.name.substr(0, 2) == name.substr(0, 2);
    if (shares) similar += (similar.empty() ? "" : ", ") + std::string(kind.name);
    all += (all.empty() ? "" : ", ") + std::string(kind.name);
  }
  return Error{ErrorCode::not_found,
               fmt::format("no device kind is called '{}': want one of {}", name.substr(0, 64),
                           similar.empty() ? all : similar)};
}

}  // namespace infos
