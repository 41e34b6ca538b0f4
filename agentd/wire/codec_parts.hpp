// SPDX-License-Identifier: GPL-2.0-or-later
// The description of a job, which several messages and records hold: as
// market/wire/codec_parts.hpp.
#pragma once

#include "agentd/core/messages.hpp"
#include "agentd/wire/agentd.pb-c.h"
#include "market/wire/codec_parts.hpp"

namespace souk::wire {

Pb__JobSpec* fill_spec(const JobSpec& spec, Arena& arena);
JobSpec take_spec(const Pb__JobSpec* spec, Check& check);

}  // namespace souk::wire
