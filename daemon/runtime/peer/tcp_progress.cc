// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/tcp_progress.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace infos {

std::uint64_t acknowledged_bytes(int socket) {
  ::tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_acked;
}

}  // namespace infos
