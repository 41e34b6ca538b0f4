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

Status notify_reloading() {
    return notify("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(Loop::now().ns / 1'000));
}

Watchdog::Watchdog(Loop& loop) : loop_(loop) {
    uint64_t limit_us = 0;
    if (::sd_watchdog_enabled(0, &limit_us) <= 0) return;
    span_ = Nanos{static_cast<int64_t>(limit_us) * 1'000 / 3};
    keep();
}

void Watchdog::keep() {
    (void)notify("WATCHDOG=1");
    timer_ = loop_.after(span_, [this] { keep(); });
}

}  // namespace souk
