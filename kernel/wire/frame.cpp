// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/frame.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "kernel/wire/codec.hpp"

namespace souk::wire {
namespace {

// a decoder between frames holds no more memory than this
constexpr size_t keep_bytes_max = 64 * 1024;

bool is_known(Words words, FrameType type) {
    return words(type) > 0 || type == frame_ping || type == frame_pong;
}

bool may_open(Side side, FrameType type) {
    if (side == Side::acceptor) return type == frame::hello;
    return type == frame::welcome || type == frame::error_text;
}

std::string number(FrameType type) { return std::to_string(static_cast<unsigned>(type)); }

}  // namespace

Status FrameDecoder::check_header() {
    length_ = uint32_t{head_[0]} | uint32_t{head_[1]} << 8 | uint32_t{head_[2]} << 16 |
              uint32_t{head_[3]} << 24;
    type_ = static_cast<FrameType>(head_[4] | head_[5] << 8);
    const unsigned flags = static_cast<unsigned>(head_[6] | head_[7] << 8);
    if (!opened_ && !may_open(side_, type_)) {
        if (is_known(words_, type_))
            return fail("the connection begins with a frame of type " + number(type_) +
                        ", not with a hello");
        return fail("this is not souk's protocol");
    }
    if (!is_known(words_, type_))
        return fail(CauseCode::invalid, "a frame of unknown type " + number(type_));
    if (flags != 0)
        return fail(CauseCode::invalid, "a frame of type " + number(type_) +
                                            " with unknown flags " + std::to_string(flags));
    if (length_ > words_(type_))
        return fail("a frame of type " + number(type_) + " with " + std::to_string(length_) +
                    " bytes, over its limit of " + std::to_string(words_(type_)));
    return {};
}

Result<std::optional<Frame>> FrameDecoder::next(ByteView& input) {
    if (error_) return tl::unexpected(*error_);
    if (std::exchange(gave_body_, false)) {
        body_.clear();
        if (body_.capacity() > keep_bytes_max) body_.shrink_to_fit();
    }
    if (!in_body_) {
        const size_t part = std::min(input.size(), frame_header_bytes - head_bytes_);
        std::copy_n(input.begin(), part, head_.begin() + static_cast<ptrdiff_t>(head_bytes_));
        input = input.subspan(part);
        head_bytes_ += part;
        if (head_bytes_ < frame_header_bytes) return std::nullopt;
        if (Status good = check_header(); !good) {
            error_ = good.error();
            return tl::unexpected(*error_);
        }
        opened_ = true;
        head_bytes_ = 0;
        in_body_ = true;
    }
    if (body_.empty() && input.size() >= length_) {  // whole in the input: not copied
        const Frame frame{type_, text_of(input.first(length_))};
        input = input.subspan(length_);
        in_body_ = false;
        return frame;
    }
    // Grows with what has come, not with what was announced, and never beyond that.
    const size_t part = std::min<size_t>(input.size(), length_ - body_.size());
    if (body_.size() + part > body_.capacity())
        body_.reserve(std::min<size_t>(length_, 2 * (body_.size() + part)));
    body_.insert(body_.end(), input.begin(), input.begin() + static_cast<ptrdiff_t>(part));
    input = input.subspan(part);
    if (body_.size() < length_) return std::nullopt;
    in_body_ = false;
    gave_body_ = true;
    return Frame{type_, text_of(body_)};
}

std::array<uint8_t, frame_header_bytes> frame_header(Words words, FrameType type,
                                                     size_t body_bytes) {
    MUST(is_known(words, type) && body_bytes <= words(type));
    const auto byte = [](size_t value, int shift) {
        return static_cast<uint8_t>(value >> shift & 0xff);
    };
    const auto number = static_cast<uint16_t>(type);
    return {byte(body_bytes, 0),
            byte(body_bytes, 8),
            byte(body_bytes, 16),
            byte(body_bytes, 24),
            byte(number, 0),
            byte(number, 8),
            0,
            0};
}

Bytes encode_frame(Words words, FrameType type, std::string_view body) {
    const auto head = frame_header(words, type, body.size());
    Bytes out(head.size() + body.size());
    std::copy(head.begin(), head.end(), out.begin());
    std::copy(body.begin(), body.end(), out.begin() + head.size());
    return out;
}

}  // namespace souk::wire
