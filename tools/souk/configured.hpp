// SPDX-License-Identifier: GPL-2.0-or-later
// Reads a daemon's configuration, as far as a tool that changes it must know it.
#pragma once

#include <string>

namespace souk {

std::string config_text(const std::string& path);  // empty: it cannot be read
// Returns the value of a key of a daemon's configuration, if it is a text there.
std::string configured(const std::string& text, const std::string& key);
// Tells whether the configuration sets the key, to whatever.
bool says(const std::string& text, const std::string& key);
// Returns the text without the lines that set the key, and without the blank lines before them.
std::string without_key(std::string text, const std::string& key);
bool is_insecure(const std::string& text);
// Returns the directory of the daemon's key and certificate.
std::string identity_dir(const std::string& text, const std::string& daemon);

}  // namespace souk
