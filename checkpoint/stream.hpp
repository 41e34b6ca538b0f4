// SPDX-License-Identifier: GPL-2.0-or-later
// An image as a sequence of chunks of at most stream_chunk_max bytes, and back: so that agentd can send it through its
// loop piece by piece. Digests are computed on the way, the manifest comes last: no file is read twice.
//
// Chunk: one byte kind, then F name (a file begins), D bytes (its next bytes), E manifest text (the end; in several
// chunks M first if it is longer). The order is the protocol: the reader's output is the only valid one, the writer
// refuses everything else and never writes outside of its directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/images.hpp"

namespace souk {

inline constexpr size_t stream_chunk_max = 256 * 1024;

// Reads the directory of a finished dump (or a sealed image). The directory must not change meanwhile.
class ImageReader {
  public:
    // `needs`: job, epoch and machine for the manifest; its files are ignored.
    static Result<ImageReader> open(int directory, Manifest needs);
    // Bytes of all files, so that progress can be told.
    uint64_t bytes_total() const { return bytes_total_; }
    uint64_t bytes_done() const { return bytes_done_; }
    bool done() const { return stage_ == Stage::done; }
    // The next chunk, replacing what is in `chunk`. Not after done().
    Status next(std::string& chunk);
    // After done(): what went out, fit for seal_image.
    const Manifest& manifest() const { return manifest_; }

  private:
    enum class Stage : uint8_t { begin_file, data, manifest, done };
    Fd directory_, file_;
    Stage stage_ = Stage::begin_file;
    size_t index_ = 0, manifest_sent_ = 0;
    uint64_t bytes_total_ = 0, bytes_done_ = 0, left_ = 0;
    Manifest manifest_;
    std::string manifest_text_;
    Digest digest_;
};

// Writes into an image directory made by create_image. After an error it is of no more use: remove the image.
class ImageWriter {
  public:
    // `bytes_max`: more is refused (ENOSPC).
    static Result<ImageWriter> open(int directory, uint64_t bytes_max = UINT64_MAX);
    Status take(std::string_view chunk);
    // The end has come and everything was right; then seal_image(..., manifest()).
    bool done() const { return done_; }
    const Manifest& manifest() const { return manifest_; }
    uint64_t bytes_done() const { return bytes_done_; }

  private:
    Status begin_file(std::string_view name);
    Status end_file();
    Status finish();
    Fd directory_, file_;
    bool done_ = false;
    uint64_t bytes_max_ = 0, bytes_done_ = 0;
    std::vector<ImageFile> files_;
    Manifest manifest_;
    std::string manifest_text_;
    Digest digest_;
};

}  // namespace souk
