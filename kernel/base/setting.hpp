// SPDX-License-Identifier: GPL-2.0-or-later
// A word "key=value" of a request. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace souk {

struct KeyValue {
    std::string key, value;
};

// Parts `word` at its first "=". Without one all of it is the key.
inline KeyValue parse_setting(std::string_view word) {
    const size_t equals = std::min(word.find('='), word.size());
    return {std::string(word.substr(0, equals)),
            std::string(word.substr(std::min(equals + 1, word.size())))};
}

}  // namespace souk
