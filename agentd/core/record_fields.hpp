// SPDX-License-Identifier: GPL-2.0-or-later
// The lists of fields (kernel/base/fields.hpp) of the records that Home, Guest and Provider keep.
#pragma once

#include "agentd/core/guest_devices.hpp"
#include "agentd/core/guest_io.hpp"
#include "agentd/core/home_io.hpp"
#include "agentd/core/message_fields.hpp"
#include "agentd/core/owner_bans.hpp"
#include "agentd/core/owner_returns.hpp"
#include "agentd/core/provider.hpp"
#include "agentd/core/story.hpp"
#include "agentd/core/use_meter.hpp"
#include "market/core/message_fields.hpp"

namespace souk {

SOUK_FIELDS(Orphan, field("peer", &Orphan::peer), field("epoch", &Orphan::epoch, rule::count));

SOUK_FIELDS(Checkpoint,  //
            field("at", &Checkpoint::at), field("epoch", &Checkpoint::epoch, rule::count),
            field("taken", &Checkpoint::taken, rule::time),
            field("bytes", &Checkpoint::bytes, rule::bytes),
            element("stdout_end", &Checkpoint::output_end, 0, rule::count),
            element("stderr_end", &Checkpoint::output_end, 1, rule::count),
            field("input_end", &Checkpoint::input_end, rule::count),
            field("began", &Checkpoint::began, rule::time));

SOUK_FIELDS(Splice,  //
            field("due", &Splice::due), element("stdout_shift", &Splice::shift, 0, rule::count),
            element("stderr_shift", &Splice::shift, 1, rule::count),
            field("input_shift", &Splice::input_shift, rule::count),
            field("at", &Splice::at, rule::count),
            field("text", &Splice::text, rule::text(TextRule::as_is)));

SOUK_FIELDS(
    StoryStep,  //
    field("what", &StoryStep::what,
          rule::one_of(StoryStep::What::submitted, StoryStep::What::evacuated)),
    field("at", &StoryStep::at, rule::time), field("node", &StoryStep::node, rule::node_or_none),
    field("from", &StoryStep::from, rule::node_or_none),
    field("price", &StoryStep::price, rule::price),
    field("form", &StoryStep::form, rule::one_of(MoveForm::stop_and_copy, MoveForm::post_copy)),
    field("bytes", &StoryStep::bytes, rule::count),
    field("precopy_bytes", &StoryStep::precopy_bytes, rule::count),
    field("pause", &StoryStep::pause, rule::known_span),
    field("sent", &StoryStep::sent, rule::known_span),
    field("held", &StoryStep::held, rule::known_span),
    field("released", &StoryStep::released, rule::known_span),
    field("total", &StoryStep::total, rule::known_span),
    field("components", &StoryStep::components), field("skew", &StoryStep::skew, rule::known_span),
    field("why", &StoryStep::why, rule::text(TextRule::line, Story::why_max)),
    part("why_code", &StoryStep::why, &Trouble::code, cause_rule),
    part("why_detail", &StoryStep::why, &Trouble::detail,
         rule::text(TextRule::line, Story::detail_max)),
    field("count", &StoryStep::count));

SOUK_FIELDS(
    HomeJob,  //
    field("id", &HomeJob::id), field("spec", &HomeJob::spec, rule::required),
    field("terms", &HomeJob::terms, rule::required), field("name", &HomeJob::name, rule::name),
    field("user", &HomeJob::user, rule::name), field("submitted", &HomeJob::submitted, rule::time),
    field("phase", &HomeJob::phase, phase_rule), field("at", &HomeJob::at),
    field("epoch", &HomeJob::epoch, rule::count), field("to", &HomeJob::to),
    field("to_epoch", &HomeJob::to_epoch, rule::count),
    field("last_epoch", &HomeJob::last_epoch, rule::count),
    field("step", &HomeJob::step, rule::one_of(MoveStep::none, MoveStep::release)),
    field("from_frozen", &HomeJob::from_frozen),
    field("order_seq", &HomeJob::order_seq, rule::count), field("cancelled", &HomeJob::cancelled),
    field("stats", &HomeJob::stats), field("places", &HomeJob::places, places_rule),
    field("comment", &HomeJob::comment),
    part("comment_code", &HomeJob::comment, &Cause::code, cause_rule),
    field("wait_status", &HomeJob::wait_status), field("why", &HomeJob::why),
    part("why_code", &HomeJob::why, &Cause::code, cause_rule),
    field("cost", &HomeJob::cost, rule::amount), field("price", &HomeJob::price, rule::price),
    field("settled", &HomeJob::settled), field("token", &HomeJob::token),
    field("orphans", &HomeJob::orphans), field("cpu_here", &HomeJob::cpu_here, rule::span),
    field("leased", &HomeJob::leased), field("to_leased", &HomeJob::to_leased),
    field("checkpoint", &HomeJob::checkpoint, rule::unless_same),
    field("saving", &HomeJob::saving, rule::unless_same),
    field("splice", &HomeJob::splice, rule::unless_same),
    field("cost_run", &HomeJob::cost_run, rule::known_span),
    field("stay_run", &HomeJob::stay_run, rule::known_span),
    field("running_since", &HomeJob::running_since, rule::zero_is(Nanos::never().ns, rule::span)),
    field("boot", &HomeJob::boot), field("day_limit", &HomeJob::day_limit, rule::amount),
    field("day_cost", &HomeJob::day_cost, rule::amount),
    field("day_warn", &HomeJob::day_warn, rule::amount),
    field("lacking", &HomeJob::lacking, places_rule),
    field("lacking_status", &HomeJob::lacking_status), field("lacking_why", &HomeJob::lacking_why),
    part("lacking_code", &HomeJob::lacking_why, &Cause::code, cause_rule),
    field("in_place", &HomeJob::in_place), field("story", &HomeJob::story),
    field("ticket", &HomeJob::ticket, sealed_ticket_rule),
    field("group", &HomeJob::group, rule::unless_same),
    field("disk_secret", &HomeJob::disk_secret, rule::text(TextRule::line, 64)),
    field("out_file", &HomeJob::out_file, spec_path_rule),
    field("err_file", &HomeJob::err_file, spec_path_rule),
    field("files_use", &HomeJob::files_use, rule::unless_same),
    field("cut", &HomeJob::cut, rule::one_of(CutStep::none, CutStep::held)),
    field("going_back", &HomeJob::going_back), field("by_order", &HomeJob::by_order),
    field("evacuation", &HomeJob::evacuation, rule::unless_same),
    field("work", &HomeJob::work, rule::span),
    field("speed", &HomeJob::speed, rule::zero_is(100, rule::between(1, provider_speed_max))),
    field("to_speed", &HomeJob::to_speed, rule::zero_is(100, rule::between(1, provider_speed_max))),
    field("ended_for", &HomeJob::ended_for),
    part("ended_for_code", &HomeJob::ended_for, &Cause::code, cause_rule),
    field("tries", &HomeJob::tries, rule::unless_same),
    field("place_ends", &HomeJob::place_ends, rule::time),
    field("ended", &HomeJob::ended, rule::time));

SOUK_FIELDS(GuestKey, field("id", &GuestKey::id), field("epoch", &GuestKey::epoch, rule::count));

SOUK_FIELDS(GuestJob,  //
            flat(&GuestJob::key), field("spec", &GuestJob::spec, rule::required),
            field("memory_mb", &GuestJob::memory_mb, rule::megabytes),
            field("cpus", &GuestJob::cpus, rule::cpus),
            field("state", &GuestJob::state, guest_state_rule),
            field("from_image", &GuestJob::from_image), field("kept", &GuestJob::kept),
            field("lapsed", &GuestJob::lapsed), field("in_place", &GuestJob::in_place),
            field("by_order", &GuestJob::by_order),
            field("image_bytes", &GuestJob::image_bytes, rule::bytes),
            field("wait_status", &GuestJob::wait_status), field("went_on", &GuestJob::went_on),
            field("resources", &GuestJob::resources, rule::text(TextRule::line, resource_text_max)),
            field("devices", &GuestJob::devices, rule::at_most(guest_devices_max)));

SOUK_FIELDS(GuestUse,  //
            flat(&GuestUse::key), field("run", &GuestUse::run, rule::span),
            field("since", &GuestUse::since, rule::zero_is(Nanos::never().ns, rule::span)),
            field("boot", &GuestUse::boot), field("ended", &GuestUse::ended));

SOUK_FIELDS(
    ProviderRecord,  //
    field("reserve", &ProviderRecord::reserve, rule::price),
    field("speed", &ProviderRecord::speed, rule::between(1, provider_speed_max)),
    field("cpus", &ProviderRecord::cpus, rule::cpus),
    field("memory_mb", &ProviderRecord::memory_mb, rule::megabytes),
    field("frames", &ProviderRecord::frames), field("on_market", &ProviderRecord::on_market),
    field("by_hand", &ProviderRecord::by_hand),
    field("since_unix_s", &ProviderRecord::since_unix_s), field("set", &ProviderRecord::set),
    field("zone", &ProviderRecord::zone), field("curve", &ProviderRecord::curve),
    field("warning_s", &ProviderRecord::warning_s, rule::between(0, 86'400)),
    field("price_auto", &ProviderRecord::price_auto),
    field("floor", &ProviderRecord::floor, rule::price),
    field("learned", &ProviderRecord::learned, rule::price),
    field("since_second", &ProviderRecord::since_second, rule::plus(1, rule::between(0, week_s))),
    field("bans", &ProviderRecord::bans, rule::at_most(OwnerBans::entries_max)),
    field("share", &ProviderRecord::share));

SOUK_FIELDS(OwnerReturn,  //
            field("number", &OwnerReturn::number, rule::count),
            field("began", &OwnerReturn::began, rule::time), field("cause", &OwnerReturn::cause),
            field("why", &OwnerReturn::why), field("guests", &OwnerReturn::guests),
            field("memory_mb", &OwnerReturn::memory_mb, rule::megabytes),
            field("free_cpu", &OwnerReturn::free_cpu, rule::known_span),
            field("stopped", &OwnerReturn::stopped, rule::known_span),
            field("free_memory", &OwnerReturn::free_memory, rule::known_span),
            field("empty", &OwnerReturn::empty, rule::known_span),
            field("away", &OwnerReturn::away, rule::known_span),
            field("cpu_promise", &OwnerReturn::cpu_promise, rule::span),
            field("memory_promise", &OwnerReturn::memory_promise, rule::span),
            field("empty_promise", &OwnerReturn::empty_promise, rule::span),
            field("cpu_missed", &OwnerReturn::cpu_missed),
            field("memory_missed", &OwnerReturn::memory_missed),
            field("empty_missed", &OwnerReturn::empty_missed), field("share", &OwnerReturn::share));

}  // namespace souk
