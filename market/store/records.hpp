// SPDX-License-Identifier: GPL-2.0-or-later
// The records that marketd keeps on disk, as bytes and back: as kernel/wire/codec.hpp.
#pragma once

#include "market/core/market.hpp"
#include "market/wire/codec.hpp"

namespace souk::wire {

std::string pack(const market::JobRecord& record);
std::string pack(const market::NodeRecord& record);
std::string pack(const market::AccountRecord& record);
std::string pack(const market::MetaRecord& record);
std::string pack(const market::UserRecord& record);
std::string pack(const market::PriceRecord& record);
template <>
Result<market::JobRecord> unpack<market::JobRecord>(std::string_view bytes);
template <>
Result<market::NodeRecord> unpack<market::NodeRecord>(std::string_view bytes);
template <>
Result<market::AccountRecord> unpack<market::AccountRecord>(std::string_view bytes);
template <>
Result<market::MetaRecord> unpack<market::MetaRecord>(std::string_view bytes);
template <>
Result<market::UserRecord> unpack<market::UserRecord>(std::string_view bytes);
template <>
Result<market::PriceRecord> unpack<market::PriceRecord>(std::string_view bytes);

}  // namespace souk::wire
