// SPDX-License-Identifier: GPL-2.0-or-later
// Runs gnuplot (Debian package gnuplot-nox) on a script. The picture appears whole under its name
// or not at all.
#pragma once

#include <functional>
#include <string>

#include "kernel/base/result.hpp"

namespace souk::tools {

// Fails, saying what to install, where there is no gnuplot.
Status find_gnuplot();
// `script` is given the name of the file to write.
Status gnuplot(const std::string& picture,
               const std::function<std::string(const std::string& output)>& script);

}  // namespace souk::tools
