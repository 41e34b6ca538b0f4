// SPDX-License-Identifier: GPL-2.0-or-later
// The acceptor that takes both TLS and plain frames: which it takes, however the bytes come.
#include "kernel/wire/either.hpp"

#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

// Stands for TLS, and shows that it was chosen.
struct Marked final : wire::Transport {
    Result<ByteView> open(ByteView bytes, Bytes&) override {
        seen.insert(seen.end(), bytes.begin(), bytes.end());
        return ByteView(seen);
    }
    Result<Bytes> seal(Bytes&&) override { return Bytes{'T'}; }
    Bytes seen;
};

// Feeds these bytes one at a time, then shows how an answer would be sealed: "T" by TLS, "c" plain,
// "" by none.
std::string sealed_after(const Bytes& bytes, Bytes* clear = nullptr) {
    const auto either = wire::either_transport(std::make_unique<Marked>());
    Bytes reply, all;
    for (const uint8_t byte : bytes) {
        const auto opened = either->open(ByteView(&byte, 1), reply);
        ck_assert(opened.has_value());
        all.insert(all.end(), opened->begin(), opened->end());
    }
    if (clear) *clear = all;
    const Bytes out = *either->seal(Bytes{'c'});
    return {out.begin(), out.end()};
}

START_TEST(the_first_three_bytes_tell_how_a_peer_speaks) {
    ck_assert_text(sealed_after({22, 3, 1, 0}), "T");
    ck_assert_text(sealed_after({22, 3, 3}), "T");
    Bytes clear;
    const Bytes hello = {22, 0, 0, 0, 1, 0, 0, 0};  // a frame of 22 bytes
    ck_assert_text(sealed_after(hello, &clear), "c");
    ck_assert(clear == hello);
    ck_assert_text(sealed_after({22, 3, 0, 0}), "c");  // one of 790 bytes
    ck_assert_text(sealed_after({40, 3, 1, 0}), "c");
    ck_assert_text(sealed_after({22, 3}), "");
    ck_assert_text(sealed_after({}), "");
}
END_TEST

}  // namespace

UNIT_SUITE(either, the_first_three_bytes_tell_how_a_peer_speaks);

}  // namespace souk::unit
