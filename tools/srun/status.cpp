// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/status.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include "kernel/base/text.hpp"
#include "tools/srun/terminal.hpp"

namespace souk::tools {
namespace {

void write_status(const std::string& text) {
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nobody looks
}

size_t columns_now() {
    winsize size{};
    constexpr size_t usual = 80;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual;
}

}  // namespace

std::string status_text(std::string_view news, size_t columns) {
    std::string text = "srun: ";
    size_t characters = text.size();
    for (const char c : blank_controls(news)) {
        const bool goes_on = (c & 0xc0) == 0x80;
        if (!goes_on && ++characters > columns) break;
        text += c;
    }
    return text;
}

void StatusLine::show(std::string_view news, bool hidden) {
    if (mode_ == StatusMode::log) return say(news);
    if (mode_ == StatusMode::never) return;
    clear();
    if (hidden) return;
    write_status("\r" + status_text(news, columns_now() - 1));
    shown_ = true;
}

void StatusLine::clear() {
    if (!shown_) return;
    write_status("\r\x1b[K");
    shown_ = false;
}

}  // namespace souk::tools
