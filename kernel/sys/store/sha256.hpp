// SPDX-License-Identifier: GPL-2.0-or-later
// SHA-256 (FIPS 180-4) by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace souk {

// 64 hexadecimal digits.
std::string sha256_hex(std::string_view bytes);
// Returns the digest of all parts, one after the other.
std::string sha256_of_parts(std::initializer_list<std::string_view> parts);

// Makes the digest of bytes that come in parts.
class Sha256 {
  public:
    using Digest = std::array<uint8_t, 32>;
    Sha256();
    void update(std::span<const uint8_t> bytes);
    Digest finish();

  private:
    alignas(8) std::array<std::byte, 112> context_{};
};

std::string hex_of(const Sha256::Digest& digest);

}  // namespace souk
