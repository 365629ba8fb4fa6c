// SPDX-License-Identifier: Apache-2.0
// Exit statuses of `infosd worker`, as in sysexits.h. Every other status, and every signal, may be
// tried again.
#pragma once

namespace infos {

constexpr int kExitTransient = 75;
constexpr int kExitPermanent =
    78;  ///< trying again with the same spec is pointless; the status page says why

}  // namespace infos
