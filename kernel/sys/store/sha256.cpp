// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/sha256.hpp"

// SHA256() looks its algorithm up among the library's providers at each call, and has them all
// loaded for it: 2 MB of a small daemon. The functions below it do not, and are called deprecated
// for that alone.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

namespace souk {

std::string sha256_hex(std::string_view bytes) {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, bytes.data(), bytes.size());
    SHA256_Final(digest, &context);
    std::string text;
    for (const unsigned char byte : digest) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

}  // namespace souk
