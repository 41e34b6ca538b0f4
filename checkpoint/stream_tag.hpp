// SPDX-License-Identifier: GPL-2.0-or-later
// The tag of an image stream (stream.hpp): 16 bytes behind its end that only the two ends of this
// move can make. Their key comes from the job's home, for one job and epoch. It is AES-256-GMAC,
// with a key that is derived from the home's and from what the image is for: who has another job,
// epoch, node or user in mind finds another tag.
//
// Calls fail if OpenSSL has no AES-256-GCM.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"

namespace souk {

// Names one transfer. Source and destination each make this from what they know, so their tags
// agree only if both know the same.
struct ImageSeal {
    std::string key;    // 32 bytes; empty: the home is of a version that gives none
    std::string nonce;  // 12 bytes, the source's choice, anew for each transfer
    JobId job;
    Epoch from, to;
    std::string source, destination;  // nodes
    uint32_t uid = 0, gid = 0;        // of the job
};

class StreamTag {
  public:
    static constexpr size_t key_bytes = 32, nonce_bytes = 12, tag_bytes = 16;
    static Result<StreamTag> make(const ImageSeal& seal);
    void add(std::string_view bytes);
    // Call it once, at the end.
    Result<std::string> end();

  private:
    struct Free {
        void operator()(void* context) const;
    };
    std::unique_ptr<void, Free> context_;
    bool failed_ = false;
};

// Compares in a time that says nothing of where the tags differ.
bool same_tag(std::string_view a, std::string_view b);

// 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view text);

// A key for the moves of one job to one epoch, of a home's secret.
std::string image_key(std::string_view secret, const JobId& job, Epoch to);

}  // namespace souk
