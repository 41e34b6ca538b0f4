// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/disk_key.hpp"

#include <openssl/rand.h>

#include "checkpoint/stream_tag.hpp"

namespace souk {
namespace {

// A job is called so at its home, where its image may come from another site.
std::string short_text(const JobId& job) { return std::string(of_site(job.text()).rest); }

}  // namespace

Result<DiskKey> DiskKey::make(std::string_view secret, const JobId& job, Epoch epoch) {
    if (secret.empty()) return DiskKey{};
    std::string salt(salt_bytes, '\0');
    if (RAND_bytes(reinterpret_cast<unsigned char*>(salt.data()), static_cast<int>(salt.size())) !=
        1)
        return fail("no random numbers for the key of an image");
    return find(secret, job, epoch, salt);
}

Result<DiskKey> DiskKey::find(std::string_view secret, const JobId& job, Epoch epoch,
                              std::string_view salt) {
    if (secret.size() != secret_bytes || salt.size() != salt_bytes)
        return fail("the key of an image has another length");
    DiskKey key;
    key.salt_ = salt;
    key.root_ = hmac_sha256(secret, "souk image at rest 1 " + short_text(job) + " " +
                                        std::to_string(epoch.n) + " " + key.salt_);
    return key;
}

std::string DiskKey::of_file(std::string_view name) const {
    return hmac_sha256(root_, "file " + std::string(name));
}

std::string DiskKey::tag(std::string_view manifest) const {
    return hmac_sha256(root_, "manifest " + std::string(manifest));
}

std::string epoch_secret(std::string_view secret, const JobId& job, Epoch epoch) {
    if (secret.empty()) return {};
    return hmac_sha256(secret, "souk disk " + short_text(job) + " " + std::to_string(epoch.n));
}

}  // namespace souk
