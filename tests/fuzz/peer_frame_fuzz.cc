// SPDX-License-Identifier: Apache-2.0
// Hostile bytes on a peer link and in what it stores: frames cut in pieces, hello, join and the
// other messages, identities in certificates, requests to be signed, addresses, cluster.json.
// Either an error or a value that survives writing and reading again; never memory by a length that
// was only announced. The first byte picks the parser.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "daemon/runtime/peer/address.h"
#include "daemon/runtime/peer/certificate.h"
#include "daemon/runtime/peer/identity_dir.h"
#include "daemon/runtime/peer/join_tokens.h"
#include "daemon/runtime/peer/peer_messages.h"

extern "C" __attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(
    void (*allocated)(const volatile void*, std::size_t), void (*freed)(const volatile void*));

namespace {

/// Largest single allocation that is allowed now; looked at where a sanitizer counts them.
std::size_t allocation_max = SIZE_MAX;

void allocated(const volatile void*, std::size_t size) {
  if (size > allocation_max) std::abort();
}
void freed(const volatile void*) {}
const bool watched = __sanitizer_install_malloc_and_free_hooks &&
                     __sanitizer_install_malloc_and_free_hooks(allocated, freed) != 0;

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename T>
void round_trip(std::string_view bytes) {
  const infos::Result<T> first = infos::decode_peer<T>(bytes);
  if (!first.ok()) return require(!first.error().message.empty());
  const std::string once = encode(*first);
  const infos::Result<T> second = infos::decode_peer<T>(once);
  require(second.ok() && encode(*second) == once);
}

void message(std::uint16_t kind, std::string_view payload) {
  using infos::PeerFrameKind;
  switch (static_cast<PeerFrameKind>(kind)) {
    case PeerFrameKind::hello:
      return round_trip<infos::Hello>(payload);
    case PeerFrameKind::welcome:
      return round_trip<infos::Welcome>(payload);
    case PeerFrameKind::refusal:
      return round_trip<infos::Refusal>(payload);
    case PeerFrameKind::ping:
    case PeerFrameKind::pong:
      return round_trip<infos::Ping>(payload);
    case PeerFrameKind::join_request:
      return round_trip<infos::JoinRequest>(payload);
    case PeerFrameKind::join_answer:
      return round_trip<infos::JoinAnswer>(payload);
    case PeerFrameKind::renew_request:
      return round_trip<infos::RenewRequest>(payload);
    case PeerFrameKind::renew_answer:
      return round_trip<infos::RenewAnswer>(payload);
    case PeerFrameKind::renewed:
      return round_trip<infos::Renewed>(payload);
  }
}

/// `piece`: bytes that come at once. The frames must be the same however they are cut.
std::string frames(std::string_view bytes, std::size_t piece) {
  infos::PeerFrameReader reader;
  std::string seen;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    reader.append(bytes.substr(at, piece));
    while (true) {
      const auto frame = reader.next();
      if (!frame.ok()) return seen + "!";
      if (!*frame) break;
      require((*frame)->payload.size() <= infos::kGreetingBytesMax);
      infos::append_peer_frame(seen, (*frame)->kind, (*frame)->payload);
      message((*frame)->kind, (*frame)->payload);
    }
    require(reader.held() <= bytes.size());
  }
  return seen;
}

void request(std::string_view bytes) {
  static const infos::Credential authority =
      infos::make_authority("lab", infos::unix_now()).value();
  const infos::NodeIdentity who{"lab", "n2", infos::NodeId{2}, {infos::Role::worker}};
  const auto made = infos::sign_request(authority, std::string(bytes), who,
                                        infos::node_validity(infos::unix_now()));
  if (made.ok()) require(infos::read_node_certificate(*made)->identity == who);
}

void texts(std::string_view text) {
  const auto identity = infos::parse_identity_uri(text);
  if (identity.ok()) require(to_uri(*identity) == text);
  const auto roles = infos::parse_roles(text);
  if (roles.ok()) require(*infos::parse_roles(to_string(*roles)) == *roles);
  const auto address = infos::split_address(text);
  if (address.ok()) require(infos::split_address(join_address(*address)).ok());
  const auto cluster = infos::parse_cluster_file(text);
  if (cluster.ok()) require(*infos::parse_cluster_file(to_json(*cluster)) == *cluster);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  static_cast<void>(watched);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  allocation_max = 4 * size + (64u << 10);
  switch (data[0] % 5) {
    case 0: {
      const std::size_t piece = data[1] + std::size_t{1};
      require(frames(bytes, bytes.size() + 1) == frames(bytes, piece));
      break;
    }
    case 1: {
      const auto record = infos::decode_token_record(bytes);
      if (record.ok()) require(infos::decode_token_record(encode(*record)).value() == *record);
      break;
    }
    case 2:
      texts(bytes);
      break;
    case 3:
      static_cast<void>(infos::read_node_certificate(bytes));
      break;
    default:
      request(bytes);
      break;
  }
  allocation_max = SIZE_MAX;
  return 0;
}
