// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/terminal.hpp"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace souk::tools {
namespace {

// Plain globals: the fatal-signal handler reads them.
termios saved;
volatile sig_atomic_t is_raw = 0;

void put_back() {
    if (!is_raw) return;
    is_raw = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
}

void on_fatal(int number) {
    put_back();
    signal(number, SIG_DFL);
    raise(number);
}

void guard_ways_out() {
    static bool done = false;
    if (done) return;
    done = true;
    std::atexit(put_back);
    for (const int number :
         {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGXCPU, SIGXFSZ, SIGALRM, SIGTRAP})
        signal(number, on_fatal);
}

}  // namespace

bool Terminal::present() { return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO); }

// If the terminal is not the controlling one (su -c, setsid), or is gone, nobody is in the
// background.
bool Terminal::foreground() {
    const pid_t group = tcgetpgrp(STDIN_FILENO);
    return group < 0 ? errno == ENOTTY || errno == EIO : group == getpgrp();
}

void Terminal::raw() {
    if (is_raw || !foreground() || tcgetattr(STDIN_FILENO, &saved) < 0) return;
    guard_ways_out();
    termios mode = saved;
    cfmakeraw(&mode);
    is_raw = 1;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
}

void Terminal::restore() { put_back(); }

int Terminal::signal_of(char key) {
    const auto byte = static_cast<cc_t>(key);
    if (!is_raw || !(saved.c_lflag & ISIG) || byte == _POSIX_VDISABLE) return 0;
    if (byte == saved.c_cc[VINTR]) return SIGINT;
    if (byte == saved.c_cc[VQUIT]) return SIGQUIT;
    return byte == saved.c_cc[VSUSP] ? SIGTSTP : 0;
}

Terminal::Size Terminal::size() {
    winsize size{};
    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
        return {};
    return {size.ws_row, size.ws_col};
}

void say(std::string_view text) {
    const std::string line =
        "srun: " + std::string(text) + (is_raw && isatty(STDERR_FILENO) ? "\r\n" : "\n");
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody is there to be told
}

}  // namespace souk::tools
