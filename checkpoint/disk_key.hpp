// SPDX-License-Identifier: GPL-2.0-or-later
// DiskKey: what the files of one image are encrypted with where it stays on a disk
// (encrypted_file.hpp). The home of the job has a secret for each of its epochs. With a salt that
// is drawn for each image, the secret makes a key for each file and one for the manifest: so no key
// is ever used for two files, and no file is taken for one of another name, image, epoch or job.
//
// Calls fail if the kernel gives no random numbers.
#pragma once

#include <string>
#include <string_view>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"

namespace souk {

class DiskKey {
  public:
    static constexpr size_t secret_bytes = 32, salt_bytes = 32;
    // An empty key: the image is plain.
    DiskKey() = default;
    // Makes a key for an image that is about to be made. An empty secret makes an empty key.
    static Result<DiskKey> make(std::string_view secret, const JobId& job, Epoch epoch);
    // Makes the key of an image that is there. Fails if the secret or the salt has another length.
    static Result<DiskKey> find(std::string_view secret, const JobId& job, Epoch epoch,
                                std::string_view salt);

    explicit operator bool() const { return !root_.empty(); }
    // The manifest holds this.
    const std::string& salt() const { return salt_; }
    std::string of_file(std::string_view name) const;
    // Returns 32 bytes that only a holder of the key can make.
    std::string tag(std::string_view manifest) const;

  private:
    std::string root_, salt_;
};

// Derives the secret of one epoch from the secret that a home has for a job. An empty secret makes
// an empty one.
std::string epoch_secret(std::string_view secret, const JobId& job, Epoch epoch);

}  // namespace souk
