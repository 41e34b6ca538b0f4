// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/spool.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "kernel/base/check.hpp"
#include "kernel/base/number.hpp"

namespace souk {
namespace {

constexpr const char* endings[2] = {".out", ".err"};
constexpr std::string_view spare = "spare.";
constexpr size_t spares_max = 1'024;
constexpr uint64_t hole_bytes_min = 1 << 20;  // holes are punched in pieces of at least this

std::string written_name(uint64_t seq) { return std::to_string(seq) + ".written"; }

}  // namespace

SpoolDir::SpoolDir(Fd dir) : dir_(std::move(dir)) {
    const auto names = list_dir(dir_.get(), ".");  // what a daemon before has left
    for (const std::string& name : names ? *names : std::vector<std::string>{}) {
        if (!name.starts_with(spare)) continue;
        const auto number = leading_number<uint64_t>(std::string_view(name).substr(spare.size()));
        next_spare_ = std::max<uint64_t>(next_spare_, number.value_or(0) + 1);
        spares_.push_back(name);
    }
}

Result<Spool> SpoolDir::open(uint64_t seq) {
    Spool spool;
    for (int i = 0; i < 2; ++i) {
        Spool::File& f = spool.streams_[i];
        const std::string name = std::to_string(seq) + endings[i];
        // A file of that name is the job's own, and stays.
        if (!spares_.empty() && ::renameat2(dir_.get(), spares_.back().c_str(), dir_.get(),
                                            name.c_str(), RENAME_NOREPLACE) == 0)
            spares_.pop_back();
        TRY_ASSIGN(f.fd, open_at(dir_.get(), name, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
        struct stat st {};
        if (::fstat(f.fd.get(), &st) != 0) return fail_errno("stat of a spool", errno);
        f.end = static_cast<uint64_t>(st.st_size);
        const off_t data = f.end == 0 ? 0 : ::lseek(f.fd.get(), 0, SEEK_DATA);
        f.begin = data < 0 ? f.end : static_cast<uint64_t>(data);
    }
    return spool;
}

void SpoolDir::remove(uint64_t seq) {
    for (const char* ending : endings) {
        const std::string name = std::to_string(seq) + ending,
                          kept = std::string(spare) + std::to_string(next_spare_);
        // Only what never held a byte: a crash of the machine must not bring back what was another
        // job's.
        struct stat st {};
        const bool unused = ::fstatat(dir_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                            S_ISREG(st.st_mode) && st.st_size == 0;
        if (unused && spares_.size() < spares_max &&
            ::renameat2(dir_.get(), name.c_str(), dir_.get(), kept.c_str(), RENAME_NOREPLACE) ==
                0) {
            spares_.push_back(kept);
            ++next_spare_;
        } else {
            ::unlinkat(dir_.get(), name.c_str(), 0);
        }
    }
    ::unlinkat(dir_.get(), written_name(seq).c_str(), 0);
}

uint64_t SpoolDir::bytes(uint64_t seq) const {
    uint64_t bytes = 0;
    for (const char* ending : endings) {
        struct stat st {};
        if (::fstatat(dir_.get(), (std::to_string(seq) + ending).c_str(), &st,
                      AT_SYMLINK_NOFOLLOW) == 0)
            bytes += static_cast<uint64_t>(st.st_blocks) * 512;
    }
    return bytes;
}

Result<Fd> SpoolDir::open_written(uint64_t seq) {
    return open_at(dir_.get(), written_name(seq), O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
}

void SpoolDir::read_written(uint64_t seq, uint64_t written[2]) const {
    const auto note = open_at(dir_.get(), written_name(seq), O_RDONLY | O_NOFOLLOW);
    constexpr size_t size = 2 * sizeof(uint64_t);
    if (!note || ::pread(note->get(), written, size, 0) != size) written[0] = written[1] = 0;
}

Status Spool::append(int stream, uint64_t offset, std::string_view bytes) {
    File& f = streams_[stream];
    if (offset > f.end) return tl::unexpected(Error{EAGAIN, "output has a gap"});
    if (offset + bytes.size() <= f.end) return {};
    bytes.remove_prefix(f.end - offset);
    while (!bytes.empty()) {
        const ssize_t n =
            ::pwrite(f.fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(f.end));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno("keep output", n < 0 ? errno : ENOSPC);
        f.end += static_cast<uint64_t>(n);
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return {};
}

Result<std::string> Spool::read(int stream, uint64_t offset, size_t bytes_max) const {
    const File& f = streams_[stream];
    MUST(offset >= f.begin && offset <= f.end);
    std::string bytes(std::min<uint64_t>(bytes_max, f.end - offset), '\0');
    if (bytes.empty()) return bytes;
    const ssize_t n = ::pread(f.fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0) return fail_errno("read kept output", errno);
    bytes.resize(static_cast<size_t>(n));
    return bytes;
}

void Spool::forget_before(int stream, uint64_t offset) {
    File& f = streams_[stream];
    offset = std::min(offset, f.end);
    if (offset < f.begin + hole_bytes_min) return;
    const uint64_t aligned = offset & ~uint64_t{4095};
    // A file system without holes keeps all; what it keeps is not counted, or the job would wait
    // for room for good.
    (void)::fallocate(f.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      static_cast<off_t>(aligned));
    f.begin = aligned;
}

}  // namespace souk
