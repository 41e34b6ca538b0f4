// SPDX-License-Identifier: GPL-2.0-or-later
// The frame decoder: whatever the bytes and however they are split, the same frames and the same
// error come out, no body passes its type's limit, and what was decoded encodes to the bytes that
// it came from.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "agentd/wire/codec.hpp"
#include "kernel/wire/frame.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace souk;
using namespace souk::wire;

// The encoded frames, then the error. `step`: bytes fed at a time, in a buffer of their own that
// goes at once.
std::string decoded(Side side, ByteView bytes, size_t step) {
    FrameDecoder decoder(agent_words, side);
    std::string out;
    bool first = true;
    while (!bytes.empty()) {
        const ByteView part = bytes.first(std::min(step, bytes.size()));
        bytes = bytes.subspan(part.size());
        const Bytes copy(part.begin(), part.end());
        ByteView input = copy;
        for (;;) {
            const auto frame = decoder.next(input);
            if (!frame) {
                REQUIRE(!frame.error().message.empty() &&
                        frame.error().message.find('\n') == std::string::npos);
                ByteView more = copy;
                REQUIRE(!decoder.next(more) && more.size() == copy.size());
                return out + frame.error().message;
            }
            if (!*frame) break;
            const auto& [type, body] = **frame;
            REQUIRE(body.size() <= agent_words(type));
            if (first)
                REQUIRE(side == Side::acceptor
                            ? type == frame::hello
                            : type == frame::welcome || type == frame::error_text);
            first = false;
            out += text_of(encode_frame(agent_words, type, body));
        }
        REQUIRE(input.empty());
        REQUIRE(decoder.held() <= frame_header_bytes + agent_words(frame::submit));
    }
    return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 2) return 0;
    const Side side = (data[0] & 1) != 0 ? Side::connector : Side::acceptor;
    const size_t step = 1 + data[1];
    const ByteView bytes(data + 2, size - 2);
    const std::string whole = decoded(side, bytes, bytes.size());
    REQUIRE(decoded(side, bytes, step) == whole);
    REQUIRE(decoded(side, bytes, 1) == whole);
    // Up to the error or the unfinished frame, what came out is what went in.
    const std::string_view in = text_of(bytes);
    const size_t common = std::min(whole.size(), in.size());
    size_t same = 0;
    while (same < common && whole[same] == in[same]) ++same;
    FrameDecoder again(agent_words, side);
    ByteView rest = bytes;
    for (auto frame = again.next(rest); frame && *frame; frame = again.next(rest))
        REQUIRE(bytes.size() - rest.size() <= same);
    return 0;
}
