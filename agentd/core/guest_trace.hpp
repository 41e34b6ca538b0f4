// SPDX-License-Identifier: GPL-2.0-or-later
// The lines by which a Guest (guest.hpp) tells each step to its listener (kernel/base/trace.hpp).
#pragma once

#include <string>

#include "agentd/core/guest_entry.hpp"
#include "kernel/base/trace.hpp"

namespace souk::guest {

// An input about a job, an input about a home, and a command of a home.
TraceLine trace_in(Input input, const GuestKey& key, std::string why = {});
TraceLine trace_home(Input input, const NodeName& home);
TraceLine trace_command(const NodeName& from, const GuestCommand& c);
TraceLine trace_output(const Output& output);
// The state of a job. While it runs the line says also what is wanted of it and how far a dump is;
// and while its capsule is being ended, why.
TraceLine trace_entry(const Entry& e);
// The job is not here any more.
TraceLine trace_gone(const GuestKey& key);

}  // namespace souk::guest
