// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/sent_pages.hpp"

#include <algorithm>
#include <tuple>

#include "kernel/base/little_endian.hpp"
#include "kernel/base/number.hpp"

namespace souk {
namespace {
constexpr std::string_view magic = "SOUKAHD1";
constexpr size_t digest_bytes_max = 64, range_bytes = 16;
constexpr uint64_t sent_address_max = uint64_t{1} << 57;  // of user space, five levels

uint64_t end_of(const PageRange& r) { return r.start + r.pages * page_bytes; }
bool before(const PageRange& a, const PageRange& b) {
    return std::tie(a.pid, a.start) < std::tie(b.pid, b.start);
}

void append(std::vector<PageRange>& to, pid_t pid, uint64_t start, uint64_t end) {
    if (start >= end) return;
    if (!to.empty() && to.back().pid == pid && end_of(to.back()) == start)
        to.back().pages += (end - start) / page_bytes;
    else
        to.push_back({pid, start, (end - start) / page_bytes});
}
}  // namespace

// 7f12a000-7f12b000 rw-p 00000000 00:00 0    [heap]
Result<ProcessMaps> parse_maps(std::string_view text) {
    ProcessMaps found;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        std::string_view rest = line;
        const auto first = take_number<uint64_t>(rest, 16);
        if (!first || !rest.starts_with('-')) return fail("a list of mappings that is none");
        rest.remove_prefix(1);
        const auto last = take_number<uint64_t>(rest, 16);
        if (!last || rest.size() < 6 || *first >= *last || *first % page_bytes != 0 ||
            *last % page_bytes != 0)
            return fail("a list of mappings that is none");
        const uint64_t start = *first, end = *last;
        rest.remove_prefix(1);
        const std::string_view rights = rest.substr(0, 4);
        std::string_view fields[4];  // offset, device, inode, name
        rest.remove_prefix(4);
        for (int i = 0; i < 3; ++i) {
            rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
            fields[i] = rest.substr(0, rest.find(' '));
            rest.remove_prefix(fields[i].size());
        }
        rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
        fields[3] = rest;
        if (fields[3].starts_with("/[aio]")) found.has_aio = true;
        const bool kernels = fields[3].starts_with("[v");  // vdso, vvar, vsyscall
        if (rights.size() < 4 || rights[3] != 'p' || fields[2] != "0" || kernels) continue;
        if (rights[0] == '-' && rights[1] == '-') continue;
        found.mappings.push_back({start, end});
    }
    return found;
}

std::vector<uint64_t> SentPages::look(std::vector<Page> now) {
    std::vector<uint64_t> to_send;
    auto old = pages_.begin();
    for (Page& page : now) {
        const bool dirty = (page.entry & pagemap::soft_dirty) != 0;
        page.entry &= pagemap::identity;
        while (old != pages_.end() && old->address < page.address) ++old;
        const bool good = !dirty && old != pages_.end() && old->address == page.address &&
                          old->entry == (page.entry | is_sent);
        if (good)
            page.entry |= is_sent;
        else
            to_send.push_back(page.address);
    }
    pages_ = std::move(now);
    return to_send;
}

bool SentPages::unchanged(uint64_t address, uint64_t entry) const {
    const auto at = std::lower_bound(pages_.begin(), pages_.end(), address,
                                     [](const Page& p, uint64_t a) { return p.address < a; });
    if (at == pages_.end() || at->address != address || (entry & pagemap::soft_dirty) != 0)
        return false;
    return (at->entry & pagemap::identity) == (entry & pagemap::identity);
}

void SentPages::sent(uint64_t address) {
    const auto at = std::lower_bound(pages_.begin(), pages_.end(), address,
                                     [](const Page& p, uint64_t a) { return p.address < a; });
    if (at != pages_.end() && at->address == address) at->entry |= is_sent;
}

std::vector<PageRange> SentPages::valid(pid_t pid) const {
    std::vector<PageRange> ranges;
    for (const Page& p : pages_)
        if ((p.entry & is_sent) != 0) append(ranges, pid, p.address, p.address + page_bytes);
    return ranges;
}

SplitRanges split_ranges(const std::vector<PageRange>& ranges, const std::vector<PageRange>& of) {
    SplitRanges split;
    auto part = of.begin();
    for (const PageRange& r : ranges) {
        uint64_t at = r.start;
        while (part != of.end() &&
               (part->pid < r.pid || (part->pid == r.pid && end_of(*part) <= r.start)))
            ++part;
        for (auto p = part; p != of.end() && p->pid == r.pid && p->start < end_of(r); ++p) {
            const uint64_t from = std::max(p->start, at), to = std::min(end_of(*p), end_of(r));
            append(split.out, r.pid, at, from);
            append(split.in, r.pid, from, to);
            at = std::max(at, to);
        }
        append(split.out, r.pid, at, end_of(r));
    }
    return split;
}

uint64_t bytes_of(const std::vector<PageRange>& ranges) {
    uint64_t bytes = 0;
    for (const PageRange& r : ranges) bytes += r.pages * page_bytes;
    return bytes;
}

std::string encode_precopy(const PrecopyList& list) {
    std::string file(magic);
    file += static_cast<char>(list.digest.size());
    file += list.digest;
    const size_t head = file.size();
    file.resize(head + list.ranges.size() * range_bytes);
    for (size_t i = 0; i < list.ranges.size(); ++i) {
        char* const to = file.data() + head + i * range_bytes;
        put_le(to, static_cast<uint64_t>(list.ranges[i].pid), 4);
        put_le(to + 4, list.ranges[i].pages, 4);
        put_le(to + 8, list.ranges[i].start, 8);
    }
    return file;
}

Result<PrecopyList> decode_precopy(std::string_view file) {
    const auto bad = [] { return fail(std::string(precopy_file_name) + ": damaged"); };
    if (!file.starts_with(magic) || file.size() <= magic.size()) return bad();
    const auto digest = static_cast<size_t>(static_cast<unsigned char>(file[magic.size()]));
    file.remove_prefix(magic.size() + 1);
    if (digest > digest_bytes_max || file.size() < digest ||
        (file.size() - digest) % range_bytes != 0)
        return bad();
    PrecopyList list;
    list.digest = file.substr(0, digest);
    file.remove_prefix(digest);
    for (; !file.empty(); file.remove_prefix(range_bytes)) {
        const PageRange r{static_cast<pid_t>(get_le(file.data(), 4)), get_le(file.data() + 8, 8),
                          get_le(file.data() + 4, 4)};
        if (r.pid <= 0 || r.pages == 0 || r.start % page_bytes != 0 ||
            r.start >= sent_address_max || end_of(r) > sent_address_max)
            return bad();
        if (!list.ranges.empty() &&
            (!before(list.ranges.back(), r) ||
             (list.ranges.back().pid == r.pid && end_of(list.ranges.back()) > r.start)))
            return bad();
        list.ranges.push_back(r);
    }
    return list;
}

}  // namespace souk
