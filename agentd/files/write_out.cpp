// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/write_out.hpp"

#include <fcntl.h>
#include <pthread.h>

#include "kernel/sys/host/fd.hpp"

namespace souk::files {
namespace {

struct Range {
    Fd file;
    off_t at, bytes;
    std::shared_ptr<bool> busy;
};

// Errors are ignored here, because the file's fsync reports them.
void* bring(void* given) {
    const std::unique_ptr<Range> range(static_cast<Range*>(given));
    (void)::sync_file_range(range->file.get(), range->at, range->bytes, SYNC_FILE_RANGE_WRITE);
    range->file.reset();
    __atomic_store_n(range->busy.get(), false, __ATOMIC_RELEASE);
    return nullptr;
}

}  // namespace

WriteOut::WriteOut() : busy_(std::make_shared<bool>(false)) {}

bool WriteOut::busy() const { return __atomic_load_n(busy_.get(), __ATOMIC_ACQUIRE); }

bool WriteOut::wrote(int fd, uint64_t offset, uint64_t bytes, WriteRun& run) {
    if (offset != run.end) run.begin = offset;
    run.end = offset + bytes;
    if (run.end - run.begin < worth_bytes || busy()) return false;
    Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!copy) return false;
    auto range = std::make_unique<Range>(Range{std::move(copy), static_cast<off_t>(run.begin),
                                               static_cast<off_t>(run.end - run.begin), busy_});
    *busy_ = true;
    pthread_t thread;
    if (::pthread_create(&thread, nullptr, bring, range.get()) != 0) {
        *busy_ = false;
        return false;
    }
    (void)range.release();
    ::pthread_detach(thread);
    run.begin = run.end;
    return true;
}

}  // namespace souk::files
