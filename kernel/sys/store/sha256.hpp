// SPDX-License-Identifier: GPL-2.0-or-later
// SHA-256 (FIPS 180-4) by OpenSSL.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace souk {

// 64 hexadecimal digits.
std::string sha256_hex(std::string_view bytes);
// Of all parts, one after the other.
std::string sha256_of_parts(std::initializer_list<std::string_view> parts);

}  // namespace souk
