// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl's orders by hand: they wait for what becomes of them.
#pragma once

#include "tools/common/ctl.hpp"

namespace souk::tools {

// move, freeze or thaw: its answer is what became of it, within `limit_s`.
void wait_for_order(CtlQuestion& question, int64_t limit_s);

}  // namespace souk::tools
