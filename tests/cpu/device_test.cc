// SPDX-License-Identifier: Apache-2.0
// Goal: a device opens with the cores it is given or says why not. Method: direct calls.
#include "devices/cpu/device.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace infos::cpu {
namespace {

TEST(Device, CoreThatTheProcessMayNotUse_IsRefusedByNumber) {
  DeviceOptions options;
  options.threads = 1;
  for (const std::uint32_t core : {1000U, 5000U, UINT32_MAX}) {
    options.cores = {core};
    const auto device = Device::open(options);
    ASSERT_FALSE(device.ok()) << core;
    EXPECT_NE(device.error().message.find("core " + std::to_string(core)), std::string::npos);
  }
}

TEST(Device, CoreThatTheProcessMayUse_Opens) {
  DeviceOptions options;
  options.threads = 1;
  options.cores = {static_cast<std::uint32_t>(sched_getcpu())};
  EXPECT_TRUE(Device::open(options).ok());
}

}  // namespace
}  // namespace infos::cpu
