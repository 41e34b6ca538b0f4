// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/notify.hpp"

#include <systemd/sd-daemon.h>

#include <string>

namespace souk {
namespace {

Status notify(const std::string& text) {
    const int told = ::sd_notify(0, text.c_str());
    return told < 0 ? Status(fail_errno("tell the service manager", -told)) : Status{};
}

}  // namespace

Status notify_ready(std::string_view status_line) {
    std::string text = "READY=1";
    if (!status_line.empty())
        text += "\nSTATUS=" + std::string(status_line.substr(0, status_line.find('\n')));
    return notify(text);
}

Status notify_stopping() { return notify("STOPPING=1"); }

}  // namespace souk
