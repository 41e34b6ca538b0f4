// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/precopy_source.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "checkpoint/frozen_memory.hpp"
#include "checkpoint/pages.hpp"
#include "checkpoint/stream.hpp"
#include "kernel/sys/process/process.hpp"

namespace souk {
namespace {
constexpr size_t precopy_head_bytes = section_head_bytes + pages_text_bytes;
constexpr size_t entries_at_once = 64 * 1024;
constexpr uint32_t files_max = 4096;  // of a process that are looked at

std::string proc(pid_t pid, const char* name) {
    return "/proc/" + std::to_string(pid) + "/" + name;
}

// Returns how many entries came; none if the address space is gone.
size_t read_entries(int pagemap, uint64_t address, uint64_t* to, size_t count) {
    const ssize_t n = ::pread(pagemap, to, count * sizeof *to,
                              static_cast<off_t>(address / page_bytes * sizeof *to));
    return n > 0 ? static_cast<size_t>(n) / sizeof *to : 0;
}

// Pages that several processes share go with the image, once each. Pages in swap do too, because
// the kernel does not tell whether they are shared.
bool goes_precopy(uint64_t entry) {
    return pagemap::has_page(entry) && pagemap::is_exclusive(entry);
}
}  // namespace

PrecopySource::PrecopySource(OpenProcessFiles open, LookAt look)
    : open_(std::move(open)),
      look_(std::move(look)),
      piece_(std::make_unique_for_overwrite<char[]>(stream_piece_max)) {}

void PrecopySource::expect(const std::vector<pid_t>& pids) {
    expected_.clear();
    std::vector<pid_t> fresh;
    for (const pid_t pid : pids) {
        const auto has = [pid](const auto& known) { return known.second.pid == pid; };
        if (std::ranges::none_of(processes_, has)) fresh.push_back(pid);
    }
    if (fresh.empty()) return;
    std::vector<Fd> marks = open_(fresh, ProcessFile::written_marks);
    for (size_t i = 0; i < fresh.size(); ++i) expected_[fresh[i]] = std::move(marks[i]);
}

namespace {
// A program that reads or clears the marks itself (a garbage collector may) would be disturbed, and
// disturb.
bool tracks_itself(const SeenProcess& process) {
    if (process.files.size() > files_max) return true;  // not looked at
    return std::ranges::any_of(process.files, [](const SeenFile& f) {
        return f.target.starts_with("/proc/") &&
               (f.target.ends_with("/clear_refs") || f.target.ends_with("/pagemap"));
    });
}
}  // namespace

Status PrecopySource::look(const std::vector<pid_t>& pids) {
    std::map<pid_t, Process> now;
    left_bytes_ = 0;
    const auto inside = pids_inside(pids);
    std::vector<pid_t> here;
    for (const auto& [number, pid] : inside) here.push_back(pid);
    std::vector<Fd> pagemaps = open_(here, ProcessFile::page_map),
                    memories = open_(here, ProcessFile::memory);
    const size_t most = inside.size() * (files_max + size_t{1});
    TRY_ASSIGN(const auto seen,
               look_(inside, {.maps = true, .files_max = static_cast<uint32_t>(most)}));
    size_t files = 0;
    for (const SeenProcess& process : seen) files += process.files.size();
    size_t at = 0;
    for (const auto& [number, pid] : inside) {
        const size_t i = at++;
        const auto id = process_id(pid);
        if (!id) continue;
        const auto known = processes_.find(number);
        const bool same = known != processes_.end() && known->second.pid == pid &&
                          known->second.start_ticks == id->start_ticks;
        Process& process = now[number] = same ? std::move(known->second) : Process{};
        process.pid = pid;
        process.start_ticks = id->start_ticks;
        if (!pagemaps[i] || !memories[i] || seen[i].error != 0)
            return fail("the memory of process " + std::to_string(pid) + " cannot be read");
        process.pagemap = std::move(pagemaps[i]);
        process.memory = std::move(memories[i]);
        process.next = 0;
        process.left.clear();
        // If a process has more files than that, we cannot know that it lets the marks alone.
        if (files < most && !tracks_itself(seen[i])) {
            TRY(look_at(process, seen[i]));
        } else {
            process.pages = {};  // all of it goes when it stands frozen
        }
        left_bytes_ += process.left.size() * page_bytes;
    }
    processes_ = std::move(now);
    return {};
}

Status PrecopySource::look_at(Process& process, const SeenProcess& seen) {
    TRY_ASSIGN(const ProcessMaps maps, parse_maps(seen.maps));
    if (maps.has_aio) {  // all of it goes when it stands frozen, as the kernel writes past the page
                         // table
        process.pages = {};
        return {};
    }
    std::vector<SentPages::Page> pages;
    std::vector<uint64_t> entries(entries_at_once);
    for (const PrivateMapping& m : maps.mappings) {
        for (uint64_t at = m.start; at < m.end;) {
            const size_t want = std::min<uint64_t>((m.end - at) / page_bytes, entries_at_once);
            const size_t got = read_entries(process.pagemap.get(), at, entries.data(), want);
            if (got == 0) break;
            for (size_t i = 0; i < got; ++i)
                if (goes_precopy(entries[i])) pages.push_back({at + i * page_bytes, entries[i]});
            at += got * page_bytes;
        }
    }
    process.left = process.pages.look(std::move(pages));
    return {};
}

Status PrecopySource::mark() {
    for (auto& [inside, process] : processes_) {
        if (const auto known = expected_.find(process.pid);
            !process.marks && known != expected_.end())
            process.marks = std::move(known->second);
        if (!process.marks)
            process.marks = std::move(open_({process.pid}, ProcessFile::written_marks)[0]);
        TRY(write_all(process.marks.get(), "4", proc(process.pid, "clear_refs")));
    }
    expected_.clear();
    ended_ = false;
    piece_at_ = piece_end_ = 0;
    return {};
}

Result<std::string_view> PrecopySource::piece() {
    if (piece_at_ == piece_end_) fill();
    return std::string_view(piece_.get() + piece_at_, piece_end_ - piece_at_);
}

void PrecopySource::fill() {
    piece_at_ = piece_end_ = 0;
    for (auto& [inside, process] : processes_) {
        while (process.next < process.left.size()) {
            if (stream_piece_max - piece_end_ < 2 * precopy_head_bytes + page_bytes) return;
            const uint64_t room =
                (stream_piece_max - piece_end_ - 2 * precopy_head_bytes) / page_bytes;
            add(inside, process, std::min(room, section_pages_max));
        }
    }
    if (std::exchange(ended_, true)) return;
    put_pages_head(piece_.get() + piece_end_, {});
    piece_end_ += precopy_head_bytes;
}

// The next pages in a row that are as the last look found them, before they are read and after.
// What is not is left out: the next look finds it changed.
void PrecopySource::add(pid_t inside, Process& process, uint64_t pages_max) {
    uint64_t entries[section_pages_max];
    const uint64_t start = process.left[process.next];
    size_t run = 0;
    const auto unchanged = [&](size_t count) {
        const size_t got = read_entries(process.pagemap.get(), start, entries, count);
        for (size_t i = 0; i < got; ++i)
            if (!goes_precopy(entries[i]) ||
                !process.pages.unchanged(start + i * page_bytes, entries[i]))
                return i;
        return got;
    };
    while (run < pages_max && process.next + run < process.left.size() &&
           process.left[process.next + run] == start + run * page_bytes)
        ++run;
    size_t good = unchanged(run);
    if (good > 0) {
        const ssize_t n =
            ::pread(process.memory.get(), piece_.get() + piece_end_ + precopy_head_bytes,
                    good * page_bytes, static_cast<off_t>(start));
        good = n > 0 ? unchanged(static_cast<size_t>(n) / page_bytes) : 0;
    }
    process.next += std::max<size_t>(good, 1);
    if (good == 0) return;
    for (size_t i = 0; i < good; ++i) process.pages.sent(start + i * page_bytes);
    put_pages_head(piece_.get() + piece_end_, {inside, start, good});
    piece_end_ += precopy_head_bytes + good * page_bytes;
    bytes_sent_ += good * page_bytes;
}

std::vector<PageRange> PrecopySource::valid() const {
    std::vector<PageRange> all;
    for (const auto& [inside, process] : processes_) {
        const auto ranges = process.pages.valid(inside);
        all.insert(all.end(), ranges.begin(), ranges.end());
    }
    return all;
}

}  // namespace souk
