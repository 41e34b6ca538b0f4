// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/page_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "checkpoint/sent_pages.hpp"

namespace souk {
namespace {
// this much stays in a core's own cache from one end to the other
constexpr size_t buffer_bytes = 256 * 1024;
static_assert(buffer_bytes == ChunkCipher::chunk_bytes);
constexpr size_t file_slice_bytes = 1 << 20;  // between two looks at what else there is to do
// The disk is given so much at a time, and no more than twice that waits for it.
constexpr uint32_t sync_bytes = 32 << 20;
// This bounds each burst if the transfer must leave the disk to others.
constexpr uint32_t sync_bytes_slow = 4 << 20;
constexpr int syncs_max = 2;

Status read_all(int file, uint64_t at, char* to, size_t bytes) {
    for (size_t got = 0; got < bytes;) {
        const ssize_t n = ::pread(file, to + got, bytes - got, static_cast<off_t>(at + got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(std::string("read ") + page_file_name, errno);
        if (n == 0) return refuse_image(std::string("image file ") + page_file_name + ": damaged");
        got += static_cast<size_t>(n);
    }
    return {};
}
}  // namespace

// ---- out of the job

Result<std::unique_ptr<PageFileWrite>> PageFileWrite::start(Loop& loop, int image_directory,
                                                            const Target& to,
                                                            const std::map<pid_t, pid_t>& pids,
                                                            Done done,
                                                            const OpenProcessFiles& open) {
    std::unique_ptr<PageFileWrite> w(new PageFileWrite(loop, std::move(done)));
    TRY_ASSIGN(w->ranges_, lazy_ranges(image_directory));
    TRY_ASSIGN(w->memory_, FrozenMemory::open(w->ranges_, pids, open));
    TRY_ASSIGN(w->file_, open_at(to.directory, page_file_name, O_WRONLY | O_CREAT | O_EXCL, 0600));
    const uint64_t plain = bytes_of(w->ranges_);
    const auto bytes = static_cast<off_t>(to.key ? ChunkCipher::stored_bytes(plain) : plain);
    w->bytes_ = static_cast<uint64_t>(bytes);
    if (bytes > 0 && ::fallocate(w->file_.get(), 0, 0, bytes) != 0 && errno != EOPNOTSUPP)
        return fail_errno("room for its memory", errno);
    if (to.key) {
        TRY_ASSIGN(w->encrypted_,
                   EncryptedWriter::open(std::move(w->file_), page_file_name, to.key, plain));
    }
    w->buffer_ = std::make_unique_for_overwrite<char[]>(buffer_bytes);
    w->syncs_.resize(syncs_max + 1);
    w->share_ = RateShare(to.rate, buffer_bytes);
    w->again_ = loop.after(Nanos{}, [self = w.get()] { self->go_on(); });
    return w;
}

void PageFileWrite::go_on() {
    for (const uint64_t until = written_ + file_slice_bytes;
         written_ < until && index_ < ranges_.size() &&
         share_.room(buffer_bytes, Loop::now()) > 0;) {
        if (auto written = fill_and_write(); !written) return end(std::move(written));
        share_.went(buffer_bytes);
    }
    const bool all = index_ == ranges_.size();
    const uint64_t unsynced = written_ - sync_from_;
    if (!all && unsynced >= (share_.limited() ? sync_bytes_slow : sync_bytes)) {
        if (auto begun = sync(std::exchange(sync_from_, written_), static_cast<uint32_t>(unsynced));
            !begun)
            return end(std::move(begun));
    }
    if (all && syncing_ == 0) {
        last_ = true;
        if (auto made = encrypted_ ? encrypted_->end() : Result<ImageFile>(ImageFile{}); made)
            made_ = std::move(*made);
        else
            return end(tl::unexpected(made.error()));
        if (auto begun = sync(0, 0); !begun) return end(std::move(begun));
    } else if (!all && syncing_ < syncs_max) {
        again_ = loop_.after(share_.wait(Loop::now()), [this] { go_on(); });
    }  // else when a sync has ended
}

// One buffer: small ranges go together.
Status PageFileWrite::fill_and_write() {
    size_t filled = 0;
    while (filled < buffer_bytes && index_ < ranges_.size()) {
        const PageRange& r = ranges_[index_];
        const PageRange part{
            r.pid, r.start + index_done_ * page_bytes,
            std::min<uint64_t>(r.pages - index_done_, (buffer_bytes - filled) / page_bytes)};
        TRY(memory_.read(part, buffer_.get() + filled));
        filled += part.pages * page_bytes;
        if ((index_done_ += part.pages) == r.pages) {
            ++index_;
            index_done_ = 0;
        }
    }
    if (!encrypted_) return write_plain(filled);
    TRY(encrypted_->add_chunk(buffer_.get(), filled));
    written_ = encrypted_->written();
    return {};
}

Status PageFileWrite::write_plain(size_t bytes) {
    digest_.add({buffer_.get(), bytes});
    for (size_t done = 0; done < bytes;) {
        const ssize_t n =
            ::pwrite(file_.get(), buffer_.get() + done, bytes - done, static_cast<off_t>(written_));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno("write its memory", n < 0 ? errno : ENOSPC);
        done += static_cast<size_t>(n);
        written_ += static_cast<uint64_t>(n);
    }
    return {};
}

Status PageFileWrite::sync(uint64_t from, uint32_t bytes) {
    const auto place = std::find_if(syncs_.begin(), syncs_.end(), [](const Sync& s) { return !s; });
    TRY_ASSIGN(*place, loop_.sync(fd(), from, bytes,
                                  [this, i = place - syncs_.begin()](const Status& status) {
                                      syncs_[static_cast<size_t>(i)].close();
                                      synced(status);
                                  }));
    ++syncing_;
    return {};
}

void PageFileWrite::synced(const Status& status) {
    --syncing_;
    if (!status || last_) return end(status);
    if (!again_.waiting()) go_on();
}

void PageFileWrite::end(Status status) {
    again_.cancel();
    syncs_.clear();
    const Done done = std::move(done_);
    if (!status) return done(tl::unexpected(status.error()));
    done(encrypted_ ? *made_ : ImageFile{page_file_name, written_, digest_.hex()});
}

// ---- into the restored one

Result<std::unique_ptr<PageFileRead>> PageFileRead::open(Loop& loop, Fd file,
                                                         std::vector<PageRange> ranges,
                                                         std::string digest) {
    struct stat st {};
    if (::fstat(file.get(), &st) != 0) return fail_errno(page_file_name, errno);
    std::unique_ptr<PageFileRead> r(
        new PageFileRead(loop, std::move(file), std::move(ranges), std::move(digest)));
    TRY(r->take_ranges(static_cast<uint64_t>(st.st_size)));
    return r;
}

Result<std::unique_ptr<PageFileRead>> PageFileRead::open(Loop& loop, EncryptedReader file,
                                                         std::vector<PageRange> ranges) {
    std::unique_ptr<PageFileRead> r(new PageFileRead(loop, Fd{}, std::move(ranges), ""));
    const uint64_t bytes = file.bytes();
    r->encrypted_ = std::move(file);
    TRY(r->take_ranges(bytes));
    return r;
}

Status PageFileRead::take_ranges(uint64_t bytes_in_file) {
    for (const PageRange& range : ranges_) {
        offsets_.push_back(bytes_);
        bytes_ += range.pages * page_bytes;
    }
    if (bytes_in_file != bytes_)
        return refuse_image(std::string("image file ") + page_file_name + ": " +
                            std::to_string(bytes_in_file) + " bytes, not " +
                            std::to_string(bytes_));
    buffer_ = std::make_unique_for_overwrite<char[]>(buffer_bytes);
    return {};
}

// Reads into the buffer.
Status PageFileRead::read_bytes(uint64_t at, size_t bytes) {
    return encrypted_ ? encrypted_->read(at, buffer_.get(), bytes)
                      : read_all(file_.get(), at, buffer_.get(), bytes);
}

Status PageFileRead::read(const PageRange& range, const Put& put) {
    const auto before = [](const PageRange& a, const PageRange& b) {
        return std::pair(a.pid, a.start) < std::pair(b.pid, b.start);
    };
    for (PageRange left = range; left.pages > 0;) {
        const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), left, before);
        if (after == ranges_.begin()) return {};
        const PageRange& in = *(after - 1);
        const uint64_t skip = left.start - in.start;
        if (in.pid != left.pid || skip >= in.pages * page_bytes) return {};  // not in the image
        const PageRange part{left.pid, left.start,
                             std::min<uint64_t>({left.pages, in.pages - skip / page_bytes,
                                                 buffer_bytes / page_bytes})};
        const size_t bytes = part.pages * page_bytes;
        TRY(read_bytes(offsets_[static_cast<size_t>(after - 1 - ranges_.begin())] + skip, bytes));
        TRY(put(part, {buffer_.get(), bytes}));
        if (stopped_) return {};
        left.start += bytes;
        left.pages -= part.pages;
    }
    return {};
}

void PageFileRead::start(Put put, Done done) {
    put_ = std::move(put);
    done_ = std::move(done);
    again_ = loop_.after(Nanos{}, [this] { go_on(); });
}

void PageFileRead::stop() {
    stopped_ = true;
    again_.cancel();
}

void PageFileRead::go_on() {
    const auto tell = [this](Status status) {
        const Done done = std::move(done_);
        done(std::move(status));
    };
    for (const uint64_t until = at_ + file_slice_bytes; at_ < until && at_ < bytes_;) {
        auto put = read_piece();
        if (stopped_) return;
        if (!put) return tell(std::move(put));
    }
    if (at_ < bytes_) {
        again_ = loop_.after(Nanos{}, [this] { go_on(); });
        return;
    }
    tell(encrypted_ || digest_.hex() == wanted_digest_
             ? Status{}
             : refuse_image(std::string("image file ") + page_file_name + ": damaged"));
}

Status PageFileRead::read_piece() {
    const size_t bytes = std::min<uint64_t>(buffer_bytes, bytes_ - at_);
    TRY(read_bytes(at_, bytes));
    if (!encrypted_) digest_.add({buffer_.get(), bytes});
    at_ += bytes;
    for (size_t used = 0; used < bytes && !stopped_;) {
        const PageRange& r = ranges_[index_];
        const uint64_t part = std::min<uint64_t>(r.pages * page_bytes - index_done_, bytes - used);
        TRY(put_({r.pid, r.start + index_done_, part / page_bytes}, {buffer_.get() + used, part}));
        used += part;
        if ((index_done_ += part) == r.pages * page_bytes) {
            ++index_;
            index_done_ = 0;
        }
    }
    return {};
}

}  // namespace souk
