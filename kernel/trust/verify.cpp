// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/verify.hpp"

#include <openssl/x509_vfy.h>

#include <algorithm>

#include "kernel/base/cause.hpp"
#include "kernel/base/units.hpp"

namespace souk::trust {
namespace {

using Store = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using Context = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;
using Stack =
    std::unique_ptr<STACK_OF(X509), decltype([](STACK_OF(X509) * s) { sk_X509_free(s); })>;

// Names the certificate by the subject that it claims, for a line to people.
std::string claimed(const Certificate& c) {
    const auto subject = c.subject();
    return subject ? "the certificate of " + subject->name : std::string("the certificate");
}

// Writes a span in minutes, or in tenths of hours or days.
std::string away(Nanos span) {
    constexpr int64_t minute = 60'000'000'000, hour = 60 * minute;
    const int64_t step = span.ns < 2 * hour    ? minute
                         : span.ns < 48 * hour ? hour / 10
                                               : 24 * hour / 10;
    return span_text(Nanos{std::max<int64_t>(1, (span.ns + step / 2) / step) * step});
}

tl::unexpected<Error> refuse(int code, std::string why) {
    return tl::unexpected(Error{code, std::move(why)});
}

tl::unexpected<Error> refusal(int code, const Certificate& bad, const Certificate& leaf,
                              const Certificate& root, Nanos now) {
    const std::string clock = "this machine's clock says " + date_text(now);
    const std::string who = X509_cmp(bad.raw(), leaf.raw()) == 0
                                ? claimed(leaf)
                                : "the authority's certificate behind " + claimed(leaf);
    switch (code) {
        case X509_V_ERR_CERT_HAS_EXPIRED:
            return refuse(code, who + " ended " + date_text(bad.ends()) + ", " +
                                    away(now - bad.ends()) + " ago: " + clock +
                                    "; renew it, or put the clock right");
        case X509_V_ERR_CERT_NOT_YET_VALID:
            return refuse(code, who + " begins " + date_text(bad.begins()) + ", in " +
                                    away(bad.begins() - now) + ": " + clock +
                                    "; one of the two clocks is wrong");
        case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
        case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        case X509_V_ERR_CERT_SIGNATURE_FAILURE:
            return refuse(code, who + " is not of this market (whose root is " +
                                    root.digest().substr(0, 16) + "...)");
        default: return refuse(code, who + ": " + X509_verify_cert_error_string(code));
    }
}

// OpenSSL takes of the chain what it needs. What else is in it would be believed by who looks for
// its issuer there. (Its root may stand at the end.)
bool is_whole(const X509_STORE_CTX* context, const std::vector<Certificate>& chain) {
    STACK_OF(X509)* const built = X509_STORE_CTX_get0_chain(context);
    const auto count = static_cast<size_t>(sk_X509_num(built));
    if (chain.size() != count && chain.size() + 1 != count) return false;
    for (size_t i = 0; i < chain.size(); ++i)
        if (X509_cmp(sk_X509_value(built, static_cast<int>(i)), chain[i].raw()) != 0) return false;
    return true;
}

}  // namespace

Result<Peer> verify(const std::vector<Certificate>& chain, const Certificate& root,
                    const Revocations& revoked, Nanos now) {
    if (chain.empty()) return refuse(X509_V_ERR_CERT_REJECTED, "the peer has no certificate");
    const Certificate& leaf = chain.front();
    const Store store(X509_STORE_new());
    const Context context(X509_STORE_CTX_new());
    const Stack above(sk_X509_new_null());
    if (!store || !context || !above) return fail_openssl("verify a certificate");
    for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(above.get(), chain[i].raw());
    if (X509_STORE_add_cert(store.get(), root.raw()) != 1 ||
        X509_STORE_CTX_init(context.get(), store.get(), leaf.raw(), above.get()) != 1)
        return fail_openssl("verify a certificate");
    X509_VERIFY_PARAM* const how = X509_STORE_CTX_get0_param(context.get());
    X509_VERIFY_PARAM_set_time(how, now.ns / 1'000'000'000);
    X509_VERIFY_PARAM_set_depth(how, 2);  // how many there may be, the authorities say
    if (X509_verify_cert(context.get()) != 1) {
        X509* const bad = X509_STORE_CTX_get_current_cert(context.get());
        X509_up_ref(bad ? bad : leaf.raw());
        TRY_ASSIGN(const Certificate where, Certificate::of({bad ? bad : leaf.raw(), X509_free}));
        const int code = X509_STORE_CTX_get_error(context.get());
        return refusal(code, where, leaf, root, now);
    }
    if (!is_whole(context.get(), chain))
        return refuse(X509_V_ERR_CERT_REJECTED,
                      "the certificates of the peer are no chain: one of them has signed nothing");
    auto subject = leaf.subject();
    if (!subject) return refuse(X509_V_ERR_CERT_REJECTED, subject.error().message);
    auto key = leaf.key();
    if (!key) return refuse(X509_V_ERR_CERT_REJECTED, key.error().message);
    Peer peer{std::move(*subject), key->digest(), leaf.ends()};
    if (revoked.has(peer.key))
        return refuse(X509_V_ERR_CERT_REVOKED,
                      "the certificate of " + peer.subject.name +
                          " was revoked: it joins anew with a token (souk token create)");
    return peer;
}

Result<Certificate> root_among(const std::vector<Certificate>& chain, std::string_view digest) {
    for (const Certificate& c : chain)
        if (c.digest() == digest) return c;
    return fail(CauseCode::not_allowed,
                "this is another market than the token's: none of its certificates is the root " +
                    std::string(digest.substr(0, 16)) + "...; nothing was told to it");
}

}  // namespace souk::trust
