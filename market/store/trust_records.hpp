// SPDX-License-Identifier: GPL-2.0-or-later
// These records say who may join the market and who has: join tokens, and the keys that the market
// has certified.
#pragma once

#include <string>
#include <string_view>

#include "kernel/trust/token.hpp"
#include "kernel/wire/codec.hpp"

namespace souk {

struct Member {
    std::string key;   // its digest
    std::string name;  // of a node or an operator
    trust::Roles roles;
    Nanos joined, ends;  // of its newest certificate, in Unix time
    bool revoked = false;
    std::string users = {};  // as its token's
    std::string scope = {};  // as its certificate's (kernel/trust/subject.hpp)
    bool came = false;       // has been here with it
    bool operator==(const Member&) const = default;
};

namespace wire {

std::string pack(const trust::TokenRecord& record);
std::string pack(const Member& record);
template <>
Result<trust::TokenRecord> unpack<trust::TokenRecord>(std::string_view bytes);
template <>
Result<Member> unpack<Member>(std::string_view bytes);

}  // namespace wire
}  // namespace souk
