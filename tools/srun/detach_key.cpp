// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/detach_key.hpp"

#include <utility>

namespace souk::tools {

DetachKey::Typed DetachKey::take(std::string_view typed) {
    Typed result;
    for (const char key : typed) {
        if (std::exchange(held_, false)) {
            if (key == '.') {
                result.detach = true;
                return result;
            }
            result.data += '~';
            if (key == '~') {
                line_begins_ = false;
                continue;
            }
        } else if (line_begins_ && key == '~') {
            held_ = true;
            continue;
        }
        result.data += key;
        line_begins_ = key == '\r' || key == '\n';
    }
    return result;
}

std::string DetachKey::end() { return std::exchange(held_, false) ? "~" : ""; }

}  // namespace souk::tools
