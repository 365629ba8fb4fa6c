// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/certificate.h"

#include <fmt/format.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <time.h>

#include <array>

#include "daemon/runtime/peer/openssl.h"

namespace infos {

namespace ssl {

std::string last_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason ? reason : "unknown reason";
}

namespace {

Bio bio_of(std::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

/// Never asks for a pass phrase.
int no_password(char*, int, int, void*) { return -1; }

}  // namespace

Result<Certificate> read_certificate(std::string_view pem, const char* what) {
  const Bio bio = bio_of(pem);
  Certificate out(PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr));
  if (!out)
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: not a PEM certificate ({})", what, last_reason())};
  return out;
}

Result<Key> read_private_key(std::string_view pem, const char* what) {
  const Bio bio = bio_of(pem);
  Key out(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  if (!out)
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: not a PEM private key ({})", what, last_reason())};
  return out;
}

}  // namespace ssl

namespace {

Error failed(const char* what) {
  return {ErrorCode::io, fmt::format("OpenSSL: {}: {}", what, ssl::last_reason())};
}

template <typename Write>
Result<std::string> to_pem(const char* what, Write write) {
  const ssl::Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || write(bio.get()) != 1) return failed(what);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<std::size_t>(size));
}
Result<std::string> key_pem(EVP_PKEY* key) {
  return to_pem("write a key", [&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}
Result<std::string> certificate_pem(X509* certificate) {
  return to_pem("write a certificate",
                [&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

bool is_p256(EVP_PKEY* key) {
  std::array<char, 64> group{};
  std::size_t size = 0;
  return key && EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
         EVP_PKEY_get_group_name(key, group.data(), group.size(), &size) == 1 &&
         std::string_view(group.data(), size) == SN_X9_62_prime256v1;
}

bool add_extension(X509* certificate, X509V3_CTX& context, int nid, const std::string& value) {
  const ssl::Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

/// Not through a configuration text: roles hold commas.
bool add_uri(X509* certificate, const std::string& uri) {
  const ssl::Names names(GENERAL_NAMES_new());
  GENERAL_NAME* name = GENERAL_NAME_new();
  ASN1_IA5STRING* text = ASN1_IA5STRING_new();
  if (!names || !name || !text || sk_GENERAL_NAME_push(names.get(), name) <= 0) return false;
  GENERAL_NAME_set0_value(name, GEN_URI, text);
  return ASN1_STRING_set(text, uri.data(), static_cast<int>(uri.size())) == 1 &&
         X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, 0) == 1;
}

/// Serial, subject, dates and key of a certificate to be signed.
Status fill(X509* certificate, const std::string& common_name, EVP_PKEY* key, Validity validity) {
  std::string serial = random_secret(16);
  serial[0] = static_cast<char>((serial[0] & 0x3f) | 0x40);  // positive, and no leading zero
  ASN1_INTEGER* number = X509_get_serialNumber(certificate);
  X509_NAME* subject = X509_get_subject_name(certificate);
  const auto* name = reinterpret_cast<const unsigned char*>(common_name.c_str());
  if (X509_set_version(certificate, X509_VERSION_3) != 1 ||
      ASN1_STRING_set(number, serial.data(), static_cast<int>(serial.size())) != 1 ||
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, name, -1, -1, 0) != 1 ||
      !ASN1_TIME_set(X509_getm_notBefore(certificate), validity.from) ||
      !ASN1_TIME_set(X509_getm_notAfter(certificate), validity.until) ||
      X509_set_pubkey(certificate, key) != 1)
    return failed("fill a certificate");
  return {};
}

Result<ssl::Key> new_key() {
  ssl::Key key(EVP_EC_gen("P-256"));
  if (!key) return failed("make a key");
  return key;
}

Result<UnixSeconds> seconds_of(const ASN1_TIME* time) {
  tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return failed("read a date");
  return static_cast<UnixSeconds>(::timegm(&parts));
}

Result<CertificateFacts> facts_of(X509* certificate) {
  const ssl::Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  if (!names || sk_GENERAL_NAME_num(names.get()) != 1)
    return Error{ErrorCode::corrupt, "certificate: want exactly one alternative name, the URI"};
  const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), 0);
  if (name->type != GEN_URI)
    return Error{ErrorCode::corrupt, "certificate: the alternative name is not a URI"};
  const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
  const std::string_view uri(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                             static_cast<std::size_t>(ASN1_STRING_length(text)));
  CertificateFacts facts;
  facts.identity = INFOS_TRY(parse_identity_uri(uri));
  facts.validity.from = INFOS_TRY(seconds_of(X509_get0_notBefore(certificate)));
  facts.validity.until = INFOS_TRY(seconds_of(X509_get0_notAfter(certificate)));
  return facts;
}

}  // namespace

UnixSeconds unix_now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

Validity node_validity(UnixSeconds now) {
  return {now - kClockDifference.ns / 1'000'000'000, now + kNodeCertificateLife.ns / 1'000'000'000};
}

Result<Credential> make_authority(const std::string& cluster, UnixSeconds now) {
  INFOS_TRY(check_name("cluster name", cluster));
  const ssl::Key key = INFOS_TRY(new_key());
  const ssl::Certificate certificate(X509_new());
  constexpr UnixSeconds kTenYears = 3653LL * 24 * 3600;
  const Validity validity{now - kClockDifference.ns / 1'000'000'000, now + kTenYears};
  INFOS_TRY(fill(certificate.get(), "infos authority of " + cluster, key.get(), validity));
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate.get(), certificate.get(), nullptr, nullptr, 0);
  if (X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get())) != 1 ||
      !add_extension(certificate.get(), context, NID_basic_constraints,
                     "critical,CA:TRUE,pathlen:0") ||
      !add_extension(certificate.get(), context, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add_extension(certificate.get(), context, NID_subject_key_identifier, "hash") ||
      X509_sign(certificate.get(), key.get(), EVP_sha256()) <= 0)
    return failed("sign the authority's certificate");
  Credential out;
  out.key = INFOS_TRY(key_pem(key.get()));
  out.certificate = INFOS_TRY(certificate_pem(certificate.get()));
  return out;
}

