// SPDX-License-Identifier: Apache-2.0
// Keys and certificates of a cluster, as PEM text: the cluster's authority (EC P-256), requests,
// node certificates with the identity in their URI, proofs that a key is held. Decides what a node
// certificate must look like; never touches a file or a socket. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/runtime/peer/identity.h"
#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

/// Seconds since 1970, UTC: the clock of certificates and tokens.
using UnixSeconds = std::int64_t;
UnixSeconds unix_now();

/// A private key and the certificate for its public half, both PEM.
struct Credential {
  std::string key;
  std::string certificate;
};

/// From when until when something is valid.
struct Validity {
  UnixSeconds from = 0;
  UnixSeconds until = 0;
};
/// A node certificate holds for a day. It begins a little early, for clocks that differ.
constexpr Duration kNodeCertificateLife = seconds(24 * 3600);
constexpr Duration kClockDifference = seconds(600);
Validity node_validity(UnixSeconds now);

/// A new cluster's authority: a key and a certificate signed with it, valid for ten years.
Result<Credential> make_authority(const std::string& cluster, UnixSeconds now);

/// A new EC P-256 key, PEM.
Result<std::string> make_key();
/// A certificate request for the key: proves that its sender holds it. PEM.
Result<std::string> make_request(const std::string& key);
/// Errors: corrupt: not a request, a wrong proof, not an EC P-256 key.
Result<std::string> sign_request(const Credential& authority, const std::string& request,
                                 const NodeIdentity& identity, Validity validity);

/// What a node certificate says.
struct CertificateFacts {
  NodeIdentity identity;
  Validity validity;
};
/// Errors: corrupt (no node certificate of infos).
Result<CertificateFacts> read_node_certificate(std::string_view certificate);
/// Whether the authority's certificate vouches for this node certificate at `now`, for both ends of
/// a link. Errors: corrupt, with the reason.
Result<CertificateFacts> verify_node_certificate(std::string_view authority,
                                                 std::string_view certificate, UnixSeconds now);
/// Errors: corrupt: the certificate is of another key.
Status check_pair(const Credential& credential);

/// "sha256:" and 64 hex digits: of the authority's public key, for pinning.
Result<std::string> key_hash(std::string_view certificate);

/// A signature with the key over `message`, and its check against a certificate.
Result<std::string> sign_message(const std::string& key, std::string_view message);
Status check_message(std::string_view certificate, std::string_view message,
                     std::string_view signature);

/// 32 bytes.
std::string sha256(std::string_view bytes);
/// Unpredictable bytes. Aborts when the system has none.
std::string random_secret(std::size_t bytes);
std::string to_hex(std::string_view bytes);
/// In time that depends on the length alone.
bool equal_secrets(std::string_view a, std::string_view b);

}  // namespace infos
