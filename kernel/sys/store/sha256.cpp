// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/sha256.hpp"

// SHA256() looks its algorithm up among the library's providers at each call, and has them all
// loaded for it: 2 MB of a small daemon. The functions below it do not, and are called deprecated
// for that alone.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

namespace souk {

std::string sha256_hex(std::string_view bytes) { return sha256_of_parts({bytes}); }

std::string sha256_of_parts(std::initializer_list<std::string_view> parts) {
    Sha256 hash;
    for (const std::string_view part : parts)
        hash.update({reinterpret_cast<const uint8_t*>(part.data()), part.size()});
    return hex_of(hash.finish());
}

// A context is plain memory, which the header need not know.
static_assert(sizeof(SHA256_CTX) == 112 && alignof(SHA256_CTX) <= 8);

Sha256::Sha256() { SHA256_Init(reinterpret_cast<SHA256_CTX*>(context_.data())); }

void Sha256::update(std::span<const uint8_t> bytes) {
    SHA256_Update(reinterpret_cast<SHA256_CTX*>(context_.data()), bytes.data(), bytes.size());
}

Sha256::Digest Sha256::finish() {
    Digest digest;
    SHA256_Final(digest.data(), reinterpret_cast<SHA256_CTX*>(context_.data()));
    return digest;
}

std::string hex_of(const Sha256::Digest& digest) {
    std::string text;
    for (const unsigned char byte : digest) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

}  // namespace souk
