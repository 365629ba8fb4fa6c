// SPDX-License-Identifier: Apache-2.0
#include "transports/transport.h"

namespace infos {

const char* to_string(TransportKind kind) {
  switch (kind) {
    case TransportKind::shm:
      return "shm";
    case TransportKind::tcp:
      return "tcp";
    case TransportKind::ucx:
      return "ucx";
    case TransportKind::verbs:
      return "verbs";
  }
  return "unknown";
}

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::cancelled:
      return "cancelled";
    case Verdict::peer_lost:
      return "peer lost";
    case Verdict::refused:
      return "refused";
    case Verdict::failed:
      return "failed";
  }
  return "unknown";
}

const char* to_string(PeerState state) {
  switch (state) {
    case PeerState::connecting:
      return "connecting";
    case PeerState::open:
      return "open";
    case PeerState::lost:
      return "lost";
    case PeerState::closed:
      return "closed";
  }
  return "unknown";
}

}  // namespace infos
