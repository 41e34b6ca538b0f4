// SPDX-License-Identifier: GPL-2.0-or-later
// The user's terminal while srun stands for a job that has a terminal of its own: raw, so that
// every key is a byte for the job, and put back as it was on every way out (return, exit, a fatal
// signal, a stop by job control). One per process; only the foreground process group may change it.
#pragma once

#include <cstdint>
#include <string_view>

namespace souk::tools {

class Terminal {
  public:
    Terminal() = default;
    ~Terminal() { restore(); }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    // stdin and stdout are terminals.
    static bool present();
    static bool foreground();
    // Does nothing in the background: the caller tries again when it is continued.
    void raw();
    void restore();
    // Returns the signal that this key would have sent, had the terminal not been raw: SIGINT,
    // SIGQUIT or SIGTSTP; else 0.
    static int signal_of(char key);
    struct Size {
        uint16_t rows = 24, cols = 80;
    };
    static Size size();
};

// A line on stderr that begins with "srun: ", right on a raw terminal too.
void say(std::string_view text);

}  // namespace souk::tools
