// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/certificate.hpp"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "kernel/base/ids.hpp"

namespace souk::trust {
namespace {

constexpr size_t chain_max = 8;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;

Nanos time_of(const ASN1_TIME* time) {
    tm parts{};
    if (!time || ASN1_TIME_to_tm(time, &parts) != 1) return {};
    return Nanos::from_s(::timegm(&parts));
}

int64_t seconds_of(Nanos time) { return time.ns / 1'000'000'000; }

struct Plan {
    std::string common_name;
    std::vector<std::pair<int, std::string>> extensions;
    Nanos begins, ends;
};

bool fill(X509* c, const Plan& plan, EVP_PKEY* key) {
    X509_NAME* const subject = X509_get_subject_name(c);
    const auto* const name = reinterpret_cast<const unsigned char*>(plan.common_name.data());
    return X509_set_version(c, X509_VERSION_3) == 1 &&
           ASN1_TIME_set(X509_getm_notBefore(c), seconds_of(plan.begins)) &&
           ASN1_TIME_set(X509_getm_notAfter(c), seconds_of(plan.ends)) &&
           X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8, name,
                                      static_cast<int>(plan.common_name.size()), -1, 0) == 1 &&
           X509_set_pubkey(c, key) == 1;
}

bool set_serial(X509* c) {
    auto bytes = random_bytes(16);
    if (!bytes) return false;
    (*bytes)[0] = static_cast<char>((static_cast<unsigned char>((*bytes)[0]) & 0x7f) | 0x40);
    const std::unique_ptr<BIGNUM, Free<BN_free>> number(
        BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes->data()), 16, nullptr));
    return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(c));
}

// `issuer` null: by itself.
Result<Certificate> make(const Plan& plan, const Key& key, const Key& signing,
                         const Certificate* issuer) {
    std::shared_ptr<X509> c(X509_new(), X509_free);
    if (!c || !fill(c.get(), plan, key.raw()) || !set_serial(c.get()))
        return fail_openssl("make a certificate");
    X509* const above = issuer ? issuer->raw() : c.get();
    X509_set_issuer_name(c.get(), X509_get_subject_name(above));
    X509V3_CTX context;
    X509V3_set_ctx(&context, above, c.get(), nullptr, nullptr, 0);
    for (const auto& [nid, value] : plan.extensions) {
        const Extension e(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
        if (!e || X509_add_ext(c.get(), e.get(), -1) != 1)
            return fail_openssl("make a certificate with " + value);
    }
    if (X509_sign(c.get(), signing.raw(), EVP_sha256()) == 0)
        return fail_openssl("sign a certificate");
    return Certificate::of(std::move(c));
}

Plan authority_plan(std::string_view name, const char* kind, int below, Nanos now, Nanos life) {
    Plan plan;
    plan.common_name = std::string(name) + " " + kind;
    plan.begins = now - clock_slack;
    plan.ends = now + life;
    plan.extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:" + std::to_string(below)},
                       {NID_key_usage, "critical,keyCertSign"},
                       {NID_subject_key_identifier, "hash"}};
    return plan;
}

}  // namespace

// ---- certificates

Result<Certificate> Certificate::of(std::shared_ptr<X509> certificate) {
    if (!certificate) return fail_openssl("read a certificate");
    return Certificate(std::move(certificate));
}

Result<Certificate> Certificate::from_der(std::string_view bytes) {
    const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
    return of({d2i_X509(nullptr, &at, static_cast<long>(bytes.size())), X509_free});
}

std::string Certificate::der() const {
    unsigned char* bytes = nullptr;
    const int length = i2d_X509(raw(), &bytes);
    if (length < 0) return {};
    std::string out(reinterpret_cast<char*>(bytes), static_cast<size_t>(length));
    OPENSSL_free(bytes);
    return out;
}

std::string Certificate::pem() const {
    const BioPtr memory(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(memory.get(), raw());
    return trust::text_of(memory.get());
}

std::string Certificate::digest() const { return sha256(der()); }

Result<Subject> Certificate::subject() const {
    const std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>> names(
        static_cast<GENERAL_NAMES*>(
            X509_get_ext_d2i(raw(), NID_subject_alt_name, nullptr, nullptr)));
    std::vector<std::string> uris;
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
        const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
        if (name->type != GEN_URI) return fail("a certificate with a name that is not souk's");
        const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
        uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                          static_cast<size_t>(ASN1_STRING_length(uri)));
    }
    return subject_of(uris);
}

Result<Key> Certificate::key() const { return Key::of({X509_get_pubkey(raw()), EVP_PKEY_free}); }

Nanos Certificate::begins() const { return time_of(X509_get0_notBefore(raw())); }
Nanos Certificate::ends() const { return time_of(X509_get0_notAfter(raw())); }
Nanos Certificate::renew_at() const { return Nanos{begins().ns + (ends() - begins()).ns / 2}; }

