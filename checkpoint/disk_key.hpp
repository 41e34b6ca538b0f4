// SPDX-License-Identifier: GPL-2.0-or-later
// DiskKey: what the files of one image are encrypted with where it stays on a disk
// (encrypted_file.hpp). The home of the job has a secret for each of its epochs. With a salt that
// is drawn for each image, the secret makes a key for each file and one for the manifest: so no key
// is ever used for two files, and no file is taken for one of another name, image, epoch or job.
//
// What fails: the kernel's random numbers.
#pragma once

#include <string>
#include <string_view>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"

namespace souk {

class DiskKey {
  public:
    static constexpr size_t secret_bytes = 32, salt_bytes = 32;
    // None: the image is plain.
    DiskKey() = default;
    // Of an image that is about to be made. An empty secret: none.
    static Result<DiskKey> make(std::string_view secret, const JobId& job, Epoch epoch);
    // Of one that is there. Error: the secret or the salt has another length.
    static Result<DiskKey> find(std::string_view secret, const JobId& job, Epoch epoch,
                                std::string_view salt);

    explicit operator bool() const { return !root_.empty(); }
    // As the manifest has it.
    const std::string& salt() const { return salt_; }
    std::string of_file(std::string_view name) const;
    // 32 bytes that only who has the key can make.
    std::string tag(std::string_view manifest) const;

  private:
    std::string root_, salt_;
};

// What a home's secret of a job makes for one epoch. An empty secret makes an empty one.
std::string epoch_secret(std::string_view secret, const JobId& job, Epoch epoch);

}  // namespace souk
