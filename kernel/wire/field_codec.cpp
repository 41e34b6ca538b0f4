// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/field_codec.hpp"

#include <algorithm>

#include "kernel/base/check.hpp"
#include "kernel/base/text.hpp"

namespace souk::wire {

Slot Slot::of(const ProtobufCMessageDescriptor& message, const char* name) {
    const auto* field = protobuf_c_message_descriptor_get_field_by_name(&message, name);
    MUST(field != nullptr);
    Slot slot{field, field->offset, field->quantifier_offset, Kind::other};
    switch (field->type) {
        case PROTOBUF_C_TYPE_INT32: slot.kind = Kind::signed32; break;
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32: slot.kind = Kind::unsigned32; break;
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED64: slot.kind = Kind::bits64; break;
        case PROTOBUF_C_TYPE_STRING: slot.kind = Kind::string; break;
        case PROTOBUF_C_TYPE_BYTES: slot.kind = Kind::bytes; break;
        default: break;
    }
    return slot;
}

char* new_message(const ProtobufCMessageDescriptor& d, Arena& arena) {
    char* message = static_cast<char*>(arena.allocate(d.sizeof_message));
    protobuf_c_message_init(&d, message);
    return message;
}

// ---- texts

namespace {

bool is_bytes(const Slot& slot) { return slot.kind == Slot::Kind::bytes; }

char* string_of(const std::string& v, const Rule& rule, Arena& arena) {
    const bool line = rule.text == TextRule::line || rule.text == TextRule::label;
    return line ? fill_line(v, arena, rule.bytes_max) : fill_string(v, arena);
}

std::string field_text_of(const char* from, const Rule& rule, const char* name, Check& c) {
    switch (rule.text) {
        case TextRule::line: return clean(from, rule.bytes_max);
        case TextRule::label:
            if (*from)
                if (const Status good = check_label(from, rule.bytes_max); !good)
                    c.bad(name, good.error().message);
            return clean(from, rule.bytes_max);
        case TextRule::node: return c.node(name, from);
        case TextRule::node_or_none: return c.node_or_none(name, from);
        case TextRule::address: return c.address(name, from);
        case TextRule::strategy: return c.strategy(name, from);
        default: return from;
    }
}

std::string field_bytes_of(const ProtobufCBinaryData& from, const Rule& rule, const char* name,
                           Check& c) {
    return rule.text == TextRule::c_string ? c.c_string(name, from, rule.bytes_max)
                                           : c.data(name, from, rule.bytes_max);
}

}  // namespace

void put(const std::string& v, const Rule& rule, const Slot& slot, char* message, Arena& arena) {
    if (is_bytes(slot))
        slot.in<ProtobufCBinaryData>(message) = fill_bytes(v);
    else
        slot.in<char*>(message) = string_of(v, rule, arena);
}

void get(std::string& v, const Rule& rule, const Slot& slot, const char* message, Check& c) {
    const char* name = slot.field->name;
    v = is_bytes(slot) ? field_bytes_of(slot.in<ProtobufCBinaryData>(message), rule, name, c)
                       : field_text_of(slot.in<const char*>(message), rule, name, c);
}

// ---- lists

bool too_many(size_t n, const Rule& rule, const Slot& slot, Check& c) {
    if (n <= rule.entries_max) return false;
    c.bad(slot.field->name,
          std::to_string(n) + " entries, at most " + std::to_string(rule.entries_max));
    return true;
}

void put_strings(const std::string* from, size_t n, const Rule& rule, const Slot& slot,
                 char* message, Arena& arena) {
    if (is_bytes(slot)) {
        auto* to = arena.array<ProtobufCBinaryData>(n);
        slot.in<ProtobufCBinaryData*>(message) = to;
        for (size_t i = 0; i < n; ++i) to[i] = fill_bytes(from[i]);
    } else {
        char** to = arena.array<char*>(n);
        slot.in<char**>(message) = to;
        for (size_t i = 0; i < n; ++i) to[i] = string_of(from[i], rule, arena);
    }
}

void get_strings(std::vector<std::string>& v, const Rule& rule, const Slot& slot,
                 const char* message, Check& c) {
    const size_t n = slot.count(message);
    const char* name = slot.field->name;
    v.reserve(n);
    if (is_bytes(slot)) {
        const auto* from = slot.in<const ProtobufCBinaryData*>(message);
        for (size_t i = 0; i < n && c.ok(); ++i)
            v.push_back(field_bytes_of(from[i], rule, name, c));
    } else {
        const char* const* from = slot.in<const char* const*>(message);
        for (size_t i = 0; i < n && c.ok(); ++i) v.push_back(field_text_of(from[i], rule, name, c));
    }
}

}  // namespace souk::wire
