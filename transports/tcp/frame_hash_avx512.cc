// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/frame_hash_build.h"

namespace infos {

extern const HashBuild kHash_avx512 = kThisBuild;

}  // namespace infos
