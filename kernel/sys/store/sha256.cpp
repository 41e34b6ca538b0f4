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
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256_CTX context;
    SHA256_Init(&context);
    for (const std::string_view part : parts) SHA256_Update(&context, part.data(), part.size());
    SHA256_Final(digest, &context);
    std::string text;
    for (const unsigned char byte : digest) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

}  // namespace souk
