// SPDX-License-Identifier: GPL-2.0-or-later
// Certificates of a market: a root that is kept offline, an issuing authority that the market runs
// with, and leaves of nodes, operators and the market itself. A leaf says who holds the key
// (subject.hpp); its dates are the issuer's. Of a request for one, only the key and the name that
// is asked for are read: what a certificate says is the issuer's word alone.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/time.hpp"
#include "kernel/trust/key.hpp"
#include "kernel/trust/subject.hpp"

namespace souk::trust {

inline constexpr Nanos leaf_life = Nanos::from_s(7 * 86'400),
                       root_life = Nanos::from_s(315'360'000),
                       issuing_life = Nanos::from_s(157'680'000);
// A certificate begins so long before it is issued: clocks differ.
inline constexpr Nanos clock_slack = Nanos::from_s(300);

class Certificate {
  public:
    static Result<Certificate> of(std::shared_ptr<X509> certificate);
    static Result<Certificate> from_der(std::string_view bytes);
    std::string der() const;
    std::string pem() const;

    std::string digest() const;  // SHA-256 of its bytes, in hexadecimal digits
    Result<Subject> subject() const;
    std::string site() const;  // of an authority's: the name of its market (souk setup market)
    Result<Key> key() const;
    Nanos begins() const;
    Nanos ends() const;
    // When its holder asks for the next one: at half of its life.
    Nanos renew_at() const;
    X509* raw() const { return certificate_.get(); }

  private:
    explicit Certificate(std::shared_ptr<X509> c) : certificate_(std::move(c)) {}
    std::shared_ptr<X509> certificate_;
};

// All certificates of a PEM text, at least one and at most eight.
Result<std::vector<Certificate>> parse_chain(std::string_view pem);
std::string pem_of(const std::vector<Certificate>& chain);

struct Authority {
    Key key;
    Certificate certificate;
};

// A root signs its own certificate, and certificates of issuing authorities alone.
Result<Authority> make_root(std::string_view name, Nanos now);
Result<Authority> make_issuing(const Authority& root, std::string_view name, Nanos now);
// `now` and `life` in Unix time.
Result<Certificate> issue(const Authority& issuing, const Key& key, const Subject& subject,
                          Nanos now, Nanos life = leaf_life);

struct Request {
    std::string name;  // that is asked for
    Key key;           // the public half; the asker has the other
};
inline constexpr size_t request_bytes_max = 2048;
Result<std::string> make_request(const Key& key, std::string_view name);
Result<Request> parse_request(std::string_view bytes);

}  // namespace souk::trust