Result<std::string> make_key() {
  const ssl::Key key = INFOS_TRY(new_key());
  return key_pem(key.get());
}

Result<std::string> make_request(const std::string& key) {
  const ssl::Key pair = INFOS_TRY(ssl::read_private_key(key, "key"));
  const ssl::Request request(X509_REQ_new());
  if (!request || X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), pair.get()) != 1 ||
      X509_REQ_sign(request.get(), pair.get(), EVP_sha256()) <= 0)
    return failed("make a certificate request");
  return to_pem("write a certificate request",
                [&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request.get()); });
}

Result<std::string> sign_request(const Credential& authority, const std::string& request,
                                 const NodeIdentity& identity, Validity validity) {
  INFOS_TRY(parse_identity_uri(to_uri(identity)));
  const ssl::Certificate issuer =
      INFOS_TRY(ssl::read_certificate(authority.certificate, "authority"));
  const ssl::Key issuer_key = INFOS_TRY(ssl::read_private_key(authority.key, "authority"));
  const ssl::Bio bio(BIO_new_mem_buf(request.data(), static_cast<int>(request.size())));
  const ssl::Request asked(PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
  EVP_PKEY* key = asked ? X509_REQ_get0_pubkey(asked.get()) : nullptr;
  if (!key || !is_p256(key) || X509_REQ_verify(asked.get(), key) != 1) {
    ssl::last_reason();
    return Error{ErrorCode::corrupt,
                 "certificate request: want PEM, an EC P-256 key and a signature made with it"};
  }
  const ssl::Certificate certificate(X509_new());
  INFOS_TRY(fill(certificate.get(), identity.name, key, validity));
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer.get(), certificate.get(), nullptr, nullptr, 0);
  if (X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get())) != 1 ||
      !add_extension(certificate.get(), context, NID_basic_constraints, "critical,CA:FALSE") ||
      !add_extension(certificate.get(), context, NID_key_usage, "critical,digitalSignature") ||
      !add_extension(certificate.get(), context, NID_ext_key_usage, "serverAuth,clientAuth") ||
      !add_extension(certificate.get(), context, NID_authority_key_identifier, "keyid:always") ||
      !add_uri(certificate.get(), to_uri(identity)) ||
      X509_sign(certificate.get(), issuer_key.get(), EVP_sha256()) <= 0)
    return failed("sign a node certificate");
  return certificate_pem(certificate.get());
}

