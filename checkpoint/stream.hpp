// SPDX-License-Identifier: GPL-2.0-or-later
// An image as one stream of bytes, and back: so that agentd can send it piece by piece, as fast as
// its connection takes it. Digests are computed on the way, the manifest comes last: no file is
// read twice. Neither class touches a socket: whoever moves the bytes may seal them on the way.
//
// Format: sections, each a head of 16 bytes (little endian: kind u32, length of its text u32, bytes
// u64) and its text; kind 1 is a file, its text the name, its bytes follow; kind 2 the manifest,
// its text, the end; or kind 3 is the end, its text the tag of all before it (stream_tag.hpp). The
// order is the protocol: the reader's output is the only valid one, the writer refuses everything
// else and never writes outside of its directory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/encrypted_file.hpp"
#include "checkpoint/images.hpp"
#include "checkpoint/stream_tag.hpp"

namespace souk {

// stays in a core's own cache from file to socket
inline constexpr size_t stream_piece_max = 256 * 1024;

// Reads the directory of a finished dump, or a sealed image: that must still be what its manifest
// says (the error names the file that is not), and needs the machine that it was made on. The
// directory must not change meanwhile.
class ImageReader {
  public:
    // `needs`: job, epoch and, of an image that is not sealed, machine for the manifest; its files
    // are ignored. `secret`: of that job and epoch, for an image that is encrypted (disk_key.hpp);
    // its files go out plain.
    static Result<ImageReader> open(int directory, Manifest needs, std::string_view secret = {});
    // Call it before the first piece: a tag comes at the end of the stream.
    void tag_with(StreamTag tag) { tag_ = std::move(tag); }
    // Returns what is to be sent next, at most stream_piece_max bytes. It is empty when all is
    // sent. Valid until the next call.
    Result<std::string_view> piece();
    // The first `n` bytes of the piece are sent.
    void sent(size_t n) { piece_at_ += n; }
    // Call it after the end: it says what went out, fit for seal_image.
    const Manifest& manifest() const { return manifest_; }

  private:
    enum class Stage : uint8_t { begin_file, data, manifest, tag, done };
    Status fill();
    Status fill_piece();
    Status begin_file();
    Status read_plain(char* to, size_t bytes);
    void tag_piece();
    Status add_tag();
    void add_head(uint32_t kind, std::string_view text, uint64_t bytes);
    Status add_data();
    Status check_sealed(const ImageFile& file) const;
    size_t room() const { return stream_piece_max - piece_end_; }

    Fd directory_, file_;
    Stage stage_ = Stage::begin_file;
    size_t index_ = 0, manifest_sent_ = 0;
    uint64_t left_ = 0;
    Manifest manifest_;
    std::vector<ImageFile> sealed_;  // none: not sealed
    std::string manifest_text_;
    Digest digest_;
    DiskKey key_;
    std::optional<EncryptedReader> encrypted_;  // instead of file_
    std::unique_ptr<char[]> piece_;
    size_t piece_at_ = 0, piece_end_ = 0;
    std::optional<StreamTag> tag_;
    size_t tagged_ = 0;  // of the piece
};

// Writes into an image directory made by create_image. After an error it is of no more use: remove
// the image.
class ImageWriter {
  public:
    // `bytes_max`: more is refused (ENOSPC).
    static Result<ImageWriter> open(int directory, uint64_t bytes_max = UINT64_MAX);
    // Call it before the first bytes. What is written is then encrypted, and manifest() says so;
    // the caller signs it (sign_manifest).
    void encrypt_with(DiskKey key) { key_ = std::move(key); }
    // Call it before the first bytes: this tag must come at the end.
    void want_tag(StreamTag tag) { tag_ = std::move(tag); }
    // The next bytes, cut anywhere. What lies behind the end is an error here, and what take_to_end
    // returns.
    Status take(std::string_view bytes);
    Result<std::string_view> take_to_end(std::string_view bytes);
    // The end has come and everything was right; then seal_image(..., manifest()), which says what
    // was written.
    bool done() const { return stage_ == Stage::done; }
    const Manifest& manifest() const { return manifest_; }

  private:
    enum class Stage : uint8_t { head, text, data, tag, done };
    Status take_tag();
    Status take_head();
    Status take_text();
    Status take_data(std::string_view bytes);
    Status end_file();
    Status finish();

    Fd directory_, file_;
    Stage stage_ = Stage::head;
    std::string head_, text_;  // as far as they have come
    uint32_t kind_ = 0, text_bytes_ = 0;
    uint64_t left_ = 0, bytes_max_ = 0, bytes_done_ = 0;
    std::vector<ImageFile> files_, stored_;  // as they came, and as they lie there encrypted
    Manifest manifest_;
    Digest digest_;
    DiskKey key_;
    std::optional<EncryptedWriter> encrypted_;  // instead of file_
    std::optional<StreamTag> tag_;
};

}  // namespace souk
