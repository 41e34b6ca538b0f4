// SPDX-License-Identifier: GPL-2.0-or-later
// The wire format of protocol buffers, for who reads a few fields of a message that is not in its
// own hands: CRIU's images (checkpoint), a ticket as root (agentd/who). Kept so short that it can
// be looked through at once. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace souk {

// The fields of one message, one by one; `good` is false after a damaged one.
class ProtobufFields {
  public:
    // `base`: where `bytes` lie in the file, for value_at and inner_at.
    explicit ProtobufFields(std::string_view bytes, size_t base = 0) : bytes_(bytes), base_(base) {}
    bool next() {
        if (at_ >= bytes_.size()) return false;
        uint64_t tag;
        if (!varint(tag)) return false;
        if (tag >> 3 == 0 || tag > UINT32_MAX) return good = false;  // no field has that number
        number = static_cast<uint32_t>(tag >> 3);
        value = 0;
        switch (tag & 7) {
            case 0: value_at = base_ + at_; return varint(value);
            case 1: return skip(8);
            case 2: {
                uint64_t length;
                if (!varint(length) || length > bytes_.size() - at_) return good = false;
                inner = bytes_.substr(at_, length);
                inner_at = base_ + at_;
                at_ += length;
                return true;
            }
            case 5: return skip(4);
        }
        return good = false;
    }

    bool good = true;
    uint32_t number = 0;
    uint64_t value = 0;
    size_t value_at = 0, inner_at = 0;
    std::string_view inner;

  private:
    bool varint(uint64_t& v) {
        v = 0;
        for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
            const auto byte = static_cast<uint8_t>(bytes_[at_++]);
            v |= uint64_t{byte & 0x7fU} << shift;
            if (byte < 0x80) return true;
        }
        return good = false;
    }
    bool skip(size_t n) {
        if (n > bytes_.size() - at_) return good = false;
        at_ += n;
        return true;
    }

    std::string_view bytes_;
    size_t base_, at_ = 0;
};

}  // namespace souk
