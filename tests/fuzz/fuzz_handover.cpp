// SPDX-License-Identifier: GPL-2.0-or-later
// souk-handshake and agentd talk to each other, and one of them may send any bytes. Reading them
// gives a value or an error of one line, and a value is what its packet says. The second part reads
// records of a session whose keys an attacker has.
#include <cstdlib>
#include <string>

#include "agentd/handshake/handover.hpp"
#include "kernel/base/ids.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace souk;
using namespace souk::handshake;

void told(std::string_view packet) {
    const auto taken = parse_told(packet);
    one_line(taken);
    if (!taken) return;
    const auto again = parse_told(pack(*taken));
    REQUIRE(again && again->index() == taken->index());
    if (const auto* s = std::get_if<Shaken>(&*taken)) {
        REQUIRE(pack(*taken) == packet);
        REQUIRE(valid_node_name(s->keys.peer.subject.name));
        one_line(wire::session_transport(s->keys));
    }
    if (const auto* f = std::get_if<Failed>(&*taken))
        REQUIRE(!f->why.empty() && f->why.find('\n') == std::string::npos);
}

void asked(std::string_view packet) {
    const auto taken = parse_asked(packet);
    one_line(taken);
    if (!taken) return;
    const auto again = parse_asked(pack(*taken));
    REQUIRE(again && *again == *taken);
    const auto identity = parse_identity(packet);
    one_line(identity);
}

wire::SessionKeys keys_of(char in, char out) {
    wire::SessionKeys keys;
    keys.cipher = wire::SessionKeys::aes_128_gcm;
    keys.from_peer = std::string(32, in);
    keys.to_peer = std::string(32, out);
    return keys;
}

// The bytes are first read as they are, which is damage. Then they are sealed with the right keys
// and read in pieces, and must come out unchanged.
void records(std::string_view bytes) {
    const auto ours = wire::session_transport(keys_of('a', 'b'));
    Bytes reply;
    const auto noise = (*ours)->open(bytes_of(bytes), reply);
    REQUIRE(!noise || noise->empty());
    one_line(noise);
    const auto from = wire::session_transport(keys_of('b', 'a')),
               to = wire::session_transport(keys_of('a', 'b'));
    const ByteView clear = bytes_of(bytes);
    const auto sealed = (*from)->seal(Bytes(clear.begin(), clear.end()));
    REQUIRE(sealed.has_value());
    std::string came;
    const size_t piece = bytes.empty() ? 1 : 1 + static_cast<unsigned char>(bytes[0]);
    for (size_t at = 0; at < sealed->size(); at += piece) {
        Bytes none;
        const auto some =
            (*to)->open(ByteView(*sealed).subspan(at, std::min(piece, sealed->size() - at)), none);
        REQUIRE(some && none.empty());
        came += text_of(*some);
    }
    REQUIRE(came == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    told(bytes);
    asked(bytes);
    records(bytes);
    return 0;
}
