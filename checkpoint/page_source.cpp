// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/page_source.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

#include "checkpoint/stream.hpp"

namespace souk {
namespace {
constexpr size_t head_bytes = section_head_bytes + pages_text_bytes;
static_assert(head_bytes + section_pages_max * page_bytes <= stream_piece_max);
}  // namespace

Result<std::vector<PageRange>> lazy_ranges(int image_directory) {
    constexpr std::string_view prefix = "pagemap-", suffix = ".img";
    std::vector<PageRange> all;
    TRY_ASSIGN(const auto names, list_dir(image_directory, "."));
    for (const std::string& name : names) {
        pid_t pid = 0;
        if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
        const char* const end = name.data() + name.size() - suffix.size();
        const auto parsed = std::from_chars(name.data() + prefix.size(), end, pid);
        if (parsed.ec != std::errc{} || parsed.ptr != end) continue;  // pagemap-shmem-N: never left out
        TRY_ASSIGN(const std::string image, read_file(image_directory, name, 64 << 20));
        auto ranges = lazy_ranges_of(image, pid);
        if (!ranges) return wrap(name, ranges.error());
        all.insert(all.end(), ranges->begin(), ranges->end());
    }
    std::stable_sort(all.begin(), all.end(), [](const PageRange& a, const PageRange& b) { return a.pid < b.pid; });
    return all;
}

std::map<pid_t, pid_t> pids_inside(const std::vector<pid_t>& pids) {
    std::map<pid_t, pid_t> inside;
    for (const pid_t pid : pids) {
        const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/status");
        if (!status) continue;
        const size_t line = status->find("\nNSpid:");
        if (line == std::string::npos) continue;
        const size_t end = status->find('\n', line + 1), last = status->find_last_of("\t ", end);
        pid_t inner = 0;
        std::from_chars(status->data() + last + 1, status->data() + std::min(end, status->size()), inner);
        inside[inner] = pid;
    }
    return inside;
}

Result<PageSource> PageSource::open(std::vector<PageRange> ranges, const std::map<pid_t, pid_t>& pids) {
    PageSource s;
    for (const PageRange& r : ranges) {
        s.bytes_total_ += r.pages * page_bytes;
        const auto known = pids.find(r.pid);
        if (known == pids.end()) return fail("process " + std::to_string(r.pid) + " of the image is not there");
        s.processes_[r.pid].pid = known->second;
    }
    s.ranges_ = std::move(ranges);
    s.piece_ = std::make_unique_for_overwrite<char[]>(stream_piece_max);
    return s;
}

void PageSource::wish(const PageRange& range) {
    if (wishes_.size() < wishes_max && processes_.contains(range.pid)) wishes_.push_back(range);
}

void PageSource::acknowledged(uint64_t bytes) {
    started_ = true;
    bytes_acknowledged_ = std::min(std::max(bytes, bytes_acknowledged_), bytes_sent_);
}

Result<std::string_view> PageSource::piece() {
    if (piece_at_ == piece_end_) TRY(fill());
    return std::string_view(piece_.get() + piece_at_, piece_end_ - piece_at_);
}

// As much as fits: small ranges go together.
Status PageSource::fill() {
    piece_at_ = piece_end_ = 0;
    while (stream_piece_max - piece_end_ >= head_bytes + page_bytes) {
        const uint64_t room = std::min((stream_piece_max - piece_end_ - head_bytes) / page_bytes, section_pages_max);
        if (!wishes_.empty()) {
            PageRange& wish = wishes_.front();
            const PageRange part{wish.pid, wish.start, std::min(wish.pages, room)};
            TRY(add(part));
            wish.start += part.pages * page_bytes;
            if ((wish.pages -= part.pages) == 0) wishes_.pop_front();
        } else if (!started_) {
            return {};
        } else if (index_ == ranges_.size()) {
            if (!std::exchange(ended_, true)) TRY(add({}));
            return {};
        } else {
            if (bytes_sent_ - bytes_acknowledged_ >= window_bytes) return {};
            const PageRange& r = ranges_[index_];
            const PageRange part{r.pid, r.start + index_done_ * page_bytes, std::min(r.pages - index_done_, room)};
            TRY(add(part));
            if ((index_done_ += part.pages) == r.pages) {
                ++index_;
                index_done_ = 0;
            }
        }
    }
    return {};
}

Status PageSource::add(const PageRange& range) {
    char* const to = piece_.get() + piece_end_;
    put_pages_head(to, range);
    const size_t bytes = range.pages * page_bytes;
    if (bytes > 0) TRY(read(processes_.at(range.pid), range.start, to + head_bytes, bytes));
    piece_end_ += head_bytes + bytes;
    bytes_sent_ += bytes;
    return {};
}

Status PageSource::read(Process& process, uint64_t from, char* to, size_t bytes) {
    for (size_t got = 0; got < bytes;) {
        // An address of another process. NOLINTNEXTLINE(performance-no-int-to-ptr)
        iovec there{reinterpret_cast<void*>(from + got), bytes - got}, here{to + got, bytes - got};
        ssize_t n = ::process_vm_readv(process.pid, &here, 1, &there, 1, 0);
        if (n <= 0) {
            if (n < 0 && errno != EFAULT) return fail_errno("read the memory of process " + std::to_string(process.pid), errno);
            // Memory that the job itself may not read (PROT_NONE) is read page by page, as a debugger does.
            if (!process.memory) {
                TRY_ASSIGN(process.memory, open_at(AT_FDCWD, "/proc/" + std::to_string(process.pid) + "/mem", O_RDONLY));
            }
            n = ::pread(process.memory.get(), to + got, page_bytes, static_cast<off_t>(from + got));
            if (n <= 0) return fail_errno("read the memory of process " + std::to_string(process.pid), n < 0 ? errno : ESRCH);
        }
        got += static_cast<size_t>(n);
    }
    return {};
}

}  // namespace souk
