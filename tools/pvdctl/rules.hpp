// SPDX-License-Identifier: GPL-2.0-or-later
// The owner's rules, as text: frames, prices, limits, and why things are as they are.
#pragma once

#include <span>

#include "tools/common/ctl.hpp"

namespace souk::tools {

// `frames`, `price`, `share`, `evict`, `ban` and `allow` with what follows them. Errors: wrong
// usage.
Result<CtlQuestion> parse_frames(std::span<char*> words);
Result<CtlQuestion> parse_price(std::span<char*> words);
Result<CtlQuestion> parse_share(std::span<char*> words);
Result<CtlQuestion> parse_guest_rule(std::span<char*> words);

Result<std::string> frames_text(const Answer& answer);
Result<std::string> price_text(const Answer& answer);
Result<std::string> share_text(const Answer& answer);
Result<std::string> limits_text(const Answer& answer);
Result<std::string> owner_why_text(const Answer& answer);

}  // namespace souk::tools
