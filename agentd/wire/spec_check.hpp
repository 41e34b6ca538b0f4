// SPDX-License-Identifier: GPL-2.0-or-later
// Checks of a job's description what no rule of one field can say, wherever the description lies.
// Codec files alone include this, before they use the codec of a struct that holds one.
#pragma once

#include "agentd/core/message_fields.hpp"
#include "kernel/wire/field_codec.hpp"

namespace souk::wire {

void check_spec(JobSpec& spec, Check& c);
// Checks a job as its user gives it: its home has not added anything.
void check_given_spec(const JobSpec& spec, Check& c);
template <>
inline constexpr auto also_check<JobSpec> = check_spec;

}  // namespace souk::wire
