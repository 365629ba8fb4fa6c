// SPDX-License-Identifier: Apache-2.0
// Waiting for another thread of this process: a spin that gives up after a while, so that the
// caller can sleep. Never sleeps itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

namespace infos {

/// True as soon as `ready()` is; false when `us` microseconds passed before. Reads the clock
/// rarely.
template <typename Ready>
bool spin_until(std::uint32_t us, Ready&& ready) {
  constexpr int kTriesPerLook = 64;
  if (ready()) return true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  do {
    for (int i = 0; i < kTriesPerLook; ++i) {
      if (ready()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#else
      std::this_thread::yield();
#endif
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace infos
