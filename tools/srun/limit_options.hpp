// SPDX-License-Identifier: GPL-2.0-or-later
// The options of srun that say how long a job may run, how often it is run again, on which nodes
// and from when on.
#pragma once

#include <vector>

#include "tools/srun/options.hpp"

namespace souk::tools {

std::vector<Option> limit_options(SrunOptions& options);
std::vector<Option> needs_options(SrunOptions& options);
// [DAYS-]HOURS:MINUTES[:SECONDS] and MINUTES:SECONDS as Slurm reads them, or a number with a unit;
// a number alone is minutes.
Result<Nanos> parse_limit(std::string_view text);

// The price of jobs that do not say one: $SOUK_PRICE, or else a line of ~/.config/souk/price.
Result<Money> default_price();

}  // namespace souk::tools
