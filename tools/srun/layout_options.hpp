// SPDX-License-Identifier: GPL-2.0-or-later
// Parses srun's options that say how many components a job has, how large they are, and how they
// are to lie. Each function sets what `text` means; errors: what is wrong with it, one line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "tools/srun/options.hpp"

namespace souk::tools {

inline constexpr int32_t gang_components_max = 1'024;  // HomeGangs::components_max

// Options that say how large the components are, as bits of SrunOptions::sizes_said.
enum SizeOption : uint32_t {
    size_cpus = 1,        // -c
    size_components = 2,  // -N
    size_total = 4,
    size_flexible = 8,
    size_ordered = 16
};
// Has `parse` take such an option, and notes that it was given.
using TakeOption = std::function<Status(const char*)>;
TakeOption sized(SrunOptions& o, SizeOption option, TakeOption parse);
// Says which of them contradict each other, and what to write; empty: none do.
std::string size_conflict(const SrunOptions& o);

Status set_total(SrunOptions& o, const char* text);          // --total N
Status set_components(SrunOptions& o, const char* text);     // -N: a number, or a file
Status set_flexible(SrunOptions& o, std::string_view text);  // --flexible N[:MIN]
Status set_ordered(SrunOptions& o, std::string_view text);   // --ordered NODE:CPUS,...
Status set_near(SrunOptions& o, const char* text);           // --near[=BOUND,...]; null: no bound

}  // namespace souk::tools
