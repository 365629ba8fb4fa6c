// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/tls_context.h"

#include <openssl/ssl.h>

#include <utility>

#include "daemon/runtime/peer/openssl.h"

namespace infos {
namespace {

/// The certificate of the chain that is a self-signed authority with this key hash.
X509* find_pinned(STACK_OF(X509) * chain, const std::string& pin) {
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    X509* candidate = sk_X509_value(chain, i);
    unsigned char* bytes = nullptr;
    const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(candidate), &bytes);
    if (size <= 0) continue;
    const std::string key(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
    OPENSSL_free(bytes);
    if (X509_check_ca(candidate) == 1 && "sha256:" + to_hex(sha256(key)) == pin) return candidate;
  }
  return nullptr;
}

/// In place of OpenSSL's own check, for the clock and for the pin.
int verify(X509_STORE_CTX* session, void* argument) {
  const auto* settings = static_cast<const TlsContext*>(argument);
  X509_STORE_CTX_set_time(session, 0, settings->wall_clock());
  if (settings->pin.empty()) return X509_verify_cert(session);
  X509* root = find_pinned(X509_STORE_CTX_get0_untrusted(session), settings->pin);
  if (!root) {
    X509_STORE_CTX_set_error(session, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN);
    return 0;
  }
  const ssl::Stack trusted(sk_X509_new_null());
  if (!trusted || sk_X509_push(trusted.get(), root) <= 0) return 0;
  X509_STORE_CTX_set0_trusted_stack(session, trusted.get());
  return X509_verify_cert(session);
}

std::shared_ptr<TlsContext> base_context(std::function<UnixSeconds()> wall_clock) {
  auto out = std::make_shared<TlsContext>();
  out->wall_clock = std::move(wall_clock);
  SSL_CTX* context = out->context.native_handle();
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION);
  // A resumed session would skip the look at the certificate.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(context, verify, out.get());
  return out;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> member_context(const std::string& authority,
                                                   const Credential& node,
                                                   std::function<UnixSeconds()> wall_clock) {
  auto out = base_context(std::move(wall_clock));
  out->authority = authority;
  const ssl::Certificate root = INFOS_TRY(ssl::read_certificate(authority, "authority"));
  const ssl::Certificate leaf = INFOS_TRY(ssl::read_certificate(node.certificate, "certificate"));
  const ssl::Key key = INFOS_TRY(ssl::read_private_key(node.key, "key"));
  SSL_CTX* context = out->context.native_handle();
  // The authority goes along, so that a node that joins can hold it against its pin.
  if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), root.get()) != 1 ||
      SSL_CTX_use_certificate(context, leaf.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1 ||
      SSL_CTX_add1_chain_cert(context, root.get()) != 1)
    return Error{ErrorCode::corrupt, "TLS settings: " + ssl::last_reason()};
  return out;
}

std::shared_ptr<TlsContext> joining_context(const std::string& pin,
                                            std::function<UnixSeconds()> wall_clock) {
  auto out = base_context(std::move(wall_clock));
  out->pin = pin;
  return out;
}

}  // namespace infos
