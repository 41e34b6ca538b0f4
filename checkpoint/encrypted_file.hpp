// SPDX-License-Identifier: GPL-2.0-or-later
// A file of an image that stays on a disk, encrypted: as many bytes as the plain file has, in
// chunks of 256 KB, each by itself with AES-256-GCM under the key of this file (disk_key.hpp), its
// number as the nonce and the length of the whole file as additional data; then the tags of all
// chunks, 16 bytes each. The manifest has the length on the disk and a digest of the tags, under a
// tag of its own: so each chunk can be read by itself, and a changed, swapped or missing one is
// found before a byte of it is used.
//
// Calls fail because of the file system (errno), or because a file is damaged or another one (one
// line that names it).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "checkpoint/disk_key.hpp"
#include "checkpoint/images.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// Encrypts and decrypts the chunks of one file, in place.
class ChunkCipher {
  public:
    static constexpr size_t chunk_bytes = 256 * 1024, tag_bytes = 16;
    // `bytes` is the length of the whole plain file.
    static Result<ChunkCipher> make(const DiskKey& key, std::string_view name, uint64_t bytes);
    Status encrypt(uint64_t number, char* data, size_t bytes, char* tag);
    // Fails if the data are not that chunk.
    Status decrypt(uint64_t number, char* data, size_t bytes, const char* tag);

    static uint64_t chunks(uint64_t bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes; }
    static uint64_t stored_bytes(uint64_t bytes) { return bytes + chunks(bytes) * tag_bytes; }
    // Returns the length of the plain file that is stored in so many bytes. The result means
    // nothing if no plain file is stored in that length.
    static uint64_t plain_bytes(uint64_t stored);

  private:
    struct Free {
        void operator()(void* context) const;
    };
    bool begin(uint64_t number, int encrypts);
    std::unique_ptr<void, Free> context_;
    uint64_t bytes_ = 0;
    std::string name_;
};

class EncryptedWriter {
  public:
    // `file` is new and empty, and will have `bytes` plain ones, known before.
    static Result<EncryptedWriter> open(Fd file, std::string name, const DiskKey& key,
                                        uint64_t bytes);
    // The next bytes, cut anywhere.
    Status add(std::string_view bytes);
    // The next chunk, as a whole; all but the last one have chunk_bytes. It is overwritten.
    Status add_chunk(char* chunk, size_t bytes);
    // Call it once, when all bytes have come.
    Result<ImageFile> end();
    int fd() const { return file_.get(); }
    uint64_t written() const { return at_; }

  private:
    Fd file_;
    ChunkCipher cipher_;
    std::string name_, tags_;
    uint64_t bytes_ = 0, at_ = 0;
    std::unique_ptr<char[]> chunk_;
    size_t filled_ = 0;
};

class EncryptedReader {
  public:
    // `stored` as the manifest has it.
    static Result<EncryptedReader> open(Fd file, const ImageFile& stored, const DiskKey& key);
    uint64_t bytes() const { return bytes_; }  // of the plain file
    // Reads all of these bytes, and checks that they are what was encrypted there.
    Status read(uint64_t at, char* to, size_t bytes);

  private:
    Status read_chunk(uint64_t number, char* to, size_t bytes);

    Fd file_;
    ChunkCipher cipher_;
    std::string name_, tags_;
    uint64_t bytes_ = 0;
    std::unique_ptr<char[]> chunk_;  // the last one of which a part was read
    uint64_t number_ = UINT64_MAX;
};

// ---- whole images

// The key of an image whose manifest this is; none if it is plain. Error: the secret is not there,
// or the manifest is not what it says, of that job and epoch.
Result<DiskKey> key_of_image(const Manifest& manifest, std::string_view secret, const JobId& job,
                             Epoch epoch);
// Writes salt and tag into the manifest.
void sign_manifest(Manifest& manifest, const DiskKey& key);
// The files of `from`, encrypted into `to`, which may be the same directory: then each takes the
// place of the plain one. CRIU's logs and statistics are left out. `known`: a file that is in `to`
// already; may be null.
Result<std::vector<ImageFile>> encrypt_files(int from, int to, const DiskKey& key,
                                             const ImageFile* known);
// The files of a manifest, plain, into another directory; `but`: one that is left out.
Status decrypt_files(int from, const Manifest& manifest, const DiskKey& key, int to,
                     std::string_view but);
// The first bytes of one file.
Result<std::string> read_encrypted(int directory, const Manifest& manifest, const DiskKey& key,
                                   std::string_view name, size_t bytes);

}  // namespace souk
