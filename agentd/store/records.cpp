// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/store/records.hpp"

#include "agentd/core/record_fields.hpp"
#include "agentd/store/records.pb-c.h"
#include "agentd/wire/spec_check.hpp"
#include "kernel/wire/field_codec.hpp"

namespace souk::wire {

// A story is two fields: its steps, and how many were left out.
void put(const Story& v, const Rule& rule, const Slot& slot, char* message, Arena& arena) {
    put(v.steps(), rule, slot, message, arena);
    reinterpret_cast<Pb__HomeJob*>(message)->story_left_out = v.left_out();
}
void get(Story& v, const Rule& rule, const Slot& slot, const char* message, Check& c) {
    std::vector<StoryStep> steps;
    get(steps, rule, slot, message, c);
    v = {std::move(steps), reinterpret_cast<const Pb__HomeJob*>(message)->story_left_out};
}

SOUK_RECORD_CODEC(HomeJob, pb__home_job)
SOUK_RECORD_CODEC(GuestJob, pb__guest_job)
SOUK_RECORD_CODEC(GuestUse, pb__guest_use)
SOUK_RECORD_CODEC(ProviderRecord, pb__provider_record)
SOUK_RECORD_CODEC(OwnerReturn, pb__owner_return)

}  // namespace souk::wire
