// SPDX-License-Identifier: GPL-2.0-or-later
// OpenSSL's objects with owners, and its errors as one line. For this room and kernel/wire's TLS.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk::trust {

template <auto free>
struct Free {
    template <class T>
    void operator()(T* object) const {
        free(object);
    }
};
using BioPtr = std::unique_ptr<BIO, Free<BIO_free_all>>;
using RequestPtr = std::unique_ptr<X509_REQ, Free<X509_REQ_free>>;
using DigestPtr = std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX_free>>;

// Makes an error of OpenSSL's last message, behind `what`. OpenSSL's queue of errors is empty
// afterwards.
tl::unexpected<Error> fail_openssl(std::string_view what);
BioPtr reader_of(std::string_view bytes);
std::string text_of(BIO* memory);

std::string hex(std::string_view bytes);
Result<std::string> from_hex(std::string_view digits);  // lower case, an even number
std::string sha256(std::string_view bytes);             // in hexadecimal digits
Result<std::string> random_bytes(size_t count);
// Returns so many random bytes, in hexadecimal digits.
Result<std::string> random_secret(size_t bytes);
// Compares in a time that does not depend on how much is the same. An empty secret is never the
// same.
bool is_same_secret(std::string_view one, std::string_view other);

// "2026-03-01 12:00:00 UTC", from Unix time.
std::string date_text(Nanos unix_time);

}  // namespace souk::trust
