// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/stream.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/check.hpp"

namespace souk {
namespace {
constexpr char file_kind = 'F', data_kind = 'D', manifest_part_kind = 'M', end_kind = 'E';
}  // namespace

Result<ImageReader> ImageReader::open(int directory, Manifest needs) {
    ImageReader r;
    TRY_ASSIGN(r.directory_, duplicate(directory));
    r.manifest_ = std::move(needs);
    r.manifest_.files.clear();
    TRY_ASSIGN(const auto names, list_dir(directory, "."));
    for (const std::string& name : names) {
        if (!is_image_file(name)) continue;
        if (!valid_image_name(name) || r.manifest_.files.size() >= image_files_max)
            return fail("image file '" + name + "': one too many");
        struct stat st;
        if (::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno("look at " + name, errno);
        if (!S_ISREG(st.st_mode)) return fail("image file '" + name + "': not a regular file");
        r.manifest_.files.push_back({name, static_cast<uint64_t>(st.st_size), {}});
        r.bytes_total_ += static_cast<uint64_t>(st.st_size);
    }
    if (r.manifest_.files.empty()) return fail("the image has no files");
    return r;
}

Status ImageReader::next(std::string& chunk) {
    MUST(stage_ != Stage::done);
    chunk.clear();
    if (stage_ == Stage::begin_file) {
        const ImageFile& f = manifest_.files[index_];
        TRY_ASSIGN(file_, open_at(directory_.get(), f.name, O_RDONLY | O_NOFOLLOW));
        digest_.reset();
        left_ = f.bytes;
        stage_ = Stage::data;
        chunk = file_kind + f.name;
    } else if (stage_ == Stage::data) {
        ImageFile& f = manifest_.files[index_];
        const size_t want = static_cast<size_t>(std::min<uint64_t>(left_, stream_chunk_max - 1));
        chunk.resize(1 + want);
        chunk[0] = data_kind;
        for (size_t got = 0; got < want;) {
            const ssize_t n = ::read(file_.get(), chunk.data() + 1 + got, want - got);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return fail_errno("read " + f.name, errno);
            if (n == 0) return fail("image file " + f.name + ": became shorter");
            got += static_cast<size_t>(n);
        }
        digest_.add(std::string_view(chunk).substr(1));
        left_ -= want;
        bytes_done_ += want;
    } else {
        const size_t want = std::min(manifest_text_.size() - manifest_sent_, stream_chunk_max - 1);
        const bool last = manifest_sent_ + want == manifest_text_.size();
        chunk = (last ? end_kind : manifest_part_kind) + manifest_text_.substr(manifest_sent_, want);
        manifest_sent_ += want;
        if (last) stage_ = Stage::done;
        return {};
    }
    if (left_ > 0) return {};
    manifest_.files[index_].digest = digest_.hex();
    stage_ = ++index_ < manifest_.files.size() ? Stage::begin_file : Stage::manifest;
    if (stage_ == Stage::manifest) manifest_text_ = encode_manifest(manifest_);
    return {};
}

Result<ImageWriter> ImageWriter::open(int directory, uint64_t bytes_max) {
    ImageWriter w;
    TRY_ASSIGN(w.directory_, duplicate(directory));
    w.bytes_max_ = bytes_max;
    return w;
}

Status ImageWriter::take(std::string_view chunk) {
    if (chunk.empty() || chunk.size() > stream_chunk_max || done_) return fail("image stream: unexpected chunk");
    const std::string_view bytes = chunk.substr(1);
    if (chunk[0] == file_kind && manifest_text_.empty()) return begin_file(bytes);
    if (chunk[0] == data_kind && file_) {
        if (bytes.size() > bytes_max_ - bytes_done_) return fail_errno("image stream: larger than was agreed", ENOSPC);
        for (size_t put = 0; put < bytes.size();) {
            const ssize_t n = ::write(file_.get(), bytes.data() + put, bytes.size() - put);
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return fail_errno("write image file " + files_.back().name, errno);
            put += static_cast<size_t>(n);
        }
        digest_.add(bytes);
        files_.back().bytes += bytes.size();
        bytes_done_ += bytes.size();
        return {};
    }
    if (chunk[0] != manifest_part_kind && chunk[0] != end_kind) return fail("image stream: unexpected chunk");
    if (file_) TRY(end_file());
    manifest_text_ += bytes;
    if (manifest_text_.size() > manifest_bytes_max) return fail("image stream: manifest too long");
    return chunk[0] == end_kind ? finish() : Status{};
}

Status ImageWriter::begin_file(std::string_view name) {
    if (file_) TRY(end_file());
    if (!valid_image_name(name) || !is_image_file(name)) return fail("image stream: a bad file name");
    if (!files_.empty() && files_.back().name >= name) return fail("image stream: files out of order");
    if (files_.size() >= image_files_max) return fail("image stream: too many files");
    TRY_ASSIGN(file_, open_at(directory_.get(), std::string(name), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    files_.push_back({std::string(name), 0, {}});
    digest_.reset();
    return {};
}

Status ImageWriter::end_file() {
    files_.back().digest = digest_.hex();
    file_.reset();
    return {};
}

Status ImageWriter::finish() {
    TRY_ASSIGN(manifest_, decode_manifest(manifest_text_));
    if (manifest_.files.size() != files_.size()) return fail("image stream: files are missing");
    for (size_t i = 0; i < files_.size(); ++i)
        if (manifest_.files[i] != files_[i]) return fail("image stream: file " + files_[i].name + " came damaged");
    done_ = true;
    return {};
}

}  // namespace souk
