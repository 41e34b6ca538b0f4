// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/page_source.hpp"

#include <algorithm>
#include <utility>

#include "checkpoint/stream.hpp"

namespace souk {
namespace {
constexpr size_t source_head_bytes = section_head_bytes + pages_text_bytes;
static_assert(source_head_bytes + section_pages_max * page_bytes <= stream_piece_max);
}  // namespace

Result<PageSource> PageSource::open(std::vector<PageRange> ranges,
                                    const std::map<pid_t, pid_t>& pids,
                                    const OpenProcessFiles& open) {
    PageSource s;
    for (const PageRange& r : ranges) s.bytes_total_ += r.pages * page_bytes;
    TRY_ASSIGN(s.memory_, FrozenMemory::open(ranges, pids, open));
    s.ranges_ = std::move(ranges);
    s.piece_ = std::make_unique_for_overwrite<char[]>(stream_piece_max);
    return s;
}

void PageSource::wish(const PageRange& range) {
    if (wishes_.size() < wishes_max && memory_.has(range.pid)) wishes_.push_back(range);
}

void PageSource::acknowledged(uint64_t bytes) {
    started_ = true;
    bytes_acknowledged_ = std::min(std::max(bytes, bytes_acknowledged_), bytes_sent_);
}

Result<std::string_view> PageSource::piece() {
    if (piece_at_ == piece_end_) TRY(fill());
    return std::string_view(piece_.get() + piece_at_, piece_end_ - piece_at_);
}

// Fills the piece with as much as fits: small ranges go together.
Status PageSource::fill() {
    piece_at_ = piece_end_ = wished_until_ = 0;
    while (stream_piece_max - piece_end_ >= source_head_bytes + page_bytes) {
        const uint64_t room = std::min(
            (stream_piece_max - piece_end_ - source_head_bytes) / page_bytes, section_pages_max);
        if (!wishes_.empty()) {
            PageRange& wish = wishes_.front();
            const PageRange part{wish.pid, wish.start, std::min(wish.pages, room)};
            TRY(add(part));
            wish.start += part.pages * page_bytes;
            if ((wish.pages -= part.pages) == 0) wishes_.pop_front();
            wished_until_ = piece_end_;
        } else if (!started_) {
            return {};
        } else if (index_ == ranges_.size()) {
            if (!std::exchange(ended_, true)) TRY(add({}));
            return {};
        } else {
            if (bytes_sent_ - bytes_acknowledged_ >= window_bytes) return {};
            const PageRange& r = ranges_[index_];
            const PageRange part{r.pid, r.start + index_done_ * page_bytes,
                                 std::min(r.pages - index_done_, room)};
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
    const size_t bytes = range.pages * page_bytes;
    if (bytes > 0) TRY(memory_.read(range, to + source_head_bytes));
    put_pages_head(to, range);
    piece_end_ += source_head_bytes + bytes;
    bytes_sent_ += bytes;
    return {};
}

}  // namespace souk