Result<std::vector<Certificate>> parse_chain(std::string_view pem) {
    const auto reader = reader_of(pem);
    std::vector<Certificate> chain;
    while (X509* next = PEM_read_bio_X509(reader.get(), nullptr, nullptr, nullptr)) {
        TRY_ASSIGN(Certificate c, Certificate::of({next, X509_free}));
        chain.push_back(std::move(c));
        if (chain.size() > chain_max) return fail("more certificates than a chain may have");
    }
    if (chain.empty()) return fail_openssl("no certificate");
    // The end of the text is an error of the last read.
    (void)fail_openssl("");
    return chain;
}

std::string pem_of(const std::vector<Certificate>& chain) {
    std::string pem;
    for (const Certificate& c : chain) pem += c.pem();
    return pem;
}

// ---- issuing

Result<Authority> make_root(std::string_view name, Nanos now) {
    TRY_ASSIGN(Key key, Key::make());
    TRY_ASSIGN(Certificate c,
               make(authority_plan(name, "root CA", 1, now, root_life), key, key, nullptr));
    return Authority{std::move(key), std::move(c)};
}

Result<Authority> make_issuing(const Authority& root, std::string_view name, Nanos now) {
    TRY_ASSIGN(Key key, Key::make());
    Plan plan = authority_plan(name, "issuing CA", 0, now, issuing_life);
    plan.extensions.emplace_back(NID_authority_key_identifier, "keyid:always");
    TRY_ASSIGN(Certificate c, make(plan, key, root.key, &root.certificate));
    return Authority{std::move(key), std::move(c)};
}

Result<Certificate> issue(const Authority& issuing, const Key& key, const Subject& subject,
                          Nanos now, Nanos life) {
    TRY(check(subject));
    Plan plan;
    plan.common_name = subject.name;
    plan.begins = now - clock_slack;
    plan.ends = now + life;
    std::string uris;
    for (const std::string& uri : uris_of(subject)) uris += (uris.empty() ? "URI:" : ",URI:") + uri;
    plan.extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                       {NID_key_usage, "critical,digitalSignature"},
                       {NID_ext_key_usage, "serverAuth,clientAuth"},
                       {NID_subject_alt_name, uris},
                       {NID_subject_key_identifier, "hash"},
                       {NID_authority_key_identifier, "keyid:always"}};
    return make(plan, key, issuing.key, &issuing.certificate);
}

std::string Certificate::site() const {
    X509_NAME* const subject = X509_get_subject_name(certificate_.get());
    const int where = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (where < 0) return {};
    const ASN1_STRING* name = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, where));
    const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name)),
                           static_cast<size_t>(ASN1_STRING_length(name)));
    return text.substr(0, std::min(text.rfind(" root CA"), text.rfind(" issuing CA")));
}

// ---- requests

Result<std::string> make_request(const Key& key, std::string_view name) {
    const RequestPtr request(X509_REQ_new());
    X509_NAME* const subject = request ? X509_REQ_get_subject_name(request.get()) : nullptr;
    if (!subject ||
        X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(name.data()),
                                   static_cast<int>(name.size()), -1, 0) != 1 ||
        X509_REQ_set_pubkey(request.get(), key.raw()) != 1 ||
        X509_REQ_sign(request.get(), key.raw(), EVP_sha256()) == 0)
        return fail_openssl("make a request for a certificate");
    unsigned char* der = nullptr;
    const int length = i2d_X509_REQ(request.get(), &der);
    if (length < 0) return fail_openssl("make a request for a certificate");
    std::string bytes(reinterpret_cast<char*>(der), static_cast<size_t>(length));
    OPENSSL_free(der);
    return bytes;
}

Result<Request> parse_request(std::string_view bytes) {
    if (bytes.size() > request_bytes_max) return fail("a request of too many bytes");
    const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
    const auto* const end = at + bytes.size();
    const RequestPtr request(d2i_X509_REQ(nullptr, &at, static_cast<long>(bytes.size())));
    if (!request || at != end) return fail_openssl("these bytes are no request for a certificate");
    TRY_ASSIGN(Key key, Key::of({X509_REQ_get_pubkey(request.get()), EVP_PKEY_free}));
    if (X509_REQ_verify(request.get(), key.raw()) != 1)
        return fail_openssl("the asker does not have the key of its request");
    X509_NAME* const subject = X509_REQ_get_subject_name(request.get());
    const int where = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (where < 0 || X509_NAME_entry_count(subject) != 1)
        return fail("a request that does not ask for one name");
    const ASN1_STRING* name = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, where));
    std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name)),
                     static_cast<size_t>(ASN1_STRING_length(name)));
    if (!valid_node_name(text)) return fail("a request for a name that nobody can have");
    return Request{std::move(text), std::move(key)};
}

}  // namespace souk::trust
