// SPDX-License-Identifier: GPL-2.0-or-later
// Images: a checkpoint is a directory (0700) that CRIU and souk-init filled, and its manifest: the
// needs of the job and every file's length and xxh3-128 digest. It is made under a temporary name
// (NAME.part), sealed (manifest, sync if wished, rename) and from then on never changed, but for
// the frames that a job did not get (frames_file_name). A directory without its manifest is no
// image.
//
// Owner: agentd, one directory per (job, epoch). What fails: the file system (errno), a damaged or
// foreign image (one line that names the file), a machine that lacks what the job needs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/machine.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// This machine, with the CRIU version that a session said.
Result<Machine> this_machine(const std::string& criu_version);

struct ImageFile {
    std::string name;
    uint64_t bytes = 0;
    std::string digest;  // 32 hex digits
    bool operator==(const ImageFile&) const = default;
};

struct Manifest {
    // 2: page_file_name may be among the files; 3: the files are encrypted
    static constexpr int format = 3;
    JobId job;
    Epoch epoch;
    Machine machine;
    // Sorted by name. Where they are encrypted, lengths are those on the disk, and digests of tags
    // (encrypted_file.hpp).
    std::vector<ImageFile> files;
    // Both belong to an encrypted image and have 32 bytes each. Empty: the files are plain.
    std::string salt, tag;
    // An encrypted checkpoint has this, because its key may not be at hand: how far stdout, stderr
    // and stdin had come.
    std::optional<std::array<uint64_t, 3>> ends;
    uint64_t bytes() const;  // of all files
    bool operator==(const Manifest&) const = default;
};
inline constexpr const char* manifest_name = "MANIFEST";
inline constexpr const char* new_manifest_name = "MANIFEST.new";  // until it takes its place
// A frozen job's memory, where it was not CRIU that wrote it (page_file.hpp).
inline constexpr const char* page_file_name = "souk-pages";
// This file holds what the network sent to a frozen job while it was dumped
// (kernel/sys/net/frame_hold.hpp). It is added when the job is ended, after the image is sealed. If
// it lies there and the manifest does not name it, a crash has left it in that moment, and it is no
// part of the image.
inline constexpr const char* frames_file_name = "souk-frames";
// Returns the bytes of all files in an image's directory; 0 if the directory cannot be read.
uint64_t image_bytes(int directory);
inline constexpr size_t manifest_bytes_max = 4 << 20;
inline constexpr size_t image_files_max = 20'000;

// Text, one line a fact, with a digest of itself at its end. Pure.
std::string encode_manifest(const Manifest& manifest);
Result<Manifest> decode_manifest(std::string_view text);
// A plain file name: no '/', not "." or "..", printable, at most 200 characters. Pure.
bool valid_image_name(std::string_view name);
// Returns false for CRIU's reports about its work (logs, statistics) and for the manifest itself,
// which are no part of the image. Pure.
bool is_image_file(std::string_view name);
// frames_file_name, if it is not among the files of the manifest. Pure.
bool is_left_over(std::string_view name, const std::vector<ImageFile>& files);

// An error that says: what lies there is not the image that it should be, and never will be.
tl::unexpected<Error> refuse_image(std::string why);
bool image_is_refused(const Error& error);

// Says whether the image must survive a crash of the machine. A frozen job must; one on its way in
// memory need not.
enum class Durability : uint8_t { memory, disk };

// NAME.part below `parent`, made anew: what lay there is removed.
Result<Fd> create_image(int parent, const std::string& name);
// The files of a directory with their digests, read through once; CRIU's logs and statistics are
// left out (and removed). `known`: a file whose length and digest need not be found out; may be
// null.
Result<std::vector<ImageFile>> digest_files(int directory, const ImageFile* known = nullptr);
// Writes the manifest and gives NAME.part its name. The image exists when this returns.
Status seal_image(int parent, const std::string& name, const Manifest& manifest,
                  Durability durability);
// Takes that back, of an image that was only tried: it is NAME.part again, without a manifest.
Status unseal_image(int parent, const std::string& name);
// Writes the manifest of an image that has one anew, in one step: it has one more file, `added`,
// which is there.
Status add_to_manifest(int directory, const Manifest& manifest, const std::string& added,
                       Durability durability);
Result<Fd> open_image(int parent, const std::string& name);
Result<Manifest> read_manifest(int directory);
// Reads every file that is not encrypted: lengths, digests, nothing missing. (CRIU's logs of a
// restore do not count.) `but`: a file whose bytes the caller checks.
Result<Manifest> verify_image(int directory, std::string_view but = {});
// NAME and NAME.part, if they are there.
Status remove_image(int parent, const std::string& name);

// xxh3-64, for what is checked at once and kept nowhere.
uint64_t digest64(std::string_view bytes, uint64_t seed);

// The streaming digest of the manifest: xxh3-128 (XXH128), seed 0.
class Digest {
  public:
    Digest();
    ~Digest();
    Digest(Digest&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
    Digest& operator=(Digest&& other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }
    void add(std::string_view bytes);
    std::string hex() const;
    void reset();

  private:
    void* state_;
};

}  // namespace souk
