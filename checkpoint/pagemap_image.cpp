// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/pagemap_image.hpp"

#include <utility>

#include "checkpoint/criu_fields.hpp"
#include "kernel/base/little_endian.hpp"

namespace souk {
namespace {
constexpr uint32_t pagemap_magic = 0x56084025;
constexpr uint64_t address_max = uint64_t{1} << 57;  // of user space, five levels
enum { vaddr = 1, compat_nr_pages = 2, in_parent = 3, flags = 4, nr_pages = 5 };

bool valid(const PagemapImage::Entry& e) {
    return e.pages > 0 && e.start % page_bytes == 0 && e.start < address_max &&
           e.pages <= (address_max - e.start) / page_bytes;
}

void put_varint(std::string& to, uint64_t v) {
    for (; v >= 0x80; v >>= 7) to += static_cast<char>(v | 0x80);
    to += static_cast<char>(v);
}

void put_field(std::string& to, uint32_t number, uint64_t v) {
    put_varint(to, number << 3);
    put_varint(to, v);
}

void put_message(std::string& to, const std::string& message) {
    char length[4];
    put_le(length, message.size(), sizeof length);
    to.append(length, sizeof length);
    to += message;
}
}  // namespace

Result<PagemapImage> parse_pagemap(std::string_view image, pid_t pid) {
    const auto bad = [] { return fail("a pagemap of CRIU that is damaged"); };
    PagemapImage map;
    map.pid = pid;
    if (image.size() < 8 || criu_u32(image, 0) != criu_common_magic ||
        criu_u32(image, 4) != pagemap_magic)
        return bad();
    bool head = true;
    for (size_t at = 8; at < image.size();) {
        if (image.size() - at < 4) return bad();
        const uint32_t length = criu_u32(image, at);
        at += 4;
        if (length > image.size() - at) return bad();
        uint64_t values[6] = {};
        ProtobufFields f(image.substr(at, length));
        while (f.next())
            if (f.number < 6) values[f.number] = f.value;
        if (!f.good) return bad();
        at += length;
        if (std::exchange(head, false)) {
            map.file = static_cast<uint32_t>(values[1]);
            continue;
        }
        PagemapImage::Entry e{values[vaddr],
                              values[nr_pages] != 0 ? values[nr_pages] : values[compat_nr_pages],
                              static_cast<uint32_t>(values[flags])};
        if (values[in_parent] != 0) e.flags |= pagemap_parent;
        if (!valid(e)) return bad();
        map.entries.push_back(e);
    }
    return map;
}

std::string encode_pagemap(const PagemapImage& map) {
    std::string image(8, '\0');
    put_le(image.data(), criu_common_magic, 4);
    put_le(image.data() + 4, pagemap_magic, 4);
    std::string message;
    put_field(message, 1, map.file);
    put_message(image, message);
    for (const PagemapImage::Entry& e : map.entries) {
        message.clear();
        put_field(message, vaddr, e.start);
        put_field(message, compat_nr_pages, static_cast<uint32_t>(e.pages));  // of CRIUs before 4.2
        put_field(message, flags, e.flags);
        put_field(message, nr_pages, e.pages);
        put_message(image, message);
    }
    return image;
}

Result<std::vector<PageRange>> lazy_ranges_of(std::string_view image, pid_t pid) {
    TRY_ASSIGN(const PagemapImage map, parse_pagemap(image, pid));
    std::vector<PageRange> found;
    for (const PagemapImage::Entry& e : map.entries)
        if ((e.flags & pagemap_lazy) != 0 && (e.flags & pagemap_present) == 0)
            found.push_back({pid, e.start, e.pages});
    return found;
}

}  // namespace souk
