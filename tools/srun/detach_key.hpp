// SPDX-License-Identifier: GPL-2.0-or-later
// DetachKey: finds "~." at the start of a line of what is typed, as ssh does. "~~" there is one
// "~". It holds a "~" back until it knows what follows. Pure.
#pragma once

#include <string>
#include <string_view>

namespace souk::tools {

class DetachKey {
  public:
    struct Typed {
        std::string data;  // for the job
        bool detach = false;
    };
    // Takes what was typed. Throws away what follows the key in the same piece.
    Typed take(std::string_view typed);
    // A "~" that is held back, as nothing follows it.
    std::string end();

  private:
    bool line_begins_ = true, held_ = false;
};

}  // namespace souk::tools
