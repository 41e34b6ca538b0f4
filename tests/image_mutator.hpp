// SPDX-License-Identifier: GPL-2.0-or-later
// An image file of CRIU's with one thing in it changed: an entry, or a field at any depth, is
// altered, added, doubled, moved or taken away. All else keeps its form, so that a reader comes as
// far as the change. Used by the fuzz target and by real restores alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace souk::test {

// Any source of numbers below `n`, which is not 0.
using Below = std::function<uint64_t(uint64_t n)>;

inline std::string varint(uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
    return out + static_cast<char>(value);
}

inline std::optional<uint64_t> take_varint(std::string_view& bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size() && i < 10; ++i) {
        const auto byte = static_cast<uint8_t>(bytes[i]);
        value |= uint64_t{byte & 0x7fU} << (7 * i);
        if (byte >= 0x80) continue;
        bytes.remove_prefix(i + 1);
        return value;
    }
    return std::nullopt;
}

// A field as it lies in a message: its tag, and a number or bytes.
struct WireField {
    uint64_t tag = 0;
    uint64_t number = 0;
    std::string bytes;

    std::string encode() const {
        std::string out = varint(tag);
        if ((tag & 7) == 0) return out + varint(number);
        if ((tag & 7) == 2) out += varint(bytes.size());
        return out + bytes;
    }
};

// Nothing: these bytes are no message.
inline std::optional<std::vector<WireField>> fields_of(std::string_view bytes) {
    std::vector<WireField> all;
    while (!bytes.empty()) {
        WireField f;
        const auto tag = take_varint(bytes);
        if (!tag || *tag >> 3 == 0) return std::nullopt;
        f.tag = *tag;
        uint64_t length = (f.tag & 7) == 1 ? 8 : (f.tag & 7) == 5 ? 4 : 0;
        if ((f.tag & 7) == 0 || (f.tag & 7) == 2) {
            const auto number = take_varint(bytes);
            if (!number) return std::nullopt;
            ((f.tag & 7) == 0 ? f.number : length) = *number;
        } else if (length == 0) {
            return std::nullopt;
        }
        if (length > bytes.size()) return std::nullopt;
        f.bytes = bytes.substr(0, length);
        bytes.remove_prefix(length);
        all.push_back(std::move(f));
    }
    return all;
}

inline std::string message_of(const std::vector<WireField>& fields) {
    std::string out;
    for (const WireField& f : fields) out += f.encode();
    return out;
}

class ImageMutator {
  public:
    explicit ImageMutator(Below below) : below_(std::move(below)) {}

    // The bytes of a file of an image with one change; what is no such file has a byte changed.
    std::string mutate(std::string_view image) {
        constexpr uint32_t inventory = 0x58313116;  // the one file with one magic number
        const size_t head = image.size() >= 4 && word(image, 0) == inventory ? 4 : 8;
        if (image.size() < head + 4) return altered(std::string(image));
        std::vector<std::string> entries;
        size_t at = head;
        while (image.size() - at >= 4 && word(image, at) <= image.size() - at - 4) {
            entries.emplace_back(image.substr(at + 4, word(image, at)));
            at += 4 + entries.back().size();
        }
        const std::string rest(image.substr(at));
        if (entries.empty() || (!rest.empty() && below_(4) == 0))
            return std::string(image.substr(0, at)) + altered(rest);
        change_one_of(entries);
        std::string out(image.substr(0, head));
        for (const std::string& entry : entries) {
            const auto bytes = static_cast<uint32_t>(entry.size());
            out.append(reinterpret_cast<const char*>(&bytes), sizeof bytes) += entry;
        }
        return out + rest;
    }

    // A message with one field changed.
    std::string change(const std::string& message) {
        auto fields = fields_of(message);
        if (!fields || fields->empty()) return altered(message);
        std::vector<WireField>& all = *fields;
        const size_t which = below_(all.size());
        switch (below_(10)) {
            case 0: all.erase(all.begin() + static_cast<long>(which)); break;
            case 1: all.push_back(all[which]); break;
            case 2: std::swap(all[which], all[below_(all.size())]); break;
            case 3: all.push_back({(1 + below_(24)) << 3, number(0), {}}); break;
            case 4: all[which].tag = (1 + below_(24)) << 3 | (all[which].tag & 7); break;
            default: change_field(all[which]); break;
        }
        return message_of(all);
    }

  private:
    static uint32_t word(std::string_view bytes, size_t at) {
        uint32_t value;
        std::memcpy(&value, bytes.data() + at, sizeof value);
        return value;
    }

    void change_one_of(std::vector<std::string>& entries) {
        const size_t which = below_(entries.size());
        switch (below_(8)) {
            case 0: entries.erase(entries.begin() + static_cast<long>(which)); break;
            case 1: entries.push_back(entries[which]); break;
            case 2: entries.push_back(change(entries[which])); break;
            default: entries[which] = change(entries[which]); break;
        }
    }

    void change_field(WireField& field) {
        if ((field.tag & 7) == 0) field.number = number(field.number);
        if ((field.tag & 7) == 0) return;
        const auto inner = fields_of(field.bytes);
        const bool is_message = inner && !inner->empty();
        field.bytes = is_message && below_(8) != 0 ? change(field.bytes) : altered(field.bytes);
        if ((field.tag & 7) != 2) field.bytes.resize((field.tag & 7) == 1 ? 8 : 4);
    }

    uint64_t number(uint64_t was) {
        const uint64_t some[] = {0,         1,    2,      3,          4,          10,
                                 12,        15,   16,     19,         20,         21,
                                 1000,      4096, 0xffff, 0x7fffffff, 0xffffffff, uint64_t{1} << 32,
                                 UINT64_MAX};
        switch (below_(4)) {
            case 0: return was + 1 - 2 * below_(2);
            case 1: return was ^ uint64_t { 1 } << below_(64);
            case 2: return was ^ uint64_t { 1 } << below_(16);
            default: return some[below_(std::size(some))];
        }
    }

    std::string altered(std::string bytes) {
        static constexpr std::string_view some[] = {"/etc/shadow",
                                                    "//etc/shadow",
                                                    "/proc/1/root/etc/shadow",
                                                    "../../../../etc/shadow",
                                                    "/dev/null",
                                                    "/proc/self/ns/net",
                                                    "unconfined",
                                                    ""};
        if (bytes.empty() || below_(3) == 0) return std::string(some[below_(std::size(some))]);
        bytes[below_(bytes.size())] ^= static_cast<char>(1 << below_(8));
        if (below_(4) == 0) bytes.resize(below_(bytes.size() + 1));
        return bytes;
    }

    const Below below_;
};

}  // namespace souk::test
