// SPDX-License-Identifier: GPL-2.0-or-later
// The lines by which a Home (home.hpp) tells each step to its listener (kernel/base/trace.hpp).
#pragma once

#include <string>

#include "agentd/core/home_io.hpp"
#include "kernel/base/trace.hpp"

namespace souk::home {

TraceLine trace_in(Input input, const JobId& id = {}, Epoch epoch = {}, const NodeName& node = {},
                   std::string why = {});
TraceLine trace_order(const Order& order);
TraceLine trace_event(const NodeName& node, const GuestEvent& event);
TraceLine trace_output(const Output& output);
// The phase of a job, with the steps of a move and of a cut.
TraceLine trace_job(const HomeJob& job);
// The job is not here any more.
TraceLine trace_gone(const JobId& id);

}  // namespace souk::home
