// SPDX-License-Identifier: GPL-2.0-or-later
// Key: a key pair, or the public half alone, of ECDSA on P-256. Why P-256 and not Ed25519: a
// handshake verifies three signatures, and OpenSSL 3 verifies P-256 half as fast again; and the
// chips that can keep an authority's key to themselves (TPM 2.0) know P-256. One kind of key means
// that no peer can choose a weaker one.
//
// A private key is made where it is used and stays there: a file that is made new, mode 0600, and
// is refused when others can read it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk::trust {

class Key {
  public:
    static Result<Key> make();
    // Takes the object; an error if it is no key on P-256.
    static Result<Key> of(std::shared_ptr<EVP_PKEY> key);
    // Reads a private key. ENOENT if there is none.
    static Result<Key> load(const std::string& path);
    // Writes the private key into a file that is not there yet.
    Status save(const std::string& path) const;
    // The private key as such a file has it.
    static Result<Key> from_pem(std::string_view pem);
    Result<std::string> pem() const;

    // SHA-256 of the public half, in hexadecimal digits: the key's name.
    std::string digest() const;
    Result<std::string> sign(std::string_view bytes) const;
    Status verify(std::string_view bytes, std::string_view signature) const;
    EVP_PKEY* raw() const { return key_.get(); }

  private:
    explicit Key(std::shared_ptr<EVP_PKEY> key) : key_(std::move(key)) {}
    std::shared_ptr<EVP_PKEY> key_;
};

}  // namespace souk::trust
