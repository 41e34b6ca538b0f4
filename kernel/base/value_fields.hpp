// SPDX-License-Identifier: GPL-2.0-or-later
// The lists of fields (fields.hpp) of values that several rooms hold.
#pragma once

#include "kernel/base/fields.hpp"
#include "kernel/base/launch.hpp"
#include "kernel/base/machine.hpp"
#include "kernel/base/move.hpp"
#include "kernel/base/pages.hpp"

namespace souk {

// The rule for the code of a cause. A later version may have more of them.
inline constexpr Rule cause_rule = rule::between(0, UINT16_MAX);

SOUK_FIELDS(Machine,  //
            field("architecture", &Machine::architecture, rule::name),
            field("kernel", &Machine::kernel, rule::name),
            field("criu", &Machine::criu, rule::name), field("page_bytes", &Machine::page_bytes),
            field("cpu_features", &Machine::cpu_features, rule::text(TextRule::line, 8192)));

SOUK_FIELDS(MoveForecast,
            field("form", &MoveForecast::form,
                  rule::one_of(MoveForm::stop_and_copy, MoveForm::post_copy)),
            field("pause", &MoveForecast::pause, rule::span),
            field("total", &MoveForecast::total, rule::span),
            field("precopy_bytes", &MoveForecast::precopy_bytes, rule::count),
            field("precopy_time", &MoveForecast::precopy_time, rule::span),
            field("precopy_rounds", &MoveForecast::precopy_rounds),
            field("left_bytes", &MoveForecast::left_bytes, rule::count),
            field("frozen_bytes", &MoveForecast::frozen_bytes, rule::count),
            field("dirty_bytes_per_s", &MoveForecast::dirty_bytes_per_s, rule::count),
            field("dirty_expected_bytes_per_s", &MoveForecast::dirty_expected_bytes_per_s,
                  rule::count));

SOUK_FIELDS(PageRange,  //
            field("pid", &PageRange::pid, rule::between(1, INT32_MAX)),
            field("start", &PageRange::start, rule::between(0, int64_t{1} << 57)),
            field("pages", &PageRange::pages, rule::between(1, 1 << 16)));

inline constexpr size_t spec_rlimits_max = 16;  // RLIM_NLIMITS
// Arguments and environment of a job: as many strings, and bytes with one more for each, as its
// user may give; and as many as its home adds (SOUK_JOB_ID to SOUK_HOSTS), for which whatever keeps
// or sends the job has room too.
inline constexpr size_t spec_strings_max = 32'768, spec_bytes_max = 512 * 1024;
inline constexpr size_t spec_added_strings_max = 16, spec_added_bytes_max = 32 * 1024;
inline constexpr Rule spec_strings_rule = rule::at_most(
    spec_strings_max + spec_added_strings_max, rule::text(TextRule::c_string, spec_bytes_max));
inline constexpr Rule spec_path_rule = rule::text(TextRule::c_string, 4095);
inline constexpr Rule cells_rule = rule::between(0, 65'535);

SOUK_FIELDS(ResourceLimit,
            field("resource", &ResourceLimit::resource, rule::between(0, spec_rlimits_max - 1)),
            field("soft", &ResourceLimit::soft), field("hard", &ResourceLimit::hard));

SOUK_FIELDS(LaunchSpec,  //
            field("argv", &LaunchSpec::argv, spec_strings_rule),
            field("path", &LaunchSpec::path, spec_path_rule),
            field("env", &LaunchSpec::env, spec_strings_rule),
            field("cwd", &LaunchSpec::cwd, spec_path_rule),
            field("umask", &LaunchSpec::umask, rule::between(0, 0777)),
            field("rlimits", &LaunchSpec::rlimits, rule::at_most(spec_rlimits_max)),
            field("uid", &LaunchSpec::uid), field("gid", &LaunchSpec::gid),
            field("groups", &LaunchSpec::groups, rule::at_most(65'536)),
            field("tty", &LaunchSpec::tty), field("rows", &LaunchSpec::rows, cells_rule),
            field("cols", &LaunchSpec::cols, cells_rule));

SOUK_FIELDS(RunsAs,  //
            field("known", &RunsAs::known), field("uid", &RunsAs::uid), field("gid", &RunsAs::gid),
            field("groups", &RunsAs::groups, rule::at_most(65'536)));

}  // namespace souk
