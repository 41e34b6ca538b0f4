// SPDX-License-Identifier: GPL-2.0-or-later
// The values that the owner of a node can set: their bounds, and which of them hold over those of
// the configuration. Part of Provider (provider.hpp), which keeps the records.
#pragma once

#include <string>
#include <vector>

#include "agentd/core/provider_io.hpp"
#include "kernel/base/result.hpp"

namespace souk::provider {

Status check_price(Money reserve);
Status check_speed(int64_t speed);
Status check_warning(int64_t seconds);
// `offered` is from 1 to what the machine has; `why` follows the bounds in the error.
Status check_range(const char* what, int64_t value, int64_t low, int64_t high,
                   const char* why = "");
// All of these, for a record that was read.
Status check_record(const ProviderRecord& record);

// The record that holds: the owner's values of the kept record, and the configuration's for all
// others. In a record that does not tell which are the owner's, every value counts that differs.
ProviderRecord joined(const ProviderRecord& file, ProviderRecord kept);

// A value of the owner that differs from the configuration's.
struct Override {
    std::string name, value, file;
    bool operator==(const Override&) const = default;
};
// by_frames: the frames say whether the node is on the market, so that is no value of the owner.
std::vector<Override> overrides(const ProviderRecord& file, const ProviderRecord& record,
                                bool by_frames);

}  // namespace souk::provider
