// SPDX-License-Identifier: GPL-2.0-or-later
// What a daemon's configuration says, as far as a tool that changes it must know.
#pragma once

#include <string>

namespace souk {

std::string config_text(const std::string& path);  // empty: it cannot be read
// The value of a key of a daemon's configuration, if it is a text there.
std::string configured(const std::string& text, const std::string& key);
// Whether it sets the key, to whatever.
bool says(const std::string& text, const std::string& key);
// The text without the lines that set the key, and the blank lines before them.
std::string without_key(std::string text, const std::string& key);
bool is_insecure(const std::string& text);
// Where the daemon's key and certificate are.
std::string identity_dir(const std::string& text, const std::string& daemon);

}  // namespace souk
