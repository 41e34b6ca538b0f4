// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/pages.hpp"

#include <algorithm>
#include <iterator>

#include "checkpoint/images.hpp"
#include "kernel/base/little_endian.hpp"

namespace souk {
namespace {
constexpr uint64_t pages_address_max = uint64_t{1} << 57;  // of user space, five levels

bool valid(const PageRange& r) {
    return r.start % page_bytes == 0 && r.start < pages_address_max &&
           r.pages <= (pages_address_max - r.start) / page_bytes;
}
}  // namespace

uint64_t MissingPages::bytes() const {
    uint64_t sum = 0;
    for (const auto& [start, p] : pieces_) sum += p.end - p.start;
    return sum;
}

MissingPages::Piece MissingPages::at(uint64_t address) const {
    auto it = pieces_.upper_bound(address);
    if (it == pieces_.begin()) return {};
    const Piece& p = (--it)->second;
    if (address >= p.end) return {};
    return {address, p.end, p.image + (address - p.start)};
}

void MissingPages::insert(Piece piece) {
    if (piece.start >= piece.end) return;
    moved_ = moved_ || piece.start != piece.image;
    const auto next = pieces_.lower_bound(piece.start);
    const auto joins = [](const Piece& a, const Piece& b) {
        return a.end == b.start && a.image + (a.end - a.start) == b.image;
    };
    if (next != pieces_.end() && joins(piece, next->second)) {
        piece.end = next->second.end;
        pieces_.erase(next);
    }
    const auto after = pieces_.lower_bound(piece.start);
    if (after != pieces_.begin() && joins(std::prev(after)->second, piece)) {
        std::prev(after)->second.end = piece.end;
        return;
    }
    pieces_.emplace(piece.start, piece);
}

std::vector<MissingPages::Piece> MissingPages::cut(uint64_t start, uint64_t end) {
    std::vector<Piece> out;
    if (start >= end) return out;
    auto it = pieces_.upper_bound(start);
    if (it != pieces_.begin()) --it;
    while (it != pieces_.end() && it->second.start < end) {
        const Piece p = it->second;
        if (p.end <= start) {
            ++it;
            continue;
        }
        it = pieces_.erase(it);
        const uint64_t from = std::max(start, p.start), to = std::min(end, p.end);
        out.push_back({from, to, p.image + (from - p.start)});
        if (p.start < from) pieces_.emplace(p.start, Piece{p.start, from, p.image});
        if (to < p.end) it = pieces_.emplace(to, Piece{to, p.end, p.image + (to - p.start)}).first;
    }
    return out;
}

void MissingPages::drop(uint64_t start, uint64_t end) { cut(start, end); }

void MissingPages::move(uint64_t from, uint64_t to, uint64_t bytes) {
    std::vector<Piece> taken = cut(from, from + bytes);
    cut(to, to + bytes);
    for (Piece& p : taken) insert({p.start - from + to, p.end - from + to, p.image});
}

std::vector<MissingPages::Piece> MissingPages::of_image(uint64_t image_start,
                                                        uint64_t image_end) const {
    std::vector<Piece> out;
    const auto add = [&](const Piece& p) {
        const uint64_t image_last = p.image + (p.end - p.start);
        const uint64_t from = std::max(image_start, p.image), to = std::min(image_end, image_last);
        if (from < to) out.push_back({p.start + (from - p.image), p.start + (to - p.image), from});
    };
    auto it = pieces_.begin();
    if (!moved_) {
        it = pieces_.upper_bound(image_start);
        if (it != pieces_.begin()) --it;
    }
    for (; it != pieces_.end(); ++it) {
        if (!moved_ && it->second.start >= image_end) break;
        add(it->second);
    }
    return out;
}

namespace {
// Pages that are taken for others are as wrong as damaged ones.
uint64_t pages_digest(const PageRange& r, std::string_view bytes) {
    return digest64(bytes, r.start ^ static_cast<uint64_t>(r.pid));
}
}  // namespace

void put_pages_head(char* to, const PageRange& r) {
    put_le(to, r.pages == 0 ? pages_end_kind : pages_kind, 4);
    put_le(to + 4, pages_text_bytes, 4);
    put_le(to + 8, r.pages * page_bytes, 8);
    put_le(to + 16, static_cast<uint64_t>(r.pid), 8);
    put_le(to + 24, r.start, 8);
    put_le(to + 32,
           pages_digest(r, {to + section_head_bytes + pages_text_bytes, r.pages * page_bytes}), 8);
}

Status PageSections::hand_over(std::string_view bytes) const {
    if (pages_digest(range_, bytes) != digest_) return fail("image stream: pages came damaged");
    return handler_(range_, bytes);
}

Status PageSections::take(std::string_view bytes) {
    while (!bytes.empty()) {
        const size_t part = std::min(need_ - section_.size(), bytes.size());
        if (in_data_ && section_.empty() && part == need_) {  // whole as it came
            TRY(hand_over(bytes.substr(0, part)));
            need_ = section_head_bytes + pages_text_bytes;
            in_data_ = false;
            bytes.remove_prefix(part);
            continue;
        }
        section_.append(bytes.substr(0, part));
        bytes.remove_prefix(part);
        if (section_.size() < need_) return {};
        if (in_data_) {
            TRY(hand_over(section_));
            need_ = section_head_bytes + pages_text_bytes;
        } else {
            const uint64_t kind = get_le(section_.data(), 4), text = get_le(section_.data() + 4, 4),
                           n = get_le(section_.data() + 8, 8);
            range_ = {static_cast<pid_t>(get_le(section_.data() + 16, 4)),
                      get_le(section_.data() + 24, 8), n / page_bytes};
            digest_ = get_le(section_.data() + 32, 8);
            const bool end = kind == pages_end_kind && n == 0;
            const bool pages = kind == pages_kind && n > 0 && n % page_bytes == 0 &&
                               n <= section_pages_max * page_bytes;
            if (text != pages_text_bytes || (!end && !pages) || !valid(range_))
                return fail("image stream: pages that are none");
            if (end) TRY(hand_over({}));
            if (pages) need_ = n;
        }
        in_data_ = !in_data_ && range_.pages > 0;
        section_.clear();
    }
    return {};
}

}  // namespace souk
