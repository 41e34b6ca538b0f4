// SPDX-License-Identifier: GPL-2.0-or-later
// The records that an agentd keeps on disk, as bytes and back: one for each job of its home and of
// its guest, one for what the node offers. As kernel/wire/codec.hpp; an older program's record
// reads with the defaults of the fields that it lacks.
#pragma once

#include "agentd/core/guest_io.hpp"
#include "agentd/core/home_io.hpp"
#include "agentd/core/owner_returns.hpp"
#include "agentd/core/provider.hpp"
#include "agentd/core/use_meter.hpp"
#include "agentd/wire/codec.hpp"

namespace souk::wire {

std::string pack(const HomeJob& job);
std::string pack(const GuestJob& job);
std::string pack(const GuestUse& use);
std::string pack(const ProviderRecord& record);
std::string pack(const OwnerReturn& record);
template <>
Result<HomeJob> unpack<HomeJob>(std::string_view bytes);
template <>
Result<GuestJob> unpack<GuestJob>(std::string_view bytes);
template <>
Result<GuestUse> unpack<GuestUse>(std::string_view bytes);
template <>
Result<ProviderRecord> unpack<ProviderRecord>(std::string_view bytes);
template <>
Result<OwnerReturn> unpack<OwnerReturn>(std::string_view bytes);

}  // namespace souk::wire
