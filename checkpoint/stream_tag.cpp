// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/stream_tag.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <climits>

#include "kernel/base/check.hpp"

namespace souk {
namespace {

const auto* octets_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

// The ends may be at two sites, of which each calls the other's nodes and jobs by full names.
std::string short_name(const std::string& name) { return std::string(of_site(name).rest); }

// Each part with its length before it: no two seals have one text.
std::string text_of(const ImageSeal& s) {
    std::string text = "souk image 1";
    for (const std::string& part :
         {short_name(s.job.text()), std::to_string(s.from.n), std::to_string(s.to.n),
          short_name(s.source), short_name(s.destination), std::to_string(s.uid),
          std::to_string(s.gid)})
        text += " " + std::to_string(part.size()) + ":" + part;
    return text;
}

}  // namespace

std::string hmac_sha256(std::string_view key, std::string_view text) {
    std::string out(StreamTag::key_bytes, '\0');
    unsigned length = 0;
    MUST(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), octets_of(text), text.size(),
              reinterpret_cast<unsigned char*>(out.data()), &length) &&
         length == out.size());
    return out;
}

void StreamTag::Free::operator()(void* context) const {
    EVP_CIPHER_CTX_free(static_cast<EVP_CIPHER_CTX*>(context));
}

Result<StreamTag> StreamTag::make(const ImageSeal& seal) {
    if (seal.key.size() != key_bytes || seal.nonce.size() != nonce_bytes)
        return fail("the key of an image has another length");
    std::string key = hmac_sha256(seal.key, text_of(seal));
    StreamTag tag;
    tag.context_.reset(EVP_CIPHER_CTX_new());
    const int good =
        tag.context_
            ? EVP_EncryptInit_ex(static_cast<EVP_CIPHER_CTX*>(tag.context_.get()),
                                 EVP_aes_256_gcm(), nullptr, octets_of(key), octets_of(seal.nonce))
            : 0;
    OPENSSL_cleanse(key.data(), key.size());
    if (good != 1) return fail("OpenSSL has no AES-256-GCM");
    return tag;
}

void StreamTag::add(std::string_view bytes) {
    while (!bytes.empty()) {
        const size_t part = std::min<size_t>(bytes.size(), INT_MAX / 2);
        int length = 0;
        if (EVP_EncryptUpdate(static_cast<EVP_CIPHER_CTX*>(context_.get()), nullptr, &length,
                              octets_of(bytes), static_cast<int>(part)) != 1)
            failed_ = true;
        bytes.remove_prefix(part);
    }
}

Result<std::string> StreamTag::end() {
    auto* const context = static_cast<EVP_CIPHER_CTX*>(context_.get());
    std::string tag(tag_bytes, '\0');
    unsigned char none[16];
    int length = 0;
    if (failed_ || EVP_EncryptFinal_ex(context, none, &length) != 1 ||
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, tag_bytes, tag.data()) != 1)
        return fail("the tag of an image cannot be made");
    return tag;
}

bool same_tag(std::string_view a, std::string_view b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string image_key(std::string_view secret, const JobId& job, Epoch to) {
    return hmac_sha256(secret, "souk move " + job.text() + " " + std::to_string(to.n));
}

}  // namespace souk
