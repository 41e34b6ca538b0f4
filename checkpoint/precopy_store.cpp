// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/precopy_store.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <tuple>

#include "checkpoint/images.hpp"
#include "kernel/base/number.hpp"

namespace souk {
namespace {
// stays in a core's own cache from one end to the other
constexpr size_t precopy_buffer_bytes = 256 * 1024;
constexpr size_t processes_max = 4096;
constexpr uint64_t slack_bytes = 64 << 20;
}  // namespace

Status room_precopy(uint64_t bytes) {
    TRY_ASSIGN(const std::string text, read_file(AT_FDCWD, "/proc/meminfo"));
    constexpr std::string_view key = "MemAvailable:";
    size_t at = text.find(key);
    at = at == std::string::npos ? at : text.find_first_not_of(' ', at + key.size());
    const auto kb = at == std::string::npos
                        ? std::nullopt
                        : leading_number<uint64_t>(std::string_view(text).substr(at));
    if (!kb) return fail("/proc/meminfo does not say what is available");
    const uint64_t need = bytes + bytes / 8 + slack_bytes;
    if (*kb << 10 >= need) return {};
    return fail("no room for its memory: about " + std::to_string(need >> 20) + " MB are needed, " +
                std::to_string(*kb >> 10) + " MB are available");
}

Status PrecopyStore::put(const PageRange& range, std::string_view bytes) {
    if (bytes.size() != range.pages * page_bytes || range.pid <= 0)
        return fail("pages sent ahead that are none");
    if (processes_.size() >= processes_max && !processes_.contains(range.pid))
        return fail("memory of too many processes");
    Process& process = processes_[range.pid];
    if (!process.memory) {
        process.memory = Fd(::memfd_create("souk-ahead", MFD_CLOEXEC));
        if (!process.memory) return fail_errno("memory for what is sent ahead", errno);
    }
    const uint64_t start = range.start, end = start + bytes.size();
    uint64_t from = start, to = end;
    // Join the new range with those that it touches, and count the bytes that were here before.
    auto it = process.have.upper_bound(start);
    if (it != process.have.begin() && std::prev(it)->second >= start) --it;
    uint64_t known = 0;
    while (it != process.have.end() && it->first <= end) {
        const uint64_t overlap_from = std::max(it->first, start),
                       overlap_to = std::min(it->second, end);
        if (overlap_from < overlap_to) known += overlap_to - overlap_from;
        from = std::min(from, it->first);
        to = std::max(to, it->second);
        it = process.have.erase(it);
    }
    process.have.emplace(from, to);
    bytes_held_ += bytes.size() - known;
    if (bytes_held_ > bytes_max_) return fail("more memory was sent ahead than was announced");
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t n = ::pwrite(process.memory.get(), bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(start + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno("keep what was sent ahead", n < 0 ? errno : ENOSPC);
        done += static_cast<size_t>(n);
    }
    bytes_taken_ += bytes.size();
    return {};
}

bool PrecopyStore::has(const PageRange& range) const {
    const auto process = processes_.find(range.pid);
    if (process == processes_.end()) return false;
    auto it = process->second.have.upper_bound(range.start);
    return it != process->second.have.begin() &&
           std::prev(it)->second >= range.start + range.pages * page_bytes;
}

Status PrecopyStore::read(const PageRange& range, char* to) const {
    const Process& process = processes_.at(range.pid);
    const size_t bytes = range.pages * page_bytes;
    for (size_t got = 0; got < bytes;) {
        const ssize_t n = ::pread(process.memory.get(), to + got, bytes - got,
                                  static_cast<off_t>(range.start + got));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno("read what was sent ahead", n < 0 ? errno : ENODATA);
        got += static_cast<size_t>(n);
    }
    return {};
}

Status PrecopyStore::use(PrecopyList list) {
    for (const PageRange& r : list.ranges)
        if (!has(r))
            return fail("memory of process " + std::to_string(r.pid) + " was not sent ahead");
    buffer_ = std::make_unique_for_overwrite<char[]>(precopy_buffer_bytes);
    list_ = std::move(list);
    bytes_to_use_ = bytes_of(list_.ranges);
    return list_.digest.empty() ? Status{} : check_digest();
}

// Reads all of it in one go, which is for tests and for whoever doubts.
Status PrecopyStore::check_digest() const {
    Digest digest;
    for (const PageRange& r : list_.ranges)
        for (uint64_t done = 0; done < r.pages;) {
            const uint64_t part =
                std::min<uint64_t>(r.pages - done, precopy_buffer_bytes / page_bytes);
            TRY(read({r.pid, r.start + done * page_bytes, part}, buffer_.get()));
            digest.add({buffer_.get(), part * page_bytes});
            done += part;
        }
    if (digest.hex() != list_.digest)
        return fail("the memory that was sent ahead is not the job's");
    return {};
}

Result<PrecopyStore::Piece> PrecopyStore::next() {
    // Free the memory of the piece before, because its pages are in place by now. A failure costs
    // only memory, for a while.
    if (last_.pages > 0)
        (void)::fallocate(
            processes_.at(last_.pid).memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(last_.start), static_cast<off_t>(last_.pages * page_bytes));
    last_ = {};
    if (index_ == list_.ranges.size()) return Piece{};
    const PageRange& r = list_.ranges[index_];
    const PageRange part{
        r.pid, r.start + index_done_ * page_bytes,
        std::min<uint64_t>(r.pages - index_done_, precopy_buffer_bytes / page_bytes)};
    TRY(read(part, buffer_.get()));
    last_ = part;
    if ((index_done_ += part.pages) == r.pages) {
        ++index_;
        index_done_ = 0;
    }
    return Piece{part, {buffer_.get(), part.pages * page_bytes}};
}

Result<PrecopyStore::Piece> PrecopyStore::at(const PageRange& wish) {
    const auto after = std::upper_bound(
        list_.ranges.begin(), list_.ranges.end(), wish, [](const PageRange& a, const PageRange& b) {
            return std::tie(a.pid, a.start) < std::tie(b.pid, b.start);
        });
    if (after == list_.ranges.begin()) return Piece{};
    const PageRange& in = *std::prev(after);
    const uint64_t skip = (wish.start - in.start) / page_bytes;
    if (in.pid != wish.pid || skip >= in.pages) return Piece{};
    const PageRange part{
        wish.pid, wish.start,
        std::min<uint64_t>({wish.pages, in.pages - skip, precopy_buffer_bytes / page_bytes})};
    TRY(read(part, buffer_.get()));
    return Piece{part, {buffer_.get(), part.pages * page_bytes}};
}

}  // namespace souk
