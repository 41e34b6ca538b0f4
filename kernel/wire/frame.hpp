// SPDX-License-Identifier: GPL-2.0-or-later
// Frames over a byte stream: a header of 8 bytes {u32 length of the body, u16 type, u16 flags = 0},
// little-endian, then the body (a packed message). FrameDecoder is pure: bytes in, frames or one
// error out. Nothing of a body is kept before its header has passed: a type that is among the
// connection's words, no longer than that may be, flags 0, and as the first frame of a connection
// only what may open one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/bytes.hpp"

namespace souk::wire {

inline constexpr size_t frame_header_bytes = 8;

// A kind of frame. Which there are, the tables of words say (codec.hpp).
enum class FrameType : uint16_t {};

// The words that one connection knows: the longest body of a frame of this type, in bytes; 0: there
// is no such type.
using Words = uint32_t (*)(FrameType);

// The channel's own frames (channel.hpp), without a body: whoever gets a ping answers with a pong.
inline constexpr FrameType frame_ping{0xff00};
inline constexpr FrameType frame_pong{0xff01};

struct Frame {
    FrameType type{};
    std::string_view body;
};

// The side of this end says what may come first: to an acceptor a hello, to a connector a welcome
// or an error.
enum class Side : uint8_t { acceptor, connector };

class FrameDecoder {
  public:
    FrameDecoder(Words words, Side side) : words_(words), side_(side) {}

    // Takes bytes from the front of `input` until a frame is whole; nothing if `input` ended
    // before. The frame's body lies in `input` or in the decoder, and is valid until the next call.
    // After an error the stream cannot be read on: every further call returns the same error.
    Result<std::optional<Frame>> next(ByteView& input);
    // From the next frame on, only these types may come, because what a peer may say depends on who
    // it is.
    void allow(Words words) { words_ = words; }
    // Tells whether the stream ended between two frames (true), or inside one.
    bool between_frames() const { return head_bytes_ == 0 && !in_body_; }
    // Memory held for a frame that is not whole yet, in bytes.
    size_t held() const { return head_bytes_ + (in_body_ ? body_.capacity() : 0); }

  private:
    Status check_header();
    Words words_;
    Side side_;
    bool opened_ = false;
    bool in_body_ = false;
    bool gave_body_ = false;  // body_ was given out by the last call
    size_t head_bytes_ = 0;
    std::array<uint8_t, frame_header_bytes> head_{};
    uint32_t length_ = 0;
    FrameType type_{};
    Bytes body_;
    std::optional<Error> error_;
};

// The header of a frame whose body has that many bytes; more than the type may have is a bug of the
// caller.
std::array<uint8_t, frame_header_bytes> frame_header(Words words, FrameType type,
                                                     size_t body_bytes);
// Header and body in one.
Bytes encode_frame(Words words, FrameType type, std::string_view body);

}  // namespace souk::wire
