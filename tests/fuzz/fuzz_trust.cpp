// SPDX-License-Identifier: GPL-2.0-or-later
// Strangers send these to join: requests for certificates, join tokens, revocation lists,
// certificates. Whatever the bytes are, reading them gives a value or an error of one line, and a
// value is what its text says.
#include <cstdlib>
#include <string>

#include "kernel/base/ids.hpp"
#include "kernel/trust/revocations.hpp"
#include "kernel/trust/ticket_list.hpp"
#include "kernel/trust/token.hpp"
#include "kernel/trust/verify.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace souk;
using namespace souk::trust;

void request(std::string_view bytes) {
    const auto taken = parse_request(bytes);
    one_line(taken);
    if (taken) REQUIRE(valid_node_name(taken->name) && taken->key.digest().size() == 64);
}

void token(std::string_view text) {
    const auto taken = parse_token(text);
    one_line(taken);
    if (taken) REQUIRE(taken->text() == text);
}

void revocations(std::string_view text) {
    static const Key key = *Key::make();
    const auto taken = parse_revocations(text, key);
    one_line(taken);
    REQUIRE(!taken);  // nobody has that key
    // The same body with a valid signature is read.
    const size_t last = text.rfind("signature ");
    if (last == text.npos) return;
    const std::string body(text.substr(0, last));
    const auto read = parse_revocations(body + "signature " + hex(*key.sign(body)) + "\n", key);
    one_line(read);
    if (read) REQUIRE(parse_revocations(*sign(*read, key), key) == *read);
}

void ticket_list(std::string_view text) {
    static const Key key = *Key::make();
    const auto taken = parse_ticket_list(text, key);
    one_line(taken);
    REQUIRE(!taken);
    const size_t last = text.find("signature ");
    if (last == text.npos) return;
    const std::string body(text.substr(0, last));
    const auto read = parse_ticket_list(body + "signature " + hex(*key.sign(body)) + "\n", key);
    one_line(read);
    if (read) REQUIRE(parse_ticket_list(*sign(*read, key), key) == *read);
}

void certificate(std::string_view bytes) {
    static const Authority root = *make_root("m", Nanos::from_s(1'800'000'000));
    auto taken = Certificate::from_der(bytes);
    one_line(taken);
    if (!taken) return;
    one_line(taken->subject());
    one_line(taken->key());
    const auto peer = verify({*taken}, root.certificate, {}, Nanos::from_s(1'800'000'000));
    one_line(peer);
    REQUIRE(!peer);  // nobody can sign for that root
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < 1) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    switch (data[0] % 4) {
        case 0: request(bytes); break;
        case 1: token(bytes); break;
        case 2:
            revocations(bytes);
            ticket_list(bytes);
            break;
        default: certificate(bytes);
    }
    return 0;
}
