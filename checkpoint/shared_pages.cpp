// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/shared_pages.hpp"

#include <algorithm>

#include "checkpoint/sent_pages.hpp"

namespace souk {
namespace {
constexpr uint64_t block_bytes = SharedPages::block_pages * page_bytes;

uint64_t end_of(const PagemapImage::Entry& e) { return e.start + e.pages * page_bytes; }

// Tells whether several processes may map the page and it can be told from others. Without
// CAP_SYS_ADMIN every page has the number 0, so none can be told.
bool may_be_shared(uint64_t entry) {
    return pagemap::has_page(entry) && !pagemap::is_exclusive(entry) &&
           (entry & pagemap::frame) != 0;
}
}  // namespace

Result<SharedPages> SharedPages::open(std::vector<PagemapImage> maps) {
    SharedPages shared;
    for (PagemapImage& map : maps) {
        uint64_t end = 0;
        for (const PagemapImage::Entry& e : map.entries) {
            if ((e.flags & pagemap_parent) != 0 ||
                (e.flags & (pagemap_lazy | pagemap_present)) == 0 || e.start < end)
                return fail("the pagemap of process " + std::to_string(map.pid) +
                            " is of another kind");
            end = end_of(e);
        }
        shared.processes_.push_back({std::move(map), 0, 0, 0, {}, 0});
    }
    return shared;
}

uint64_t SharedPages::start_of_next() const {
    uint64_t least = UINT64_MAX;
    for (const Process& p : processes_)
        if (p.index < p.old.entries.size())
            least = std::min(least, p.old.entries[p.index].start + p.done * page_bytes);
    return least == UINT64_MAX ? least : least / block_bytes * block_bytes;
}

bool SharedPages::next() {
    while ((block_.start = start_of_next()) != UINT64_MAX) {
        block_.processes.clear();
        for (size_t i = 0; i < processes_.size(); ++i) {
            const Process& p = processes_[i];
            if (p.index == p.old.entries.size()) continue;
            if (p.old.entries[p.index].start + p.done * page_bytes < block_.start + block_bytes)
                block_.processes.push_back(i);
        }
        pieces_.clear();
        for (size_t place = 0; place < block_.processes.size(); ++place) hold(place);
        if (block_.processes.size() > 1) return true;
        take({});
    }
    return false;
}

// Takes what the process has in the block out of its old entries.
void SharedPages::hold(size_t place) {
    Process& p = processes_[block_.processes[place]];
    const uint64_t end = block_.start + block_bytes;
    while (p.index < p.old.entries.size()) {
        const PagemapImage::Entry& e = p.old.entries[p.index];
        const uint64_t at = e.start + p.done * page_bytes;
        if (at >= end) return;
        const uint64_t pages = (std::min(end, end_of(e)) - at) / page_bytes;
        const bool present = (e.flags & pagemap_present) != 0;
        pieces_.push_back({place, at, pages, present, p.present});
        if (present) p.present += pages;
        if ((p.done += pages) < e.pages) return;
        ++p.index;
        p.done = 0;
    }
}

bool SharedPages::any_shared(const std::vector<uint64_t>& entries) {
    return std::any_of(entries.begin(), entries.end(), may_be_shared);
}

// Treats the block as if nothing is shared: its processes have nothing to do with each other.
void SharedPages::take_apart() {
    for (const Piece& piece : pieces_) {
        const size_t index = block_.processes[piece.place];
        if (!piece.present) {
            add_lazy(processes_[index], piece.start, piece.pages);
            continue;
        }
        add_present(processes_[index], piece.start, piece.pages, file_pages_);
        add_run({index, true, piece.start, piece.pages, piece.old_page});
    }
}

void SharedPages::spread() {
    has_.assign(block_.processes.size() * block_pages, Has::nothing);
    old_page_.resize(has_.size());
    for (const Piece& piece : pieces_) {
        const size_t where = piece.place * block_pages + (piece.start - block_.start) / page_bytes;
        for (uint64_t i = 0; i < piece.pages; ++i) {
            has_[where + i] = piece.present ? Has::present : Has::left_out;
            old_page_[where + i] = piece.old_page + i;
        }
    }
}

void SharedPages::take(const std::vector<uint64_t>& entries) {
    if (entries.empty()) return take_apart();
    spread();
    fates_.assign(block_.processes.size(), {});
    uint64_t first = 0;  // from here on all pages have had the same fates
    for (uint64_t page = 0; page < block_pages; ++page) {
        std::swap(before_, fates_);
        decide(page, entries);
        if (page == 0 || fates_ == before_) continue;
        std::swap(before_, fates_);
        emit(first, page);
        std::swap(before_, fates_);
        first = page;
    }
    emit(first, block_pages);
}

void SharedPages::decide(uint64_t page, const std::vector<uint64_t>& entries) {
    fates_.assign(block_.processes.size(), {});
    same_.clear();
    for (size_t place = 0; place < fates_.size(); ++place) {
        const size_t where = place * block_pages + page;
        fates_[place] = {has_[where], place};
        if (has_[where] != Has::present) fates_[place].leader = 0;
        if (has_[where] != Has::nothing && may_be_shared(entries[where]))
            same_.emplace_back(entries[where] & pagemap::identity, place);
    }
    std::sort(same_.begin(), same_.end());
    for (size_t i = 0, end = 0; i < same_.size(); i = end) {
        bool was_left_out = false;
        for (end = i; end < same_.size() && same_[end].first == same_[i].first; ++end)
            was_left_out =
                was_left_out || has_[same_[end].second * block_pages + page] == Has::left_out;
        if (end - i < 2) continue;
        shared_ += was_left_out ? 1 : 0;
        for (size_t k = i; k < end; ++k) fates_[same_[k].second] = {Has::present, same_[i].second};
    }
}

// The pages of the block from `first` on, which all have fates_; but a leader's may lie in two
// places.
void SharedPages::emit(uint64_t first, uint64_t end) {
    const uint64_t start = block_.start + first * page_bytes;
    for (size_t place = 0; place < fates_.size(); ++place) {
        if (fates_[place].has == Has::left_out)
            add_lazy(processes_[block_.processes[place]], start, end - first);
        if (fates_[place].has != Has::present || fates_[place].leader != place) continue;
        const uint64_t file_page = file_pages_;
        for (uint64_t page = first; page < end; ++page) {
            const size_t where = place * block_pages + page;
            add_run({block_.processes[place], has_[where] == Has::present,
                     block_.start + page * page_bytes, 1, old_page_[where]});
        }
        for (size_t other = place; other < fates_.size(); ++other)
            if (fates_[other].has == Has::present && fates_[other].leader == place)
                add_present(processes_[block_.processes[other]], start, end - first, file_page);
    }
}

void SharedPages::add_run(const Run& run) {
    file_pages_ += run.pages;
    if (!runs_.empty()) {
        Run& last = runs_.back();
        const bool goes_on = last.process == run.process && last.present == run.present &&
                             last.start + last.pages * page_bytes == run.start &&
                             (!run.present || last.old_page + last.pages == run.old_page);
        if (goes_on) {
            last.pages += run.pages;
            return;
        }
    }
    runs_.push_back(run);
}

void SharedPages::add_present(Process& p, uint64_t start, uint64_t pages, uint64_t file_page) {
    if (file_page > p.file_page)
        p.entries.push_back({start, file_page - p.file_page, pagemap_lazy | pagemap_present});
    else if (!p.entries.empty() && p.entries.back().flags == pagemap_present &&
             end_of(p.entries.back()) == start) {
        p.entries.back().pages += pages;
        p.file_page += pages;
        return;
    }
    p.entries.push_back({start, pages, pagemap_present});
    p.file_page = file_page + pages;
}

void SharedPages::add_lazy(Process& p, uint64_t start, uint64_t pages) {
    if (!p.entries.empty() && p.entries.back().flags == pagemap_lazy &&
        end_of(p.entries.back()) == start)
        p.entries.back().pages += pages;
    else
        p.entries.push_back({start, pages, pagemap_lazy});
}

std::vector<PagemapImage> SharedPages::pagemaps(uint32_t file) const {
    std::vector<PagemapImage> maps;
    for (const Process& p : processes_) maps.push_back({p.old.pid, file, p.entries});
    return maps;
}

}  // namespace souk