Result<CertificateFacts> read_node_certificate(std::string_view certificate) {
  const ssl::Certificate read = INFOS_TRY(ssl::read_certificate(certificate, "node certificate"));
  return facts_of(read.get());
}

Result<CertificateFacts> verify_node_certificate(std::string_view authority,
                                                 std::string_view certificate, UnixSeconds now) {
  const ssl::Certificate root = INFOS_TRY(ssl::read_certificate(authority, "authority"));
  const ssl::Certificate leaf = INFOS_TRY(ssl::read_certificate(certificate, "node certificate"));
  const ssl::Store store(X509_STORE_new());
  const ssl::StoreContext context(X509_STORE_CTX_new());
  if (!store || !context || X509_STORE_add_cert(store.get(), root.get()) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), leaf.get(), nullptr) != 1)
    return failed("verify a certificate");
  X509_STORE_CTX_set_time(context.get(), 0, now);
  for (const int purpose : {X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER})
    if (X509_check_purpose(leaf.get(), purpose, 0) != 1)
      return Error{ErrorCode::corrupt, "node certificate: not for both ends of a link"};
  if (X509_verify_cert(context.get()) != 1)
    return Error{ErrorCode::corrupt,
                 fmt::format("node certificate: {}", X509_verify_cert_error_string(
                                                         X509_STORE_CTX_get_error(context.get())))};
  return facts_of(leaf.get());
}

Status check_pair(const Credential& credential) {
  const ssl::Certificate certificate =
      INFOS_TRY(ssl::read_certificate(credential.certificate, "certificate"));
  const ssl::Key key = INFOS_TRY(ssl::read_private_key(credential.key, "key"));
  if (X509_check_private_key(certificate.get(), key.get()) == 1) return {};
  ssl::last_reason();
  return Error{ErrorCode::corrupt, "certificate: it is of another key"};
}

Result<std::string> key_hash(std::string_view certificate) {
  const ssl::Certificate read = INFOS_TRY(ssl::read_certificate(certificate, "certificate"));
  unsigned char* bytes = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(read.get()), &bytes);
  if (size <= 0) return failed("write a public key");
  const std::string key(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  OPENSSL_free(bytes);
  return "sha256:" + to_hex(sha256(key));
}

Result<std::string> sign_message(const std::string& key, std::string_view message) {
  const ssl::Key pair = INFOS_TRY(ssl::read_private_key(key, "key"));
  const ssl::DigestContext context(EVP_MD_CTX_new());
  const auto* data = reinterpret_cast<const unsigned char*>(message.data());
  std::size_t size = 0;
  if (!context ||
      EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, pair.get()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &size, data, message.size()) != 1)
    return failed("sign");
  std::string out(size, '\0');
  if (EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size, data,
                     message.size()) != 1)
    return failed("sign");
  out.resize(size);
  return out;
}

Status check_message(std::string_view certificate, std::string_view message,
                     std::string_view signature) {
  const ssl::Certificate read = INFOS_TRY(ssl::read_certificate(certificate, "certificate"));
  const ssl::DigestContext context(EVP_MD_CTX_new());
  if (!context || EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr,
                                       X509_get0_pubkey(read.get())) != 1)
    return failed("check a signature");
  if (EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                       signature.size(), reinterpret_cast<const unsigned char*>(message.data()),
                       message.size()) == 1)
    return {};
  ssl::last_reason();
  return Error{ErrorCode::corrupt, "signature: not made with the certificate's key"};
}

std::string sha256(std::string_view bytes) {
  std::string out(32, '\0');
  const int ok =
      EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), nullptr,
                 EVP_sha256(), nullptr);
  INFOS_CHECK(ok == 1);
  return out;
}

std::string random_secret(std::size_t bytes) {
  std::string out(bytes, '\0');
  const int ok = RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(bytes));
  INFOS_CHECK(ok == 1);
  return out;
}

std::string to_hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

bool equal_secrets(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace infos
