// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/shared_image.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>

#include "checkpoint/sent_pages.hpp"
#include "kernel/base/number.hpp"

namespace souk {
namespace {
constexpr size_t shared_buffer_bytes = 256 * 1024;  // stays in a core's own cache
constexpr size_t shared_slice_bytes = 1 << 20;
constexpr size_t slice_entries = 32 * 1024;
constexpr size_t pagemap_bytes_max = 64 << 20;

std::string pages_name(uint32_t number) { return "pages-" + std::to_string(number) + ".img"; }
std::string pagemap_name(pid_t pid) { return "pagemap-" + std::to_string(pid) + ".img"; }

// The number in a name of that form; 0: it is of another.
uint32_t number_of(std::string_view name, std::string_view prefix) {
    constexpr std::string_view suffix = ".img";
    if (!name.starts_with(prefix) || !name.ends_with(suffix) ||
        name.size() <= prefix.size() + suffix.size())
        return 0;
    return whole_number<uint32_t>(
               name.substr(prefix.size(), name.size() - prefix.size() - suffix.size()))
        .value_or(0);
}

constexpr const char* writing = "write what its processes share";

// Entries that do not come stay 0.
void read_entries(int pagemap, uint64_t address, uint64_t* to) {
    constexpr size_t bytes = SharedPages::block_pages * sizeof *to;
    const ssize_t n =
        ::pread(pagemap, to, bytes, static_cast<off_t>(address / page_bytes * sizeof *to));
    const size_t got = n > 0 ? static_cast<size_t>(n) / sizeof *to : 0;
    std::fill(to + got, to + SharedPages::block_pages, 0);
}
}  // namespace

Result<std::unique_ptr<SharedImage>> SharedImage::open(int image_directory,
                                                       const std::map<pid_t, pid_t>& pids,
                                                       const OpenProcessFiles& open) {
    TRY_ASSIGN(Fd directory, duplicate(image_directory));
    std::unique_ptr<SharedImage> image(new SharedImage(std::move(directory)));
    SharedImage& s = *image;
    TRY_ASSIGN(const auto names, list_dir(image_directory, "."));
    std::vector<PagemapImage> maps;
    std::vector<PageRange> processes;
    for (const std::string& name : names) {
        s.number_ = std::max(s.number_, number_of(name, "pages-"));
        const auto pid = static_cast<pid_t>(number_of(name, "pagemap-"));
        if (pid == 0) continue;
        TRY_ASSIGN(const std::string text, read_file(image_directory, name, pagemap_bytes_max));
        auto map = parse_pagemap(text, pid);
        if (!map) return wrap(name, map.error());
        if (map->entries.empty()) continue;
        processes.push_back({pid, 0, 0});
        s.maps_.push_back({pid, map->file, {}});
        maps.push_back(std::move(*map));
    }
    ++s.number_;
    TRY_ASSIGN(s.pages_, SharedPages::open(std::move(maps)));
    TRY_ASSIGN(s.memory_, FrozenMemory::open(processes, pids, open));
    std::vector<pid_t> here;
    for (const PageRange& p : processes) here.push_back(pids.at(p.pid));
    s.pagemaps_ = open(here, ProcessFile::page_map);
    if (std::ranges::any_of(s.pagemaps_, [](const Fd& map) { return !map; }))
        return fail("the pages of its processes cannot be looked at");
    s.old_.resize(s.pagemaps_.size());
    return image;
}

Result<bool> SharedImage::step() {
    if (!file_) {
        for (size_t looked = 0; looked < slice_entries; looked += entries_.size()) {
            if (pages_.next()) {
                look();
                continue;
            }
            if (pages_.pages_shared() == 0) return false;
            TRY(begin_to_write());
            return true;
        }
        return true;
    }
    for (const uint64_t until = written_ + shared_slice_bytes; written_ < until;) {
        if (run_ == pages_.runs().size()) {
            TRY(finish());
            return false;
        }
        TRY(write_piece());
    }
    return true;
}

// Twice: a page that the kernel moves meanwhile could leave its number to another. What has the
// same number before and after the others were looked at is the same page.
void SharedImage::look() {
    const SharedPages::Block& block = pages_.block();
    const auto read = [&](std::vector<uint64_t>& to) {
        to.resize(block.processes.size() * SharedPages::block_pages);
        for (size_t i = 0; i < block.processes.size(); ++i)
            read_entries(pagemaps_[block.processes[i]].get(), block.start,
                         &to[i * SharedPages::block_pages]);
    };
    read(entries_);
    if (!SharedPages::any_shared(entries_)) return pages_.take({});
    read(again_);
    for (size_t i = 0; i < entries_.size(); ++i)
        if (((entries_[i] ^ again_[i]) & pagemap::identity) != 0) entries_[i] = 0;
    pages_.take(entries_);
}

Status SharedImage::begin_to_write() {
    TRY_ASSIGN(file_,
               open_at(directory_.get(), pages_name(number_), O_WRONLY | O_CREAT | O_EXCL, 0600));
    const auto bytes = static_cast<off_t>(pages_.pages_in_file() * page_bytes);
    if (::fallocate(file_.get(), 0, 0, bytes) != 0 && errno != EOPNOTSUPP)
        return fail_errno("room for what its processes share", errno);
    buffer_ = std::make_unique_for_overwrite<char[]>(shared_buffer_bytes);
    return {};
}

Status SharedImage::write_piece() {
    const SharedPages::Run& run = pages_.runs()[run_];
    const uint64_t pages =
        std::min<uint64_t>(run.pages - run_done_, shared_buffer_bytes / page_bytes);
    const size_t bytes = pages * page_bytes;
    if (run.present) {
        Fd& old = old_[run.process];
        const std::string name = pages_name(maps_[run.process].file);
        if (!old) {
            TRY_ASSIGN(old, open_at(directory_.get(), name, O_RDONLY));
        }
        const auto at = static_cast<off_t>((run.old_page + run_done_) * page_bytes);
        if (::pread(old.get(), buffer_.get(), bytes, at) != static_cast<ssize_t>(bytes))
            return fail("image file " + name + ": damaged");
    } else {
        TRY(memory_.read({maps_[run.process].pid, run.start + run_done_ * page_bytes, pages},
                         buffer_.get()));
    }
    TRY(write_all(file_.get(), {buffer_.get(), bytes}, writing));
    written_ += bytes;
    if ((run_done_ += pages) == run.pages) {
        ++run_;
        run_done_ = 0;
    }
    return {};
}

Status SharedImage::finish() {
    std::set<uint32_t> old;
    for (const PagemapImage& map : pages_.pagemaps(number_)) {
        const std::string text = encode_pagemap(map);
        TRY_ASSIGN(const Fd to,
                   open_at(directory_.get(), pagemap_name(map.pid), O_WRONLY | O_TRUNC));
        TRY(write_all(to.get(), text, writing));
    }
    for (const PagemapImage& map : maps_) old.insert(map.file);
    for (const uint32_t number : old)
        if (::unlinkat(directory_.get(), pages_name(number).c_str(), 0) != 0 && errno != ENOENT)
            return fail_errno("drop " + pages_name(number), errno);
    return {};
}

}  // namespace souk
