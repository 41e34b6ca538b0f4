// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/contents.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace souk::files {
namespace {

constexpr size_t slice_bytes = 1 << 20;
// A file that was written just now may be written again in the same tick of its clock.
constexpr int64_t settled_s = 2;

}  // namespace

Stamp stamp_of(const struct stat& st) {
    return {st.st_mtim.tv_sec, st.st_ctim.tv_sec, static_cast<uint32_t>(st.st_mtim.tv_nsec),
            static_cast<uint32_t>(st.st_ctim.tv_nsec), static_cast<uint64_t>(st.st_size)};
}

Stamp stamp_of(const struct statx& st) {
    return {st.stx_mtime.tv_sec, st.stx_ctime.tv_sec, st.stx_mtime.tv_nsec, st.stx_ctime.tv_nsec,
            st.stx_size};
}

// A nonce of another store: what was proven to that one is of no use.
void Contents::begin(const Prove& prove) {
    prove_ = prove;
    queue_.clear();
    known_.clear();
    ready_.clear();
}

void Contents::told(uint64_t node, const ContentId& id, const Stamp& stamp) {
    ready_.push_back({node, id, static_cast<uint64_t>(stamp.mtime_s),
                      static_cast<uint64_t>(stamp.ctime_s), stamp.mtime_ns, stamp.ctime_ns});
}

bool Contents::is_settled(const Stamp& stamp) {
    if (stamp.size < content_bytes_min || stamp.size > content_bytes_max) return false;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return now.tv_sec - stamp.ctime_s >= settled_s && now.tv_sec - stamp.mtime_s >= settled_s;
}

Contents::Job* Contents::queued(const File& file, const Stamp& stamp) {
    for (Job& job : queue_)
        if (job.file == file && job.stamp == stamp) return &job;
    return nullptr;
}

void Contents::opened(uint64_t node, int fd, const struct stat& st) {
    if (!prove_) return;
    const Stamp stamp = stamp_of(st);
    const File file{st.st_dev, st.st_ino};
    if (const auto it = known_.find(file); it != known_.end() && it->second.first == stamp)
        return told(node, it->second.second, stamp);
    if (!is_settled(stamp)) return;
    if (Job* job = queued(file, stamp)) {
        job->node = node;
        return;
    }
    begin({node, file, Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)), stamp, ContentHash(*prove_)}, true);
}

void Contents::expect(int fd, const struct stat& st, uint64_t node) {
    if (!prove_) return;
    const Stamp stamp = stamp_of(st);
    const File file{st.st_dev, st.st_ino};
    const auto it = known_.find(file);
    if ((it != known_.end() && it->second.first == stamp) || !is_settled(stamp) ||
        queued(file, stamp))
        return;
    begin({node, file, Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)), stamp, ContentHash(*prove_)}, false);
}

// A small one at once, if it is wanted now.
void Contents::begin(Job job, bool at_once) {
    if (!job.fd || queue_.size() >= queue_max) return;
    if (at_once && job.stamp.size <= slice_bytes)
        (void)slice(job);
    else
        queue_.push_back(std::move(job));
}

// Returns false if that slice was the last.
bool Contents::slice(Job& job) {
    static thread_local Bytes buffer(slice_bytes);
    const ssize_t got =
        ::pread(job.fd.get(), buffer.data(), buffer.size(), static_cast<off_t>(job.hash.size()));
    if (got < 0) return false;
    job.hash.update({buffer.data(), static_cast<size_t>(got)});
    if (got > 0 && job.hash.size() < job.stamp.size) return true;
    struct stat st {};
    if (::fstat(job.fd.get(), &st) != 0 || stamp_of(st) != job.stamp) return false;
    const ContentId id = job.hash.finish();
    if (id.size != job.stamp.size) return false;
    if (known_.size() >= kept_max) known_.clear();
    known_[job.file] = {job.stamp, id};
    if (job.node != 0) told(job.node, id, job.stamp);
    return false;
}

bool Contents::work() {
    if (queue_.empty()) return false;
    if (!slice(queue_.front())) queue_.pop_front();
    return !queue_.empty();
}

}  // namespace souk::files
