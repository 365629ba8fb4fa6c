// SPDX-License-Identifier: Apache-2.0
// TLS settings of peer links: version 1.3 only, no resumption, certificates checked against the
// cluster's authority at a clock that is given. Decides whom a handshake lets through; the identity
// is looked at afterwards. Internal to the peer links; one thread.
#pragma once

#include <boost/asio/ssl/context.hpp>

#include <functional>
#include <memory>
#include <string>

#include "daemon/runtime/peer/certificate.h"

namespace infos {

/// Shared by the connections that were begun with it.
struct TlsContext {
  boost::asio::ssl::context context{boost::asio::ssl::context::tls};
  std::function<UnixSeconds()> wall_clock;
  std::string authority;  ///< PEM; what certificates are checked against
  std::string pin;        ///< instead: the key hash of an authority that the other end must show
};

/// Shows `node` and the authority, and asks for a certificate; a side that accepts lets those
/// without one through, for they may join. Errors: corrupt.
Result<std::shared_ptr<TlsContext>> member_context(const std::string& authority,
                                                   const Credential& node,
                                                   std::function<UnixSeconds()> wall_clock);
/// Shows nothing; the server must show a chain up to an authority with the key hash `pin`.
std::shared_ptr<TlsContext> joining_context(const std::string& pin,
                                            std::function<UnixSeconds()> wall_clock);

}  // namespace infos
