// SPDX-License-Identifier: GPL-2.0-or-later
// The lists of fields (kernel/base/fields.hpp) of messages.hpp.
#pragma once

#include "agentd/core/messages.hpp"
#include "kernel/base/value_fields.hpp"
#include "market/core/message_fields.hpp"

namespace souk {

inline constexpr Rule guest_state_rule = rule::one_of(GuestState::unknown, GuestState::filling);

SOUK_FIELDS(JobAfter, field("seq", &JobAfter::seq, rule::count),
            field("how", &JobAfter::how, rule::one_of(JobAfter::How::ended, JobAfter::How::badly)),
            field("each", &JobAfter::each), field("whole", &JobAfter::whole),
            field("failed", &JobAfter::failed));

SOUK_FIELDS(JobTies, field("after", &JobTies::after, rule::count),
            field("after_ok", &JobTies::after_ok), field("array", &JobTies::array, rule::count),
            field("first", &JobTies::first), field("index", &JobTies::index),
            field("at_once", &JobTies::at_once), field("gang", &JobTies::gang, rule::count),
            field("components", &JobTies::components), field("component", &JobTies::component),
            field("whole", &JobTies::whole), field("tries", &JobTies::tries),
            field("role", &JobTies::role,
                  rule::one_of(ComponentClass::required, ComponentClass::optional)),
            field("node", &JobTies::node, rule::node_or_none), field("spread", &JobTies::spread),
            field("pack", &JobTies::pack), field("near", &JobTies::near),
            field("near_trip_us", &JobTies::near_trip_us, rule::between(0, market::near_most)),
            field("near_mbit", &JobTies::near_mbit, rule::between(0, market::near_most)),
            field("afters", &JobTies::afters, rule::at_most(JobTies::afters_max)),
            field("after_any", &JobTies::after_any), field("singleton", &JobTies::singleton),
            field("begin", &JobTies::begin, rule::time));

SOUK_FIELDS(JobSpec, flat(&JobSpec::launch),  //
            field("move", &JobSpec::move, rule::one_of(MovePolicy::automatic, MovePolicy::fast)),
            field("tcp", &JobSpec::tcp, rule::one_of(TcpPolicy::close, TcpPolicy::keep)),
            field("net", &JobSpec::net, rule::one_of(NetMode::host, NetMode::own)),
            field("address", &JobSpec::address),
            field("checkpoint_every", &JobSpec::checkpoint_every, rule::span),
            field("restart", &JobSpec::restart), field("lease", &JobSpec::lease, rule::span),
            field("must_migrate", &JobSpec::must_migrate),
            field("user", &JobSpec::user, rule::name), field("as", &JobSpec::as, rule::unless_same),
            field("files", &JobSpec::files, rule::one_of(FilesMode::local, FilesMode::home)),
            field("files_auto", &JobSpec::files_auto),
            field("file_systems", &JobSpec::file_systems, rule::text(TextRule::line, 4096)),
            field("local_paths", &JobSpec::local_paths,
                  rule::at_most(local_paths_max, rule::text(TextRule::line, 255))),
            field("tmp", &JobSpec::tmp, rule::one_of(FilesTmp::home, FilesTmp::shared)),
            field("files_snapshot", &JobSpec::files_snapshot), field("hold", &JobSpec::hold),
            field("grace", &JobSpec::grace, rule::span));

SOUK_FIELDS(JobTries,  //
            field("most", &JobTries::most, rule::between(0, JobTries::most_max)),
            field("statuses", &JobTries::statuses,
                  rule::at_most(JobTries::statuses_max, rule::between(1, 255))),
            field("signal", &JobTries::signal), field("node", &JobTries::node),
            field("used", &JobTries::used));

SOUK_FIELDS(
    GuestCommand,  //
    field("id", &GuestCommand::id), field("epoch", &GuestCommand::epoch, rule::count),
    field("verb", &GuestCommand::verb, rule::one_of(GuestVerb::query, GuestVerb::checkpoint)),
    field("new_epoch", &GuestCommand::new_epoch, rule::count),
    field("dest", &GuestCommand::dest, rule::node_or_none),
    field("dest_address", &GuestCommand::dest_address, rule::address),
    field("spec", &GuestCommand::spec, rule::unless_same),
    field("memory_mb", &GuestCommand::memory_mb, rule::megabytes),
    field("cpus", &GuestCommand::cpus, rule::cpus),
    field("signal", &GuestCommand::signal, rule::between(0, 64)),
    field("to_all", &GuestCommand::to_all), field("or_stand", &GuestCommand::or_stand),
    field("stand", &GuestCommand::stand), field("not_restored", &GuestCommand::not_restored),
    field("source", &GuestCommand::source, rule::node_or_none),
    field("ticket", &GuestCommand::ticket, sealed_ticket_rule),
    field("image_key", &GuestCommand::image_key, rule::text(TextRule::line, 64)),
    field("disk_secret", &GuestCommand::disk_secret, rule::text(TextRule::line, 64)),
    field("cut", &GuestCommand::cut, rule::one_of(Cut::none, Cut::checkpoint)),
    field("resources", &GuestCommand::resources, rule::text(TextRule::line, resource_text_max)));

SOUK_FIELDS(GuestEvent,  //
            field("id", &GuestEvent::id), field("epoch", &GuestEvent::epoch, rule::count),
            field("state", &GuestEvent::state, guest_state_rule),
            field("wait_status", &GuestEvent::wait_status),
            field("error", &GuestEvent::error, rule::between(0, 4095)),
            field("program_error", &GuestEvent::program_error), field("why", &GuestEvent::why),
            part("why_code", &GuestEvent::why, &Trouble::code, cause_rule),
            part("why_detail", &GuestEvent::why, &Trouble::detail),
            field("image_bytes", &GuestEvent::image_bytes, rule::bytes),
            field("stopped", &GuestEvent::stopped),
            field("forecast", &GuestEvent::forecast, rule::unless_same),
            field("cannot_move", &GuestEvent::cannot_move),
            part("cannot_move_code", &GuestEvent::cannot_move, &Trouble::code, cause_rule),
            part("cannot_move_detail", &GuestEvent::cannot_move, &Trouble::detail),
            field("pid", &GuestEvent::pid, rule::between(0, INT32_MAX)),
            field("leased", &GuestEvent::leased), field("lapsed", &GuestEvent::lapsed),
            field("in_place", &GuestEvent::in_place),
            field("held_for", &GuestEvent::held_for, rule::count),
            field("cpu_time", &GuestEvent::cpu_time, rule::span),
            element("stdout_end", &GuestEvent::output_end, 0, rule::count),
            element("stderr_end", &GuestEvent::output_end, 1, rule::count),
            field("input_end", &GuestEvent::input_end, rule::count),
            unsent("heard", &GuestEvent::heard), field("image_refused", &GuestEvent::image_refused),
            field("as", &GuestEvent::as, rule::unless_same), field("no_user", &GuestEvent::no_user),
            field("paused", &GuestEvent::paused),
            part("paused_code", &GuestEvent::paused, &Cause::code, cause_rule),
            field("all_stand", &GuestEvent::all_stand),
            field("must_leave", &GuestEvent::must_leave), field("went_on", &GuestEvent::went_on),
            field("memory_peak", &GuestEvent::memory_peak, rule::bytes));

SOUK_FIELDS(Expel, field("id", &Expel::id), field("epoch", &Expel::epoch, rule::count));

SOUK_FIELDS(Heartbeat, field("sent", &Heartbeat::sent, rule::span));

}  // namespace souk
