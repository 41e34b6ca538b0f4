// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/codec_parts.hpp"

#include <algorithm>
#include <cstring>

#include "kernel/base/check.hpp"
#include "kernel/base/node_address.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/text.hpp"

namespace souk::wire {

void* Arena::allocate(size_t bytes) {
    constexpr size_t align = alignof(std::max_align_t), block = 4096;
    if (bytes > left_ || bytes > SIZE_MAX / 2) return nullptr;
    bytes = (bytes + align - 1) / align * align;
    if (bytes > in_block_) {
        const size_t size = std::max(bytes, block);
        // aligned as operator new aligns
        blocks_.push_back(std::make_unique_for_overwrite<char[]>(size));
        next_ = blocks_.back().get();
        in_block_ = size;
    }
    char* const result = next_;
    next_ += bytes;
    in_block_ -= bytes;
    left_ -= std::min(left_, bytes);
    // Most messages are much shorter than a block.
    std::fill_n(result, bytes, '\0');
    return result;
}

void Check::bad(const char* field, const std::string& what) {
    if (error_.empty()) error_ = std::string(message_) + ": " + field + ": " + what;
}

NodeName Check::node(const char* field, const char* name) {
    if (!valid_full_node_name(name)) bad(field, "not a node name");
    return name;
}

std::string Check::address(const char* field, const char* text) {
    const std::string_view all = text;
    if (all.empty()) return {};
    const auto is_host_port = [](std::string_view one) {
        const auto colon = one.rfind(':');
        const bool printable =
            std::all_of(one.begin(), one.end(), [](char c) { return c > ' ' && c < '\x7f'; });
        if (!printable || colon == std::string_view::npos || colon == 0) return false;
        const unsigned port = whole_number<unsigned>(one.substr(colon + 1)).value_or(0);
        return port > 0 && port < 65'536;
    };
    if (all.size() <= rule::name_bytes_max) {
        const NodeAddress parts = NodeAddress::parted(all);
        const bool sound =
            is_host_port(parts.direct) && (parts.gateway.empty() || is_host_port(parts.gateway));
        if (sound && parts.text() == all) return text;
    }
    bad(field, "not an address: host:port is wanted, or host:port via host:port");
    return {};
}

JobId Check::job(const Pb__JobId* id) {
    if (!id) {
        bad("id", "missing");
        return {};
    }
    return {node("id", id->home), in<uint64_t>("id", id->seq, 1, rule::counter_max)};
}

std::string Check::strategy(const char* field, const char* text) {
    const std::string_view all = text;
    const bool clean = std::all_of(all.begin(), all.end(), [](char c) {
        return static_cast<unsigned char>(c) >= ' ' && c != '\x7f' && c != '\'' && c != '"';
    });
    if (all.size() > 31 || !clean) bad(field, "at most 31 characters and no quote");
    return text;
}

std::string Check::data(const char* field, const ProtobufCBinaryData& bytes, size_t n_max) {
    if (bytes.len > n_max) {
        bad(field, std::to_string(bytes.len) + " bytes, at most " + std::to_string(n_max));
        return {};
    }
    return bytes.len ? std::string(reinterpret_cast<const char*>(bytes.data), bytes.len)
                     : std::string();
}

std::string Check::c_string(const char* field, const ProtobufCBinaryData& bytes, size_t n_max) {
    std::string text = data(field, bytes, n_max);
    if (text.find('\0') != std::string::npos) bad(field, "a NUL byte inside");
    return text;
}

std::string clean(std::string_view text, size_t n_max) {
    size_t n = std::min(text.size(), n_max);
    for (int i = 0;
         i < 3 && n > 0 && n < text.size() && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80;
         ++i)
        --n;
    return blank_controls(text.substr(0, n));
}

char* fill_string(const std::string& text, Arena&) { return const_cast<char*>(text.c_str()); }

char* fill_line(std::string_view text, Arena& arena, size_t n_max) {
    const std::string line = clean(text, n_max);
    char* copy = arena.array<char>(line.size() + 1);
    std::memcpy(copy, line.c_str(), line.size() + 1);
    return copy;
}

ProtobufCBinaryData fill_bytes(std::string_view bytes) {
    return {bytes.size(), reinterpret_cast<uint8_t*>(const_cast<char*>(bytes.data()))};
}

Pb__JobId* fill_id(const JobId& id, Arena& arena) {
    auto* m = arena.array<Pb__JobId>(1);
    pb__job_id__init(m);
    m->home = fill_string(id.home, arena);
    m->seq = id.seq;
    return m;
}

std::string serialize(const ProtobufCMessage& message) {
    std::string bytes(protobuf_c_message_get_packed_size(&message), '\0');
    const size_t n = protobuf_c_message_pack(&message, reinterpret_cast<uint8_t*>(bytes.data()));
    MUST(n == bytes.size());
    return bytes;
}

// The decoder's own bookkeeping and the structs of a message take up to about 25 bytes for each of
// the shortest fields.
size_t arena_bytes_for(size_t message_bytes) { return 64 * 1024 + 32 * message_bytes; }

const ProtobufCMessage* parse_into(Arena& arena, const ProtobufCMessageDescriptor& descriptor,
                                   std::string_view bytes) {
    ProtobufCAllocator allocator{
        [](void* data, size_t size) { return static_cast<Arena*>(data)->allocate(size); },
        [](void*, void*) {}, &arena};
    return protobuf_c_message_unpack(&descriptor, &allocator, bytes.size(),
                                     reinterpret_cast<const uint8_t*>(bytes.data()));
}

}  // namespace souk::wire
