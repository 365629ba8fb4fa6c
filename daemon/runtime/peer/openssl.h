// SPDX-License-Identifier: Apache-2.0
// Owners of OpenSSL objects, for the few .cc files that use it. Any thread, one at a time.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "topology/base/result.h"

namespace infos::ssl {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
inline void free_stack(STACK_OF(X509) * stack) { sk_X509_free(stack); }
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Freer<EVP_MD_CTX_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Request = std::unique_ptr<X509_REQ, Freer<X509_REQ_free>>;
using Store = std::unique_ptr<X509_STORE, Freer<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;
using Stack = std::unique_ptr<STACK_OF(X509), Freer<free_stack>>;

/// The oldest reason in this thread's queue, which is emptied.
std::string last_reason();

/// Errors: corrupt, naming `what`.
Result<Certificate> read_certificate(std::string_view pem, const char* what);
Result<Key> read_private_key(std::string_view pem, const char* what);

}  // namespace infos::ssl
