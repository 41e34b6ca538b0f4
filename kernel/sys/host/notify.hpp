// SPDX-License-Identifier: GPL-2.0-or-later
// What a daemon tells the service manager that started it, if one listens (sd_notify(3)); ok if
// none does.
#pragma once

#include <string_view>

#include "kernel/base/result.hpp"

namespace souk {

// One line for `systemctl status` may go along.
Status notify_ready(std::string_view status_line = {});
Status notify_stopping();

}  // namespace souk
