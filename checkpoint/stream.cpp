// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/stream.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernel/base/check.hpp"
#include "kernel/base/little_endian.hpp"

namespace souk {
namespace {
constexpr uint32_t file_kind = 1, manifest_kind = 2, tag_kind = 3;
constexpr size_t head_bytes = 16, name_max = 255;
// A head and a name must always fit behind what is in a piece.
constexpr size_t head_room = head_bytes + name_max;
}  // namespace

Result<ImageReader> ImageReader::open(int directory, Manifest needs, std::string_view secret) {
    ImageReader r;
    TRY_ASSIGN(r.directory_, duplicate(directory));
    r.manifest_ = std::move(needs);
    r.manifest_.files.clear();
    bool has_manifest = false;
    if (auto sealed = read_manifest(directory)) {
        has_manifest = true;
        r.manifest_.machine = sealed->machine;
        TRY_ASSIGN(r.key_, key_of_image(*sealed, secret, r.manifest_.job, r.manifest_.epoch));
        r.sealed_ = std::move(sealed->files);
    } else if (sealed.error().code != ENOENT) {
        return tl::unexpected(sealed.error());
    }
    TRY_ASSIGN(const auto names, list_dir(directory, "."));
    for (const std::string& name : names) {
        if (!is_image_file(name) || (has_manifest && is_left_over(name, r.sealed_))) continue;
        if (!valid_image_name(name) || r.manifest_.files.size() >= image_files_max)
            return fail("image file '" + name + "': one too many");
        struct stat st;
        if (::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
            return fail_errno("look at " + name, errno);
        if (!S_ISREG(st.st_mode)) return fail("image file '" + name + "': not a regular file");
        const auto bytes = static_cast<uint64_t>(st.st_size);
        r.manifest_.files.push_back({name, r.key_ ? ChunkCipher::plain_bytes(bytes) : bytes, {}});
    }
    if (r.manifest_.files.empty()) return fail("the image has no files");
    r.piece_ = std::make_unique_for_overwrite<char[]>(stream_piece_max);
    return r;
}

Result<std::string_view> ImageReader::piece() {
    if (piece_at_ == piece_end_ && stage_ != Stage::done) TRY(fill());
    return std::string_view(piece_.get() + piece_at_, piece_end_ - piece_at_);
}

void ImageReader::add_head(uint32_t kind, std::string_view text, uint64_t bytes) {
    char* head = piece_.get() + piece_end_;
    put_le(head, kind, 4);
    put_le(head + 4, text.size(), 4);
    put_le(head + 8, bytes, 8);
    piece_end_ += head_bytes;
}

// Fills the piece: as many small files as fit go together.
Status ImageReader::fill() {
    piece_at_ = piece_end_ = tagged_ = 0;
    TRY(fill_piece());
    tag_piece();
    return {};
}

void ImageReader::tag_piece() {
    if (tag_) tag_->add({piece_.get() + tagged_, piece_end_ - tagged_});
    tagged_ = piece_end_;
}

Status ImageReader::add_tag() {
    tag_piece();
    TRY_ASSIGN(const std::string tag, tag_->end());
    tag_.reset();
    add_head(tag_kind, tag, 0);
    std::memcpy(piece_.get() + piece_end_, tag.data(), tag.size());
    piece_end_ += tag.size();
    stage_ = Stage::done;
    return {};
}

Status ImageReader::fill_piece() {
    while (stage_ != Stage::done) {
        if (stage_ == Stage::begin_file) {
            if (room() < head_room) return {};
            TRY(begin_file());
        } else if (stage_ == Stage::data) {
            if (left_ > 0 && room() == 0) return {};
            TRY(add_data());
            if (left_ > 0) continue;
            manifest_.files[index_].digest = digest_.hex();
            TRY(check_sealed(manifest_.files[index_]));
            stage_ = ++index_ < manifest_.files.size() ? Stage::begin_file : Stage::manifest;
        } else if (stage_ == Stage::tag) {
            if (room() < head_room) return {};
            TRY(add_tag());
        } else {
            if (manifest_text_.empty()) {
                if (room() < head_room) return {};
                if (!sealed_.empty() && sealed_.size() != manifest_.files.size())
                    return refuse_image("the image lacks files of its manifest");
                manifest_text_ = encode_manifest(manifest_);
                add_head(manifest_kind, manifest_text_, 0);
            }
            const size_t part = std::min(room(), manifest_text_.size() - manifest_sent_);
            std::memcpy(piece_.get() + piece_end_, manifest_text_.data() + manifest_sent_, part);
            piece_end_ += part;
            manifest_sent_ += part;
            if (manifest_sent_ < manifest_text_.size()) return {};
            stage_ = tag_ ? Stage::tag : Stage::done;
        }
    }
    return {};
}

Status ImageReader::begin_file() {
    const ImageFile& f = manifest_.files[index_];
    TRY_ASSIGN(file_, open_at(directory_.get(), f.name, O_RDONLY | O_NOFOLLOW));
    if (key_) {
        const auto as = std::find_if(sealed_.begin(), sealed_.end(),
                                     [&f](const ImageFile& s) { return s.name == f.name; });
        if (as == sealed_.end())
            return refuse_image("image file " + f.name + ": not in the manifest");
        TRY_ASSIGN(encrypted_, EncryptedReader::open(std::move(file_), *as, key_));
    }
    add_head(file_kind, f.name, f.bytes);
    std::memcpy(piece_.get() + piece_end_, f.name.data(), f.name.size());
    piece_end_ += f.name.size();
    digest_.reset();
    left_ = f.bytes;
    stage_ = Stage::data;
    return {};
}

// An encrypted one has been checked as it was read.
Status ImageReader::check_sealed(const ImageFile& file) const {
    if (sealed_.empty() || key_) return {};
    const auto as = std::find_if(sealed_.begin(), sealed_.end(),
                                 [&file](const ImageFile& f) { return f.name == file.name; });
    if (as == sealed_.end())
        return refuse_image("image file " + file.name + ": not in the manifest");
    return *as == file ? Status{} : refuse_image("image file " + file.name + ": damaged");
}

Status ImageReader::add_data() {
    char* to = piece_.get() + piece_end_;
    const size_t want = static_cast<size_t>(std::min<uint64_t>(left_, room()));
    TRY(read_plain(to, want));
    digest_.add({to, want});
    piece_end_ += want;
    left_ -= want;
    return {};
}

Status ImageReader::read_plain(char* to, size_t bytes) {
    const ImageFile& f = manifest_.files[index_];
    if (key_) return encrypted_->read(f.bytes - left_, to, bytes);
    for (size_t got = 0; got < bytes;) {
        const ssize_t n = ::read(file_.get(), to + got, bytes - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("read " + f.name, errno);
        if (n == 0) return fail("image file " + f.name + ": became shorter");
        got += static_cast<size_t>(n);
    }
    return {};
}

Result<ImageWriter> ImageWriter::open(int directory, uint64_t bytes_max) {
    ImageWriter w;
    TRY_ASSIGN(w.directory_, duplicate(directory));
    w.bytes_max_ = bytes_max;
    return w;
}

Status ImageWriter::take(std::string_view bytes) {
    TRY_ASSIGN(const std::string_view rest, take_to_end(bytes));
    return rest.empty() ? Status{} : fail("image stream: bytes after its end");
}

Result<std::string_view> ImageWriter::take_to_end(std::string_view bytes) {
    const auto collect = [&bytes](std::string& into, size_t size) {
        const size_t part = std::min(size - into.size(), bytes.size());
        into.append(bytes.substr(0, part));
        bytes.remove_prefix(part);
        return into.size() == size;
    };
    while (!bytes.empty() && stage_ != Stage::done) {
        const std::string_view from = bytes;
        const bool tagged = tag_ && stage_ != Stage::tag;
        switch (stage_) {
            case Stage::head:
                if (collect(head_, head_bytes)) TRY(take_head());
                break;
            case Stage::text:
                if (collect(text_, text_bytes_)) TRY(take_text());
                break;
            case Stage::tag:
                if (collect(text_, head_bytes + StreamTag::tag_bytes)) TRY(take_tag());
                break;
            case Stage::data: {
                const size_t part = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
                TRY(take_data(bytes.substr(0, part)));
                bytes.remove_prefix(part);
                break;
            }
            case Stage::done: break;
        }
        if (tagged) tag_->add(from.substr(0, from.size() - bytes.size()));
    }
    return bytes;
}

Status ImageWriter::take_head() {
    kind_ = static_cast<uint32_t>(get_le(head_.data(), 4));
    text_bytes_ = static_cast<uint32_t>(get_le(head_.data() + 4, 4));
    left_ = get_le(head_.data() + 8, 8);
    head_.clear();
    text_.clear();
    stage_ = Stage::text;
    if (kind_ == file_kind) {
        if (text_bytes_ == 0 || text_bytes_ > name_max)
            return fail("image stream: a bad file name");
        if (left_ > bytes_max_ - bytes_done_)
            return fail_errno("image stream: larger than was agreed", ENOSPC);
        return {};
    }
    if (kind_ != manifest_kind || left_ != 0) return fail("image stream: an unexpected section");
    if (text_bytes_ == 0 || text_bytes_ > manifest_bytes_max)
        return fail("image stream: manifest too long");
    return {};
}

Status ImageWriter::take_text() {
    if (kind_ == manifest_kind) return finish();
    if (!valid_image_name(text_) || !is_image_file(text_))
        return fail("image stream: a bad file name");
    if (!files_.empty() && files_.back().name >= text_)
        return fail("image stream: files out of order");
    if (files_.size() >= image_files_max) return fail("image stream: too many files");
    TRY_ASSIGN(file_,
               open_at(directory_.get(), text_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    if (key_) {
        TRY_ASSIGN(encrypted_, EncryptedWriter::open(std::move(file_), text_, key_, left_));
    }
    files_.push_back({text_, 0, {}});
    digest_.reset();
    stage_ = Stage::data;
    return left_ == 0 ? end_file() : Status{};
}

Status ImageWriter::take_data(std::string_view bytes) {
    TRY(key_ ? encrypted_->add(bytes)
             : write_all(file_.get(), bytes, "write image file " + files_.back().name));
    digest_.add(bytes);
    files_.back().bytes += bytes.size();
    bytes_done_ += bytes.size();
    left_ -= bytes.size();
    return left_ == 0 ? end_file() : Status{};
}

Status ImageWriter::end_file() {
    files_.back().digest = digest_.hex();
    if (key_) {
        TRY_ASSIGN(ImageFile stored, encrypted_->end());
        stored_.push_back(std::move(stored));
        encrypted_.reset();
    }
    file_.reset();
    stage_ = Stage::head;
    return {};
}

Status ImageWriter::finish() {
    TRY_ASSIGN(manifest_, decode_manifest(text_));
    if (manifest_.files.size() != files_.size()) return fail("image stream: files are missing");
    for (size_t i = 0; i < files_.size(); ++i)
        if (manifest_.files[i] != files_[i])
            return fail("image stream: file " + files_[i].name + " came damaged");
    if (!manifest_.salt.empty()) return fail("image stream: an image that is encrypted already");
    if (key_) manifest_.files = std::move(stored_);
    text_.clear();
    stage_ = tag_ ? Stage::tag : Stage::done;
    return {};
}

// Takes the head and the text of the tag together, because both have one form only.
Status ImageWriter::take_tag() {
    const std::string_view tag = std::string_view(text_).substr(head_bytes);
    if (get_le(text_.data(), 4) != tag_kind || get_le(text_.data() + 4, 4) != tag.size() ||
        get_le(text_.data() + 8, 8) != 0)
        return fail("image stream: an unexpected section");
    TRY_ASSIGN(const std::string is, tag_->end());
    if (!same_tag(tag, is))
        return fail(
            "image stream: it was not made for this job, epoch, node and user by the node "
            "that its home named");
    stage_ = Stage::done;
    return {};
}

}  // namespace souk
